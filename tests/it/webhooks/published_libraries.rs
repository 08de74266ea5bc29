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
use serde_json::json;

use super::hooks::HookServer;
use crate::harness::{Answer, Backend, Client, EXECUTABLE, Folder, Process, wait_until};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const SIGNED_BODY: &str = r#"{"type":"nouns.test","id":"1"}"#;

/// A receiver of the document.
#[derive(Debug, Clone, Copy)]
enum Language {
    Python,
    JavaScript,
}

impl Language {
    fn file_name(self) -> &'static str {
        match self {
            Self::Python => "receiver.py",
            Self::JavaScript => "receiver.mjs",
        }
    }

    fn interpreter(self) -> Command {
        match self {
            Self::Python => Command::new(packages_folder().join("python/bin/python3")),
            Self::JavaScript => Command::new("node"),
        }
    }
}

#[test]
fn webhook_signature_is_verified_by_the_python_library() {
    verify_with(Language::Python);
}

#[test]
fn webhook_signature_is_verified_by_the_javascript_library() {
    verify_with(Language::JavaScript);
}

on_every_backend! {
    fn webhook_deliveries_are_verified_by_the_python_library(backend: Backend) {
        verify_deliveries(backend, Language::Python);
    }

    fn webhook_deliveries_are_verified_by_the_javascript_library(backend: Backend) {
        verify_deliveries(backend, Language::JavaScript);
    }
}

/// The deliveries of a running server, before, during and after the rotation of a secret.
fn verify_deliveries(backend: Backend, language: Language) {
    let server = HookServer::start(backend);
    let hook = server.create(&json!({"url": "http://127.0.0.1:9/", "events": ["customer.*"]}));
    let former = LibraryReceiver::start(language, &hook.secret);
    let lead_to = |receiver: &LibraryReceiver| {
        server.patch(
            &hook.path,
            &json!({"webhook": {"url": format!("http://{}/", receiver.address)}}),
        );
    };
    lead_to(&former);
    let ann = server.create_customer("Ünal 客");
    server.rename(&ann, 2);
    server.wait_for_deliveries(&hook, 3, "delivered");
    let [created, updated] = ["nouns.customer.created ", "nouns.customer.updated "];
    former.expect_lines(&[created, updated, updated]);

    // During the overlap of two secrets, receivers with either of them verify.
    let rotated = server.patch(&hook.path, &json!({"webhook": {"secret": null}}));
    let secret = rotated.json()["webhook"]["secret"].as_str().unwrap().to_owned();
    server.rename(&ann, 1);
    server.wait_for_deliveries(&hook, 4, "delivered");
    former.expect_lines(&[updated]);
    let current = LibraryReceiver::start(language, &secret);
    lead_to(&current);
    server.patch(&ann, &json!({"customer": {"name": "Bea"}}));
    server.wait_for_deliveries(&hook, 5, "delivered");
    current.expect_lines(&[updated]);

    // The library refuses a delivery that was signed with other secrets.
    let other = LibraryReceiver::start(language, OTHER_SECRET);
    lead_to(&other);
    server.rename(&ann, 1);
    other.expect_lines(&["refused: "]);
    wait_until("the refusal is recorded", || {
        let all = server.deliveries(&hook);
        all.iter()
            .any(|one| one["response_status"] == 401 && one["status"] == "pending")
            .then_some(())
    });
}

/// A receiver of the document, which runs.
struct LibraryReceiver {
    process: Process,
    address: String,
    _folder: Folder,
}

impl LibraryReceiver {
    fn start(language: Language, secret: &str) -> Self {
        let (folder, name) = (Folder::new(), language.file_name());
        fs::write(folder.path().join(name), code_block(name)).unwrap();
        let modules = folder.path().join("node_modules");
        symlink(packages_folder().join("node_modules"), modules).unwrap();
        let mut program = language.interpreter();
        program.arg(name).current_dir(folder.path()).env("WEBHOOK_SECRET", secret).env("PORT", "0");
        let process = Process::spawn(&mut program);
        let line = process.first_line();
        let port: u16 = line.strip_prefix("listening on ").unwrap().parse().unwrap();
        Self { process, address: format!("127.0.0.1:{port}"), _folder: folder }
    }

    /// The next lines that it prints begin like this.
    #[track_caller]
    fn expect_lines(&self, expected: &[&str]) {
        for begin in expected {
            let line = self.process.next_line().unwrap();
            assert!(line.starts_with(begin), "{line}, expected {begin}");
        }
    }
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

fn verify_with(language: Language) {
    let receiver = LibraryReceiver::start(language, SECRET);
    let address = &receiver.address;
    assert_eq!(send_test(&format!("http://{address}/"), SECRET), Some(0));
    receiver.expect_lines(&["nouns.test test_"]);
    assert_eq!(send_test(&format!("http://{address}/"), OTHER_SECRET), Some(1));
    receiver.expect_lines(&["refused: "]);

    // The library refuses what a receiver must refuse, so its consent means something.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let changed = SIGNED_BODY.replace('1', "2");
    for (seconds, body, status) in
        [(now, SIGNED_BODY, 204), (now, &changed, 401), (now - 600, SIGNED_BODY, 401)]
    {
        let answer = post_signed(address, seconds, body);
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
