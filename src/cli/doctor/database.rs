//! The checks of the database: its files or its server, its model, key, users and times.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::health_check::HealthChecks;
use super::machine;
use crate::auth::key::FINGERPRINT_NAME;
use crate::auth::key_source::{KeyError, KeySource};
use crate::cli::first_user;
use crate::cli::model_source::{built_in_store, read_model};
use crate::cli::report::CommandError;
use crate::cli::roles::RoleReview;
use crate::clock;
use crate::model::diff::{Difference, MigrationEffect, compare};
use crate::model::{self, Model};
use crate::store::{
    AdminStore, Database, MissingParts, PageCheck, PostgresHealth, ReferenceCheck, SqliteHealth,
    examine_sqlite,
};

/// How long the pages of an SQLite file are checked.
const PAGE_CHECK_MAX: Duration = Duration::from_secs(30);
/// How long PostgreSQL may take to answer one question.
const CALL_MAX: Duration = Duration::from_secs(10);
/// A WAL of this size was not reset for long.
const WAL_BYTES_MAX: u64 = 256 << 20;
/// The largest differences between two clocks that are not reported.
const CLOCK_MICROS_MAX: i64 = 2_000_000;
/// The name of the model in the table of system values.
const MODEL_NAME: &str = "model";

type KeyChoice<'a> = (&'a Result<KeySource, KeyError>, bool);

/// Without a model, it leaves out what only a model can tell.
pub fn check_all(
    checks: &mut HealthChecks,
    (model, database): (Option<&Arc<Model>>, &Database),
    (key, is_key_named): KeyChoice<'_>,
) -> Result<(), CommandError> {
    let is_open = model.is_some_and(|model| model.server.open == Some(true));
    if database.is_absent() {
        check_absent(checks, database, (key, is_key_named));
        check_key(checks, is_open, key, None);
        return Ok(());
    }
    if let Database::Sqlite(path) = database
        && !check_file(checks, path)
    {
        check_key(checks, is_open, key, None);
        return Ok(());
    }
    // The tables of the system are the same for all models.
    let any_model = match model {
        Some(model) => Arc::clone(model),
        None => Arc::new(read_model(&built_in_store())?),
    };
    match AdminStore::open_read_only_within(database, &any_model, Some(CALL_MAX)) {
        Ok(admin_store) => check_contents(checks, admin_store, (model, database), (key, is_open)),
        Err(error) => {
            checks.fault("database", &error.to_string());
            check_key(checks, is_open, key, None);
        }
    }
    Ok(())
}

/// The checks of what is stored.
fn check_contents(
    checks: &mut HealthChecks,
    mut admin_store: AdminStore,
    (model, database): (Option<&Arc<Model>>, &Database),
    (key, is_open): (&Result<KeySource, KeyError>, bool),
) {
    let ahead_micros = match admin_store.postgres_health() {
        Some(Ok(health)) => {
            check_server(checks, (model, database), &health);
            health.clock_ahead_micros
        }
        Some(Err(error)) => return checks.fault("database", &format!("{database}: {error}")),
        None => 0,
    };
    match admin_store.read_system_value(FINGERPRINT_NAME) {
        Ok(stored) => check_key(checks, is_open, key, stored.as_deref()),
        Err(error) => checks.fault("key", &error.to_string()),
    }
    if let Some(model) = model {
        check_stored_model(checks, &mut admin_store, model);
        check_users(checks, &mut admin_store, model);
    }
    check_newest_change(checks, &mut admin_store, ahead_micros);
}

/// There is no database: a new one, or one that was lost.
fn check_absent(checks: &mut HealthChecks, database: &Database, (key, is_named): KeyChoice<'_>) {
    match first_user::refuse_lost_database(database, key.as_ref().ok(), is_named) {
        Ok(()) => checks.warn(
            "database",
            &format!("there is no database {database} yet; create it with: nouns serve"),
        ),
        Err(CommandError(message)) => {
            checks.fault("database", message.strip_prefix("nouns: ").unwrap_or(&message));
        }
    }
    if let Database::Sqlite(path) = database {
        machine::check_folder(checks, path);
    }
}

/// Returns whether the file can be opened.
fn check_file(checks: &mut HealthChecks, path: &Path) -> bool {
    const NAME: &str = "database";
    let shown = path.display();
    let health = match examine_sqlite(path, PAGE_CHECK_MAX) {
        Ok(health) => health,
        Err(error) => {
            checks.fault(NAME, &error.to_string());
            machine::check_folder(checks, path);
            return false;
        }
    };
    let SqliteHealth { bytes, wal_bytes, pages, references, .. } = &health;
    match pages {
        PageCheck::Passed => checks.ok(NAME, &format!("{shown}: {bytes} bytes, no page is damaged")),
        PageCheck::Failed(how) => checks.fault(
            NAME,
            &format!("{shown} is damaged ({how}); stop the server, and restore a backup: nouns restore FILE --force"),
        ),
        PageCheck::Unfinished => checks.warn(
            NAME,
            &format!(
                "{shown}: its pages could not be checked within {} s; check a copy: nouns backup FILE",
                PAGE_CHECK_MAX.as_secs()
            ),
        ),
    }
    if *pages == PageCheck::Passed
        && let Some(message) = describe_references(references, path)
    {
        checks.warn("references", &message);
    }
    if *wal_bytes > WAL_BYTES_MAX {
        checks.warn(
            "wal",
            &format!(
                "the write-ahead log has {wal_bytes} bytes: a backup or an export has let it grow, or another process reads \
                 the database without a pause (fuser {shown} shows it); afterwards it shrinks by 2 MiB at each reset, and \
                 at a restart of the server"
            ),
        );
    }
    machine::check_files(checks, &health);
    machine::check_folder(checks, path);
    machine::check_space(checks, path, bytes.saturating_add(*wal_bytes));
    true
}

/// What is wrong with the references.
fn describe_references(references: &ReferenceCheck, database: &Path) -> Option<String> {
    let shown = database.display();
    match references {
        ReferenceCheck::Passed => None,
        ReferenceCheck::Broken { table, other } => Some(format!(
            "rows of {table} refer to rows of {other} that do not exist, which another program has caused; list \
             them with: sqlite3 -readonly {shown} 'PRAGMA foreign_key_check'"
        )),
        ReferenceCheck::Unfinished => Some(format!(
            "{shown}: its references could not be checked within {} s; check a copy: nouns backup FILE",
            PAGE_CHECK_MAX.as_secs()
        )),
    }
}

fn check_server(
    checks: &mut HealthChecks,
    (model, database): (Option<&Arc<Model>>, &Database),
    health: &PostgresHealth,
) {
    let PostgresHealth { version, connections_max, .. } = health;
    match health.is_supported {
        true => checks.ok("database", &format!("{database}: PostgreSQL {version}")),
        false => checks.fault(
            "database",
            &format!("{database}: PostgreSQL {version} is too old; upgrade it to 13 or later"),
        ),
    }
    match health.unsafe_settings.as_slice() {
        [] => checks.ok("durability", "fsync and full_page_writes are on"),
        settings => checks.fault(
            "durability",
            &format!(
                "{} = off: a crash of its machine loses or damages committed data; set it to on in postgresql.conf",
                settings.join(" = off, ")
            ),
        ),
    }
    let wanted = model.map_or(0, |model| model.server.limits.database_connections_max);
    let wanted = i64::try_from(wanted).unwrap_or(i64::MAX);
    if wanted > *connections_max {
        checks.warn(
            "connections",
            &format!(
                "PostgreSQL allows {connections_max} connections, and one server uses up to {wanted}; raise \
                 max_connections, or lower database_connections_max"
            ),
        );
    }
    let difference = health.clock_ahead_micros.saturating_abs() - health.clock_error_micros;
    if difference > CLOCK_MICROS_MAX {
        let seconds = difference / 1_000_000;
        checks.warn(
            "clock",
            &format!(
                "the clocks of this machine and of PostgreSQL differ by {seconds} s; let both be set by NTP"
            ),
        );
    }
}

fn check_key(
    checks: &mut HealthChecks,
    is_open: bool,
    key: &Result<KeySource, KeyError>,
    stored: Option<&str>,
) {
    const NAME: &str = "key";
    let source = match key {
        Ok(source) => source,
        Err(_) if is_open => {
            return checks.ok(NAME, "an open server needs none");
        }
        Err(error) => return checks.fault(NAME, &error.to_string()),
    };
    let name = source.name();
    match (source.read(), stored) {
        (Err(error), _) => checks.fault(NAME, &error.to_string()),
        (Ok(None), None) => checks.ok(NAME, "there is none yet; the first start creates it"),
        (Ok(Some(_)), None) => {
            checks.ok(NAME, &format!("{name} can be read; the database has no key yet"));
        }
        // With a fingerprint, `resolve` creates nothing.
        (Ok(_), Some(fingerprint)) => match source.resolve(Some(fingerprint)) {
            Err(error) => checks.fault(NAME, &error.to_string()),
            Ok(found) if found.keys.is_rotating() => checks.warn(
                NAME,
                &format!(
                    "{name} holds two keys: a rotation has begun; finish it with: nouns key rotate"
                ),
            ),
            Ok(_) => checks.ok(NAME, &format!("{name} fits the database")),
        },
    }
}

/// Returns whether all tables and columns are there.
fn report_missing_parts(checks: &mut HealthChecks, missing: &MissingParts) -> bool {
    if !missing.indexes.is_empty() {
        let message = format!(
            "indexes are missing or not complete ({}); the next start of nouns serve creates them",
            missing.indexes.join(", ")
        );
        match missing.indexes.iter().any(|name| name.contains(".unique")) {
            true => checks.fault(
                "indexes",
                &format!(
                    "{message}, and until then values that must be unique may be stored twice"
                ),
            ),
            false => checks.warn("indexes", &message),
        }
    }
    if !missing.tables.is_empty() {
        checks.fault(
            "stored model",
            &format!(
                "tables or columns were dropped ({}), and their values with them; restore a backup",
                missing.tables.join(", ")
            ),
        );
    }
    missing.tables.is_empty()
}

fn check_stored_model(checks: &mut HealthChecks, admin_store: &mut AdminStore, model: &Model) {
    const NAME: &str = "stored model";
    let stored = match admin_store.read_system_value(MODEL_NAME) {
        Ok(Some(stored)) => stored,
        Ok(None) => {
            return checks.fault(NAME, "the database does not record its model; restore a backup");
        }
        Err(error) => return checks.fault(NAME, &error.to_string()),
    };
    let stored = match model::read_shape(&stored) {
        Ok(stored) => stored,
        Err(errors) => {
            return checks.fault(NAME, &format!("the stored model cannot be read ({errors})"));
        }
    };
    let missing = match admin_store.missing_parts(&stored) {
        Ok(missing) => missing,
        Err(error) => return checks.fault(NAME, &error.to_string()),
    };
    if !report_missing_parts(checks, &missing) {
        return;
    }
    let (mut additions, mut has_others) = (0, false);
    let mut refused = Vec::new();
    for difference in compare(&stored, model) {
        match difference {
            Difference::AddResource(_) | Difference::AddField(..) => additions += 1,
            Difference::Change(change) => {
                has_others |= change.effect != MigrationEffect::Remove;
                refused.push(change.describe());
            }
        }
    }
    match (refused.as_slice(), additions) {
        ([], 0) => checks.ok(NAME, "the stored data fits the model"),
        ([], _) => checks.ok(
            NAME, &format!(
                "the next start applies what the model adds ({additions} resources and fields)"
            ),
        ),
        (removed, 0) if !has_others => checks.warn(
            NAME,
            &format!(
                "the model lacks what the database has: {}; a server keeps optional fields and resources, and hides \
                 them; nouns migrate would delete them",
                removed.join("; ")
            ),
        ),
        (refused, _) => checks.fault(
            NAME,
            &format!(
                "the stored data is of another model: {}; see the steps with: nouns plan; apply them with: nouns migrate",
                refused.join("; ")
            ),
        ),
    }
}

fn check_users(checks: &mut HealthChecks, admin_store: &mut AdminStore, model: &Model) {
    const NAME: &str = "users";
    let groups = match admin_store.role_groups() {
        Ok(groups) => groups,
        Err(error) => return checks.fault(NAME, &error.to_string()),
    };
    let review = RoleReview::new(model, &groups);
    let is_open = model.server.open == Some(true);
    if let Some(roles) = review.undeclared() {
        checks.warn(
            NAME,
            &format!(
                "users ({}) have roles that the model does not declare ({roles}), such as {}; set others with: nouns \
                 user roles",
                review.users,
                review.examples()
            ),
        );
    }
    match (review.has_admin, groups.is_empty()) {
        (true, _) => checks.ok(NAME, "an enabled user has the role admin"),
        (false, true) if is_open => checks.ok(NAME, "there are none; an open server needs none"),
        (false, _) => checks.warn(
            NAME,
            "no enabled user has the role admin; add one with: nouns user add NAME --role admin",
        ),
    }
}

/// A change from the future: a clock was ahead, or is behind now.
fn check_newest_change(checks: &mut HealthChecks, admin_store: &mut AdminStore, ahead_micros: i64) {
    const NAME: &str = "clock";
    let newest = match admin_store.newest_change() {
        Ok(newest) => newest,
        Err(cause) => return checks.fault("change log", &cause),
    };
    let now = clock::moment().micros().saturating_add(ahead_micros);
    match newest {
        Some(change) if change.time.micros() > now.saturating_add(CLOCK_MICROS_MAX) => checks.warn(
            NAME,
            &format!(
                "the newest change, {}, is of {}, which is in the future: the clock was ahead, or is behind now; let \
                 it be set by NTP",
                change.sequence, change.time
            ),
        ),
        Some(_) | None => checks.ok(NAME, "no change is in the future"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_that_were_not_checked_are_a_warning() {
        let describe = |check| describe_references(&check, Path::new("shop.db"));
        assert_eq!(describe(ReferenceCheck::Passed), None);
        let unfinished = describe(ReferenceCheck::Unfinished).unwrap();
        assert_eq!(
            unfinished,
            "shop.db: its references could not be checked within 30 s; check a copy: nouns backup FILE"
        );
    }
}
