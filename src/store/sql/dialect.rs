//! SQL dialects: the differences between the engines, as data.

use crate::model::StorageClass;
use crate::store::sql::expressions::{self, ExpressionSyntax};
use crate::value::IdKind;

/// The dialect of one engine.
#[derive(Debug)]
pub struct Dialect {
    pub placeholder: char,
    pub column_type: fn(StorageClass) -> &'static str,
    /// The literals of false and true.
    pub booleans: [&'static str; 2],
    pub uuid_column: &'static str,
    pub uuid_key: &'static str,
    pub integer_key: &'static str,
    /// Options after the column list, for each kind of key.
    pub uuid_table_options: &'static str,
    pub integer_table_options: &'static str,
    /// The expression for a text column (already quoted) in an index for sorting, and in a unique index. The
    /// size of an index entry is limited; the flag says that all texts of the column are short.
    pub sort_prefix: fn(&str, bool) -> String,
    /// The word for an index on text prefixes in the index's name.
    pub sort_prefix_word: &'static str,
    /// Whether a row comparison of an expression and a column can use an index, as one of two columns can.
    pub can_index_expression_rows: bool,
    pub unique_expression: fn(&str) -> String,
    /// Whether ORDER BY has to name a column that is NULL in all rows, so that the planner uses an index that
    /// begins with it.
    pub is_null_sort_key_needed: bool,
    /// Expressions in conditions.
    pub expressions: &'static ExpressionSyntax,
    /// The elements of a JSON list, as a table `elements`, and an element as an id.
    pub list_elements: fn(&str) -> String,
    pub list_element: fn(IdKind) -> &'static str,
    /// Foreign keys are added after all tables are created, since they may be cyclic.
    pub has_separate_foreign_keys: bool,
    /// The row lock clause of a read of an item that is about to be changed, and of one that
    /// is about to be deleted.
    pub lock_for_update: &'static str,
    pub lock_for_delete: &'static str,
    /// The clause of a read that locks rows and skips those that others have locked.
    pub skip_locked: &'static str,
    /// The function that numbers a change log entry, where the engine needs one. Its parameter says whether
    /// the entry is the first of its transaction. A row and its entry are then written by one statement.
    pub next_change_function: Option<&'static str>,
    /// Reads the low-water mark of the change log.
    pub low_watermark: &'static str,
    /// The version of a collection and a low-water mark that suffices for it: of a top-level collection, and of
    /// one with a parent. 1: the low-water mark that is already known; 2: the resource; 3: the parent.
    /// A collection without an entry has not changed since the oldest entry that is still stored.
    pub collection_versions: [&'static str; 2],
    /// The same for all collections together. 1: the low-water mark that is already known.
    pub log_version: &'static str,
    /// Whether a joined subquery can refer to the rows before it (LATERAL).
    pub has_lateral: bool,
    /// Whether `= ANY (ARRAY(SELECT …))` looks a set up in an index.
    pub has_arrays: bool,
    /// The indexes of the change log. That of the version is written so that PostgreSQL's planner can use only
    /// this one, and never scans the whole log. That of an item's changes leaves out `created`, so that a create
    /// has one index entry less to write: `change_log::item_log` finds that entry by its time.
    pub log_indexes: [LogIndex; 2],
    /// Lists those of the indexes that exist.
    pub log_index_names: &'static str,
    /// The oldest number in the change log, the largest one that was deleted, the largest one ever drawn, the newest
    /// visible one, and the incarnation of the database.
    pub log_marks: &'static str,
    /// The collation of texts in the index of an item's changes.
    pub log_collation: &'static str,
    /// After the name of the change log: finds its entries by their numbers. SQLite has no statistics, and would prefer
    /// an index on the resource, which may have all entries.
    pub log_by_number: &'static str,
    /// The tables that every database has.
    pub system_tables: &'static [&'static str],
    /// The table of the idempotency keys, and its index.
    pub idempotency_tables: &'static [&'static str],
    /// Tries to lock an idempotency key until the transaction ends. `None` where there is a single writer.
    pub lock_idempotency_key: Option<&'static str>,
    /// The triggers that change the users' stamp.
    pub users_triggers: &'static [&'static str],
    /// Locks out all other changes of the users until the transaction ends. `None` where there is a single
    /// writer.
    pub users_lock: Option<&'static str>,
    /// The function of the triggers, where a database of an older version needs a new one.
    pub users_function: Option<UsersFunction>,
    /// The delivery queue of the webhooks, and their positions in the change log.
    pub webhook_tables: &'static [&'static str],
    /// Locks out all other creations of webhooks until the transaction ends. `None` where there is a single writer.
    pub webhooks_lock: Option<&'static str>,
    /// Whether a table is rewritten when one of its columns is dropped.
    pub drops_columns_by_rewriting: bool,
    /// Whether an index of a table in use is built concurrently, outside a transaction.
    pub can_build_concurrently: bool,
    /// Locks a table (already quoted) exclusively until the transaction ends. `None` where there is a single
    /// writer.
    pub lock_table: Option<fn(&str) -> String>,
    /// Locks a table (already quoted) as an INSERT does, until the transaction ends. `None` where there is a single
    /// writer.
    pub lock_for_inserts: Option<fn(&str) -> String>,
    /// Locks a table (already quoted) against writers until the transaction ends. `None` where the transaction does.
    pub lock_for_reading: Option<fn(&str) -> String>,
    /// Lists the tables that applications can use, with their columns.
    pub table_columns: &'static str,
    /// Sets the last number of the change log, where a sequence has it. 1: the number.
    pub set_last_change: Option<&'static str>,
    /// Lists the foreign keys that refer to a table, where these must be dropped first: the referencing
    /// table, quoted; its plain name, if it is in our schema; the names of the keys. 1: the table.
    pub foreign_keys_to: Option<&'static str>,
    /// Lists the foreign keys that are not validated yet, where the engine has such a state.
    pub unvalidated_keys: Option<&'static str>,
    /// The last allocated id of a table with integer keys. 1: the table.
    pub last_id: &'static str,
    /// Allocates ids of a table with integer keys; an id is never allocated twice. 1: the table, 2: how many.
    pub next_ids: &'static str,
    /// Raises the last allocated id of a table with integer keys. 1: the table, 2: the id. Where a sequence has it,
    /// numbers are drawn one by one up to a small distance, so that no concurrent draw is undone.
    pub raise_last_id: &'static str,
    /// The largest integer id in the change log. 1: the resource.
    pub last_logged_id: &'static str,
    /// Lists the indexes of the model's tables, and whether they are valid.
    pub index_names: &'static str,
}

/// An index of the change log.
#[derive(Debug, Clone, Copy)]
pub struct LogIndex {
    pub name: &'static str,
    pub create: &'static str,
}

/// The function that the triggers of the users call.
#[derive(Debug)]
pub struct UsersFunction {
    /// Creates or replaces the function.
    pub create: &'static str,
    /// Whether the installed function is current.
    pub is_current: &'static str,
}

pub static SQLITE: Dialect = Dialect {
    placeholder: '?',
    column_type: |class| match class {
        StorageClass::Text | StorageClass::Moment | StorageClass::Json => "TEXT",
        StorageClass::Integer | StorageClass::Decimal | StorageClass::Boolean => "INTEGER",
        StorageClass::Real => "REAL",
    },
    booleans: ["0", "1"],
    uuid_column: "TEXT",
    uuid_key: "TEXT NOT NULL PRIMARY KEY",
    // AUTOINCREMENT: an id is never allocated twice, not even after its item is deleted.
    integer_key: "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT",
    uuid_table_options: " STRICT, WITHOUT ROWID",
    integer_table_options: " STRICT",
    // The same prefix as in PostgreSQL, so that lists have the same order.
    sort_prefix: |column, is_short| match is_short {
        true => column.to_owned(),
        false => format!("substr({column}, 1, 256)"),
    },
    sort_prefix_word: "start",
    can_index_expression_rows: false,
    unique_expression: str::to_owned,
    is_null_sort_key_needed: false,
    expressions: &expressions::SQLITE,
    list_elements: |list| format!("json_each({list}) AS elements"),
    list_element: |_| "elements.value",
    has_separate_foreign_keys: false,
    // There is a single writer.
    lock_for_update: "",
    lock_for_delete: "",
    skip_locked: "",
    next_change_function: None,
    // With a single writer, entries commit in the order of their numbers.
    low_watermark: "SELECT coalesce(max(sequence), 0) FROM nouns_changes",
    collection_versions: [
        "SELECT coalesce((SELECT sequence FROM nouns_changes WHERE resource = ?2 AND parent_id IS NULL ORDER BY sequence DESC LIMIT 1), \
         (SELECT min(sequence) FROM nouns_changes), 0), ?1",
        "SELECT coalesce((SELECT sequence FROM nouns_changes WHERE resource = ?2 AND parent_id = ?3 ORDER BY sequence DESC LIMIT 1), \
         (SELECT min(sequence) FROM nouns_changes), 0), ?1",
    ],
    log_version: "SELECT coalesce((SELECT max(sequence) FROM nouns_changes), 0), ?1",
    has_lateral: false,
    has_arrays: false,
    // SQLite appends the rowid, which is the sequence, to every index entry.
    log_indexes: [
        LogIndex {
            name: "nouns_changes_place",
            create: "CREATE INDEX nouns_changes_place ON nouns_changes (resource, parent_id)",
        },
        LogIndex {
            name: "nouns_changes_item",
            create: "CREATE INDEX nouns_changes_item ON nouns_changes (resource, id) WHERE kind <> 'created'",
        },
    ],
    log_index_names: "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'nouns_changes'",
    log_marks: "SELECT (SELECT min(sequence) FROM nouns_changes), \
         (SELECT CAST(value AS bigint) FROM nouns_system WHERE name = 'changes_swept'), \
         (SELECT max(sequence) FROM nouns_changes), (SELECT max(sequence) FROM nouns_changes), 0",
    log_collation: "",
    log_by_number: " NOT INDEXED",
    system_tables: &[
        "CREATE TABLE nouns_system (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
        // Without AUTOINCREMENT, which costs two more rows per entry: the newest entry always stays, so no
        // number is used twice.
        "CREATE TABLE nouns_changes (
  sequence INTEGER NOT NULL PRIMARY KEY,
  time TEXT NOT NULL, resource TEXT NOT NULL, id TEXT NOT NULL, parent_id TEXT, subject TEXT NOT NULL,
  kind TEXT NOT NULL, actor TEXT NOT NULL, request_id TEXT NOT NULL, changed TEXT, before TEXT, after TEXT
) STRICT",
    ],
    idempotency_tables: &[
        "CREATE TABLE nouns_keys (
  scope TEXT NOT NULL PRIMARY KEY, fingerprint TEXT NOT NULL, time TEXT NOT NULL, bytes INTEGER NOT NULL, answer TEXT NOT NULL
) STRICT",
        "CREATE INDEX nouns_keys_time ON nouns_keys (time, scope)",
    ],
    lock_idempotency_key: None,
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
    users_lock: None,
    users_function: None,
    webhook_tables: &[
        "CREATE TABLE nouns_delivery_queue (
  delivery_id TEXT NOT NULL PRIMARY KEY REFERENCES nouns_deliveries (id) ON DELETE CASCADE,
  webhook_id TEXT NOT NULL, subject TEXT NOT NULL, sequence INTEGER NOT NULL, body TEXT NOT NULL,
  tries INTEGER NOT NULL, waiting INTEGER NOT NULL, due TEXT, claim_token TEXT
) STRICT, WITHOUT ROWID",
        "CREATE INDEX nouns_delivery_queue_due ON nouns_delivery_queue (webhook_id, due) WHERE due IS NOT NULL",
        "CREATE INDEX nouns_delivery_queue_item ON nouns_delivery_queue (webhook_id, subject, sequence) WHERE due IS NOT NULL OR waiting",
        "CREATE INDEX nouns_delivery_queue_pending ON nouns_delivery_queue (webhook_id, delivery_id) WHERE due IS NOT NULL OR waiting",
        "CREATE INDEX nouns_delivery_queue_claims ON nouns_delivery_queue (claim_token) WHERE claim_token IS NOT NULL",
        "CREATE UNIQUE INDEX nouns_deliveries_sequence ON nouns_deliveries (webhook_id, sequence)",
        "CREATE INDEX nouns_deliveries_delivered ON nouns_deliveries (updated_at) WHERE status = 'delivered'",
        "CREATE INDEX nouns_deliveries_dead ON nouns_deliveries (updated_at) WHERE status = 'dead'",
        "CREATE TABLE nouns_webhook_positions (
  webhook_id TEXT NOT NULL PRIMARY KEY REFERENCES nouns_webhooks (id) ON DELETE CASCADE,
  position INTEGER NOT NULL, active INTEGER NOT NULL
) STRICT, WITHOUT ROWID",
    ],
    webhooks_lock: None,
    drops_columns_by_rewriting: true,
    can_build_concurrently: false,
    lock_table: None,
    lock_for_inserts: None,
    lock_for_reading: None,
    table_columns: "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c \
         WHERE m.type = 'table' AND substr(m.name, 1, 7) <> 'sqlite_'",
    set_last_change: None,
    foreign_keys_to: None,
    unvalidated_keys: None,
    last_id: "SELECT seq FROM sqlite_sequence WHERE name = ?1",
    // SQLite raises the number itself when a larger id is inserted, in the same transaction.
    next_ids: "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < ?2) \
         SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?1), 0) + number FROM numbers",
    // The table has no unique index by which an UPSERT would find the row.
    raise_last_id: "INSERT OR REPLACE INTO sqlite_sequence (rowid, name, seq) \
         SELECT (SELECT rowid FROM sqlite_sequence WHERE name = ?1), ?1, ?2 \
         WHERE ?2 > coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?1), 0)",
    last_logged_id: "SELECT max(CAST(id AS INTEGER)) FROM nouns_changes \
         WHERE resource = ?1 AND id NOT GLOB '*[^0-9]*'",
    index_names: "SELECT name, 1 FROM sqlite_master WHERE type = 'index' AND substr(name, 1, 6) = 'nouns.'",
};

pub static POSTGRES: Dialect = Dialect {
    placeholder: '$',
    column_type: |class| match class {
        // Sorted by bytes, as in SQLite, whatever the database's locale.
        StorageClass::Text => "text COLLATE \"C\"",
        StorageClass::Moment => "timestamptz",
        // Not jsonb: the stored text must be returned unchanged.
        StorageClass::Json => "json",
        StorageClass::Integer | StorageClass::Decimal => "bigint",
        StorageClass::Boolean => "boolean",
        StorageClass::Real => "double precision",
    },
    booleans: ["false", "true"],
    uuid_column: "uuid",
    uuid_key: "uuid NOT NULL PRIMARY KEY",
    // BY DEFAULT: the number is drawn first, and then inserted.
    integer_key: "bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    uuid_table_options: "",
    integer_table_options: "",
    // An index entry has at most 2,704 bytes.
    sort_prefix: |column, _| format!("left({column}, 256)"),
    sort_prefix_word: "filter",
    can_index_expression_rows: true,
    unique_expression: |column| format!("nouns_digest({column})"),
    is_null_sort_key_needed: true,
    expressions: &expressions::POSTGRES,
    list_elements: |list| {
        format!("LATERAL jsonb_array_elements_text(CAST(CAST({list} AS text) AS jsonb)) AS elements (value)")
    },
    list_element: |kind| match kind {
        IdKind::Uuid => "CAST(elements.value AS uuid)",
        IdKind::Integer => "CAST(elements.value AS bigint)",
    },
    has_separate_foreign_keys: true,
    // The id never changes, so an update need not block inserts of children, whose foreign keys lock the
    // parent FOR KEY SHARE.
    lock_for_update: " FOR NO KEY UPDATE OF t0",
    lock_for_delete: " FOR UPDATE OF t0",
    skip_locked: " FOR UPDATE SKIP LOCKED",
    next_change_function: Some("nouns_next_change"),
    low_watermark: "SELECT nouns_settled_change()",
    // The function costs as much as eight version lookups, so it is called only if the known mark is too low.
    // OFFSET 0: the version is looked up once, although it is used twice.
    // The planner does not know that rows found by IS NULL are in index order.
    collection_versions: [
        "SELECT at, CASE WHEN at > $1 THEN nouns_settled_change() ELSE $1 END FROM (SELECT coalesce(\
         (SELECT sequence FROM nouns_changes WHERE resource COLLATE \"C\" = $2 AND coalesce(parent_id, '') COLLATE \"C\" = '' ORDER BY - sequence LIMIT 1), \
         (SELECT min(sequence) FROM nouns_changes), 0) AS at OFFSET 0) AS found",
        "SELECT at, CASE WHEN at > $1 THEN nouns_settled_change() ELSE $1 END FROM (SELECT coalesce(\
         (SELECT sequence FROM nouns_changes WHERE resource COLLATE \"C\" = $2 AND coalesce(parent_id, '') COLLATE \"C\" = $3 ORDER BY - sequence LIMIT 1), \
         (SELECT min(sequence) FROM nouns_changes), 0) AS at OFFSET 0) AS found",
    ],
    log_version: "SELECT at, CASE WHEN at > $1 THEN nouns_settled_change() ELSE $1 END FROM (SELECT coalesce(\
         (SELECT max(sequence) FROM nouns_changes), 0) AS at OFFSET 0) AS found",
    has_lateral: true,
    has_arrays: true,
    log_indexes: [
        LogIndex {
            name: "nouns_changes_place",
            create: "CREATE INDEX nouns_changes_place ON nouns_changes (resource COLLATE \"C\", (coalesce(parent_id, '')) COLLATE \"C\", (- sequence))",
        },
        LogIndex {
            name: "nouns_changes_item",
            create: "CREATE INDEX nouns_changes_item ON nouns_changes (resource COLLATE \"C\", id COLLATE \"C\", sequence) WHERE kind <> 'created'",
        },
    ],
    log_index_names: "SELECT relname::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE relnamespace = current_schema()::regnamespace AND indrelid = 'nouns_changes'::regclass AND indisvalid",
    log_marks: "SELECT (SELECT min(sequence) FROM nouns_changes), \
         (SELECT CAST(value AS bigint) FROM nouns_system WHERE name = 'changes_swept'), \
         pg_sequence_last_value('nouns_changes_sequence'::regclass), \
         (SELECT max(sequence) FROM nouns_changes), \
         (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint",
    log_collation: " COLLATE \"C\"",
    log_by_number: "",
    system_tables: &[
        "CREATE TABLE nouns_system (name text COLLATE \"C\" NOT NULL PRIMARY KEY, value text NOT NULL)",
        "CREATE TABLE nouns_changes (
  sequence bigint NOT NULL PRIMARY KEY,
  time timestamptz NOT NULL, resource text NOT NULL, id text NOT NULL, parent_id text, subject text NOT NULL,
  kind text NOT NULL, actor text NOT NULL, request_id text NOT NULL, changed text, before text, after text
)",
        "CREATE SEQUENCE nouns_changes_sequence OWNED BY nouns_changes.sequence",
        // IMMUTABLE is correct: the encoding of a database never changes.
        "CREATE FUNCTION nouns_digest(value text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT sha256(convert_to(value, 'UTF8')) $$",
        // Before a transaction draws its first number, it announces by a shared advisory lock that all of its
        // numbers are larger than the last one drawn. The lock ends just after its commit becomes visible.
        "CREATE FUNCTION nouns_next_change(is_first boolean) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF is_first THEN
    PERFORM pg_advisory_xact_lock_shared('nouns_changes_sequence'::regclass::oid::int4,
      (coalesce(pg_sequence_last_value('nouns_changes_sequence'::regclass), 0) % 2147483648)::int4);
  END IF;
  RETURN nextval('nouns_changes_sequence'::regclass);
END $$",
        // The low-water mark: no smaller number can still commit. The order matters: first the last number
        // drawn, then the locks of transactions in flight; a later transaction draws a larger number.
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
    idempotency_tables: &[
        "CREATE TABLE nouns_keys (
  scope text COLLATE \"C\" NOT NULL PRIMARY KEY, fingerprint text NOT NULL, time timestamptz NOT NULL, bytes bigint NOT NULL, answer text NOT NULL
)",
        "CREATE INDEX nouns_keys_time ON nouns_keys (time, scope)",
    ],
    // A request that finds the key locked retries, and holds no connection meanwhile.
    lock_idempotency_key: Some("SELECT pg_try_advisory_xact_lock($1)"),
    users_triggers: &[
        "CREATE TRIGGER nouns_users_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON nouns_users
  FOR EACH STATEMENT EXECUTE FUNCTION nouns_count_users()",
    ],
    users_lock: Some("SELECT 1 FROM nouns_system WHERE name = 'users_stamp' FOR UPDATE"),
    users_function: Some(UsersFunction {
        // An operator may change the users under another search path.
        // The stamp is random and no counter: a failover or a restore may lose changes that a server has
        // seen, and a counter would repeat their numbers.
        create: "CREATE OR REPLACE FUNCTION nouns_count_users() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('UPDATE %I.nouns_system SET value = (''x'' || replace(gen_random_uuid()::text, ''-'', ''''))::bit(64)::bigint::text WHERE name = ''users_stamp''', TG_TABLE_SCHEMA);
  RETURN NULL;
END $$",
        is_current: "SELECT prosrc LIKE '%gen_random_uuid%' FROM pg_proc \
            WHERE proname = 'nouns_count_users' AND pronamespace = current_schema()::regnamespace",
    }),
    webhook_tables: &[
        "CREATE TABLE nouns_delivery_queue (
  delivery_id uuid NOT NULL PRIMARY KEY REFERENCES nouns_deliveries (id) ON DELETE CASCADE,
  webhook_id uuid NOT NULL, subject text COLLATE \"C\" NOT NULL, sequence bigint NOT NULL, body text NOT NULL,
  tries bigint NOT NULL, waiting boolean NOT NULL, due timestamptz, claim_token text
)",
        "CREATE INDEX nouns_delivery_queue_due ON nouns_delivery_queue (webhook_id, due) WHERE due IS NOT NULL",
        "CREATE INDEX nouns_delivery_queue_item ON nouns_delivery_queue (webhook_id, subject, sequence) WHERE due IS NOT NULL OR waiting",
        "CREATE INDEX nouns_delivery_queue_pending ON nouns_delivery_queue (webhook_id, delivery_id) WHERE due IS NOT NULL OR waiting",
        "CREATE INDEX nouns_delivery_queue_claims ON nouns_delivery_queue (claim_token) WHERE claim_token IS NOT NULL",
        "CREATE UNIQUE INDEX nouns_deliveries_sequence ON nouns_deliveries (webhook_id, sequence)",
        "CREATE INDEX nouns_deliveries_delivered ON nouns_deliveries (updated_at) WHERE status = 'delivered'",
        "CREATE INDEX nouns_deliveries_dead ON nouns_deliveries (updated_at) WHERE status = 'dead'",
        "CREATE TABLE nouns_webhook_positions (
  webhook_id uuid NOT NULL PRIMARY KEY REFERENCES nouns_webhooks (id) ON DELETE CASCADE,
  position bigint NOT NULL, active boolean NOT NULL
)",
    ],
    webhooks_lock: Some("SELECT 1 FROM nouns_system WHERE name = 'webhooks' FOR UPDATE"),
    drops_columns_by_rewriting: false,
    can_build_concurrently: true,
    lock_table: Some(|table| format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")),
    lock_for_inserts: Some(|table| format!("LOCK TABLE {table} IN ROW EXCLUSIVE MODE")),
    lock_for_reading: Some(|table| format!("LOCK TABLE {table} IN SHARE MODE")),
    table_columns: "SELECT relname::text, attname::text FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid \
         WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped",
    set_last_change: Some("SELECT setval('nouns_changes_sequence'::regclass, $1::bigint)"),
    foreign_keys_to: Some(
        "SELECT conrelid::regclass::text, CASE relnamespace WHEN current_schema()::regnamespace THEN relname::text END, conname::text FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid WHERE contype = 'f' AND confrelid = quote_ident($1)::regclass",
    ),
    unvalidated_keys: Some(
        "SELECT conname::text FROM pg_constraint WHERE contype = 'f' AND NOT convalidated AND connamespace = current_schema()::regnamespace",
    ),
    last_id: "SELECT pg_sequence_last_value(pg_get_serial_sequence(quote_ident($1), 'id')::regclass)",
    next_ids: "SELECT nextval(pg_get_serial_sequence(quote_ident($1), 'id')::regclass) FROM generate_series(1, $2::bigint)",
    raise_last_id: "SELECT CASE WHEN gap > 1000 THEN setval(serial, $2::bigint) \
         ELSE (SELECT max(number) FROM (SELECT nextval(serial) AS number FROM generate_series(1, gap)) AS drawn) END \
         FROM (SELECT serial, $2::bigint - coalesce(pg_sequence_last_value(serial), 0) AS gap \
         FROM (SELECT pg_get_serial_sequence(quote_ident($1), 'id')::regclass AS serial) AS found OFFSET 0) AS gaps WHERE gap > 0",
    // CASE: PostgreSQL may evaluate the parts of a condition in any order.
    last_logged_id: "SELECT max(CASE WHEN id ~ '^[0-9]{1,18}$' THEN id::bigint END) FROM nouns_changes \
         WHERE resource COLLATE \"C\" = $1",
    index_names: "SELECT relname::text, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE relnamespace = current_schema()::regnamespace AND left(relname::text, 6) = 'nouns.'",
};
