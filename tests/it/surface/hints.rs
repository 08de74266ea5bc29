//! Hints in refusals: they must be right, and reveal no more than the caller may know.

use crate::harness::{Answer, Backend, Person, Server, Setup};

use super::{ANN, NO_ONE};

fn detail(answer: &Answer) -> String {
    answer.json()["detail"].as_str().unwrap_or_default().to_owned()
}

/// The parameters of a list of customers.
const PARAMETERS: &str = "no such parameter here (there are limit, cursor, sort, fields, count, expand, any, not, id, created_at, updated_at, name, email)";

const OFFICE: &str = r#"
title = "Office"

[resources.desk.fields]
room = { type = "text", filter = true }

[resources.drawer]
parent = "desk"
flat = false

[resources.drawer.fields]
owner = { type = "text" }
label = { type = "text" }
code  = { type = "text", unique = true }

[roles.clerk]
desk   = ["get"]
drawer = { verbs = ["get", "post", "put", "patch"], where = "owner = $user or label = 'free'" }

[roles.guest]
drawer = ["get"]

[roles.outsider]
"#;

on_every_backend! {
    fn hint_for_an_unknown_parameter_lists_the_parameters(server: Server) {
        for (query, hint) in [
            ("page=2", "; did you mean \"cursor\"?"),
            ("offset=50", "; did you mean \"cursor\"?"),
            ("per_page=10", "; did you mean \"limit\"?"),
            ("order=name", "; did you mean \"sort\"?"),
            ("limt=1", "; did you mean \"limit\"?"),
            ("nmae=Ann", "; did you mean \"name\"?"),
            ("zebra=1", ""),
        ] {
            let refused = server.get(&format!("/customers?{query}"));
            assert_eq!(refused.problem(), "bad-query", "{query}");
            let (name, _) = query.split_once('=').unwrap();
            assert_eq!(detail(&refused), format!("{name}: {PARAMETERS}{hint}"), "{query}");
        }
        let path = server.create("/customers", ANN);
        assert_eq!(detail(&server.get(&format!("{path}?page=2"))), "page: no such parameter here (there are fields, version, as_of, expand)");
        assert_eq!(detail(&server.put(&format!("{path}?page=2"), ANN)), "page: no such parameter here (none is taken)");
    }

    fn hint_for_an_unsupported_type_lists_the_supported_types(server: Server) {
        let path = server.create("/customers", ANN);
        let send = |line: &str| server.request(line, &[("Content-Type", "application/xml")], "<a/>");
        assert_eq!(detail(&send("POST /customers")), "what can be read here: application/json, application/x-ndjson, text/csv");
        assert_eq!(detail(&send(&format!("PUT {path}"))), "what can be read here: application/json");
        assert_eq!(
            detail(&send(&format!("PATCH {path}"))),
            "what can be read here: application/merge-patch+json, application/json-patch+json, application/json"
        );
    }

    fn hint_for_a_nested_resource_at_the_top_names_its_path(server: Server) {
        for path in ["/orders/1/lines", "/orders/1/lines/2", "/orders/1/lines?limit=1"] {
            let missing = server.get(path);
            assert_eq!((missing.status, missing.problem().as_str()), (404, "no-such-path"));
            let place = "orders live at /customers/{customer_id}/orders, and are read across parents at /orders";
            assert_eq!(detail(&missing), place, "{path}");
        }
        assert_eq!(detail(&server.get("/nothing")), "");
        assert_eq!(detail(&server.get(&format!("{NO_ONE}/nothing"))), "");
        // A request with a foreign host name gets no hint.
        let strange = server.send("GET /orders/1/lines HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
        assert_eq!((strange.status, detail(&strange).as_str()), (404, ""));
    }

    /// Names of resources are not revealed to callers without a grant on them.
    fn hint_for_a_nested_resource_needs_a_grant_on_it(backend: Backend) {
        let server = Setup::new(backend).model(OFFICE).with_authentication().start();
        let people = ["clerk", "guest", "outsider"].map(|role| {
            let person = Person::new(role, "a word for each");
            server.add_user(&person, &[role]);
            person.basic()
        });
        let ask = |headers: &[(&str, &str)]| {
            let missing = server.request("GET /drawers", headers, "");
            assert_eq!((missing.status, missing.problem().as_str()), (404, "no-such-path"), "{missing:?}");
            assert_eq!(missing.header("WWW-Authenticate"), None);
            detail(&missing)
        };
        let place = "drawers live at /desks/{desk_id}/drawers";
        assert_eq!(ask(&[("Authorization", &people[0])]), place);
        assert_eq!(ask(&[("Authorization", &server.admin().basic())]), place);
        // A caller who may only see drawers does not learn of their parent.
        assert_eq!(ask(&[("Authorization", &people[1])]), "");
        assert_eq!(ask(&[("Authorization", &people[2])]), "");
        assert_eq!(ask(&[("Authorization", &Person::new("clerk", "a wrong word").basic())]), "");
        assert_eq!(ask(&[("Authorization", "Basic !!!")]), "");
        assert_eq!(ask(&[]), "");
    }

    fn users_list_is_filtered_and_sorted_by_name(backend: Backend) {
        let server = Setup::new(backend).model(OFFICE).with_authentication().start();
        for name in ["ann", "anna", "bob"] {
            server.add_user(&Person::new(name, "a word for each"), &[]);
        }
        let admin = server.admin().basic();
        let names = |query: &str| {
            let answer = server.request(&format!("GET /-/users?{query}"), &[("Authorization", &admin)], "");
            assert_eq!(answer.status, 200, "{query}: {answer:?}");
            let users = answer.json()["users"].as_array().unwrap().clone();
            users.iter().map(|user| user["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("name=ann"), ["ann"]);
        assert_eq!(names("name=nobody"), [""; 0]);
        assert_eq!(names("name:in=anna,ann&sort=-name"), ["anna", "ann"]);
        assert_eq!(names("name:in=bob,ann&sort=name"), ["ann", "bob"]);
        assert_eq!(names("sort=name&limit=2"), ["admin", "ann"]);
        let other = server.request("GET /-/users?password=x", &[("Authorization", &admin)], "");
        assert_eq!(other.problem(), "bad-query");
        assert!(!detail(&other).contains("password, "), "{other:?}");
    }

    /// Only the sent values and the rule count; a conflict with a hidden item has the same message as
    /// ever.
    fn hint_for_a_value_outside_the_grant_names_the_sent_values(backend: Backend) {
        let server = Setup::new(backend).model(OFFICE).with_authentication().start();
        let clerk = Person::new("clerk", "a word for each");
        server.add_user(&clerk, &["clerk"]);
        let (admin, clerk) = (server.admin().basic(), clerk.basic());
        let make = |path: &str, body: &str| {
            let made = server.request(&format!("POST {path}"), &[("Authorization", &admin)], body);
            assert_eq!(made.status, 201, "{made:?}");
            made.header("Location").unwrap().to_owned()
        };
        let desk = make("/desks", r#"{"desk":{"room":"1"}}"#);
        let own = make(&format!("{desk}/drawers"), r#"{"drawer":{"owner":"clerk","label":"mine"}}"#);
        make(&format!("{desk}/drawers"), r#"{"drawer":{"owner":"eve","code":"secret"}}"#);
        let pointers = |line: &str, body: &str| {
            let refused = server.request(line, &[("Authorization", &clerk)], body);
            assert_eq!((refused.status, refused.problem().as_str()), (403, "outside-grant"), "{line} {body}: {refused:?}");
            let errors = refused.json()["errors"].as_array().cloned().unwrap_or_default();
            assert!(errors.iter().all(|error| error["code"] == "outside"));
            errors.iter().map(|error| error["pointer"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let (patch, post) = (format!("PATCH {own}"), format!("POST {desk}/drawers"));
        assert_eq!(pointers(&patch, r#"{"drawer":{"owner":"eve"}}"#), ["/drawer/owner"]);
        assert_eq!(pointers(&post, r#"{"drawer":{"owner":"eve","label":"x"}}"#), ["/drawer/owner", "/drawer/label"]);
        assert_eq!(pointers(&post, r#"{"drawers":[{"owner":"clerk"},{"owner":"eve"}]}"#), ["/drawers/1/owner"]);
        // None of the sent values breaks the rule.
        assert_eq!(pointers(&post, r#"{"drawer":{}}"#), [""; 0]);
        // With a value that a hidden item may have, the rule and the conflict look the same.
        assert_eq!(pointers(&post, r#"{"drawer":{"owner":"eve","code":"new"}}"#), [""; 0]);
        assert_eq!(pointers(&post, r#"{"drawer":{"owner":"clerk","code":"secret"}}"#), [""; 0]);
    }

    fn hint_texts_of_problems_match_the_behaviour(server: Server) {
        let help = |slug: &str| {
            let explained = server.get(&format!("/-/problems/{slug}")).json();
            explained["problem"]["help"].as_str().unwrap().to_owned()
        };
        let allowed = server.request(&format!("BREW {NO_ONE}").replace("BREW", "POST"), &[], "");
        assert_eq!(allowed.status, 405);
        for method in allowed.header("Allow").unwrap().split(", ") {
            assert!(help("method-not-allowed").contains(method), "{method}");
        }
        assert!(help("taken").contains("every such rule"));
    }
}
