//! The operator `~`, which ignores case and accents, and `order = "unicode"`: after every kind of write, and for random
//! texts, compared with tables of characters in this file.

use std::thread;

use serde_json::{Value, json};

use super::percent_encode;
use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::harness::{Answer, Backend, Client, Server, Setup};

const MODEL: &str = r#"
title = "Names"
[resources.town.fields]
name = { type = "text", filter = true, match = true, order = "unicode" }
[resources.person]
plural = "people"
id = "integer"
[resources.person.fields]
name = { type = "text", filter = true, match = true, order = "unicode" }
mail = { type = "email", filter = true, match = true }
note = { type = "text", filter = true }
secret = { type = "text" }
town = { type = "ref", to = "town" }
[resources.pet]
parent = "person"
[resources.pet.fields]
name = { type = "text", required = true, filter = true, order = "unicode", max_length = 20 }
"#;

fn names(answer: &Answer, plural: &str) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let json = answer.json();
    let items = json[plural].as_array().unwrap().iter();
    items.map(|item| item["name"].as_str().unwrap_or("-").to_owned()).collect()
}

fn find(server: &Server, query: &str) -> Vec<String> {
    names(&server.get(&format!("/people?{query}")), "people")
}

on_every_backend! {
    fn expanded_children_are_in_the_order_of_people(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        for name in ["Ann", "Bob"] {
            let path = server.create("/people", json!({"person": {"name": name}}).to_string());
            for pet in ["zoe", "Ärger", "bello"] {
                server.create(&format!("{path}/pets"), json!({"pet": {"name": pet}}).to_string());
            }
        }
        for (sort, expected) in [("name", ["Ärger", "bello", "zoe"]), ("-name", ["zoe", "bello", "Ärger"])] {
            let people = server.get(&format!("/people?expand=pets(sort={sort})")).json();
            for person in people["people"].as_array().unwrap() {
                let pets = person["pets"].as_array().unwrap_or_else(|| panic!("{people}")).iter();
                assert_eq!(pets.map(|pet| pet["name"].as_str().unwrap()).collect::<Vec<_>>(), expected);
            }
        }
    }

    fn match_ignores_case_and_accents(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let town = server.create("/towns", r#"{"town":{"name":"Łódź"}}"#);
        let town = town.rsplit('/').next().unwrap();
        for name in ["Müller", "MULLER", "Mu\u{308}ller", "Miller", "Straße", "STRASSE 5%"] {
            server.create("/people", json!({"person": {"name": name, "mail": "Ann@Example.com", "town": town}}).to_string());
        }
        server.create("/people", r#"{"person":{"note":"Müller"}}"#);
        let mullers = ["Müller", "MULLER", "Mu\u{308}ller"];
        for query in ["name~=muller", "name~=M%C3%BCLL", "name:~=uller", "name:match=uller", "any=(name~=muller;name~=zzz)"] {
            assert_eq!(find(&server, query), mullers, "{query}");
        }
        assert_eq!(find(&server, "name~=strasse"), ["Straße", "STRASSE 5%"]);
        assert_eq!(find(&server, "name~=5%25"), ["STRASSE 5%"]);
        assert_eq!(find(&server, "name~=_"), Vec::<String>::new());
        assert_eq!(find(&server, "mail~=ANN@&name=Miller"), ["Miller"]);
        assert_eq!(find(&server, "not=(name~=ll)"), ["Straße", "STRASSE 5%", "-"]);
        assert_eq!(find(&server, "name~=").len(), 6);
        assert_eq!(find(&server, "town.name~=LODZ").len(), 0);
        assert_eq!(find(&server, "town.name~=%C5%81ODZ").len(), 6);
        let query = |filter: Value| {
            let body = json!({"filter": filter}).to_string();
            server.request("QUERY /people", &[("Content-Type", "application/json")], body)
        };
        for filter in [json!({"name": {"~": "MÜLL"}}), json!({"name~": "MÜLL"}), json!({"name": {"match": "MÜLL"}})] {
            let answer = query(filter);
            assert_eq!(names(&answer, "people"), mullers);
            let address = answer.header("Content-Location").unwrap();
            assert_eq!(names(&server.get(address), "people"), mullers, "{address}");
        }
        // The column is not shown, and neither is it in the change log or in a file.
        for path in ["/people/1", "/-/changes", "/-/openapi.json"] {
            let text = server.get(path).text().to_owned();
            assert!(!text.contains("nouns.folded") && !text.contains("nouns.order"), "{path}: {text}");
        }
        let csv = server.request("GET /people", &[("Accept", "text/csv")], "");
        assert!(!csv.text().contains("folded"), "{csv:?}");
    }

    fn match_without_its_declaration_is_refused(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        for (query, detail) in [
            ("note~=a", "note~: the field is not declared match = true, so it cannot be matched"),
            ("id~=a", "id~: the operator does not fit; those that do: eq, ne, gt, gte, lt, lte, between, in, exists"),
            ("secret~=a", "secret: the field is not declared filter = true, so it cannot be filtered or sorted by"),
            ("nam~=a", "nam: no such field here; did you mean \"name\"?"),
        ] {
            let answer = server.get(&format!("/people?{query}"));
            assert_eq!(answer.status, 400, "{answer:?}");
            assert_eq!(answer.json()["detail"], detail);
        }
    }

    fn match_and_order_follow_every_kind_of_write(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let made = server.create("/people", r#"{"person":{"name":"Ärger"}}"#);
        assert_eq!(find(&server, "name~=arger"), ["Ärger"]);
        assert_eq!(server.put(&made, r#"{"person":{"name":"Öl","mail":"a@b.de"}}"#).status, 200);
        assert_eq!((find(&server, "name~=arger"), find(&server, "name~=ol")), (vec![], vec!["Öl".to_owned()]));
        let patch = |body: &str| server.request(&format!("PATCH {made}"), &[], body).status;
        // Another field keeps it.
        assert_eq!(patch(r#"{"person":{"mail":"ÄNN@b.de"}}"#), 422);
        assert_eq!(patch(r#"{"person":{"mail":"Ann@b.de"}}"#), 200);
        assert_eq!(find(&server, "name~=ol&mail~=ann"), ["Öl"]);
        assert_eq!(patch(r#"{"person":{"name":"Über"}}"#), 200);
        assert_eq!(find(&server, "name~=UBER"), ["Über"]);
        let many = json!({"people": [{"name": "zoë"}, {"name": "Anaïs"}, {"name": "ana"}, {}]});
        assert_eq!(server.post("/people", many.to_string()).status, 201);
        let csv = server.request("POST /people", &[("Content-Type", "text/csv")], "name\r\nÉmile\r\nemil\r\n");
        assert_eq!(csv.status, 201, "{csv:?}");
        assert_eq!(find(&server, "name~=EMIL"), ["Émile", "emil"]);
        assert_eq!(
            find(&server, "sort=name"),
            ["ana", "Anaïs", "emil", "Émile", "Über", "zoë", "-"]
        );
        assert_eq!(
            find(&server, "sort=-name"),
            ["-", "zoë", "Über", "Émile", "emil", "Anaïs", "ana"]
        );
        assert_eq!(patch(r#"{"person":{"name":null}}"#), 200);
        assert_eq!(find(&server, "name~=uber").len(), 0);
        assert_eq!(server.delete(&made).status, 204);
        // Filters still compare the texts themselves.
        assert_eq!(find(&server, "name:gte=z&sort=name"), ["Émile", "zoë"]);
    }

    /// Concurrent creates are one statement where the engine has arrays.
    fn match_follows_concurrent_creates(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        thread::scope(|scope| {
            for writer in 0..8 {
                let mut client = server.client();
                scope.spawn(move || {
                    for number in 0..20 {
                        let body = json!({"person": {"name": format!("Ö{writer} {number:02}")}}).to_string();
                        assert_eq!(client.request("POST /people", &[], body).status, 201);
                    }
                });
            }
        });
        assert_eq!(find(&server, "name~=o&limit=500").len(), 160);
        assert_eq!(find(&server, "name~=O3%20&sort=-name&limit=2"), ["Ö3 19", "Ö3 18"]);
    }

    fn order_pages_by_cursor_in_nested_lists_too(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let owner = server.create("/people", r#"{"person":{"name":"a"}}"#);
        let pets = ["b", "A", "ä", "a", "B", "Z", "z", "é", "e"];
        let pets: Vec<Value> = pets.iter().map(|name| json!({"name": name})).collect();
        assert_eq!(server.post(&format!("{owner}/pets"), json!({"pets": pets}).to_string()).status, 201);
        let sorted = ["a", "A", "ä", "b", "B", "e", "é", "z", "Z"];
        for (path, key) in [(format!("{owner}/pets"), "name"), ("/pets".to_owned(), "name"), (format!("{owner}/pets"), "-name")] {
            let mut expected = sorted.to_vec();
            if key == "-name" {
                expected.reverse();
            }
            for limit in [1, 2, 4, 50] {
                let (mut found, mut next) = (Vec::new(), Some(format!("{path}?sort={key}&limit={limit}")));
                while let Some(address) = next {
                    let page = server.get(&address);
                    found.extend(names(&page, "pets"));
                    next = page.header("Link").map(|link| link.strip_prefix('<').unwrap().split_once('>').unwrap().0.to_owned());
                }
                assert_eq!(found, expected, "{path} {key} {limit}");
            }
        }
    }

    /// A start adds a field with the texts of its default; those of a stored field need a migration.
    fn match_of_a_new_field_is_there_after_a_start(backend: Backend) {
        let model = |fields: &str| format!("title = \"T\"\n[resources.person]\nplural = \"people\"\n[resources.person.fields]\n{fields}\n");
        let name = r#"name = { type = "text", filter = true }"#;
        let server = Setup::new(backend).model(&model(name)).start();
        server.create("/people", r#"{"person":{"name":"Änne"}}"#);
        let nick = r#"nick = { type = "text", filter = true, match = true, order = "unicode", default = "Ölaf" }"#;
        let server = Setup::new(backend).model(&model(&format!("{name}\n{nick}"))).start_in(server.stop());
        server.create("/people", r#"{"person":{"name":"Bea","nick":"ölbert"}}"#);
        assert_eq!(find(&server, "nick~=OLAF"), ["Änne"]);
        assert_eq!(find(&server, "nick~=OL&sort=-nick"), ["Bea", "Änne"]);
        // An older model starts, and keeps the field.
        let server = Setup::new(backend).model(&model(name)).start_in(server.stop());
        server.create("/people", r#"{"person":{"name":"Cem"}}"#);
        assert_eq!(server.get("/people?nick~=OL").status, 400);
        let server = Setup::new(backend).model(&model(&format!("{name}\n{nick}"))).start_in(server.stop());
        assert_eq!(find(&server, "nick~=olaf&sort=nick"), ["Änne", "Cem"]);
        let matched = name.replace("filter = true", "filter = true, match = true");
        let setup = Setup::new(backend).model(&model(&format!("{matched}\n{nick}")));
        let Err((refused, _)) = setup.try_start_in(server.stop()) else { panic!("it starts") };
        assert!(refused.stderr.contains("person.name: match or order changed"), "{}", refused.stderr);
    }

    fn match_filters_event_streams(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let mut source = crate::harness::EventSource::new("/people?name~=anais").connected(server.address);
        server.create("/people", r#"{"person":{"name":"bea"}}"#);
        server.create("/people", r#"{"person":{"name":"ANAÏS"}}"#);
        let event = source.next_event().json();
        assert_eq!(event["data"]["after"]["name"], "ANAÏS", "{event}");
    }

    fn match_and_order_agree_with_tables_of_characters(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let mut client = server.client();
        let mut chance = SeededRandom::new(print_seed("matching"));
        let mut text = |chars_max: usize| -> String {
            (0..chance.below(chars_max + 1)).map(|_| LETTERS[chance.below(LETTERS.len())].0).collect()
        };
        let people: Vec<Value> = (0..120).map(|_| json!({"name": text(4)})).collect();
        let body = json!({"people": people}).to_string();
        let made = client.request("POST /people", &[], body);
        assert_eq!(made.status, 201, "{made:?}");
        let people = made.json()["people"].as_array().unwrap().clone();
        let name = |person: &Value| person["name"].as_str().unwrap().to_owned();
        let id = |person: &Value| person["id"].as_i64().unwrap();
        let mut found = 0;
        for _ in 0..100 {
            let part = text(2);
            let is_found = |person: &&Value| fold(&name(person)).contains(&fold(&part));
            let expected: Vec<i64> = people.iter().filter(is_found).map(id).collect();
            found += expected.len();
            let path = format!("/people?name~={}&limit=500", percent_encode(&part));
            assert_eq!(ids(&mut client, &path), expected, "{part}");
        }
        assert!(found > 500, "{found}");
        let mut sorted: Vec<&Value> = people.iter().collect();
        sorted.sort_by_key(|person| (ranks(&name(person)), id(person)));
        let sorted: Vec<i64> = sorted.into_iter().map(id).collect();
        assert_eq!(ids(&mut client, "/people?sort=name,id&limit=7"), sorted);
    }
}

/// Letters, each with its folded form, and its place in the order: that of the letter, then of its accent, then of its
/// case.
const LETTERS: &[(&str, &str, [u8; 3])] = &[
    ("a", "a", [1, 0, 0]),
    ("A", "a", [1, 0, 1]),
    ("á", "a", [1, 1, 0]),
    ("Á", "a", [1, 1, 1]),
    ("e\u{301}", "e", [3, 1, 0]),
    ("É", "e", [3, 1, 1]),
    ("b", "b", [2, 0, 0]),
    ("B", "b", [2, 0, 1]),
    ("e", "e", [3, 0, 0]),
    ("z", "z", [4, 0, 0]),
    ("σ", "σ", [5, 0, 0]),
    ("Σ", "σ", [5, 0, 1]),
    ("б", "б", [6, 0, 0]),
];

fn letters(text: &str) -> Vec<&'static (&'static str, &'static str, [u8; 3])> {
    let (mut rest, mut found) = (text, Vec::new());
    while !rest.is_empty() {
        let fits = LETTERS.iter().filter(|(letter, ..)| rest.starts_with(letter));
        let letter = fits.max_by_key(|(letter, ..)| letter.len()).unwrap();
        found.push(letter);
        rest = &rest[letter.0.len()..];
    }
    found
}

fn fold(text: &str) -> String {
    letters(text).iter().map(|(_, folded, _)| *folded).collect()
}

/// All letters are compared first, then all accents, then all cases.
fn ranks(text: &str) -> [Vec<u8>; 3] {
    [0, 1, 2].map(|level| letters(text).iter().map(|(_, _, place)| place[level]).collect())
}

/// All ids of a list, page by page.
fn ids(client: &mut Client, path: &str) -> Vec<i64> {
    let (mut ids, mut next) = (Vec::new(), Some(path.to_owned()));
    while let Some(path) = next {
        let page = client.request(&format!("GET {path}"), &[], "");
        assert_eq!(page.status, 200, "{path}: {page:?}");
        let items = page.json()["people"].as_array().unwrap().clone();
        ids.extend(items.iter().map(|item| item["id"].as_i64().unwrap()));
        next = page
            .header("Link")
            .map(|link| link.strip_prefix('<').unwrap().split_once('>').unwrap().0.to_owned());
    }
    ids
}
