//! Every rule of the specification, numbered by its section and its row or rule.
//!
//! Where the specification says "not shown", our decisions are tested in `surface/`.
//! Sections 3, 6, 8 and 9 contain no rule.
//! Section 5 is in `spec/section_5.rs`.

mod section_5;

use serde_json::{Value, json};

use crate::harness::{ANN, Answer, Server, run_sql, wait_until};

const BEA: &str = r#"{"customers":{"name":"Bea","email":"bea@example.com"}}"#;
const TEA: &str = r#"{"order":{"items":[{"product":"tea","quantity":2,"unit_price":350}]}}"#;
const NO_ONE: &str = "/customers/01890a5d-ac96-774b-bcce-b302099a8057";

/// The customer in a response, without the members that the specification does not name.
fn customer(answer: &Answer) -> (Value, Value) {
    let body = answer.json();
    (body["customer"]["name"].clone(), body["customer"]["email"].clone())
}

fn is_json(answer: &Answer) -> bool {
    answer.header("Content-Type") == Some("application/json")
}

on_every_backend! {
    /// 1.1 Each side only needs to know the message formats: the server's responses are enough to
    /// continue.
    fn s1_rule_1_client_knows_only_messages(server: Server) {
        let list = server.get("/").json()["resources"].clone();
        let path = list.as_array().unwrap().iter().find(|entry| entry["name"] == "customer").unwrap()["path"].clone();
        let created = server.create(path.as_str().unwrap(), ANN);
        assert_eq!(server.get(&created).status, 200);
    }

    /// 1.2 Every request is understood without earlier ones: other connection, other process.
    fn s1_rule_2_stateless(server: Server) {
        let path = server.create("/customers", ANN);
        let before = server.client().request(&format!("GET {path}"), &[], "").json();
        let server = server.restart();
        assert_eq!(server.client().request(&format!("GET {path}"), &[], "").json(), before);
    }

    /// 1.3 Nouns, not commands: the same path takes the standard verbs, and no command has a path.
    fn s1_rule_3_nouns_take_standard_verbs(server: Server) {
        let path = server.create("/customers", ANN);
        assert_eq!(server.get(&path).status, 200);
        assert_eq!(server.put(&path, BEA).status, 200);
        assert_eq!(server.delete(&path).status, 204);
        for command in ["/createCustomer", "/customer/create", "/customers/create", "/getCustomers"] {
            assert_eq!(server.get(command).status, 404, "{command}");
        }
    }

    /// 1.4 A request is a verb, headers, a path and an optional body.
    fn s1_rule_4_parts_of_a_request(server: Server) {
        let host = server.address;
        let with_body = format!("POST /customers HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n{ANN}", ANN.len());
        assert_eq!(server.send(with_body).status, 201);
        let without_body = format!("GET /customers HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(server.send(without_body).status, 200);
    }

    /// 1.5 An answer is a status line with a three-digit code, headers and an optional body.
    fn s1_rule_5_parts_of_an_answer(server: Server) {
        let path = server.create("/customers", ANN);
        let ask = |verb: &str| {
            let text = format!("{verb} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address);
            String::from_utf8(server.send_raw(text)).unwrap()
        };
        let with_body = ask("GET");
        let (head, body) = with_body.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.lines().skip(1).all(|line| line.contains(": ")), "{head}");
        assert!(body.starts_with('{') && body.ends_with('}'), "{body}");
        let without_body = ask("DELETE");
        let (head, body) = without_body.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 204 No Content\r\n"), "{head}");
        assert_eq!(body, "");
    }

    /// 1.6 Clients can view, create, edit and delete customers and orders.
    fn s1_rule_6_the_store(server: Server) {
        let customer = server.create("/customers", ANN);
        let order = server.create(&format!("{customer}/orders"), TEA);
        for (path, edited) in [(&order, TEA), (&customer, BEA)] {
            assert_eq!(server.get(path).status, 200);
            assert_eq!(server.put(path, edited).status, 200);
            assert_eq!(server.delete(path).status, 204);
        }
    }

    /// 2, resources, row 1: customer at /customers and /customers/:id, with an id made by the server.
    fn s2_resources_row_1_customer(server: Server) {
        let created = server.post("/customers", ANN);
        let id = created.json()["customer"]["id"].as_str().unwrap().to_owned();
        let item = server.get(&format!("/customers/{id}"));
        assert_eq!((item.status, item.json()["customer"]["id"].as_str()), (200, Some(id.as_str())));
        assert_eq!(server.get("/customers").json()["customers"][0]["id"], id);
    }

    /// 2, resources, row 2: order at /customers/:customer_id/orders and …/orders/:order_id.
    fn s2_resources_row_2_order(server: Server) {
        let customer = server.create("/customers", ANN);
        let created = server.post(&format!("{customer}/orders"), TEA);
        let id = created.json()["order"]["id"].as_str().unwrap().to_owned();
        let item = server.get(&format!("{customer}/orders/{id}"));
        assert_eq!((item.status, item.json()["order"]["id"].as_str()), (200, Some(id.as_str())));
        assert_eq!(server.get(&format!("{customer}/orders")).json()["orders"][0]["id"], id);
        // Across parents, orders are only read.
        assert_eq!(server.post("/orders", TEA).status, 405);
    }

    /// 2, fields, row 1: id is returned after creation and not sent by the client on creation.
    fn s2_fields_row_1_id(server: Server) {
        let created = server.post("/customers", ANN).json();
        assert!(created["customer"]["id"].is_string(), "{created}");
        let sent = json!({"customer": {"id": created["customer"]["id"], "name": "Ann", "email": "ann@example.com"}});
        assert_eq!(server.post("/customers", sent.to_string()).status, 422);
    }

    /// 2, fields, row 2: name is a string, sent on create and update.
    fn s2_fields_row_2_name(server: Server) {
        let path = server.create("/customers", ANN);
        assert_eq!(server.get(&path).json()["customer"]["name"], "Ann");
        assert_eq!(server.put(&path, BEA).json()["customer"]["name"], "Bea");
        let wrong = r#"{"customer":{"name":7,"email":"ann@example.com"}}"#;
        assert_eq!(server.post("/customers", wrong).status, 422);
        assert_eq!(server.put(&path, wrong).status, 422);
    }

    /// 2, fields, row 3: email is a string, sent on create and update.
    fn s2_fields_row_3_email(server: Server) {
        let path = server.create("/customers", ANN);
        assert_eq!(server.get(&path).json()["customer"]["email"], "ann@example.com");
        assert_eq!(server.put(&path, BEA).json()["customer"]["email"], "bea@example.com");
        let wrong = r#"{"customer":{"name":"Ann","email":false}}"#;
        assert_eq!(server.post("/customers", wrong).status, 422);
        assert_eq!(server.put(&path, wrong).status, 422);
    }

    /// 2, rule 1: the first path segment is the plural of the resource's name.
    fn s2_rule_1_plural_segment(server: Server) {
        assert_eq!(server.get("/customers").status, 200);
        assert_eq!(server.get("/customer").status, 404);
    }

    /// 2, rule 2: nested paths are hierarchical, and each nested item is addressed by its own id.
    fn s2_rule_2_nested_paths(server: Server) {
        let (ann, bea) = (server.create("/customers", ANN), server.create("/customers", BEA));
        let first = server.create(&format!("{ann}/orders"), TEA);
        let second = server.create(&format!("{ann}/orders"), TEA);
        assert!(first.starts_with(&format!("{ann}/orders/")), "{first}");
        assert_ne!(first, second);
        assert_eq!((server.get(&first).status, server.get(&second).status), (200, 200));
        assert_eq!(server.get(&first.replace(&ann, &bea)).status, 404);
    }

    /// 2, rule 3: a create request addresses a collection and carries no id.
    fn s2_rule_3_create_addresses_the_collection(server: Server) {
        let first = server.create("/customers", ANN);
        let second = server.create("/customers", ANN);
        assert_ne!(first, second);
        assert_eq!(server.post(&first, ANN).status, 405);
    }

    /// 2, rule 4: a create body is an object with the wrapper key "customer".
    fn s2_rule_4_create_wrapper(server: Server) {
        assert_eq!(server.post("/customers", ANN).status, 201);
        let bare = r#"{"name":"Ann","email":"ann@example.com"}"#;
        assert_eq!(server.post("/customers", bare).status, 400);
    }

    /// 2, rule 5: an update body has a wrapper key, plural in the example; the singular works as well.
    fn s2_rule_5_update_wrapper(server: Server) {
        let path = server.create("/customers", ANN);
        let plural = server.put(&path, r#"{"customers":{"name":"Bea","email":"bea@example.com"}}"#);
        assert_eq!((plural.status, customer(&plural)), (200, (json!("Bea"), json!("bea@example.com"))));
        let singular = server.put(&path, r#"{"customer":{"name":"Cem","email":"cem@example.com"}}"#);
        assert_eq!((singular.status, customer(&singular)), (200, (json!("Cem"), json!("cem@example.com"))));
    }

    /// 4, general, row 1: all paths are under one base address, here http://ADDR:PORT.
    fn s4_general_row_1_base_address(server: Server) {
        let base = format!("http://{}", server.address);
        assert_eq!(server.output(), format!("nouns: serving Store at {base}\n"));
        // RFC 9112 §3.2.2: a request target may name the base address in full.
        assert_eq!(server.request(&format!("GET {base}/customers"), &[], "").status, 200);
    }

    /// 4, general, row 2: Accept lists types with optional parameters.
    fn s4_general_row_2_accept(server: Server) {
        for accept in [
            "application/json",
            "application/json; charset=utf-8",
            "application/json;q=0.1",
            "application/*",
            "*/*",
            "text/plain, application/json",
            "text/plain;q=0.9, */*;q=0.1",
            "APPLICATION/JSON",
        ] {
            let answer = server.request("GET /customers", &[("Accept", accept)], "");
            assert!(answer.status == 200 && is_json(&answer), "{accept}: {answer:?}");
        }
    }

    /// 4, general, row 3: an answer with a body has a Content-Type, and it is one that Accept lists.
    fn s4_general_row_3_content_type(server: Server) {
        let path = server.create("/customers", ANN);
        let lines = [format!("GET {path}"), "GET /customers".into(), format!("GET {NO_ONE}"), "GET /nothing".into()];
        for accept in ["application/json", "application/problem+json"] {
            for line in &lines {
                let answer = server.request(line, &[("Accept", accept)], "");
                assert_eq!((answer.header("Content-Type"), answer.body.is_empty()), (Some(accept), false), "{line}");
            }
        }
        for accept in ["text/plain", "application/json;q=0", "image/*"] {
            for line in &lines {
                let answer = server.request(line, &[("Accept", accept)], "");
                assert_eq!((answer.header("Content-Type"), answer.text()), (None, ""), "{line} {accept}");
            }
        }
        let anything = server.get(&path);
        assert!(anything.status == 200 && is_json(&anything), "{anything:?}");
        assert_eq!(server.request("GET /customers", &[("Accept", "text/plain")], "").status, 406);
    }

    /// 4, general, row 4: bodies are JSON.
    fn s4_general_row_4_json(server: Server) {
        let sent = server.request("POST /customers", &[("Content-Type", "application/json")], ANN);
        assert!(sent.status == 201 && is_json(&sent), "{sent:?}");
        assert_eq!(customer(&sent), (json!("Ann"), json!("ann@example.com")));
    }

    /// 4, general, row 5: lines end with CR LF, one empty line stands between headers and body.
    fn s4_general_row_5_line_endings(server: Server) {
        let request = format!(
            "POST /customers HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{ANN}",
            server.address,
            ANN.len()
        );
        let answer = String::from_utf8(server.send_raw(request)).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 201 Created\r\n"), "{head}");
        assert!(!head.replace("\r\n", "").contains(['\r', '\n']), "{head:?}");
        assert!(body.starts_with("{\"customer\":"), "{body}");
    }

    /// 4, general, row 6: the request line is method, request URI, HTTP version.
    fn s4_general_row_6_request_line(server: Server) {
        let ask = |line: &str| {
            let answer = server.send_raw(format!("{line}\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address));
            String::from_utf8(answer).unwrap().lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(ask("GET /customers HTTP/1.1"), "HTTP/1.1 200 OK");
        assert_eq!(ask("GET /customers"), "HTTP/1.1 400 Bad Request");
        assert_eq!(ask("/customers HTTP/1.1"), "HTTP/1.1 400 Bad Request");
        assert_eq!(ask("GET /customers and more HTTP/1.1"), "HTTP/1.1 400 Bad Request");
        assert_eq!(ask("GET /customers HTTP/one"), "HTTP/1.1 400 Bad Request");
    }

    /// 4, general, row 7: GET, PUT and DELETE are idempotent; POST need not be.
    fn s4_general_row_7_idempotency(server: Server) {
        let path = server.create("/customers", ANN);
        assert_eq!(server.get(&path).json(), server.get(&path).json());
        let once = server.put(&path, BEA);
        let twice = server.put(&path, BEA);
        assert_eq!((once.status, once.json()), (twice.status, twice.json()));
        assert_eq!(server.delete(&path).status, 204);
        assert_eq!(server.delete(&path).status, 404);
        assert_eq!(server.get(&path).status, 404);
        assert_ne!(server.create("/customers", ANN), server.create("/customers", ANN));
    }

    /// 4, verbs, row 1: GET retrieves one item or a collection, 200.
    fn s4_verbs_row_1_get_200(server: Server) {
        let path = server.create("/customers", ANN);
        assert_eq!(server.get(&path).status, 200);
        assert_eq!(server.get("/customers").status, 200);
    }

    /// 4, verbs, row 2: POST creates an item in a collection, 201.
    fn s4_verbs_row_2_post_creates_201(server: Server) {
        assert_eq!(server.post("/customers", ANN).status, 201);
        assert_eq!(server.get("/customers").json()["customers"].as_array().unwrap().len(), 1);
    }

    /// 4, verbs, row 3: PUT updates one item by id, 200.
    fn s4_verbs_row_3_put_updates_200(server: Server) {
        let path = server.create("/customers", ANN);
        assert_eq!(server.put(&path, BEA).status, 200);
        assert_eq!(customer(&server.get(&path)), (json!("Bea"), json!("bea@example.com")));
    }

    /// 4, verbs, row 4: DELETE removes one item by id, 204.
    fn s4_verbs_row_4_delete_removes_204(server: Server) {
        let (gone, kept) = (server.create("/customers", ANN), server.create("/customers", BEA));
        assert_eq!(server.delete(&gone).status, 204);
        assert_eq!((server.get(&gone).status, server.get(&kept).status), (404, 200));
    }

    /// 4, verbs, last sentence: the most specific status that fits.
    fn s4_verbs_most_specific_status(server: Server) {
        let path = server.create("/customers", ANN);
        assert_eq!(server.request("GET /customers", &[("Accept", "image/png")], "").status, 406);
        assert_eq!(server.request("POST /customers", &[("Content-Type", "text/plain")], ANN).status, 415);
        assert_eq!(server.post("/customers", vec![b' '; 9 * 1024 * 1024]).status, 413);
        assert_eq!(server.get(&format!("/customers?{}", "a".repeat(9 * 1024))).status, 414);
        assert_eq!(server.request("GET /customers", &[("X-Long", &"a".repeat(40 * 1024))], "").status, 431);
        assert_eq!(server.post(&path, ANN).status, 405);
        assert_eq!(server.request("BREW /customers", &[], "").status, 501);
        assert_eq!(server.put(&path, r#"{"customer":{}}"#).status, 422);
        let order = server.create(&format!("{path}/orders"), TEA);
        let delivered = TEA.replace("{\"items\"", "{\"status\":\"delivered\",\"items\"");
        assert_eq!(server.put(&order, delivered).status, 409);
    }

    /// 4, customers, row 1: GET /customers is 200, JSON, with the customers.
    fn s4_customers_row_1_list(server: Server) {
        server.create("/customers", ANN);
        server.create("/customers", BEA);
        let answer = server.request("GET /customers", &[("Accept", "application/json")], "");
        assert!(answer.status == 200 && is_json(&answer), "{answer:?}");
        let names: Vec<_> = answer.json()["customers"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
        assert_eq!(names, ["Ann", "Bea"]);
    }

    /// 4, customers, row 2: POST /customers is 201, JSON, and returns the id.
    fn s4_customers_row_2_create(server: Server) {
        let headers = [("Content-Type", "application/json"), ("Accept", "application/json")];
        let answer = server.request("POST /customers", &headers, ANN);
        assert!(answer.status == 201 && is_json(&answer), "{answer:?}");
        assert!(answer.json()["customer"]["id"].is_string(), "{answer:?}");
    }

    /// 4, customers, row 3: GET /customers/:id is 200, JSON, with the customer.
    fn s4_customers_row_3_get(server: Server) {
        let path = server.create("/customers", ANN);
        let answer = server.request(&format!("GET {path}"), &[("Accept", "application/json")], "");
        assert!(answer.status == 200 && is_json(&answer), "{answer:?}");
        assert_eq!(customer(&answer), (json!("Ann"), json!("ann@example.com")));
    }

    /// 4, customers, row 4: PUT /customers/:id is 200, JSON, with the customer after the update.
    fn s4_customers_row_4_update(server: Server) {
        let path = server.create("/customers", ANN);
        let answer = server.request(&format!("PUT {path}"), &[("Content-Type", "application/json")], BEA);
        assert!(answer.status == 200 && is_json(&answer), "{answer:?}");
        assert_eq!(customer(&answer), (json!("Bea"), json!("bea@example.com")));
    }

    /// 4, customers, row 5: DELETE /customers/:id is 204 without a body.
    fn s4_customers_row_5_delete(server: Server) {
        let path = server.create("/customers", ANN);
        let request = format!("DELETE {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address);
        let answer = String::from_utf8(server.send_raw(request)).unwrap();
        assert!(answer.starts_with("HTTP/1.1 204 No Content\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
        // No content headers, that is: a content security policy may be there.
        for of_content in ["\ncontent-length", "\ncontent-type", "\ncontent-encoding", "\ntransfer-encoding"] {
            assert!(!answer.to_ascii_lowercase().contains(of_content), "{answer}");
        }
    }

    /// 4, orders: the same verbs and statuses under a customer.
    fn s4_orders_follow_the_same_verbs(server: Server) {
        let orders = format!("{}/orders", server.create("/customers", ANN));
        let created = server.post(&orders, TEA);
        assert!(created.status == 201 && is_json(&created), "{created:?}");
        let path = created.header("Location").unwrap();
        let list = server.get(&orders);
        assert!(list.status == 200 && is_json(&list) && list.json()["orders"].is_array(), "{list:?}");
        let item = server.get(path);
        assert!(item.status == 200 && is_json(&item) && item.json()["order"].is_object(), "{item:?}");
        let updated = server.put(path, TEA.replace("tea", "coffee").replace("order\"", "orders\""));
        assert!(updated.status == 200 && is_json(&updated), "{updated:?}");
        assert_eq!(updated.json()["order"]["items"][0]["product"], "coffee");
        let deleted = server.delete(path);
        assert_eq!((deleted.status, deleted.text()), (204, ""));
    }

    /// 7, row 1: 400 for bad syntax; excessive size has its own statuses (413, 414, 431 above).
    fn s7_row_1_bad_request(server: Server) {
        for body in ["", "{", "null", "{\"customer\":{}", "{\"customer\":{}}}", "{'customer':{}}"] {
            assert_eq!(server.post("/customers", body).status, 400, "{body}");
        }
        let garbage = String::from_utf8(server.send_raw("what is this\r\n\r\n")).unwrap();
        assert!(garbage.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{garbage}");
    }

    /// 7, row 3: 403 where access is not permitted; for now, writes from another site's page.
    fn s7_row_3_forbidden(server: Server) {
        let answer = server.request("POST /customers", &[("Sec-Fetch-Site", "cross-site")], ANN);
        assert_eq!((answer.status, answer.reason.as_str()), (403, "Forbidden"));
    }

    /// 7, row 4: 404 for an unknown path, and for an item that was deleted or does not exist yet.
    fn s7_row_4_not_found(server: Server) {
        assert_eq!(server.get("/nothing").status, 404);
        assert_eq!(server.get(NO_ONE).status, 404);
        let path = server.create("/customers", ANN);
        server.delete(&path);
        let gone = server.get(&path);
        assert_eq!((gone.status, gone.reason.as_str()), (404, "Not Found"));
    }

    /// 7, row 5: 500 for an unexpected failure, here a table that was dropped.
    fn s7_row_5_internal_error(server: Server) {
        let customer = server.create("/customers", ANN);
        run_sql(server.backend(), server.folder(), "DROP TABLE orders");
        let answer = server.get(&format!("{customer}/orders"));
        assert_eq!((answer.status, answer.reason.as_str()), (500, "Internal Server Error"));
        assert!(!answer.text().contains("table"), "the insides are for the log alone: {answer:?}");
        let id = answer.header("X-Request-Id").unwrap();
        let line = wait_until("the failure is in the log", || server.log().lines().find(|line| line.contains(id)).map(str::to_owned));
        assert!(line.contains("\"cause\""), "{line}");
        assert_eq!(server.get(&customer).status, 200, "the server lives on");
    }

    /// 7, last rule: three digits, then a reason phrase a person can read.
    fn s7_reason_phrases(server: Server) {
        let path = server.create("/customers", ANN);
        let phrase = |line: &str, body: &str| {
            let answer = server.request(line, &[], body);
            format!("{} {}", answer.status, answer.reason)
        };
        assert_eq!(phrase("GET /customers", ""), "200 OK");
        assert_eq!(phrase("POST /customers", ANN), "201 Created");
        assert_eq!(phrase("POST /customers", "{"), "400 Bad Request");
        assert_eq!(phrase("GET /nothing", ""), "404 Not Found");
        assert_eq!(phrase(&format!("PUT {path}"), "{\"customer\":{}}"), "422 Unprocessable Content");
        assert_eq!(phrase(&format!("DELETE {path}"), ""), "204 No Content");
    }
}
