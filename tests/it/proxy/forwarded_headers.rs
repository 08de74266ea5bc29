//! Forwarded headers, sent by the test itself, which connects from a trusted address.

use super::{Server, get, logged_lines};
use crate::harness::{Answer, Backend, Folder, Person, Setup, run_nouns};

const BASIC_ALONE: &str = "title = \"Store\"\n[realms.store]\nschemes = [\"basic\"]\n[resources.thing.fields]\nname = { type = \"text\" }\n";

fn ask(server: &Server, path: &str, headers: &[(&str, &str)]) -> Answer {
    server.request(&format!("GET {path}"), headers, "")
}

/// The schemes that a response offers.
fn offered(answer: &Answer) -> Vec<&str> {
    answer.all("WWW-Authenticate").iter().map(|line| line.split(' ').next().unwrap()).collect()
}

const OVER_HTTP: &[(&str, &str)] =
    &[("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-Proto", "http")];
const OVER_HTTPS: &[(&str, &str)] =
    &[("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-Proto", "https")];
const WITHOUT_PROTOCOL: &[(&str, &str)] = &[("X-Forwarded-For", "203.0.113.9")];
const FORWARDED: &[(&str, &str)] = &[("Forwarded", "for=203.0.113.9;proto=https")];
const LOCAL_OVER_HTTP: &[(&str, &str)] =
    &[("X-Forwarded-For", "127.0.0.9"), ("X-Forwarded-Proto", "http")];

on_every_backend! {
    /// Basic is only for clients whose connection is encrypted.
    fn basic_over_plain_http_behind_a_proxy_is_refused(backend: Backend) {
        // On all addresses of the machine, which a trusted proxy permits.
        let server = Setup::new(backend).with_authentication().flags(&["--behind-proxy", "127.0.0.1/32", "--listen", "0.0.0.0:0"]).start();
        let admin = server.admin();
        let basic = admin.basic();
        for way in [OVER_HTTP, WITHOUT_PROTOCOL] {
            assert_eq!(offered(&ask(&server, "/customers", way)), ["Digest"], "{way:?}");
            let refused = ask(&server, "/customers", &[way, &[("Authorization", &basic)]].concat());
            assert_eq!((refused.status, refused.problem().as_str()), (401, "credentials-wrong"), "{way:?}");
            assert_eq!(offered(&refused), ["Digest"], "{way:?}");
            let mut session = admin.digest(&refused, "SHA-256");
            let answer = session.answer("GET /customers", b"");
            assert_eq!(ask(&server, "/customers", &[way, &[("Authorization", &answer)]].concat()).status, 200, "{way:?}");
        }
        for way in [OVER_HTTPS, FORWARDED, LOCAL_OVER_HTTP, &[]] {
            assert_eq!(offered(&ask(&server, "/customers", way)), ["Digest", "Basic"], "{way:?}");
            assert_eq!(ask(&server, "/customers", &[way, &[("Authorization", &basic)]].concat()).status, 200, "{way:?}");
        }
        // The credential cache admits no client over plain HTTP.
        assert_eq!(ask(&server, "/customers", &[OVER_HTTP, &[("Authorization", &basic)]].concat()).status, 401);
        let clients: Vec<_> = logged_lines(&server, "/customers", 15).iter().map(|line| line["client"].clone()).collect();
        assert_eq!(clients.iter().filter(|client| *client == "203.0.113.9").count(), 11, "{clients:?}");
    }

    /// A realm without Digest has no scheme left to offer.
    fn basic_only_realm_over_plain_http_is_forbidden(backend: Backend) {
        let server = Setup::new(backend).model(BASIC_ALONE).with_authentication().flags(&["--behind-proxy", "127.0.0.1"]).start();
        let basic = server.admin().basic();
        for headers in [OVER_HTTP.to_vec(), [OVER_HTTP, &[("Authorization", &basic)]].concat()] {
            let refused = ask(&server, "/things", &headers);
            assert_eq!((refused.status, refused.problem().as_str()), (403, "password-in-clear"));
            assert_eq!(offered(&refused), [""; 0]);
        }
        assert_eq!(offered(&ask(&server, "/things", OVER_HTTPS)), ["Basic"]);
        assert_eq!(ask(&server, "/things", &[OVER_HTTPS, &[("Authorization", &basic)]].concat()).status, 200);
    }

    /// HSTS is sent to browsers that came by HTTPS, and not before.
    fn hsts_follows_the_forwarded_protocol(backend: Backend) {
        let model = concat!(include_str!("../../../examples/store/nouns.toml"), "\n[server]\nhsts = \"180d\"\n");
        let server = Setup::new(backend).model(model).with_authentication().flags(&["--behind-proxy", "127.0.0.1"]).start();
        let told = |way: &[(&str, &str)]| {
            let answer = ask(&server, "/-/health", way);
            answer.header("Strict-Transport-Security").map(str::to_owned)
        };
        for way in [OVER_HTTPS, FORWARDED] {
            assert_eq!(told(way).as_deref(), Some("max-age=15552000"), "{way:?}");
        }
        for way in [OVER_HTTP, WITHOUT_PROTOCOL, LOCAL_OVER_HTTP, &[], &[OVER_HTTPS, &[("Forwarded", "for=203.0.113.9;proto=http")]].concat()] {
            assert_eq!(told(way), None, "{way:?}");
        }
    }

    /// An `Origin` with another scheme than the client's is another site.
    fn origin_check_uses_the_forwarded_protocol(backend: Backend) {
        let server = Setup::new(backend).with_authentication().flags(&["--behind-proxy", "127.0.0.1"]).start();
        let basic = server.admin().basic();
        let body = r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#;
        for (way, http, https) in [(OVER_HTTPS, 403, 201), (LOCAL_OVER_HTTP, 201, 403), (FORWARDED, 403, 201), (&[], 201, 201)] {
            for (scheme, expected) in [("http", http), ("https", https)] {
                let origin = format!("{scheme}://{}", server.address);
                let headers = [way, &[("Authorization", basic.as_str()), ("Origin", origin.as_str())]].concat();
                let answer = server.request("POST /customers", &headers, body);
                assert_eq!(answer.status, expected, "{scheme} by {way:?}: {answer:?}");
            }
        }
    }

    /// Without the flag, and from another network, the headers are ignored.
    fn forwarded_headers_of_untrusted_peers_are_ignored(backend: Backend) {
        for flags in [&[][..], &["--behind-proxy", "10.0.0.0/8", "--behind-proxy", "fd00::/8,127.0.0.2"]] {
            let server = Setup::new(backend).with_authentication().flags(flags).start();
            for way in [OVER_HTTP, OVER_HTTPS, WITHOUT_PROTOCOL, FORWARDED, LOCAL_OVER_HTTP] {
                assert_eq!(get(&mut server.client(), "/-/health", way), 200);
                assert_eq!(offered(&ask(&server, "/customers", way)), ["Digest", "Basic"]);
            }
            for line in logged_lines(&server, "/-/health", 5) {
                assert_eq!(line.get("client"), None, "{line}");
            }
            let ann = Person::new("ann", "a good password");
            server.add_user(&ann, &["clerk"]);
            assert_eq!(ask(&server, "/customers", &[("Authorization", &ann.basic())]).status, 200);
        }
    }
}

/// An implausible network fails the start, and the message names the remedy.
#[test]
fn trusted_proxy_networks_invalid_fail_the_start() {
    let folder = Folder::new();
    let mut said = String::new();
    for args in [
        &["--behind-proxy", "10.0.0.1/8"][..],
        &["--behind-proxy", "127.0.0.1,0.0.0.0/0"],
        &["--behind-proxy", "::/0"],
        &["--behind-proxy", "proxy.example"],
        &["--behind-proxy", "10.0.0.0/33"],
        &["--behind-proxy", "127.0.0.1", "--open"],
    ] {
        let ended =
            run_nouns(folder.path(), &[&["serve", "--listen", "127.0.0.1:0"], args].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{args:?}");
        said += &ended.stderr;
    }
    assert!(!folder.path().join("nouns.db").exists(), "nothing was made");
    expect_test::expect![[r#"
        nouns: --behind-proxy: "10.0.0.1/8" has an address with more bits than its prefix of 8; write 10.0.0.0/8 for the network, or 10.0.0.1 for the one address
        nouns: --behind-proxy: "0.0.0.0/0" would let everyone claim to be at any address; name the addresses of the proxies alone
        nouns: --behind-proxy: "::/0" would let everyone claim to be at any address; name the addresses of the proxies alone
        nouns: --behind-proxy: expected a network, got "proxy.example"; such as 10.0.0.0/8, fd00::/8, or the address of one proxy, 127.0.0.1
        nouns: --behind-proxy: expected a prefix from 1 to 32 behind the /, got "10.0.0.0/33"; such as 10.0.0.0/8, fd00::/8, or the address of one proxy, 127.0.0.1
        nouns: --open lets everyone do everything, and behind a proxy (127.0.0.1/32) that is everyone who reaches the proxy; leave out --behind-proxy or --open
    "#]].assert_eq(&said);
}
