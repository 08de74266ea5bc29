//! Differential test: for random filters and rows, both engines and `intent::matches` select the same rows,
//! also on items that were written to the change log and parsed again.
//!
//! Few distinct values, so that many are equal; among them the extremes, NULL, and texts beyond the indexed
//! prefix.

use std::collections::BTreeMap;
use std::sync::Arc;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::formats::{json, logged_item};
use crate::intent::{
    self, Intent, ListQuery, PathIds, RequestVerb, ResourcePath, Route, RouteTarget, matches,
};
use crate::model::{self, Model, ResourceIndex};
use crate::permit::AccessScope;
use crate::plan::{Outcome, ReadPlan};
use crate::store::sql::condition::tests::{RandomSource, collection, create};
use crate::store::{StoreWorker, test_stores};
use crate::value::{Decimal, Id, Item, Moment, Value};

const QUERIES: usize = 3_000;
const ROWS: usize = 90;
const ROW: ResourceIndex = ResourceIndex(2);

const MODEL: &str = r#"
title = "Filters"

[server.limits]
page_items_max = 1000
filter_terms_max = 100

[resources.target.fields]
name = { type = "text" }

[resources.numbered]
id = "integer"
[resources.numbered.fields]
name = { type = "text" }

[resources.row.fields]
t = { type = "text", filter = true }
s = { type = "text", max_length = 9, filter = true, nullable = true }
mail = { type = "email", filter = true }
link = { type = "url", filter = true }
i = { type = "integer", filter = true }
d = { type = "decimal", scale = 0, filter = true }
e = { type = "decimal", scale = 2, filter = true }
f = { type = "decimal", scale = 9, filter = true }
n = { type = "number", filter = true }
b = { type = "boolean", filter = true }
day = { type = "date", filter = true }
at = { type = "timestamp", filter = true }
u = { type = "uuid", filter = true }
r = { type = "ref", to = "target", filter = true }
k = { type = "ref", to = "numbered", filter = true }
st = { type = "state", initial = "new", next = { new = ["old"], old = [] } }
tags = { type = "list", of = { type = "text" }, filter = true }
whole = { type = "list", of = { type = "integer" }, filter = true }
prices = { type = "list", of = { type = "decimal", scale = 2 }, filter = true }
sizes = { type = "list", of = { type = "number" }, filter = true }
flags = { type = "list", of = { type = "boolean" }, filter = true }
times = { type = "list", of = { type = "timestamp" }, filter = true }
uuids = { type = "list", of = { type = "uuid" }, filter = true }

[resources.row.fields.o]
type = "object"
[resources.row.fields.o.fields]
t = { type = "text", filter = true }
i = { type = "integer", filter = true }
d = { type = "decimal", scale = 0, filter = true }
e = { type = "decimal", scale = 3, filter = true }
n = { type = "number", filter = true }
b = { type = "boolean", filter = true }
at = { type = "timestamp", filter = true }
day = { type = "date", filter = true }
u = { type = "uuid", filter = true }
tags = { type = "list", of = { type = "text" }, filter = true }
in = { type = "object", fields = { t = { type = "text", filter = true }, e = { type = "decimal", scale = 2, filter = true } } }
"#;

/// The fields, with the name of the pool that their values come from.
const PATHS: &[(&str, &str)] = &[
    ("t", "text"),
    ("s", "short"),
    ("mail", "mail"),
    ("link", "link"),
    ("i", "integer"),
    ("d", "decimal 0"),
    ("e", "decimal 2"),
    ("f", "decimal 9"),
    ("n", "number"),
    ("b", "boolean"),
    ("day", "day"),
    ("at", "moment"),
    ("u", "uuid"),
    ("r", "target"),
    ("k", "numbered"),
    ("st", "state"),
    ("tags", "list of text"),
    ("whole", "list of integer"),
    ("prices", "list of decimal 2"),
    ("sizes", "list of number"),
    ("flags", "list of boolean"),
    ("times", "list of moment"),
    ("uuids", "list of uuid"),
    ("o.t", "text"),
    ("o.i", "integer"),
    ("o.d", "decimal 0"),
    ("o.e", "decimal 3"),
    ("o.n", "number"),
    ("o.b", "boolean"),
    ("o.at", "moment"),
    ("o.day", "day"),
    ("o.u", "uuid"),
    ("o.tags", "list of text"),
    ("o.in.t", "text"),
    ("o.in.e", "decimal 2"),
];

const OPERATORS: &[&str] =
    &["eq", "ne", "gt", "gte", "lt", "lte", "between", "in", "has", "prefix", "contains", "exists"];

const SHORT: &[&str] =
    &["", "a", "b", "B", "ab", "abc", "é", "z", "𝄞", "\u{ffff}", "a%_\\", "a,b", "\\", "\n"];
const UNITS: &[i64] = &[0, 1, -1, 100, 150, -100, 1_000_000_000, 900_719_925_474_099_301];
const NUMBERS: &[f64] = &[0.0, 1.0, -1.0, 0.1, 1.5, 1e300, -1e300, 5e-324, 1_234_567_890.125];

/// Texts as long as the indexed prefix, shorter by one, and longer with equal prefixes.
fn long_text(number: usize) -> String {
    let tail = ["", "a", "b", "ba", "é", "𝄞", "\u{d7ff}", "\u{e000}", "\u{10ffff}", "", ""];
    let chars = if number == 10 { 255 } else { 256 };
    format!("{}{}", if number.is_multiple_of(2) { "x" } else { "é" }.repeat(chars), tail[number])
}

/// The values of a pool as a client writes them.
fn pool(name: &str, ids: &[Id]) -> Vec<String> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    match name.strip_prefix("list of ").unwrap_or(name) {
        "text" => texts(SHORT).into_iter().chain((0..11).map(long_text)).collect(),
        "short" => texts(SHORT),
        "mail" => texts(&["a@b.example", "A@b.example", "é@b.example", "z@z.example"]),
        "link" => texts(&["https://a.example/", "https://a.example/b?c=%20", "https://b.example/"]),
        "integer" => texts(&["0", "1", "-1", "7", "9007199254740991", "-9007199254740991"]),
        "number" => NUMBERS.iter().map(f64::to_string).collect(),
        "boolean" => texts(&["true", "false"]),
        "day" => texts(&["0001-01-01", "2026-11-15", "2026-11-16", "9999-12-31"]),
        "moment" => texts(&[
            "0001-01-01T00:00:00Z",
            "2026-11-15T02:28:14Z",
            "2026-11-15T02:28:14.000001Z",
            "9999-12-31T23:59:59.999999Z",
        ]),
        "uuid" => texts(&[
            "01890a5d-ac96-774b-bcce-b302099a8057",
            "f1890a5d-ac96-774b-bcce-b302099a8057",
            "00000000-0000-0000-0000-000000000000",
        ]),
        "target" => ids.iter().map(Id::to_string).collect(),
        "numbered" => texts(&["1", "2"]),
        "state" => texts(&["new", "old"]),
        decimal => {
            let scale = decimal.strip_prefix("decimal ").unwrap().parse().unwrap();
            UNITS.iter().map(|units| Decimal { units: *units, scale }.to_string()).collect()
        }
    }
}

fn stored_value(chance: &mut RandomSource, pool_name: &str, ids: &[Id]) -> Value {
    // An item is created in its initial state.
    if pool_name == "state" {
        return Value::text("new");
    }
    if chance.below(5) == 0 {
        return Value::Null;
    }
    if let Some(of) = pool_name.strip_prefix("list of ") {
        let elements = (0..chance.below(4)).map(|_| stored_value(chance, of, ids));
        return Value::List(elements.filter(|element| !element.is_null()).collect());
    }
    let pool = pool(pool_name, ids);
    let text = &pool[chance.below(pool.len())];
    match pool_name {
        "integer" | "numbered" => Value::Integer(text.parse().unwrap()),
        "number" => Value::Number(text.parse().unwrap()),
        "boolean" => Value::Boolean(text == "true"),
        "moment" => Value::Moment(Moment::parse(text).unwrap()),
        decimal if decimal.starts_with("decimal ") => {
            let scale: u8 = decimal.strip_prefix("decimal ").unwrap().parse().unwrap();
            Value::Decimal(Decimal { units: text.replace('.', "").parse().unwrap(), scale })
        }
        _ => Value::text(text),
    }
}

fn row(chance: &mut RandomSource, ids: &[Id]) -> Vec<Value> {
    let mut values = Vec::new();
    let (mut object, mut inner) = (Vec::new(), Vec::new());
    for (path, pool_name) in PATHS {
        let value = stored_value(chance, pool_name, ids);
        let name = path.rsplit('.').next().unwrap().into();
        match path.matches('.').count() {
            0 => values.push(value),
            _ if value.is_null() => {}
            1 => object.push((name, value)),
            _ => inner.push((name, value)),
        }
    }
    if chance.below(4) > 0 {
        object.push(("in".into(), Value::Object(inner)));
    }
    values.push(if chance.below(4) > 0 { Value::Object(object) } else { Value::Null });
    values
}

/// One filter: the operator, the name of the parameter, and its value.
fn filter(chance: &mut RandomSource, items: &[Item], ids: &[Id]) -> (&'static str, String, String) {
    let operator = chance.one(OPERATORS);
    let own = ["id", "created_at", "updated_at"];
    let (path, pool) = match chance.below(PATHS.len() + own.len()).checked_sub(own.len()) {
        Some(at) => (PATHS[at].0, pool(PATHS[at].1, ids)),
        None => {
            let name = chance.one(&own);
            let item = &items[chance.below(items.len())];
            let mut moment = |moment: Moment| {
                let micros = moment.micros() + [0, 1, -1, 1_000][chance.below(4)];
                Moment::from_micros(micros).unwrap().to_string()
            };
            (name, vec![if name == "id" { item.id.text() } else { moment(item.created_at) }])
        }
    };
    let one = |chance: &mut RandomSource| pool[chance.below(pool.len())].clone();
    let value = match operator {
        "exists" => chance.one(&["true", "false"]).to_owned(),
        "in" | "between" => {
            let escape = |text: String| text.replace('\\', r"\\").replace(',', r"\,");
            let count = if operator == "between" { 2 } else { 1 + chance.below(3) };
            let values: Vec<_> = (0..count).map(|_| escape(one(chance))).collect();
            values.join(",")
        }
        // A part of a value, at the limits of its characters.
        "prefix" | "contains" => {
            let text: Vec<char> = one(chance).chars().collect();
            let end = chance.below(text.len() + 1);
            let start = if operator == "prefix" { 0 } else { chance.below(end + 1) };
            text[start..end].iter().collect()
        }
        _ => one(chance),
    };
    (operator, format!("{path}:{operator}"), value)
}

/// Filters that are alone or in groups, as a client writes them in a group.
fn group(
    (model, chance): (&Model, &mut RandomSource),
    items: &[Item],
    ids: &[Id],
    level: usize,
) -> String {
    let word = match chance.below(level) {
        0 | 1 => {
            let (_, name, value) = filter(chance, items, ids);
            // One that the server accepts.
            let pair = intent::encode_pair(&name, &value);
            if read_query(model, &pair).is_none() {
                return group((model, chance), items, ids, level);
            }
            let escaped = value.chars().map(|c| match c {
                ';' | '(' | ')' | '\\' => format!("\\{c}"),
                c => c.to_string(),
            });
            return format!("{name}={}", escaped.collect::<String>());
        }
        2 => "not",
        3 => "any",
        _ => "all",
    };
    let parts: Vec<String> = (0..=chance.below(3))
        .map(|_| group((model, &mut *chance), items, ids, level - 1))
        .collect();
    format!("{word}({})", parts.join(";"))
}

/// A query of one or two filters, or of a group; and the operator of the first filter.
fn query(
    (model, chance): (&Model, &mut RandomSource),
    items: &[Item],
    ids: &[Id],
) -> (&'static str, String) {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    if chance.below(3) == 0 {
        let parts: Vec<String> =
            (0..=chance.below(3)).map(|_| group((model, &mut *chance), items, ids, 5)).collect();
        let word = chance.one(&["any", "not"]);
        return (word, format!("{word}={}", encode(&format!("({})", parts.join(";")))));
    }
    let count = 1 + chance.below(5) / 4;
    let filters: Vec<_> = (0..count).map(|_| filter(chance, items, ids)).collect();
    let texts = filters.iter().map(|(_, name, value)| format!("{name}={}", encode(value)));
    (filters[0].0, texts.collect::<Vec<_>>().join("&"))
}

/// `None` for a query that the server refuses, such as an operator that does not fit the type.
fn read_query(model: &Model, query: &str) -> Option<Arc<ListQuery>> {
    let address = ResourcePath::nested(ROW, PathIds::default());
    let route = Route { verb: RequestVerb::Get, target: RouteTarget::Collection(address) };
    let query = format!("{query}&limit={ROWS}");
    match intent::read(model, route, (Some(&query), &intent::AllReadable), b"") {
        Ok(Intent::List(_, list)) => Some(list),
        _ => None,
    }
}

async fn find(worker: &StoreWorker, list: Arc<ListQuery>) -> Vec<Id> {
    match worker.read(ReadPlan::Page(collection(ROW, AccessScope::default()), list)).await {
        Ok(Outcome::Page(page)) => page.items.iter().map(|item| item.id).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn filter_sql_selects_the_rows_that_filter_match_accepts() {
    let model = Arc::new(model::read("filters.toml", MODEL).unwrap_or_else(|e| panic!("{e}")));
    test_stores::on_each_engine("filters", &model, &async |worker| {
        let resource = model.resource(ROW);
        let name = || vec![vec![Value::Null], vec![Value::Null]];
        let targets = create(worker, ResourceIndex(0), name()).await;
        create(worker, ResourceIndex(1), name()).await;
        let ids: Vec<Id> = targets.iter().map(|item| item.id).collect();
        let mut chance = RandomSource(19);
        let mut items = Vec::new();
        for _ in 0..3 {
            let rows = (0..ROWS / 3).map(|_| row(&mut chance, &ids)).collect();
            items.extend(create(worker, ROW, rows).await);
        }
        // As the change log stores them.
        let parse =
            |item: &Item| logged_item::parse(&model, resource, &json::item_text(resource, item));
        let logged: Vec<Item> = items.iter().map(|item| parse(item).unwrap()).collect();
        assert_eq!(logged, items);
        let mut accepted: BTreeMap<(&str, bool), usize> = BTreeMap::new();
        for _ in 0..QUERIES {
            let (operator, query) = query((&model, &mut chance), &items, &ids);
            let Some(list) = read_query(&model, &query) else { continue };
            let found = find(worker, Arc::clone(&list)).await;
            for item in &logged {
                let expected = matches(&list.filters, resource, item, &[]);
                assert_eq!(found.contains(&item.id), expected, "{query}: {item:#?}");
                *accepted.entry((operator, expected)).or_default() += 1;
            }
        }
        // Each operator and each kind of group selected rows, and left rows out.
        assert_eq!(accepted.len(), 2 * (OPERATORS.len() + 2), "{accepted:?}");
        assert!(accepted.values().all(|count| *count > 100), "{accepted:?}");
    });
}
