//! The related items of lists (`expand`), compared with an evaluation in memory.

use serde_json::{Value, json};

use super::super::{RowRules, id, text};
use super::evaluation::Moment;
use super::rule::{NAMES, Row};

/// A relation of a noun.
#[derive(Debug, Clone, Copy)]
enum Relation {
    Parent(usize),
    /// The number of the ref, and its target.
    Ref(usize, usize),
    Children(usize),
}

impl Relation {
    /// The relations whose items the user may read.
    fn all(moment: &Moment<'_>, noun: usize) -> Vec<Self> {
        let nouns = &moment.world.nouns;
        let refs = nouns[noun].refs.iter().enumerate().map(|(at, to)| Self::Ref(at, *to));
        let parent = nouns[noun].parent.map(Self::Parent);
        let children = nouns.iter().enumerate().filter(|(_, child)| child.parent == Some(noun));
        let children = children.map(|(child, _)| Self::Children(child));
        let is_readable = |relation: &Self| {
            let mut at = Some(relation.target());
            while let Some(noun) = at {
                if moment.user.rules[noun].is_none() {
                    return false;
                }
                at = nouns[noun].parent;
            }
            true
        };
        refs.chain(parent).chain(children).filter(is_readable).collect()
    }

    fn target(self) -> usize {
        match self {
            Self::Parent(to) | Self::Ref(_, to) | Self::Children(to) => to,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Parent(to) => NAMES[to].to_owned(),
            Self::Ref(at, _) => format!("r{at}"),
            Self::Children(to) => format!("{}s", NAMES[to]),
        }
    }
}

/// Compares the list of a noun, which has items with these ids, with all relations, and with one relation of each of them; returns how many related items
/// are shown.
pub fn compare_related(
    rules: &mut RowRules,
    paths: &[String],
    moment: &Moment<'_>,
    (noun, ids): (usize, &[String]),
) -> usize {
    let relations: Vec<(Relation, Option<Relation>)> = Relation::all(moment, noun)
        .into_iter()
        .enumerate()
        .map(|(at, first)| {
            let second = Relation::all(moment, first.target());
            (first, second.get((noun + at) % second.len().max(1)).copied())
        })
        .collect();
    if relations.is_empty() {
        return 0;
    }
    let names = relations.iter().map(|(first, second)| match second {
        Some(second) => format!("{}.{}", first.name(), second.name()),
        None => first.name(),
    });
    let names = names.collect::<Vec<_>>().join(",");
    let (name, user) = (NAMES[noun], moment.user.name);
    let line = format!("GET /{name}s?limit=500&expand={names}");
    let answer = rules.request(user, &line, &Value::Null);
    assert_eq!(answer.status, 200, "{line} as {user}: {answer:?}");
    let page = answer.json();
    let mut count = 0;
    let items = page[format!("{name}s")].as_array().unwrap();
    let mut found: Vec<String> = items.iter().map(|item| text(&item["id"])).collect();
    found.sort();
    assert_eq!(found, ids, "{line} as {user}");
    for item in items {
        let is_it = |row: &&Row| row.noun == noun && id(&paths[row.number]) == text(&item["id"]);
        let row = moment.items.values().find(is_it).unwrap();
        for (first, second) in &relations {
            let mut expected = Expected { moment, paths, count: &mut count };
            let expected = expected.related(row, *first, *second);
            let found = keep_ids(&item[first.name()], *second);
            assert_eq!(found, expected, "{} of {row:?}: {line} as {user}", first.name());
        }
    }
    count
}

struct Expected<'a> {
    moment: &'a Moment<'a>,
    paths: &'a [String],
    count: &'a mut usize,
}

impl Expected<'_> {
    /// The id of an item, and its related items.
    fn item(&mut self, row: &Row, second: Option<Relation>) -> Value {
        *self.count += 1;
        let mut shown = json!({"id": id(&self.paths[row.number])});
        if let Some(second) = second {
            shown[second.name()] = self.related(row, second, None);
        }
        shown
    }

    fn related(&mut self, row: &Row, relation: Relation, second: Option<Relation>) -> Value {
        let items = self.moment.items;
        match relation {
            Relation::Children(child) => {
                let is_shown = |one: &&Row| {
                    one.noun == child && one.parent == Some(row.number) && self.moment.is_seen(one)
                };
                let mut children: Vec<&Row> = items.values().filter(is_shown).collect();
                children.sort_by_key(|row| sort_key(id(&self.paths[row.number])));
                children.into_iter().map(|child| self.item(child, second)).collect()
            }
            Relation::Parent(_) | Relation::Ref(..) => {
                let to = match relation {
                    Relation::Ref(at, _) => row.refs[at],
                    _ => row.parent,
                };
                let Some(to) = to else { return Value::Null };
                match self.moment.is_seen(&items[&to]) {
                    true => self.item(&items[&to], second),
                    false => json!(id(&self.paths[to])),
                }
            }
        }
    }
}

/// Numbers by their value, before texts.
fn sort_key(id: &str) -> (i64, String) {
    (id.parse().unwrap_or(i64::MAX), id.to_owned())
}

/// The ids of related items, and of those of the second level.
fn keep_ids(found: &Value, second: Option<Relation>) -> Value {
    match found {
        Value::Array(items) => items.iter().map(|item| keep_ids(item, second)).collect(),
        Value::Object(item) => {
            let mut kept = json!({"id": text(&item["id"])});
            if let Some(second) = second {
                let of_item = item.get(&second.name()).unwrap_or(&Value::Null);
                kept[second.name()] = keep_ids(of_item, None);
            }
            kept
        }
        Value::Null => Value::Null,
        value => json!(text(value)),
    }
}
