//! The rules of random models, evaluated in memory.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::rule::{Grant, Row, Rule, Term, User, Way, World};

/// The items at some time, and the present ones.
pub struct Moment<'a> {
    pub world: &'a World,
    pub items: &'a HashMap<usize, Row>,
    pub user: &'a User,
    /// Whether the row is one that a request sends, and not one that is or was stored.
    pub is_requested: bool,
}

impl Moment<'_> {
    pub fn follow(&self, row: &Row, way: &Way) -> Value {
        let mut at = row.clone();
        for (index, step) in way.steps.iter().enumerate() {
            let next = match step {
                None => at.parent,
                Some(number) => at.refs[*number],
            };
            let Some(next) = next else { return Value::Null };
            if index + 1 == way.steps.len() && way.field.is_empty() {
                return json!(next);
            }
            let Some(item) = self.find(row, next) else { return Value::Null };
            at = item;
        }
        match way.field {
            "id" => json!(at.number),
            field => at.values.get(field).cloned().unwrap_or(Value::Null),
        }
    }

    /// An item at that time; the row itself is as given.
    pub fn find(&self, row: &Row, number: usize) -> Option<Row> {
        if row.number == number { Some(row.clone()) } else { self.items.get(&number).cloned() }
    }

    pub fn term(
        &self,
        (row, outside): (&Row, &Row),
        term: &Term,
        this: &[(String, Value)],
    ) -> Value {
        match term {
            Term::Row(way) => self.follow(row, way),
            Term::This(way) => {
                let key = format!("{way:?}");
                let known = this.iter().find(|(known, _)| *known == key);
                known.map_or_else(|| self.follow(outside, way), |(_, value)| value.clone())
            }
            Term::Literal(value) => value.clone(),
            Term::User => json!(self.user.name),
            Term::UserField(name) => self.user.fields.get(name).cloned().unwrap_or(Value::Null),
        }
    }

    pub fn holds(&self, rows: (&Row, &Row), rule: &Rule, this: &[(String, Value)]) -> Option<bool> {
        match rule {
            Rule::Compare(one, sign, other) => {
                let (one, other) = (self.term(rows, one, this), self.term(rows, other, this));
                if one.is_null() || other.is_null() {
                    return None;
                }
                let order = match (one.as_i64(), other.as_i64(), one.as_str(), other.as_str()) {
                    (Some(one), Some(other), ..) => one.cmp(&other),
                    (_, _, Some(one), Some(other)) => one.cmp(other),
                    _ => one.as_bool().unwrap().cmp(&other.as_bool().unwrap()),
                };
                Some(match *sign {
                    "=" => order.is_eq(),
                    "!=" => order.is_ne(),
                    "<" => order.is_lt(),
                    _ => order.is_ge(),
                })
            }
            Rule::Contains(list, value) => {
                let (list, value) = (self.term(rows, list, this), self.term(rows, value, this));
                let list = list.as_array().filter(|_| !value.is_null())?;
                Some(list.contains(&value))
            }
            Rule::Not(inner) => self.holds(rows, inner, this).map(|holds| !holds),
            Rule::And(one, other) => {
                match (self.holds(rows, one, this), self.holds(rows, other, this)) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                }
            }
            Rule::Or(one, other) => {
                match (self.holds(rows, one, this), self.holds(rows, other, this)) {
                    (Some(true), _) | (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                }
            }
            Rule::Exists(member, inner) => Some(self.exists(rows.0, *member, inner)),
        }
    }

    /// Members are looked for now, with the values of the row at that time; the row itself counts as it is, unless it
    /// is requested.
    pub fn exists(&self, row: &Row, member: usize, inner: &Rule) -> bool {
        let counts = row.noun == member && !self.is_requested;
        if counts && self.holds((row, row), inner, &[]) == Some(true) {
            return true;
        }
        let mut this = Vec::new();
        self.collect_this(row, inner, &mut this);
        let now = Moment { items: &self.world.now, is_requested: false, ..*self };
        self.world.now.values().any(|other| {
            other.noun == member
                && (self.is_requested || other.number != row.number)
                && now.holds((other, other), inner, &this) == Some(true)
        })
    }

    pub fn collect_this(&self, row: &Row, rule: &Rule, this: &mut Vec<(String, Value)>) {
        match rule {
            Rule::Compare(one, _, other) | Rule::Contains(one, other) => {
                for term in [one, other] {
                    if let Term::This(way) = term {
                        this.push((format!("{way:?}"), self.follow(row, way)));
                    }
                }
            }
            Rule::And(one, other) | Rule::Or(one, other) => {
                self.collect_this(row, one, this);
                self.collect_this(row, other, this);
            }
            Rule::Not(inner) => self.collect_this(row, inner, this),
            Rule::Exists(..) => {}
        }
    }

    /// Whether the user's rule shows a row, without its ancestors.
    pub fn is_granted(&self, row: &Row) -> bool {
        self.allows(&self.user.rules[row.noun], row)
    }

    pub fn allows(&self, grant: &Grant, row: &Row) -> bool {
        match grant {
            None => false,
            Some(None) => true,
            Some(Some(rule)) => self.holds((row, row), rule, &[]) == Some(true),
        }
    }

    pub fn is_seen(&self, row: &Row) -> bool {
        self.is_granted(row) && self.sees_ancestors(row)
    }

    pub fn sees_ancestors(&self, row: &Row) -> bool {
        let mut at = row.parent;
        while let Some(number) = at {
            let Some(item) = self.items.get(&number) else { return false };
            if !self.is_granted(item) {
                return false;
            }
            at = item.parent;
        }
        true
    }
}

/// A change of the log.
pub struct Logged {
    pub number: usize,
    pub before: Option<Row>,
    pub after: Option<Row>,
    /// The items after it.
    pub items: HashMap<usize, Row>,
}

/// The kind of event that a user sees.
pub fn judge(world: &World, user: &User, change: &Logged) -> Option<&'static str> {
    let moment = Moment { world, items: &change.items, user, is_requested: false };
    let is_shown = |row: &Option<Row>| row.as_ref().is_some_and(|row| moment.is_granted(row));
    let row = change.after.as_ref().or(change.before.as_ref()).unwrap();
    let kind =
        match (&change.before, is_shown(&change.before), is_shown(&change.after), &change.after) {
            (None, _, true, _) => "created",
            (Some(_), true, _, None) => "deleted",
            (Some(_), _, true, Some(_)) => "updated",
            (Some(_), true, false, Some(_)) => "left",
            _ => return None,
        };
    moment.sees_ancestors(row).then_some(kind)
}
