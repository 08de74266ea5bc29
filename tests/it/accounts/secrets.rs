//! Secrets at rest, in output and in logs: no password, no HA1 and no key may be found in any of them.
//!
//! The harness searches at the end of every test that starts a server; this file tests the search.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{AccountsFixture, PASSWORD};
use crate::harness::{Backend, Person, Setup, md5, wait_until};

on_every_backend! {
    fn secrets_are_not_stored_shown_or_logged(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        accounts.run_to_success(&["user", "add", "ann", "--role", "admin", "--password-stdin"], PASSWORD);
        let server = accounts.serve();
        assert_eq!(server.statuses_by_both_schemes("ann", PASSWORD), ["200", "200"]);
        accounts.run_to_success(&["key", "rotate"], "");
        assert_eq!(server.statuses_by_both_schemes("ann", PASSWORD), ["200", "200"]);
        accounts.run_to_success(&["user", "passwd", "ann", "--password-stdin"], PASSWORD);
        accounts.run_to_success(&["user", "list", "--json"], "");
        let changes = accounts.run_to_end(&mut accounts.command(&["changes"]), "").stdout;
        assert!(changes.contains("-/user"), "{changes}");
        assert_eq!(server.leak_search.findings(), [""; 0]);
        let known = server.leak_search.secrets.find(md5(format!("ann:store:{PASSWORD}")).as_bytes());
        assert_eq!(known.as_deref(), Some("the HA1 of ann in store"), "it was looked for");
        let stored = accounts.sql("SELECT password FROM nouns_users");
        assert!(stored.contains("$argon2id"), "{stored}");
    }

    /// A secret is planted where a server shows what it is sent: in a response, in the log, and in the
    /// database.
    fn secrets_search_finds_planted_secrets(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let ann = Person::new("ann", "leaks-everywhere");
        server.add_user(&ann, &["clerk"]);
        let basic = server.admin().basic();
        let authorized = [("Authorization", basic.as_str())];
        assert_eq!(server.leak_search.findings(), [""; 0]);
        let body = r#"{"customer":{"name":"leaks-everywhere","email":"ann@example.com"}}"#;
        for (line, body) in [("POST /customers", body), ("GET /leaks-everywhere", "")] {
            let answer = catch_unwind(AssertUnwindSafe(|| server.request(line, &authorized, body)));
            assert!(answer.is_err(), "{line}: the answer holds it");
        }
        wait_until("the line is logged", || server.log().contains("/leaks-").then_some(()));
        let findings = server.leak_search.findings();
        let place = if backend == Backend::Sqlite { "nouns.db" } else { "the database" };
        for place in [place, "the log"] {
            let found = format!("the password of ann is in {place}");
            assert!(findings.iter().any(|other| other.starts_with(&found)), "{place}: {findings:?}");
        }
        server.leak_search.secrets.clear();
    }
}
