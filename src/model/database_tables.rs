//! The tables of a database of another program, as its catalogue describes them: the input of `infer`.

/// The engine, which decides how the rows are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableEngine {
    Sqlite,
    Postgres,
}

/// The tables of one schema.
#[derive(Debug)]
pub struct DatabaseTables {
    pub engine: TableEngine,
    /// The name of the database, for the title of the model.
    pub name: String,
    pub tables: Vec<TableDefinition>,
    /// Views and other relations that hold no rows of their own, each with what it is.
    pub other_relations: Vec<(String, &'static str)>,
}

#[derive(Debug, Default)]
pub struct TableDefinition {
    pub name: String,
    pub columns: Vec<ColumnDefinition>,
    /// The columns of the primary key; none if there is no key.
    pub primary_key: Vec<String>,
    /// The columns of each unique constraint or index.
    pub unique: Vec<Vec<String>>,
    /// The first columns of the other indexes.
    pub indexed: Vec<String>,
    pub foreign_keys: Vec<TableReference>,
    /// The conditions of check constraints, as SQL.
    pub checks: Vec<String>,
    /// Other rules, each as a text for the reader.
    pub other_rules: Vec<String>,
}

#[derive(Debug)]
pub struct ColumnDefinition {
    pub name: String,
    pub kind: ColumnKind,
    /// The type as it was declared.
    pub declared: String,
    pub is_required: bool,
    /// The default, as SQL.
    pub default: Option<String>,
    /// Whether the engine computes it.
    pub is_generated: bool,
    /// Whether the engine compares its texts without regard to case, in unique rules.
    pub ignores_case: bool,
}

/// The type of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnKind {
    Text {
        chars_max: Option<u64>,
        /// Whether the engine adds spaces up to the length.
        is_padded: bool,
    },
    Integer,
    Real,
    /// Exact numbers, with their digits in all and after the point.
    Numeric(Option<(i64, i64)>),
    Boolean,
    Date,
    Timestamp {
        /// Whether the values are moments, and not times on some clock.
        has_zone: bool,
    },
    Uuid,
    Json,
    /// One of these texts.
    Choice(Vec<String>),
    List(Box<Self>),
    Binary,
    /// Any other type, which a model has as text.
    Other,
}

/// A foreign key.
#[derive(Debug)]
pub struct TableReference {
    /// The columns here, and the columns of the other table.
    pub columns: Vec<(String, String)>,
    pub target: String,
    pub on_delete: DeleteAction,
}

/// What deleting a row does to the rows that refer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteAction {
    Refuse,
    Cascade,
    SetNull,
    SetDefault,
}

impl TableDefinition {
    pub fn column(&self, name: &str) -> Option<&ColumnDefinition> {
        self.columns.iter().find(|column| column.name == name)
    }
}
