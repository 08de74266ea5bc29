//! Basic and Digest details beyond the rules of the specification.

use crate::harness::{ANN, Answer, Backend, Person, Server, Setup};

fn start_authenticated(backend: Backend) -> Server {
    Setup::new(backend).with_authentication().start()
}

fn send_with_credentials(server: &Server, line: &str, authorization: &str, body: &str) -> Answer {
    server.request(line, &[("Authorization", authorization)], body)
}

on_every_backend! {
    /// One line with both algorithms, one nonce and one opaque, then Basic.
    fn challenges_of_a_realm_with_basic_and_digest(backend: Backend) {
        let server = start_authenticated(backend);
        let answer = server.get("/customers");
        let lines = answer.all("WWW-Authenticate");
        assert_eq!(lines.len(), 2, "{answer:?}");
        assert_eq!(lines[1], r#"Basic realm="store", charset="UTF-8""#);
        let all = http_auth::parse_challenges(lines[0]).unwrap();
        let value = |at: usize, name: &str| {
            all[at].params.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_unescaped())
        };
        assert_eq!(all.len(), 2);
        assert_eq!((value(0, "algorithm"), value(1, "algorithm")), (Some("SHA-256".into()), Some("MD5".into())));
        for name in ["realm", "nonce", "opaque", "qop"] {
            assert!(value(0, name).is_some() && value(0, name) == value(1, name), "{name}");
        }
    }

    /// Both algorithms, every verb, bodies and queries.
    fn digest_with_either_algorithm_works_for_every_verb(backend: Backend) {
        let server = start_authenticated(backend);
        for algorithm in ["MD5", "SHA-256"] {
            let mut session = server.admin().digest(&server.get("/customers"), algorithm);
            let created = session.request(&server, "POST /customers", ANN);
            assert_eq!(created.status, 201, "{created:?}");
            let path = created.header("Location").unwrap().to_owned();
            assert_eq!(session.request(&server, &format!("GET {path}"), "").status, 200);
            assert_eq!(session.request(&server, "GET /customers?limit=1", "").status, 200);
            assert_eq!(session.request(&server, &format!("PUT {path}"), ANN).status, 200);
            assert_eq!(session.request(&server, &format!("DELETE {path}"), "").status, 204);
            let missing = session.request(&server, &format!("GET {path}"), "");
            assert_eq!(missing.status, 404);
            assert!(missing.header("Authentication-Info").is_some(), "{missing:?}");
        }
    }

    /// In the request log and in the change log.
    fn caller_name_is_logged_and_in_the_change_log(backend: Backend) {
        let server = start_authenticated(backend);
        let clerk = Person::new("clerk", "a good password");
        server.add_user(&clerk, &["clerk"]);
        assert_eq!(send_with_credentials(&server, "POST /customers", &clerk.basic(), ANN).status, 201);
        let actor = crate::harness::run_sql(backend, server.folder(), "SELECT actor FROM nouns_changes WHERE resource = 'customer'");
        assert_eq!(actor.trim(), "clerk");
        crate::harness::wait_until("the line is logged", || {
            let log = server.log();
            log.lines().any(|line| line.contains("\"caller\":\"clerk\"") && line.contains("201")).then_some(())
        });
    }

    /// Credentials are checked before the body, and public paths need none.
    fn credentials_are_checked_before_the_body(backend: Backend) {
        let server = start_authenticated(backend);
        for line in ["GET /-/health", "GET /-/ready", "GET /-/problems/not-found", "OPTIONS /customers"] {
            let bad = send_with_credentials(&server, line, "Basic !!", "");
            assert!(matches!(bad.status, 200 | 204), "{line}: {bad:?}");
            assert!(matches!(server.request(line, &[], "").status, 200 | 204), "{line}");
        }
        assert_eq!(server.get("/nothing").status, 404, "a path that is not there is told to everyone");
        assert_eq!(server.request("PATCH /", &[], "").status, 405);
        assert_eq!(server.request("POST /customers", &[("Accept", "text/csv")], "{").status, 401);
        let admin = server.admin().basic();
        assert_eq!(send_with_credentials(&server, "POST /customers", &admin, "{").status, 400);
        let two = format!("GET /customers HTTP/1.1\r\nHost: x\r\nAuthorization: {admin}\r\nAuthorization: {admin}\r\n\r\n");
        assert_eq!(server.send(two).status, 400, "two Authorization headers");
        assert_eq!(send_with_credentials(&server, "GET /customers", "Bearer abc", "").status, 401);
        // A client that requests a challenge with an empty body, as curl does.
        let probe = server.request("POST /customers", &[("Content-Type", "application/json"), ("Content-Length", "0")], "");
        assert_eq!(probe.status, 401);
    }
}
