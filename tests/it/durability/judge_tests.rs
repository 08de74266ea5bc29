//! Tests of the judge: it finds no fault in a sound database, and each kind of damage in a damaged one.

use std::fs;

use rusqlite::Connection;

use super::judge::{DatabaseContents, JudgeVerdict, judge};
use super::ledger::{Ledger, LedgerEntry, LedgerRequest, LedgerResponse, RequestOutcome};
use super::seeded_random::print_seed;
use super::serving::{run_burst, start};
use crate::harness::Folder;

/// Reverts a database to its state after the first entries of its change log.
const REVERT_SQL: &str = "
    DELETE FROM nouns_changes WHERE sequence > ?1;
    DELETE FROM orders;
    DELETE FROM customers;
    CREATE TEMP VIEW last AS SELECT resource, after FROM nouns_changes AS c WHERE kind <> 'deleted'
        AND sequence = (SELECT max(sequence) FROM nouns_changes WHERE subject = c.subject);
    INSERT INTO customers (id, name, email, created_at, updated_at, version)
        SELECT after ->> 'id', after ->> 'name', after ->> 'email', after ->> 'created_at',
            after ->> 'updated_at', after ->> 'version' FROM last WHERE resource = 'customer';
    INSERT INTO orders (id, customer_id, status, currency, items, total, note, created_at, updated_at, version)
        SELECT after ->> 'id', after ->> 'customer_id', after ->> 'status', after ->> 'currency',
            after -> 'items', after ->> 'total', after ->> 'note', after ->> 'created_at',
            after ->> 'updated_at', after ->> 'version' FROM last WHERE resource = 'order';
";

/// The files of a store that has served a burst, with its ledger.
fn used_store() -> (Folder, Ledger) {
    let mut ledger = Ledger::new(print_seed("judge"));
    let server = start(Folder::new());
    run_burst(&server, &mut ledger, 12);
    (server.stop(), ledger)
}

fn run_sql(folder: &Folder, sql: &str) {
    let connection = Connection::open(folder.path().join("nouns.db")).unwrap();
    let alone = "PRAGMA journal_mode = DELETE; PRAGMA foreign_keys = OFF;";
    connection.execute_batch(&format!("{alone} {sql}")).unwrap();
}

fn verdict(folder: &Folder, view: &[(&LedgerEntry, &RequestOutcome)]) -> JudgeVerdict {
    judge(view, &DatabaseContents::read(folder.path()).unwrap())
}

/// Fails unless the judge reports each of these.
fn assert_finds(verdict: &JudgeVerdict, all: &[&str]) {
    for what in all {
        let found = verdict.faults.iter().any(|fault| fault.contains(what));
        assert!(found, "expected {what:?} among {:#?}", verdict.faults);
    }
}

#[test]
fn judge_sound_database_has_no_faults() {
    let (folder, ledger) = used_store();
    let verdict = verdict(&folder, &ledger.now());
    verdict.assert_sound("after a clean stop");
    assert!(verdict.answered > 400 && verdict.refused > 10, "{verdict:?}");
    assert_eq!((verdict.unavailable, verdict.open.len()), (0, 0));
}

#[test]
fn judge_finds_each_kind_of_damage() {
    let (folder, ledger) = used_store();
    let file = folder.path().join("nouns.db");
    let sound = fs::read(&file).unwrap();
    for (sql, faults) in [
        (
            "DELETE FROM customers WHERE id = (SELECT max(customer_id) FROM orders)",
            ["is in the log, but is not stored", "foreign_key_check"],
        ),
        ("UPDATE customers SET name = 'x', version = version + 1", ["is not as the log says"; 2]),
        ("UPDATE orders SET items = '[]'", ["is not as the log says"; 2]),
        (
            "DELETE FROM nouns_changes WHERE sequence = (SELECT max(sequence) FROM nouns_changes)",
            ["the log"; 2],
        ),
        (
            "DELETE FROM nouns_changes WHERE sequence = (SELECT max(sequence) - 3 FROM nouns_changes)",
            ["the log has a gap"; 2],
        ),
        (
            "UPDATE nouns_changes SET after = json_set(after, '$.name', 'x') WHERE kind = 'created'",
            ["does not follow from", "half there"],
        ),
        ("UPDATE nouns_changes SET request_id = 'x' WHERE sequence = 9", ["nobody asked for"; 2]),
    ] {
        fs::write(&file, &sound).unwrap();
        run_sql(&folder, sql);
        assert_finds(&verdict(&folder, &ledger.now()), &faults);
    }
}

/// A consistent database that is older than its answered writes: the effect of a lost sync.
#[test]
fn judge_finds_a_lost_answered_write() {
    let (folder, ledger) = used_store();
    let count = DatabaseContents::read(folder.path()).unwrap().log.len();
    // More than the largest bulk, of which only half would be there.
    let to = count - 100;
    run_sql(&folder, &REVERT_SQL.replace("?1", &to.to_string()));
    let verdict = verdict(&folder, &ledger.now());
    assert_finds(&verdict, &["lost: "]);
    assert!(
        verdict.faults.iter().all(|fault| fault.starts_with("lost: ") || fault.starts_with("half"))
    );
}

#[test]
fn judge_finds_a_partially_applied_unanswered_bulk_write() {
    let (folder, ledger) = used_store();
    let found = DatabaseContents::read(folder.path()).unwrap();
    let ids = |at: usize| found.log[at].request_id.as_str();
    let is_inside = |at: &usize| found.log[*at].kind == "created" && ids(*at) == ids(*at + 1);
    // Late enough for every connection to have had a response.
    let inside = (found.log.len() / 2..found.log.len() - 1).find(is_inside).unwrap();
    let answered: Vec<_> =
        found.log[..inside].iter().map(|change| change.request_id.clone()).collect();
    let bulk = ids(inside).to_owned();
    let refused = |id: &str| !found.log.iter().any(|change| change.request_id == id);
    let view = || {
        ledger.as_of(
            |id| id != bulk && (answered.iter().any(|known| known == id) || refused(id)),
            false,
        )
    };
    for (to, faults) in [(inside + 1, vec!["half there"]), (inside, Vec::new())] {
        let first = found.log[..to].iter().position(|change| change.request_id == bulk);
        // Without its first half the bulk was never begun.
        let to = if faults.is_empty() { first.unwrap_or(to) } else { to };
        run_sql(&folder, &REVERT_SQL.replace("?1", &to.to_string()));
        let verdict = verdict(&folder, &view());
        assert_finds(&verdict, &faults);
        assert_eq!(verdict.faults.is_empty(), faults.is_empty(), "{:#?}", verdict.faults);
    }
}

#[test]
fn judge_finds_a_stored_refused_write() {
    let (folder, ledger) = used_store();
    let log = DatabaseContents::read(folder.path()).unwrap().log;
    let refusal = RequestOutcome::Answered(LedgerResponse {
        status: 503,
        request_id: "refused".to_owned(),
        problem: Some("unavailable".to_owned()),
        items: Vec::new(),
    });
    let wanted: [fn(&LedgerRequest) -> bool; 3] = [
        |asked| matches!(asked, LedgerRequest::Create { .. }),
        |asked| matches!(asked, LedgerRequest::Replace { .. }),
        |asked| matches!(asked, LedgerRequest::Remove { .. }),
    ];
    for is_wanted in wanted {
        let mut view = ledger.now();
        // An update that changed nothing has left no entry.
        let is_logged = |id: &str| log.iter().any(|change| change.request_id == id);
        let done = |(entry, outcome): &(&LedgerEntry, &RequestOutcome)| {
            is_wanted(&entry.request)
                && matches!(outcome, RequestOutcome::Answered(answered) if is_logged(&answered.request_id))
        };
        let at = view.iter().position(done).unwrap();
        view[at].1 = &refusal;
        assert_finds(&verdict(&folder, &view), &["refused with"]);
        let missing = RequestOutcome::FoundMissing;
        view[at].1 = &missing;
        assert_finds(&verdict(&folder, &view), &["was missing and has come back"]);
        view.remove(at);
        assert_finds(&verdict(&folder, &view), &["nobody asked for"]);
    }
}
