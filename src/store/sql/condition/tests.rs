//! Differential test: for random conditions and rows, the engines and our own evaluator select the same rows.
//!
//! Few distinct values, so that many are equal; among them the extremes and NULL.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::intent::ListQuery;
use crate::intent::preconditions::Preconditions;
use crate::model::expr::{RowVersion, UserValues};
use crate::model::{self, GrantVerb, Model, ResourceIndex, types};
use crate::permit::{AccessScope, Caller, FactReader, Rights, StoredRow};
use crate::plan::{
    Cardinality, ChangeAuthor, Collection, DraftValues, ItemDraft, Outcome, ReadPlan, WriteAction,
    WritePlan,
};
use crate::store::write::WriteOptions;
use crate::store::{StoreWorker, test_stores};
use crate::value::{Decimal, Id, Item, Moment, Value};

const CONDITIONS: usize = 700;
const ROWS: usize = 80;
const ROW: ResourceIndex = ResourceIndex(2);

const FIELDS: &str = r#"
title = "Conditions"

[resources.target.fields]
name = { type = "text" }

[resources.numbered]
id = "integer"

[resources.numbered.fields]
name = { type = "text" }

[resources.row.fields]
t = { type = "text", filter = true }
s = { type = "text", nullable = true }
i = { type = "integer", filter = true }
j = { type = "integer" }
d = { type = "decimal", scale = 0 }
e = { type = "decimal", scale = 2 }
f = { type = "decimal", scale = 9 }
n = { type = "number" }
m = { type = "number" }
b = { type = "boolean" }
c = { type = "boolean" }
day = { type = "date" }
at = { type = "timestamp", filter = true }
by = { type = "timestamp" }
u = { type = "uuid", filter = true }
r = { type = "ref", to = "target" }
k = { type = "ref", to = "numbered" }
o = { type = "object", fields = { t = { type = "text" }, i = { type = "integer" }, e = { type = "decimal", scale = 3 }, n = { type = "number" }, b = { type = "boolean" }, at = { type = "timestamp" }, day = { type = "date" }, in = { type = "object", fields = { t = { type = "text" }, d = { type = "decimal", scale = 0 } } } } }
"#;

/// Types that can be compared with each other.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ValueKind {
    Text,
    Day,
    Uuid,
    Target,
    Integer,
    Numbered,
    Decimal(u8),
    Number,
    Boolean,
    Moment,
}

const PATHS: &[(&str, ValueKind)] = &[
    ("t", ValueKind::Text),
    ("s", ValueKind::Text),
    ("i", ValueKind::Integer),
    ("j", ValueKind::Integer),
    ("d", ValueKind::Decimal(0)),
    ("e", ValueKind::Decimal(2)),
    ("f", ValueKind::Decimal(9)),
    ("n", ValueKind::Number),
    ("m", ValueKind::Number),
    ("b", ValueKind::Boolean),
    ("c", ValueKind::Boolean),
    ("day", ValueKind::Day),
    ("at", ValueKind::Moment),
    ("by", ValueKind::Moment),
    ("u", ValueKind::Uuid),
    ("r", ValueKind::Target),
    ("k", ValueKind::Numbered),
    ("o.t", ValueKind::Text),
    ("o.i", ValueKind::Integer),
    ("o.e", ValueKind::Decimal(3)),
    ("o.n", ValueKind::Number),
    ("o.b", ValueKind::Boolean),
    ("o.at", ValueKind::Moment),
    ("o.day", ValueKind::Day),
    ("o.in.t", ValueKind::Text),
    ("o.in.d", ValueKind::Decimal(0)),
];

const TEXTS: &[&str] = &["", "a", "b", "B", "ab", "ann", "bob", "é", "z", "𝄞", "a%_\\"];
const INTEGERS: &[i64] = &[0, 1, 2, -1, 3, 9_007_199_254_740_991, -9_007_199_254_740_991];
const UNITS: &[i64] = &[
    0,
    1,
    -1,
    100,
    200,
    -100,
    150,
    1_000_000_000,
    2_000_000_000,
    -1_000_000_000,
    1_500_000_000,
    999_999_999_999_999_999,
    -999_999_999_999_999_999,
    900_719_925_474_099_301,
    123_456_789_012_345_678,
];
const NUMBERS: &[f64] = &[
    0.0,
    1.0,
    -1.0,
    0.1,
    1.5,
    2.0,
    1e300,
    -1e300,
    5e-324,
    9_007_199_254_740_991.0,
    1_234_567_890.123_456_8,
    1_234_567_890.125,
];
const DAYS: &[&str] = &["0001-01-01", "2026-11-15", "2026-11-16", "9999-12-31"];
const MOMENTS: &[&str] = &[
    "0001-01-01T00:00:00Z",
    "2026-11-15T02:28:14Z",
    "2026-11-15T02:28:14.000001Z",
    "9999-12-31T23:59:59.999999Z",
];
const UUIDS: &[&str] =
    &["01890a5d-ac96-774b-bcce-b302099a8057", "f1890a5d-ac96-774b-bcce-b302099a8057"];

pub struct RandomSource(pub u64);

impl RandomSource {
    /// SplitMix64: a pseudorandom generator with one word of state.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(limit).unwrap()).unwrap()
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A stored value; `ids` are the ids of reference targets.
    fn value(&mut self, kind: ValueKind, ids: &[Id]) -> Value {
        if self.below(5) == 0 {
            return Value::Null;
        }
        match kind {
            ValueKind::Text => Value::text(self.one(TEXTS)),
            ValueKind::Day => Value::text(self.one(DAYS)),
            ValueKind::Uuid => Value::text(self.one(UUIDS)),
            ValueKind::Target => Value::text(&self.one(ids).to_string()),
            ValueKind::Integer => Value::Integer(self.one(INTEGERS)),
            ValueKind::Numbered => Value::Integer(self.one(&[1, 2])),
            ValueKind::Decimal(scale) => Value::Decimal(Decimal { units: self.one(UNITS), scale }),
            ValueKind::Number => Value::Number(self.one(NUMBERS)),
            ValueKind::Boolean => Value::Boolean(self.below(2) == 0),
            ValueKind::Moment => Value::Moment(Moment::parse(self.one(MOMENTS)).unwrap()),
        }
    }

    /// A literal as the author of a model writes it.
    fn literal(&mut self, kind: ValueKind, ids: &[Id]) -> String {
        match kind {
            ValueKind::Text => format!("\"{}\"", self.one(TEXTS)),
            ValueKind::Day => format!("\"{}\"", self.one(DAYS)),
            ValueKind::Uuid => format!("\"{}\"", self.one(UUIDS)),
            ValueKind::Target => format!("\"{}\"", self.one(ids)),
            ValueKind::Integer => self.one(INTEGERS).to_string(),
            ValueKind::Numbered => self.one(&[1, 2, 3]).to_string(),
            ValueKind::Decimal(scale) => Decimal { units: self.one(UNITS), scale }.to_string(),
            ValueKind::Number => {
                self.one(&["0", "1.0", "-1", "0.1", "1.5", "2", "1234567890.125"]).to_owned()
            }
            ValueKind::Boolean => self.one(&["true", "false"]).to_owned(),
            ValueKind::Moment => format!("\"{}\"", self.one(MOMENTS)),
        }
    }

    fn condition(&mut self, depth: usize, ids: &[Id]) -> String {
        match self.below(if depth == 0 { 7 } else { 11 }) {
            7 => format!("not ({})", self.condition(depth - 1, ids)),
            8 => format!(
                "({}) and ({})",
                self.condition(depth - 1, ids),
                self.condition(depth - 1, ids)
            ),
            9 | 10 => {
                format!(
                    "({}) or ({})",
                    self.condition(depth - 1, ids),
                    self.condition(depth - 1, ids)
                )
            }
            0 => {
                let (path, kind) = self.one(PATHS);
                let among: Vec<_> = (0..=self.below(3)).map(|_| self.literal(kind, ids)).collect();
                format!("{path} in [{}]", among.join(", "))
            }
            1 => self
                .one(&["b", "c", "o.b", "not b", "true", "1 < 2.5", "1.50 = 1.5", "2 != 2.0"])
                .to_owned(),
            2 => {
                let beside = self.one(&["t", "s", "u", "r", "o.t", "day", "\"ann\"", "\"bob\""]);
                let sign = self.sign(ValueKind::Text);
                if self.below(2) == 0 {
                    format!("$user {sign} {beside}")
                } else {
                    format!("{beside} {sign} $user")
                }
            }
            3 | 4 => {
                let (path, kind) = self.one(PATHS);
                let (literal, sign) = (self.literal(kind, ids), self.sign(kind));
                if self.below(2) == 0 {
                    format!("{path} {sign} {literal}")
                } else {
                    format!("{literal} {sign} {path}")
                }
            }
            _ => {
                let (path, kind) = self.one(PATHS);
                let others: Vec<_> =
                    PATHS.iter().filter(|(_, other)| group(*other) == group(kind)).collect();
                let (other, _) = *self.one(&others);
                format!("{path} {} {other}", self.sign(kind))
            }
        }
    }

    fn sign(&mut self, kind: ValueKind) -> &'static str {
        if kind == ValueKind::Boolean {
            return self.one(&["=", "!="]);
        }
        self.one(&["=", "!=", "<", "<=", ">", ">=", "=", "!="])
    }
}

fn group(kind: ValueKind) -> u8 {
    match kind {
        ValueKind::Text | ValueKind::Day | ValueKind::Uuid | ValueKind::Target => 0,
        ValueKind::Integer | ValueKind::Numbered | ValueKind::Decimal(_) | ValueKind::Number => 1,
        ValueKind::Boolean => 2,
        ValueKind::Moment => 3,
    }
}

/// A model with one role for each condition.
fn read(conditions: &[String]) -> Arc<Model> {
    let mut text = FIELDS.to_owned();
    for (number, condition) in conditions.iter().enumerate() {
        write!(
            text,
            "[roles.r{number}]\nrow = {{ verbs = [\"get\"], where = '''{condition}''' }}\n"
        )
        .unwrap();
    }
    Arc::new(model::read("conditions.toml", &text).unwrap_or_else(|errors| panic!("{errors}")))
}

pub fn collection(resource: ResourceIndex, reach: AccessScope) -> Collection {
    Collection::nested(resource, Vec::new(), reach)
}

pub async fn create(
    worker: &StoreWorker,
    resource: ResourceIndex,
    rows: Vec<Vec<Value>>,
) -> Vec<Item> {
    let draft = |values: Vec<Value>| {
        let values = DraftValues::Complete(values.into_iter().map(types::canonicalize).collect());
        ItemDraft { root: String::new(), values, references: Vec::new() }
    };
    let drafts = rows.into_iter().map(draft).collect();
    let action = WriteAction::Create { drafts, count: Cardinality::Many };
    let by = ChangeAuthor::without_user("-", "-");
    let (collection, conditions) =
        (collection(resource, AccessScope::default()), Preconditions::default());
    let write = WritePlan {
        collection,
        action,
        preconditions: conditions,
        author: by,
        idempotency: None,
        can_remove_last_admin: false,
        rights_lease: None,
    };
    let until = clock::now() + Duration::from_secs(60);
    match worker.write(Box::new(write), WriteOptions::with_deadline(until)).await.unwrap() {
        Outcome::CreatedMany(items) => items,
        other => panic!("{other:?}"),
    }
}

fn row(chance: &mut RandomSource, ids: &[Id]) -> Vec<Value> {
    let mut values = Vec::new();
    let (mut object, mut inner) = (Vec::new(), Vec::new());
    for (path, kind) in PATHS {
        let value = chance.value(*kind, ids);
        let name = |path: &str| path.rsplit('.').next().unwrap().into();
        match path.matches('.').count() {
            0 => values.push(value),
            _ if value.is_null() => {}
            1 => object.push((name(path), value)),
            _ => inner.push((name(path), value)),
        }
    }
    if chance.below(4) > 0 {
        object.push(("in".into(), Value::Object(inner)));
    }
    values.push(if chance.below(4) > 0 { Value::Object(object) } else { Value::Null });
    values
}

#[test]
fn condition_sql_selects_the_rows_that_the_evaluator_accepts() {
    // The store allocates the ids of the targets; a condition refers to two existing ones and a missing one.
    let ids: Vec<Id> = UUIDS.iter().map(|text| Id::Uuid(text.parse().unwrap())).collect();
    let mut chance = RandomSource(7);
    let conditions: Vec<String> = (0..CONDITIONS).map(|_| chance.condition(3, &ids)).collect();
    let model = read(&conditions);
    test_stores::on_each_engine("conditions", &model, &async |worker| {
        let name = || vec![vec![Value::Null], vec![Value::Null]];
        let targets = create(worker, ResourceIndex(0), name()).await;
        create(worker, ResourceIndex(1), name()).await;
        let ids: Vec<Id> = targets.iter().map(|item| item.id).collect();
        let mut chance = RandomSource(11);
        let rows: Vec<_> = (0..ROWS).map(|_| row(&mut chance, &ids)).collect();
        let items = create(worker, ROW, rows).await;
        let values: Vec<_> = items.iter().map(|item| (item.id, unsealed(&model, item))).collect();
        for (number, condition) in conditions.iter().enumerate() {
            let role = format!("r{number}");
            let rights = Arc::new(Rights::of_roles(&model, [&*role].into_iter()));
            let access = rights.access(ROW, GrantVerb::Get).unwrap();
            let (row, is_about_user) = (model.resource(ROW), condition.contains("$user"));
            for user in [Some("ann"), None].into_iter().take(1 + usize::from(is_about_user)) {
                let caller = match user {
                    Some(name) => Caller::user(name.into(), Arc::clone(&rights)),
                    None => Caller::anonymous(Arc::clone(&rights)),
                };
                let found = find(worker, &caller).await;
                for (id, values) in &values {
                    let stored =
                        StoredRow { id: *id, parent: None, values, version: RowVersion::Stored };
                    let (user, facts) =
                        (UserValues { name: user, fields: &[] }, FactReader::without_facts(&model));
                    let (expected, got) =
                        (access.allows_row(row, stored, user, &facts), found.contains(id));
                    assert_eq!(got, expected, "{condition} as {user:?}: {values:#?}");
                }
            }
        }
    });
}

async fn find(worker: &StoreWorker, caller: &Caller) -> Vec<Id> {
    let reach = AccessScope::new(caller, GrantVerb::Get);
    let read = ReadPlan::Page(collection(ROW, reach), ListQuery::by_id(ROWS, None).into());
    match worker.read(read).await {
        Ok(Outcome::Page(page)) => page.items.iter().map(|item| item.id).collect(),
        other => panic!("{other:?}"),
    }
}

fn unsealed(model: &Model, item: &Item) -> Vec<Value> {
    let fields = model.resource(ROW).fields.iter().zip(&item.values);
    fields.map(|(field, value)| types::parse_canonical(field, value.clone())).collect()
}
