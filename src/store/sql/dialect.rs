//! How the engines differ, as data.

use super::words::{self, Words};
use crate::model::Class;

/// How an engine's SQL differs.
#[derive(Debug)]
pub(in crate::store) struct Dialect {
    pub(in crate::store) placeholder: char,
    pub(super) column: fn(Class) -> &'static str,
    /// False and true.
    pub(super) booleans: [&'static str; 2],
    pub(super) uuid_column: &'static str,
    pub(super) uuid_key: &'static str,
    pub(super) integer_key: &'static str,
    /// What stands behind a table with each kind of key.
    pub(super) uuid_table: &'static str,
    pub(super) integer_table: &'static str,
    /// What stands for a column of text, quoted already, in an index by which items are found in order,
    /// and in one by which a value occurs once. An index may take only so much of a text; the flag says
    /// that no text is longer.
    pub(super) ordered_text: fn(&str, bool) -> String,
    /// What an index of the beginnings of texts is called.
    pub(super) ordered_word: &'static str,
    /// Whether a pair of an expression and a column is looked up in an index as a pair of columns is.
    pub(super) pairs_expressions: bool,
    pub(super) unique_text: fn(&str) -> String,
    /// Whether the order of rows of which one column is NULL has to name that column, for an index that
    /// begins with it to be seen to have that order.
    pub(super) sorts_by_null: bool,
    /// How conditions are said.
    pub(super) words: &'static Words,
    /// References are made when all tables are there, since they may lead in circles.
    pub(in crate::store) adds_references: bool,
    /// What stands behind a read of an item that is about to be changed, and behind one of an item that
    /// is about to be deleted.
    pub(super) lock_for_update: &'static str,
    pub(super) lock_for_delete: &'static str,
    /// The function that numbers an entry of the change log, where the engine needs one. Its parameter
    /// says whether the entry is the first of its transaction. A row and its entry are then one statement.
    pub(super) next_change: Option<&'static str>,
    /// The number up to which the change log is complete.
    pub(in crate::store) settled: &'static str,
    /// The statement that reads a place in the change log, and up to which number the log is complete, as
    /// far as that place needs to know. 1: the number that is known already.
    pub(super) settled_at: fn(&str) -> String,
    /// What finds the last entry of a collection: the columns of an index, what the parent is at the top,
    /// and the order. Where the planner could prefer to walk through the whole log, nothing else has it.
    pub(super) place_resource: &'static str,
    pub(super) place_parent: &'static str,
    pub(super) place_top: &'static str,
    pub(super) place_order: &'static str,
    pub(in crate::store) place_index: &'static str,
    /// Whether that index is there.
    pub(in crate::store) place_index_names: &'static str,
    /// The tables every database of ours has.
    pub(in crate::store) system_tables: &'static [&'static str],
    /// The table of the answers that are kept, and its index.
    pub(in crate::store) keys_tables: &'static [&'static str],
    /// Takes a number for one transaction, or says that another one has it; where writers are alone,
    /// there is nothing to take.
    pub(in crate::store) claim_key: Option<&'static str>,
    /// What changes the stamp of the users, and the statement that reads it.
    pub(in crate::store) users_triggers: &'static [&'static str],
    pub(super) users_stamp: &'static str,
    /// Holds up all other changes of the users until the transaction ends, where writers are not alone.
    pub(in crate::store) users_lock: Option<&'static str>,
    /// What the triggers call, where it has to be replaced in a database of an older version.
    pub(in crate::store) users_function: Option<UsersFunction>,
    /// Whether an index of a table that is in use is built beside that use, outside of a transaction.
    pub(in crate::store) builds_concurrently: bool,
    /// Keeps everybody else from a table, quoted already, until the transaction ends; where writers are
    /// alone, there is nothing to lock.
    pub(in crate::store) lock_table: Option<fn(&str) -> String>,
    /// Lists the foreign keys that refer to a table, where a table cannot be dropped before they are: the
    /// table they are of, quoted; its plain name, if it is in our schema; their names. 1: the table.
    pub(in crate::store) foreign_keys_to: Option<&'static str>,
    /// Lists the foreign keys that rows from before have not been held to, where there may be some.
    pub(in crate::store) unvalidated_keys: Option<&'static str>,
    /// The last id given in a table with integer keys. 1: the table.
    pub(in crate::store) last_id: &'static str,
    /// Sets it in a table that was just made. 1: the table, 2: the last id.
    pub(in crate::store) set_last_id: &'static str,
    /// Lists the indexes that are ours, and whether they can be used.
    pub(in crate::store) index_names: &'static str,
}

/// A function that the triggers of the users call.
#[derive(Debug)]
pub(in crate::store) struct UsersFunction {
    /// Makes it, or puts it in place of the one there is.
    pub(in crate::store) create: &'static str,
    /// Whether the one there is does what this version needs.
    pub(in crate::store) is_current: &'static str,
}

pub(in crate::store) static SQLITE: Dialect = Dialect {
    placeholder: '?',
    column: |class| match class {
        Class::Text | Class::Moment | Class::Json => "TEXT",
        Class::Integer | Class::Decimal | Class::Boolean => "INTEGER",
        Class::Real => "REAL",
    },
    booleans: ["0", "1"],
    uuid_column: "TEXT",
    uuid_key: "TEXT NOT NULL PRIMARY KEY",
    // AUTOINCREMENT: an id is never given twice, not even after its item is deleted.
    integer_key: "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT",
    uuid_table: " STRICT, WITHOUT ROWID",
    integer_table: " STRICT",
    // As much as elsewhere, so that a list has the same order.
    ordered_text: |column, is_short| match is_short {
        true => column.to_owned(),
        false => format!("substr({column}, 1, 256)"),
    },
    ordered_word: "start",
    pairs_expressions: false,
    unique_text: str::to_owned,
    sorts_by_null: false,
    words: &words::SQLITE,
    adds_references: false,
    // The writer is alone.
    lock_for_update: "",
    lock_for_delete: "",
    next_change: None,
    // One writer, so numbers come in order.
    settled: "SELECT coalesce(max(sequence), 0) FROM nouns_changes",
    settled_at: |place| format!("SELECT {place}, ?1"),
    place_resource: "resource",
    place_parent: "parent_id",
    place_top: "IS NULL",
    place_order: "sequence DESC",
    // Its rows end with the sequence by themselves.
    place_index: "CREATE INDEX nouns_changes_place ON nouns_changes (resource, parent_id)",
    place_index_names: "SELECT name FROM sqlite_master WHERE type = 'index' AND name = 'nouns_changes_place'",
    system_tables: &[
        "CREATE TABLE nouns_system (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
        // Without AUTOINCREMENT, which costs two more rows an entry: the newest entry always stays, so
        // no number is given twice.
        "CREATE TABLE nouns_changes (
  sequence INTEGER NOT NULL PRIMARY KEY,
  time TEXT NOT NULL, resource TEXT NOT NULL, id TEXT NOT NULL, parent_id TEXT, subject TEXT NOT NULL,
  kind TEXT NOT NULL, actor TEXT NOT NULL, request_id TEXT NOT NULL, changed TEXT, before TEXT, after TEXT
) STRICT",
    ],
    keys_tables: &[
        "CREATE TABLE nouns_keys (
  scope TEXT NOT NULL PRIMARY KEY, fingerprint TEXT NOT NULL, time TEXT NOT NULL, bytes INTEGER NOT NULL, answer TEXT NOT NULL
) STRICT",
        "CREATE INDEX nouns_keys_time ON nouns_keys (time, scope)",
    ],
    claim_key: None,
    users_triggers: &[
        "CREATE TRIGGER nouns_users_inserted AFTER INSERT ON nouns_users BEGIN
  UPDATE nouns_system SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT) WHERE name = 'users_stamp';
END",
        "CREATE TRIGGER nouns_users_updated AFTER UPDATE ON nouns_users BEGIN
  UPDATE nouns_system SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT) WHERE name = 'users_stamp';
END",
        "CREATE TRIGGER nouns_users_deleted AFTER DELETE ON nouns_users BEGIN
  UPDATE nouns_system SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT) WHERE name = 'users_stamp';
END",
    ],
    users_stamp: "SELECT CAST(value AS INTEGER) FROM nouns_system WHERE name = 'users_stamp'",
    users_lock: None,
    users_function: None,
    builds_concurrently: false,
    lock_table: None,
    foreign_keys_to: None,
    unvalidated_keys: None,
    last_id: "SELECT seq FROM sqlite_sequence WHERE name = ?1",
    set_last_id: "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)",
    index_names: "SELECT name, 1 FROM sqlite_master WHERE type = 'index' AND substr(name, 1, 6) = 'nouns.'",
};

pub(in crate::store) static POSTGRES: Dialect = Dialect {
    placeholder: '$',
    column: |class| match class {
        // Ordered by bytes, as SQLite does, whatever the database's own locale.
        Class::Text => "text COLLATE \"C\"",
        Class::Moment => "timestamptz",
        // Not jsonb: what was written comes back byte by byte.
        Class::Json => "json",
        Class::Integer | Class::Decimal => "bigint",
        Class::Boolean => "boolean",
        Class::Real => "double precision",
    },
    booleans: ["false", "true"],
    uuid_column: "uuid",
    uuid_key: "uuid NOT NULL PRIMARY KEY",
    // BY DEFAULT: we draw the number first, and then insert it.
    integer_key: "bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    uuid_table: "",
    integer_table: "",
    // A row of an index has at most 2,704 bytes.
    ordered_text: |column, _| format!("left({column}, 256)"),
    ordered_word: "filter",
    pairs_expressions: true,
    unique_text: |column| format!("nouns_digest({column})"),
    sorts_by_null: true,
    words: &words::POSTGRES,
    adds_references: true,
    // The id never changes, so an update need not wait for those who insert a child, whose foreign keys
    // lock the parent FOR KEY SHARE.
    lock_for_update: " FOR NO KEY UPDATE OF t0",
    lock_for_delete: " FOR UPDATE OF t0",
    next_change: Some("nouns_next_change"),
    settled: "SELECT nouns_settled_change()",
    // To find out takes as long as eight of these places; so only who needs a newer answer asks.
    // OFFSET 0: the place is looked up once, although it is used twice.
    settled_at: |place| {
        format!(
            "SELECT at, CASE WHEN at > $1 THEN nouns_settled_change() ELSE $1 END FROM (SELECT {place} AS at OFFSET 0) AS found"
        )
    },
    place_resource: "resource COLLATE \"C\"",
    // What IS NULL finds is not known to be in order.
    place_parent: "coalesce(parent_id, '') COLLATE \"C\"",
    place_top: "= ''",
    place_order: "- sequence",
    place_index: "CREATE INDEX nouns_changes_place ON nouns_changes (resource COLLATE \"C\", (coalesce(parent_id, '')) COLLATE \"C\", (- sequence))",
    place_index_names: "SELECT relname::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE relnamespace = current_schema()::regnamespace AND relname = 'nouns_changes_place' AND indisvalid",
    system_tables: &[
        "CREATE TABLE nouns_system (name text COLLATE \"C\" NOT NULL PRIMARY KEY, value text NOT NULL)",
        "CREATE TABLE nouns_changes (
  sequence bigint NOT NULL PRIMARY KEY,
  time timestamptz NOT NULL, resource text NOT NULL, id text NOT NULL, parent_id text, subject text NOT NULL,
  kind text NOT NULL, actor text NOT NULL, request_id text NOT NULL, changed text, before text, after text
)",
        "CREATE SEQUENCE nouns_changes_sequence OWNED BY nouns_changes.sequence",
        // Immutable: the encoding of a database never changes.
        "CREATE FUNCTION nouns_digest(value text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT sha256(convert_to(value, 'UTF8')) $$",
        // A transaction says, before its first number, that all of its numbers are larger than the last
        // one that was given; it says so by a lock, which ends just after its commit can be seen.
        "CREATE FUNCTION nouns_next_change(is_first boolean) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF is_first THEN
    PERFORM pg_advisory_xact_lock_shared('nouns_changes_sequence'::regclass::oid::int4,
      (coalesce(pg_sequence_last_value('nouns_changes_sequence'::regclass), 0) % 2147483648)::int4);
  END IF;
  RETURN nextval('nouns_changes_sequence'::regclass);
END $$",
        // The number up to which nothing can come any more. The order counts: first the last number that
        // was given, then those who are still writing; whoever comes later gets a larger one.
        "CREATE FUNCTION nouns_settled_change() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  last bigint := coalesce(pg_sequence_last_value('nouns_changes_sequence'::regclass), 0);
  behind bigint;
BEGIN
  SELECT max((last - objid::bigint) & 2147483647) INTO behind FROM pg_locks
    WHERE (last - objid::bigint) & 2147483647 < 1073741824 AND locktype = 'advisory' AND objsubid = 2 AND classid = 'nouns_changes_sequence'::regclass::oid
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
  RETURN last - coalesce(behind, 0);
END $$",
    ],
    keys_tables: &[
        "CREATE TABLE nouns_keys (
  scope text COLLATE \"C\" NOT NULL PRIMARY KEY, fingerprint text NOT NULL, time timestamptz NOT NULL, bytes bigint NOT NULL, answer text NOT NULL
)",
        "CREATE INDEX nouns_keys_time ON nouns_keys (time, scope)",
    ],
    // Whoever comes too late asks again, and holds no connection meanwhile.
    claim_key: Some("SELECT pg_try_advisory_xact_lock($1)"),
    users_triggers: &[
        "CREATE TRIGGER nouns_users_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON nouns_users
  FOR EACH STATEMENT EXECUTE FUNCTION nouns_count_users()",
    ],
    users_stamp: "SELECT value::bigint FROM nouns_system WHERE name = 'users_stamp'",
    users_lock: Some("SELECT 1 FROM nouns_system WHERE name = 'users_stamp' FOR UPDATE"),
    users_function: Some(UsersFunction {
        // By hand, the users may be changed under another search path than ours.
        // The stamp is random and no count: a failover or a restore may lose changes that a server has
        // seen, and the next ones would be counted by the same numbers.
        create: "CREATE OR REPLACE FUNCTION nouns_count_users() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('UPDATE %I.nouns_system SET value = (''x'' || replace(gen_random_uuid()::text, ''-'', ''''))::bit(64)::bigint::text WHERE name = ''users_stamp''', TG_TABLE_SCHEMA);
  RETURN NULL;
END $$",
        is_current: "SELECT prosrc LIKE '%gen_random_uuid%' FROM pg_proc \
            WHERE proname = 'nouns_count_users' AND pronamespace = current_schema()::regnamespace",
    }),
    builds_concurrently: true,
    lock_table: Some(|table| format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")),
    foreign_keys_to: Some(
        "SELECT conrelid::regclass::text, CASE relnamespace WHEN current_schema()::regnamespace THEN relname::text END, conname::text FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid WHERE contype = 'f' AND confrelid = quote_ident($1)::regclass",
    ),
    unvalidated_keys: Some(
        "SELECT conname::text FROM pg_constraint WHERE contype = 'f' AND NOT convalidated AND connamespace = current_schema()::regnamespace",
    ),
    last_id: "SELECT pg_sequence_last_value(pg_get_serial_sequence(quote_ident($1), 'id')::regclass)",
    set_last_id: "SELECT setval(pg_get_serial_sequence(quote_ident($1), 'id')::regclass, $2::bigint)",
    index_names: "SELECT relname::text, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE relnamespace = current_schema()::regnamespace AND left(relname::text, 6) = 'nouns.'",
};
