//! Offered TLS versions, cipher suites and protocols, as third-party clients see them.

use super::{curl, metric, run_program, start_with, wait_for_metric};
use crate::harness::{Backend, CertificatePair, Server, Setup, wait_until};

on_every_backend! {
    /// The same bytes as without TLS, over HTTP/1.1 and HTTP/2 alike.
    fn tls_responses_are_equal_over_every_protocol(backend: Backend) {
        let pair = CertificatePair::new();
        let server = Setup::new(backend).tls(&pair).start();
        let ann = r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#;
        let path = server.create("/customers", ann);
        let shown = server.get(&path);
        for (flag, begin) in [("--http1.1", "HTTP/1.1 200 OK"), ("--http2", "HTTP/2 200")] {
            let (head, body) = curl(&server, &[flag], &path);
            assert!(head.starts_with(begin), "{head}");
            assert_eq!(body, shown.text());
        }
        let (head, _) = curl(&server, &["--http2", "--request", "DELETE"], &path);
        assert!(head.starts_with("HTTP/2 204"), "{head}");
        assert_eq!(server.get(&path).status, 404);
        let folder = server.stop();
        assert!(folder.path().join("cert.pem").exists());
    }
}

#[test]
fn tls_versions_offered_are_1_2_and_1_3() {
    let (server, _) = start_with("");
    for (least, most, protocol) in [("1.2", "1.2", "TLSv1.2"), ("1.3", "1.3", "TLSv1.3")] {
        let flags = [format!("--tlsv{least}"), "--tls-max".into(), most.into()];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        for http in ["--http1.1", "--http2"] {
            let (head, _) = curl(&server, &[&flags[..], &[http]].concat(), "/");
            assert!(head.contains(" 200"), "{protocol} {http}: {head}");
        }
        let seen =
            s_client(&server, &[&format!("-{}", protocol.to_lowercase().replace("v1.", "1_"))]);
        assert!(
            seen.contains(&format!("Protocol  : {protocol}"))
                || seen.contains(&format!("New, {protocol}")),
            "{seen}"
        );
    }
    // Level 0 lets the client itself offer old versions.
    for old in ["-tls1_1", "-tls1"] {
        let ended = run_program(
            &server,
            "openssl",
            &[
                "s_client",
                "-connect",
                &server.address.to_string(),
                old,
                "-cipher",
                "ALL:@SECLEVEL=0",
            ],
        );
        assert_ne!(ended.code, Some(0), "{old}");
        assert!(ended.stderr.contains("SSL alert number"), "{old}: {}", ended.stderr);
    }
    wait_for_metric(&server, "nouns_tls_handshakes_total{result=\"failed\"}", 2);
}

fn s_client(server: &Server, flags: &[&str]) -> String {
    let address = server.address.to_string();
    let fixed = ["s_client", "-connect", &address, "-CAfile", "cert.pem", "-verify_return_error"];
    let ended = run_program(server, "openssl", &[&fixed[..], flags].concat());
    assert_eq!(ended.code, Some(0), "{flags:?}: {}", ended.stderr);
    ended.stdout
}

#[test]
fn tls_alpn_chooses_the_protocol() {
    let (server, _) = start_with("");
    for (offered, expected) in [
        ("h2,http/1.1", "ALPN protocol: h2"),
        ("http/1.1,h2", "ALPN protocol: h2"),
        ("http/1.1", "ALPN protocol: http/1.1"),
    ] {
        let seen = s_client(&server, &["-alpn", offered]);
        assert!(seen.contains(expected), "{offered}: {seen}");
    }
    assert!(s_client(&server, &[]).contains("No ALPN negotiated"));
    let address = server.address.to_string();
    let ended =
        run_program(&server, "openssl", &["s_client", "-connect", &address, "-alpn", "spdy/3"]);
    assert!(ended.stderr.contains("no application protocol"), "{}", ended.stderr);
}

/// No weak option, by the list of a scanner.
#[test]
fn tls_scanner_finds_nothing_weak() {
    let (server, _) = start_with("");
    let ended = run_program(&server, "sslscan", &["--no-colour", &server.address.to_string()]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let seen = ended.stdout;
    for expected in [
        "SSLv2     disabled",
        "SSLv3     disabled",
        "TLSv1.0   disabled",
        "TLSv1.1   disabled",
        "TLSv1.2   enabled",
        "TLSv1.3   enabled",
        "Session renegotiation not supported",
        "TLSv1.3 not vulnerable to heartbleed",
        "TLSv1.2 not vulnerable to heartbleed",
    ] {
        assert!(seen.contains(expected), "{expected} is not in:\n{seen}");
    }
    assert!(!seen.contains("Compression enabled"), "{seen}");
    let suites: Vec<&str> = seen
        .lines()
        .filter(|line| line.starts_with("Preferred ") || line.starts_with("Accepted "))
        .collect();
    assert!(suites.len() >= 6, "{seen}");
    for suite in suites {
        let is_strong = (suite.contains("TLSv1.3") && suite.contains(" TLS_"))
            || (suite.contains("TLSv1.2") && suite.contains(" ECDHE-"));
        let is_sealed = suite.contains("GCM") || suite.contains("CHACHA20");
        assert!(is_strong && is_sealed, "{suite}\n{seen}");
    }
    let groups: Vec<&str> =
        seen.lines().filter(|line| line.contains(" bits ") && line.starts_with("TLSv1.")).collect();
    for group in &groups {
        let known = ["x25519", "secp256r1", "secp384r1"];
        assert!(known.iter().any(|known| group.contains(known)), "{group}\n{seen}");
    }
    assert!(!groups.is_empty(), "{seen}");
}

/// By ticket, in both versions, and counted; the server accepts no early data.
#[test]
fn tls_sessions_are_resumed() {
    let (server, pair) = start_with("");
    for (number, version) in (1..).zip(["-tls1_2", "-tls1_3"]) {
        let address = server.address.to_string();
        let first =
            ["s_client", "-connect", &address, version, "-sess_out", "session.pem", "-ign_eof"];
        // Tickets of TLS 1.3 follow the handshake: they have arrived with the response.
        let script = format!(
            "printf 'GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' | openssl {} 2>&1",
            first.join(" ")
        );
        let seen = run_program(&server, "bash", &["-c", &script]).stdout;
        assert!(seen.contains("New, TLSv1."), "{seen}");
        let script = script.replace("-sess_out", "-sess_in");
        let seen = run_program(&server, "bash", &["-c", &script]).stdout;
        assert!(seen.contains("Reused, TLSv1."), "{version}: {seen}");
        assert!(!seen.contains("Early data was accepted"), "{seen}");
        wait_for_metric(&server, "nouns_tls_handshakes_total{result=\"resumed\"}", number);
    }
    // The tests' own client as well, which stores sessions in its configuration.
    let config = pair.trusting_client();
    for expected in [false, true] {
        let before = metric(&server, "nouns_tls_handshakes_total{result=\"resumed\"}");
        let mut client = crate::harness::Client::connect_tls(server.address, config.clone());
        assert_eq!(client.request("GET /", &[], "").status, 200);
        drop(client);
        let resumed = metric(&server, "nouns_tls_handshakes_total{result=\"resumed\"}") - before;
        assert_eq!(resumed == 1, expected);
    }
}

/// A foreign ticket, or one of a discarded key, leads to a full handshake and no error.
#[test]
fn tls_session_of_another_server_is_a_full_handshake() {
    let pair = CertificatePair::new();
    let (one, other) = (super::setup("").tls(&pair).start(), super::setup("").tls(&pair).start());
    let config = pair.trusting_client();
    for server in [&one, &other] {
        let mut client = crate::harness::Client::connect_tls(server.address, config.clone());
        assert_eq!(client.request("GET /", &[], "").status, 200);
    }
    wait_for_metric(&other, "nouns_tls_handshakes_total{result=\"resumed\"}", 0);
    wait_for_metric(&other, "nouns_tls_handshakes_total{result=\"failed\"}", 0);
}

/// Idle connections end with `close_notify`, which the tests' client requires.
#[test]
fn tls_idle_connection_ends_with_close_notify() {
    let (server, _) = start_with("limits = { idle_seconds_max = 1 }");
    let mut client = server.client();
    assert_eq!(client.request("GET /", &[], "").status, 200);
    assert!(client.is_closed());
    let mut client = server.client();
    assert_eq!(client.request("GET /", &[("Connection", "close")], "").status, 200);
    assert!(client.is_closed());
    let mut client = server.client();
    assert_eq!(client.request("GET /", &[], "").status, 200);
    server.terminate();
    assert!(client.is_closed());
    let (status, _) = server.wait();
    assert_eq!(status.code(), Some(0));
}

/// Above the limit there is no handshake, only an alert.
#[test]
fn tls_connection_limit_exceeded_sends_an_alert() {
    let (server, _) = start_with("limits = { connections_max = 2 }");
    let mut held: Vec<_> = (0..2).map(|_| server.client()).collect();
    for client in &mut held {
        assert_eq!(client.request("GET /", &[], "").status, 200);
    }
    let address = server.address.to_string();
    let ended = run_program(&server, "openssl", &["s_client", "-connect", &address]);
    assert!(ended.stderr.contains("alert internal error"), "{}", ended.stderr);
    drop(held);
    wait_until("there is room again", || {
        let ended = run_program(&server, "openssl", &["s_client", "-connect", &address, "-brief"]);
        (ended.code == Some(0)).then_some(())
    });
}

/// A client that wants a post-quantum key exchange gets it.
#[test]
fn tls_post_quantum_key_exchange_is_offered() {
    let (server, pair) = start_with("");
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let mut session = rustls::ClientConnection::new(pair.trusting_client(), name).unwrap();
    let mut socket = std::net::TcpStream::connect(server.address).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut socket).unwrap();
    }
    let group = session.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, rustls::NamedGroup::X25519MLKEM768);
}
