//! SIGHUP: the certificate is reloaded, new connections get it, and established ones are not affected.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::{setup, start_with};
use crate::harness::{
    Backend, CertificatePair, Client, Server, Setup, trusting_client, wait_until,
};

/// How many log lines have this message.
fn count(server: &Server, message: &str) -> usize {
    server.log().lines().filter(|line| line.contains(&format!("\"message\":\"{message}"))).count()
}

fn reload(server: &Server, pair: &CertificatePair) {
    const MESSAGE: &str = "certificate reloaded";
    let before = count(server, MESSAGE);
    pair.write(server.folder());
    server.send_sighup();
    wait_until("the certificate is read again", || (count(server, MESSAGE) > before).then_some(()));
}

/// Sets the flag on drop.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Three times while 1,000 requests are in flight, over keep-alive connections and over new ones.
#[test]
fn certificate_reload_under_load_fails_no_request() {
    let pairs: Vec<CertificatePair> = (0..4).map(|_| CertificatePair::new()).collect();
    let config = trusting_client(&pairs.iter().collect::<Vec<_>>());
    let server = setup("").tls(&pairs[0]).start();
    server.create("/customers", r#"{"customer":{"name":"Ann"}}"#);
    std::fs::copy(server.folder().join("cert.pem"), server.folder().join("first.pem")).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http2-client.mjs");
    let mut node = Command::new("node")
        .args([script, &format!("https://{}/customers", server.address), "first.pem"])
        .current_dir(server.folder())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(node.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n", "it is connected before anything changes");
    let (answers, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let get = |client: &mut Client| {
        assert_eq!(client.request("GET /customers", &[], "").status, 200);
        answers.fetch_add(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        // Whatever the result, the other threads end too.
        let _over = SetOnDrop(&is_over);
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = Client::connect_tls(server.address, config.clone());
                while !is_over.load(Ordering::Relaxed) {
                    get(&mut client);
                }
                assert_eq!(
                    client.certificate().unwrap(),
                    pairs[0].der(),
                    "it is the first connection still"
                );
            });
        }
        // A client that opens a new connection for each request.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                get(&mut Client::connect_tls(server.address, config.clone()));
            }
        });
        for (number, pair) in (1..).zip(&pairs[1..]) {
            // All are in flight before each reload.
            wait_until("requests are answered", || {
                (answers.load(Ordering::Relaxed) >= number * 300).then_some(())
            });
            reload(&server, pair);
            let mut client = Client::connect_tls(server.address, pair.trusting_client());
            get(&mut client);
            assert_eq!(client.certificate().unwrap(), pair.der());
        }
        wait_until("there were enough", || {
            (answers.load(Ordering::Relaxed) >= 1_000).then_some(())
        });
    });
    drop(node.stdin.take());
    let mut last = String::new();
    said.read_to_string(&mut last).unwrap();
    assert!(node.wait().unwrap().success(), "{last}");
    let (number, bad) = last.trim_end().split_once(" answers, ").unwrap();
    assert!(number.parse::<usize>().unwrap() >= 8 && bad == "0 bad", "{last}");
    assert!(!server.log().contains("\"status\":500"));
}

/// When the new certificate is invalid, the old one stays, with one warning.
#[test]
fn certificate_reload_of_an_invalid_pair_keeps_the_old_one() {
    const WARNING: &str = "certificate not reloaded: the previous one is still served";
    let (server, pair) = start_with("");
    let other = CertificatePair::new();
    let bad = [
        ("cert.pem", String::from("nothing"), "is not PEM"),
        ("cert.pem", other.certificate.clone(), "does not belong to"),
        ("cert.pem", CertificatePair::valid(-7200, -3600).certificate, "does not belong to"),
        ("key.pem", String::new(), "is not PEM"),
    ];
    for (number, (name, text, cause)) in (1..).zip(bad) {
        pair.write(server.folder());
        std::fs::write(server.folder().join(name), text).unwrap();
        server.send_sighup();
        wait_until("it is warned of", || (count(&server, WARNING) >= number).then_some(()));
        let log = server.log();
        let line = log.lines().rfind(|line| line.contains(WARNING)).unwrap();
        assert!(line.contains("\"level\":\"warning\"") && line.contains(cause), "{line}");
        assert_eq!(server.get("/customers").status, 200, "the old one is served");
    }
    CertificatePair::valid(-7200, -3600).write(server.folder());
    server.send_sighup();
    wait_until("it is warned of", || (count(&server, WARNING) == 5).then_some(()));
    assert!(server.log().contains("expired at"), "{}", server.log());
    assert_eq!(server.get("/customers").status, 200);
    reload(&server, &other);
    let mut client = Client::connect_tls(server.address, other.trusting_client());
    assert_eq!(client.request("GET /customers", &[], "").status, 200);
    assert_eq!(count(&server, WARNING), 5);
}

/// Without a certificate and a changed model there is nothing to reload, and SIGHUP does not end the server.
#[test]
fn sighup_without_tls_is_ignored() {
    let server = Setup::new(Backend::Sqlite).start();
    for number in 1..=2 {
        server.send_sighup();
        wait_until("it is logged", || {
            (count(&server, "SIGHUP: the model has not changed") == number).then_some(())
        });
        assert_eq!(server.get("/customers").status, 200);
    }
    server.stop();
}

/// At the start and at the time of the warning, each once.
#[test]
fn certificate_near_its_expiry_is_logged() {
    const DAY: i64 = 86_400;
    let first = "the certificate expires within 14 days: renew it, then send SIGHUP";
    let second = "the certificate expires within a day: renew it, then send SIGHUP";
    let last = "the certificate has expired: clients refuse it; renew it, then send SIGHUP";
    let server = setup("").tls(&CertificatePair::valid(-DAY, 2 * DAY)).start();
    wait_until("the first warning", || (count(&server, first) == 1).then_some(()));
    let end = super::metric(&server, "nouns_tls_certificate_expiry_timestamp_seconds");
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!((now..=now + 2 * 86_400).contains(&end), "{end} {now}");
    reload(&server, &CertificatePair::valid(-DAY, DAY + 3));
    wait_until("the second, at its moment", || (count(&server, second) == 1).then_some(()));
    // Another certificate is warned about again.
    reload(&server, &CertificatePair::valid(-DAY, 10));
    wait_until("it is warned of", || (count(&server, second) == 2).then_some(()));
    wait_until("it has ended", || (count(&server, last) == 1).then_some(()));
    let fresh = CertificatePair::new();
    reload(&server, &fresh);
    let mut client = Client::connect_tls(server.address, fresh.trusting_client());
    assert_eq!(client.request("GET /customers", &[], "").status, 200);
}
