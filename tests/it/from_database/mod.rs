//! `nouns init --from-database`: models of existing tables on both engines, which `nouns check` accepts, and their rows,
//! exported by `sqlite3` and `psql` with the statements of the model file, and imported.

mod postgres;
mod schemas;

use std::fs;
use std::path::Path;
use std::process::Command;

use expect_test::expect;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::harness::{
    Backend, FinishedProcess, Folder, Process, Server, Setup, run_nouns, run_sql,
};

/// A database of another program. Its SQLite file is `nouns.db` in its folder, like that of a server.
struct OtherDatabase {
    backend: Backend,
    folder: Folder,
}

impl OtherDatabase {
    fn new(backend: Backend, sql: &str) -> Self {
        let folder = Folder::new();
        backend.database(&folder, "nouns.db");
        let binary = if backend == Backend::Sqlite { "BLOB" } else { "BYTEA" };
        let sql = sql.replace("BINARY", binary);
        match backend {
            _ if sql.is_empty() => {}
            Backend::Sqlite => {
                let connection = Connection::open(folder.path().join("nouns.db")).unwrap();
                connection.execute_batch(&sql).unwrap();
            }
            Backend::Postgres => drop(run_sql(backend, folder.path(), &sql)),
        }
        Self { backend, folder }
    }

    fn url(&self) -> String {
        self.backend.database(&self.folder, "nouns.db")
    }

    fn init(&self, place: &Path) -> FinishedProcess {
        run_nouns(place, &["init", "--from-database", &self.url()])
    }

    /// The model that is written, after `nouns check` has accepted it, and what was printed.
    #[track_caller]
    fn infer(&self) -> InferredFile {
        let place = Folder::new();
        let ended = self.init(place.path());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let text = fs::read_to_string(place.path().join("nouns.toml")).unwrap();
        let checked = run_nouns(place.path(), &["check"]);
        assert_eq!(checked.code, Some(0), "{checked:?}\n{text}");
        InferredFile { text, said: ended.stdout + &ended.stderr }
    }

    /// The rows of a statement as CSV, by the program of the engine.
    fn export(&self, select: &str, file: &Path) {
        let mut command = match self.backend {
            Backend::Sqlite => {
                let mut command = Command::new("sqlite3");
                command
                    .args(["-readonly", "-csv", "-header"])
                    .arg(self.folder.path().join("nouns.db"));
                command.arg(select);
                command
            }
            Backend::Postgres => {
                let mut command = Command::new("psql");
                command.args(["-X", "-q", "-d", &self.url(), "-c"]);
                command.arg(format!("COPY ({select}) TO STDOUT CSV HEADER"));
                command
            }
        };
        let ended = Process::spawn(&mut command).end();
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{select}");
        fs::write(file, ended.stdout).unwrap();
    }
}

struct InferredFile {
    text: String,
    said: String,
}

impl InferredFile {
    /// The rest of the comment that begins like this.
    fn comment(&self, start: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.strip_prefix("# ")?.strip_prefix(start))
    }

    /// Serves the model on an empty database, with all rows imported.
    fn import_all(&self, from: &OtherDatabase) -> Server {
        let server = Setup::new(from.backend).model(&self.text).start();
        let database = server.database();
        let order: Vec<&str> = self.comment("import order: ").unwrap().split(' ').collect();
        for (word, flags) in [("rows", &[][..]), ("references", &["--upsert", "id"])] {
            for resource in &order {
                let Some(select) = self.comment(&format!("{word} of {resource}: ")) else {
                    continue;
                };
                let file = format!("{resource}.{word}.csv");
                from.export(select, &server.folder().join(&file));
                let mut arguments = vec!["import", resource, &file, "--model", "model.toml"];
                arguments.extend(["--database", &database]);
                arguments.extend(flags);
                let ended = run_nouns(server.folder(), &arguments);
                assert_eq!(ended.code, Some(0), "{select}\n{ended:?}");
            }
        }
        server
    }
}

/// The item at a path, without the members of every item.
fn item(server: &Server, path: &str) -> Value {
    let answer = server.get(path);
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    let mut item = answer.json().as_object().unwrap().values().next().unwrap().clone();
    for name in ["created_at", "updated_at", "version"] {
        item.as_object_mut().unwrap().remove(name);
    }
    item
}

fn count(server: &Server, path: &str) -> usize {
    let name = path.trim_start_matches('/');
    server.get(&format!("{path}?limit=500")).json()[name].as_array().unwrap().len()
}

/// The model without its statements, which differ between the engines, and its title, which is the name of the database.
fn without_statements(file: &InferredFile) -> String {
    let starts = ["# rows of", "# references of", "title = "];
    let is_shown = |line: &&str| !starts.iter().any(|start| line.starts_with(start));
    file.text.lines().filter(is_shown).map(|line| format!("{line}\n")).collect()
}

on_every_backend! {
    /// Names in camel case, references in a circle and to rows of the same table, a table between two others.
    fn init_from_a_database_of_music_and_import_of_its_rows(backend: Backend) {
        let other = OtherDatabase::new(backend, schemas::MUSIC);
        let file = other.infer();
        assert!(file.said.starts_with("wrote nouns.toml with 9 resources and "), "{}", file.said);
        let server = file.import_all(&other);
        assert_eq!(item(&server, "/tracks/2"), json!({
            "id": 2, "name": "Balls, \"to\" the Wall", "album": 2, "milliseconds": 342_562, "unit_price": "0.99",
        }));
        assert_eq!(item(&server, "/employees/2")["reports_to"], json!(1));
        assert_eq!(item(&server, "/employees/1").get("reports_to"), Some(&json!(3)));
        assert_eq!(item(&server, "/invoices/1")["invoice_date"], json!("2009-01-01T10:30:00.000000Z"));
        assert_eq!(item(&server, "/customers/1"), json!({
            "id": 1, "first_name": "", "last_name": "Gonçalves\nLuís", "email": "luis@example.com", "support_rep": 3, "active": true,
        }));
        let playlist = server.get("/playlist_tracks").json()["playlist_tracks"].clone();
        assert_eq!(playlist.as_array().unwrap().len(), 3, "{playlist}");
        let lines = server.get("/invoices/1/invoice_lines").json();
        assert_eq!(lines["invoice_lines"].as_array().unwrap().len(), 2, "{lines}");
        // Keys that were unique together are so here, and a new item gets the next number.
        let again = json!({"playlist_track": {"playlist": 1, "track": 1}});
        assert_eq!(server.post("/playlist_tracks", again.to_string()).problem(), "taken");
        assert_eq!(server.create("/artists", r#"{"artist":{"name":"New"}}"#), "/artists/3");
    }

    fn init_from_a_database_of_a_shop_has_notes(backend: Backend) {
        let other = OtherDatabase::new(backend, schemas::SHOP);
        let file = other.infer();
        // The engines have other words for the same.
        let words = [("bytea", "BLOB"), ("interval is", "INTERVAL is"), ("((name)::text <> (kind)::text)", "name <> kind")];
        let seen = format!("{}---\n{}", without_statements(&file), file.said.lines().next().unwrap());
        let seen = words.iter().fold(seen, |seen, (from, to)| seen.replace(from, to));
        expect![[r##"
            # Made by nouns init --from-database. Lines with "note:" say what does not fit, or is not as it was.
            #
            # To copy the rows, export the SELECT after "rows of" as CSV, and import it with: nouns import RESOURCE FILE
            # Those after "references of" come last, with: nouns import RESOURCE FILE --upsert id
            # import order: category customer log order product order_detail return shipment
            # note: big_orders: a view; it is left out


            # The table categories
            # note: picture: nouns stores no BLOB; it is left out
            [resources.category]
            id = "integer"

            [resources.category.fields]
            name = { type = "text", max_length = 15, required = true, unique = true }

            # The table customers
            # note: customer_id: the key is no number and no UUID; it is a unique field, and items get new ids
            # note: created_at: its default CURRENT_TIMESTAMP cannot be in a model; it is not required
            [resources.customer]

            [resources.customer.fields]
            customer_id = { type = "text", max_length = 5, required = true, unique = true }
            company_name = { type = "text", max_length = 40, required = true }
            original_created_at = { type = "timestamp" }

            # The table log
            # note: it has no primary key; its items get new ids
            [resources.log]

            [resources.log.fields]
            message = { type = "text" }

            # The table order_details
            # order_id names the parent: a row cannot be without it, and is deleted with it
            # note: its key has several columns (order_id, product_id); they are unique together, and items get new ids
            [resources.order_detail]
            parent = "order"
            on_delete = "cascade"

            [resources.order_detail.fields]
            product = { type = "ref", to = "product", required = true, unique = "parent" }
            quantity = { type = "integer", default = 1 }

            # The table orders
            # note: customer_id: it refers to customers by a value that is no id there; it is a plain field
            # note: freight: its digits are not limited; here it has at most 18, and at most 9 of them after the point
            [resources.order]
            id = "integer"

            [resources.order.fields]
            customer_id = { type = "text", max_length = 5, required = true }
            freight = { type = "decimal", scale = 9 }

            # The table products
            # note: CHECK (name <> kind) cannot be in a model, or not all of it
            # note: the unique index products_live is about expressions or some rows only; a model cannot have it
            [resources.product]
            id = "integer"

            [resources.product.fields]
            name = { type = "text", max_length = 40, required = true, filter = true }
            category = { type = "ref", to = "category" }
            unit_price = { type = "decimal", scale = 2, default = "0", min = "0" }
            discontinued = { type = "boolean", required = true }
            kind = { type = "text", max_length = 10, required = true, one_of = ["food", "drink"] }
            stock = { type = "integer", min = 0, max = 1000 }

            # The table returns
            # note: category_id: deleting the other row sets it to its default; here that is refused
            # note: clerk_id: deleting the other row sets it to NULL, which it cannot be; here that is refused
            [resources.return]
            id = "integer"

            [resources.return.fields]
            order = { type = "ref", to = "order", on_delete = "clear" }
            category = { type = "ref", to = "category", required = true }
            clerk = { type = "ref", to = "category", required = true }
            reason = { type = "text", max_length = 10, required = true }

            # The table shipments
            # note: took: INTERVAL is a text in the model
            # note: order_id, product_id: they refer to order_details together; they are plain fields
            [resources.shipment]
            id = "integer"

            [resources.shipment.fields]
            order_id = { type = "integer" }
            product_id = { type = "integer" }
            took = { type = "text" }
            ---
            wrote nouns.toml with 8 resources and 14 notes on what does not fit; look at it, then serve it with: nouns serve"##]].assert_eq(&seen);
        let notes = file.said.lines().filter(|line| line.starts_with("nouns: note: ")).count();
        assert_eq!(notes, file.text.matches("# note: ").count());
        let server = file.import_all(&other);
        assert_eq!(count(&server, "/customers"), 2);
        assert_eq!(item(&server, "/products/1"), json!({
            "id": 1, "name": "Chai", "unit_price": "18.00", "discontinued": false, "kind": "drink", "stock": 39,
        }));
        assert_eq!(item(&server, "/orders/1")["customer_id"], json!("ALFKI"));
    }

    fn init_from_a_database_with_hostile_names_is_a_valid_model(backend: Backend) {
        let other = OtherDatabase::new(backend, schemas::HOSTILE);
        let file = other.infer();
        assert_eq!(names(&file), HOSTILE_NAMES);
        for line in file.said.lines() {
            assert!(line.starts_with("nouns: note: ") || line.starts_with("wrote nouns.toml"), "{line}");
        }
        // The model can be served, and the tables that it was made from are still there.
        Setup::new(backend).model(&file.text).start();
        assert_eq!(other.infer().text, file.text);
    }

    fn init_from_a_database_without_tables_is_refused(backend: Backend) {
        let place = Folder::new();
        let refuse = |other: &OtherDatabase| {
            let ended = other.init(place.path());
            assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{ended:?}");
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
            let url = other.url();
            ended.stderr.replace(url.strip_prefix("sqlite:").unwrap_or(&url), "DATABASE")
        };
        let none = OtherDatabase::new(backend, "");
        let said = refuse(&none);
        let expected = match backend {
            Backend::Sqlite => "nouns: there is no database DATABASE; name one with tables\n",
            Backend::Postgres => "nouns: DATABASE has no tables to make a model from; start from an example: nouns init\n",
        };
        assert_eq!(said, expected);
        let views = OtherDatabase::new(backend, "CREATE VIEW v AS SELECT 1 AS x");
        assert_eq!(refuse(&views), "nouns: DATABASE has no tables to make a model from; start from an example: nouns init\n");
        let ours = OtherDatabase { backend, folder: Server::on(backend).stop() };
        assert_eq!(refuse(&ours), "nouns: DATABASE is a database of nouns: serve it with its model file\n");
    }
}

/// Of `schemas::HOSTILE`, in alphabetical order.
const HOSTILE_NAMES: &str = "\
a_roles_anyone: tab x_y_1 z_drop_table_order
empty:
n2_3: column_2 n4
order: original_created_at original_created_at_2 original_version select
order_2: original_order
page:
t_with_a_name_that_is_longer_than_fo_2: original_id
t_with_a_name_that_is_longer_than_fort: c_with_a_name_that_is_longer_than_fort_2 c_with_a_name_that_is_longer_than_forty
table_9: column_1 n2
";

/// The names of resources and fields alone.
fn names(file: &InferredFile) -> String {
    let model: toml::Table = file.text.parse().unwrap();
    let resources = model["resources"].as_table().unwrap();
    let lines = resources.iter().map(|(name, resource)| {
        let fields = resource["fields"].as_table().unwrap().keys();
        let line = format!("{name}: {}", fields.cloned().collect::<Vec<_>>().join(" "));
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

#[test]
fn init_from_a_database_refuses_wrong_flags_and_an_existing_model() {
    let place = Folder::new();
    let said = |arguments: &[&str]| {
        let ended = run_nouns(place.path(), arguments);
        assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{ended:?}");
        ended.stderr
    };
    fs::write(
        place.path().join("letter.db"),
        "a letter, and no database at all, although its name says so",
    )
    .unwrap();
    let all = [
        said(&["init", "--from-database", "mysql://x/y"]),
        said(&["init", "--from-database", "postgres://ann:secret@db.example/nouns"]),
        said(&["init", "--from-database", "sqlite:letter.db"]),
        said(&["init", "--from-database", "sqlite:letter.db", "--from", "store"]),
    ];
    expect![[r#"
        nouns: --from-database: expected sqlite:PATH or postgres://…, got "mysql:…"
        nouns: a password in --from-database can be read by everyone on this machine; leave it out there, and set PGPASSWORD to the password, or put it into ~/.pgpass
        nouns: letter.db is not an SQLite database; name another --from-database
        error: the argument '--from-database <DATABASE>' cannot be used with '--from <EXAMPLE>'

        Usage: nouns init --from-database <DATABASE>

        For more information, try '--help'.
    "#]].assert_eq(&all.concat());
    fs::write(place.path().join("nouns.toml"), "mine").unwrap();
    let other =
        OtherDatabase::new(Backend::Sqlite, "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)");
    let ended = other.init(place.path());
    assert_eq!(
        ended.stderr,
        "nouns: nouns.toml exists already, and is not overwritten; move it away first\n"
    );
    assert_eq!(fs::read_to_string(place.path().join("nouns.toml")).unwrap(), "mine");
    // The file of the other program has no new neighbours.
    let names = fs::read_dir(other.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["nouns.db"]);
}

/// Texts as SQLite's own functions do not know them: microseconds, and a column that ignores case.
#[test]
fn init_from_sqlite_keeps_microseconds_and_notes_columns_that_ignore_case() {
    let other = OtherDatabase::new(
        Backend::Sqlite,
        "CREATE TABLE visit (id INTEGER PRIMARY KEY, at DATETIME, who TEXT UNIQUE COLLATE NOCASE);
         INSERT INTO visit VALUES (1, '2026-11-15 02:28:14.123456', 'Ann'), (2, '2026-11-15T03:28:59.999999+01:00', 'Bob'),
           (3, '2026-11-15 02:28:14.5', 'Cem'), (4, 1763173694, 'Dia'), (5, '2026-11-15', 'Eve')",
    );
    let file = other.infer();
    assert!(file.comment("note: who: it is unique there without regard to case").is_some());
    let server = file.import_all(&other);
    let visits = server.get("/visits").json()["visits"].clone();
    let times: Vec<&str> =
        visits.as_array().unwrap().iter().map(|visit| visit["at"].as_str().unwrap()).collect();
    assert_eq!(
        times,
        [
            "2026-11-15T02:28:14.123456Z",
            "2026-11-15T02:28:59.999999Z",
            "2026-11-15T02:28:14.500000Z",
            "2025-11-15T02:28:14.000000Z",
            "2026-11-15T00:00:00.000000Z"
        ]
    );
}
