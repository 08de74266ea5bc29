//! Link tables: a row for each reference of a field of type `refs`, with an index for lookups by target.
//!
//! The list itself is a value of the item. The links follow from it, as an index does: they are written with the item,
//! and a missing table is made again from the lists.

use crate::model::{Field, Model, ReferenceTarget, Resource};
use crate::store::sql::columns::quote_name;
use crate::store::sql::ddl::{id_column_type, link_table};
use crate::store::sql::dialect::Dialect;
use crate::store::sql::unique::truncate_name;
use crate::value::IdKind;

/// The statements of one link table.
#[derive(Debug)]
pub struct LinkStatements {
    /// The index of the field.
    pub field: usize,
    /// Inserts links of an item. 1: the id of the item, 2: a JSON list of the targets.
    pub insert: String,
    /// Deletes links of an item. 1: the id of the item, 2: a JSON list of the targets.
    pub delete: String,
}

impl LinkStatements {
    /// Those of all fields of a resource that have links.
    pub fn all(resource: &Resource, dialect: &Dialect) -> Vec<Self> {
        let statements = |(at, field, target): (usize, &Field, ReferenceTarget)| {
            let (table, p) = (quote_name(&link_table(resource, field)), dialect.placeholder);
            let target = (dialect.list_element)(target.id);
            let list = (dialect.list_elements)(&format!("{p}2"));
            Self {
                field: at,
                insert: format!(
                    "INSERT INTO {table} (\"item\", \"target\") SELECT {p}1, {target} FROM {list}"
                ),
                delete: format!(
                    "DELETE FROM {table} WHERE \"item\" = {p}1 AND \"target\" IN (SELECT {target} FROM {list})"
                ),
            }
        };
        linked_fields(resource).map(statements).collect()
    }
}

/// The fields of a resource that have links, with their indices and targets.
pub fn linked_fields(
    resource: &Resource,
) -> impl Iterator<Item = (usize, &Field, ReferenceTarget)> {
    let fields = resource.fields.iter().enumerate();
    fields.filter_map(|(at, field)| Some((at, field, field.many_references()?)))
}

/// The statements that create the link table of a field, and fill it from the lists. The reference to the target is
/// checked at commit, like that of a `ref`.
pub fn create_link_table(
    model: &Model,
    (resource, field): (&Resource, &Field),
    target: ReferenceTarget,
    dialect: &Dialect,
) -> [String; 3] {
    let name = link_table(resource, field);
    let to = model.resource(target.resource);
    let [table, items, targets] = [&*name, &resource.table, &to.table].map(quote_name);
    let [item, linked] = [resource.id, target.id].map(|id: IdKind| id_column_type(id, dialect));
    let options = dialect.uuid_table_options;
    let create = format!(
        "CREATE TABLE {table} (\n  \"item\" {item} NOT NULL REFERENCES {items} (\"id\") ON DELETE CASCADE,\n  \
         \"target\" {linked} NOT NULL REFERENCES {targets} (\"id\") DEFERRABLE INITIALLY DEFERRED,\n  \
         PRIMARY KEY (\"target\", \"item\")\n){options}"
    );
    // Not a name of the indexes that follow from the model alone: it comes and goes with the table.
    let index = truncate_name(format!("{name}.item"));
    let index = format!("CREATE INDEX {} ON {table} (\"item\")", quote_name(&index));
    let element = (dialect.list_element)(target.id);
    let list = (dialect.list_elements)(&format!("t0.{}", quote_name(&field.name)));
    let fill = format!(
        "INSERT INTO {table} (\"item\", \"target\") SELECT t0.\"id\", {element} FROM {items} AS t0 CROSS JOIN {list}"
    );
    [create, index, fill]
}

/// Counts the items with a link to a missing item, and returns the first few ids.
pub fn select_dangling_links(
    (resource, field): (&Resource, &Field),
    target: &Resource,
    limit: usize,
) -> String {
    let [table, target] = [&*link_table(resource, field), &target.table].map(quote_name);
    let dangling = format!(
        "FROM {table} AS t0 WHERE NOT EXISTS (SELECT 1 FROM {target} AS target WHERE target.\"id\" = t0.\"target\")"
    );
    format!(
        "SELECT CAST(t0.\"item\" AS text), (SELECT count(DISTINCT t0.\"item\") {dangling}) {dangling} \
         GROUP BY t0.\"item\" ORDER BY t0.\"item\" LIMIT {limit}"
    )
}
