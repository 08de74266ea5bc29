//! Responses to exports, to the byte, and refusals before an export begins.

use std::process::Command;

use expect_test::expect;
use serde_json::{Value, json};

use super::{CSV, NDJSON, model, start_with_entries};
use crate::harness::{ANN, Answer, Backend, Masks, Person, Process, Server, Setup};

const NO_ONE: &str = "/customers/01890a5d-ac96-774b-bcce-b302099a8057";
const SCHOOL_MODEL: &str = include_str!("../models/school.toml");
const GRANTS: &str = "title = \"Office\"\n[resources.file.fields]\nname = { type = \"text\" }\nowner = { type = \"text\" }\n\
     wage = { type = \"integer\" }\n[roles.clerk]\nfile = { verbs = [\"get\"], where = \"owner = $user\", hide = [\"wage\"] }\n";

const SORTED: &str = "title = \"Notes\"\n[resources.note.fields]\ntext = { type = \"text\" }\n\
     number = { type = \"integer\", filter = true }\nkind = { type = \"integer\", filter = true }\n";

fn get(server: &Server, path: &str, accept: &str) -> Answer {
    server.request(&format!("GET {path}"), &[("Accept", accept)], "")
}

/// Every item of a collection, by pages of JSON.
fn read_all_pages(server: &Server, path: &str, plural: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut next = format!("{path}?limit=500");
    loop {
        let page = server.get(&next).json();
        items.extend(page[plural].as_array().unwrap().iter().cloned());
        let Some(cursor) = page["page"]["next"].as_str() else { return items };
        next = format!("{path}?limit=500&cursor={cursor}");
    }
}

on_every_backend! {
    fn export_of_an_empty_collection(server: Server) {
        let lines = get(&server, "/customers", NDJSON);
        expect![[r#"
            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/x-ndjson
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 0
            date: <date>

        "#]].assert_eq(&lines.masked());
        let table = get(&server, "/customers", CSV);
        assert_eq!(table.header("Content-Type"), Some("text/csv; charset=utf-8; header=present"));
        assert_eq!(table.text(), "id,name,email,created_at,updated_at,version\r\n");
    }

    fn export_of_every_field_type(backend: Backend) {
        let server = Setup::new(backend).model(SCHOOL_MODEL).start();
        server.create("/people", r#"{"person":{"name":"Ann, \"A\"","nickname":null}}"#);
        server.create("/people", r#"{"person":{"name":"Bea\r\nLee","badge":"","nickname":""}}"#);
        server.create("/counties", r#"{"county":{"code":"AA"}}"#);
        server.create("/counties/1/schools", r#"{"school":{"name":"=1+1","number":7,"head":2}}"#);
        let child = json!({"child": {"name": "Cem", "mail": "c@example.com", "site": "https://example.com/?a,b",
            "age": 7, "height": 1.5, "marks": [1, 6], "address": {"street": "A, 1"}, "extra": {"a": ["x", null]}, "born": "2019-02-03", "seen": "2026-01-02T03:04:05Z", "mentor": 1}});
        server.create("/counties/1/schools/1/children", child.to_string());
        server.create("/counties/1/schools/1/children", r#"{"child":{"name":"Dora","fee":"12.5","active":false}}"#);
        let mut masks = Masks::default();
        let shown = ["/people", "/counties/1/schools", "/counties/1/schools/1/children"].map(|path| {
            [NDJSON, CSV].map(|accept| masks.answer(&get(&server, path, accept)).split_once("\n\n").unwrap().1.replace('\r', "\\r"))
        });
        expect![[r#"
            {"id":1,"name":"Ann, \"A\"","nickname":null,"created_at":"<time-1>","updated_at":"<time-1>","version":1}
            {"id":2,"name":"Bea\r\nLee","badge":"","nickname":"","created_at":"<time-2>","updated_at":"<time-2>","version":1}

            id,name,badge,nickname,created_at,updated_at,version\r
            1,"Ann, ""A""",,,<time-1>,<time-1>,1\r
            2,"Bea\r
            Lee","","",<time-2>,<time-2>,1\r

            {"id":1,"county_id":1,"name":"=1+1","number":7,"head":2,"created_at":"<time-3>","updated_at":"<time-3>","version":1}

            id,county_id,name,street,number,head,created_at,updated_at,version\r
            1,1,=1+1,,7,2,<time-3>,<time-3>,1\r

            {"id":1,"school_id":1,"name":"Cem","mail":"c@example.com","site":"https://example.com/?a,b","age":7,"height":1.5,"fee":"0.00","active":true,"born":"2019-02-03","seen":"<time-4>","mentor":1,"stage":"applied","colour":null,"marks":[1,6],"address":{"street":"A, 1"},"extra":{"a":["x",null]},"count":2,"created_at":"<time-5>","updated_at":"<time-5>","version":1}
            {"id":2,"school_id":1,"name":"Dora","fee":"12.50","active":false,"stage":"applied","colour":null,"count":0,"created_at":"<time-6>","updated_at":"<time-6>","version":1}

            id,school_id,name,mail,site,age,height,fee,active,born,seen,token,mentor,stage,colour,marks,address,extra,count,created_at,updated_at,version\r
            1,1,Cem,c@example.com,"https://example.com/?a,b",7,1.5,0.00,true,2019-02-03,<time-4>,,1,applied,,"[1,6]","{""street"":""A, 1""}","{""a"":[""x"",null]}",2,<time-5>,<time-5>,1\r
            2,1,Dora,,,,,12.50,false,,,,,applied,,,,,0,<time-6>,<time-6>,1\r
        "#]].assert_eq(&shown.concat().join("\n"));
    }

    fn export_of_a_child_collection(server: Server) {
        let ann = server.create("/customers", ANN);
        let order = r#"{"order":{"items":[{"product":"tea, \"green\"","quantity":2,"unit_price":350}],"note":""}}"#;
        server.create(&format!("{ann}/orders"), order);
        server.create(&format!("{ann}/orders"), r#"{"order":{"items":[{"product":"tea","unit_price":1}]}}"#);
        let mut masks = Masks::default();
        let table = masks.answer(&get(&server, &format!("{ann}/orders"), CSV));
        expect![[r#"
            id,customer_id,status,currency,items,total,note,created_at,updated_at,version\r
            <id-1>,<id-2>,placed,EUR,"[{""product"":""tea, \""green\"""",""quantity"":2,""unit_price"":350}]",700,"",<time-1>,<time-1>,1\r
            <id-3>,<id-2>,placed,EUR,"[{""product"":""tea"",""quantity"":1,""unit_price"":1}]",1,,<time-2>,<time-2>,1\r
        "#]].assert_eq(&table.split_once("\n\n").unwrap().1.replace('\r', "\\r"));
        let lines = get(&server, &format!("{ann}/orders"), NDJSON);
        let items: Vec<Value> = lines.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(items, read_all_pages(&server, &format!("{ann}/orders"), "orders"));
        for accept in [NDJSON, CSV] {
            assert_eq!(get(&server, &format!("{NO_ONE}/orders"), &format!("{accept}, application/json;q=0.1")).problem(), "not-found");
        }
    }

    /// The same items as in pages, in chunks with a marked end.
    fn export_of_a_large_collection_equals_its_pages(backend: Backend) {
        let server = start_with_entries(backend, 3_000, "");
        let answer = get(&server, "/entries", NDJSON);
        assert_eq!((answer.header("Transfer-Encoding"), answer.header("Content-Length")), (Some("chunked"), None));
        assert!(answer.text().ends_with("}\n"));
        let items: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(items.len(), 3_000);
        assert_eq!(items, read_all_pages(&server, "/entries", "entries"));
        let table = get(&server, "/entries", CSV);
        assert_eq!(table.text().matches("\r\n").count(), 3_001);
        // RFC 9110 §9.3.2: the headers of a GET, except those that depend on its content.
        let head = server.request("HEAD /entries", &[("Accept", CSV)], "");
        let names = |answer: &Answer| -> Vec<String> {
            answer.headers.iter().map(|(name, _)| name.clone()).filter(|name| name != "transfer-encoding").collect()
        };
        assert_eq!((head.status, names(&head)), (200, names(&table)));
        // The connection stays usable afterwards.
        let mut client = server.client();
        for _ in 0..2 {
            let again = client.request("GET /entries", &[("Accept", CSV)], "");
            assert_eq!((again.status, &again.body), (200, &table.body));
        }
    }

    fn export_with_limit_and_cursor_is_a_page(backend: Backend) {
        let server = start_with_entries(backend, 1_000, "");
        let page = get(&server, "/entries?limit=3", CSV);
        assert_eq!(page.text().lines().count(), 4);
        let link = page.header("Link").unwrap();
        let next = link.strip_prefix('<').unwrap().split_once('>').unwrap().0;
        let second = get(&server, next, NDJSON);
        let ids = |answer: &Answer| -> Vec<u64> {
            answer.text().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_u64().unwrap()).collect()
        };
        assert_eq!(ids(&second), [4, 5, 6]);
        let cursor = next.split_once("cursor=").unwrap().1;
        let rest = get(&server, &format!("/entries?cursor={cursor}"), NDJSON);
        assert_eq!(ids(&rest), (4..=1_000).collect::<Vec<_>>());
        assert_eq!(rest.header("Link"), None);
        assert_eq!(get(&server, "/entries?limit=501", "application/json").problem(), "bad-query");
        assert_eq!(get(&server, "/entries?limit=501", CSV).status, 400);
        assert_eq!(get(&server, "/entries?lmit=5", CSV).status, 400);
    }

    /// Filters, sorting and fields work as in pages.
    fn export_query_works_as_in_pages(backend: Backend) {
        let server = Setup::new(backend).model(SORTED).start();
        let items: Vec<Value> = (0..1_500).map(|number: u32| match number % 5 {
            0 => json!({"text": "none"}),
            kind => json!({"text": format!("{number:0>300}"), "number": number, "kind": kind}),
        }).collect();
        for items in items.chunks(500) {
            assert_eq!(server.post("/notes", json!({"notes": items}).to_string()).status, 201);
        }
        for query in ["sort=number", "sort=-number", "sort=-kind,number", "sort=-id", "kind=3", "kind:in=1,2&sort=-number",
            "number:exists=false", "number:gt=1400&fields=number&sort=kind", "kind=99"] {
            let (mut pages, mut next) = (Vec::new(), format!("/notes?{query}&limit=400"));
            loop {
                let page = server.get(&next);
                pages.extend(page.json()["notes"].as_array().unwrap().iter().cloned());
                let Some(link) = page.header("Link") else { break };
                next = link.strip_prefix('<').unwrap().split_once('>').unwrap().0.to_owned();
            }
            let whole = get(&server, &format!("/notes?{query}"), NDJSON);
            let whole: Vec<Value> = whole.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(whole, pages, "{query}");
        }
        let table = get(&server, "/notes?fields=kind,number&number=7", CSV);
        assert_eq!(table.masked().split_once("\n\n").unwrap().1, "id,number,kind\r\n<id-1>,7,2\r\n");
        // There is no place for a count, and nothing is left out silently.
        for query in ["count=exact", "count=exact&limit=5"] {
            let headers = [("Accept", "text/csv, application/problem+json;q=0.1")];
            let answer = server.request(&format!("GET /notes?{query}"), &headers, "");
            assert_eq!((answer.status, answer.problem()), (400, "bad-query".to_owned()), "{query}");
        }
    }

    /// A problem in CSV would be taken for data, so a client that lists CSV alone gets none.
    fn problem_for_a_client_of_csv_alone_is_named_by_a_link(backend: Backend) {
        let model = format!("{SORTED}\n[server]\nbase_path = \"/v1\"\n");
        let server = Setup::new(backend).model(&model).start();
        for (target, status, slug) in [("/v1/notes?nmber=7", 400, "bad-query"), ("/v1/nothing", 404, "no-such-path")] {
            let answer = get(&server, target, CSV);
            assert_eq!((answer.status, answer.body.len(), answer.header("Content-Type")), (status, 0, None), "{target}");
            let link = format!("</v1/-/problems/{slug}>; rel=\"type\"");
            assert_eq!(answer.header("Link"), Some(&*link));
            let explained = server.get(&format!("/v1/-/problems/{slug}"));
            assert_eq!(explained.json()["problem"]["slug"], slug);
            let both = get(&server, target, "text/csv, application/problem+json");
            assert_eq!((both.json()["type"].clone(), both.header("Link")), (json!(format!("/v1/-/problems/{slug}")), None));
        }
    }

    fn export_types_are_offered_for_collections_only(server: Server) {
        let ann = server.create("/customers", ANN);
        for accept in [NDJSON, CSV] {
            assert_eq!(get(&server, &ann, accept).status, 406);
            assert_eq!(get(&server, "/", accept).status, 406);
            let both = format!("{accept}, application/json;q=0.1");
            let item = get(&server, &ann, &both);
            assert_eq!((item.status, item.header("Content-Type")), (200, Some("application/json")));
            let created = server.request("POST /customers", &[("Accept", accept)], ANN);
            assert_eq!(created.status, 406, "nothing was done");
            let list = get(&server, "/customers", &both);
            assert!(list.header("Content-Type").unwrap().starts_with(accept));
        }
        assert_eq!(get(&server, "/customers", NDJSON).text().lines().count(), 1);
        let chosen = |accept: &str| get(&server, "/customers", accept).header("Content-Type").map(str::to_owned);
        let csv = Some("text/csv; charset=utf-8; header=present".to_owned());
        let json = Some("application/json".to_owned());
        assert_eq!(chosen("text/*"), csv);
        assert_eq!(chosen("text/csv; charset=UTF-8; header=present"), csv);
        assert_eq!(chosen("text/csv, application/json"), json, "what is equal is ours to choose");
        assert_eq!(chosen("text/csv;q=0.9, application/json;q=0.8"), csv);
        assert_eq!(chosen("text/csv;q=0, */*"), json);
        assert_eq!(get(&server, "/customers", "text/csv; header=absent").status, 406);
        assert_eq!(get(&server, "/customers", "image/png, application/problem+json;q=0.1").json()["detail"],
            "what can be sent: application/json, application/x-ndjson, text/csv, text/html, text/event-stream");
    }

    fn export_has_no_validators(server: Server) {
        server.create("/customers", ANN);
        let table = get(&server, "/customers", CSV);
        assert_eq!((table.header("ETag"), table.header("Last-Modified")), (None, None));
        let headers = [("Accept", CSV), ("If-Match", "\"1-00000000\"")];
        assert_eq!(server.request("GET /customers", &headers, "").status, 412);
        let headers = [("Accept", CSV), ("If-None-Match", "\"1-00000000\"")];
        assert_eq!(server.request("GET /customers", &headers, "").status, 200);
        let headers = [("Accept", CSV), ("If-None-Match", "*")];
        assert_eq!(server.request("GET /customers", &headers, "").status, 304);
    }

    fn export_omits_rows_and_fields_without_permission(backend: Backend) {
        let server = Setup::new(backend).model(GRANTS).with_authentication().start();
        let (admin, ann) = (server.admin().basic(), Person::new("ann", "a long enough one"));
        server.add_user(&ann, &["clerk"]);
        let files = json!({"files": [
            {"name": "mine", "owner": "ann", "wage": 7}, {"name": "other", "owner": "bea", "wage": 9}]});
        let made = server.request("POST /files", &[("Authorization", &admin)], files.to_string());
        assert_eq!(made.status, 201, "{made:?}");
        let shown = |by: &str, accept: &str| {
            let headers = [("Authorization", by), ("Accept", accept)];
            let answer = server.request("GET /files", &headers, "");
            let text = answer.masked();
            text.split_once("\n\n").unwrap().1.replace('\r', "")
        };
        expect![[r#"
            id,name,owner,created_at,updated_at,version
            <id-1>,mine,ann,<time-1>,<time-1>,1

            {"id":"<id-1>","name":"mine","owner":"ann","created_at":"<time-1>","updated_at":"<time-1>","version":1}

            id,name,owner,wage,created_at,updated_at,version
            <id-1>,mine,ann,7,<time-1>,<time-1>,1
            <id-2>,other,bea,9,<time-1>,<time-1>,1
        "#]].assert_eq(&[shown(&ann.basic(), CSV), shown(&ann.basic(), NDJSON), shown(&admin, CSV)].join("\n"));
        assert_eq!(server.request("GET /files", &[("Accept", CSV)], "").status, 401);
    }

    /// The HTTP/2 stream ends with a reset, which curl reports.
    fn export_cut_over_http_2_is_a_stream_reset(backend: Backend) {
        let server = start_with_entries(backend, 3_000, "");
        let folder = server.stop();
        let server = Setup::new(backend).model(&model("")).fault("export:2500").start_in(folder);
        let curl = |more: &[&str]| {
            let mut command = Command::new("curl");
            command.args(["--disable", "--silent", "--output", "/dev/null", "--max-time", "100"]).args(more);
            command.args(["--header", "Accept: text/csv"]).arg(format!("http://{}/entries", server.address)).env_clear();
            Process::spawn(&mut command).end().code
        };
        assert_eq!(curl(&["--http2-prior-knowledge"]), Some(92), "curl: stream error in the HTTP/2 framing layer");
        assert_eq!(curl(&["--http2-prior-knowledge"]), Some(0), "the next one is whole");
    }
}
