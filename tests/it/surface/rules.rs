//! Rules of the model: fields, states, uniqueness, references.

use expect_test::expect;
use serde_json::json;

use super::{ANN, TEA, start_schools};
use crate::durability::seeded_random::SeededRandom;
use crate::harness::{Answer, Backend, Server, Setup};

/// A county with one school, to which children can be added.
fn create_school(server: &Server) -> String {
    let county = server.create("/counties", r#"{"county":{"code":"AB"}}"#);
    server.create(&format!("{county}/schools"), r#"{"school":{"name":"North"}}"#)
}

/// The faults of an `invalid-fields` response, one a line.
fn faults(answer: &Answer) -> String {
    assert_eq!(answer.problem(), "invalid-fields", "{answer:?}");
    answer.faults().join("\n")
}

on_every_backend! {
    /// All faults of all fields are in one response.
    fn invalid_fields_are_all_reported_at_once(backend: Backend) {
        let server = start_schools(backend);
        let children = format!("{}/children", create_school(&server));
        let body = json!({"child": {
            "name": "Z", "mail": "zoe", "site": "example", "age": 2, "height": "tall", "fee": "1.001", "active": "yes",
            "born": "2019-02-29", "seen": "noon", "token": "x", "mentor": 99, "stage": "flying", "colour": "pink",
            "marks": [0, 7, "x", null], "address": {"number": 1.5, "town": "X"}, "extra": null, "count": 1, "nmae": "Zoe"
        }});
        expect![[r#"
            /child/name | length | expected at least 2 characters, got 1
            /child/mail | format | expected an e-mail address, got "zoe"
            /child/site | format | expected an http or https address, got "example"
            /child/age | range | expected at least 3, got 2
            /child/height | type | expected a number, got a string
            /child/fee | range | expected at most 18 digits and 2 decimals, got 1.001
            /child/active | type | expected true or false, got a string
            /child/born | format | expected a date such as "2026-11-15", got "2019-02-29"
            /child/seen | format | expected a timestamp such as "2026-11-15T02:28:14Z" with at most 6 decimals, got "noon"
            /child/token | format | expected a UUID such as "01890a5d-ac96-774b-bcce-b302099a8057", got "x"
            /child/stage | one_of | expected one of "applied", "enrolled", "left", "refused", got "flying"
            /child/colour | one_of | expected one of "red", "green", "blue", got "pink"
            /child/marks/0 | range | expected at least 1, got 0
            /child/marks/1 | range | expected at most 6, got 7
            /child/marks/2 | type | expected an integer, got a string
            /child/marks/3 | null | expected an integer, got null
            /child/address/town | unknown | no such field
            /child/address/street | required | expected a text, got nothing
            /child/address/number | range | expected an integer within ±9007199254740991, got 1.5
            /child/extra | null | expected any JSON value, got null
            /child/count | read_only | computed by the server
            /child/nmae | unknown | no such field; did you mean "name"?
            /child/mentor | reference | no such item"#]].assert_eq(&faults(&server.post(&children, body.to_string())));
        assert_eq!(server.get(&children).json()["children"], json!([]));
    }

    fn invalid_fields_problem_in_full(server: Server) {
        let answer = server.post("/customers", r#"{"customer":{"name":"","email":"ann","nmae":"Ann"}}"#);
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
            content-length: 390
            date: <date>

            {"type":"/-/problems/invalid-fields","title":"Some fields are not valid","status":422,"detail":"2 fields need attention","instance":"/customers","request_id":"<request-1>","errors":[{"pointer":"/customer/email","code":"format","detail":"expected an e-mail address, got \"ann\""},{"pointer":"/customer/nmae","code":"unknown","detail":"no such field; did you mean \"name\"?"}]}"#]].assert_eq(&answer.masked());
    }

    /// Regression: the response to a bulk with many faults listed all of them, and was larger than the
    /// request.
    fn invalid_fields_lists_at_most_a_hundred_faults(backend: Backend) {
        let server = start_schools(backend);
        let check = |path: &str, body: serde_json::Value, detail: &str, listed: usize| {
            let answer = server.post(path, body.to_string());
            assert_eq!((answer.problem().as_str(), &answer.json()["detail"]), ("invalid-fields", &json!(detail)));
            assert_eq!(answer.json()["errors"].as_array().unwrap().len(), listed, "{detail}");
        };
        let people = |count: usize| json!({"people": vec![json!({}); count]});
        check("/people", people(1), "1 field needs attention", 1);
        check("/people", people(99), "99 fields need attention", 99);
        check("/people", people(300), "at least 300 fields need attention; the first 100 are listed", 100);
        // In one body alone, and in references that are looked up in the database.
        let unknown: serde_json::Map<_, _> = (0..300).map(|number| (format!("x{number}"), json!(1))).collect();
        check("/people", json!({"person": unknown}), "at least 100 fields need attention; the first 100 are listed", 100);
        let children = format!("{}/children", create_school(&server));
        let lost = json!({"children": vec![json!({"name": "Bo", "mentor": 7}); 1_000]});
        check(&children, lost, "at least 1000 fields need attention; the first 100 are listed", 100);
        assert_eq!(server.get(&children).json()["children"], json!([]));
    }

    /// RFC 3339 §5.6 by its own grammar: shorter forms were accepted, and the last day was not.
    fn timestamp_must_have_the_form_of_rfc_3339(backend: Backend) {
        let server = start_schools(backend);
        let children = format!("{}/children", create_school(&server));
        let seen = |text: &str| server.post(&children, json!({"child": {"name": "Bo", "seen": text}}).to_string());
        for (sent, kept) in [
            ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00.000000Z"),
            ("2024-01-01t00:00:00z", "2024-01-01T00:00:00.000000Z"),
            ("2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00.500000Z"),
            ("2024-01-01T00:00:00.1234560Z", "2024-01-01T00:00:00.123456Z"),
            ("2024-01-01T00:00:00+01:30", "2023-12-31T22:30:00.000000Z"),
            ("2024-01-01T00:00:00-00:00", "2024-01-01T00:00:00.000000Z"),
            ("2024-02-29T23:59:59Z", "2024-02-29T23:59:59.000000Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000000Z"),
            ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
        ] {
            let created = seen(sent);
            assert_eq!(created.json()["child"]["seen"], kept, "{sent}");
            assert_eq!(server.get(created.header("Location").unwrap()).json()["child"]["seen"], kept, "{sent}");
        }
        for bad in [
            "", "2024-01-01", "2024-01-01T00:00Z", "2024-01-01T00Z", "2024-01-01T00:00:00", "2024-01-01 00:00:00Z",
            "2024-01-01T00:00:00+0100", "2024-01-01T00:00:00+01", "2024-01-01T00:00:00+24:00", "2024-01-01T00:00:00+00:60",
            "2024-01-01T00:00:00.Z", "2024-01-01T00:00:00,5Z", "2024-01-01T00:00:00.1234567Z", "2024-01-01T24:00:00Z",
            "2024-01-01T23:60:00Z", "2016-12-31T23:59:60Z", "2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z", "2024-1-1T00:00:00Z",
            "20240101T000000Z", "2024-W01-1T00:00:00Z", "2024-001T00:00:00Z", "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z",
            "+2024-01-01T00:00:00Z", "-0001-01-01T00:00:00Z", "2024-01-01T00:00:00Z[UTC]", " 2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z ",
            "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00",
        ] {
            assert_eq!(seen(bad).json()["errors"][0]["code"], "format", "{bad:?}");
        }
    }

    fn null_is_accepted_only_where_declared(backend: Backend) {
        let server = start_schools(backend);
        let people = |body: &str| server.post("/people", body);
        assert_eq!(people(r#"{"person":{"name":"Mia","nickname":null}}"#).json()["person"]["nickname"], json!(null));
        // Where null is allowed, a missing field is the same as null, and shown as such.
        assert_eq!(people(r#"{"person":{"name":"Mia"}}"#).json()["person"]["nickname"], json!(null));
        assert_eq!(people(r#"{"person":{"name":"Mia"}}"#).json()["person"].get("badge"), None);
        assert_eq!(people(r#"{"person":{"name":null}}"#).json()["errors"][0]["code"], "null");
        assert_eq!(people(r#"{"person":{"name":"Mia","badge":null}}"#).json()["errors"][0]["code"], "null");
    }

    fn text_with_nul_is_refused(server: Server) {
        let answer = server.post("/customers", r#"{"customer":{"name":"A\u0000n","email":"ann@example.com"}}"#);
        assert_eq!(answer.problem(), "invalid-fields");
    }

    /// Lengths count Unicode code points, not bytes.
    fn text_length_counts_code_points(backend: Backend) {
        let server = start_schools(backend);
        let name = |name: String| server.post("/people", json!({"person": {"name": name}}).to_string()).status;
        assert_eq!(name("ü".repeat(20)), 201);
        assert_eq!(name("🎈".repeat(20)), 201);
        assert_eq!(name("ü".repeat(21)), 422);
    }

    fn integer_is_exact_or_refused(backend: Backend) {
        let server = start_schools(backend);
        let county = server.create("/counties", r#"{"county":{"code":"AB"}}"#);
        let number = |number: &str| {
            let name = number.trim_matches('"');
            server.post(&format!("{county}/schools"), format!(r#"{{"school":{{"name":"n{name}","number":{number}}}}}"#))
        };
        for exact in ["0", "9007199254740991", "-9007199254740991"] {
            assert!(number(exact).text().contains(&format!("\"number\":{exact},")), "{exact}");
        }
        for bad in ["9007199254740992", "-9007199254740992", "1.5", "1e400", "\"1\"", "true"] {
            assert_eq!(number(bad).problem(), "invalid-fields", "{bad}");
        }
    }

    fn decimal_is_exact(backend: Backend) {
        let server = start_schools(backend);
        let children = format!("{}/children", create_school(&server));
        let fee = |fee: &str| server.post(&children, format!(r#"{{"child":{{"name":"Bo","fee":{fee}}}}}"#));
        for (sent, kept) in [("\"0.1\"", "0.10"), ("12", "12.00"), ("1.10000", "1.10"), ("\"-0.05\"", "-0.05"),
            ("9999999999999999.99", "9999999999999999.99"), ("\"9999999999999999.99\"", "9999999999999999.99"), ("1e2", "100.00")] {
            assert_eq!(fee(sent).json()["child"]["fee"], kept, "{sent}");
        }
        for bad in ["0.001", "\"0.001\"", "\"x\"", "\"\"", "\"1,5\"", "10000000000000000.00", "1e30"] {
            assert_eq!(fee(bad).problem(), "invalid-fields", "{bad}");
        }
    }

    fn state_transitions_only_as_declared(server: Server) {
        let path = server.create(&format!("{}/orders", server.create("/customers", ANN)), TEA);
        let to = |state: &str| server.put(&path, TEA.replace("{\"items\"", &format!("{{\"status\":\"{state}\",\"items\"")));
        assert_eq!(to("placed").status, 200);
        let refused = to("delivered");
        expect![[r#"
            HTTP/1.1 409 Conflict
            cache-control: private, no-cache
            content-type: application/problem+json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 373
            date: <date>

            {"type":"/-/problems/transition-not-allowed","title":"The state cannot be reached from where the item is","status":409,"detail":"the order is placed and cannot become delivered","instance":"/customers/<id-1>/orders/<id-2>","request_id":"<request-1>","state":"placed","allowed":["paid","cancelled"]}"#]].assert_eq(&refused.masked());
        assert_eq!(to("flying").problem(), "invalid-fields");
        for state in ["paid", "shipped", "delivered"] {
            let answer = to(state);
            assert_eq!((answer.status, answer.json()["order"]["status"].as_str()), (200, Some(state)));
        }
        assert_eq!(to("placed").json()["allowed"], json!([]));
        assert_eq!(server.get(&path).json()["order"]["version"], 4);
    }

    fn state_of_a_new_item_is_the_initial_one(server: Server) {
        let orders = format!("{}/orders", server.create("/customers", ANN));
        let post = |state: &str| server.post(&orders, TEA.replace("{\"items\"", &format!("{{\"status\":{state},\"items\"")));
        assert_eq!(post("\"placed\"").status, 201);
        assert_eq!(post("\"paid\"").problem(), "transition-not-allowed");
        for bad in ["\"flying\"", "7", "null", "\"\""] {
            assert_eq!(post(bad).problem(), "invalid-fields", "{bad}");
        }
    }

    fn unique_value_taken_is_409(backend: Backend) {
        let server = start_schools(backend);
        let mia = server.create("/people", r#"{"person":{"name":"Mia","badge":"x"}}"#);
        let clash = server.post("/people", r#"{"person":{"name":"Ben","badge":"x"}}"#);
        expect![[r#"
            HTTP/1.1 409 Conflict
            cache-control: private, no-cache
            content-type: application/problem+json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 290
            date: <date>

            {"type":"/-/problems/taken","title":"A value that must be unique is already in use","status":409,"detail":"1 field needs attention","instance":"/people","request_id":"<request-1>","errors":[{"pointer":"/person/badge","code":"taken","detail":"another person has this value"}]}"#]].assert_eq(&clash.masked());
        let ben = server.create("/people", r#"{"person":{"name":"Ben","badge":"y"}}"#);
        assert_eq!(server.put(&ben, r#"{"person":{"name":"Ben","badge":"x"}}"#).problem(), "taken");
        assert_eq!(server.put(&mia, r#"{"person":{"name":"Mia B","badge":"x"}}"#).status, 200);
        // Missing values do not conflict, and a released value is free again.
        assert_eq!(server.put(&mia, r#"{"person":{"name":"Mia"}}"#).status, 200);
        assert_eq!(server.post("/people", r#"{"person":{"name":"Pat"}}"#).status, 201);
        assert_eq!(server.put(&ben, r#"{"person":{"name":"Ben","badge":"x"}}"#).status, 200);
    }

    fn unique_within_the_parent_and_over_several_fields(backend: Backend) {
        let server = start_schools(backend);
        let (one, two) = (server.create("/counties", r#"{"county":{"code":"AB"}}"#), server.create("/counties", r#"{"county":{"code":"CD"}}"#));
        let post = |county: &str, fields: &str| server.post(&format!("{county}/schools"), format!(r#"{{"school":{{{fields}}}}}"#));
        assert_eq!(post(&one, r#""name":"North","street":"High","number":1"#).status, 201);
        assert_eq!(post(&two, r#""name":"North","street":"High","number":2"#).status, 201);
        let same_name = post(&one, r#""name":"North""#);
        assert_eq!((same_name.problem().as_str(), &same_name.json()["errors"][0]["pointer"]), ("taken", &json!("/school/name")));
        let same_place = post(&two, r#""name":"South","street":"High","number":1"#);
        let pointers: Vec<_> = same_place.json()["errors"].as_array().unwrap().iter().map(|error| error["pointer"].clone()).collect();
        assert_eq!((same_place.problem().as_str(), pointers), ("taken", vec![json!("/school/street"), json!("/school/number")]));
        assert_eq!(post(&two, r#""name":"South","street":"High""#).status, 201);
    }

    /// `restrict`, the default: an item with children or references cannot be deleted.
    fn delete_of_a_referenced_item_is_refused(backend: Backend) {
        let server = start_schools(backend);
        let person = server.create("/people", r#"{"person":{"name":"Mia"}}"#);
        let county = server.create("/counties", r#"{"county":{"code":"AB"}}"#);
        let school = server.create(&format!("{county}/schools"), r#"{"school":{"name":"North","head":1}}"#);
        expect![[r#"
            HTTP/1.1 409 Conflict
            cache-control: private, no-cache
            content-type: application/problem+json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 224
            date: <date>

            {"type":"/-/problems/referenced","title":"Other items still refer to this one","status":409,"detail":"there are schools that belong or refer to this county","instance":"/counties/1","request_id":"<request-1>"}"#]].assert_eq(&server.delete(&county).masked());
        assert_eq!(server.delete(&person).problem(), "referenced");
        assert_eq!(server.delete(&school).status, 204);
        assert_eq!((server.delete(&county).status, server.delete(&person).status), (204, 204));
    }

    fn delete_cascades_to_children(backend: Backend) {
        let server = start_schools(backend);
        server.create("/people", r#"{"person":{"name":"Mia"}}"#);
        let school = create_school(&server);
        let children = format!("{school}/children");
        let mentored = server.create(&children, r#"{"child":{"name":"Bo","mentor":1}}"#);
        let alone = server.create(&children, r#"{"child":{"name":"Al"}}"#);
        assert_eq!(server.delete("/people/1").status, 204);
        assert_eq!((server.get(&mentored).status, server.get(&alone).status), (404, 200));
        assert_eq!(server.delete(&school).status, 204);
        assert_eq!((server.get(&alone).status, server.get(&children).status), (404, 404));
    }

    fn delete_of_a_customer_cascades_to_its_orders(server: Server) {
        let customer = server.create("/customers", ANN);
        let order = server.create(&format!("{customer}/orders"), TEA);
        assert_eq!(server.delete(&customer).status, 204);
        assert_eq!((server.get(&customer).status, server.get(&order).status), (404, 404));
    }

    fn reference_to_a_missing_item_is_refused(backend: Backend) {
        let server = start_schools(backend);
        let county = server.create("/counties", r#"{"county":{"code":"AB"}}"#);
        let answer = server.post(&format!("{county}/schools"), r#"{"school":{"name":"North","head":1}}"#);
        expect!["/school/head | reference | no such item"].assert_eq(&faults(&answer));
        server.create("/people", r#"{"person":{"name":"Mia"}}"#);
        let school = server.create(&format!("{county}/schools"), r#"{"school":{"name":"North","head":1}}"#);
        assert_eq!(server.put(&school, r#"{"school":{"name":"North","head":2}}"#).problem(), "invalid-fields");
        assert_eq!(server.put(&school, r#"{"school":{"name":"North"}}"#).json()["school"].get("head"), None);
    }

    /// Exactly one wrapper key, with the right value under it.
    fn wrapper_key_must_match_the_request(server: Server) {
        let path = server.create("/customers", ANN);
        for body in ["{}", "[]", "7", "\"customer\"", "null", r#"{"customer":{},"customers":{}}"#, r#"{"customer":null}"#,
            r#"{"customer":[]}"#, r#"{"customer":7}"#, r#"{"customers":7}"#, r#"{"customers":null}"#, r#"{"client":{}}"#,
            r#"{"Customer":{}}"#, r#"{"customer":{},"page":{}}"#, r#"{"customers":[7]}"#, r#"{"name":"Ann","email":"ann@example.com"}"#] {
            assert_eq!(server.post("/customers", body).problem(), "bad-wrapper", "POST {body}");
            assert_eq!(server.put(&path, body).problem(), "bad-wrapper", "PUT {body}");
        }
        assert_eq!(server.put(&path, r#"{"customers":[{"name":"Ann","email":"ann@example.com"}]}"#).problem(), "bad-wrapper");
        expect![[r#"
            HTTP/1.1 400 Bad Request
            cache-control: private, no-cache
            content-type: application/problem+json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 242
            date: <date>

            {"type":"/-/problems/bad-wrapper","title":"The body does not have the expected wrapper key","status":400,"detail":"expected one key, \"customer\" or \"customers\", got 0 keys","instance":"/customers","request_id":"<request-1>"}"#]].assert_eq(&server.post("/customers", "{}").masked());
    }

    fn json_syntax_error_names_its_position(server: Server) {
        for body in ["{\"customer\":{\"name\":\"Ann\"", "{\"customer\":{\"name\":\"a\",\"name\":\"b\"}}", "\u{feff}{}", "{} {}"] {
            assert_eq!(server.post("/customers", body).problem(), "bad-json", "{body}");
        }
        assert_eq!(server.post("/customers", b"{\"customer\":{\"name\":\"\xff\"}}").problem(), "bad-json");
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(server.post("/customers", deep(33)).problem(), "bad-json");
        assert_eq!(server.post("/customers", deep(32)).problem(), "bad-wrapper");
        expect![[r#"
            HTTP/1.1 400 Bad Request
            cache-control: private, no-cache
            content-type: application/problem+json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 205
            date: <date>

            {"type":"/-/problems/bad-json","title":"The body is not valid JSON","status":400,"detail":"line 3, column 13: expected a value, got \"A\"","instance":"/customers","request_id":"<request-1>"}"#]].assert_eq(&server.post("/customers", "{\n  \"customer\": {\n    \"name\": Ann\n").masked());
    }

    fn item_body_is_limited_to_a_mebibyte(server: Server) {
        let padded = |bytes: usize| {
            let mut body = ANN.to_owned();
            body.push_str(&" ".repeat(bytes - body.len()));
            body
        };
        assert_eq!(server.post("/customers", padded(1024 * 1024)).status, 201);
        assert_eq!(server.post("/customers", padded(1024 * 1024 + 1)).problem(), "too-large");
        let path = server.create("/customers", ANN);
        assert_eq!(server.put(&path, padded(1024 * 1024 + 1)).problem(), "too-large");
    }

    /// Regression: an index row has a size limit in PostgreSQL, and the response was 500.
    fn unique_long_value_is_checked(backend: Backend) {
        let model = "title = \"Long\"\n[resources.word.fields]\nspelling = { type = \"text\", unique = true }\nsound = { type = \"text\", filter = true }\n";
        let server = Setup::new(backend).model(model).start();
        // Letters that compression does not shorten.
        let mut chance = SeededRandom::new(1);
        let letters: String = (0..2_000).map(|_| format!("{:016x}", chance.next())).collect();
        let body = json!({"word": {"spelling": letters, "sound": letters}}).to_string();
        let path = server.create("/words", &body);
        assert_eq!(server.get(&path).json()["word"]["spelling"], *letters);
        assert_eq!(server.post("/words", &body).problem(), "taken");
        let other = json!({"word": {"spelling": format!("{letters}.")}}).to_string();
        server.create("/words", other);
    }
}
