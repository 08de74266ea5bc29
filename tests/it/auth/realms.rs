//! Stored Digest credentials when the realms of the model change.
//!
//! HA1 is derived from the realm's name, so a stored one is valid for realms of that name alone.

use serde_json::Value;

use crate::harness::{Backend, Folder, Person, Server, Setup, wait_until};

fn model(title: &str, realms: &str) -> String {
    format!(
        "title = \"{title}\"\n{realms}\n[resources.thing]\n[resources.thing.fields]\n\
         name = {{ type = \"text\" }}\n"
    )
}

fn start_in(folder: Folder, backend: Backend, model: &str) -> Server {
    Setup::new(backend).model(model).with_authentication().start_in(folder)
}

/// The status of a first request by Digest.
fn digest_status(server: &Server, person: &Person) -> u16 {
    person.log_in(server, "/things").request(server, "GET /things", "").status
}

fn basic_status(server: &Server, person: &Person) -> u16 {
    server.request("GET /things", &[("Authorization", &person.basic())], "").status
}

fn realm(server: &Server) -> String {
    let challenged = server.get("/things");
    let line = challenged.all("WWW-Authenticate")[0];
    line.split('"').nth(1).unwrap().to_owned()
}

/// The warnings about stored credentials among the first lines of the log.
fn warnings(server: &Server) -> Vec<Value> {
    // A request is logged after everything that the start logs.
    assert_eq!(server.get("/-/health").status, 200);
    wait_until("the request is logged", || server.log().contains("/-/health").then_some(()));
    let log = server.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"].as_str().unwrap_or("").contains("by Digest")).collect()
}

on_every_backend! {
    fn digest_default_realm_with_changed_title_still_works(backend: Backend) {
        let server = start_in(Folder::new(), backend, &model("Before", ""));
        assert_eq!(realm(&server), "nouns");
        let admin = server.admin();
        assert_eq!(digest_status(&server, &admin), 200);
        let server = start_in(server.stop(), backend, &model("Behind", ""));
        assert_eq!(realm(&server), "nouns");
        assert_eq!(digest_status(&server, &admin), 200);
        assert!(warnings(&server).is_empty(), "{}", server.log());
    }

    fn digest_credentials_of_an_absent_realm_survive_a_basic_login(backend: Backend) {
        let (old, new) = (model("T", "[realms.old]"), model("T", "[realms.new]"));
        let server = start_in(Folder::new(), backend, &old);
        let admin = server.admin();
        assert_eq!(digest_status(&server, &admin), 200);
        let server = start_in(server.stop(), backend, &new);
        assert_eq!(digest_status(&server, &admin), 401);
        assert_eq!(basic_status(&server, &admin), 200);
        assert_eq!(digest_status(&server, &admin), 200, "completed by the login with Basic");
        let server = start_in(server.stop(), backend, &old);
        assert_eq!(digest_status(&server, &admin), 200, "kept meanwhile");
    }

    /// Credentials derived from the old password must not admit anyone.
    fn digest_credentials_of_an_absent_realm_drop_on_password_change(backend: Backend) {
        let (old, new) = (model("T", "[realms.old]"), model("T", "[realms.new]"));
        let server = start_in(Folder::new(), backend, &old);
        let (admin, ann) = (server.admin(), Person::new("ann", "the first password"));
        let path = server.add_user(&ann, &["admin"]);
        let server = start_in(server.stop(), backend, &new);
        let changed = Person::new("ann", "the second password");
        let headers = [("Authorization", &*admin.basic())];
        let body = format!(r#"{{"user":{{"password":"{}"}}}}"#, changed.password);
        let answer = server.request(&format!("PATCH {path}"), &headers, &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(digest_status(&server, &changed), 200);
        let server = start_in(server.stop(), backend, &old);
        for person in [&ann, &changed] {
            assert_eq!(digest_status(&server, person), 401);
        }
        assert_eq!(basic_status(&server, &changed), 200);
        assert_eq!(digest_status(&server, &changed), 200);
    }

    fn digest_credentials_unusable_are_counted_in_a_warning_at_start(backend: Backend) {
        let (old, new) = (model("Shop", "[realms.Shop]"), model("Shop", ""));
        let server = start_in(Folder::new(), backend, &old);
        let (admin, ann) = (server.admin(), Person::new("ann", "a password of hers"));
        server.add_user(&ann, &[]);
        server.add_user(&Person::new("bob", "a password of his"), &[]);
        assert!(warnings(&server).is_empty(), "{}", server.log());
        let server = start_in(server.stop(), backend, &new);
        let told = warnings(&server);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0]["users"], "3", "{told:?}");
        assert_eq!((&told[0]["realms"], &told[0]["stored_for"]), (&"nouns".into(), &"Shop".into()), "{told:?}");
        let help = told[0]["help"].as_str().unwrap();
        assert!(help.contains("[realms.\"Shop\"]") && help.contains("nouns user passwd"), "{help}");
        assert_eq!(basic_status(&server, &admin), 200);
        let server = start_in(server.stop(), backend, &new);
        assert_eq!(warnings(&server)[0]["users"], "2");
        let server = start_in(server.stop(), backend, &old);
        assert!(warnings(&server).is_empty(), "{}", server.log());
        assert_eq!(digest_status(&server, &ann), 403);
    }

    /// Neither stored credentials of a removed realm nor an added algorithm invalidate existing credentials.
    fn usable_digest_credentials_beside_those_of_a_former_realm_are_not_warned_of(backend: Backend) {
        let realms = |text: &str| model("Shop", text);
        let server = start_in(Folder::new(), backend, &realms("[realms.former]"));
        let admin = server.admin();
        let server = start_in(server.stop(), backend, &realms("[realms.shop]\nalgorithms = [\"md5\"]"));
        assert_eq!(warnings(&server)[0]["realms"], "shop", "{}", server.log());
        assert_eq!(basic_status(&server, &admin), 200);
        let server = start_in(server.stop(), backend, &realms("[realms.shop]"));
        assert!(warnings(&server).is_empty(), "{}", server.log());
        assert_eq!(digest_status(&server, &admin), 200);
    }
}
