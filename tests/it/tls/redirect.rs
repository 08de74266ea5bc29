//! `--redirect`: plain HTTP requests are redirected to the same URL over HTTPS, and nowhere else.
//!
//! HSTS tells browsers not to use plain HTTP again.

use std::net::SocketAddr;

use super::{curl, run_program, setup, wait_for_metric};
use crate::harness::{Backend, CertificatePair, Client, Server, Setup, wait_until};

/// A server over TLS with a redirecting listener, and that listener's address.
fn start(lines: &str) -> (Server, SocketAddr) {
    let server =
        setup(lines).tls(&CertificatePair::new()).flags(&["--redirect", "127.0.0.1:0"]).start();
    let address = wait_until("the address is logged", || {
        let log = server.log();
        let line = log
            .lines()
            .find(|line| line.contains("requests without TLS are redirected to HTTPS"))?;
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        Some(line["address"].as_str().unwrap().parse().unwrap())
    });
    (server, address)
}

/// The status and the Location of a response after which the connection is closed.
fn location(address: SocketAddr, request: &str) -> (u16, String) {
    let mut client = Client::connect(address);
    client.write(request.as_bytes());
    let text = String::from_utf8(client.read_to_close()).unwrap();
    let (head, _) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
    assert_eq!(header("strict-transport-security: "), None, "{head}");
    // HTTP/1.0 needs no `Connection: close`.
    let closes = head.starts_with("HTTP/1.0 ") || header("connection: ") == Some("close");
    assert!(closes, "{head}");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, header("location: ").unwrap_or_default().to_owned())
}

#[test]
fn redirect_keeps_the_path_and_query() {
    let (server, address) = start("hsts = \"180d\"");
    let port = server.address.port();
    let table = [
        ("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n", "shop.example", "/"),
        (
            "GET /customers?limit=1&a=%20 HTTP/1.1\r\nHost: shop.example:80\r\n\r\n",
            "shop.example",
            "/customers?limit=1&a=%20",
        ),
        ("HEAD /x HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "[::1]", "/x"),
        (
            "POST /customers HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 500000\r\n\r\n{",
            "shop.example",
            "/customers",
        ),
        (
            "DELETE /no/such/path HTTP/1.1\r\nHost: shop.example\r\n\r\n",
            "shop.example",
            "/no/such/path",
        ),
        ("BREW /pot HTTP/1.1\r\nHost: shop.example\r\n\r\n", "shop.example", "/pot"),
        ("OPTIONS * HTTP/1.1\r\nHost: shop.example\r\n\r\n", "shop.example", "/"),
        (
            "GET //evil.example/ HTTP/1.1\r\nHost: shop.example\r\n\r\n",
            "shop.example",
            "//evil.example/",
        ),
        (
            "GET /\\evil.example HTTP/1.1\r\nHost: shop.example\r\n\r\n",
            "shop.example",
            "/\\evil.example",
        ),
        (
            "GET http://shop.example/x?y HTTP/1.1\r\nHost: shop.example\r\n\r\n",
            "shop.example",
            "/x?y",
        ),
        ("GET /x HTTP/1.0\r\nHost: shop.example\r\n\r\n", "shop.example", "/x"),
    ];
    for (request, host, rest) in table {
        let expected = format!("https://{host}:{port}{rest}");
        assert_eq!(location(address, request), (308, expected), "{request:?}");
    }
    wait_for_metric(
        &server,
        "nouns_requests_total{resource=\"-\",verb=\"DELETE\",status=\"308\"}",
        1,
    );
    wait_until("it is logged", || {
        server.log().contains("\"path\":\"/no/such/path\"").then_some(())
    });
}

#[test]
fn redirect_without_a_valid_host_is_refused() {
    let (_server, address) = start("limits = { target_bytes_max = 100, header_seconds_max = 3 }");
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(100));
    let table = [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a!b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: user@a\r\n\r\n", 400),
        ("GET http://evil.example/ HTTP/1.1\r\nHost: shop.example\r\n\r\n", 400),
        ("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", 400),
        ("GET evil.example HTTP/1.1\r\nHost: shop.example\r\n\r\n", 400),
        ("nonsense\r\n\r\n", 400),
        (&long, 414),
        ("GET / HTTP/1.1\r\nHos", 408),
    ];
    for (request, status) in table {
        assert_eq!(location(address, request), (status, String::new()), "{request:?}");
    }
}

/// The port of the first listener is kept, and a declared public URL takes precedence.
#[test]
fn redirect_prefers_the_declared_url_to_the_host() {
    let (_server, address) = start("base_url = \"https://shop.example:444\"");
    for request in [
        "GET /x?y HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET http://evil.example/x?y HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET /x?y HTTP/1.0\r\n\r\n",
    ] {
        let expected = "https://shop.example:444/x?y".to_owned();
        assert_eq!(location(address, request), (308, expected), "{request:?}");
    }
}

on_every_backend! {
    /// A client that follows the redirect keeps its method and its body.
    fn redirect_followed_keeps_method_and_body(backend: Backend) {
        let pair = CertificatePair::new();
        let setup = Setup::new(backend).tls(&pair).flags(&["--redirect", "127.0.0.1:0"]);
        let server = setup.start();
        let plain = wait_until("the address is logged", || {
            let log = server.log();
            let (_, rest) = log.split_once("\"address\":\"")?;
            Some(rest.split_once('"')?.0.to_owned())
        });
        let ann = r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#;
        let address = format!("http://{plain}/customers");
        let args = ["--disable", "--silent", "--show-error", "--location", "--cacert", "cert.pem", "--json", ann, &address];
        let ended = run_program(&server, "curl", &args);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        assert!(ended.stdout.contains("\"name\":\"Ann\""), "{}", ended.stdout);
        assert_eq!(server.get("/customers").json()["customers"].as_array().unwrap().len(), 1);
    }
}

/// On every response over TLS, whatever its status, and on no other.
#[test]
fn hsts_is_sent_only_over_tls() {
    let server = setup("hsts = \"180d\"").tls(&CertificatePair::new()).start();
    let expected = Some("max-age=15552000");
    let header = |line: &str| server.request(line, &[], "");
    for (line, status) in [
        ("GET /customers", 200),
        ("GET /nothing", 404),
        ("DELETE /customers", 405),
        ("BREW /customers", 501),
        ("OPTIONS /customers", 204),
    ] {
        let answer = header(line);
        assert_eq!((answer.status, answer.header("Strict-Transport-Security")), (status, expected));
    }
    let answer = server.send("nonsense\r\n\r\n");
    assert_eq!((answer.status, answer.header("Strict-Transport-Security")), (400, expected));
    let (head, _) = curl(&server, &["--http2"], "/nothing");
    assert!(head.contains("strict-transport-security: max-age=15552000"), "{head}");
    let plain = setup("hsts = \"180d\"").start();
    assert_eq!(plain.get("/customers").header("Strict-Transport-Security"), None);
    let silent = setup("").tls(&CertificatePair::new()).start();
    assert_eq!(silent.get("/customers").header("Strict-Transport-Security"), None);
}
