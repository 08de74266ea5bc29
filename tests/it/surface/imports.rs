//! Imports: new items as JSON lines and as CSV, equivalent to a bulk create in JSON.

use expect_test::expect;
use serde_json::Value;

use super::{ANN, start_schools};
use crate::harness::{Answer, Backend, Person, Server, Setup};

const GRANTS: &str = r#"
title = "Files"
[resources.file.fields]
name = { type = "text", required = true }
wage = { type = "integer", default = 1 }
tags = { type = "json", nullable = true }
[roles.clerk]
file = { verbs = ["get", "post"], hide = ["wage", "tags"] }
"#;

const CSV: (&str, &str) = ("Content-Type", "text/csv");
const LINES: (&str, &str) = ("Content-Type", "application/x-ndjson");

fn send(server: &Server, kind: (&str, &str), body: impl AsRef<[u8]>) -> Answer {
    server.request("POST /customers", &[kind], body)
}

/// A problem with its faults and their positions.
fn faults_text(answer: &Answer) -> String {
    let problem = answer.json();
    let faults = answer.faults().into_iter();
    let errors = faults.map(|fault| format!("\n{}", fault.replace(" | ", " ")));
    format!(
        "{} {}: {}{}",
        answer.status,
        answer.problem(),
        problem["detail"].as_str().unwrap_or("-"),
        errors.collect::<String>()
    )
}

fn count(server: &Server) -> usize {
    server.get("/customers?limit=500").json()["customers"].as_array().unwrap().len()
}

/// The items in a response, without the members that the server sets.
fn items_of(answer: &Answer, plural: &str) -> Vec<Value> {
    let mut items = answer.json()[plural].as_array().unwrap().clone();
    for item in &mut items {
        let item = item.as_object_mut().unwrap();
        item.retain(|name, _| !["id", "created_at", "updated_at"].contains(&&**name));
    }
    items
}

/// A school, to which children can be added.
fn create_school(server: &Server) -> String {
    server.create("/people", r#"{"person":{"name":"Ida"}}"#);
    let county = server.create("/counties", r#"{"county":{"code":"AB"}}"#);
    server.create(&format!("{county}/schools"), r#"{"school":{"name":"One"}}"#)
}

on_every_backend! {
    fn import_csv_creates_a_list_of_items(server: Server) {
        let created = send(&server, CSV, "email,name\r\nann@example.com,Ann\r\n\"bea@example.com\",\"Bea, the \"\"2nd\"\"\"\r\n");
        expect![[r#"
            HTTP/1.1 201 Created
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 394
            date: <date>

            {"customers":[{"id":"<id-1>","name":"Ann","email":"ann@example.com","created_at":"<time-1>","updated_at":"<time-1>","version":1},{"id":"<id-2>","name":"Bea, the \"2nd\"","email":"bea@example.com","created_at":"<time-1>","updated_at":"<time-1>","version":1}]}"#]].assert_eq(&created.masked());
        assert_eq!(count(&server), 2);
        assert_eq!(items_of(&server.get("/customers"), "customers"), items_of(&created, "customers"));
    }

    fn import_ndjson_creates_a_list_of_items(server: Server) {
        let lines = "{\"name\":\"Ann\",\"email\":\"ann@example.com\"}\n\n {\"email\":\"bea@example.com\",\"name\":\"Bea\"} \r\n";
        let created = send(&server, LINES, lines);
        assert_eq!(created.status, 201, "{created:?}");
        let names: Vec<_> = items_of(&created, "customers").iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(names, ["Ann", "Bea"]);
        assert_eq!(items_of(&server.get("/customers"), "customers"), items_of(&created, "customers"));
    }

    /// The same items three times: as JSON, as JSON lines and as CSV, with a value of every type.
    fn import_accepts_every_field_type_in_every_format(backend: Backend) {
        let server = start_schools(backend);
        let path = format!("{}/children", create_school(&server));
        let ada = r#"{"name":"Ada, \"A\"","mail":"a@b.co","site":"https://a.example/","age":7,"height":1.25,"fee":"3.50","active":false,"born":"2019-01-02","seen":"2026-11-15T02:28:14.000000Z","token":"01890a5d-ac96-774b-bcce-b302099a8057","mentor":1,"stage":"applied","colour":"red","marks":[1,2],"address":{"street":"s, t","number":3},"extra":{"k":[null,"x"]}}"#;
        let bob = r#"{"name":"Bob"}"#;
        let list = server.post(&path, format!(r#"{{"children":[{ada},{bob}]}}"#));
        assert_eq!(list.status, 201, "{list:?}");
        let lines = server.request(&format!("POST {path}"), &[LINES], format!("{ada}\n{bob}"));
        assert_eq!(items_of(&lines, "children"), items_of(&list, "children"));
        let table = "name,mail,site,age,height,fee,active,born,seen,token,mentor,stage,colour,marks,address,extra,school_id\n\
            \"Ada, \"\"A\"\"\",a@b.co,https://a.example/,7,1.25,3.50,FALSE,2019-01-02,2026-11-15T02:28:14Z,01890a5d-ac96-774b-bcce-b302099a8057,1,applied,red,\"[1,2]\",\"{\"\"street\"\":\"\"s, t\"\",\"\"number\"\":3}\",\"{\"\"k\"\":[null,\"\"x\"\"]}\",1\n\
            Bob,,,,,,,,,,,,,,,,\n";
        let table = server.request(&format!("POST {path}"), &[CSV], table);
        assert_eq!(items_of(&table, "children"), items_of(&list, "children"), "{table:?}");
        let listed = server.get(&path);
        assert_eq!(listed.json()["children"].as_array().unwrap().len(), 6);
    }

    /// All faults with their items and fields in one response, and nothing is created.
    fn import_faults_name_the_item_and_the_field(backend: Backend) {
        let server = start_schools(backend);
        let path = format!("{}/children", create_school(&server));
        let table = "name,age,height,active,marks,mentor,nmae,id,version\n\
            Ada,7,1.5,true,[1],1,,,\n\
            A,seven,tall,yes,\"[7,\"\"x\"\"]\",99,x,5,1\n\
            \"\",1e400,,\"\",{},one,,,\n";
        let refused = server.request(&format!("POST {path}"), &[CSV], table);
        expect![[r#"
            422 invalid-fields: 15 fields need attention
            /children/1/name length expected at least 2 characters, got 1
            /children/1/age type expected an integer, got a string
            /children/1/height type expected a number, got a string
            /children/1/active type expected true or false, got a string
            /children/1/marks/0 range expected at most 6, got 7
            /children/1/marks/1 type expected an integer, got a string
            /children/1/nmae unknown no such field; did you mean "name"?
            /children/1/id read_only set by the server
            /children/1/version read_only set by the server
            /children/2/name length expected at least 2 characters, got 0
            /children/2/age range expected an integer within ±9007199254740991, got 1e400
            /children/2/active type expected true or false, got a string
            /children/2/marks type expected a list, got an object
            /children/2/mentor type expected an id as a number, got a string
            /children/1/mentor reference no such item"#]].assert_eq(&faults_text(&refused));
        let lines = server.request(&format!("POST {path}"), &[LINES], "{\"name\":\"Ada\"}\n\n{\"name\":\"A\",\"count\":1}\n");
        expect![[r#"
            422 invalid-fields: 2 fields need attention
            /children/1/name length expected at least 2 characters, got 1
            /children/1/count read_only computed by the server"#]].assert_eq(&faults_text(&lines));
        assert_eq!(server.get(&path).json()["children"].as_array().unwrap().len(), 0);
    }

    /// A syntax error is reported with its line.
    fn import_syntax_error_names_the_line(server: Server) {
        let cases: Vec<_> = [
            (CSV, "name,email\nAnn,ann@example.com\nBea\n"), (CSV, ""), (CSV, "name\n\"Ann"), (CSV, "name,name\n"), (CSV, "name\nA\"nn\n"),
            (LINES, "{\"name\":\"Ann\"}\n{\"name\":}\n"), (LINES, "[]\n"), (LINES, "\n7"), (LINES, "{} {}"), (LINES, "{\"a\":1,\"a\":2}"), (LINES, "\u{feff}{}"),
        ].into_iter().map(|(kind, body)| format!("{body:?}\n{}", faults_text(&send(&server, kind, body)))).collect();
        expect![[r#"
            "name,email\nAnn,ann@example.com\nBea\n"
            400 bad-lines: line 3: expected 2 cells, got 1
            ""
            400 bad-lines: line 1: expected the names of the columns, got nothing
            "name\n\"Ann"
            400 bad-lines: line 2: expected a quote at the end of the cell, got none
            "name,name\n"
            400 bad-lines: line 1: expected each column once, got "name" again
            "name\nA\"nn\n"
            400 bad-lines: line 2: expected quotes around a cell that has one inside
            "{\"name\":\"Ann\"}\n{\"name\":}\n"
            400 bad-lines: line 2: column 9: expected a value, got "}"
            "[]\n"
            400 bad-lines: line 1: expected an object, got a list
            "\n7"
            400 bad-lines: line 2: expected an object, got a number
            "{} {}"
            400 bad-lines: line 1: column 4: expected nothing after the value, got "{"
            "{\"a\":1,\"a\":2}"
            400 bad-lines: line 1: column 8: expected each key once, got "a" again
            "\u{feff}{}"
            400 bad-lines: line 1: column 1: expected no byte order mark before the value"#]].assert_eq(&cases.join("\n"));
        assert_eq!(count(&server), 0);
    }

    /// All or nothing, also where only the stored data shows the conflict.
    fn import_with_one_conflict_creates_nothing(backend: Backend) {
        let server = start_schools(backend);
        server.create("/counties", r#"{"county":{"code":"AB"}}"#);
        for (kind, body) in [(CSV, "code\nCD\nAB\n"), (LINES, "{\"code\":\"CD\"}\n{\"code\":\"AB\"}\n")] {
            let refused = server.request("POST /counties", &[kind], body);
            assert_eq!((refused.status, refused.problem().as_str()), (409, "taken"), "{refused:?}");
            assert_eq!(refused.json()["errors"][0]["pointer"], "/counties/1/code");
            assert_eq!(server.get("/counties").json()["counties"].as_array().unwrap().len(), 1);
        }
    }

    /// As with `{"customers":[]}`.
    fn import_without_an_item_is_refused(server: Server) {
        let none = server.post("/customers", r#"{"customers":[]}"#);
        for (kind, body) in [(CSV, "name,email\n"), (LINES, ""), (LINES, "\n\r\n \n")] {
            let answer = send(&server, kind, body);
            assert_eq!((answer.status, &answer.json()["errors"]), (422, &none.json()["errors"]), "{body:?}");
        }
        // A table without a header cannot be parsed at all.
        assert_eq!(send(&server, CSV, "").status, 400);
        assert_eq!(count(&server), 0);
    }

    fn import_has_the_limits_of_a_bulk_create(backend: Backend) {
        let model = include_str!("../../../examples/store/nouns.toml");
        let limits = "\n[server.limits]\nbulk_items_max = 3\nbulk_bytes_max = 2000\nbody_bytes_max = 1000\n";
        let server = Setup::new(backend).model(&format!("{model}{limits}")).start();
        let row = |number: usize| format!("n,a{number}@example.com\n");
        let line = |number: usize| format!("{{\"name\":\"n\",\"email\":\"b{number}@example.com\"}}\n");
        let table = |count: usize| format!("name,email\n{}", (0..count).map(row).collect::<String>());
        let lines = |count: usize| (0..count).map(line).collect::<String>();
        for (kind, fits, over) in [(CSV, table(3), table(4)), (LINES, lines(3), lines(4))] {
            let refused = send(&server, kind, &over);
            assert_eq!(faults_text(&refused), "413 too-large: at most 3 items at once, got more");
            let padded = |bytes: usize| format!("{fits}{}", "\n".repeat(bytes - fits.len()));
            assert_eq!(send(&server, kind, padded(2001)).status, 413);
            assert_eq!(send(&server, kind, padded(2000)).status, 201);
        }
        assert_eq!(count(&server), 6);
    }

    /// Large enough to be parsed off the serving thread.
    fn import_of_a_thousand_rows(server: Server) {
        let rows = (0..1000).map(|number| format!("\"{}\",c{number}@example.com\n", "x".repeat(100)));
        let created = send(&server, CSV, format!("name,email\n{}", rows.collect::<String>()));
        assert_eq!(created.status, 201);
        assert_eq!(created.json()["customers"].as_array().unwrap().len(), 1000);
    }

    fn import_content_types_supported_and_refused(server: Server) {
        let table = "name,email\nAnn,ann@example.com\n";
        for (kind, status) in [
            ("text/csv; charset=utf-8", 201), ("Text/CSV;header=present", 201), ("text/csv; charset=iso-8859-1", 415),
            ("text/csv; header=absent", 415), ("text/tab-separated-values", 415), ("text/plain", 415), ("multipart/form-data; boundary=x", 415),
            ("application/x-www-form-urlencoded", 415),
        ] {
            let answer = send(&server, ("Content-Type", kind), table);
            assert_eq!(answer.status, status, "{kind}: {answer:?}");
            if status == 415 {
                assert_eq!(answer.header("Accept"), Some("application/json, application/x-ndjson, text/csv"), "{kind}");
            }
            for item in server.get("/customers").json()["customers"].as_array().unwrap() {
                server.delete(&format!("/customers/{}", item["id"].as_str().unwrap()));
            }
        }
        let path = server.create("/customers", ANN);
        for kind in [CSV, LINES] {
            let refused = server.request(&format!("PUT {path}"), &[kind], table);
            assert_eq!((refused.status, refused.header("Accept")), (415, Some("application/json")));
            assert_eq!(server.request(&format!("PATCH {path}"), &[kind], table).status, 415);
        }
        let options = server.request("OPTIONS /customers", &[], "");
        assert_eq!(options.header("Accept-Post"), Some("application/json, application/x-ndjson, text/csv"));
    }

    /// The response is a list, in a type for lists where the client accepts one; a JSON request may
    /// have been for one item, whose response is always JSON.
    fn import_response_has_the_accepted_type(server: Server) {
        let table = "name,email\nAnn,ann@example.com\nBea,bea@example.com\n";
        for (sent, accept, told) in [
            (CSV, "*/*", "application/json"), (CSV, "text/csv", "text/csv; charset=utf-8; header=present"), (CSV, "application/x-ndjson", "application/x-ndjson"),
            (CSV, "text/csv;q=0.5, application/json;q=0.4", "text/csv; charset=utf-8; header=present"),
        ] {
            let created = server.request("POST /customers", &[sent, ("Accept", accept)], table);
            assert_eq!((created.status, created.header("Content-Type")), (201, Some(told)), "{accept}");
            let has_both = created.text().contains("ann@example.com") && created.text().contains("bea@example.com");
            assert!(has_both, "{created:?}");
        }
        let before = count(&server);
        let refused = server.request("POST /customers", &[("Accept", "text/csv")], r#"{"customers":[]}"#);
        assert_eq!(refused.status, 406);
        let refused = server.request("POST /customers", &[CSV, ("Accept", "text/plain")], table);
        assert_eq!(refused.status, 406);
        assert_eq!(count(&server), before);
    }

    /// An exported CSV can be imported again, without the columns that the server sets, with the same
    /// result.
    fn import_of_an_export_gives_the_same_items(backend: Backend) {
        let server = start_schools(backend);
        let path = format!("{}/children", create_school(&server));
        let ada = r#"{"name":"Ada, \"A\"\r\nB","mail":"a@b.co","age":7,"height":1.5e3,"fee":"3.50","active":false,"born":"2019-01-02","seen":"2026-11-15T02:28:14.000001Z","mentor":1,"stage":"applied","marks":[1,2],"address":{"street":"s, \"t\""},"extra":"text"}"#;
        let created = server.post(&path, format!(r#"{{"children":[{ada},{{"name":"==","extra":{{"a":[null]}}}}]}}"#));
        assert_eq!(created.status, 201, "{created:?}");
        let export = server.request(&format!("GET {path}"), &[("Accept", "text/csv")], "");
        let mut table = csv::ReaderBuilder::new().from_reader(export.body.as_slice());
        let names = table.headers().unwrap().clone();
        let is_sent = |at: &usize| !["id", "count", "created_at", "updated_at", "version"].contains(&&names[*at]);
        let kept: Vec<usize> = (0..names.len()).filter(is_sent).collect();
        let mut again = csv::WriterBuilder::new().from_writer(Vec::new());
        again.write_record(kept.iter().map(|at| &names[*at])).unwrap();
        for row in table.records() {
            let row = row.unwrap();
            again.write_record(kept.iter().map(|at| &row[*at])).unwrap();
        }
        let again = server.request(&format!("POST {path}"), &[CSV], again.into_inner().unwrap());
        assert_eq!(again.status, 201, "{again:?}");
        assert_eq!(items_of(&again, "children"), items_of(&created, "children"));
    }

    /// A column without permission looks like one that does not exist.
    fn import_column_without_permission_looks_unknown(backend: Backend) {
        let server = Setup::new(backend).model(GRANTS).with_authentication().start();
        let ann = Person::new("ann", "a long enough one");
        server.add_user(&ann, &["clerk"]);
        let send = |kind, body: &str| server.request("POST /files", &[kind, ("Authorization", &ann.basic())], body);
        for (kind, hidden, unknown) in [
            (CSV, "name,wage\nmine,7\n", "name,wave\nmine,7\n"),
            (CSV, "name,wage\nmine,x\n", "name,wave\nmine,x\n"),
            (LINES, "{\"name\":\"mine\",\"wage\":7}", "{\"name\":\"mine\",\"wave\":7}"),
        ] {
            let (hidden, unknown) = (send(kind, hidden), send(kind, unknown));
            assert_eq!(hidden.status, 422, "{hidden:?}");
            assert_eq!(faults_text(&hidden).replace("wage", "wave"), faults_text(&unknown));
        }
        // An invalid value is only reported for fields that the caller may see.
        let (hidden, unknown) = (send(CSV, "name,tags\nmine,{\n"), send(CSV, "name,togs\nmine,{\n"));
        assert_eq!(hidden.status, 422, "{hidden:?}");
        assert_eq!(faults_text(&hidden).replace("tags", "togs"), faults_text(&unknown));
        let made = send(CSV, "name\nmine\n");
        assert_eq!((made.status, made.json()["files"][0].get("wage")), (201, None), "{made:?}");
    }

    /// Each name is repeated for every row.
    fn import_column_names_and_count_are_limited(server: Server) {
        let rows = "1\n".repeat(1_000);
        let long = send(&server, CSV, format!("{}\n{rows}", "a".repeat(100_000)));
        assert_eq!((long.status, long.problem().as_str()), (400, "bad-lines"), "{long:?}");
        let names = (0..511).map(|number| format!("c{number}")).collect::<Vec<_>>().join(",");
        let wide = send(&server, CSV, format!("{names}\n"));
        assert_eq!((wide.status, wide.problem().as_str()), (400, "bad-lines"), "{wide:?}");
        assert_eq!(count(&server), 0);
    }

    /// A byte order mark and CR LF, as Excel saves a table.
    fn import_of_a_spreadsheet_csv(server: Server) {
        let created = send(&server, CSV, "\u{feff}name,email\r\nÄnn,ann@example.com\r\n");
        assert_eq!(created.status, 201, "{created:?}");
        assert_eq!(items_of(&created, "customers")[0]["name"], "Änn");
    }

    /// A cross-site page may send CSV no more than JSON.
    fn import_from_another_site_is_refused(server: Server) {
        for kind in [CSV, LINES] {
            let headers = [kind, ("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")];
            let refused = server.request("POST /customers", &headers, "name,email\nAnn,ann@example.com\n");
            assert_eq!(refused.problem(), "cross-site");
        }
        assert_eq!(count(&server), 0);
    }
}
