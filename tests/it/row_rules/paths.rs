//! `where` over parents, refs and lists.

use serde_json::{Value, json};

use super::{RowRules, id, reference, text};
use crate::harness::{Backend, EventSource, StreamEvent};

const MODEL: &str = r#"
title = "Work"

[resources.firm]
id = "integer"
[resources.firm.fields]
name  = { type = "text", required = true }
owner = { type = "text" }

[resources.customer.fields]
email = { type = "text", filter = true }
firm  = { type = "ref", to = "firm" }

[resources.project]
parent = "firm"
[resources.project.fields]
name     = { type = "text", required = true }
watchers = { type = "list", of = { type = "text" } }

[resources.ticket]
parent = "project"
[resources.ticket.fields]
title    = { type = "text", required = true }
reporter = { type = "ref", to = "customer" }
other    = { type = "ref", to = "ticket" }

[roles.reporter]
"*" = ["get"]
ticket = { verbs = "*", where = "reporter.email = $user" }
"/-/changes" = ["get"]

[roles.owner]
"*" = ["get"]
ticket = { verbs = "*", where = "project.firm.owner = $user" }
"/-/changes" = ["get"]

[roles.stranger]
"*" = ["get"]
ticket = { verbs = ["get"], where = "not reporter.email = $user" }
"/-/changes" = ["get"]

[roles.watcher]
"*" = ["get"]
project = { verbs = ["get", "patch"], where = "contains(watchers, $user)" }
ticket  = { verbs = ["get"], where = "contains(project.watchers, $user)" }

[roles.sender]
"*" = ["get"]
ticket = [{ verbs = ["post", "patch"] }, { verbs = ["get"], where = "reporter.firm.name = 'acme'" }]

[roles.repeated]
"*" = ["get"]
ticket = { verbs = ["get", "put", "patch"], where = "other.title = 'key' or reporter.email = $user" }
"#;

const USERS: &[(&str, &str)] = &[
    ("ann", "reporter"),
    ("olga", "owner"),
    ("sam", "stranger"),
    ("wim", "watcher"),
    ("sue", "sender"),
    ("rex", "repeated"),
];

/// Two firms with a project each, and tickets `a` of ann, `b` of bob and `c` of nobody in the first one, `d` of ann in
/// the second one.
struct Firms {
    rules: RowRules,
    acme: String,
    project: String,
    ann: String,
    bob: String,
    tickets: Vec<String>,
}

fn start(backend: Backend) -> Firms {
    let mut rules = RowRules::start(backend, MODEL, USERS);
    let acme = rules.create("/firms", &json!({"firm": {"name": "acme", "owner": "olga"}}));
    let other = rules.create("/firms", &json!({"firm": {"name": "other"}}));
    let customer = |rules: &mut RowRules, email: &str, firm: &str| {
        let body = json!({"customer": {"email": email, "firm": reference(firm)}});
        rules.create("/customers", &body)
    };
    let ann = customer(&mut rules, "ann", &acme);
    let bob = customer(&mut rules, "bob", &other);
    let project = json!({"project": {"name": "one", "watchers": ["wim", "ann"]}});
    let project = rules.create(&format!("{acme}/projects"), &project);
    let second = rules.create(&format!("{other}/projects"), &json!({"project": {"name": "two"}}));
    let mut tickets = Vec::new();
    for (title, project, reporter) in [
        ("a", &project, Some(&ann)),
        ("b", &project, Some(&bob)),
        ("c", &project, None),
        ("d", &second, Some(&ann)),
    ] {
        let mut body = json!({"ticket": {"title": title}});
        if let Some(reporter) = reporter {
            body["ticket"]["reporter"] = reference(reporter);
        }
        tickets.push(rules.create(&format!("{project}/tickets"), &body));
    }
    Firms { rules, acme, project, ann, bob, tickets }
}

on_every_backend! {
    fn row_rule_paths_decide_lists_items_counts_and_exports(backend: Backend) {
        let Firms { mut rules, tickets, project, .. } = start(backend);
        for (user, expected) in
            [("ann", "ad"), ("olga", "abc"), ("sam", "abd"), ("wim", "abc"), ("sue", "ad"), ("rex", "")]
        {
            let expected: Vec<String> = expected.chars().map(String::from).collect();
            assert_eq!(rules.list(user, "/tickets", "title"), expected, "{user}");
            assert_eq!(rules.list(user, "/tickets?sort=-id&limit=10", "title"), expected, "{user}");
            let counted = rules.request(user, "GET /tickets?count=exact", &Value::Null).json();
            assert_eq!(counted["page"]["total"], expected.len(), "{user}: {counted}");
            let nested = rules.list(user, &format!("{project}/tickets"), "title");
            let own: Vec<String> = expected.iter().filter(|title| *title != "d").cloned().collect();
            if user != "wim" {
                assert_eq!(nested, own, "{user}");
            }
            let login = rules.login(user);
            let headers = [("Authorization", login.as_str()), ("Accept", "application/x-ndjson")];
            let export = rules.server.request("GET /tickets", &headers, "");
            assert_eq!(export.text().lines().count(), expected.len(), "{user}: {export:?}");
            for (title, path) in ["a", "b", "c", "d"].iter().zip(&tickets) {
                let is_seen = expected.iter().any(|seen| seen == title);
                let status = rules.status(user, &format!("GET {path}"), &Value::Null);
                assert_eq!(status, if is_seen { 200 } else { 404 }, "{user} {title}");
            }
        }
        // The list of a project is visible only under a visible project.
        assert_eq!(rules.list("wim", "/projects", "name"), ["one"]);
        // An absent reporter is not another one, also under `not`; a changed one is.
        let (c, d) = (&tickets[2], &tickets[3]);
        assert_eq!(rules.status("sam", &format!("GET {c}"), &Value::Null), 404);
        assert_eq!(rules.status("sam", &format!("GET {d}"), &Value::Null), 200);
    }

    fn row_rule_paths_decide_writes(backend: Backend) {
        let Firms { mut rules, tickets, project, ann, bob, .. } = start(backend);
        let in_project = format!("POST {project}/tickets");
        let of = |reporter: &str| json!({"ticket": {"title": "new", "reporter": reference(reporter)}});
        let refused = rules.request("ann", &in_project, &of(&bob));
        assert_eq!((refused.status, refused.problem().as_str()), (403, "outside-grant"), "{refused:?}");
        assert_eq!(refused.json()["errors"][0]["pointer"], "/ticket/reporter");
        assert_eq!(rules.status("ann", &in_project, &json!({"ticket": {"title": "new"}})), 403);
        let before = rules.list("admin", "/tickets", "title");
        let made = rules.request("ann", &in_project, &of(&ann));
        assert_eq!((made.status, made.json()["ticket"]["title"].as_str()), (201, Some("new")));
        assert_eq!(rules.list("admin", "/tickets", "title").len(), before.len() + 1);
        let (a, b) = (&tickets[0], &tickets[1]);
        for (line, body) in [
            (format!("PATCH {a}"), json!({"ticket": {"reporter": reference(&bob)}})),
            (format!("PUT {a}"), of(&bob)),
            (format!("PUT {a}"), json!({"ticket": {"title": "a"}})),
        ] {
            assert_eq!(rules.status("ann", &line, &body), 403, "{line} {body}");
        }
        let renamed = json!({"ticket": {"title": "renamed"}});
        assert_eq!(rules.status("ann", &format!("PATCH {b}"), &renamed), 404);
        assert_eq!(rules.status("ann", &format!("DELETE {b}"), &Value::Null), 404);
        assert_eq!(rules.status("ann", &format!("PATCH {a}"), &renamed), 200);
        // The parent decides, which no write can change.
        assert_eq!(rules.status("olga", &format!("PATCH {b}"), &renamed), 200);
        assert_eq!(rules.status("olga", &in_project, &of(&bob)), 201);
        // A target that the caller may not see is refused as one that is not there.
        let refers = json!({"ticket": {"other": reference(b)}});
        let refused = rules.request("ann", &format!("PATCH {a}"), &refers);
        assert_eq!((refused.status, refused.problem().as_str()), (422, "invalid-fields"), "{refused:?}");
    }

    /// The answer shows what GET shows: a sender reads only tickets of one firm.
    fn row_rule_paths_decide_what_the_answer_to_a_write_shows(backend: Backend) {
        let Firms { mut rules, tickets, project, ann, bob, .. } = start(backend);
        let line = format!("POST {project}/tickets");
        for (reporter, is_seen) in [(&ann, true), (&bob, false)] {
            let body = json!({"ticket": {"title": "new", "reporter": reference(reporter)}});
            let made = rules.request("sue", &line, &body);
            assert_eq!(made.status, 201, "{made:?}");
            assert_eq!(made.text().contains("new"), is_seen, "{made:?}");
            assert_eq!(made.header("ETag").is_some(), is_seen, "{made:?}");
            let path = made.header("Location").unwrap().to_owned();
            let seen = rules.status("sue", &format!("GET {path}"), &Value::Null);
            assert_eq!(seen, if is_seen { 200 } else { 404 });
            let patched = rules.request("sue", &format!("PATCH {path}"), &json!({"ticket": {"title": "x"}}));
            assert_eq!(patched.status, if is_seen { 200 } else { 204 }, "{patched:?}");
        }
        // With a precondition, and a test of a value that the caller may not read.
        let login = rules.login("sue");
        for (path, expected) in [(&tickets[0], 200), (&tickets[1], 412)] {
            let tag = rules.request("admin", &format!("GET {path}"), &Value::Null);
            let tag = tag.header("ETag").unwrap().to_owned();
            let headers = [("Authorization", login.as_str()), ("If-Match", tag.as_str())];
            let answer = rules.server.request(
                &format!("PATCH {path}"), &headers, r#"{"ticket":{"title":"y"}}"#);
            assert_eq!(answer.status, expected, "{answer:?}");
        }
    }

    /// An item that refers to itself is judged with its new values.
    fn row_rule_path_to_the_item_itself_reads_its_new_values(backend: Backend) {
        let Firms { mut rules, tickets, .. } = start(backend);
        let a = &tickets[0];
        let myself = json!({"ticket": {"other": reference(a), "title": "key"}});
        assert_eq!(rules.status("admin", &format!("PATCH {a}"), &myself), 200);
        assert_eq!(rules.list("rex", "/tickets", "title"), ["key"]);
        let renamed = json!({"ticket": {"title": "lock"}});
        assert_eq!(rules.status("rex", &format!("PATCH {a}"), &renamed), 403);
        let same = json!({"ticket": {"title": "key", "other": reference(a)}});
        assert_eq!(rules.status("rex", &format!("PUT {a}"), &same), 200);
    }

    /// Changes are judged by the related items as they were then.
    fn row_rule_paths_decide_events_by_the_items_of_that_time(backend: Backend) {
        let Firms { mut rules, tickets, acme, ann, bob, .. } = start(backend);
        let (a, b) = (&tickets[0], &tickets[1]);
        let ids = |paths: &[&String]| paths.iter().map(|path| id(path).to_owned()).collect::<Vec<_>>();
        let created = |rules: &mut RowRules, user: &str| {
            let changes = rules.changes(user, "ticket").into_iter();
            changes.map(|(kind, id)| format!("{kind} {id}")).collect::<Vec<_>>()
        };
        let [id_a, id_b, id_c, id_d] = &ids(&tickets.iter().collect::<Vec<_>>())[..] else { panic!() };
        assert_eq!(created(&mut rules, "ann"), [format!("created {id_a}"), format!("created {id_d}")]);
        let of_olga = [id_a, id_b, id_c].map(|id| format!("created {id}"));
        assert_eq!(created(&mut rules, "olga"), of_olga);
        let login = rules.login("ann");
        let mut stream = EventSource::new("/tickets?since=0").header("Authorization", &login);
        stream.connect(rules.server.address).unwrap();
        let mut next = |count: usize| {
            let events = stream.next_events(count).into_iter();
            let shown = |event: StreamEvent| {
                let subject = text(&event.json()["subject"]);
                format!("{} {}", event.kind, id(&subject))
            };
            events.map(shown).collect::<Vec<_>>()
        };
        assert_eq!(next(2), [format!("created {id_a}"), format!("created {id_d}")]);
        // The owner changes: what happened before stays hers, and what happens later is not.
        let sold = json!({"firm": {"owner": "nobody"}});
        assert_eq!(rules.status("admin", &format!("PATCH {acme}"), &sold), 200);
        assert_eq!(rules.list("olga", "/tickets", "title"), Vec::<String>::new());
        for (path, reporter) in [(a, &bob), (b, &ann), (b, &bob), (a, &ann)] {
            let body = json!({"ticket": {"reporter": reference(reporter)}});
            assert_eq!(rules.status("admin", &format!("PATCH {path}"), &body), 200);
        }
        assert_eq!(created(&mut rules, "olga"), of_olga);
        let later = [
            format!("left {id_a}"),
            format!("updated {id_b}"),
            format!("left {id_b}"),
            format!("updated {id_a}"),
        ];
        assert_eq!(next(4), later);
        assert_eq!(created(&mut rules, "ann")[2..], later);
        // Ann's address changes: her tickets do not change by that, and are judged by the new one from then on.
        let moved = json!({"customer": {"email": "ann@example.com"}});
        assert_eq!(rules.status("admin", &format!("PATCH {ann}"), &moved), 200);
        assert_eq!(rules.list("ann", "/tickets", "title"), Vec::<String>::new());
        let touched = json!({"ticket": {"title": "touched"}});
        assert_eq!(rules.status("admin", &format!("PATCH {a}"), &touched), 200);
        assert_eq!(created(&mut rules, "ann").len(), 6);
        // The past, with the rights of now: the ticket was hers while her address was.
        let past = format!("GET {a}?version=1");
        assert_eq!(rules.status("ann", &past, &Value::Null), 200);
        assert_eq!(rules.status("ann", &format!("GET {a}?version=2"), &Value::Null), 404);
        assert_eq!(rules.status("sam", &past, &Value::Null), 200);
    }
}
