//! HTTPS: what is offered and refused, certificate reload, and the redirect from HTTP.
//!
//! Requests and responses are the same as without TLS, and tested there.

mod invalid_certificates;
mod cert_command;
mod handshakes;
mod offered;
mod redirect;
mod reload;
mod start;

use std::process::Command;

use crate::harness::{
    Backend, CertificatePair, FinishedProcess, Process, Server, Setup, wait_until,
};

/// A server of the built-in store over TLS, with these lines in `[server]`.
fn start_with(lines: &str) -> (Server, CertificatePair) {
    let pair = CertificatePair::new();
    (setup(lines).tls(&pair).start(), pair)
}

fn setup(lines: &str) -> Setup {
    let model = format!(
        "title = \"Safe\"\n\n[resources.customer.fields]\nname = {{ type = \"text\" }}\n\n[server]\n{lines}\n"
    );
    Setup::new(Backend::Sqlite).model(&model)
}

/// Runs a program of the system in the server's folder, which has its certificate.
fn run_program(server: &Server, program: &str, args: &[&str]) -> FinishedProcess {
    let mut command = Command::new(program);
    command.args(args).current_dir(server.folder()).env_clear();
    command.env("PATH", std::env::var("PATH").unwrap());
    Process::spawn(&mut command).end()
}

/// The response to curl over HTTPS: the status and the headers as lines, and the body.
fn curl(server: &Server, args: &[&str], target: &str) -> (String, String) {
    let address = format!("https://{}{target}", server.address);
    let fixed = ["--disable", "--silent", "--show-error", "--include", "--max-time", "100"];
    let trust = ["--cacert", "cert.pem", address.as_str()];
    let ended = run_program(server, "curl", &[&fixed[..], args, &trust].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?} {target}");
    let (head, body) = ended.stdout.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.trim_end().to_owned())
}

/// Waits until a metric has this value: it may be counted a moment after the client has noticed the
/// event.
fn wait_for_metric(server: &Server, name: &str, value: u64) {
    wait_until(&format!("{name} is {value}"), || (metric(server, name) == value).then_some(()));
}

/// The value of a metric, 0 where nothing was counted.
fn metric(server: &Server, name: &str) -> u64 {
    server.metric(name).unwrap_or(0)
}
