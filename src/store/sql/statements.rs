//! The statements of a model: of each of its tables, of the change log and of the users.

use std::fmt::Write;

use crate::fault::OrBug;
use crate::model::{Model, OnDelete, Resource, ResourceIndex};
use crate::permit::AccessScope;
use crate::store::sql::columns::{AncestorJoin, quote_name, select_list};
use crate::store::sql::ddl::link_table;
use crate::store::sql::derived::changed_derived;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::idempotency::IdempotencyStatements;
use crate::store::sql::insert::{entry_insert_sql, insert_row, insert_rows};
use crate::store::sql::links::LinkStatements;
#[cfg(any(fuzzing, test))]
use crate::store::sql::read_statements::FlatStatements;
use crate::store::sql::read_statements::ReadStatements;
use crate::store::sql::unique::equals_parameter;
use crate::store::statement::{Bind, Statement};

const FIELD_INDEX: &str = "an index of a field is one of its resource";

/// The readiness check.
pub const PING: &str = "SELECT 1 FROM nouns_system";

/// The first and the last number of the change log. Each subquery reads one end of the primary key; `min` and
/// `max` in one query would scan the table.
pub const CHANGE_LOG_BOUNDS: &str = "SELECT (SELECT min(sequence) FROM nouns_changes), \
     (SELECT max(sequence) FROM nouns_changes)";

/// The key in `nouns_system` of the last sweep of the change log, as with `IDEMPOTENCY_CLOCK`.
pub const CHANGES_CLOCK: &str = "changes_clock";

/// The time of the newest change log entry.
pub const NEWEST_CHANGE: &str = "SELECT time FROM nouns_changes ORDER BY sequence DESC LIMIT 1";

/// Change log entries. 1: after which number, 2: up to which, 3: how many.
pub fn changes_between(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "SELECT sequence, time, resource, id, subject, kind, actor, request_id, changed, before, after \
         FROM nouns_changes WHERE sequence > {p}1 AND sequence <= {p}2 ORDER BY sequence LIMIT {p}3"
    )
}

/// The key in `nouns_system` of the largest number that was deleted from the change log.
pub const CHANGES_SWEPT: &str = "changes_swept";
/// The key in `nouns_system` of the oldest entry that the last sweep has seen.
pub const CHANGES_OLDEST: &str = "changes_oldest";

/// Raises a number in `nouns_system`, never lowers it. 1: name, 2: value.
pub fn raise_system_number(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "INSERT INTO nouns_system (name, value) VALUES ({p}1, {p}2) ON CONFLICT (name) DO UPDATE \
         SET value = excluded.value WHERE CAST(nouns_system.value AS bigint) < CAST(excluded.value AS bigint)"
    )
}

/// The numbers of change log entries. 1: after which number, 2: how many.
pub fn numbers_after(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!("SELECT sequence FROM nouns_changes WHERE sequence > {p}1 ORDER BY sequence LIMIT {p}2")
}

/// Reads the stamp, which every change of the users changes.
pub const USERS_STAMP: &str =
    "SELECT CAST(value AS bigint) FROM nouns_system WHERE name = 'users_stamp'";

/// The maximum number of role combinations, more than an operator reads.
const ROLE_GROUPS_MAX: usize = 1000;

/// The statements of a model in one dialect.
#[derive(Debug)]
pub struct SqlStatements {
    pub dialect: &'static Dialect,
    tables: Vec<TableStatements>,
    pub entry: String,
    /// Reads a user. 1: name.
    pub user: String,
    /// Finds an enabled admin. 1: the id of a user to leave out.
    pub other_admin: String,
    /// Whether entries have expired. 1: the cutoff time, 2: how many entries a batch examines.
    pub sweep_due: String,
    /// The number up to which entries have expired. Those that a webhook has not read yet are kept for longer.
    /// 1: the cutoff time, 2: how many entries a batch examines, 3: the cutoff time for those.
    pub sweep_bound: String,
    /// Deletes entries. 1: up to which number.
    pub sweep: String,
    pub keys: IdempotencyStatements,
}

/// The statements of one resource.
#[derive(Debug)]
pub struct TableStatements {
    /// The read statements without a row filter.
    pub read: ReadStatements,
    /// The columns in the order of `columns`; then the change log entry, where one statement writes both.
    pub insert: String,
    /// Multi-row INSERT with the change log entries, where one statement writes both: each parameter is an
    /// array with one value for each row.
    pub insert_batch: Option<String>,
    /// The text before the changed fields.
    update: String,
    dialect: &'static Dialect,
    /// 1: id.
    pub delete: String,
    pub incoming: Vec<IncomingReference>,
    pub links: Vec<LinkStatements>,
}

impl TableStatements {
    fn new(model: &Model, resource: &Resource, dialect: &'static Dialect) -> Self {
        let p = dialect.placeholder;
        let (name, all) = (quote_name(&resource.table), select_list(resource, ""));
        Self {
            read: ReadStatements::new(model, dialect, resource, &AccessScope::default()),
            insert: insert_row(resource, dialect),
            insert_batch: insert_rows(model, resource, dialect),
            update: format!("UPDATE {name} SET \"updated_at\" = {p}3, \"version\" = {p}4"),
            dialect,
            delete: format!("DELETE FROM {name} WHERE \"id\" = {p}1 RETURNING {all}"),
            incoming: find_incoming_references(model, resource, p),
            links: LinkStatements::all(resource, dialect),
        }
    }

    /// Sets only the changed fields: the engine then updates only the indexes of these columns.
    /// 1: id, 2: the former version, 3: updated_at, 4: version, then the fields and the texts that are derived from
    /// them; then the change log entry, where one statement writes both.
    pub fn update_statement(&self, resource: &Resource, changed: &[usize]) -> String {
        let dialect = self.dialect;
        let p = dialect.placeholder;
        let mut text = String::with_capacity(self.update.len() + 400 + 24 * changed.len());
        text.push_str(&self.update);
        let mut columns = 0;
        let mut push_column = |name: &str| {
            let _ = write!(text, ", {} = {p}{}", quote_name(name), 5 + columns);
            columns += 1;
        };
        for index in changed {
            push_column(&resource.fields.get(*index).or_bug(FIELD_INDEX).name);
        }
        for derived in changed_derived(resource, changed) {
            push_column(&derived.name());
        }
        let _ = write!(text, " WHERE \"id\" = {p}1 AND \"version\" = {p}2");
        match dialect.next_change_function {
            None => text,
            // No entry if the update matched no row.
            Some(_) => {
                let entry = entry_insert_sql(dialect, 5 + columns, Some("written"));
                format!("WITH written AS ({text} RETURNING 1) {entry}")
            }
        }
    }
}

/// Items that may refer to an item of this table: its children, or items with a `ref` field.
#[derive(Debug)]
pub struct IncomingReference {
    pub resource: ResourceIndex,
    /// The field that refers to the item; `None`: the item is the parent.
    pub field: Option<usize>,
    pub on_delete: OnDelete,
    /// 1: id, 2: the limit. Returns the id of each dependent, then its chain.
    pub dependents: String,
}

impl SqlStatements {
    pub fn new(model: &Model, dialect: &'static Dialect) -> Self {
        let p = dialect.placeholder;
        let tables = model.resources.iter();
        let tables = tables.map(|resource| TableStatements::new(model, resource, dialect));
        Self {
            dialect,
            tables: tables.collect(),
            entry: entry_insert_sql(dialect, 1, None),
            user: user_by_name_query(model.resource(model.users), dialect),
            other_admin: other_admin_query(model.resource(model.users), dialect),
            keys: IdempotencyStatements::new(dialect),
            sweep_due: format!(
                "SELECT 1 FROM (SELECT time FROM nouns_changes ORDER BY sequence LIMIT {p}2) AS oldest \
                 WHERE time < {p}1 LIMIT 1"
            ),
            // By sequence, the true order: entries with a wrong time must not block the sweep.
            // The newest entry stays: the next one is numbered after it.
            sweep_bound: format!(
                "SELECT max(sequence) FROM (SELECT sequence, time FROM nouns_changes ORDER BY sequence LIMIT {p}2) AS oldest \
                 WHERE time < {p}1 AND sequence < (SELECT max(sequence) FROM nouns_changes) \
                 AND (time < {p}3 OR NOT EXISTS (SELECT 1 FROM nouns_webhook_positions WHERE position < oldest.sequence))"
            ),
            sweep: format!("DELETE FROM nouns_changes WHERE sequence <= {p}1"),
        }
    }

    /// The texts of all statements, for tests.
    #[cfg(any(fuzzing, test))]
    pub fn all_texts(&self, model: &Model) -> Vec<String> {
        let mut all = vec![self.entry.clone(), self.sweep_due.clone(), self.sweep.clone()];
        all.extend([self.sweep_bound.clone(), raise_system_number(self.dialect)]);
        all.push(self.dialect.log_marks.to_owned());
        all.extend(self.dialect.collection_versions.map(str::to_owned));
        all.extend([self.user.clone(), USERS_STAMP.to_owned()]);
        all.extend(self.keys.all_texts());
        for (table, resource) in self.tables.iter().zip(&model.resources) {
            let ReadStatements { item, exists, exists_anywhere, page, page_after, .. } =
                &table.read;
            let TableStatements { insert, insert_batch, delete, incoming, links, .. } = table;
            all.extend(insert_batch.clone());
            let fixed = [item, exists, exists_anywhere, page, page_after, insert, delete];
            all.extend(fixed.into_iter().chain(&table.read.unique_conflicts).cloned());
            if let Some(FlatStatements { item, page, page_after }) = &table.read.flat {
                all.extend([item, page, page_after].map(Clone::clone));
            }
            all.push(table.update_statement(resource, &Vec::from_iter(0..resource.fields.len())));
            all.extend(incoming.iter().map(|link| link.dependents.clone()));
            all.extend(links.iter().flat_map(|link| [link.insert.clone(), link.delete.clone()]));
        }
        all
    }

    /// A change log entry alone. `is_first`: the first of its transaction.
    pub fn entry_statement<'a>(&'a self, binds: &[Bind<'a>], is_first: bool) -> Statement<'a> {
        let mut binds = binds.to_vec();
        if self.dialect.next_change_function.is_some() {
            binds.push(Bind::Boolean(is_first));
        }
        Statement::new(&self.entry, binds)
    }

    /// How many statements `push_with_entry` appends.
    pub fn statements_per_row(&self) -> usize {
        if self.dialect.next_change_function.is_some() { 1 } else { 2 }
    }

    /// Appends the statements of a row and its change log entry: two statements, or one that writes both.
    pub fn push_with_entry<'a>(
        &'a self,
        statements: &mut Vec<Statement<'a>>,
        mut row: Statement<'a>,
        (entry, is_first): (&[Bind<'a>], bool),
    ) {
        if self.dialect.next_change_function.is_some() {
            row.binds.extend_from_slice(entry);
            row.binds.push(Bind::Boolean(is_first));
            statements.push(row);
        } else {
            statements.push(row);
            statements.push(self.entry_statement(entry, is_first));
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "one table for each resource of the model, made in new"
    )]
    pub fn table_statements(&self, index: ResourceIndex) -> &TableStatements {
        &self.tables[index.0]
    }
}

fn user_by_name_query(users: &Resource, dialect: &Dialect) -> String {
    let (all, table) = (select_list(users, ""), quote_name(&users.table));
    format!("SELECT {all} FROM {table} WHERE {}", equals_parameter(users, ("", "name"), 1, dialect))
}

/// The roles are a JSON array of names, in which only a whole name stands between quotes.
fn other_admin_query(users: &Resource, dialect: &Dialect) -> String {
    let (table, p) = (quote_name(&users.table), dialect.placeholder);
    format!(
        "SELECT 1 FROM {table} WHERE \"id\" <> {p}1 AND \"disabled\" IS NOT TRUE \
         AND CAST(\"roles\" AS text) LIKE '%\"admin\"%' LIMIT 1"
    )
}

/// Groups the users by roles and disabled flag, with the count and the first name.
pub fn role_groups_query(users: &Resource) -> String {
    let table = quote_name(&users.table);
    format!(
        "SELECT CAST(\"roles\" AS text), CAST(CASE WHEN \"disabled\" THEN 1 ELSE 0 END AS bigint), count(*), min(\"name\") \
         FROM {table} GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT {ROLE_GROUPS_MAX}"
    )
}

fn find_incoming_references(model: &Model, resource: &Resource, p: char) -> Vec<IncomingReference> {
    let children = resource.children.iter().map(|index| {
        let child = model.resource(*index);
        let key = child.parent_key.as_deref().or_bug("a child has a parent");
        (child, None, format!("t0.{} = {p}1", quote_name(key)), child.on_delete)
    });
    let referrers = resource.referrers.iter().map(|referrer| {
        let by = model.resource(referrer.resource);
        let field = by.fields.get(referrer.field).or_bug(FIELD_INDEX);
        let condition = match field.many_references() {
            None => format!("t0.{} = {p}1", quote_name(&field.name)),
            Some(_) => {
                let table = quote_name(&link_table(by, field));
                format!("t0.\"id\" IN (SELECT \"item\" FROM {table} WHERE \"target\" = {p}1)")
            }
        };
        (by, Some(referrer.field), condition, referrer.on_delete)
    });
    let link = |(by, field, condition, on_delete): (&Resource, Option<usize>, String, OnDelete)| {
        let AncestorJoin { from, columns } = AncestorJoin::of_ids(model, by);
        let ids =
            ["t0.\"id\"".to_owned()].into_iter().chain(columns).collect::<Vec<_>>().join(", ");
        let dependents =
            format!("SELECT {ids} FROM {from} WHERE {condition} ORDER BY t0.\"id\" LIMIT {p}2");
        IncomingReference { resource: by.index, field, on_delete, dependents }
    };
    children.chain(referrers).map(link).collect()
}
