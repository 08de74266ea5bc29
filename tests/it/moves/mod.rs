//! `nouns move`: a filled database is moved to the other engine and back, and is the same to the byte; killed at each
//! step, the target is empty or complete.

mod interrupted;
mod refusals;
mod round_trip;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{
    Answer, Backend, EXECUTABLE, FinishedProcess, Folder, Person, Process, Server, Setup, run_sql,
    wait_until,
};

/// Every type of field, nested resources, references and both kinds of ids.
const MODEL: &str = r#"
title = "Shop"

[resources.customer.fields]
name = { type = "text", required = true, max_length = 40, filter = true, match = true, order = "unicode" }
email = { type = "email", unique = true }
site = { type = "url" }
vip = { type = "boolean", default = false, filter = true }
born = { type = "date", nullable = true }
seen = { type = "timestamp", filter = true }
token = { type = "uuid" }
score = { type = "number", filter = true }
address = { type = "object", fields = { street = { type = "text" }, number = { type = "integer" } } }
tags = { type = "list", of = { type = "text" } }
extra = { type = "json", nullable = true }

[resources.order]
parent = "customer"
on_delete = "cascade"
[resources.order.fields]
status = { type = "state", initial = "placed", next = { placed = ["paid"], paid = ["shipped"], shipped = [] } }
price = { type = "decimal", scale = 2, required = true, filter = true }
count = { type = "integer", default = 1 }
total = { type = "decimal", scale = 2, computed = "price * count" }

[resources.parcel]
parent = "order"
id = "integer"
on_delete = "cascade"
[resources.parcel.fields]
code = { type = "text", required = true, unique = "parent" }

[resources.review]
id = "integer"
changes = "ids"
[resources.review.fields]
customer = { type = "ref", to = "customer", on_delete = "cascade" }
after = { type = "ref", to = "review" }
parcel = { type = "ref", to = "parcel", on_delete = "cascade" }

[roles.clerk]
"*" = ["get", "post"]
"#;

fn other(backend: Backend) -> Backend {
    match backend {
        Backend::Sqlite => Backend::Postgres,
        Backend::Postgres => Backend::Sqlite,
    }
}

/// Runs `nouns` with these arguments.
fn run(executable: &str, folder: &Path, arguments: &[&str], fault: &str) -> FinishedProcess {
    let mut command = Command::new(executable);
    command.args(arguments).env_clear().current_dir(folder);
    if !fault.is_empty() {
        command.env("NOUNS_FAULT", fault);
    }
    Process::spawn(&mut command).end()
}

/// A database that is filled, or to be filled, and its folder.
struct Place {
    backend: Backend,
    folder: Folder,
}

impl Place {
    /// An empty database.
    fn new(backend: Backend) -> Self {
        Self { backend, folder: Folder::new() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The value of `--database`.
    fn database(&self) -> String {
        self.backend.database(&self.folder, "nouns.db")
    }

    fn sql(&self, text: &str) -> String {
        run_sql(self.backend, self.path(), text)
    }

    /// Moves it to another place.
    fn try_move(&self, to: &Self) -> FinishedProcess {
        self.move_with_fault(to, EXECUTABLE, "")
    }

    fn move_with_fault(&self, to: &Self, executable: &str, fault: &str) -> FinishedProcess {
        let (from, to) = (self.database(), to.database());
        run(executable, self.path(), &["move", "--database", &from, "--to", &to], fault)
    }

    #[track_caller]
    fn move_to(&self, to: &Self) -> String {
        let ended = self.try_move(to);
        // The key of a database on PostgreSQL is not beside it.
        let is_fine = ended.stderr.is_empty() || ended.stderr.contains("needs the same key");
        assert!(ended.code == Some(0) && is_fine, "{ended:?}");
        self.mask(to, &ended.stdout)
    }

    /// Replaces the addresses of both places.
    fn mask(&self, to: &Self, text: &str) -> String {
        let mut text = text.to_owned();
        for (place, name) in [(self, "SOURCE"), (to, "TARGET")] {
            let database = place.database();
            let shown = database.strip_prefix("sqlite:").unwrap_or(&database);
            text = text.replace(&database, name).replace(shown, name);
        }
        text.replace(self.path().to_str().unwrap(), "FOLDER")
    }

    /// A server with the key of the first place.
    fn serve(self, key: &Path) -> Server {
        let setup = Setup::new(self.backend).model(MODEL).key_file(key.to_owned());
        setup.start_in(self.folder)
    }

    /// Whether it holds nothing.
    fn is_empty(&self) -> bool {
        match self.backend {
            Backend::Sqlite => !self.path().join("nouns.db").exists(),
            Backend::Postgres => {
                self.database();
                let count =
                    "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
                self.sql(count).trim() == "0"
            }
        }
    }

    /// All tables and their rows.
    fn dump(&self) -> String {
        let mut all = crate::schema_changes::schema(self.backend, self.path());
        let tables = match self.backend {
            Backend::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name",
            Backend::Postgres => {
                "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() ORDER BY 1"
            }
        };
        for table in self.sql(tables).lines() {
            let rows = self.sql(&format!("SELECT * FROM \"{table}\" ORDER BY 1"));
            let _ = writeln!(all, "{table}\n{rows}");
        }
        all
    }
}

/// What a client sees: every page of every list, every item and the whole change log.
type Contents = BTreeMap<String, String>;

/// A running server, and the credentials of its first user.
struct Session<'a> {
    server: &'a Server,
    login: String,
}

impl Session<'_> {
    fn request(&self, line: &str, body: &str) -> Answer {
        self.server.request(line, &[("Authorization", &self.login)], body)
    }

    #[track_caller]
    fn create(&self, path: &str, name: &str, members: &Value) -> (String, Value) {
        let answer = self.request(&format!("POST {path}"), &json!({name: members}).to_string());
        assert_eq!(answer.status, 201, "{answer:?}");
        (answer.header("Location").unwrap().to_owned(), answer.json()[name].clone())
    }

    #[track_caller]
    fn succeed(&self, line: &str, body: &str) {
        let answer = self.request(line, body);
        assert!((200..300).contains(&answer.status), "{line}: {answer:?}");
    }

    /// A response without what belongs to the request.
    fn read(&self, path: &str, seen: &mut Contents) -> Value {
        let mut answer = self.request(&format!("GET {path}"), "");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.headers.retain(|(name, _)| !["date", "x-request-id"].contains(&&**name));
        seen.insert(path.to_owned(), answer.to_string());
        answer.json()
    }

    /// Reads all pages of a list.
    fn read_list(&self, path: &str, seen: &mut Contents) -> Vec<Value> {
        let (mut items, mut next) = (Vec::new(), format!("{path}?limit=7"));
        let name = path.rsplit('/').next().unwrap();
        loop {
            let page = self.read(&next, seen);
            items.extend(page[name].as_array().unwrap().iter().cloned());
            let Some(cursor) = page["page"]["next"].as_str() else { return items };
            next = format!("{path}?limit=7&cursor={cursor}");
        }
    }

    fn read_items(&self, path: &str, children: &[&[&str]], seen: &mut Contents) {
        for item in self.read_list(path, seen) {
            let id = item["id"].as_str().map_or_else(|| item["id"].to_string(), str::to_owned);
            let item = format!("{path}/{id}");
            self.read(&item, seen);
            if let Some((names, deeper)) = children.split_first() {
                for name in *names {
                    self.read_items(&format!("{item}/{name}"), deeper, seen);
                }
            }
        }
    }

    fn contents(&self) -> Contents {
        let mut seen = Contents::new();
        self.read_items("/customers", &[&["orders"], &["parcels"]], &mut seen);
        self.read_items("/reviews", &[], &mut seen);
        self.read_items("/-/users", &[], &mut seen);
        self.read_items("/-/webhooks", &[&["deliveries"]], &mut seen);
        self.read_list("/-/changes", &mut seen);
        for list in ["/customers?sort=-score", "/customers?vip=true", "/customers?name:gte=M"] {
            self.read(list, &mut seen);
        }
        seen
    }

    /// Items of all kinds, some of them changed or deleted again.
    fn fill(&self) {
        let (ann, first) = self.create("/customers", "customer", &json!({
            "name": "Ann \u{1f680} O'Neill \"x\"", "email": "ann@example.com", "site": "https://example.com/?a=b#c",
            "vip": true, "born": "1999-12-31", "seen": "2026-11-15T02:28:14.123456Z",
            "token": "0190163d-8694-739b-aea5-966c26f8ad91", "score": -1.5e-300,
            "address": {"street": "Main\n\\ Street", "number": 9_007_199_254_740_991_i64},
            "tags": ["a", "", "ü"], "extra": {"z": 1, "a": [true, null, 1.25, "\u{1}"]},
        }));
        for name in ["Bea", "ÄÖ", "zoe", "Zoe"] {
            self.create(
                "/customers",
                "customer",
                &json!({"name": name, "born": null, "extra": null, "score": 0.1}),
            );
        }
        let orders = format!("{ann}/orders");
        for (price, count) in [("0.01", 1), ("123456789012.34", 2), ("-5.00", 3)] {
            let (order, _) =
                self.create(&orders, "order", &json!({"price": price, "count": count}));
            for code in ["a", "b"] {
                self.create(&format!("{order}/parcels"), "parcel", &json!({"code": code}));
            }
            self.succeed(&format!("PATCH {order}"), r#"{"order":{"status":"paid"}}"#);
        }
        let (review, stored) =
            self.create("/reviews", "review", &json!({"customer": first["id"], "parcel": 1}));
        self.create("/reviews", "review", &json!({"after": stored["id"]}));
        self.succeed(&format!("PATCH {review}"), r#"{"review":{"after":1}}"#);
        // The largest number is not used again.
        let (last, _) = self.create("/reviews", "review", &json!({}));
        self.succeed(&format!("DELETE {last}"), "");
        let (gone, _) = self.create(
            "/customers",
            "customer",
            &json!({"name": "Gone", "email": "gone@example.com"}),
        );
        let (order, _) = self.create(&format!("{gone}/orders"), "order", &json!({"price": "1.00"}));
        self.create(&format!("{order}/parcels"), "parcel", &json!({"code": "x"}));
        self.succeed(&format!("DELETE {gone}"), "");
        let hook =
            json!({"url": "https://example.com/hook", "events": ["customer.*"], "enabled": false});
        self.create("/-/webhooks", "webhook", &hook);
    }
}

/// A filled server with a second user, a clerk.
fn filled(backend: Backend) -> (Server, [Person; 2]) {
    let server = Setup::new(backend).model(MODEL).with_authentication().start();
    let admin = server.admin();
    let clerk = Person::new("clara", "correct horse battery");
    server.add_user(&clerk, &["clerk"]);
    Session { server: &server, login: admin.basic() }.fill();
    let positions = "SELECT count(*) FROM nouns_webhook_positions";
    wait_until("the webhook has its position", || {
        (run_sql(backend, server.folder(), positions).trim() == "1").then_some(())
    });
    (server, [admin, clerk])
}
