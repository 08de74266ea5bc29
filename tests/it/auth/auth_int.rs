//! Digest with `auth-int` and `userhash`, and credentials for another realm.
//!
//! Hand-made by the formulas of RFC 7616, since client libraries do not implement these.

use crate::harness::{ANN, Answer, Backend, HeldChallenge, Person, Server, Setup, md5, parameter};

/// Sends a body with a signature over it, or over another one.
fn send_auth_int(
    held: &HeldChallenge,
    server: &Server,
    nc: u32,
    (signed_body, sent_body): (&str, &str),
) -> Answer {
    let a2 = format!("POST:/customers:{}", md5(signed_body));
    let response = held.digest_response(nc, "auth-int", &a2);
    let header = held.header((nc, "auth-int"), "/customers", &response);
    server.request("POST /customers", &[("Authorization", &header)], sent_body)
}

on_every_backend! {
    /// The hash covers the body of the request, and of the response.
    fn auth_int_covers_request_and_response_bodies(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let held = HeldChallenge::new(&server, &server.admin(), "/customers");
        let created = send_auth_int(&held, &server, 1, (ANN, ANN));
        assert_eq!(created.status, 201, "{created:?}");
        let info = created.header("Authentication-Info").unwrap();
        let expected = held.digest_response(1, "auth-int", &format!(":/customers:{}", md5(&created.body)));
        assert_eq!(parameter(info, "rspauth"), expected, "{info}");
        let other = ANN.replace("Ann", "Bea");
        assert_eq!(send_auth_int(&held, &server, 2, (ANN, &other)).status, 401, "another body than the signed one");
        assert_eq!(send_auth_int(&held, &server, 1, (ANN, ANN)).status, 401, "again");
        assert_eq!(send_auth_int(&held, &server, 3, ("{", "{")).status, 400, "who is asking comes before what the body says");
        let list = server.request("GET /customers", &[("Authorization", &server.admin().basic())], "");
        assert_eq!(list.json()["customers"].as_array().unwrap().len(), 1);
    }

    /// A body that is too large is not read, nor is one without a valid nonce.
    fn auth_int_reads_the_body_within_limits(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let mut held = HeldChallenge::new(&server, &server.admin(), "/customers");
        let large = " ".repeat(9 << 20);
        assert_eq!(send_auth_int(&held, &server, 1, (&large, &large)).status, 413);
        held.nonce = "AAAA".to_owned();
        assert_eq!(send_auth_int(&held, &server, 1, (ANN, ANN)).status, 401);
    }

    /// The body is read before the client is authenticated: a list of new items gets the limit of one
    /// item, while an authenticated client may send more.
    fn auth_int_limits_a_list_to_the_size_of_one_item(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let held = HeldChallenge::new(&server, &server.admin(), "/customers");
        let list = r#"{"customers":[{"name":"Ann","email":"ann@example.com"}]}"#;
        let large = format!("{}{list}", " ".repeat(2 << 20));
        assert_eq!(send_auth_int(&held, &server, 1, (&large, &large)).status, 413);
        assert_eq!(send_auth_int(&held, &server, 2, (list, list)).status, 201);
        let basic = server.admin().basic();
        assert_eq!(server.request("POST /customers", &[("Authorization", &basic)], &large).status, 201);
    }

    /// RFC 7616 §3.4.4: the client may send the user name as a hash.
    fn userhash_is_accepted(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let admin = server.admin();
        let mut held = HeldChallenge::new(&server, &admin, "/customers");
        held.name = md5(format!("{}:{}", admin.name, held.realm));
        let header = format!("{}, userhash=true", held.get(1, "/customers"));
        assert_eq!(server.request("GET /customers", &[("Authorization", &header)], "").status, 200);
        let unknown = header.replace(&held.name, &md5("nobody:store"));
        assert_eq!(server.request("GET /customers", &[("Authorization", &unknown)], "").status, 401);
    }

    /// Credentials of one realm are refused in another.
    fn digest_of_another_realm_is_refused(backend: Backend) {
        let model = r#"
title = "Two"
[realms.one]
schemes = ["digest"]
[realms.two]
schemes = ["digest"]
[resources.apple]
realm = "one"
[resources.apple.fields]
name = { type = "text", required = true }
[resources.pear]
realm = "two"
[resources.pear.fields]
name = { type = "text", required = true }
"#;
        let server = Setup::new(backend).model(model).with_authentication().start();
        let admin = Person::new("admin", &server.admin().password);
        let held = HeldChallenge::new(&server, &admin, "/apples");
        let good = |nc, path: &str| held.get(nc, path);
        let status = |path: &str, header: &str| {
            server.request(&format!("GET {path}"), &[("Authorization", header)], "").status
        };
        assert_eq!(status("/apples", &good(1, "/apples")), 200);
        assert_eq!(status("/pears", &good(2, "/pears")), 401, "the realm of another path");
        let renamed = good(3, "/pears").replace("realm=\"one\"", "realm=\"two\"");
        assert_eq!(status("/pears", &renamed), 401, "with the other realm's name");
    }
}
