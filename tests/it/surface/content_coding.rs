//! Content coding of responses: which coding, which ETag, and that other programs can decode it.
//!
//! The `gzip` and `zstd` programs and curl decode; none of them shares code with the server.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::ANN;
use crate::harness::{Answer, Backend, HeldChallenge, Server, Setup, md5, parameter, wait_until};

const MODEL: &str = r#"
title = "Notes"
[resources.note.fields]
text = { type = "text", required = true }
"#;

fn notes(backend: Backend) -> Server {
    Setup::new(backend).model(MODEL).start()
}

fn note(text: &str) -> String {
    format!(r#"{{"note":{{"text":"{text}"}}}}"#)
}

/// A text without long repetitions.
fn long_text(words: usize) -> String {
    (0..words).map(|number| format!("word {} ", number * number)).collect()
}

fn ask(server: &Server, line: &str, accepted: &str) -> Answer {
    server.request(line, &[("Accept-Encoding", accepted)], "")
}

/// The body, decoded by another program.
fn decode(answer: &Answer) -> Vec<u8> {
    match answer.header("Content-Encoding") {
        None => answer.body.clone(),
        Some(coding) => pipe_through(coding, &["-dc"], &answer.body),
    }
}

fn pipe_through(program: &str, arguments: &[&str], bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut input = child.stdin.take().unwrap();
    let bytes = bytes.to_owned();
    let writer = std::thread::spawn(move || drop(input.write_all(&bytes)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}");
    output.stdout
}

fn coding(answer: &Answer) -> &str {
    answer.header("Content-Encoding").unwrap_or("-")
}

fn tag(answer: &Answer) -> String {
    answer.header("ETag").unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

const CODINGS: &[&str] = &["gzip", "zstd"];

on_every_backend! {
    fn content_coding_of_a_large_response_follows_accept_encoding(backend: Backend) {
        let server = notes(backend);
        let path = server.create("/notes", note(&long_text(400)));
        let plain = server.get(&path);
        assert_eq!((coding(&plain), plain.header("Vary")), ("-", Some("Accept, Accept-Encoding")));
        for (accepted, expected) in [
            ("gzip", "gzip"), ("gzip, deflate, br, zstd", "zstd"), ("gzip, deflate", "gzip"), ("*", "gzip"), ("x-gzip", "gzip"),
            ("zstd;q=0.5, gzip;q=0.6", "gzip"), ("gzip;q=0.4, identity;q=0.5", "-"), ("br", "-"), ("identity", "-"), ("", "-"),
            ("gzip;q=0, zstd;q=0", "-"), ("nonsense;;;=, gzip", "gzip"),
            // No coding is acceptable, and a 406 would have a body in the same coding.
            ("identity;q=0", "-"), ("*;q=0", "-"),
        ] {
            for line in [format!("GET {path}"), "GET /notes".to_owned()] {
                let answer = ask(&server, &line, accepted);
                assert_eq!((answer.status, coding(&answer)), (200, expected), "{accepted}: {answer:?}");
                assert_eq!(answer.header("Vary"), Some("Accept, Accept-Encoding"), "{accepted}");
                assert_eq!(answer.header("Content-Length"), Some(&*answer.body.len().to_string()), "{accepted}");
                assert_eq!(decode(&answer), server.get(line.trim_start_matches("GET ")).body, "{accepted}");
                assert!(expected == "-" || answer.body.len() < plain.body.len() / 2, "{accepted}");
            }
        }
    }

    /// RFC 9110 §9.3.2: the same headers, including the length of the coded bytes.
    fn content_coding_of_head_equals_that_of_get(backend: Backend) {
        let server = notes(backend);
        let path = server.create("/notes", note(&long_text(400)));
        for coding in CODINGS {
            let mut answers = ["GET", "HEAD"].map(|verb| ask(&server, &format!("{verb} {path}"), coding));
            for answer in &mut answers {
                answer.headers.retain(|(name, _)| !["date", "x-request-id"].contains(&&*name.to_ascii_lowercase()));
            }
            assert_eq!(answers[0].header("Content-Encoding"), Some(*coding));
            assert_eq!(answers[0].headers, answers[1].headers);
            assert!(answers[1].body.is_empty());
        }
    }

    /// 1 KiB is sent without a coding, a byte more with one; a small response may be large tomorrow, so
    /// `Vary` is there.
    fn content_coding_is_not_applied_to_small_responses(backend: Backend) {
        let server = notes(backend);
        let path = server.create("/notes", note("a"));
        let remaining = 1024 + 1 - server.get(&path).body.len();
        for (length, expected) in [(remaining, "-"), (remaining + 1, "gzip")] {
            let path = server.create("/notes", note(&"a".repeat(length)));
            assert_eq!(server.get(&path).body.len(), 1024 + length - remaining);
            let answer = ask(&server, &format!("GET {path}"), "gzip");
            assert_eq!((coding(&answer), answer.header("Vary")), (expected, Some("Accept, Accept-Encoding")));
        }
        // Unless `identity` is refused: then every body is coded.
        for line in [&*format!("GET {path}"), "GET /", "GET /nothing", "GET /-/health"] {
            let answer = ask(&server, line, "gzip, identity;q=0");
            assert_eq!(coding(&answer), "gzip", "{line}");
            assert!(serde_json::from_slice::<Value>(&decode(&answer)).is_ok(), "{line}");
        }
        let removed = ask(&server, &format!("DELETE {path}"), "gzip, identity;q=0");
        assert_eq!((removed.status, coding(&removed), removed.header("Vary")), (204, "-", None));
    }

    /// Equal ETags mean equal bytes: each coding has its own, small items too, and 201, 304, 412 and
    /// PATCH send the ETag of GET.
    fn content_coding_each_has_its_own_etag(backend: Backend) {
        let server = notes(backend);
        for text in [long_text(400), "short".to_owned()] {
            let mut seen = Vec::new();
            for accepted in ["", "gzip", "zstd", "gzip, *;q=0", "zstd, *;q=0"] {
                let headers = [("Accept-Encoding", accepted)];
                let created = server.request("POST /notes", &headers, note(&text));
                let path = created.header("Location").unwrap().to_owned();
                let got = ask(&server, &format!("GET {path}"), accepted);
                assert_eq!(tag(&created), tag(&got), "{accepted}");
                assert_eq!(tag(&ask(&server, &format!("HEAD {path}"), accepted)), tag(&got));
                let had = tag(&got);
                let headers = [("Accept-Encoding", accepted), ("If-None-Match", &had)];
                let same = server.request(&format!("GET {path}"), &headers, "");
                assert_eq!((same.status, tag(&same), coding(&same)), (304, tag(&got), "-"), "{accepted}");
                assert_eq!(same.header("Vary"), Some("Accept, Accept-Encoding"));
                let headers = [("Accept-Encoding", accepted), ("If-Match", "\"9\"")];
                let unmet = server.request(&format!("PUT {path}"), &headers, note("b"));
                assert_eq!((unmet.status, tag(&unmet)), (412, tag(&got)), "{accepted}");
                let patched = server.request(&format!("PATCH {path}"), &[("Accept-Encoding", accepted)], note("other"));
                let got = ask(&server, &format!("GET {path}"), accepted);
                assert_eq!((patched.status, tag(&patched)), (200, tag(&got)), "{accepted}");
                seen.push(had);
            }
            let count = seen.len();
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len(), count, "{seen:?}");
        }
    }

    /// The bytes of one coding are not those of another, but both are the same version.
    fn etag_of_another_coding_matches_the_version_but_not_the_bytes(backend: Backend) {
        let server = notes(backend);
        let path = server.create("/notes", note(&long_text(400)));
        let zipped = tag(&ask(&server, &format!("GET {path}"), "gzip"));
        for (accepted, status) in [("gzip", 304), ("zstd", 200), ("", 200), ("gzip, identity;q=0", 200)] {
            let headers = [("Accept-Encoding", accepted), ("If-None-Match", &zipped)];
            assert_eq!(server.request(&format!("GET {path}"), &headers, "").status, status, "{accepted}");
        }
        let headers = [("If-Match", &*zipped)];
        assert_eq!(server.request(&format!("PUT {path}"), &headers, note("b")).status, 200);
        assert_eq!(server.request(&format!("PUT {path}"), &headers, note("c")).status, 412);
    }

    /// Off the serving thread, and with a window that every decoder supports (RFC 8878 §3.1.1.1.2).
    fn content_coding_applies_to_very_large_responses(backend: Backend) {
        let server = notes(backend);
        let text = long_text(40_000);
        for _ in 0..8 {
            server.create("/notes", note(&text));
        }
        let plain = server.get("/notes");
        assert!(plain.body.len() > 4 << 20, "{}", plain.body.len());
        for coded in CODINGS {
            let answer = ask(&server, "GET /notes", coded);
            assert_eq!(coding(&answer), *coded);
            assert_eq!(decode(&answer), plain.body);
            if *coded == "zstd" {
                // It fails where more than these 2^23 bytes would be needed.
                assert_eq!(pipe_through("zstd", &["-dc", "--memory=8MB"], &answer.body), plain.body);
            }
        }
    }

    /// Every long body is coded: problems and metrics too.
    fn content_coding_applies_to_problems_and_metrics(backend: Backend) {
        let server = notes(backend);
        let items = vec!["{}"; 100].join(",");
        let faulty = format!(r#"{{"notes":[{items}]}}"#);
        let refused = server.request("POST /notes", &[("Accept-Encoding", "zstd")], faulty);
        assert_eq!((refused.status, coding(&refused)), (422, "zstd"));
        let problem: Value = serde_json::from_slice(&decode(&refused)).unwrap();
        assert_eq!(problem["errors"].as_array().unwrap().len(), 100);
        let scrape = ask(&server, "GET /-/metrics", "gzip");
        assert_eq!((scrape.status, coding(&scrape)), (200, "gzip"));
        assert!(decode(&scrape).starts_with(b"# "));
    }

    /// A streaming response is coded chunk by chunk; an abandoned one leaves nothing behind.
    fn content_coding_of_exports_is_streamed(backend: Backend) {
        let server = notes(backend);
        let text = long_text(2000);
        for _ in 0..4 {
            let items = vec![format!(r#"{{"text":"{text}"}}"#); 50].join(",");
            assert_eq!(server.post("/notes", format!(r#"{{"notes":[{items}]}}"#)).status, 201);
        }
        for kind in ["application/x-ndjson", "text/csv"] {
            let plain = server.request("GET /notes", &[("Accept", kind)], "");
            assert!(plain.body.len() > 4 << 20, "{}", plain.body.len());
            for coded in CODINGS {
                let headers = [("Accept", kind), ("Accept-Encoding", coded)];
                let answer = server.request("GET /notes", &headers, "");
                assert_eq!((answer.status, coding(&answer)), (200, *coded));
                assert_eq!(answer.header("Vary"), Some("Accept, Accept-Encoding"));
                assert_eq!(decode(&answer), plain.body, "{kind} {coded}");
                let head = server.request("HEAD /notes", &headers, "");
                assert_eq!((head.status, coding(&head)), (200, *coded));
            }
        }
        let mut client = server.client();
        let address = server.address;
        let head = format!("GET /notes HTTP/1.1\r\nHost: {address}\r\nAccept: text/csv\r\nAccept-Encoding: zstd\r\n\r\n");
        client.write(head.as_bytes());
        drop(client);
        wait_until("nothing is held any more", || {
            server.get("/-/metrics").text().contains("\nnouns_buffered_bytes 0\n").then_some(())
        });
    }

    fn content_coding_is_decoded_by_curl(backend: Backend) {
        let server = notes(backend);
        let path = server.create("/notes", note(&long_text(400)));
        let curl = |arguments: &[&str]| {
            let address = format!("http://{}{path}", server.address);
            let output = Command::new("curl").args(["-sS", &address]).args(arguments).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            output.stdout
        };
        let plain = server.get(&path).body;
        assert_eq!(curl(&[]), plain);
        assert_eq!(curl(&["--compressed"]), plain);
        let head = String::from_utf8(curl(&["--compressed", "-D", "-", "-o", "/dev/null"])).unwrap();
        assert!(head.to_ascii_lowercase().contains("\ncontent-encoding: "), "{head}");
    }

    /// RFC 7616 §3.4.3: the hash covers the body as sent, which is the coded one.
    fn content_coding_is_covered_by_auth_int(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let held = HeldChallenge::new(&server, &server.admin(), "/customers");
        let response = held.digest_response(1, "auth-int", &format!("POST:/customers:{}", md5(ANN)));
        let proof = held.header((1, "auth-int"), "/customers", &response);
        let headers = [("Authorization", proof.as_str()), ("Accept-Encoding", "gzip, identity;q=0")];
        let created = server.request("POST /customers", &headers, ANN);
        assert_eq!((created.status, coding(&created)), (201, "gzip"), "{created:?}");
        let info = created.header("Authentication-Info").unwrap();
        let expected = held.digest_response(1, "auth-int", &format!(":/customers:{}", md5(&created.body)));
        assert_eq!(parameter(info, "rspauth"), expected, "{info}");
    }
}
