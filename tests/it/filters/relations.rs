//! Filters over relations: the fields of parents and of the items that `ref` fields refer to, as far as the caller sees
//! them.
//!
//! `relations_random` compares random ones with an evaluation in memory.

use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Person, Server, Setup};

const MODEL: &str = r#"
title = "Shop"
[resources.region.fields]
name = { type = "text", filter = true }
[resources.customer.fields]
email = { type = "email", filter = true }
name = { type = "text" }
rating = { type = "integer", filter = true }
owner = { type = "text", filter = true }
region = { type = "ref", to = "region" }
tags = { type = "list", of = { type = "text" }, filter = true }
home = { type = "object", fields = { city = { type = "text", filter = true } } }
[resources.carrier]
id = "integer"
[resources.carrier.fields]
name = { type = "text", filter = true }
owner = { type = "text" }
[resources.vault.fields]
code = { type = "text", filter = true }
[resources.order]
parent = "customer"
[resources.order.fields]
total = { type = "integer", filter = true }
carrier = { type = "ref", to = "carrier", nullable = true }
vault = { type = "ref", to = "vault" }
[resources.line]
parent = "order"
[resources.line.fields]
n = { type = "integer", filter = true }
[roles.clerk]
region = ["get"]
customer = { verbs = ["get"], hide = ["rating"] }
carrier = { verbs = ["get"], where = "owner = $user" }
order = ["get"]
line = ["get"]
[roles.keeper]
customer = { verbs = ["get"], where = "owner = $user" }
order = ["get"]
line = ["get"]
"#;

struct Shop {
    server: Server,
    admin: String,
    clerk: String,
    keeper: String,
    customers: Vec<String>,
    carriers: Vec<String>,
}

/// Ann's orders are 1, 2 and 3, Bea's 4 and 5. Carrier `swift` has 1 and 4, `slow` has 2; the others have none.
fn open_shop(backend: Backend) -> Shop {
    let server = Setup::new(backend).model(MODEL).with_authentication().start();
    let [clerk, keeper] =
        ["cleo", "kim"].map(|name| Person::new(name, "a long password of theirs"));
    server.add_user(&clerk, &["clerk"]);
    server.add_user(&keeper, &["keeper"]);
    let admin = server.admin().basic();
    let create = |path: &str, body: Value| {
        let login = [("Authorization", admin.as_str())];
        let made = server.request(&format!("POST {path}"), &login, body.to_string());
        assert_eq!(made.status, 201, "{made:?}");
        made.header("Location").unwrap().to_owned()
    };
    let id = |path: &str| json!(path.rsplit('/').next().unwrap());
    let number = |path: &str| json!(path.rsplit('/').next().unwrap().parse::<i64>().unwrap());
    let regions =
        ["north", "south"].map(|name| create("/regions", json!({"region": {"name": name}})));
    let vault = create("/vaults", json!({"vault": {"code": "1234"}}));
    let carriers = [("swift", "cleo"), ("slow", "kim")].map(|(name, owner)| {
        create("/carriers", json!({"carrier": {"name": name, "owner": owner}}))
    });
    let customers = [("ann", "kim", 5), ("bea", "cleo", 7)].into_iter().zip(&regions);
    let customers: Vec<String> = customers
        .map(|((name, owner, rating), region)| {
            let customer = json!({
                "email": format!("{name}@example.com"), "name": name, "rating": rating, "owner": owner,
                "region": id(region), "tags": [name, "all"], "home": {"city": format!("{name}ville")},
            });
            create("/customers", json!({"customer": customer}))
        })
        .collect();
    for (total, customer, carrier) in
        [(1, 0, Some(0)), (2, 0, Some(1)), (3, 0, None), (4, 1, Some(0)), (5, 1, None)]
    {
        let carrier = carrier.map(|at: usize| number(&carriers[at]));
        let order = json!({"order": {"total": total, "carrier": carrier, "vault": id(&vault)}});
        let order = create(&format!("{}/orders", customers[customer]), order);
        create(&format!("{order}/lines"), json!({"line": {"n": 10 * total}}));
    }
    let (clerk, keeper, carriers) = (clerk.basic(), keeper.basic(), carriers.to_vec());
    Shop { server, admin, clerk, keeper, customers, carriers }
}

impl Shop {
    fn get(&self, login: &str, path: &str) -> Answer {
        self.server.request(&format!("GET {path}"), &[("Authorization", login)], "")
    }

    fn detail(&self, login: &str, path: &str) -> String {
        let answer = self.get(login, path);
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
        answer.json()["detail"].as_str().unwrap().to_owned()
    }

    /// The numbers of the found items.
    fn find(&self, login: &str, path: &str) -> Vec<i64> {
        let answer = self.get(login, path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        numbers(&answer)
    }
}

fn numbers(answer: &Answer) -> Vec<i64> {
    let json = answer.json();
    let items = json.get("orders").or_else(|| json.get("lines")).unwrap().as_array().unwrap();
    let number = |item: &Value| item.get("total").or_else(|| item.get("n")).unwrap().as_i64();
    let mut found: Vec<i64> = items.iter().map(|item| number(item).unwrap()).collect();
    found.sort_unstable();
    found
}

on_every_backend! {
    fn relation_filters_find_items_by_the_fields_of_related_ones(backend: Backend) {
        let shop = open_shop(backend);
        let nested = format!("{}/orders", shop.customers[0]);
        for (path, expected) in [
            ("/orders?customer.email=ann@example.com", &[1, 2, 3][..]),
            ("/orders?customer.email:prefix=b", &[4, 5]),
            ("/orders?customer.rating:between=6,8", &[4, 5]),
            ("/orders?customer.tags:has=ann&total:gt=1", &[2, 3]),
            ("/orders?customer.home.city=annville", &[1, 2, 3]),
            ("/orders?customer.created_at:gt=2020-01-01T00:00:00Z", &[1, 2, 3, 4, 5]),
            ("/orders?carrier.name=swift", &[1, 4]),
            ("/orders?carrier.name=swift&customer.email=ann@example.com", &[1]),
            ("/orders?carrier.name:ne=swift", &[2]),
            ("/orders?carrier.name:exists=true", &[1, 2, 4]),
            ("/orders?carrier.name:exists=false", &[3, 5]),
            ("/orders?not=(carrier.name=swift)", &[2, 3, 5]),
            ("/orders?not=(carrier.name=swift;customer.rating=5)", &[2, 3, 4, 5]),
            ("/orders?any=(carrier.name=slow;total=5)", &[2, 5]),
            ("/orders?any=(carrier.name=slow;not(customer.rating=5))", &[2, 4, 5]),
            ("/orders?customer.region.name=south", &[4, 5]),
            ("/lines?order.customer.email=ann@example.com", &[10, 20, 30]),
            ("/lines?order.carrier.name:exists=false", &[30, 50]),
            ("/lines?order.total:lte=2", &[10, 20]),
            (&format!("{nested}?carrier.name=swift"), &[1]),
            (&format!("{nested}?customer.rating=7"), &[]),
        ] {
            assert_eq!(shop.find(&shop.admin, path), expected, "{path}");
        }
        let id = shop.carriers[1].rsplit('/').next().unwrap();
        assert_eq!(shop.find(&shop.admin, &format!("/orders?carrier.id={id}")), [2]);
        // Children of an expanded item, and the body of a QUERY.
        let path = format!("{}?expand=orders(carrier.name=swift)", shop.customers[0]);
        let customer = shop.get(&shop.admin, &path).json();
        assert_eq!(customer["customer"]["orders"].as_array().unwrap().len(), 1, "{customer}");
        let login = [("Authorization", shop.admin.as_str()), ("Content-Type", "application/json")];
        for filter in [
            json!({"customer.rating": {"gt": 6}, "carrier.name": "swift"}),
            json!({"customer.email": {"in": ["bea@example.com"]}, "not": {"carrier.name": {"exists": false}}}),
        ] {
            let body = json!({"filter": filter}).to_string();
            let answer = shop.server.request("QUERY /orders", &login, &body);
            assert_eq!((answer.status, numbers(&answer)), (200, vec![4]), "{body}: {answer:?}");
            let address = answer.header("Content-Location").unwrap();
            assert_eq!(shop.find(&shop.admin, address), [4], "{address}");
        }
    }

    fn relation_filters_over_what_the_caller_cannot_read_are_unknown(backend: Backend) {
        let shop = open_shop(backend);
        assert_eq!(
            shop.detail(&shop.admin, "/orders?customer.name=ann"),
            "customer.name: the field is not declared filter = true, so it cannot be filtered or sorted by"
        );
        assert_eq!(
            shop.detail(&shop.admin, "/orders?customer.emial=x"),
            "customer.emial: no such field here; did you mean \"customer.email\"?"
        );
        assert_eq!(
            shop.detail(&shop.admin, "/lines?order.customer.region.name=x"),
            "order.customer.region.name: a filter follows at most 2 relations"
        );
        assert_eq!(
            shop.detail(&shop.admin, "/orders?sort=customer.email"),
            "sort: customer.email: no such field here"
        );
        // A hidden field, and a resource without `get`: as if it had never been declared.
        for (known, unknown, value) in [
            ("customer.rating", "customer.zzzzzz", "5"),
            ("vault.code", "zzzzz.code", "1234"),
            ("vault.id", "zzzzz.id", "1"),
        ] {
            for form in ["NAME=", "NAME:ne=", "not=(NAME=", "any=(NAME:exists="] {
                let end = if form.contains('(') { ")" } else { "" };
                let said = |name: &str| {
                    let path = format!("/orders?{}{value}{end}", form.replace("NAME", name));
                    shop.detail(&shop.clerk, &path).replace(name, "NAME")
                };
                assert_eq!(said(known), said(unknown), "{form}");
            }
        }
        assert_eq!(shop.find(&shop.admin, "/orders?vault.code=1234").len(), 5);
        assert_eq!(shop.find(&shop.admin, "/orders?customer.rating=5").len(), 3);
    }

    /// What an invisible item is like decides nothing, in no direction.
    fn relation_filters_never_match_by_an_invisible_item(backend: Backend) {
        let shop = open_shop(backend);
        // The clerk sees all orders, and the carrier of 1 and 4, but not that of 2.
        for (query, expected) in [
            ("carrier.name=slow", &[][..]),
            ("carrier.name:ne=swift", &[]),
            ("carrier.name:ne=x", &[1, 4]),
            ("carrier.name:exists=true", &[1, 4]),
            ("carrier.name:exists=false", &[3, 5]),
            ("not=(carrier.name=slow)", &[1, 3, 4, 5]),
            ("not=(carrier.name=x)", &[1, 3, 4, 5]),
            ("not=(not(carrier.name=slow))", &[]),
            ("not=(carrier.name=swift;total:lt=9)", &[3, 5]),
            // Another filter decides.
            ("any=(carrier.name=x;total=2)", &[2]),
            ("not=(carrier.name=swift;total=9)", &[1, 2, 3, 4, 5]),
        ] {
            let path = format!("/orders?{query}");
            assert_eq!(shop.find(&shop.clerk, &path), expected, "{query}");
        }
        // The keeper sees the orders of Ann alone, and no carriers at all.
        assert_eq!(shop.find(&shop.keeper, "/orders?customer.rating:gt=0"), [1, 2, 3]);
        assert_eq!(shop.find(&shop.keeper, "/lines?not=(order.customer.rating=7)"), [10, 20, 30]);
        assert_eq!(shop.get(&shop.keeper, "/orders?carrier.name=swift").status, 400);
    }

    /// The rows of an item above the related one decide too.
    fn relation_filters_see_no_item_below_an_invisible_one(backend: Backend) {
        let model = r#"
title = "Yards"
[resources.yard.fields]
owner = { type = "text", filter = true }
[resources.crane]
parent = "yard"
[resources.crane.fields]
name = { type = "text", filter = true }
[resources.job.fields]
n = { type = "integer" }
crane = { type = "ref", to = "crane" }
[roles.worker]
yard = { verbs = ["get"], where = "owner = $user" }
crane = ["get"]
job = ["get"]
"#;
        let server = Setup::new(backend).model(model).with_authentication().start();
        let (admin, ann) = (server.admin().basic(), Person::new("ann", "a long password of hers"));
        server.add_user(&ann, &["worker"]);
        let create = |path: &str, body: Value| {
            let login = [("Authorization", admin.as_str())];
            let made = server.request(&format!("POST {path}"), &login, body.to_string());
            made.header("Location").unwrap_or_else(|| panic!("{made:?}")).to_owned()
        };
        for (n, owner) in ["ann", "bea"].into_iter().enumerate() {
            let yard = create("/yards", json!({"yard": {"owner": owner}}));
            let crane = create(&format!("{yard}/cranes"), json!({"crane": {"name": "big"}}));
            let crane = crane.rsplit('/').next().unwrap();
            create("/jobs", json!({"job": {"n": n, "crane": crane}}));
        }
        let ann = ann.basic();
        for (query, login, expected) in [
            ("crane.name=big", &admin, &[0, 1][..]),
            ("crane.name=big", &ann, &[0]),
            ("crane.name:ne=x", &ann, &[0]),
            ("not=(crane.name=x)", &ann, &[0]),
            ("crane.yard.owner=bea", &admin, &[1]),
            ("not=(crane.yard.owner=ann)", &ann, &[]),
        ] {
            let answer = server.request(&format!("GET /jobs?{query}"), &[("Authorization", login)], "");
            assert_eq!(answer.status, 200, "{answer:?}");
            let found: Vec<i64> = answer.json()["jobs"].as_array().unwrap().iter().map(|job| job["n"].as_i64().unwrap()).collect();
            assert_eq!(found, expected, "{query}");
        }
    }

    /// The credentials of a caller were checked for one realm.
    fn relation_filters_stay_in_the_realm_of_their_resource(backend: Backend) {
        let model = r#"
title = "Two realms"
[realms.front]
schemes = ["basic"]
[realms.back]
schemes = ["basic"]
[server]
realm = "front"
[resources.safe]
realm = "back"
[resources.safe.fields]
code = { type = "text", filter = true }
[resources.desk]
realm = "front"
[resources.desk.fields]
safe = { type = "ref", to = "safe" }
"#;
        let server = Setup::new(backend).model(model).with_authentication().start();
        let admin = server.admin().basic();
        let said = |query: &str| {
            let answer = server.request(&format!("GET /desks?{query}"), &[("Authorization", &admin)], "");
            assert_eq!(answer.status, 400, "{answer:?}");
            answer.json()["detail"].as_str().unwrap().to_owned()
        };
        assert_eq!(said("safe.code=1"), said("zafe.code=1").replace("zafe", "safe"));
    }

    fn relation_filter_changes_the_tag_of_the_list_when_related_items_change(backend: Backend) {
        let shop = open_shop(backend);
        let nested = format!("{}/orders?carrier.name=swift&fields=id", shop.customers[0]);
        let tag_of = |path: &str| {
            let answer = shop.get(&shop.admin, path);
            (answer.header("ETag").unwrap().to_owned(), answer.json()["orders"].as_array().unwrap().len())
        };
        let get_if_none = |path: &str, tag: &str| {
            let headers = [("Authorization", shop.admin.as_str()), ("If-None-Match", tag)];
            shop.server.request(&format!("GET {path}"), &headers, "").status
        };
        let paths = [nested.clone(), format!("{nested}&expand=carrier")];
        let before: Vec<(String, usize)> = paths.iter().map(|path| tag_of(path)).collect();
        for (path, (tag, found)) in paths.iter().zip(&before) {
            assert_eq!((*found, get_if_none(path, tag)), (1, 304), "{path}");
        }
        let login = [("Authorization", shop.admin.as_str())];
        let body = r#"{"carrier":{"name":"gone"}}"#;
        let changed = shop.server.request(&format!("PATCH {}", shop.carriers[0]), &login, body);
        assert_eq!(changed.status, 200, "{changed:?}");
        for (path, (tag, _)) in paths.iter().zip(&before) {
            assert_eq!(get_if_none(path, tag), 200, "{path}");
            assert_eq!(tag_of(path).1, 0, "{path}");
        }
    }

    fn relation_filter_of_events_is_refused(backend: Backend) {
        let shop = open_shop(backend);
        let login = ("Authorization", shop.admin.as_str());
        let stream = [login, ("Accept", "text/event-stream, application/problem+json")];
        let answer = shop.server.request("GET /orders?carrier.name=swift", &stream, "");
        assert_eq!(answer.status, 400, "{answer:?}");
        let why = "carrier.name: events are filtered by the item itself, not by related ones";
        assert_eq!(answer.json()["detail"], why);
        let hook = json!({"webhook": {
            "url": "https://example.com/", "events": ["order.*"], "filter": "carrier.name=swift",
        }});
        let answer = shop.server.request("POST /-/webhooks", &[login], hook.to_string());
        assert_eq!(answer.status, 422, "{answer:?}");
        assert!(answer.text().contains(why), "{answer:?}");
    }
}
