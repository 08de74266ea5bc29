//! `expand`: related items in the responses to reads of lists and items.
//!
//! `random` compares expanded responses with plain ones, for callers with row filters.

mod random;

use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Person, Server, Setup};

const MODEL: &str = r#"
title = "Shop"
[resources.product.fields]
name = { type = "text", required = true }
[resources.customer.fields]
name = { type = "text", required = true, filter = true }
favourite = { type = "ref", to = "product", nullable = true }
about = { type = "text" }
[resources.order]
parent = "customer"
id = "integer"
[resources.order.fields]
status = { type = "text", filter = true }
total = { type = "integer", filter = true }
product = { type = "ref", to = "product" }
note = { type = "text" }
[resources.line]
parent = "order"
[resources.line.fields]
n = { type = "integer", filter = true }
split_from = { type = "ref", to = "line" }
[resources.secret]
parent = "customer"
[resources.secret.fields]
text = { type = "text" }
[roles.clerk]
customer = ["get"]
order = ["get"]
product = ["get"]
line = ["get"]
[roles.seller]
customer = { verbs = ["get"], hide = ["favourite"] }
order = { verbs = ["get"], where = "status = 'paid'", hide = ["note"] }
product = { verbs = ["get"], where = "name = 'tea'" }
"#;

/// Two products, and two customers with three orders each: `placed`, `paid`, `paid`.
struct Shop {
    server: Server,
    /// Paths.
    customers: Vec<String>,
    products: Vec<String>,
}

fn open_shop(backend: Backend) -> Shop {
    fill(Setup::new(backend).model(MODEL).start(), None)
}

fn fill(server: Server, login: Option<&str>) -> Shop {
    let login: Vec<(&str, &str)> =
        login.into_iter().map(|login| ("Authorization", login)).collect();
    let create = |path: &str, body: &Value| {
        let made = server.request(&format!("POST {path}"), &login, body.to_string());
        assert_eq!(made.status, 201, "{made:?}");
        made.header("Location").unwrap().to_owned()
    };
    let product = |name: &str| create("/products", &json!({"product": {"name": name}}));
    let products = vec![product("tea"), product("jam")];
    let mut customers = Vec::new();
    for (at, name) in ["Ann", "Bea"].into_iter().enumerate() {
        let favourite = (at == 0).then(|| id(&products[1]));
        let body = json!({"customer": {"name": name, "favourite": favourite}});
        let customer = create("/customers", &body);
        for (n, status) in ["placed", "paid", "paid"].into_iter().enumerate() {
            let order = json!({"order": {
                "status": status, "total": 10 * at + n, "product": id(&products[n % 2]), "note": "n",
            }});
            create(&format!("{customer}/orders"), &order);
        }
        customers.push(customer);
    }
    Shop { server, customers, products }
}

fn id(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

fn detail(answer: &Answer) -> String {
    assert_eq!(answer.status, 400, "{answer:?}");
    answer.json()["detail"].as_str().unwrap_or_default().to_owned()
}

/// The values of a member of these items.
fn values(items: &Value, name: &str) -> Vec<Value> {
    items.as_array().unwrap().iter().map(|item| item[name].clone()).collect()
}

/// Follows the addresses of more items to the end.
fn follow(server: &Server, first: &Value, plural: &str) -> Vec<Value> {
    let (mut all, mut next) = (Vec::new(), first.as_str().map(str::to_owned));
    while let Some(address) = next {
        let page = server.get(&address);
        assert_eq!(page.status, 200, "{address}: {page:?}");
        all.extend(page.json()[plural].as_array().unwrap().iter().cloned());
        let link = page.header("Link").map(str::to_owned);
        next = link.and_then(|link| {
            Some(link.split_once("; rel=\"next\"")?.0.trim_matches(['<', '>']).to_owned())
        });
    }
    all
}

const TWO_REALMS: &str = r#"
title = "Two realms"
[realms.front]
schemes = ["basic"]
[realms.back]
schemes = ["digest"]
[server]
realm = "front"
[resources.guest]
realm = "front"
[resources.guest.fields]
ledger = { type = "ref", to = "ledger" }
friend = { type = "ref", to = "guest" }
[resources.visit]
parent = "guest"
[resources.visit.fields]
ledger = { type = "ref", to = "ledger" }
[resources.ledger]
realm = "back"
[resources.ledger.fields]
name = { type = "text" }
"#;

on_every_backend! {
    /// The credentials of a caller were checked for one realm.
    fn expand_stays_in_the_realm_of_its_resource(backend: Backend) {
        let server = Setup::new(backend).model(TWO_REALMS).with_authentication().start();
        let admin = server.admin();
        let headers = [("Authorization", &*admin.basic())];
        let guest = server.request("POST /guests", &headers, r#"{"guest":{}}"#);
        assert_eq!(guest.status, 201, "{guest:?}");
        let get = |path: &str| server.request(&format!("GET {path}"), &headers, "");
        assert_eq!(get("/ledgers").status, 401);
        let guest = guest.header("Location").unwrap();
        for path in ["/guests", guest, "/visits"] {
            let refused = detail(&get(&format!("{path}?expand=ledger")));
            assert_eq!(refused, "expand: ledger: no such relation here", "{path}");
        }
        assert_eq!(detail(&get("/guests?expand=visits.ledger")), "expand: ledger: no such relation here");
        for value in ["friend", "visits.guest", "friend.visits"] {
            assert_eq!(get(&format!("/guests?expand={value}")).status, 200, "{value}");
        }
        let query = [headers[0], ("Content-Type", "application/json")];
        let refused = server.request("QUERY /guests", &query, r#"{"expand":["ledger"]}"#);
        assert_eq!(detail(&refused), "expand: ledger: no such relation here");
        let document = get("/-/openapi.json").json();
        let names = &document["components"]["parameters"]["guest.expand"]["schema"]["items"]["pattern"];
        assert!(names.to_string().contains("friend") && !names.to_string().contains("ledger"), "{names}");
    }

    fn expand_of_more_children_goes_on_with_the_second_level(backend: Backend) {
        let Shop { server, customers, .. } = open_shop(backend);
        let list = server.get(&format!("{}?expand=orders(limit=1).product,orders.lines", customers[0]));
        let next = list.json()["customer"]["orders_next"].as_str().unwrap().to_owned();
        assert!(next.contains("?expand=product%2Clines&limit=1&cursor="), "{next}");
        let orders = follow(&server, &json!(next), "orders");
        let names: Vec<&Value> = orders.iter().map(|order| &order["product"]["name"]).collect();
        assert_eq!(names, ["jam", "tea"]);
        assert!(orders.iter().all(|order| order["lines"] == json!([])), "{orders:?}");
    }

    fn expand_of_children_adds_them_to_an_item_and_to_each_item_of_a_list(backend: Backend) {
        let Shop { server, customers, .. } = open_shop(backend);
        let plain = |path: &str| server.get(path).json()["orders"].clone();
        let item = server.get(&format!("{}?expand=orders", customers[0]));
        assert_eq!(item.status, 200, "{item:?}");
        assert_eq!(item.json()["customer"]["orders"], plain(&format!("{}/orders", customers[0])));
        assert_eq!(item.json()["customer"].get("orders_next"), None);
        let mut bare = item.json()["customer"].clone();
        bare.as_object_mut().unwrap().remove("orders");
        assert_eq!(bare, server.get(&customers[0]).json()["customer"]);
        let list = server.get("/customers?expand=orders,secrets");
        assert_eq!(list.status, 200, "{list:?}");
        for (customer, path) in list.json()["customers"].as_array().unwrap().iter().zip(&customers) {
            assert_eq!(customer["orders"], plain(&format!("{path}/orders")));
            assert_eq!(customer["secrets"], json!([]));
        }
        assert_eq!(list.json()["page"], json!({"limit": 50, "next": null}));
        let head = server.request("HEAD /customers?expand=orders,secrets", &[], "");
        assert_eq!((head.status, head.header("ETag"), head.body.len()), (200, list.header("ETag"), 0));
    }

    fn expand_of_a_reference_puts_the_item_in_place_of_its_id(backend: Backend) {
        let Shop { server, customers, products } = open_shop(backend);
        let list = server.get("/customers?expand=favourite").json();
        let product = server.get(&products[1]).json()["product"].clone();
        assert_eq!(values(&list["customers"], "favourite"), [product, Value::Null]);
        let order = &server.get(&format!("{}/orders", customers[0])).json()["orders"][1];
        let path = format!("{}/orders/{}", customers[0], order["id"]);
        let order = server.get(&format!("{path}?expand=product,customer&fields=status")).json();
        let customer = server.get(&customers[0]).json()["customer"].clone();
        let product = server.get(&products[1]).json()["product"].clone();
        assert_eq!(order, json!({"order": {
            "id": order["order"]["id"], "status": "paid", "product": product, "customer": customer,
        }}));
    }

    fn expand_follows_two_levels_and_relations_of_every_kind(backend: Backend) {
        let Shop { server, customers, products } = open_shop(backend);
        let order = server.get("/orders").json()["orders"][0].clone();
        let lines = format!("{}/orders/{}/lines", customers[0], order["id"]);
        let line = server.create(&lines, r#"{"line":{"n":1}}"#);
        let other = server.create(&lines, json!({"line": {"n": 2, "split_from": id(&line)}}).to_string());
        let product = |at: usize| server.get(&products[at]).json()["product"].clone();
        let list = server.get("/customers?expand=orders.product,favourite,orders.lines").json();
        let (ann, bea) = (&list["customers"][0], &list["customers"][1]);
        assert_eq!(values(&ann["orders"], "product"), [product(0), product(1), product(0)]);
        assert_eq!(values(&bea["orders"], "product"), [product(0), product(1), product(0)]);
        assert_eq!(ann["favourite"], product(1));
        assert_eq!(values(&ann["orders"][0]["lines"], "n"), [json!(1), json!(2)]);
        assert_eq!(values(&bea["orders"], "lines"), [json!([]), json!([]), json!([])]);
        // Up twice, and up and down again.
        let item = server.get(&format!("{other}?expand=split_from.order,order.customer,order.product")).json();
        let line = &item["line"];
        assert_eq!(line["split_from"]["order"]["id"], order["id"]);
        assert_eq!(line["order"]["customer"], server.get(&customers[0]).json()["customer"]);
        assert_eq!(line["order"]["product"], product(0));
        let list = server.get("/lines?expand=order.lines(sort=-n)").json();
        assert_eq!(values(&list["lines"][0]["order"]["lines"], "n"), [json!(2), json!(1)]);
    }

    fn expand_of_children_has_filters_an_order_a_limit_and_the_address_of_the_rest(backend: Backend) {
        let Shop { server, customers, .. } = open_shop(backend);
        let orders: Vec<Value> = (0..120).map(|n| json!({"status": "paid", "total": n % 7})).collect();
        server.post(&format!("{}/orders", customers[1]), json!({"orders": orders}).to_string());
        let query = "expand=orders(status=paid;sort=-total;limit=2;fields=total)";
        let list = server.get(&format!("/customers?{query}"));
        let (ann, bea) = (&list.json()["customers"][0], &list.json()["customers"][1]);
        assert_eq!(values(&ann["orders"], "total"), [json!(2), json!(1)]);
        assert_eq!(ann.get("orders_next"), None);
        assert_eq!(ann["orders"][0].as_object().unwrap().len(), 2, "{ann}");
        for (plain, expanded) in [
            ("status=paid&sort=-total&fields=total", bea),
            ("", &server.get(&format!("{}?expand=orders", customers[1])).json()["customer"]),
            ("total:lt=3&sort=total", &server.get(&format!("{}?expand=orders(total:lt=3;sort=total)", customers[1])).json()["customer"]),
        ] {
            let mut all = expanded["orders"].as_array().unwrap().clone();
            assert_eq!(all.len(), if plain.starts_with("status") { 2 } else { 50 });
            all.extend(follow(&server, &expanded["orders_next"], "orders"));
            let whole = server.get(&format!("{}/orders?{plain}&limit=500", customers[1])).json();
            assert_eq!(json!(all), whole["orders"], "{plain}");
        }
        let next = bea["orders_next"].as_str().unwrap();
        let start = format!("{}/orders?status=paid&sort=-total&fields=total&limit=2&cursor=", customers[1]);
        assert!(next.starts_with(&start), "{next}");
    }

    fn expand_of_a_page_goes_on_with_its_next_page(backend: Backend) {
        let Shop { server, .. } = open_shop(backend);
        let first = server.get("/customers?limit=1&expand=orders(limit=1)&sort=-name");
        let link = first.header("Link").unwrap();
        assert!(link.contains("expand=orders%28limit%3D1%29&"), "{link}");
        let second = server.get(link.split_once('>').unwrap().0.trim_start_matches('<')).json();
        assert_eq!(second["customers"][0]["name"], "Ann");
        assert_eq!(second["customers"][0]["orders"].as_array().unwrap().len(), 1);
    }

    fn expand_of_flat_reads_has_addresses_under_the_ancestors(backend: Backend) {
        let Shop { server, customers, .. } = open_shop(backend);
        let order = server.get("/orders").json()["orders"][0]["id"].to_string();
        let lines = format!("{}/orders/{order}/lines", customers[0]);
        for n in 0..3 {
            server.create(&lines, json!({"line": {"n": n}}).to_string());
        }
        let list = server.get("/orders?expand=lines(limit=2),customer&limit=2").json();
        assert_eq!(list["orders"][0]["customer"]["name"], "Ann");
        let next = list["orders"][0]["lines_next"].as_str().unwrap();
        assert!(next.starts_with(&format!("{lines}?limit=2&cursor=")), "{next}");
        assert_eq!(values(&json!(follow(&server, &json!(next), "lines")), "n"), [json!(2)]);
        assert_eq!(list["orders"][1].get("lines_next"), None);
        let item = server.get(&format!("/orders/{order}?expand=lines(limit=2)"));
        assert_eq!(item.json()["order"]["lines_next"], next);
        let path = format!("{}/orders/{order}", customers[0]);
        let place = item.header("Content-Location").unwrap();
        assert_eq!(place, format!("{path}?expand=lines%28limit%3D2%29"));
        assert_eq!(server.get(place).body, item.body);
        let tag = item.header("ETag").unwrap();
        let again = format!("GET /orders/{order}?expand=lines(limit=2)");
        let unchanged = server.request(&again, &[("If-None-Match", tag)], "");
        assert_eq!((unchanged.status, unchanged.header("Content-Location")), (304, Some(place)));
        assert!(item.all("Link").contains(&&*format!("<{path}>; rel=\"canonical\"")), "{item:?}");
        // Lines are two levels deep, so that their flat list has no ids of customers.
        let list = server.get("/lines?expand=order.lines(limit=1),split_from").json();
        let next = list["lines"][0]["order"]["lines_next"].as_str().unwrap();
        assert!(next.starts_with(&format!("{lines}?limit=1&cursor=")), "{next}");
    }

    fn expand_shows_nothing_that_the_caller_may_not_see(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let admin = server.admin().basic();
        let Shop { server, customers, products } = fill(server, Some(&admin));
        let ann = Person::new("ann", "a long password");
        server.add_user(&ann, &["seller"]);
        let get = |path: &str| server.request(&format!("GET {path}"), &[("Authorization", &ann.basic())], "");
        let list = get("/customers?expand=orders(limit=1;sort=-total).product").json();
        let order = &list["customers"][0]["orders"][0];
        assert_eq!((&order["total"], order.get("note")), (&json!(2), None), "{list}");
        assert_eq!(order["product"]["name"], "tea");
        // The other order is paid too, and its product is not visible: its id stays.
        let rest = get(list["customers"][0]["orders_next"].as_str().unwrap()).json();
        assert_eq!(values(&rest["orders"], "total"), [json!(1)]);
        assert_eq!(rest["page"]["next"], Value::Null);
        let both = get("/customers?expand=orders.product").json();
        let of_both = values(&both["customers"][1]["orders"], "product");
        assert_eq!((&of_both[0], &of_both[1]["name"]), (&json!(id(&products[1])), &json!("tea")));
        assert_eq!(both["customers"][1].get("orders_next"), None);
        // Hidden fields and resources are unknown, as undeclared ones are.
        let unknown = detail(&get("/customers?expand=nothing"));
        assert_eq!(unknown, "expand: nothing: no such relation here");
        for name in ["favourite", "secrets", "orders.lines", "orders(note=a)", "orders(sort=note)", "orders(fields=note)"] {
            let refused = detail(&get(&format!("/customers?expand={name}")));
            assert!(refused.contains(": no such "), "{name}: {refused}");
            assert!(!refused.contains("did you mean \"favourite\"") && !refused.contains("\"secrets\""), "{refused}");
        }
        assert!(detail(&get("/products?expand=x")).starts_with("expand: no such parameter here"));
        // Its tag does not change with an order that the caller cannot see, and changes with one that it can.
        let tag = |answer: &Answer| answer.header("ETag").unwrap().to_owned();
        let before = tag(&get("/customers?expand=orders"));
        let orders = format!("{}/orders", customers[0]);
        let add = |status: &str| {
            let body = json!({"order": {"status": status}}).to_string();
            assert_eq!(server.request(&format!("POST {orders}"), &[("Authorization", &admin)], body).status, 201);
        };
        add("placed");
        assert_eq!(tag(&get("/customers?expand=orders")), before);
        add("paid");
        assert_ne!(tag(&get("/customers?expand=orders")), before);
        let document = get("/-/openapi.json").json();
        let names = &document["components"]["parameters"]["customer.expand"]["schema"]["items"]["pattern"];
        assert_eq!(*names, json!(r"^(orders(\(.+\))?(\.(customer|product))?)$"));
        assert_eq!(document["components"]["parameters"].get("product.expand"), None);
        assert_eq!(document["components"]["schemas"]["customer.selection"]["properties"].get("secrets"), None);
    }

    fn expand_has_a_weak_tag_that_changes_with_every_related_item(backend: Backend) {
        let Shop { server, customers, products } = open_shop(backend);
        let item = format!("{}?expand=orders.product", customers[0]);
        for path in [&*item, "/customers?expand=orders.product"] {
            let first = server.get(path);
            let tag = first.header("ETag").unwrap().to_owned();
            assert!(tag.starts_with("W/\""), "{tag}");
            assert_eq!(first.header("Last-Modified"), None);
            let again = |tag: &str| server.request(&format!("GET {path}"), &[("If-None-Match", tag)], "");
            let unchanged = again(&tag);
            assert_eq!((unchanged.status, unchanged.header("ETag"), unchanged.body.len()), (304, Some(&*tag), 0));
            assert_eq!(again("*").status, 304);
            let strict = server.request(&format!("GET {path}"), &[("If-Match", &tag)], "");
            assert_eq!(strict.status, 412, "{strict:?}");
            let name = server.get(&products[0]).json()["product"]["name"].as_str().unwrap().to_owned();
            server.put(&products[0], json!({"product": {"name": format!("{name}!")}}).to_string());
            let changed = again(&tag);
            assert_eq!(changed.status, 200);
            assert!(changed.text().contains(&format!("{name}!")), "{changed:?}");
        }
        // A tag belongs to one address.
        let tag = server.get(&item).header("ETag").unwrap().to_owned();
        let other = format!("GET {}?expand=orders.product", customers[1]);
        assert_eq!(server.request(&other, &[("If-None-Match", &tag)], "").status, 200);
        let missing = "GET /customers/01890a5d-ac96-774b-bcce-b302099a8057?expand=orders";
        for tag in ["*", &tag] {
            assert_eq!(server.request(missing, &[("If-None-Match", tag)], "").status, 404);
        }
        assert_eq!(server.get("/customers/01890a5d-ac96-774b-bcce-b302099a8057/orders?expand=lines").status, 404);
    }

    fn expand_is_refused_where_there_is_no_place_for_it(backend: Backend) {
        let Shop { server, customers, .. } = open_shop(backend);
        let read = |path: &str, media: &str| server.request(&format!("GET {path}"), &[("Accept", media)], "");
        let lines = read("/customers?expand=orders(limit=1)&limit=2", "application/x-ndjson");
        let lines: Vec<Value> = lines.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(json!(lines), server.get("/customers?expand=orders(limit=1)").json()["customers"]);
        let refused = |path: &str, media: &str| {
            detail(&read(path, &format!("{media}, application/problem+json;q=0.1")))
        };
        assert_eq!(
            refused("/customers?expand=orders", "application/x-ndjson"),
            "expand: expected limit too, because a whole collection is sent without related items"
        );
        assert_eq!(
            refused("/customers?expand=orders&limit=5", "text/csv"),
            "expand: expected application/json or application/x-ndjson, got text/csv"
        );
        for path in ["/customers", &customers[0]] {
            let stream = refused(&format!("{path}?expand=orders"), "text/event-stream");
            assert_eq!(stream, "expand: an event has one item, without related ones");
        }
        for past in ["version=1", "as_of=2026-11-18T00:00:00Z"] {
            let path = format!("{}?{past}&expand=orders", customers[0]);
            let expected = "expand: expected an item as it is now, got version or as_of";
            assert_eq!(refused(&path, "application/json"), expected);
        }
        let body = r#"{"customer":{"name":"Cy"}}"#;
        for line in ["POST /customers", &format!("PUT {}", customers[0]), &format!("PATCH {}", customers[0])] {
            let answer = server.request(&format!("{line}?expand=orders"), &[("Content-Type", "application/json")], body);
            assert!(detail(&answer).starts_with("expand: no such parameter here"), "{answer:?}");
        }
        for (value, expected) in [
            ("order", "expand: order: no such relation here; did you mean \"orders\"?"),
            ("orders.lines.order", "expand: expected at most 2 levels, got 3"),
            ("orders,orders", "expand: orders: given twice"),
            ("orders&expand=orders", "expand: given twice"),
            ("orders(limit=51)", "expand: orders: limit: expected at most 50, got 51"),
            ("", "expand: expected names with commas between them, got an empty one"),
        ] {
            assert_eq!(detail(&server.get(&format!("/customers?expand={value}"))), expected);
        }
        let many = ["orders"; 11].join(",");
        let many = detail(&server.get(&format!("/customers?expand={many}")));
        assert_eq!(many, "expand: expected at most 10 relations, got 11");
    }

    fn expand_over_its_limits_is_refused_and_not_cut(backend: Backend) {
        let Shop { server, customers, .. } = open_shop(backend);
        let orders: Vec<Value> = (0..250).map(|n| json!({"total": n})).collect();
        server.post(&format!("{}/orders", customers[0]), json!({"orders": orders}).to_string());
        // Each order shows its customer with 50 orders.
        let path = format!("{}/orders?expand=customer.orders&fields=id", customers[0]);
        let over = detail(&server.get(&format!("{path}&limit=197")));
        assert_eq!(
            over,
            "expand: expected at most 10000 related items of at most 8 MiB together, got more; \
             ask for less with limit, or with limit in parentheses after the children"
        );
        let within = server.get(&format!("{path}&limit=196"));
        assert_eq!(within.status, 200, "{within:?}");
        assert_eq!(within.json()["orders"].as_array().unwrap().len(), 196);
        // The same in bytes.
        let about = "x".repeat(500_000);
        server.put(&customers[1], json!({"customer": {"name": "Bea", "about": about}}).to_string());
        let many: Vec<Value> = (0..20).map(|n| json!({"total": n})).collect();
        server.post(&format!("{}/orders", customers[1]), json!({"orders": many}).to_string());
        let path = format!("{}/orders?expand=customer", customers[1]);
        assert_eq!(detail(&server.get(&path)), over);
        assert_eq!(server.get(&format!("{path}&limit=10")).status, 200);
        let notes: Vec<String> = (0..9).map(|_| "y".repeat(950_000)).collect();
        for note in notes {
            server.create(&format!("{}/orders", customers[1]), json!({"order": {"note": note}}).to_string());
        }
        assert_eq!(detail(&server.get(&format!("{}?expand=orders", customers[1]))), over);
        assert_eq!(server.get(&format!("{}?expand=orders(limit=20)", customers[1])).status, 200);
    }

    fn expand_on_a_page_shows_the_related_items_as_json(backend: Backend) {
        let Shop { server, customers, .. } = open_shop(backend);
        for path in ["/customers", &customers[0]] {
            let page = server.request(&format!("GET {path}?expand=orders,favourite"), &[("Accept", "text/html")], "");
            assert_eq!((page.status, page.header("Content-Type")), (200, Some("text/html; charset=utf-8")));
            assert!(page.text().contains("total") && page.text().contains("jam"), "{}", page.text());
        }
    }
}
