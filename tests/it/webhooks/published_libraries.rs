//! The receivers of `docs/events.md` verify our signatures with the published libraries of Standard Webhooks.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::harness::{Answer, Client, EXECUTABLE, Folder, Process, wait_until};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const SIGNED_BODY: &str = r#"{"type":"nouns.test","id":"1"}"#;

#[test]
fn webhook_signature_is_verified_by_the_python_library() {
    let python = packages_folder().join("python/bin/python3");
    verify_with("receiver.py", Command::new(python));
}

#[test]
fn webhook_signature_is_verified_by_the_javascript_library() {
    verify_with("receiver.mjs", Command::new("node"));
}

fn packages_folder() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("clients")
}

/// The code block of the document that is saved under this name.
fn code_block(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("docs/events.md")).unwrap();
    let (_, rest) = document.split_once(&format!("<!-- file: {name} -->\n\n```")).unwrap();
    let (_, code) = rest.split_once('\n').unwrap();
    code.split_once("\n```\n").unwrap().0.to_owned() + "\n"
}

fn verify_with(name: &str, mut program: Command) {
    let folder = Folder::new();
    fs::write(folder.path().join(name), code_block(name)).unwrap();
    let modules = folder.path().join("node_modules");
    symlink(packages_folder().join("node_modules"), modules).unwrap();
    program.arg(name).current_dir(folder.path()).env("WEBHOOK_SECRET", SECRET).env("PORT", "0");
    let receiver = Process::spawn(&mut program);
    let line = receiver.first_line();
    let port: u16 = line.strip_prefix("listening on ").unwrap().parse().unwrap();
    let address = format!("127.0.0.1:{port}");

    assert_eq!(send_test(&format!("http://{address}/"), SECRET), Some(0));
    let line = receiver.next_line().unwrap();
    assert!(line.starts_with("nouns.test test_"), "{line}");
    assert_eq!(send_test(&format!("http://{address}/"), OTHER_SECRET), Some(1));
    let line = receiver.next_line().unwrap();
    assert!(line.starts_with("refused: "), "{line}");

    // The library refuses what a receiver must refuse, so its consent means something.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let changed = SIGNED_BODY.replace('1', "2");
    for (seconds, body, status) in
        [(now, SIGNED_BODY, 204), (now, &changed, 401), (now - 600, SIGNED_BODY, 401)]
    {
        let answer = post_signed(&address, seconds, body);
        assert_eq!(answer.status, status, "{seconds} {body}");
    }
}

fn send_test(url: &str, secret: &str) -> Option<i32> {
    let mut command = Command::new(EXECUTABLE);
    command.args(["webhook", "test", url, "--allow-private", "--secret-stdin"]).env_clear();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(secret.as_bytes()).unwrap();
    wait_until("the command ends", || child.try_wait().unwrap()).code()
}

/// Sends a body with the signature of `SIGNED_BODY`.
fn post_signed(address: &str, seconds: u64, body: &str) -> Answer {
    let key = STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signature = hmac::sign(&key, format!("msg_1.{seconds}.{SIGNED_BODY}").as_bytes());
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\nwebhook-id: msg_1\r\n\
         webhook-timestamp: {seconds}\r\nwebhook-signature: v1,{}\r\n\r\n{body}",
        body.len(),
        STANDARD.encode(signature)
    );
    let mut client = Client::connect(address.parse().unwrap());
    client.send(request.as_bytes())
}
