//! Single items: create, read, replace, delete.

use expect_test::expect;
use serde_json::json;

use super::{ANN, BEA, NO_ONE, TEA, start_schools};
use crate::harness::{Backend, Masks, Server};

on_every_backend! {
    /// In a path an id has one spelling; in a body upper case is accepted.
    fn item_id_in_a_body_may_be_upper_case(server: Server) {
        let path = server.create("/customers", ANN);
        let id = path.rsplit('/').next().unwrap();
        let body = format!(r#"{{"customer":{{"id":"{}","name":"Ann","email":"ann@example.com"}}}}"#, id.to_uppercase());
        let answer = server.put(&path, &body);
        assert_eq!((answer.status, &answer.json()["customer"]["id"]), (200, &id.into()));
        assert_eq!(server.get(&path.to_uppercase().replace("/CUSTOMERS", "/customers")).status, 404);
    }

    /// The lifecycle of an item, with every header.
    fn item_lifecycle_of_a_customer(server: Server) {
        let mut masks = Masks::default();
        let created = server.post("/customers", ANN);
        let path = created.header("Location").unwrap().to_owned();
        let life = [
            created,
            server.get(&path),
            server.put(&path, BEA),
            server.get(&path),
            server.delete(&path),
            server.get(&path),
        ];
        let transcript: Vec<_> = life.iter().map(|answer| masks.answer(answer)).collect();
        expect![[r#"
            HTTP/1.1 201 Created
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            location: /customers/<id-1>
            etag: "1-<tag-1>"
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 195
            date: <date>

            {"customer":{"id":"<id-1>","name":"Ann","email":"ann@example.com","created_at":"<time-1>","updated_at":"<time-1>","version":1}}

            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            etag: "1-<tag-1>"
            last-modified: <date>
            link: </-/changes?subject=/customers/<id-1>>; rel="version-history"
            x-request-id: <request-2>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 195
            date: <date>

            {"customer":{"id":"<id-1>","name":"Ann","email":"ann@example.com","created_at":"<time-1>","updated_at":"<time-1>","version":1}}

            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-3>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 195
            date: <date>

            {"customer":{"id":"<id-1>","name":"Bea","email":"bea@example.com","created_at":"<time-1>","updated_at":"<time-2>","version":2}}

            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            etag: "2-<tag-1>"
            last-modified: <date>
            link: </-/changes?subject=/customers/<id-1>>; rel="version-history"
            x-request-id: <request-4>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 195
            date: <date>

            {"customer":{"id":"<id-1>","name":"Bea","email":"bea@example.com","created_at":"<time-1>","updated_at":"<time-2>","version":2}}

            HTTP/1.1 204 No Content
            cache-control: private, no-cache
            x-request-id: <request-5>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            date: <date>



            HTTP/1.1 404 Not Found
            cache-control: private, no-cache
            content-type: application/problem+json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-6>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 180
            date: <date>

            {"type":"/-/problems/not-found","title":"There is no such item","status":404,"instance":"/customers/<id-1>","request_id":"<request-6>"}"#]].assert_eq(&transcript.join("\n\n"));
    }

    /// Defaults are filled in, computed fields computed, and fields without a value left out.
    fn item_create_fills_defaults_and_computed_fields(server: Server) {
        let orders = format!("{}/orders", server.create("/customers", ANN));
        let answer = server.post(&orders, r#"{"order":{"items":[{"product":"tea","unit_price":350},{"product":"jam","quantity":3,"unit_price":200}]}}"#);
        expect![[r#"
            HTTP/1.1 201 Created
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            location: /customers/<id-1>/orders/<id-2>
            etag: "1-<tag-1>"
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 359
            date: <date>

            {"order":{"id":"<id-2>","customer_id":"<id-1>","status":"placed","currency":"EUR","items":[{"product":"tea","quantity":1,"unit_price":350},{"product":"jam","quantity":3,"unit_price":200}],"total":950,"created_at":"<time-1>","updated_at":"<time-1>","version":1}}"#]].assert_eq(&answer.masked());
    }

    fn item_fields_of_every_type_round_trip(backend: Backend) {
        let server = start_schools(backend);
        let person = server.create("/people", r#"{"person":{"name":"Mia","badge":"m1"}}"#);
        assert_eq!(person, "/people/1");
        let county = server.create("/counties", r#"{"county":{"code":"AB"}}"#);
        let school = server.create(&format!("{county}/schools"), r#"{"school":{"name":"North","head":1}}"#);
        assert_eq!(school, "/counties/1/schools/1");
        let child = json!({"child": {
            "name": "Zoë 🎈", "mail": "zoe@example.com", "site": "https://example.com/zoe?a=b#c", "age": 7,
            "height": 1.25, "fee": "12.5", "active": false, "born": "2019-02-28",
            "seen": "2026-11-15T03:28:14.5+01:00", "token": "01890a5d-ac96-774b-bcce-b302099a8057",
            "mentor": 1, "stage": "applied", "colour": null, "marks": [1, 6, 3],
            "address": {"street": "High", "number": 7}, "extra": {"any": [1, 2.5, null, "x"]}
        }});
        let created = server.post(&format!("{school}/children"), child.to_string());
        expect![[r#"
            HTTP/1.1 201 Created
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            location: /counties/1/schools/1/children/1
            etag: "1-<tag-1>"
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 509
            date: <date>

            {"child":{"id":1,"school_id":1,"name":"Zoë 🎈","mail":"zoe@example.com","site":"https://example.com/zoe?a=b#c","age":7,"height":1.25,"fee":"12.50","active":false,"born":"2019-02-28","seen":"<time-1>","token":"<id-1>","mentor":1,"stage":"applied","colour":null,"marks":[1,6,3],"address":{"street":"High","number":7},"extra":{"any":[1,2.5,null,"x"]},"count":3,"created_at":"<time-2>","updated_at":"<time-2>","version":1}}"#]].assert_eq(&created.masked());
        let path = created.header("Location").unwrap();
        assert_eq!(server.get(path).json(), created.json());
        let least = server.post(&format!("{school}/children"), r#"{"children":{"name":"Bo"}}"#);
        expect![[r#"{"child":{"id":2,"school_id":1,"name":"Bo","fee":"0.00","active":true,"stage":"applied","colour":null,"count":0,"#]].assert_eq(least.text().split("\"created_at\"").next().unwrap());
    }

    fn integer_ids_increase_and_are_never_reused(backend: Backend) {
        let server = start_schools(backend);
        let create = |server: &Server| server.create("/people", r#"{"person":{"name":"Mia"}}"#);
        assert_eq!(create(&server), "/people/1");
        assert_eq!(create(&server), "/people/2");
        assert_eq!(server.delete("/people/2").status, 204);
        let server = server.restart();
        assert_eq!(create(&server), "/people/3");
        for path in ["/people/2", "/people/0", "/people/03", "/people/+3", "/people/-3", "/people/3.0", "/people/x",
            "/people/9007199254740992", "/people/99999999999999999999"] {
            assert_eq!(server.get(path).problem(), "not-found", "{path}");
        }
    }

    fn bulk_create_returns_all_items(server: Server) {
        let body = r#"{"customers":[{"name":"Ann","email":"ann@example.com"},{"name":"Bea","email":"bea@example.com"}]}"#;
        let answer = server.post("/customers", body);
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
            content-length: 381
            date: <date>

            {"customers":[{"id":"<id-1>","name":"Ann","email":"ann@example.com","created_at":"<time-1>","updated_at":"<time-1>","version":1},{"id":"<id-2>","name":"Bea","email":"bea@example.com","created_at":"<time-1>","updated_at":"<time-1>","version":1}]}"#]].assert_eq(&answer.masked());
        assert_eq!(server.get("/customers").json()["customers"], answer.json()["customers"]);
    }

    fn bulk_create_is_all_or_nothing(server: Server) {
        let body = r#"{"customers":[{"name":"Ann","email":"ann@example.com"},{"name":"Bea","email":"bea"},{"email":7}]}"#;
        let answer = server.post("/customers", body);
        expect![[r#"
            HTTP/1.1 422 Unprocessable Content
            cache-control: private, no-cache
            content-type: application/problem+json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 487
            date: <date>

            {"type":"/-/problems/invalid-fields","title":"Some fields are not valid","status":422,"detail":"3 fields need attention","instance":"/customers","request_id":"<request-1>","errors":[{"pointer":"/customers/1/email","code":"format","detail":"expected an e-mail address, got \"bea\""},{"pointer":"/customers/2/email","code":"type","detail":"expected an e-mail address, got a number"},{"pointer":"/customers/2/name","code":"required","detail":"expected a text, got nothing"}]}"#]].assert_eq(&answer.masked());
        assert_eq!(server.get("/customers").json()["customers"], json!([]));
    }

    fn bulk_create_with_a_conflict_creates_nothing(backend: Backend) {
        let server = start_schools(backend);
        let answer = server.post("/people", r#"{"people":[{"name":"Mia","badge":"x"},{"name":"Ben","badge":"x"}]}"#);
        assert_eq!(answer.problem(), "taken");
        assert_eq!(server.get("/people").json()["people"], json!([]));
    }

    fn bulk_create_of_an_empty_list_is_refused(server: Server) {
        let answer = server.post("/customers", r#"{"customers":[]}"#);
        assert_eq!((answer.status, answer.problem().as_str()), (422, "invalid-fields"));
        let fault = json!({"pointer": "/customers", "code": "items", "detail": "expected at least one item, got none"});
        assert_eq!(answer.json()["errors"], json!([fault]));
        // A missing parent is reported first.
        assert_eq!(server.post(&format!("{NO_ONE}/orders"), r#"{"orders":[]}"#).status, 404);
    }

    fn bulk_create_is_limited_to_a_thousand_items(server: Server) {
        let body = |count: usize| json!({"customers": vec![json!({"name": "Ann", "email": "ann@example.com"}); count]}).to_string();
        assert_eq!(server.post("/customers", body(1001)).problem(), "too-large");
        let answer = server.post("/customers", body(1000));
        assert_eq!((answer.status, answer.json()["customers"].as_array().unwrap().len()), (201, 1000));
    }

    /// PUT replaces: a missing field is reset to its default or removed; a missing state stays.
    fn put_replaces_the_whole_item(server: Server) {
        let orders = format!("{}/orders", server.create("/customers", ANN));
        let path = server.create(&orders, r#"{"order":{"currency":"USD","note":"ring","items":[{"product":"tea","unit_price":350}]}}"#);
        let paid = r#"{"order":{"status":"paid","currency":"USD","note":"ring","items":[{"product":"tea","unit_price":350}]}}"#;
        assert_eq!(server.put(&path, paid).json()["order"]["status"], "paid");
        let order = server.put(&path, TEA).json()["order"].clone();
        assert_eq!((&order["status"], &order["currency"], &order["total"]), (&json!("paid"), &json!("EUR"), &json!(700)));
        assert_eq!(order.get("note"), None);
        assert_eq!(server.get(&path).json()["order"], order);
    }

    fn put_without_required_fields_is_refused(server: Server) {
        let path = server.create("/customers", ANN);
        let answer = server.put(&path, r#"{"customer":{"name":"Bea"}}"#);
        expect![[r#"{"type":"/-/problems/invalid-fields","title":"Some fields are not valid","status":422,"detail":"1 field needs attention""#]].assert_eq(answer.text().split(",\"instance\"").next().unwrap());
        assert_eq!(server.get(&path).json()["customer"]["name"], "Ann");
    }

    /// The response to GET can be edited and sent back.
    fn put_accepts_what_get_returned(server: Server) {
        let customer = server.create("/customers", ANN);
        let path = server.create(&format!("{customer}/orders"), TEA);
        let mut order = server.get(&path).json();
        order["order"]["note"] = json!("ring twice");
        let answer = server.put(&path, order.to_string());
        assert_eq!((answer.status, &answer.json()["order"]["note"]), (200, &json!("ring twice")), "{answer:?}");
        assert_eq!(answer.json()["order"]["version"], 2);
    }

    /// Read-only members: their type is checked, their value is ignored.
    fn put_checks_the_type_of_read_only_members(server: Server) {
        let customer = server.create("/customers", ANN);
        let path = server.create(&format!("{customer}/orders"), TEA);
        let put = |member: &str, value: &str| {
            let body = format!(r#"{{"order":{{"{member}":{value},"items":[{{"product":"tea","quantity":2,"unit_price":350}}]}}}}"#);
            server.put(&path, body)
        };
        for (member, other, wrong) in [
            ("version", "99", "\"99\""),
            ("created_at", "\"2001-01-01T00:00:00Z\"", "7"),
            ("updated_at", "\"2001-01-01T00:00:00Z\"", "\"yesterday\""),
            ("total", "1", "\"1\""),
        ] {
            let answer = put(member, other);
            assert_eq!((answer.status, &answer.json()["order"]["version"]), (200, &json!(1)), "{member}");
            assert_eq!(put(member, wrong).json()["errors"][0]["pointer"], format!("/order/{member}"));
        }
        assert_eq!(server.get(&path).json()["order"]["total"], 700);
    }

    fn put_with_ids_that_contradict_the_path_is_refused(server: Server) {
        let customer = server.create("/customers", ANN);
        let path = server.create(&format!("{customer}/orders"), TEA);
        let body = json!({"order": {"id": "01890a5d-ac96-774b-bcce-b302099a8057", "customer_id": 7,
            "items": [{"product": "tea", "unit_price": 350}]}});
        let answer = server.put(&path, body.to_string());
        assert_eq!(answer.problem(), "invalid-fields");
        let errors = answer.json()["errors"].clone();
        let pointers: Vec<_> = errors.as_array().unwrap().iter().map(|error| error["pointer"].clone()).collect();
        assert_eq!(pointers, ["/order/id", "/order/customer_id"]);
        assert_eq!(errors[0]["code"], "mismatch");
    }

    fn create_with_read_only_members_is_refused(server: Server) {
        let customer = server.create("/customers", ANN);
        let body = r#"{"order":{"id":"x","customer_id":"x","total":1,"created_at":"x","updated_at":"x","version":1,
            "items":[{"product":"tea","unit_price":350}]}}"#;
        let answer = server.post(&format!("{customer}/orders"), body);
        assert_eq!(answer.problem(), "invalid-fields");
        let codes: Vec<_> = answer.json()["errors"].as_array().unwrap().iter()
            .map(|error| format!("{} {}", error["pointer"].as_str().unwrap(), error["code"].as_str().unwrap())).collect();
        expect![[r#"
            /order/id read_only
            /order/customer_id mismatch
            /order/total read_only
            /order/created_at read_only
            /order/updated_at read_only
            /order/version read_only"#]].assert_eq(&codes.join("\n"));
    }

    fn put_that_changes_nothing_makes_no_version(server: Server) {
        let path = server.create("/customers", ANN);
        let before = server.get(&path);
        let same = server.put(&path, ANN);
        assert_eq!((same.status, same.json()), (200, before.json()));
        assert_eq!(server.put(&path, BEA).json()["customer"]["version"], 2);
        assert_eq!(server.put(&path, BEA).json()["customer"]["version"], 2);
        assert_eq!(server.put(&path, ANN).json()["customer"]["version"], 3);
        assert_eq!(before.header("ETag").map(|tag| tag.starts_with("\"1-")), Some(true));
        assert!(server.get(&path).header("ETag").unwrap().starts_with("\"3-"));
    }

    fn put_never_creates(server: Server) {
        assert_eq!(server.put(NO_ONE, ANN).problem(), "not-found");
        assert_eq!(server.get("/customers").json()["customers"], json!([]));
    }

    fn delete_is_204_then_404(server: Server) {
        let path = server.create("/customers", ANN);
        // The body of a DELETE is ignored.
        let deleted = server.request(&format!("DELETE {path}"), &[("Content-Type", "image/png")], "not json");
        assert_eq!((deleted.status, deleted.text(), deleted.header("Content-Type")), (204, "", None));
        assert_eq!(server.delete(&path).problem(), "not-found");
        assert_eq!(server.delete(NO_ONE).problem(), "not-found");
    }

    fn item_is_found_only_under_its_own_parents(backend: Backend) {
        let server = start_schools(backend);
        for code in ["AB", "CD"] {
            let county = server.create("/counties", format!(r#"{{"county":{{"code":"{code}"}}}}"#));
            let school = server.create(&format!("{county}/schools"), r#"{"school":{"name":"North"}}"#);
            server.create(&format!("{school}/children"), r#"{"child":{"name":"Bo"}}"#);
        }
        assert_eq!(server.get("/counties/1/schools/1/children/1").status, 200);
        let put = |path: &str| server.put(path, r#"{"child":{"name":"Al"}}"#);
        for path in ["/counties/2/schools/1/children/1", "/counties/1/schools/2/children/1", "/counties/1/schools/2/children/2",
            "/counties/3/schools/1/children/1", "/counties/1/schools/1/children/3", "/counties/x/schools/1/children/1"] {
            assert_eq!(server.get(path).problem(), "not-found", "GET {path}");
            assert_eq!(put(path).problem(), "not-found", "PUT {path}");
            assert_eq!(server.delete(path).problem(), "not-found", "DELETE {path}");
        }
        for path in ["/counties/2/schools/1/children", "/counties/3/schools/1/children", "/counties/3/schools"] {
            assert_eq!(server.get(path).problem(), "not-found", "GET {path}");
            assert_eq!(server.post(path, r#"{"child":{"name":"Al"}}"#.replace("child", if path.ends_with("schools") { "school" } else { "child" })).problem(), "not-found", "POST {path}");
        }
        assert_eq!(server.get("/counties/1/schools/1/children/1").json()["child"]["name"], "Bo");
        assert_eq!(server.get("/counties/1/schools/1/children/1").json()["child"]["school_id"], 1);
    }
}
