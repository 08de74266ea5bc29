//! Rules of random models: what they consist of, and how a model file writes them.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::durability::seeded_random::SeededRandom;

pub const NAMES: [&str; 4] = ["ant", "bee", "cat", "dog"];

/// A resource: its parent, and the targets of its refs.
#[derive(Debug, Clone)]
pub struct Noun {
    pub parent: Option<usize>,
    pub refs: Vec<usize>,
    pub is_integer: bool,
}

/// A value that a rule reads: relations from a row, and a field.
#[derive(Debug, Clone)]
pub struct Way {
    /// `None`: the parent; otherwise the number of a ref.
    pub steps: Vec<Option<usize>>,
    pub field: &'static str,
}

#[derive(Debug, Clone)]
pub enum Term {
    Row(Way),
    This(Way),
    Literal(Value),
    User,
    UserField(&'static str),
}

#[derive(Debug, Clone)]
pub enum Rule {
    Compare(Term, &'static str, Term),
    Contains(Term, Term),
    Exists(usize, Box<Rule>),
    Not(Box<Rule>),
    And(Box<Rule>, Box<Rule>),
    Or(Box<Rule>, Box<Rule>),
}

/// An item at some time. Items are known by their numbers, in the order of their creation.
#[derive(Debug, Clone)]
pub struct Row {
    pub noun: usize,
    pub number: usize,
    pub parent: Option<usize>,
    pub refs: Vec<Option<usize>>,
    pub values: HashMap<&'static str, Value>,
}

pub struct User {
    pub name: &'static str,
    pub fields: HashMap<&'static str, Value>,
    /// Of GET, by noun.
    pub rules: Vec<Grant>,
    /// Of PATCH, by noun.
    pub patch_rules: Vec<Grant>,
}

/// `None`: the verb is not granted; the inner `None` is a grant without a rule.
pub type Grant = Option<Option<Rule>>;

pub struct World {
    pub nouns: Vec<Noun>,
    /// The present items.
    pub now: HashMap<usize, Row>,
}

impl World {
    pub fn target(&self, noun: usize, step: Option<usize>) -> usize {
        match step {
            None => self.nouns[noun].parent.unwrap(),
            Some(at) => self.nouns[noun].refs[at],
        }
    }

    pub fn random_way(&self, chance: &mut SeededRandom, noun: usize, field: &'static str) -> Way {
        let (mut at, mut steps) = (noun, Vec::new());
        while steps.len() < 3 && chance.below(2) == 0 {
            let mut next: Vec<Option<usize>> = (0..self.nouns[at].refs.len()).map(Some).collect();
            next.extend(self.nouns[at].parent.map(|_| None));
            let Some(step) = chance.one_of(&next).copied() else { break };
            at = self.target(at, step);
            steps.push(step);
        }
        Way { steps, field }
    }

    /// A comparison of a value of the row; inside `exists`, also with one of the row outside.
    pub fn random_test(
        &self,
        chance: &mut SeededRandom,
        noun: usize,
        outside: Option<usize>,
    ) -> Rule {
        let sign = ["=", "!=", "<", ">=", "=", "="][chance.below(6)];
        let row =
            |chance: &mut SeededRandom, field| Term::Row(self.random_way(chance, noun, field));
        let this = |chance: &mut SeededRandom, field| {
            outside.map(|outside| Term::This(self.random_way(chance, outside, field)))
        };
        match chance.below(8) {
            0 => {
                let value = Term::Literal(json!(chance.below(5)));
                let other = this(chance, "n").filter(|_| chance.below(2) == 0).unwrap_or(value);
                Rule::Compare(row(chance, "n"), sign, other)
            }
            1 => Rule::Compare(row(chance, "n"), sign, Term::UserField("level")),
            2 => {
                let sign = ["=", "!="][chance.below(2)];
                Rule::Compare(row(chance, "flag"), sign, Term::Literal(json!(chance.below(2) == 0)))
            }
            3 => {
                let value = match chance.below(3) {
                    0 => Term::User,
                    1 => Term::UserField("tenant"),
                    _ => Term::Literal(json!("t0")),
                };
                Rule::Contains(row(chance, "tags"), value)
            }
            4 => Rule::Compare(row(chance, "owner"), sign, Term::UserField("tenant")),
            5 => {
                let own = row(chance, "owner");
                let other = this(chance, "owner").unwrap_or_else(|| row(chance, "owner"));
                Rule::Compare(own, sign, other)
            }
            _ => Rule::Compare(row(chance, "owner"), sign, Term::User),
        }
    }

    pub fn random_rule(&self, chance: &mut SeededRandom, noun: usize, depth: usize) -> Rule {
        match chance.below(if depth == 0 { 3 } else { 9 }) {
            3 => Rule::Not(Box::new(self.random_rule(chance, noun, depth - 1))),
            4 | 5 => Rule::Or(
                Box::new(self.random_rule(chance, noun, depth - 1)),
                Box::new(self.random_rule(chance, noun, depth - 1)),
            ),
            6 => Rule::And(
                Box::new(self.random_rule(chance, noun, depth - 1)),
                Box::new(self.random_rule(chance, noun, depth - 1)),
            ),
            7 | 8 => {
                let member = chance.below(self.nouns.len());
                let mut rule = self.random_test(chance, member, Some(noun));
                // A reference or parent of the member to the row, or to what the row refers to.
                if let Some(link) = self.random_link(chance, member, noun) {
                    rule = Rule::And(Box::new(link), Box::new(rule));
                }
                Rule::Exists(member, Box::new(rule))
            }
            _ => self.random_test(chance, noun, None),
        }
    }

    pub fn random_link(
        &self,
        chance: &mut SeededRandom,
        member: usize,
        noun: usize,
    ) -> Option<Rule> {
        let ways = |of: usize| {
            let mut ways: Vec<(usize, Way)> = vec![(of, Way { steps: Vec::new(), field: "id" })];
            let refs = self.nouns[of].refs.iter().enumerate();
            ways.extend(refs.map(|(at, to)| (*to, Way { steps: vec![Some(at)], field: "" })));
            let parent = self.nouns[of].parent;
            ways.extend(parent.map(|to| (to, Way { steps: vec![None], field: "" })));
            ways
        };
        let mut pairs = Vec::new();
        for (to, way) in ways(member) {
            for (other, this) in ways(noun) {
                if to == other {
                    pairs.push((way.clone(), this));
                }
            }
        }
        let (way, this) = chance.one_of(&pairs)?.clone();
        Some(Rule::Compare(Term::Row(way), "=", Term::This(this)))
    }

    pub fn show_way(&self, noun: usize, way: &Way) -> String {
        let (mut at, mut parts) = (noun, Vec::new());
        for step in &way.steps {
            parts.push(match step {
                None => NAMES[self.nouns[at].parent.unwrap()].to_owned(),
                Some(number) => format!("r{number}"),
            });
            at = self.target(at, *step);
        }
        if !way.field.is_empty() {
            parts.push(way.field.to_owned());
        }
        parts.join(".")
    }

    pub fn show_term(&self, (noun, outside): (usize, usize), term: &Term) -> String {
        match term {
            Term::Row(way) => self.show_way(noun, way),
            Term::This(way) => format!("this.{}", self.show_way(outside, way)),
            Term::Literal(Value::String(text)) => format!("'{text}'"),
            Term::Literal(value) => value.to_string(),
            Term::User => "$user".to_owned(),
            Term::UserField(name) => format!("$user.{name}"),
        }
    }

    /// A grant as the model file writes it; nothing if there is none.
    pub fn show_grant(&self, noun: usize, verb: &str, grant: &Grant) -> Option<String> {
        let condition = grant.as_ref()?.as_ref().map_or_else(String::new, |rule| {
            format!(", where = \"{}\"", self.show((noun, noun), rule))
        });
        Some(format!("{{ verbs = [\"{verb}\"]{condition} }}"))
    }

    pub fn show(&self, at: (usize, usize), rule: &Rule) -> String {
        let term = |term| self.show_term(at, term);
        match rule {
            Rule::Compare(one, sign, other) => format!("{} {sign} {}", term(one), term(other)),
            Rule::Contains(list, value) => format!("contains({}, {})", term(list), term(value)),
            Rule::Exists(member, inner) => {
                format!("exists({} where {})", NAMES[*member], self.show((*member, at.0), inner))
            }
            Rule::Not(inner) => format!("not ({})", self.show(at, inner)),
            Rule::And(one, other) => {
                format!("({}) and ({})", self.show(at, one), self.show(at, other))
            }
            Rule::Or(one, other) => {
                format!("({}) or ({})", self.show(at, one), self.show(at, other))
            }
        }
    }
}
