//! Digest that proves the body too, names as hashes, and proofs for another realm.
//!
//! Made by hand, by the formulas of RFC 7616: other libraries do not do these.

use crate::harness::{Answer, Backend, Held, Person, Server, Setup, md5, parameter};

const ANN: &str = r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#;

/// Proves the body that is sent, or another one.
fn send(held: &Held, server: &Server, nc: u32, (proved, body): (&str, &str)) -> Answer {
    let over = format!("POST:/customers:{}", md5(proved));
    let response = held.hash(nc, "auth-int", &over);
    let header = held.header((nc, "auth-int"), "/customers", &response);
    server.request("POST /customers", &[("Authorization", &header)], body)
}

on_every_backend! {
    /// The body is part of the proof, of the request and of the answer.
    fn the_body_is_proved_too(backend: Backend) {
        let server = Setup::new(backend).closed().start();
        let held = Held::new(&server, &server.admin(), "/customers");
        let created = send(&held, &server, 1, (ANN, ANN));
        assert_eq!(created.status, 201, "{created:?}");
        let info = created.header("Authentication-Info").unwrap();
        let expected = held.hash(1, "auth-int", &format!(":/customers:{}", md5(&created.body)));
        assert_eq!(parameter(info, "rspauth"), expected, "{info}");
        let other = ANN.replace("Ann", "Bea");
        assert_eq!(send(&held, &server, 2, (ANN, &other)).status, 401, "another body than the proved one");
        assert_eq!(send(&held, &server, 1, (ANN, ANN)).status, 401, "again");
        assert_eq!(send(&held, &server, 3, ("{", "{")).status, 400, "who is asking comes before what the body says");
        let list = server.request("GET /customers", &[("Authorization", &server.admin().basic())], "");
        assert_eq!(list.json()["customers"].as_array().unwrap().len(), 1);
    }

    /// A body that is too large is not read, and neither is one of somebody without a nonce of ours.
    fn a_body_is_read_within_limits(backend: Backend) {
        let server = Setup::new(backend).closed().start();
        let mut held = Held::new(&server, &server.admin(), "/customers");
        let large = " ".repeat(9 << 20);
        assert_eq!(send(&held, &server, 1, (&large, &large)).status, 413);
        held.nonce = "AAAA".to_owned();
        assert_eq!(send(&held, &server, 1, (ANN, ANN)).status, 401);
    }

    /// Nobody has proved anything yet when the body is read: a list of new items has to do with what one
    /// item may have, while somebody who is known may send more.
    fn a_list_is_read_as_far_as_one_item(backend: Backend) {
        let server = Setup::new(backend).closed().start();
        let held = Held::new(&server, &server.admin(), "/customers");
        let list = r#"{"customers":[{"name":"Ann","email":"ann@example.com"}]}"#;
        let large = format!("{}{list}", " ".repeat(2 << 20));
        assert_eq!(send(&held, &server, 1, (&large, &large)).status, 413);
        assert_eq!(send(&held, &server, 2, (list, list)).status, 201);
        let basic = server.admin().basic();
        assert_eq!(server.request("POST /customers", &[("Authorization", &basic)], &large).status, 201);
    }

    /// RFC 7616 §3.4.4: a name may come as its hash.
    fn a_name_may_be_hashed(backend: Backend) {
        let server = Setup::new(backend).closed().start();
        let admin = server.admin();
        let mut held = Held::new(&server, &admin, "/customers");
        held.name = md5(format!("{}:{}", admin.name, held.realm));
        let header = format!("{}, userhash=true", held.get(1, "/customers"));
        assert_eq!(server.request("GET /customers", &[("Authorization", &header)], "").status, 200);
        let unknown = header.replace(&held.name, &md5("nobody:store"));
        assert_eq!(server.request("GET /customers", &[("Authorization", &unknown)], "").status, 401);
    }

    /// What proves somebody in one realm is nothing in another.
    fn another_realm(backend: Backend) {
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
        let server = Setup::new(backend).model(model).closed().start();
        let admin = Person::new("admin", &server.admin().password);
        let held = Held::new(&server, &admin, "/apples");
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
