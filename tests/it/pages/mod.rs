//! Pages: HTML from the same replies as JSON. Which clients get them, what they show to whom, and that nothing
//! which is stored or sent becomes markup. `browsers::pages` uses them as a person does.

mod forms;
mod live;
mod login;
mod markup;
mod reference;

use serde_json::json;

use crate::harness::{Answer, Backend, Person, Server, Setup};
use markup::Markup;

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

const MODEL: &str = r#"
title = "Shop"
[resources.carrier.fields]
name = { type = "text", required = true, max_length = 100, filter = true }
[resources.customer.fields]
name = { type = "text", required = true, max_length = 200, filter = true }
email = { type = "email", filter = true }
margin = { type = "integer", filter = true }
level = { type = "text", one_of = ["low", "high"], filter = true }
active = { type = "boolean", default = true }
tags = { type = "list", of = { type = "text" } }
address = { type = "object", fields = { street = { type = "text" }, city = { type = "text" } } }
carrier = { type = "ref", to = "carrier" }
site = { type = "url" }
extra = { type = "json" }
note = { type = "text", max_length = 2000 }
[resources.order]
parent = "customer"
on_delete = "cascade"
[resources.order.fields]
status = { type = "state", initial = "placed", next = { placed = ["paid"], paid = [] } }
items = { type = "list", required = true, of = { fields = { product = { type = "text", required = true }, quantity = { type = "integer", default = 1 } } } }
[roles.clerk]
customer = { verbs = ["get", "post", "patch"], hide = ["margin"], readonly = ["email"], where = "level = \"low\"" }
order = ["get"]
[roles.reader]
customer = ["get"]
[roles.writer]
customer = { verbs = ["post"], hide = ["margin"] }
"#;

fn get(server: &Server, path: &str) -> Answer {
    server.request(&format!("GET {path}"), &[("Accept", BROWSER)], "")
}

fn get_as(server: &Server, person: &Person, path: &str) -> Answer {
    let login = person.basic();
    let headers = [("Accept", BROWSER), ("Authorization", &*login)];
    server.request(&format!("GET {path}"), &headers, "")
}

fn create(server: &Server, path: &str, name: &str, item: &serde_json::Value) -> String {
    server.create(path, json!({ name: item }).to_string())
}

/// The headers without which a browser does not load the stylesheet and the script.
fn check_policies(answer: &Answer) {
    assert_eq!(answer.header("Referrer-Policy"), Some("same-origin"));
    assert_eq!(
        answer.header("Content-Security-Policy"),
        Some(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
             form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        )
    );
}

/// Checks what every page has, and reads it.
fn read_page(answer: &Answer) -> Markup {
    assert_eq!(answer.header("Content-Type"), Some("text/html; charset=utf-8"), "{answer:?}");
    assert_eq!(answer.header("Vary"), Some("Accept, Accept-Encoding"), "{answer:?}");
    assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
    check_policies(answer);
    let page = markup::read(answer.text());
    // Nothing runs but the one script, nothing is styled but by the stylesheet.
    let is_bad = |name: &&String| name.starts_with("on") || matches!(&***name, "style" | "srcdoc");
    assert_eq!(page.attributes.iter().find(is_bad), None);
    for element in ["iframe", "object", "img", "base", "style", "video", "math"] {
        assert!(!page.elements.contains(element), "{element}");
    }
    let is_safe = |address: &&String| {
        ["/", "#", "?", "mailto:", "https://", "http://"]
            .iter()
            .any(|start| address.starts_with(start))
    };
    assert_eq!(page.addresses.iter().find(|address| !is_safe(address)), None);
    let mut ids = page.ids.clone();
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id twice: {:?}", page.ids);
    page
}

on_every_backend! {
    fn page_is_sent_only_to_clients_that_prefer_html(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let item = create(&server, "/customers", "customer", &json!({"name": "Ann"}));
        let chosen = |path: &str, accept: &str| {
            let answer = server.request(&format!("GET {path}"), &[("Accept", accept)], "");
            (answer.status, answer.header("Content-Type").unwrap_or("none").to_owned())
        };
        let (html, json) = ("text/html; charset=utf-8", "application/json");
        for path in ["/", "/customers", &item, "/-/changes", "/-/problems/taken", "/-/users"] {
            for (accept, expected) in [
                (BROWSER, html),
                ("text/html", html),
                ("text/html;q=0.9, application/json;q=0.8", html),
                ("*/*", json),
                ("text/html;q=0.5, application/json;q=0.5", json),
                ("application/json, text/html", json),
                ("text/html;q=0.1, */*", json),
                // Java's HttpURLConnection.
                ("text/html, image/gif, image/jpeg, */*; q=0.2", json),
                ("application/json, text/*;q=0.5", json),
            ] {
                assert_eq!(chosen(path, accept), (200, expected.to_owned()), "{path} {accept}");
            }
            assert_eq!(server.get(path).header("Content-Type"), Some(json), "{path}");
        }
        assert_eq!(chosen("/", "text/*").0, 406);
        assert_eq!(chosen("/customers", "text/*").1, "text/csv; charset=utf-8; header=present");
        // Documents and health checks are for programs, and writes are answered in JSON.
        for path in ["/-/health", "/-/openapi.json", "/-/schemas/customer"] {
            assert_eq!(chosen(path, BROWSER).1, json, "{path}");
            assert_eq!(chosen(path, "text/html").0, 406, "{path}");
        }
        let body = r#"{"customer":{"name":"Bea"}}"#;
        let made = server.request("POST /customers", &[("Accept", BROWSER)], body);
        assert_eq!((made.status, made.header("Content-Type")), (201, Some(json)));
    }

    fn page_of_every_target_is_well_formed(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let empty = read_page(&get(&server, "/customers"));
        assert!(empty.text.contains("No customers yet."), "{}", empty.text);
        let carrier = create(&server, "/carriers", "carrier", &json!({"name": "PostNord"}));
        let carrier = carrier.rsplit('/').next().unwrap();
        let ann = create(&server, "/customers", "customer", &json!({
            "name": "Ann & Co", "email": "ann@example.com", "margin": 7, "level": "low", "tags": ["a", "b", "c", "d"],
            "address": {"street": "Main 1", "city": "Oslo"}, "carrier": carrier, "site": "https://example.com/",
            "extra": {"deep": [1, {"x": null}]}, "note": "one\n\ntwo",
        }));
        let order = create(&server, &format!("{ann}/orders"), "order", &json!({"items": [{"product": "Tea"}]}));
        let home = read_page(&get(&server, "/"));
        assert!(home.addresses.contains(&"/customers".to_owned()) && home.addresses.contains(&"/orders".to_owned()));
        let list = read_page(&get(&server, "/customers"));
        let id = ann.rsplit('/').next().unwrap();
        assert!(list.ids.contains(&format!("row-{id}")) && list.text.contains("Ann & Co"), "{list:?}");
        assert!(list.addresses.contains(&"/customers?sort=name".to_owned()), "{:?}", list.addresses);
        let item = read_page(&get(&server, &ann));
        for text in ["PostNord", "Main 1", "Tea", "placed", "History", "created", "mailto", "\"deep\""] {
            let is_there = item.text.contains(text) || item.addresses.iter().any(|one| one.starts_with(text));
            assert!(is_there, "{text}: {}", item.text);
        }
        assert!(item.addresses.contains(&format!("/carriers/{carrier}")));
        let nested = read_page(&get(&server, &order));
        assert!(nested.addresses.contains(&ann) && nested.text.contains("→ paid"), "{}", nested.text);
        for path in [
            &*format!("{ann}/orders"), "/-/users", "/-/webhooks", "/-/changes?sort=-sequence",
            "/-/problems/invalid-fields", &format!("{ann}?version=1"), &format!("{ann}?fields=name"),
            "/customers?name:prefix=A&level=low&sort=-created_at&count=exact&fields=email,version,level",
            "/customers?name=nobody&email=x@example.com",
        ] {
            let answer = get(&server, path);
            assert_eq!(answer.status, 200, "{path}");
            read_page(&answer);
        }
        let none = read_page(&get(&server, "/customers?name=nobody&level=low"));
        assert!(none.text.contains("No customer matches these 2 filters."), "{}", none.text);
    }

    fn page_of_a_webhook_shows_no_secret(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let admin = server.admin();
        let login = admin.basic();
        let body = r#"{"webhook":{"url":"https://hooks.example/a","events":["*"]}}"#;
        let made = server.request("POST /-/webhooks", &[("Authorization", &login)], body);
        let secret = made.json()["webhook"]["secret"].as_str().unwrap().to_owned();
        let path = made.header("Location").unwrap().to_owned();
        for path in ["/-/webhooks", &path, &format!("{path}/deliveries"), "/-/users"] {
            let answer = get_as(&server, &admin, path);
            assert_eq!(answer.status, 200, "{path}");
            read_page(&answer);
            assert!(!answer.text().contains(&secret), "{path}");
        }
        assert!(get_as(&server, &admin, &path).text().contains("https://hooks.example/a"));
        assert!(get_as(&server, &admin, "/-/users").text().contains("admin"));
    }

    fn page_of_a_problem_has_its_status_and_headers(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let admin = server.admin();
        let refused = get(&server, "/customers");
        assert_eq!(refused.status, 401);
        assert!(!refused.all("WWW-Authenticate").is_empty(), "the browser asks");
        let page = read_page(&refused);
        // A page for a caller who is not known names no resource.
        assert!(page.text.contains("credentials-needed") && !page.text.contains("Customers"));
        for (path, status, text) in [
            ("/customers?nme=1", 400, "What can be used here"),
            ("/nothing", 404, "Nothing lives at this path"),
            ("/customers/01890a5d-ac96-774b-bcce-b302099a8057", 404, "There is no such item"),
            ("/-/metrics?x=1", 400, "bad-query"),
        ] {
            let answer = get_as(&server, &admin, path);
            assert_eq!(answer.status, status, "{path}");
            let page = read_page(&answer);
            let id = answer.header("X-Request-Id").unwrap();
            assert!(page.text.contains(text) && page.text.contains(id), "{path}: {}", page.text);
        }
        let kim = Person::new("kim", "a long password");
        server.add_user(&kim, &["reader"]);
        assert_eq!(get_as(&server, &kim, "/-/users").status, 403);
        let login = admin.basic();
        let headers = [("Accept", BROWSER), ("Authorization", &*login)];
        let answer = server.request("DELETE /customers", &headers, "");
        assert_eq!((answer.status, answer.header("Allow")), (405, Some("GET, HEAD, QUERY, POST, OPTIONS")));
        read_page(&answer);
    }

    fn page_of_another_site_can_write_nothing(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let login = server.admin().basic();
        let body = r#"{"customer":{"name":"Eve"}}"#;
        // What a form can send, with the credentials that a browser has stored.
        for (kind, status) in [("text/plain", 415), ("application/x-www-form-urlencoded", 415), ("multipart/form-data; boundary=x", 415)] {
            let headers = [("Authorization", &*login), ("Content-Type", kind), ("Accept", BROWSER)];
            let answer = server.request("POST /customers", &headers, body);
            assert_eq!(answer.status, status, "{kind}");
            read_page(&answer);
        }
        for (name, value) in [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Site", "same-site"), ("Origin", "https://evil.example"), ("Origin", "null")] {
            let headers = [("Authorization", &*login), ("Content-Type", "application/json"), (name, value)];
            let answer = server.request("POST /customers", &headers, body);
            assert_eq!((answer.status, &*answer.problem()), (403, "cross-site"), "{name}: {value}");
        }
        let list = server.request("GET /customers", &[("Authorization", &login)], "");
        assert_eq!(list.json()["customers"], json!([]));
    }

    fn page_shows_no_hidden_field_and_no_filtered_row(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let admin = server.admin().basic();
        let login = [("Authorization", &*admin)];
        let create = |name: &str, level: &str| {
            let body = json!({"customer": {"name": name, "margin": 424_242, "level": level, "email": "a@example.com"}});
            let answer = server.request("POST /customers", &login, body.to_string());
            answer.header("Location").unwrap().to_owned()
        };
        let (low, high) = (create("Lowell", "low"), create("Higgins", "high"));
        let kim = Person::new("kim", "a long password");
        server.add_user(&kim, &["clerk"]);
        for path in ["/", "/customers", &low, "/customers?nme=1", &format!("{low}/orders")] {
            let answer = get_as(&server, &kim, path);
            read_page(&answer);
            for hidden in ["margin", "424242", "Higgins", &high] {
                assert!(!answer.text().contains(hidden), "{path} has {hidden}");
            }
            assert!(!answer.text().contains("/-/users") && !answer.text().contains("Delete"), "{path}");
        }
        let all = get_as(&server, &server.admin(), "/customers").text().to_owned();
        assert!(all.contains("margin") && all.contains("Higgins") && all.contains("/-/users"));
        let item = get_as(&server, &kim, &low).text().to_owned();
        // A field that the role may not change has no control.
        assert!(item.contains("name=\"/name\"") && !item.contains("name=\"/email\""), "{item}");
        let reader = Person::new("ray", "a long password");
        server.add_user(&reader, &["reader"]);
        let item = get_as(&server, &reader, &low).text().to_owned();
        assert!(!item.contains("data-send") && !item.contains("id=\"edit\""), "{item}");
        assert_eq!(get_as(&server, &kim, &high).status, 404);
        let writer = Person::new("wim", "a long password");
        server.add_user(&writer, &["writer"]);
        let home = get_as(&server, &writer, "/").text().to_owned();
        assert!(home.contains("/customers") && !home.contains("margin"), "{home}");
    }

    fn page_offers_writes_only_with_the_whole_current_item(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let ann = create(&server, "/customers", "customer", &json!({"name": "Ann"}));
        assert_eq!(server.put(&ann, r#"{"customer":{"name":"Bea"}}"#).status, 200);
        let writes = ["data-do=\"remove\"", "data-do=\"restore\"", "If-Match", "data-send"];
        let whole = get(&server, &ann);
        read_page(&whole);
        assert!(writes.iter().all(|write| whole.text().contains(write)), "{}", whole.text());
        for query in ["fields=name", "version=1", "fields=name,version", "version=1&fields=name"] {
            let part = get(&server, &format!("{ann}?{query}"));
            read_page(&part);
            let offered = writes.iter().find(|write| part.text().contains(**write));
            assert_eq!(offered, None, "{query}");
        }
        // Only the page with the newest changes follows the log.
        for (query, is_live) in [("", true), ("?limit=1", false), ("?sort=-sequence&limit=1", true)] {
            let page = get(&server, &format!("/-/changes{query}"));
            assert_eq!(page.text().contains("data-live"), is_live, "{query}");
        }
    }

    fn page_shows_nothing_of_another_realm(backend: Backend) {
        let model = r#"
title = "Two"
[realms.one]
schemes = ["basic"]
[realms.two]
schemes = ["basic"]
[resources.pear]
realm = "two"
[resources.pear.fields]
name = { type = "text", required = true, filter = true }
[resources.apple]
realm = "one"
[resources.apple.fields]
name = { type = "text", required = true, filter = true }
near = { type = "ref", to = "pear" }
like = { type = "ref", to = "apple" }
"#;
        let server = Setup::new(backend).model(model).with_authentication().start();
        let (admin, login) = (server.admin(), server.admin().basic());
        let create = |path: &str, body: serde_json::Value| {
            let answer = server.request(&format!("POST {path}"), &[("Authorization", &login)], body.to_string());
            answer.header("Location").unwrap().rsplit('/').next().unwrap().to_owned()
        };
        let pear = create("/pears", json!({"pear": {"name": "Conference"}}));
        let first = create("/apples", json!({"apple": {"name": "Gravenstein"}}));
        let apple = create("/apples", json!({"apple": {"name": "Boskoop", "near": pear, "like": first}}));
        for path in ["/apples", &format!("/apples/{apple}")] {
            let page = read_page(&get_as(&server, &admin, path));
            assert!(page.text.contains("Gravenstein") && !page.text.contains("Conference"), "{path}: {}", page.text);
        }
    }

    fn page_leaves_out_a_list_of_children_that_is_too_large(backend: Backend) {
        let model = r#"
title = "Large"
[resources.tray.fields]
title = { type = "text", required = true }
lid = { type = "ref", to = "lid" }
[resources.lid]
id = "integer"
[resources.lid.fields]
name = { type = "text", required = true }
[resources.part]
parent = "tray"
[resources.part.fields]
name = { type = "text", required = true }
words = { type = "list", of = { type = "text" } }
extra = { type = "json" }
"#;
        let server = Setup::new(backend).model(model).start();
        let lid = create(&server, "/lids", "lid", &json!({"name": "Tin"}));
        let lid: i64 = lid.rsplit('/').next().unwrap().parse().unwrap();
        let path = create(&server, "/trays", "tray", &json!({"title": "Crate", "lid": lid}));
        let large: Vec<String> = (0..100).map(|_| "w".repeat(400)).collect();
        let parts = |member: &str| {
            let parts: Vec<_> = (0..10).map(|at| json!({"name": format!("Part {at}"), member: large})).collect();
            let made = server.post(&format!("{path}/parts"), json!({"parts": parts}).to_string());
            assert_eq!(made.status, 201, "{made:?}");
        };
        // A member that the table does not show is not read.
        parts("extra");
        let answer = get(&server, &path);
        // The title of the form has another id than the field with that name.
        let page = read_page(&answer);
        assert!(page.text.contains("Part 3") && page.ids.contains(&"edit-title".to_owned()), "{}", page.text);
        // A list cannot be searched by the names of lids, so the id is typed, and sent as a number.
        assert!(answer.text().contains("name=\"/lid\" data-type=\"integer\""), "{}", answer.text());
        parts("words");
        let page = read_page(&get(&server, &path));
        assert!(page.text.contains("Crate") && !page.text.contains("Part 3"), "{}", page.text);
        assert!(page.addresses.contains(&format!("{path}/parts")), "{:?}", page.addresses);
    }

    fn page_escapes_whatever_is_stored_or_sent(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let expected = {
            let ann = create(&server, "/customers", "customer", &item_with("plain"));
            let pages = [get(&server, "/customers"), get(&server, &ann), get(&server, "/-/changes")];
            pages.map(|answer| { let page = read_page(&answer); (page.elements, page.attributes) })
        };
        for payload in PAYLOADS {
            let path = create(&server, "/customers", "customer", &item_with(payload));
            let list = format!("/customers?id={}", path.rsplit('/').next().unwrap());
            let changes = format!("/-/changes?subject={path}");
            for (at, path) in [list, path, changes].iter().enumerate() {
                let page = read_page(&get(&server, path));
                let (elements, attributes) = &expected[at];
                let is_known = |name: &String| elements.contains(name) || ["button", "input"].contains(&&**name);
                assert!(page.elements.iter().all(is_known), "{payload} at {path}: {:?}", page.elements);
                let news: Vec<&String> = page.attributes.difference(attributes).collect();
                assert!(news.iter().all(|name| ["type", "value", "name"].contains(&&***name)), "{payload} at {path}: {news:?}");
            }
            let sent: String = payload.bytes().map(|byte| format!("%{byte:02x}")).collect();
            for path in [format!("/customers?name={sent}"), format!("/customers?{sent}=1"), format!("/{sent}"), format!("/customers?sort={sent}")] {
                read_page(&get(&server, &path));
            }
        }
    }

    fn page_has_a_tag_of_its_own_and_answers_conditions(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let ann = create(&server, "/customers", "customer", &json!({"name": "Ann"}));
        for path in ["/", "/customers", &ann, "/-/changes", "/-/problems/taken"] {
            let page = get(&server, path);
            let tag = page.header("ETag").unwrap().to_owned();
            assert_ne!(server.get(path).header("ETag"), Some(&*tag), "{path}");
            let headers = [("Accept", BROWSER), ("If-None-Match", &*tag)];
            let same = server.request(&format!("GET {path}"), &headers, "");
            assert_eq!((same.status, same.body.len()), (304, 0), "{path}");
            // Browsers apply the headers of a 304 to the page that they have stored.
            check_policies(&same);
            let json = server.request(&format!("GET {path}"), &[("If-None-Match", &*tag)], "");
            assert_eq!(json.status, 200, "{path}: the tag of a page is not that of JSON");
            let head = server.request(&format!("HEAD {path}"), &[("Accept", BROWSER)], "");
            assert_eq!((head.header("ETag"), head.body.len()), (Some(&*tag), 0), "{path}");
            assert_eq!(head.header("Content-Length"), Some(&*page.body.len().to_string()));
            let coded = server.request(&format!("GET {path}"), &[("Accept", BROWSER), ("Accept-Encoding", "gzip")], "");
            assert_eq!(coded.header("Content-Encoding"), Some("gzip"), "{path}");
        }
        let before = get(&server, &ann).header("ETag").unwrap().to_owned();
        assert_eq!(server.put(&ann, r#"{"customer":{"name":"Bea"}}"#).status, 200);
        let headers = [("Accept", BROWSER), ("If-None-Match", &*before)];
        assert_eq!(server.request(&format!("GET {ann}"), &headers, "").status, 200);
    }

    fn page_files_are_public_and_cached_by_version(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let page = read_page(&get(&server, "/customers"));
        for (file, kind) in [("/-/assets/nouns.css", "text/css"), ("/-/assets/nouns.js", "text/javascript")] {
            let named = page.addresses.iter().find(|one| one.starts_with(file)).unwrap();
            let answer = server.get(named);
            assert_eq!(answer.status, 200, "{named}");
            assert_eq!(answer.header("Content-Type"), Some(&*format!("{kind}; charset=utf-8")));
            let forever = Some("public, max-age=31536000, immutable");
            assert_eq!(answer.header("Cache-Control"), forever);
            let tag = answer.header("ETag").unwrap();
            assert_eq!(server.request(&format!("GET {named}"), &[("If-None-Match", tag)], "").status, 304);
            // Another version may be the file of another server: it is not kept.
            for other in [file.to_owned(), format!("{file}?v=0123456789abcdef")] {
                assert_eq!(server.get(&other).header("Cache-Control"), Some("private, no-cache"), "{other}");
            }
            assert_eq!(server.request(&format!("GET {file}"), &[("Accept", "image/png")], "").status, 406);
            assert_eq!(server.post(file, "").status, 405);
        }
        assert_eq!(server.get("/-/assets/other.js").status, 404);
    }

    fn page_with_fifty_rows_is_at_most_sixty_kilobytes_with_its_files(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let items: Vec<_> = (0..50).map(|at| json!({
            "name": format!("Customer number {at} of the list"), "email": format!("someone.{at}@customers.example"), "margin": at * 7919,
            "level": "low", "tags": ["wholesale", "net30"], "address": {"street": format!("Main street {at}"), "city": "Oslo"},
        })).collect();
        assert_eq!(server.post("/customers", json!({"customers": items}).to_string()).status, 201);
        let coded = |path: &str, accept: &str| {
            let headers = [("Accept", accept), ("Accept-Encoding", "gzip")];
            server.request(&format!("GET {path}"), &headers, "").body.len()
        };
        let sum = coded("/customers", BROWSER) + coded("/-/assets/nouns.css", "*/*") + coded("/-/assets/nouns.js", "*/*");
        assert!(sum < 60_000, "{sum}");
    }
}

/// An item with a text in every field that takes one.
fn item_with(text: &str) -> serde_json::Value {
    json!({
        "name": format!("{text}."), "tags": [format!("{text}."), "b"], "address": {"street": text, "city": text},
        "site": "https://example.com/?a=1&b=%22", "extra": {"a": text, text: [text]}, "note": text,
    })
}

const PAYLOADS: &[&str] = &[
    "<script>alert(1)</script>",
    "\"><script>alert(1)</script>",
    "'><img src=x onerror=alert(1)>",
    "\" onmouseover=\"alert(1)",
    "' onfocus='alert(1)' autofocus='",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</pre></code><svg onload=alert(1)>",
    "--><script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "javascript:alert(1)",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;",
    "{{constructor}} {{title}} {} {0}",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "\u{2028}<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<template><script>alert(1)</script></template>",
    "`${alert(1)}`",
    "\\\"><b>",
    "<a href=\"javascript:alert(1)\">x</a>",
];
