//! Keyset pagination: the statements of one filtered and sorted list, made for its query and used once.
//!
//! Every value is bound. The one surprising thing: where the first sort key may be NULL, a page is read in
//! two sections, the items with the key and those without, so that each section is one range of the index,
//! however the engine sorts NULL.

mod filter;

use super::condition::Term;
use super::part::{chain, conditions};
use super::words::Kind;
use super::{Dialect, quoted, selected};
use crate::intent::{Aspect, Key, List};
use crate::model::{Class, Field, Model, Resource};
use crate::permit::Reach;
use crate::store::driver::{Bind, Stroke};
use crate::value::{Id, IdKind, Value};

/// Which items of a list a statement reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Section {
    /// The first sort key is never NULL, or there is none.
    All,
    Present,
    Absent,
    /// Items whose first sort key equals that of the cursor, and items beyond it.
    Same,
    Further,
}

/// The statements of one list.
#[derive(Debug)]
pub(in crate::store) struct Listing<'a> {
    dialect: &'static Dialect,
    resource: &'a Resource,
    list: &'a List,
    reach: &'a Reach,
    from: String,
    /// The conditions of the path and of the access scope, and their parameters.
    within: Vec<String>,
    terms: Vec<Term>,
    chain: Vec<Id>,
}

/// A column or expression that is filtered or sorted by, as SQL.
#[derive(Debug)]
struct Operand {
    text: String,
    /// The indexed form, used for lookups and sorting: a prefix of a long text.
    start: String,
    kind: Kind,
    /// Whether `indexed_text` is a prefix of the text.
    is_cut: bool,
    /// An expression over a column, and not the column itself.
    is_made: bool,
    /// A timestamp inside an object: text in its canonical form.
    is_spelled: bool,
}

/// Builds a statement and collects its parameters.
struct Writer<'s> {
    dialect: &'static Dialect,
    binds: Vec<Bind<'s>>,
}

impl<'s> Writer<'s> {
    fn bind(&mut self, bind: Bind<'s>, kind: Kind) -> String {
        self.binds.push(bind);
        let (p, cast) = (self.dialect.placeholder, (self.dialect.words.cast)(kind));
        format!("{p}{}{cast}", self.binds.len())
    }

    fn value(&mut self, operand: &Operand, value: &'s Value) -> String {
        self.bind(bind(operand, value), operand.kind)
    }

    fn text(&mut self, text: &'s str) -> String {
        self.bind(Bind::Text(text), Kind::Text)
    }
}

fn bind<'v>(operand: &Operand, value: &'v Value) -> Bind<'v> {
    match value {
        Value::Text(text) if operand.kind == Kind::Uuid => {
            IdKind::Uuid.parse(text).map_or(Bind::Null, Bind::Id)
        }
        Value::Moment(moment) if operand.is_spelled => Bind::MomentText(*moment),
        value => Bind::value(value),
    }
}

/// The expression that an index on a column, or on a field nested in it, holds; and whether that is a prefix.
pub(super) fn indexed(
    dialect: &Dialect,
    column: &Field,
    inner: &[Box<str>],
) -> Option<(String, bool)> {
    let operand = operand_of(dialect, column, inner, "")?;
    // In an index, an expression that is no function call needs parentheses.
    let is_bare = inner.is_empty() || operand.is_cut;
    let text = if is_bare { operand.start } else { format!("({})", operand.start) };
    Some((text, operand.is_cut))
}

fn operand_of(
    dialect: &Dialect,
    column: &Field,
    inner: &[Box<str>],
    table: &str,
) -> Option<Operand> {
    let field = inner.iter().try_fold(column, |field, name| {
        field.rules.fields.iter().find(|inner| inner.name == *name)
    })?;
    let name = format!("{table}{}", quoted(&column.name));
    let is_spelled = !inner.is_empty() && field.class() == Class::Moment;
    // A cast to timestamptz depends on settings, so no index can hold it; the canonical text sorts the same.
    let class = if is_spelled { Class::Text } else { field.class() };
    let is_id = field.rules.to.is_some_and(|to| to.id == IdKind::Uuid);
    let kind = match class {
        Class::Text if is_id => Kind::Uuid,
        Class::Text | Class::Json => Kind::Text,
        Class::Integer => Kind::Units(0),
        Class::Decimal => Kind::Units(field.rules.scale),
        Class::Real => Kind::Real,
        Class::Boolean => Kind::Boolean,
        Class::Moment => Kind::Moment,
    };
    let text = match inner.is_empty() {
        true => name,
        false => (dialect.words.member)(&name, inner, (class, field.rules.scale)),
    };
    let is_text = class == Class::Text && field.rules.to.is_none() && !is_spelled;
    let start = match is_text {
        true => (dialect.ordered_text)(&text, field.is_short()),
        false => text.clone(),
    };
    let is_cut = start != text;
    let is_made = !inner.is_empty() || is_cut;
    Some(Operand { text, start, kind, is_cut, is_made, is_spelled })
}

impl<'a> Listing<'a> {
    pub(in crate::store) fn new(
        model: &'a Model,
        dialect: &'static Dialect,
        (resource, ancestors): (&'a Resource, &[Id]),
        reach: &'a Reach,
        list: &'a List,
    ) -> Self {
        let chained = chain(model, resource, reach);
        let (mut within, terms) = conditions(model, dialect, resource, reach, 1);
        let p = dialect.placeholder;
        let tied = chained.columns.iter().zip(terms.len() + 1..);
        within.extend(tied.map(|(column, number)| format!("{column} = {p}{number}")));
        let chain = ancestors.iter().rev().copied().collect();
        Self { dialect, resource, list, reach, from: chained.from, within, terms, chain }
    }

    /// The sections of a page in order. The next one is read when the ones before have too few items.
    pub(in crate::store) fn sections(&self) -> Vec<Section> {
        let List { after, sort, .. } = self.list;
        let Some(first) = sort.first() else { return vec![Section::All] };
        let after = after.as_ref().and_then(|after| after.values.first());
        let is_behind_absent = after.map(Value::is_null);
        let has_absent = first.aspect.may_be_absent(self.resource);
        let operand = self.operand(&first.aspect);
        let is_pair = sort.len() == 1 && first.is_descending == self.list.is_id_descending;
        let is_split = is_pair && operand.is_made && !self.dialect.pairs_expressions;
        let present: &[Section] = match (is_behind_absent, has_absent) {
            (Some(false), _) if is_split => &[Section::Same, Section::Further],
            (_, false) => &[Section::All],
            (_, true) => &[Section::Present],
        };
        // NULL sorts above every value.
        match (is_behind_absent, first.is_descending) {
            _ if !has_absent => present.to_vec(),
            (None | Some(false), false) => [present, &[Section::Absent]].concat(),
            (None | Some(true), true) => [&[Section::Absent], present].concat(),
            (Some(true), false) => vec![Section::Absent],
            (Some(false), true) => present.to_vec(),
        }
    }

    pub(in crate::store) fn page(&self, section: Section, limit: i64) -> Stroke<'_> {
        let mut writer = self.writer();
        let mut all = self.filters(&mut writer);
        all.extend(self.place(&mut writer, section));
        let (select, from, order) =
            (selected(self.resource, "t0."), &self.from, self.order(section));
        let limit = writer.bind(Bind::Integer(limit), Kind::Units(0));
        let condition = joined(&all);
        let text = format!("SELECT {select} FROM {from}{condition} ORDER BY {order} LIMIT {limit}");
        Stroke::new(text, writer.binds)
    }

    /// Counts the items of all pages.
    pub(in crate::store) fn count(&self) -> Stroke<'_> {
        let mut writer = self.writer();
        let all = self.filters(&mut writer);
        Stroke::new(format!("SELECT count(*) FROM {}{}", self.from, joined(&all)), writer.binds)
    }

    fn writer(&self) -> Writer<'_> {
        let terms = self.terms.iter().map(|term| term.bind(self.reach.user()));
        let binds = terms.chain(self.chain.iter().map(|id| Bind::Id(*id))).collect();
        Writer { dialect: self.dialect, binds }
    }

    fn filters<'s>(&'s self, writer: &mut Writer<'s>) -> Vec<String> {
        let filters = self.list.terms.iter().map(|term| self.filter(writer, term));
        let filters: Vec<String> = filters.collect();
        self.within.iter().cloned().chain(filters).collect()
    }

    fn operand(&self, aspect: &Aspect) -> Operand {
        let own = |name: &str, kind| {
            let text = format!("t0.{}", quoted(name));
            let (is_cut, is_made, is_spelled) = (false, false, false);
            Operand { start: text.clone(), text, kind, is_cut, is_made, is_spelled }
        };
        match aspect {
            Aspect::Id => own("id", id_kind(self.resource)),
            Aspect::CreatedAt => own("created_at", Kind::Moment),
            Aspect::UpdatedAt => own("updated_at", Kind::Moment),
            Aspect::Field(at, inner) => {
                let column = self.resource.fields.get(*at);
                let found =
                    column.and_then(|column| operand_of(self.dialect, column, inner, "t0."));
                // Cannot happen: the parser of the query has checked the field against the model.
                found.unwrap_or_else(|| own("id", id_kind(self.resource)))
            }
        }
    }

    /// The conditions of the cursor: items after the last one of the previous page.
    fn place<'s>(&'s self, writer: &mut Writer<'s>, section: Section) -> Vec<String> {
        let List { after, sort, .. } = self.list;
        let first = sort.first().map(|key| self.operand(&key.aspect).start);
        let mut all = Vec::new();
        match (section, first) {
            (Section::Present, Some(first)) => all.push(format!("{first} IS NOT NULL")),
            (Section::Absent, Some(first)) => all.push(format!("{first} IS NULL")),
            (_, _) => {}
        }
        let Some(after) = after else { return all };
        let keys: Vec<(&Key, &Value)> = sort.iter().zip(&after.values).collect();
        match (section, keys.as_slice()) {
            // Items without the key come after all items with it.
            (Section::Absent, [(_, value), ..]) if !value.is_null() => {}
            (Section::Present, [(_, value), ..]) if value.is_null() => {}
            (Section::Absent, [_, rest @ ..]) => all.push(self.behind(writer, rest, after.id)),
            (Section::Same | Section::Further, [(key, value)]) => {
                let operand = self.operand(&key.aspect);
                let is_same = section == Section::Same;
                let sign = if is_same { "=" } else { way(key.is_descending) };
                all.push(format!("{} {sign} {}", operand.start, writer.value(&operand, value)));
                if is_same {
                    all.push(self.behind(writer, &[], after.id));
                }
            }
            (_, [(key, value)]) if key.is_descending == self.list.is_id_descending => {
                let operand = self.operand(&key.aspect);
                let value = writer.value(&operand, value);
                let id = writer.bind(Bind::Id(after.id), id_kind(self.resource));
                let (key, sign) = (operand.start, way(key.is_descending));
                all.push(format!("({key}, t0.\"id\") {sign} ({value}, {id})"));
            }
            (_, keys) => {
                // A coarse condition that the index can serve, then the exact one.
                if let Some((key, value)) = keys.first() {
                    let operand = self.operand(&key.aspect);
                    let value = writer.value(&operand, value);
                    all.push(format!("{} {}= {value}", operand.start, way(key.is_descending)));
                }
                all.push(self.behind(writer, keys, after.id));
            }
        }
        all
    }

    fn behind<'s>(
        &'s self,
        writer: &mut Writer<'s>,
        keys: &[(&'s Key, &'s Value)],
        id: Id,
    ) -> String {
        let Some(((key, value), rest)) = keys.split_first() else {
            let sign = way(self.list.is_id_descending);
            return format!(
                "t0.\"id\" {sign} {}",
                writer.bind(Bind::Id(id), id_kind(self.resource))
            );
        };
        let operand = self.operand(&key.aspect);
        let column = &operand.start;
        // NULL sorts above every value.
        let (further, same) = match (value.is_null(), key.is_descending) {
            (true, true) => (Some(format!("{column} IS NOT NULL")), format!("{column} IS NULL")),
            (true, false) => (None, format!("{column} IS NULL")),
            (false, is_descending) => {
                let further = writer.value(&operand, value);
                let further = format!("{column} {} {further}", way(is_descending));
                let same = format!("{column} = {}", writer.value(&operand, value));
                match !is_descending && key.aspect.may_be_absent(self.resource) {
                    true => (Some(format!("{further} OR {column} IS NULL")), same),
                    false => (Some(further), same),
                }
            }
        };
        let rest = self.behind(writer, rest, id);
        match further {
            Some(further) => format!("({further} OR ({same} AND {rest}))"),
            None => format!("({same} AND {rest})"),
        }
    }

    fn order(&self, section: Section) -> String {
        let List { sort, is_id_descending, .. } = self.list;
        let mut keys: Vec<String> = Vec::with_capacity(sort.len() + 1);
        let is_one = matches!(section, Section::Absent | Section::Same);
        let is_needless = is_one && !self.dialect.sorts_by_null;
        for (number, key) in sort.iter().enumerate().skip(usize::from(is_needless)) {
            let column = self.operand(&key.aspect).start;
            // Within a section, the first key is NULL in all rows or in none.
            let absent = match (number, key.is_descending) {
                (0, true) => " DESC",
                (0, false) => "",
                (_, true) => " DESC NULLS FIRST",
                (_, false) => " NULLS LAST",
            };
            keys.push(format!("{column}{absent}"));
        }
        keys.push(format!("t0.\"id\"{}", if *is_id_descending { " DESC" } else { "" }));
        keys.join(", ")
    }
}

fn id_kind(resource: &Resource) -> Kind {
    match resource.id {
        IdKind::Uuid => Kind::Uuid,
        IdKind::Integer => Kind::Units(0),
    }
}

fn way(is_descending: bool) -> &'static str {
    if is_descending { "<" } else { ">" }
}

fn joined(conditions: &[String]) -> String {
    match conditions.is_empty() {
        true => String::new(),
        false => format!(" WHERE {}", conditions.join(" AND ")),
    }
}

#[cfg(test)]
mod tests;
