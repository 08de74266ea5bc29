//! The model of any tables is valid.

use proptest::prelude::*;

use super::*;
use crate::model;
use crate::model::database_tables::{
    ColumnDefinition, ColumnKind, DeleteAction, TableDefinition, TableEngine, TableReference,
};

/// Names that are plain, reserved, taken by others, or no names at all.
const NAMES: [&str; 28] = [
    "id",
    "Id",
    "version",
    "created_at",
    "updated_at",
    "customer",
    "customers",
    "Customer",
    "customer_id",
    "CustomerID",
    "orders",
    "order",
    "orders_next",
    "order_id",
    "page",
    "pages",
    "xmin",
    "pg_x",
    "nouns_users",
    "",
    " ",
    "\n# x\n",
    "клиент",
    "\"quoted\"",
    "a.b",
    "2nd",
    "name]\n[roles.admin]",
    "a_very_long_name_that_goes_on_and_on_and_on_and_on_and_never_ends",
];

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(NAMES.to_vec()).prop_map(str::to_owned),
        1 => ".{0,50}",
    ]
}

fn scalar() -> impl Strategy<Value = ColumnKind> {
    prop_oneof![
        (prop::option::of(any::<u64>()), any::<bool>())
            .prop_map(|(chars_max, is_padded)| ColumnKind::Text { chars_max, is_padded }),
        Just(ColumnKind::Integer),
        Just(ColumnKind::Real),
        prop::option::of((any::<i64>(), any::<i64>())).prop_map(ColumnKind::Numeric),
        Just(ColumnKind::Boolean),
        Just(ColumnKind::Date),
        any::<bool>().prop_map(|has_zone| ColumnKind::Timestamp { has_zone }),
        Just(ColumnKind::Uuid),
        Just(ColumnKind::Json),
        prop::collection::vec(name(), 0..4).prop_map(ColumnKind::Choice),
        Just(ColumnKind::Binary),
        Just(ColumnKind::Other),
    ]
}

fn kind() -> impl Strategy<Value = ColumnKind> {
    prop_oneof![
        6 => scalar(),
        1 => scalar().prop_map(|kind| ColumnKind::List(Box::new(kind))),
        1 => scalar().prop_map(|kind| ColumnKind::List(Box::new(ColumnKind::List(Box::new(kind))))),
    ]
}

const DEFAULTS: [&str; 12] = [
    "0",
    "-1",
    "1.5",
    "1e999",
    "'x'",
    "''",
    "true",
    "'2026-01-01'",
    "now()",
    "NULL",
    "'{}'::jsonb",
    "9007199254740993",
];
const CONDITIONS: [&str; 8] = [
    "id > 0",
    "customer IN ('a', 'b', 'a')",
    "version BETWEEN 5 AND 1",
    "length(name) <= 0",
    "length(page) > 5",
    "order < 3.5",
    "customers = 'x' OR customers IS NULL",
    "a < b",
];

fn column() -> impl Strategy<Value = ColumnDefinition> {
    let default = prop::option::of(prop::sample::select(DEFAULTS.to_vec()).prop_map(str::to_owned));
    (name(), kind(), ".{0,20}", any::<bool>(), default, prop::bool::weighted(0.1)).prop_map(
        |(name, kind, declared, is_required, default, is_generated)| ColumnDefinition {
            name,
            kind,
            declared,
            is_required,
            default,
            is_generated,
            ignores_case: is_required,
        },
    )
}

fn table() -> impl Strategy<Value = TableDefinition> {
    let names = || prop::collection::vec(name(), 0..4);
    let action = prop::sample::select(vec![
        DeleteAction::Refuse,
        DeleteAction::Cascade,
        DeleteAction::SetNull,
        DeleteAction::SetDefault,
    ]);
    let key = (prop::collection::vec((name(), name()), 1..3), name(), action)
        .prop_map(|(columns, target, on_delete)| TableReference { columns, target, on_delete });
    let checks = prop::collection::vec(
        prop::sample::select(CONDITIONS.to_vec()).prop_map(str::to_owned),
        0..3,
    );
    let rules = (
        prop::collection::vec(names(), 0..3),
        names(),
        prop::collection::vec(key, 0..4),
        checks,
        names(),
    );
    (name(), prop::collection::vec(column(), 0..8), names(), rules).prop_map(
        |(name, columns, primary_key, (unique, indexed, foreign_keys, checks, other_rules))| {
            TableDefinition {
                name,
                columns,
                primary_key,
                unique,
                indexed,
                foreign_keys,
                checks,
                other_rules,
            }
        },
    )
}

fn tables() -> impl Strategy<Value = DatabaseTables> {
    let engine = prop::sample::select(vec![TableEngine::Sqlite, TableEngine::Postgres]);
    let others = prop::collection::vec(name().prop_map(|name| (name, "a view")), 0..2);
    (engine, name(), prop::collection::vec(table(), 1..6), others).prop_map(
        |(engine, name, tables, other_relations)| DatabaseTables {
            engine,
            name,
            tables,
            other_relations,
        },
    )
}

fn check(tables: &DatabaseTables) {
    let inferred = infer(tables);
    if let Err(errors) = model::read("the model", &inferred.text) {
        panic!("{errors}\n{}", inferred.text);
    }
    assert_eq!(inferred.resources, tables.tables.len());
    assert!(inferred.notes.iter().all(|note| !note.contains('\n')), "{:?}", inferred.notes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn inferred_model_of_any_tables_is_valid(tables in tables()) {
        check(&tables);
    }
}

/// The limits of a model: more tables, columns and levels than it can have, and a file that would be too long.
#[test]
fn inferred_model_keeps_the_limits_of_a_model() {
    let column = |name: String| ColumnDefinition {
        name,
        kind: ColumnKind::Integer,
        declared: "integer".to_owned(),
        is_required: true,
        default: None,
        is_generated: false,
        ignores_case: false,
    };
    let chain = |at: usize| TableDefinition {
        name: format!("level_{at}"),
        columns: vec![column("id".to_owned()), column("above".to_owned())],
        primary_key: vec!["id".to_owned()],
        foreign_keys: vec![TableReference {
            columns: vec![("above".to_owned(), "id".to_owned())],
            target: format!("level_{}", at + 1),
            on_delete: DeleteAction::Cascade,
        }],
        ..TableDefinition::default()
    };
    let wide = TableDefinition {
        name: "wide".to_owned(),
        columns: (0..600).map(|at| column(format!("column_{at}"))).collect(),
        ..TableDefinition::default()
    };
    let mut tables = DatabaseTables {
        engine: TableEngine::Sqlite,
        name: "x".repeat(200),
        tables: (0..40).map(chain).chain([wide]).collect(),
        other_relations: Vec::new(),
    };
    check(&tables);
    let long = |at: usize| TableDefinition {
        name: format!("{at} {}", "x".repeat(900)),
        columns: vec![column("id".to_owned())],
        primary_key: vec!["id".to_owned()],
        ..TableDefinition::default()
    };
    tables.tables = (0..1_010).map(long).collect();
    let inferred = infer(&tables);
    assert_eq!(inferred.resources, 1_000);
    assert!(model::read("the model", &inferred.text).is_ok());
    assert!(!inferred.text.contains("# rows of"));
}
