//! `nouns webhook test`: what it sends, what it prints, and its exit codes.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use expect_test::expect;
use regex::Regex;

use super::receiver::{Receiver, ReceiverAction};
use super::verify_signature;
use crate::harness::{
    CertificatePair, ClosedPort, EXECUTABLE, FinishedProcess, Folder, Stopwatch, run_nouns,
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn send_to(url: &str) -> FinishedProcess {
    run_nouns(Folder::new().path(), &["webhook", "test", url, "--allow-private"])
}

/// Runs the command with the secret on its standard input.
fn send_with_secret(url: &str, secret: &str) -> FinishedProcess {
    let mut command = Command::new(EXECUTABLE);
    command.args(["webhook", "test", url, "--allow-private", "--secret-stdin"]).env_clear();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(secret.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    FinishedProcess {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

#[test]
fn webhook_test_sends_a_signed_event_and_prints_it() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nthank\x07 you";
    let receiver = Receiver::always(ReceiverAction::Send(answer.to_vec()));
    let ended = send_to(&receiver.url());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    let request = receiver.only_request();
    let secret = ended.stdout.trim_end().rsplit_once(' ').unwrap().1;
    verify_signature(&request, secret);
    let event: serde_json::Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(event["specversion"], "1.0");
    assert_eq!(event["id"], request.header("webhook-id").unwrap());
    let mask = |text: &str| {
        // With its host: a timestamp may have the digits of the port.
        let mut text = text.replace(&format!("127.0.0.1:{}", receiver.port()), "127.0.0.1:PORT");
        for (pattern, word) in [
            (r"test_[0-9a-z]{26}", "ID"),
            (r"webhook-timestamp: \d{10}", "webhook-timestamp: SECONDS"),
            (r"v1,[A-Za-z0-9+/]{43}=", "SIGNATURE"),
            (r"whsec_[A-Za-z0-9+/]{43}=", "SECRET"),
            (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "TIME"),
            (r"after \d+ ms", "after N ms"),
        ] {
            text = Regex::new(pattern).unwrap().replace_all(&text, word).into_owned();
        }
        text
    };
    expect![[r#"
        POST http://127.0.0.1:PORT/hook?a=b
        content-type: application/cloudevents+json; charset=utf-8
        user-agent: nouns/0.1.0
        webhook-id: ID
        webhook-timestamp: SECONDS
        webhook-signature: SIGNATURE

        {"specversion":"1.0","id":"ID","source":"/","type":"nouns.test","time":"TIME","datacontenttype":"application/json","data":{"message":"a test of this webhook"}}

        answered 200 after N ms
        thank you
        the secret of the signature: SECRET
    "#]]
    .assert_eq(&mask(&ended.stdout));
    expect![[r#"
        POST /hook?a=b HTTP/1.1
        content-type: application/cloudevents+json; charset=utf-8
        user-agent: nouns/0.1.0
        webhook-id: ID
        webhook-timestamp: SECONDS
        webhook-signature: SIGNATURE
        host: 127.0.0.1:PORT
        connection: close
        content-length: 211

    "#]]
    .assert_eq(&mask(&request.head).replace('\r', ""));
}

#[test]
fn webhook_test_secret_from_stdin_is_used_and_never_printed() {
    let receiver = Receiver::always(ReceiverAction::status(204));
    let ended = send_with_secret(&receiver.url(), &format!("{SECRET}\n"));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    verify_signature(&receiver.only_request(), SECRET);
    assert!(!ended.stdout.contains("whsec_"), "{}", ended.stdout);
    for bad in ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZI"] {
        let ended = send_with_secret(&receiver.url(), bad);
        let expected = "nouns: the secret on standard input is not one of a webhook: expected whsec_ and 24 to 64 bytes in base64\n";
        assert_eq!((ended.code, ended.stdout.as_str(), &*ended.stderr), (Some(2), "", expected));
    }
    assert_eq!(receiver.requests().len(), 1);
}

#[test]
fn webhook_test_exit_code_says_whether_the_event_was_accepted() {
    for (status, code) in [(200, 0), (204, 0), (299, 0), (300, 1), (304, 1), (410, 1), (500, 1)] {
        let receiver = Receiver::always(ReceiverAction::status(status));
        let ended = send_to(&receiver.url());
        assert_eq!(ended.code, Some(code), "{status}");
        assert!(ended.stdout.contains(&format!("answered {status} after ")), "{}", ended.stdout);
        assert_eq!(receiver.requests().len(), 1);
    }
    let busy = "HTTP/1.1 503 X\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n";
    let ended = send_to(&Receiver::always(ReceiverAction::Send(busy.into())).url());
    assert_eq!(ended.code, Some(1));
    assert!(ended.stdout.contains(" ms, retry-after: 120\n"), "{}", ended.stdout);
}

#[test]
fn webhook_test_follows_no_redirect() {
    let target = Receiver::always(ReceiverAction::status(200));
    for status in [301, 302, 303, 307, 308] {
        let redirect = format!(
            "HTTP/1.1 {status} X\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
            target.url()
        );
        let receiver = Receiver::always(ReceiverAction::Send(redirect.into()));
        let ended = send_to(&receiver.url());
        assert_eq!(ended.code, Some(1));
        assert!(ended.stdout.contains(&format!("answered {status} ")), "{}", ended.stdout);
        receiver.only_request();
    }
    assert_eq!(target.connections(), 0);
}

#[test]
fn webhook_test_answer_is_read_up_to_a_limit() {
    let mut large = b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n".to_vec();
    large.resize(10_000_000, b'a');
    let receiver = Receiver::always(ReceiverAction::SendAndStall(large));
    let ended = send_to(&receiver.url());
    assert_eq!(ended.code, Some(0));
    let shown = Regex::new("(?m)^a+$").unwrap().find(&ended.stdout).unwrap();
    assert_eq!(shown.len(), 1000);

    let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(100_000));
    let ended = send_to(&Receiver::always(ReceiverAction::SendAndStall(head.into())).url());
    assert_eq!(ended.code, Some(1));
    let expected = "the head of the answer has more than 32768 bytes\n";
    assert!(ended.stderr.ends_with(expected), "{}", ended.stderr);
}

#[test]
fn webhook_test_broken_answers_are_failures() {
    let partial = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_vec();
    let message = Regex::new(
        r"^nouns: no answer after \d+ ms: the connection ended without a whole HTTP response\n$",
    )
    .unwrap();
    for action in [
        ReceiverAction::Reset,
        ReceiverAction::SendAndClose(Vec::new()),
        ReceiverAction::SendAndClose(b"HTTP/1.1 200".to_vec()),
        ReceiverAction::SendAndClose(partial),
        ReceiverAction::SendAndClose(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
    ] {
        let receiver = Receiver::always(action.clone());
        let ended = send_to(&receiver.url());
        assert_eq!(ended.code, Some(1), "{action:?}");
        assert!(message.is_match(&ended.stderr), "{action:?}: {}", ended.stderr);
    }
    let closed = ClosedPort::reserve();
    let ended = send_to(&format!("http://{}/", closed.address));
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.ends_with("the host does not accept connections\n"), "{}", ended.stderr);
}

/// Ten seconds; with two steps of ten seconds each it would be twenty.
const END_MAX: Duration = Duration::from_secs(19);

#[test]
fn webhook_test_stalled_answer_ends_after_ten_seconds() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_vec();
    let receiver = Receiver::always(ReceiverAction::SendAndStall(head));
    let watch = Stopwatch::start();
    let ended = send_to(&receiver.url());
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.ends_with("there was no whole answer in time\n"), "{}", ended.stderr);
    assert!(watch.elapsed() < END_MAX, "{:?}", watch.elapsed());
}

/// Each step alone would be in time: a byte comes every 100 ms, in the head or in the body.
#[test]
fn webhook_test_dripping_answer_ends_after_ten_seconds() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n".to_vec();
    thread::scope(|scope| {
        for begin in [head, b"HTTP/1.1 200 OK\r\nX: ".to_vec()] {
            scope.spawn(move || {
                let receiver = Receiver::always(ReceiverAction::SendAndDrip(begin));
                let watch = Stopwatch::start();
                let ended = send_to(&receiver.url());
                assert_eq!(ended.code, Some(1));
                let message = "there was no whole answer in time\n";
                assert!(ended.stderr.ends_with(message), "{}", ended.stderr);
                assert!(watch.elapsed() < END_MAX, "{:?}", watch.elapsed());
            });
        }
    });
}

/// The receiver accepts the connection, and is silent in the TLS handshake.
#[test]
fn webhook_test_silent_handshake_ends_after_ten_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let watch = Stopwatch::start();
    let ended = send_to(&format!("https://{}/", listener.local_addr().unwrap()));
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.ends_with("there was no whole answer in time\n"), "{}", ended.stderr);
    assert!(watch.elapsed() < END_MAX, "{:?}", watch.elapsed());
}

#[test]
fn webhook_test_verifies_the_certificate_for_the_name_in_the_url() {
    let pair = CertificatePair::new();
    let folder = Folder::new();
    pair.write(folder.path());
    let receiver = Receiver::with_tls("127.0.0.1", &pair);
    let send = |url: String, trusted: &str| {
        let mut command = Command::new(EXECUTABLE);
        command.args(["webhook", "test", &url, "--allow-private"]).env_clear();
        let output = command.env("SSL_CERT_FILE", folder.path().join(trusted)).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let port = receiver.port();
    let elsewhere = Receiver::with_tls("127.0.0.2", &pair);
    for host in ["localhost", "127.0.0.1"] {
        let (code, message) = send(format!("https://{host}:{port}/"), "cert.pem");
        assert_eq!((code, message.as_str()), (Some(0), ""));
    }
    fs::write(folder.path().join("other.pem"), CertificatePair::new().certificate).unwrap();
    for (host, port, trusted, cause) in [
        ("localhost", port, "other.pem", "invalid peer certificate: "),
        ("127.0.0.2", elsewhere.port(), "cert.pem", "certificate not valid for name "),
    ] {
        let (code, message) = send(format!("https://{host}:{port}/"), trusted);
        assert_eq!(code, Some(1));
        assert!(message.contains("the TLS handshake failed ("), "{message}");
        assert!(message.contains(cause), "{message}");
    }
    assert_eq!((receiver.requests().len(), elsewhere.requests().len()), (2, 0));
    // HTTP where TLS is expected.
    let plain = Receiver::always(ReceiverAction::status(204));
    let (code, message) = send(format!("https://127.0.0.1:{}/", plain.port()), "cert.pem");
    assert_eq!(code, Some(1));
    assert!(message.contains("the TLS handshake failed ("), "{message}");
}

#[test]
fn webhook_test_uses_no_proxy_of_the_environment() {
    let receiver = Receiver::always(ReceiverAction::status(204));
    let proxy = Receiver::always(ReceiverAction::status(500));
    let mut command = Command::new(EXECUTABLE);
    command.args(["webhook", "test", &receiver.url(), "--allow-private"]).env_clear();
    for name in ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"] {
        command.env(name, proxy.url());
    }
    assert_eq!(command.output().unwrap().status.code(), Some(0));
    assert_eq!((receiver.requests().len(), proxy.connections()), (1, 0));
}
