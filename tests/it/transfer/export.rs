//! `nouns export`: the bytes of an export over HTTP, and files that are complete or absent.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::*;

on_every_backend! {
    fn export_command_writes_the_bytes_of_an_export_over_http(shop: Shop) {
        let ann = shop.customer("ann");
        shop.customer("bea");
        for price in ["1.50", "2.00"] {
            let body = format!(r#"{{"order":{{"price":{price},"tags":["a\"b","ü"],"count":3}}}}"#);
            shop.server.create(&format!("{ann}/orders"), body);
        }
        shop.succeeds(&["export", "customer", "all.csv"], "nouns: wrote 2 customers into all.csv");
        shop.succeeds(&["export", "order", "orders.ndjson"], "nouns: wrote 2 orders into orders.ndjson");
        let list = |path: &str, accept: &str| {
            shop.server.request(&format!("GET {path}"), &[("Accept", accept)], "").text().to_owned()
        };
        assert_eq!(shop.read("all.csv"), list("/customers", "text/csv"));
        assert_eq!(shop.read("orders.ndjson"), list(&format!("{ann}/orders"), "application/x-ndjson"));
        // Without a file, and with another name for it.
        let printed = shop.run(&["export", "customer"]);
        assert_eq!(printed.stdout, list("/customers", "application/x-ndjson"));
        let printed = shop.run(&["export", "customer", "-", "--format", "csv"]);
        assert_eq!((printed.stdout, printed.stderr), (shop.read("all.csv"), String::new()));
        // Those of all parents, in the order of ids.
        let bea = shop.customer("cle");
        shop.server.create(&format!("{bea}/orders"), r#"{"order":{"price":9}}"#);
        let all = shop.run(&["export", "order", "--format", "csv"]).stdout;
        assert_eq!(all.lines().count(), 4, "{all}");
        assert!(all.starts_with("id,customer_id,status,price,count,total,tags,due,created_at,updated_at,version\r\n"));
    }

    fn export_command_never_replaces_a_file_unless_forced(shop: Shop) {
        shop.customer("ann");
        shop.write("old.csv", "mine");
        shop.refuses(&["export", "customer", "old.csv"], "nouns: old.csv exists; --force replaces it, when all is written");
        assert_eq!(shop.read("old.csv"), "mine");
        shop.succeeds(&["export", "customer", "old.csv", "--force"], "nouns: wrote 1 customer into old.csv");
        assert!(shop.read("old.csv").contains("ann@example.com"));
        fs::create_dir(shop.server.folder().join("folder.csv")).unwrap();
        shop.refuses(
            &["export", "customer", "folder.csv", "--force"],
            "nouns: folder.csv is not a file; write to standard output instead: nouns export RESOURCE > folder.csv",
        );
        assert!(!shop.exists("old.csv.part") && !shop.exists("folder.csv.part"));
        shop.refuses(
            &["export", "customer", "model.toml", "--force", "--format", "csv"],
            "nouns: model.toml is the model, and is not overwritten; name another file",
        );
        // One that was interrupted.
        shop.write("new.csv.part", "half");
        shop.refuses(
            &["export", "customer", "new.csv"],
            "nouns: new.csv.part exists: an export was interrupted; --force replaces it",
        );
        assert_eq!((shop.read("new.csv.part").as_str(), shop.exists("new.csv")), ("half", false));
        shop.succeeds(&["export", "customer", "new.csv", "--force"], "nouns: wrote 1 customer into new.csv");
        assert!(!shop.exists("new.csv.part"));
    }

    /// Regression: with `--force` it wrote through a link, waited for the reader of a pipe, and wrote the file of another export.
    fn export_command_with_force_replaces_only_a_file_that_nobody_writes(shop: Shop) {
        shop.customer("ann");
        let part = shop.server.folder().join("new.csv.part");
        shop.write("mine.txt", "mine");
        std::os::unix::fs::symlink("mine.txt", &part).unwrap();
        let arguments = ["export", "customer", "new.csv", "--force"];
        let is_no_file = "nouns: new.csv.part is not a file; move it away, or name another file";
        shop.refuses(&arguments, is_no_file);
        assert_eq!(shop.read("mine.txt"), "mine");
        fs::remove_file(&part).unwrap();
        assert!(Command::new("mkfifo").arg(&part).status().unwrap().success());
        shop.refuses(&arguments, is_no_file);
        fs::remove_file(&part).unwrap();
        let other = fs::File::create(&part).unwrap();
        other.lock().unwrap();
        shop.refuses(&arguments, "nouns: another process is writing new.csv.part; wait until it is done, or name another file");
        // A copy of the descriptor in a process that another test is starting would keep the lock of a closed one.
        other.unlock().unwrap();
        shop.succeeds(&arguments, "nouns: wrote 1 customer into new.csv");
        assert_eq!(shop.read("mine.txt"), "mine");
    }

    fn export_command_refuses_what_it_does_not_know(shop: Shop) {
        for (name, hint) in [
            ("customers", "did you mean customer?"),
            ("ordr", "did you mean order?"),
            ("user", "the model has: customer, order, parcel, review"),
        ] {
            shop.refuses(&["export", name], &format!("nouns: there is no resource {name} in the model; {hint}"));
        }
        shop.refuses(
            &["export", "customer", "all.txt"],
            "nouns: the format of all.txt is not known by its ending; say --format csv or --format ndjson",
        );
        let database = shop.server.database();
        shop.write("other.toml", "title = \"T\"\n[resources.customer.fields]\nnick = { type = \"text\" }\n");
        let arguments = ["export", "customer", "--model", "other.toml", "--database", &database];
        let ended = run_nouns(shop.server.folder(), &arguments);
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains("belong to another model; name its file with --model"), "{ended:?}");
    }

    /// Rows that are deleted after it has begun are in it.
    fn export_command_reads_one_snapshot(shop: Shop) {
        shop.write("new.csv", &customers(10_000));
        shop.succeeds(&["import", "customer", "new.csv"], "nouns: created 10,000 customers from new.csv");
        let mut command = Command::new(EXECUTABLE);
        command.args(shop.arguments(&["export", "customer"])).env_clear();
        command.current_dir(shop.server.folder()).stdout(Stdio::piped());
        let mut export = command.spawn().unwrap();
        let mut lines = BufReader::new(export.stdout.take().unwrap()).lines();
        // The pipe is full before the export has read all pages.
        assert!(lines.next().unwrap().unwrap().contains("n0@example.com"));
        shop.sql("DELETE FROM customers");
        assert_eq!(lines.count(), 9_999);
        assert!(export.wait().unwrap().success());
        assert_eq!(shop.run(&["export", "customer"]).stdout, "");
    }

    /// A stored value that is damaged ends the export, and leaves no file.
    fn export_command_that_fails_leaves_no_file(shop: Shop) {
        shop.customer("ann");
        let damage = match shop.server.backend() {
            Backend::Sqlite => "UPDATE customers SET updated_at = 'never'",
            Backend::Postgres => "ALTER TABLE customers DROP COLUMN vip",
        };
        shop.sql(damage);
        let ended = shop.run(&["export", "customer", "all.csv"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.stderr.starts_with("nouns: cannot read "), "{ended:?}");
        assert!(!shop.exists("all.csv") && !shop.exists("all.csv.part"));
    }
}

#[test]
fn export_command_without_a_database_creates_none() {
    let folder = crate::harness::Folder::new();
    let ended = run_nouns(folder.path(), &["export", "customer", "all.csv"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("there is no database nouns.db"), "{ended:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
