//! Deprecation headers: responses that involve something deprecated have them, and others do not.

use crate::harness::{Answer, Backend, Setup};

const MODEL: &str = r#"
title = "Club"

[resources.member.fields]
name  = { type = "text", required = true }
alias = { type = "text", deprecated = { since = "2026-11-01", sunset = "2027-11-01", use = "name" } }

[resources.person]
deprecated = { since = "2026-10-01", use = "member" }

[resources.person.fields]
name = { type = "text" }

[resources.badge]
parent = "person"

[resources.badge.fields]
number = { type = "integer", deprecated = { since = "2025-01-01", sunset = "2026-12-31" } }
"#;

/// `Deprecation`, `Sunset`, and the link that is not the one to the history of an item.
fn deprecation_headers(answer: &Answer) -> [Option<&str>; 3] {
    let mut links = answer.all("Link");
    links.retain(|link| !link.ends_with("rel=\"version-history\""));
    assert!(links.len() < 2, "{answer:?}");
    [answer.header("Deprecation"), answer.header("Sunset"), links.first().copied()]
}

on_every_backend! {
    fn deprecation_of_a_field_applies_where_it_has_a_value(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let plain = server.post("/members", r#"{"member":{"name":"Ann"}}"#);
        assert_eq!(deprecation_headers(&plain), [None, None, None]);
        let old = server.post("/members", r#"{"member":{"name":"Bea","alias":"B"}}"#);
        // 2026-11-01T00:00:00Z
        let both = [Some("@1793491200"), Some("Mon, 01 Nov 2027 00:00:00 GMT"), None];
        assert_eq!(deprecation_headers(&old), both);
        assert_eq!(deprecation_headers(&server.get(old.header("Location").unwrap())), both);
        assert_eq!(deprecation_headers(&server.get(plain.header("Location").unwrap())), [None, None, None]);
        assert_eq!(deprecation_headers(&server.get("/members")), both);
        assert_eq!(deprecation_headers(&server.get("/members?fields=alias")), both);
        assert_eq!(deprecation_headers(&server.get("/members?fields=name")), [None, None, None]);
    }

    fn deprecation_of_a_resource_applies_to_its_children(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let person = server.create("/persons", r#"{"person":{"name":"Cem"}}"#);
        let resource = [Some("@1790812800"), None, Some("</members>; rel=\"successor-version\"")];
        assert_eq!(deprecation_headers(&server.get("/persons")), resource);
        assert_eq!(deprecation_headers(&server.get(&person)), resource);
        let badges = format!("{person}/badges");
        assert_eq!(deprecation_headers(&server.get(&badges)), resource);
        // The earliest dates of everything involved.
        let badge = server.post(&badges, r#"{"badge":{"number":1}}"#);
        let earliest = [Some("@1735689600"), Some("Thu, 31 Dec 2026 00:00:00 GMT"), resource[2]];
        assert_eq!(deprecation_headers(&badge), earliest);
        assert_eq!(deprecation_headers(&server.delete(&person)), [None, None, None], "refused");
        assert_eq!(deprecation_headers(&server.delete(badge.header("Location").unwrap())), resource);
    }
}
