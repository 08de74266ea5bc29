//! `nouns import`: new items with their entries in the change log, and the faults of lines.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use super::*;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

on_every_backend! {
    fn import_creates_items_with_defaults_computed_fields_and_change_log_entries(shop: Shop) {
        let ann = shop.customer("ann");
        let id = ann.rsplit('/').next().unwrap();
        shop.write("orders.csv", &format!(
            "\u{feff}tags,price,customer_id,due,count\r\n\"[\"\"a\"\",\r\n\"\"b\"\"]\",1.25,{id},2026-11-17,4\r\n\r\n,3,{id},,\r\n"
        ));
        shop.succeeds(&["import", "order", "orders.csv"], "nouns: created 2 orders from orders.csv");
        let list = shop.server.get(&format!("{ann}/orders")).json();
        let found: Vec<_> = list["orders"].as_array().unwrap().iter().map(|order| {
            ["customer_id", "status", "price", "count", "total", "tags", "due", "version"].map(|name| order[name].to_string()).join(" ")
        }).collect();
        let expected = [
            format!(r#""{id}" "placed" "1.25" 4 "5.00" ["a","b"] "2026-11-17" 1"#),
            format!(r#""{id}" "placed" "3.00" 1 "3.00" null null 1"#),
        ];
        assert_eq!(found, expected);
        let log = lines(&run_nouns(shop.server.folder(), &["changes", "--since", "1", "--database", &shop.server.database()]).stdout);
        assert_eq!(log.len(), 2, "{log:?}");
        for (entry, order) in log.iter().zip(list["orders"].as_array().unwrap()) {
            assert_eq!((&entry["kind"], &entry["actor"], &entry["resource"]), (&"created".into(), &"command line".into(), &"order".into()));
            assert_eq!(entry["subject"], format!("{ann}/orders/{}", order["id"].as_str().unwrap()));
            assert_eq!(entry["after"], *order);
            assert_eq!(entry["request_id"], log[0]["request_id"]);
        }
    }

    fn import_names_every_fault_with_its_line_and_writes_nothing(shop: Shop) {
        shop.write("bad.ndjson", concat!(
            "{\"name\":\"Ann\",\"email\":\"ann@example.com\"}\n",
            "\n",
            "{\"name\":\"Bea\",\"email\":\"bea\",\"nick\":1}\n",
            "{\"name\":\"Cle\"\n",
            "[1]\n",
            "{\"email\":\"dan@example.com\",\"vip\":\"yes\"}\n",
        ));
        let message = "nouns: bad.ndjson: 6 faults, nothing was imported
  line 3: email: expected an e-mail address, got \"bea\"
  line 3: nick: no such field
  line 4: column 14: expected `,` or `}`, got the end
  line 5: expected an object, got a list
  line 6: vip: expected a boolean, got a string
  line 6: name: expected a text, got nothing";
        let ended = shop.run(&["import", "customer", "bad.ndjson"]);
        let shown = ended.stderr.trim_end();
        assert_eq!((ended.code, shown.lines().count()), (Some(2), 7), "{shown}");
        let starts = |text: &str| text.lines().map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(": ")).collect::<Vec<_>>();
        assert_eq!(starts(shown)[..3], starts(message)[..3], "{shown}");
        for line in [4, 5] {
            assert!(shown.contains(&format!("\n  line {line}: ")), "{shown}");
        }
        assert!(shown.contains("line 6: vip: ") && shown.contains("line 6: name: "), "{shown}");
        assert_eq!(shop.count("customers"), 0);
        assert_eq!(shop.count("nouns_changes"), 0);
    }

    fn import_of_csv_with_wrong_columns_or_quotes_names_the_line(shop: Shop) {
        let check = |text: &str, expected: &str| {
            shop.write("bad.csv", text);
            shop.refuses(&["import", "customer", "bad.csv"], &format!("nouns: bad.csv: {expected}"));
        };
        check("email,nmae\n", "2 faults, nothing was imported\n  line 1: nmae: no such field; did you mean \"name\"?\n  line 1: name: expected a text, got nothing\n  the lines after it were not examined");
        check("", "1 fault, nothing was imported\n  line 1: expected the names of the columns, got nothing\n  the lines after it were not examined");
        check("name,email\nAnn,a@example.com\nBea\nCle,c@example.com,1\nDan,d\n", "3 faults, nothing was imported\n  line 3: expected 2 cells, got 1\n  line 4: expected 2 cells, got more\n  line 5: email: expected an e-mail address, got \"d\"");
        check("name\nAnn\n\"Be\"a\nC\n", "1 fault, nothing was imported\n  line 3: expected a comma after the quote, got \"a\\n\"\n  the lines after it were not examined");
        assert_eq!(shop.count("customers"), 0);
    }

    /// Faults that only the database knows are collected too, and roll everything back.
    fn import_of_rows_that_the_stored_data_does_not_allow_writes_nothing(shop: Shop) {
        shop.customer("ann");
        let mut text = customers(2_500);
        text.push_str("Late,n7@example.com\nOther,ann@example.com\nFine,fine@example.com\n");
        shop.write("new.csv", &text);
        let message = "nouns: new.csv: 2 faults, nothing was imported
  line 2502: email: another customer has this value
  line 2503: email: another customer has this value";
        shop.refuses(&["import", "customer", "new.csv", "--dry-run"], message);
        shop.refuses(&["import", "customer", "new.csv"], message);
        assert_eq!((shop.count("customers"), shop.count("nouns_changes")), (1, 1));
        // References and parents.
        let missing = "01890a5d-ac96-774b-bcce-b302099a8057";
        shop.write("reviews.ndjson", &format!("{{\"customer\":\"{missing}\",\"text\":\"a\"}}\n{{\"customer\":1}}\n"));
        let ended = shop.run(&["import", "review", "reviews.ndjson"]);
        assert!(ended.stderr.contains("line 2: customer: "), "{ended:?}");
        shop.write("reviews.ndjson", &format!("{{\"customer\":\"{missing}\",\"text\":\"a\"}}\n"));
        shop.refuses(
            &["import", "review", "reviews.ndjson"],
            "nouns: reviews.ndjson: 1 fault, nothing was imported\n  line 1: customer: no such item",
        );
        shop.write("orders.csv", &format!("customer_id,price\n{missing},1\n,2\nx,3\n"));
        shop.refuses(
            &["import", "order", "orders.csv"],
            "nouns: orders.csv: 2 faults, nothing was imported\n  line 3: customer_id: expected the id of a customer, got nothing\n  line 4: customer_id: expected the id of a customer, got \"x\"",
        );
        shop.write("orders.csv", &format!("customer_id,price\n{missing},1\n"));
        shop.refuses(
            &["import", "order", "orders.csv"],
            "nouns: orders.csv: 1 fault, nothing was imported\n  line 2: customer_id: no such item",
        );
    }

    fn import_lists_a_hundred_faults_and_counts_the_others(shop: Shop) {
        let rows: String = (0..250).map(|_| "Ann,ann\n").collect();
        shop.write("bad.csv", &format!("name,email\n{rows}"));
        let ended = shop.run(&["import", "customer", "bad.csv"]);
        assert!(ended.stderr.starts_with("nouns: bad.csv: 250 faults, nothing was imported\n  line 2: "), "{ended:?}");
        assert!(ended.stderr.ends_with("\n  and 150 more\n"), "{ended:?}");
        assert_eq!(ended.stderr.lines().count(), 102);
    }

    fn import_in_a_dry_run_checks_and_writes_nothing(shop: Shop) {
        shop.write("new.csv", &customers(3));
        shop.succeeds(
            &["import", "customer", "new.csv", "--dry-run"],
            "nouns: would create 3 customers from new.csv; nothing was written",
        );
        assert_eq!((shop.count("customers"), shop.count("nouns_changes")), (0, 0));
        shop.succeeds(&["import", "customer", "new.csv"], "nouns: created 3 customers from new.csv");
        assert_eq!((shop.count("customers"), shop.count("nouns_changes")), (3, 3));
    }

    fn import_on_a_terminal_draws_its_progress_and_erases_it(shop: Shop) {
        shop.write("new.csv", &customers(2_000));
        let line = [EXECUTABLE.to_owned()].into_iter().chain(shop.arguments(&["import", "customer", "new.csv"]));
        let line = line.collect::<Vec<_>>().join(" ");
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-c", &line, "/dev/null"]).env_clear().current_dir(shop.server.folder());
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("SHELL", "/bin/sh");
        let ended = Process::spawn(&mut command).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let drawn: Vec<_> = ended.stdout.split("\r\u{1b}[K").collect();
        assert!(drawn[1].starts_with("checking ░░░░") && drawn[1].ends_with(" 1 rows"), "{drawn:?}");
        assert!(drawn.iter().any(|line| line.starts_with("importing ████")), "{drawn:?}");
        assert_eq!(drawn.last().unwrap().trim_end(), "nouns: created 2,000 customers from new.csv");
    }

    fn import_reads_standard_input_where_the_format_is_given(shop: Shop) {
        shop.refuses(
            &["import", "customer", "-"],
            "nouns: the format of - is not known by its ending; say --format csv or --format ndjson",
        );
        let mut command = Command::new(EXECUTABLE);
        command.args(shop.arguments(&["import", "customer", "-", "--format", "ndjson"]));
        command.env_clear().current_dir(shop.server.folder()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"{\"name\":\"Ann\"}\n{\"name\":\"Bea\"}").unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(ended.stdout).unwrap(), "nouns: created 2 customers from standard input\n");
        assert_eq!(shop.count("customers"), 2);
    }

    /// The entry of an imported item is found, although its id is older.
    fn import_that_keeps_an_id_is_in_the_history_of_the_item(shop: Shop) {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        shop.write("old.csv", &format!("id,name,version\n{id},Ann,7\n"));
        shop.succeeds(&["import", "customer", "old.csv"], "nouns: created 1 customer from old.csv");
        let path = format!("/customers/{id}");
        let item = shop.server.get(&path).json()["customer"].clone();
        assert_eq!((&item["version"], item["created_at"].as_str().unwrap().get(..10)), (&1.into(), Some("2023-06-30")));
        let kinds = || {
            let log = shop.server.get(&format!("/-/changes?subject={path}")).json();
            log["changes"].as_array().unwrap().iter().map(|entry| entry["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(kinds(), ["created"]);
        let answer = shop.server.put(&path, r#"{"customer":{"name":"Bea"}}"#);
        assert_eq!(answer.status, 200);
        assert_eq!(kinds(), ["created", "updated"]);
        assert_eq!(shop.server.get(&format!("{path}?version=1")).json()["customer"]["name"], "Ann");
        // The same id once more, and ids that no server makes.
        shop.refuses(
            &["import", "customer", "old.csv"],
            "nouns: old.csv: 1 fault, nothing was imported\n  line 2: id: another customer has this id",
        );
        shop.write("old.csv", "id,name\n7d444840-9dc0-41d1-b245-5ffdce74fad2,Ann\nfe890a5d-ac96-774b-bcce-b302099a8057,Bea\n7,Cle\n");
        let ended = shop.run(&["import", "customer", "old.csv"]);
        let faults: Vec<_> = ended.stderr.lines().skip(1).collect();
        assert!(faults[0].starts_with("  line 2: id: expected a UUIDv7, which begins with the time"), "{ended:?}");
        assert_eq!(faults[1..], ["  line 3: id: expected a UUIDv7 whose time has passed", "  line 4: id: expected a UUID, got 7"]);
    }
}
