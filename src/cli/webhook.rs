//! `nouns webhook test`: sends one signed sample event to a receiver, by the client that sends webhooks.

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::prompt;
use super::report::{CommandError, command_error, print_line};
use crate::auth::webhook_secret::WebhookSecret;
use crate::clock;
use crate::events::webhook::{
    ReceiverAnswer, SendError, SignedRequest, is_address_refused, printable_answer, send_once,
};
use crate::model::types::{AddressPolicy, find_url_fault};
use crate::wire::RequestId;

#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// Send a signed sample event to a receiver
    Test(TestArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Sends an event of the type nouns.test as a server sends webhooks: signed by the rules of Standard Webhooks, \
without following redirects, within 10 seconds, and only to public addresses. Prints the request and the \
answer. Exits with 0 if the receiver accepts the event with 2xx, with 1 if not, and with 2 if the URL or \
its address is refused.")]
pub struct TestArgs {
    /// The URL of the receiver, such as https://example.com/hook
    url: String,

    /// Read the secret from standard input [default: a new one, which is printed]
    #[arg(long)]
    secret_stdin: bool,

    /// Allow http, and loopback, private and link-local addresses
    #[arg(long)]
    allow_private: bool,
}

pub fn run(command: &WebhookCommand) -> Result<ExitCode, CommandError> {
    let WebhookCommand::Test(flags) = command;
    if let Some(fault) = find_url_fault(&flags.url, flags.allow_private) {
        let help = if flags.allow_private { "" } else { "; see --allow-private" };
        let help = if fault.contains("http is for private") { help } else { "" };
        return Err(command_error(format!("cannot send to {}: {fault}{help}", flags.url)));
    }
    let secret = match flags.secret_stdin {
        true => read_secret()?,
        false => new_secret()?,
    };
    let now = clock::moment();
    let id = format!("test_{}", RequestId::new().as_str());
    let body = format!(
        r#"{{"specversion":"1.0","id":"{id}","source":"/","type":"nouns.test","time":"{now}","datacontenttype":"application/json","data":{{"message":"a test of this webhook"}}}}"#
    );
    let secrets = [secret];
    let request = SignedRequest::new(&secrets, id, now.seconds(), body.into());
    print_request(&flags.url, &request);
    let (answer, duration) =
        send_once(AddressPolicy::new(flags.allow_private), &flags.url, &request);
    let code = print_answer(&flags.url, &answer, duration.as_millis())?;
    if !flags.secret_stdin {
        let [secret] = &secrets;
        let secret = secret.clear_text();
        print_line(&mut io::stdout(), format_args!("the secret of the signature: {secret}"));
    }
    Ok(code)
}

fn read_secret() -> Result<WebhookSecret, CommandError> {
    WebhookSecret::parse(&prompt::read_stdin("secret")?).ok_or_else(|| {
        command_error(
            "the secret on standard input is not one of a webhook: expected whsec_ and 24 to 64 bytes in base64",
        )
    })
}

fn new_secret() -> Result<WebhookSecret, CommandError> {
    WebhookSecret::random().ok_or_else(|| command_error("the system has no randomness; try again"))
}

/// Printed before it is sent, so that an answer that does not come is not a riddle.
fn print_request(url: &str, request: &SignedRequest) {
    let mut text = format!("POST {url}\n");
    for (name, value) in request.headers() {
        let _ = writeln!(text, "{name}: {value}");
    }
    let body = String::from_utf8_lossy(&request.body);
    print_line(&mut io::stdout(), format_args!("{text}\n{body}\n"));
}

fn print_answer(
    url: &str,
    answer: &Result<ReceiverAnswer, SendError>,
    millis: u128,
) -> Result<ExitCode, CommandError> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if is_address_refused(error) => {
            return Err(command_error(format!(
                "cannot send to {url}: {error}; see --allow-private"
            )));
        }
        Err(error) => {
            print_line(
                &mut io::stderr(),
                format_args!("nouns: no answer after {millis} ms: {error}"),
            );
            return Ok(ExitCode::FAILURE);
        }
    };
    let mut text = format!("answered {} after {millis} ms", answer.status);
    if let Some(seconds) = &answer.retry_after {
        let _ = write!(text, ", retry-after: {seconds}");
    }
    let body = printable_answer(&answer.body);
    if !body.is_empty() {
        let _ = write!(text, "\n{body}");
    }
    print_line(&mut io::stdout(), text);
    Ok(if answer.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
