//! Statements of `nouns move`: whole tables, of items and of the server's own data, column by column.

use crate::model::{Field, Model, Resource, StorageClass};
use crate::store::sql::columns::{placeholders, quote_name};
use crate::store::sql::derived::derived_columns;
use crate::store::sql::dialect::Dialect;
use crate::store::statement::BulkInsert;
use crate::value::IdKind;

/// The class of the values of a column, on every engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnClass {
    /// Also JSON, whose text is moved unchanged.
    Text,
    Integer,
    Real,
    Boolean,
    Moment,
    Id(IdKind),
}

#[derive(Debug)]
pub struct MovedColumn {
    pub name: String,
    pub class: ColumnClass,
}

/// The names of the server's own tables begin with it.
pub const OWN_PREFIX: &str = "nouns_";

/// A table that is moved. Its first column is its primary key, in whose order its rows are read.
#[derive(Debug)]
pub struct MovedTable {
    /// Its contents in messages, such as `orders`.
    pub label: String,
    pub name: String,
    pub columns: Vec<MovedColumn>,
}

impl MovedTable {
    /// The tables of a database with this model, those with foreign keys to others after them. The key-value table
    /// `nouns_system` and tables whose rows a running server alone needs are not among them.
    pub fn all(model: &Model) -> Vec<Self> {
        use ColumnClass::{Boolean, Integer, Moment, Text};
        let uuid = ColumnClass::Id(IdKind::Uuid);
        let log = [("sequence", Integer), ("time", Moment)].into_iter().chain(
            ["resource", "id", "parent_id", "subject", "kind", "actor", "request_id"]
                .into_iter()
                .chain(["changed", "before", "after"])
                .map(|name| (name, Text)),
        );
        let keys = [
            ("scope", Text),
            ("fingerprint", Text),
            ("time", Moment),
            ("bytes", Integer),
            ("answer", Text),
        ];
        let queue = [
            ("delivery_id", uuid),
            ("webhook_id", uuid),
            ("subject", Text),
            ("sequence", Integer),
            ("body", Text),
            ("tries", Integer),
            ("waiting", Boolean),
            ("due", Moment),
            ("claim_token", Text),
        ];
        let positions = [("webhook_id", uuid), ("position", Integer), ("active", Boolean)];
        let mut tables: Vec<Self> =
            model.resources.iter().map(|resource| Self::of_resource(model, resource)).collect();
        tables.push(Self::new("changes", "nouns_changes", log));
        tables.push(Self::new("idempotency keys", "nouns_keys", keys));
        tables.push(Self::new("queued deliveries", "nouns_delivery_queue", queue));
        tables.push(Self::new("positions of webhooks", "nouns_webhook_positions", positions));
        tables
    }

    fn new<'a>(
        label: &str,
        name: &str,
        columns: impl IntoIterator<Item = (&'a str, ColumnClass)>,
    ) -> Self {
        let columns = columns.into_iter();
        let columns = columns.map(|(name, class)| MovedColumn { name: name.to_owned(), class });
        Self { label: label.to_owned(), name: name.to_owned(), columns: columns.collect() }
    }

    fn of_resource(model: &Model, resource: &Resource) -> Self {
        let parent = resource.parent_key.as_deref().zip(resource.parent);
        let parent = parent.map(|(key, parent)| (key, ColumnClass::Id(model.resource(parent).id)));
        let own = [
            ("created_at", ColumnClass::Moment),
            ("updated_at", ColumnClass::Moment),
            ("version", ColumnClass::Integer),
        ];
        let fields = resource.fields.iter().map(|field| (&*field.name, field_class(field)));
        let columns = [("id", ColumnClass::Id(resource.id))].into_iter().chain(parent).chain(own);
        let mut table = Self::new(&resource.plural, &resource.table, columns.chain(fields));
        let derived = derived_columns(resource);
        let derived = derived.map(|one| MovedColumn { name: one.name(), class: ColumnClass::Text });
        table.columns.extend(derived);
        table
    }

    fn column_list(&self) -> String {
        let names = self.columns.iter().map(|column| quote_name(&column.name));
        names.collect::<Vec<_>>().join(", ")
    }

    /// The first page of rows, in the order of the key. 1: the limit.
    pub fn first_page(&self, dialect: &Dialect) -> String {
        self.page("", dialect)
    }

    /// A further page (keyset pagination). 1: the limit, 2: after which key.
    pub fn further_page(&self, dialect: &Dialect) -> String {
        let condition = format!(" WHERE {} > {}2", self.key(), dialect.placeholder);
        self.page(&condition, dialect)
    }

    fn page(&self, condition: &str, dialect: &Dialect) -> String {
        let (columns, table, key) = (self.column_list(), quote_name(&self.name), self.key());
        let p = dialect.placeholder;
        format!("SELECT {columns} FROM {table}{condition} ORDER BY {key} LIMIT {p}1")
    }

    fn key(&self) -> String {
        quote_name(self.columns.first().map_or("id", |column| &column.name))
    }

    pub fn count(&self) -> String {
        format!("SELECT count(*) FROM {}", quote_name(&self.name))
    }

    pub fn insert(&self, dialect: &Dialect) -> BulkInsert {
        let (columns, table) = (self.column_list(), quote_name(&self.name));
        let values = placeholders(dialect, 1, self.columns.len());
        BulkInsert {
            row: format!("INSERT INTO {table} ({columns}) VALUES ({values})"),
            copy: format!("COPY {table} ({columns}) FROM STDIN (FORMAT binary)"),
        }
    }
}

fn field_class(field: &Field) -> ColumnClass {
    match (field.rules.reference, field.storage_class()) {
        (Some(target), _) => ColumnClass::Id(target.id),
        (None, StorageClass::Text | StorageClass::Json) => ColumnClass::Text,
        (None, StorageClass::Integer | StorageClass::Decimal) => ColumnClass::Integer,
        (None, StorageClass::Real) => ColumnClass::Real,
        (None, StorageClass::Boolean) => ColumnClass::Boolean,
        (None, StorageClass::Moment) => ColumnClass::Moment,
    }
}

/// All values of the key-value table.
pub const SYSTEM_VALUES: &str = "SELECT name, value FROM nouns_system";
