//! `/-/logout` without a browser: its responses to each kind of client.

use expect_test::expect;

use super::start_store;
use crate::harness::{Backend, Masks, Server, Setup};

const DEFAULT: &str = r#"schemes = ["digest", "basic"]"#;

const TWO_REALMS: &str = r#"
title = "Two"

[realms.shop]
schemes = ["basic"]

[realms."the office"]
schemes = ["basic"]

[resources.sale]
realm = "shop"

[resources.wage]
realm = "the office"
"#;

on_every_backend! {
    fn logout_with_credentials_makes_the_browser_drop_them(backend: Backend) {
        let server = start_store(backend, DEFAULT, "");
        let admin = server.admin().basic();
        let known = [("Authorization", admin.as_str())];
        assert_eq!(server.request("GET /customers", &known, "").status, 200);
        expect![[r#"
            HTTP/1.1 401 Unauthorized
            cache-control: private, no-cache
            content-type: text/plain; charset=utf-8
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            www-authenticate: Logout realm="store"
            clear-site-data: "cache"
            refresh: 0; url=?done
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 225
            date: <date>

            You are logged out.

            Your browser has forgotten the name and password for this server, and so has the server. To log in again, open any other page of it. If you were asked for a password here, you were not logged in: cancel.
        "#]].assert_eq(&Masks::default().answer(&server.request("GET /-/logout", &known, "")));
        // Nothing is verified, so no failed login is counted either.
        for sent in ["Basic bm9ib2R5OndvcmRzIQ==", "Basic !", "Bearer x", "Digest x", "tea"] {
            let answer = server.request("GET /-/logout", &[("Authorization", sent)], "");
            assert_eq!((answer.status, answer.header("WWW-Authenticate")),
                (401, Some("Logout realm=\"store\"")), "{sent}");
        }
        // A client with the password may log in again.
        assert_eq!(server.request("GET /customers", &known, "").status, 200);
        let mut session = server.admin().log_in(&server, "/customers");
        assert_eq!(session.request(&server, "GET /customers", "").status, 200);
        let answer = session.request(&server, "GET /-/logout", "");
        assert_eq!(answer.header("WWW-Authenticate"), Some("Logout realm=\"store\""));
        assert_eq!(session.request(&server, "GET /customers", "").status, 200);
    }

    fn logout_without_credentials_challenges_for_its_realm(backend: Backend) {
        let server = start_store(backend, DEFAULT, "");
        let answer = server.get("/-/logout");
        assert_eq!((answer.status, answer.all("WWW-Authenticate").len()), (401, 2), "{answer:?}");
        assert_eq!(answer.header("Clear-Site-Data"), Some("\"cache\""));
        assert!(answer.text().starts_with("You are logged out."), "{answer:?}");
    }

    fn logout_answers_a_page_or_plain_text_unless_json_is_accepted(backend: Backend) {
        let server = start_store(backend, DEFAULT, "");
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (accept, is_text) in [
            (browser, false),
            ("*/*", true),
            ("text/plain", true),
            ("application/json", false),
            ("application/problem+json, */*;q=0.1", false),
        ] {
            let answer = server.request("GET /-/logout", &[("Accept", accept)], "");
            let is_said = answer.header("Content-Type") == Some("text/plain; charset=utf-8");
            assert_eq!((answer.status, is_said), (401, is_text), "{accept}");
            if accept == browser {
                assert_eq!(answer.header("Content-Type"), Some("text/html; charset=utf-8"));
            } else if !is_text {
                assert_eq!(answer.problem(), "logged-out");
            }
        }
        let answer = server.request("GET /-/logout", &[("Accept", "image/png")], "");
        assert_eq!((answer.status, answer.body.len()), (401, 0));
        let answer = server.request("HEAD /-/logout", &[], "");
        assert_eq!((answer.status, answer.body.len()), (401, 0));
        assert_eq!(server.request("OPTIONS /-/logout", &[], "").header("Allow"), Some("GET, HEAD, OPTIONS"));
        assert_eq!(server.post("/-/logout", "").status, 405);
    }

    fn logout_path_of_each_realm_is_separate(backend: Backend) {
        let server = Setup::new(backend).model(TWO_REALMS).with_authentication().start();
        for (path, realm) in [("/-/logout", "shop"), ("/-/logout/shop", "shop"), ("/-/logout/the%20office", "the office")] {
            let asked = server.get(path);
            let basic = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
            assert_eq!((asked.status, asked.header("WWW-Authenticate")), (401, Some(&*basic)));
            let out = server.request(&format!("GET {path}"), &[("Authorization", "Basic eDp5")], "");
            let logout = format!("Logout realm=\"{realm}\"");
            assert_eq!((out.status, out.header("WWW-Authenticate")), (401, Some(&*logout)));
        }
        assert_eq!(server.get("/-/logout/attic").problem(), "no-such-path");
        assert_eq!(server.get("/-/logout/shop/x").problem(), "no-such-path");
        assert_eq!(server.get("/-/logout/").status, 308);
    }

    fn logout_of_an_open_server_does_not_challenge(server: Server) {
        let answer = server.get("/-/logout");
        assert_eq!((answer.status, answer.header("WWW-Authenticate")), (401, Some("Logout realm=\"store\"")));
    }
}
