//! The applications under `examples/`, each with the requests that its users make.

mod courses;
mod expenses;

use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Person, Server, Setup};

const BLOG: &str = include_str!("../../../examples/blog/nouns.toml");
const APPOINTMENTS: &str = include_str!("../../../examples/appointments/nouns.toml");
const INVENTORY: &str = include_str!("../../../examples/inventory/nouns.toml");
const TICKETS: &str = include_str!("../../../examples/tickets/nouns.toml");

/// A server with a user of each role, whose name is that of the role.
struct Application {
    server: Server,
}

impl Application {
    fn start(backend: Backend, model: &str, roles: &[&str]) -> Self {
        let server = Setup::new(backend).model(model).with_authentication().start();
        for role in roles {
            server.add_user(&person(role), &[role]);
        }
        Self { server }
    }

    fn send(&self, name: &str, line: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let login = match name {
            "admin" => self.server.admin().basic(),
            name => person(name).basic(),
        };
        let login = [("Authorization", login.as_str())];
        let headers = match name {
            "anyone" => headers.to_vec(),
            _ => [&login, headers].concat(),
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.server.request(line, &headers, body)
    }

    /// Creates an item; returns its path and its id.
    fn create(&self, name: &str, path: &str, body: &Value) -> (String, String) {
        let answer = self.send(name, &format!("POST {path}"), &[], body);
        assert_eq!(answer.status, 201, "{answer:?}");
        let path = answer.header("Location").unwrap().to_owned();
        let id = path.rsplit('/').next().unwrap().to_owned();
        (path, id)
    }

    fn get(&self, name: &str, path: &str) -> Value {
        let answer = self.send(name, &format!("GET {path}"), &[], &Value::Null);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    fn status(&self, name: &str, line: &str, body: &Value) -> u16 {
        let merge = [("Content-Type", "application/merge-patch+json")];
        let headers: &[_] = if line.starts_with("PATCH") { &merge } else { &[] };
        self.send(name, line, headers, body).status
    }
}

fn person(name: &str) -> Person {
    Person::new(name, "a good password")
}

/// The values of one field in a list.
fn values(list: &Value, plural: &str, field: &str) -> Vec<Value> {
    list[plural].as_array().unwrap().iter().map(|item| item[field].clone()).collect()
}

on_every_backend! {
    fn blog_has_a_moderation_queue_over_all_posts(backend: Backend) {
        let blog = Application::start(backend, BLOG, &["author", "reader", "moderator"]);
        let post = |title: &str| json!({"post": {"title": title, "body": "…"}});
        let (first, _) = blog.create("author", "/posts", &post("One"));
        let (second, _) = blog.create("author", "/posts", &post("Two"));
        assert_eq!(blog.status("reader", &format!("POST {first}/comments"), &json!({"comment": {"text": "early"}})), 404, "a draft");
        for path in [&first, &second] {
            assert_eq!(blog.status("author", &format!("PATCH {path}"), &json!({"post": {"status": "published"}})), 200);
        }
        for (path, text) in [(&first, "spam"), (&second, "nice"), (&first, "thanks")] {
            blog.create("reader", &format!("{path}/comments"), &json!({"comment": {"text": text}}));
        }
        assert_eq!(values(&blog.get("anyone", "/comments"), "comments", "text"), [] as [Value; 0]);
        assert_eq!(blog.get("reader", "/comments")["comments"].as_array().unwrap().len(), 3, "one's own");
        let queue = blog.get("moderator", "/comments?status=pending&sort=created_at");
        assert_eq!(values(&queue, "comments", "text"), ["spam", "nice", "thanks"]);
        assert_eq!(values(&queue, "comments", "created_by"), ["reader", "reader", "reader"]);
        for item in queue["comments"].as_array().unwrap() {
            let path = format!("/comments/{}", item["id"].as_str().unwrap());
            let found = blog.send("moderator", &format!("GET {path}"), &[], &Value::Null);
            let own_path = found.header("Content-Location").unwrap().to_owned();
            assert_eq!(blog.status("moderator", &format!("PATCH {path}"), &json!({})), 405, "writes go to the nested path");
            let next = if item["text"] == "spam" { "rejected" } else { "published" };
            assert_eq!(blog.status("moderator", &format!("PATCH {own_path}"), &json!({"comment": {"status": next}})), 200);
        }
        assert_eq!(blog.get("moderator", "/comments?status=pending&count=exact")["page"]["total"], 0);
        assert_eq!(values(&blog.get("author", "/comments?status=rejected"), "comments", "text"), [] as [Value; 0]);
        assert_eq!(blog.status("reader", &format!("DELETE {first}"), &Value::Null), 403);
        assert_eq!(values(&blog.get("anyone", "/comments?sort=created_at"), "comments", "text"), ["nice", "thanks"]);
        // The comments of a post that is withdrawn are gone with it.
        assert_eq!(blog.status("author", &format!("PATCH {second}"), &json!({"post": {"status": "draft"}})), 200);
        assert_eq!(values(&blog.get("anyone", "/comments"), "comments", "text"), ["thanks"]);
    }

    fn appointments_have_a_calendar_for_each_doctor(backend: Backend) {
        let book = Application::start(backend, APPOINTMENTS, &["patient", "reception", "doctor"]);
        let (_, doctor) = book.create("admin", "/doctors", &json!({"doctor": {"name": "Dr. Ito"}}));
        let (_, other) = book.create("admin", "/doctors", &json!({"doctor": {"name": "Dr. Okafor"}}));
        let patient = json!({"patient": {"name": "Ann", "account": "patient", "phone": "1"}});
        let (ann, ann_id) = book.create("reception", "/patients", &patient);
        let (bob, _) = book.create("reception", "/patients", &json!({"patient": {"name": "Bob"}}));
        let appointment = |doctor: &str, hours: (u8, u8)| json!({"appointment": {
            "doctor": doctor,
            "starts": format!("2026-12-01T{:02}:00:00Z", hours.0),
            "ends": format!("2026-12-01T{:02}:00:00Z", hours.1),
        }});
        book.create("patient", &format!("{ann}/appointments"), &appointment(&doctor, (10, 11)));
        book.create("reception", &format!("{bob}/appointments"), &appointment(&doctor, (9, 10)));
        book.create("reception", &format!("{bob}/appointments"), &appointment(&other, (9, 10)));
        // Also for the patient, who does not see the other appointment.
        for name in ["reception", "patient"] {
            let taken = book.send(name, &format!("POST {ann}/appointments"), &[], &appointment(&doctor, (9, 10)));
            assert_eq!((taken.status, taken.problem().as_str()), (409, "taken"), "{name}: {taken:?}");
        }
        let reversed = book.send("reception", &format!("POST {ann}/appointments"), &[], &appointment(&doctor, (12, 11)));
        assert_eq!(reversed.status, 422, "{reversed:?}");
        let errors = reversed.json()["errors"].clone();
        let pointers: Vec<_> = errors.as_array().unwrap().iter().map(|error| error["pointer"].clone()).collect();
        assert_eq!(pointers, ["/appointment/ends", "/appointment/starts"], "{errors}");
        assert_eq!(errors[0]["detail"], "the appointment ends before it starts");
        let calendar = book.get("doctor", &format!("/appointments?doctor={doctor}&starts:gte=2026-12-01T00:00:00Z&sort=starts"));
        let starts = ["2026-12-01T09:00:00.000000Z", "2026-12-01T10:00:00.000000Z"];
        assert_eq!(values(&calendar, "appointments", "starts"), starts);
        // A patient sees the own appointments only.
        assert_eq!(values(&book.get("patient", "/appointments"), "appointments", "patient_id"), [ann_id.as_str()]);
        assert!(book.get("doctor", &ann)["patient"].get("phone").is_none());
    }

    fn inventory_lists_low_stock_of_all_warehouses(backend: Backend) {
        let inventory = Application::start(backend, INVENTORY, &["clerk", "buyer"]);
        let (product, id) = inventory.create("buyer", "/products", &json!({"product": {"code": " A-7", "name": "Bolt"}}));
        assert_eq!(inventory.get("buyer", &product)["product"]["label"], "a-7: Bolt");
        let mut paths = Vec::new();
        for (name, quantity) in [("North", 3), ("South", 30)] {
            let (warehouse, _) = inventory.create("buyer", "/warehouses", &json!({"warehouse": {"name": name}}));
            let stock = json!({"stock": {"product": id, "quantity": quantity, "minimum": 5}});
            paths.push(inventory.create("buyer", &format!("{warehouse}/stocks"), &stock).0);
        }
        assert_eq!(values(&inventory.get("clerk", &format!("/stocks?product={id}&sort=quantity")), "stocks", "quantity"), [3, 30]);
        let low = inventory.get("buyer", "/stocks?is_low=true");
        assert_eq!(values(&low, "stocks", "quantity"), [3]);
        let merge = ("Content-Type", "application/merge-patch+json");
        let patch = |body: &Value, version: &str| {
            let headers = [merge, ("If-Match", version)];
            inventory.send("clerk", &format!("PATCH {}", paths[0]), &headers, body)
        };
        let reserve = json!({"stock": {"reserved": 4}});
        assert_eq!(patch(&reserve, "\"1\"").status, 422, "more is reserved than there is");
        assert_eq!(patch(&json!({"stock": {"quantity": 8, "reserved": 4}}), "\"1\"").status, 200);
        assert_eq!(patch(&reserve, "\"1\"").status, 412, "somebody else was first");
        assert_eq!(inventory.get("clerk", &paths[0])["stock"]["updated_by"], "clerk");
        assert_eq!(inventory.get("buyer", "/stocks?is_low=true")["stocks"], json!([]));
    }

    fn tickets_keep_tenants_and_projects_apart(backend: Backend) {
        let desk = Application::start(backend, TICKETS, &["manager"]);
        let users = [("manager", "acme"), ("ann", "acme"), ("bob", "acme"), ("eve", "other")];
        for (name, tenant) in users {
            let path = match name {
                "manager" => {
                    let found = desk.get("admin", "/-/users?name=manager");
                    format!("/-/users/{}", found["users"][0]["id"].as_str().unwrap())
                }
                name => desk.server.add_user(&person(name), &["member"]),
            };
            assert_eq!(desk.status("admin", &format!("PATCH {path}"), &json!({"user": {"tenant": tenant}})), 200);
        }
        let tenant = |code: &str| json!({"tenant": {"code": code, "name": code}});
        let (acme, _) = desk.create("admin", "/tenants", &tenant("acme"));
        let (other, _) = desk.create("admin", "/tenants", &tenant("other"));
        let project = |name: &str| json!({"project": {"name": name}});
        let (shop, _) = desk.create("manager", &format!("{acme}/projects"), &project("shop"));
        let (site, _) = desk.create("manager", &format!("{acme}/projects"), &project("site"));
        let (foreign, _) = desk.create("admin", &format!("{other}/projects"), &project("foreign"));
        assert_eq!(desk.status("manager", &format!("POST {other}/projects"), &project("x")), 404);
        let member = |user: &str, role: &str| json!({"member": {"user": user, "role": role}});
        let (_, agent) = desk.create("manager", &format!("{shop}/members"), &member("ann", "agent"));
        let (_, guest) = desk.create("manager", &format!("{shop}/members"), &member("bob", "guest"));
        let (_, stranger) = desk.create("manager", &format!("{site}/members"), &member("ann", "agent"));
        desk.create("admin", &format!("{foreign}/members"), &member("eve", "agent"));
        for (name, seen) in [("manager", vec!["shop", "site"]), ("ann", vec!["shop", "site"]), ("bob", vec!["shop"]), ("eve", vec!["foreign"])] {
            assert_eq!(values(&desk.get(name, "/projects?sort=name"), "projects", "name"), seen, "{name}");
        }
        // Bob is a guest: his own ticket alone he may change.
        let ticket = |title: &str| json!({"ticket": {"title": title}});
        let (of_bob, _) = desk.create("bob", &format!("{shop}/tickets"), &ticket("of bob"));
        let (of_ann, _) = desk.create("ann", &format!("{shop}/tickets"), &ticket("of ann"));
        assert_eq!(desk.status("bob", &format!("POST {site}/tickets"), &ticket("no")), 404);
        assert_eq!(desk.status("eve", &format!("GET {of_bob}"), &Value::Null), 404);
        let close = json!({"ticket": {"status": "closed"}});
        assert_eq!(desk.status("bob", &format!("PATCH {of_ann}"), &close), 404);
        assert_eq!(desk.status("bob", &format!("PATCH {of_bob}"), &close), 200);
        assert_eq!(desk.status("ann", &format!("PATCH {of_bob}"), &json!({"ticket": {"status": "open"}})), 200);
        // Tickets are assigned to agents of their own project, whoever does it.
        for (assignee, expected) in [(&agent, 200), (&guest, 422), (&stranger, 422)] {
            for name in ["ann", "admin"] {
                let body = json!({"ticket": {"assignee": assignee}});
                assert_eq!(desk.status(name, &format!("PATCH {of_ann}"), &body), expected, "{name} {assignee}");
            }
        }
        // Guests see no internal comments, not even one that they have just sent.
        let comment = |text: &str, internal: bool| json!({"comment": {"text": text, "internal": internal}});
        let comments = format!("{of_bob}/comments");
        desk.create("ann", &comments, &comment("public", false));
        desk.create("ann", &comments, &comment("internal", true));
        let sent = desk.send("bob", &format!("POST {comments}"), &[], &comment("secret", true));
        assert_eq!((sent.status, sent.text()), (201, ""), "{sent:?}");
        assert_eq!(values(&desk.get("bob", &comments), "comments", "text"), ["public"]);
        assert_eq!(values(&desk.get("ann", &format!("{comments}?sort=created_at")), "comments", "text"), ["public", "internal", "secret"]);
        assert_eq!(values(&desk.get("eve", "/comments"), "comments", "text"), [] as [Value; 0]);
    }
}
