//! Imports that are killed or meet a fault in the middle: all or nothing, or resumed without doubled rows.

use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use super::*;
use crate::harness::{ForeignLock, OpenTransaction, wait_until};

const ROWS: usize = 20_000;

impl Shop {
    /// Waits until an import holds the write lock of SQLite, and has been seen with it this many times. Meanwhile
    /// others see none or all of its rows.
    fn wait_for_write_lock(&self, import: &mut Process, times: usize) {
        let connection = Connection::open(self.server.folder().join("nouns.db")).unwrap();
        connection.busy_timeout(Duration::ZERO).unwrap();
        let mut seen = 0;
        wait_until("the import has the write lock", || {
            if let Err(error) = connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK") {
                assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
                seen += 1;
            }
            let rows = self.count("customers");
            assert!([0, 10_000].contains(&rows), "{rows}");
            (seen >= times || import.has_ended()).then_some(())
        });
    }

    /// Waits until an import on PostgreSQL waits for another transaction.
    fn wait_for_row_lock(&self, import: &mut Process) {
        wait_until("the import waits for the foreign row", || {
            assert!(!import.has_ended(), "{}", import.stderr());
            let waits = "SELECT count(*) FROM pg_stat_activity \
                 WHERE datname = current_database() AND wait_event_type = 'Lock'";
            (self.sql(waits) != "0").then_some(())
        });
    }

    /// On PostgreSQL, a transaction with a value of the file: the import waits for its end.
    fn hold_value(&self, row: usize) -> Option<OpenTransaction> {
        let insert = format!(
            "BEGIN; INSERT INTO customers (id, created_at, updated_at, version, name, email) \
             VALUES (gen_random_uuid(), now(), now(), 1, 'x', 'n{row}@example.com') RETURNING 7;\n"
        );
        match self.server.backend() {
            Backend::Sqlite => None,
            Backend::Postgres => Some(OpenTransaction::begin(self.server.folder(), &insert)),
        }
    }

    fn position(&self) -> String {
        self.sql("SELECT value FROM nouns_system WHERE name = 'import customer'")
    }
}

on_every_backend! {
    fn import_killed_in_its_transaction_leaves_nothing(shop: Shop) {
        shop.write("new.csv", &customers(10_000));
        let moments: &[usize] = match shop.server.backend() {
            // Early and late in the transaction, and after its end.
            Backend::Sqlite => &[1, 20, 100, usize::MAX],
            Backend::Postgres => &[1],
        };
        for &times in moments {
            let held = shop.hold_value(9_000);
            let mut import = shop.spawn(&["import", "customer", "new.csv"]);
            match shop.server.backend() {
                Backend::Sqlite => shop.wait_for_write_lock(&mut import, times),
                Backend::Postgres => shop.wait_for_row_lock(&mut import),
            }
            let is_killed = !import.has_ended();
            if is_killed {
                import.signal("KILL");
                import.wait();
            }
            drop(held);
            let counts = (shop.count("customers"), shop.count("nouns_changes"));
            // Between the commit and the end of the process it is too late.
            let is_late = counts == (10_000, 10_000) && (!is_killed || times > 1);
            assert!(counts == (0, 0) || is_late, "{counts:?}");
            shop.sql("DELETE FROM customers");
            shop.sql("DELETE FROM nouns_changes");
        }
        shop.succeeds(&["import", "customer", "new.csv"], "nouns: created 10,000 customers from new.csv");
        assert_eq!((shop.count("customers"), shop.count("nouns_changes")), (10_000, 10_000));
        shop.customer("ann");
    }

    fn import_resumable_goes_on_after_a_kill_without_doubled_rows(shop: Shop) {
        shop.write("new.csv", &customers(ROWS));
        let command = ["import", "customer", "new.csv", "--resumable"];
        let held = shop.hold_value(ROWS / 2);
        let mut import = shop.spawn(&command);
        wait_until("a batch is committed", || (shop.count("customers") >= 2_000).then_some(()));
        match shop.server.backend() {
            // While the lock is held, the import does not go on.
            Backend::Sqlite => {
                let _lock = ForeignLock::hold(&shop.server);
                import.signal("KILL");
                import.wait();
            }
            Backend::Postgres => {
                shop.wait_for_row_lock(&mut import);
                import.signal("KILL");
                import.wait();
            }
        }
        drop(held);
        let before = shop.count("customers");
        assert!((2_000..ROWS).contains(&before) && before.is_multiple_of(1_000), "{before}");
        assert!(shop.position().starts_with("unfinished "), "{}", shop.position());
        // Another file is not mixed with it.
        shop.write("other.csv", &customers(3));
        let ended = shop.run(&["import", "customer", "other.csv", "--resumable"]);
        assert!(ended.stderr.contains("and other.csv does not begin with the same lines; finish that import"), "{ended:?}");
        let ended = shop.run(&command);
        let [left, before] = [ROWS - before, before].map(|rows| format!("{},{:03}", rows / 1_000, rows % 1_000));
        assert_eq!(ended.stdout, format!("nouns: created {left} customers from new.csv; {before} rows by an earlier run\n"), "{ended:?}");
        let counts = "SELECT count(*), count(DISTINCT email) FROM customers";
        assert_eq!((shop.sql(counts), shop.count("nouns_changes")), (format!("{ROWS}|{ROWS}"), ROWS));
        // A completed import is not repeated.
        shop.succeeds(&command, "nouns: all 20,000 rows of new.csv were imported by an earlier run; --restart imports them again");
        assert_eq!(shop.count("customers"), ROWS);
    }

    fn import_resumable_that_meets_a_fault_goes_on_when_the_line_is_mended(shop: Shop) {
        shop.customer("n1500");
        let text = customers(2_500);
        shop.write("new.csv", &text);
        let command = ["import", "customer", "new.csv", "--resumable"];
        let message = "nouns: new.csv: 1 fault, 1,000 rows before line 1002 are imported; mend the lines from there on, \
             and run the command again\n  line 1502: email: another customer has this value";
        shop.refuses(&["import", "customer", "new.csv", "--resumable", "--dry-run"], "nouns: new.csv: 1 fault, nothing was written\n  line 1502: email: another customer has this value");
        assert_eq!(shop.count("customers"), 1);
        shop.refuses(&command, message);
        assert_eq!((shop.count("customers"), shop.count("nouns_changes")), (1_001, 1_001));
        shop.refuses(&command, message);
        assert_eq!(shop.count("customers"), 1_001);
        shop.write("new.csv", &text.replace("n1500@", "other@"));
        shop.succeeds(&command, "nouns: created 1,500 customers from new.csv; 1,000 rows by an earlier run");
        assert_eq!((shop.count("customers"), shop.count("nouns_changes")), (2_501, 2_501));
        assert!(shop.position().starts_with("complete "), "{}", shop.position());
        // Of a file that has grown, only the new rows are imported.
        let text = text.replace("n1500@", "other@");
        shop.write("new.csv", &(text + "Zoe,zoe@example.com\n"));
        shop.succeeds(&command, "nouns: created 1 customer from new.csv; 2,500 rows by an earlier run");
        // Another file can follow, and the same one on request.
        shop.write("next.csv", "name\nAnn\n");
        for _ in 0..2 {
            shop.succeeds(&["import", "customer", "next.csv", "--resumable", "--restart"], "nouns: created 1 customer from next.csv");
        }
        assert_eq!(shop.count("customers"), 2_504);
    }

    fn import_and_writes_of_a_server_at_the_same_time_all_succeed(shop: Shop) {
        shop.write("new.csv", &customers(5_000));
        let mut import = shop.spawn(&["import", "customer", "new.csv", "--resumable"]);
        let mut created = 0;
        while !import.has_ended() {
            shop.customer(&format!("s{created}"));
            created += 1;
        }
        let ended = import.end();
        assert_eq!(ended.stdout, "nouns: created 5,000 customers from new.csv\n", "{ended:?}");
        assert_eq!(shop.count("customers"), 5_000 + created);
    }
}

/// A server on SQLite would wait for the whole transaction.
#[test]
fn import_of_many_rows_beside_a_server_on_sqlite_has_to_be_resumable() {
    let shop = Shop::on(Backend::Sqlite);
    shop.write("new.csv", &customers(10_001));
    let ended = shop.run(&["import", "customer", "new.csv"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("its writes would wait for one transaction of 10,001 rows"),
        "{ended:?}"
    );
    assert_eq!(shop.count("customers"), 0);
}
