//! A target that does not store what it was given: the move is refused.

use rusqlite::Connection;

use super::*;
use crate::store::driver::{RowReader, poll_once};
use crate::store::sql::dialect::Dialect;
use crate::store::sqlite::driver::SqliteDriver;
use crate::store::statement::{BulkInsert, Statement};
use crate::value::Moment;

const MODEL: &str = "title = \"T\"\n[resources.note]\nid = \"integer\"\n[resources.note.fields]\ntext = { type = \"text\" }\n";

/// How the rows of a table are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Storing {
    All,
    AllButOne,
    OneChanged,
}

struct TargetDriver<'a> {
    inner: SqliteDriver<'a>,
    table: &'static str,
    storing: Storing,
}

impl Driver for TargetDriver<'_> {
    const DIALECT: &'static Dialect = SqliteDriver::DIALECT;

    async fn read_rows(
        &mut self,
        statements: &[Statement<'_>],
        read: &mut RowReader<'_>,
    ) -> Result<(), StatementError> {
        self.inner.read_rows(statements, read).await
    }

    async fn execute(&mut self, sql: &str, binds: &[Bind<'_>]) -> Result<usize, StatementError> {
        self.inner.execute(sql, binds).await
    }

    async fn insert_rows(
        &mut self,
        insert: &BulkInsert,
        rows: &[Vec<Bind<'_>>],
    ) -> Result<(), StatementError> {
        let mut rows = rows.to_vec();
        if insert.row.contains(&format!("\"{}\"", self.table)) {
            match self.storing {
                Storing::All => {}
                Storing::AllButOne => drop(rows.pop()),
                Storing::OneChanged => *rows[0].last_mut().unwrap() = Bind::Text("other"),
            }
        }
        self.inner.insert_rows(insert, &rows).await
    }

    async fn rollback_to_savepoint(&mut self) -> Result<(), StatementError> {
        self.inner.rollback_to_savepoint().await
    }

    fn now(&self) -> Moment {
        self.inner.now()
    }
}

fn source() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    let model = crate::model::read("model", MODEL).unwrap();
    let mut driver = SqliteDriver { connection: &connection };
    poll_once(schema::create(&mut driver, &model)).unwrap().unwrap();
    let time = "'2026-11-15T02:28:14.000001Z'";
    connection
        .execute_batch(&format!(
            "INSERT INTO notes (id, created_at, updated_at, version, text) VALUES (7, {time}, {time}, 1, 'a'), (9, {time}, {time}, 3, 'b');
             INSERT INTO nouns_changes (sequence, time, resource, id, subject, kind, actor, request_id, after) \
             VALUES (4, {time}, 'note', '7', '/notes/7', 'created', 'x', 'y', '{{}}')"
        ))
        .unwrap();
    connection
}

fn try_move(table: &'static str, storing: Storing) -> Result<MoveSummary, String> {
    let (source, target) = (source(), Connection::open_in_memory().unwrap());
    let mut target = TargetDriver { inner: SqliteDriver { connection: &target }, table, storing };
    let mut source = SqliteDriver { connection: &source };
    let mut progress = Vec::new();
    let mut report = |one: MoveProgress| progress.push((one.copied, one.done, one.total));
    let moved = poll_once(run(&mut source, &mut target, &mut report)).unwrap();
    if moved.is_ok() {
        assert_eq!(progress, [(2, 2, 6), (3, 3, 6), (3, 5, 6), (3, 6, 6)]);
    }
    moved.map_err(|error| error.describe("SOURCE", "TARGET").to_string())
}

#[test]
fn move_compares_counts_and_checksums_of_every_table() {
    let moved = try_move("notes", Storing::All).unwrap();
    let rows: Vec<_> = moved.tables.iter().filter(|(_, rows)| *rows > 0).cloned().collect();
    assert_eq!(rows, [("notes".to_owned(), 2), ("changes".to_owned(), 1)]);
    for (table, storing, message) in [
        (
            "notes",
            Storing::AllButOne,
            "notes: expected 2 rows in the target, got 1; nothing was moved",
        ),
        (
            "notes",
            Storing::OneChanged,
            "notes: the checksum of the 2 rows in the target differs from that of the source; nothing was moved",
        ),
        (
            "nouns_changes",
            Storing::AllButOne,
            "changes: expected 1 rows in the target, got 0; nothing was moved",
        ),
        (
            "nouns_changes",
            Storing::OneChanged,
            "changes: the checksum of the 1 rows in the target differs from that of the source; nothing was moved",
        ),
    ] {
        assert_eq!(try_move(table, storing).unwrap_err(), message);
    }
}
