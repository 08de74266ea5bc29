//! The rows that a filter over relations tests: those that GET shows to the caller.
//!
//! Each relation is `key IN (SELECT id …)`, which is not correlated, so that both engines can find the related rows by an
//! index of their own, and the items by the index of the key.

use crate::fault::OrBug as _;
use crate::model::expr::{PathRoot, RelationStep};
use crate::permit::AccessScope;
use crate::store::sql::condition::row_conditions::visible_conditions;
use crate::store::sql::condition::{ConditionWriter, RelatedRow, TableAlias};

/// The rows on the way from an item to a related one.
#[derive(Debug)]
pub struct RelatedRows<'a> {
    steps: &'a [RelationStep],
    levels: Vec<RelatedLevel<'a>>,
}

#[derive(Debug)]
struct RelatedLevel<'a> {
    row: RelatedRow<'a>,
    /// Whether the row before may have no such relation.
    can_be_absent: bool,
    /// The conditions of the rows that the caller sees.
    visible: Vec<String>,
}

impl<'a> RelatedRows<'a> {
    pub fn new(
        terms: &mut ConditionWriter<'a>,
        item: TableAlias<'_>,
        steps: &'a [RelationStep],
        scope: &AccessScope,
    ) -> Self {
        let mut levels: Vec<RelatedLevel<'a>> = Vec::with_capacity(steps.len());
        for step in steps {
            let from = levels.last().map_or(item, RelatedLevel::alias);
            let row = terms.follow(from, step);
            let mut level = RelatedLevel {
                row,
                can_be_absent: step.by != PathRoot::Parent,
                visible: Vec::new(),
            };
            level.visible = visible_conditions(terms, level.alias(), scope);
            levels.push(level);
        }
        Self { steps, levels }
    }

    /// Whether these relations lead to the rows.
    pub fn are_reached_by(&self, steps: &[RelationStep]) -> bool {
        self.steps == steps
    }

    /// The related row.
    pub fn last(&self) -> TableAlias<'_> {
        self.levels.last().or_bug("a path to another item has a step").alias()
    }

    /// Whether the caller sees all rows, and a condition holds for the last; also if there is no related item, where
    /// that is asked for.
    pub fn have(&self, condition: String, or_absent: bool) -> String {
        self.levels.iter().rev().fold(condition, |condition, level| {
            let conditions = [&level.visible[..], &[condition]].concat();
            let exists = level.row.exists_with(&conditions);
            match or_absent && level.can_be_absent {
                true => format!("({} IS NULL OR {exists})", level.row.key),
                false => exists,
            }
        })
    }
}

impl RelatedLevel<'_> {
    fn alias(&self) -> TableAlias<'_> {
        TableAlias { resource: self.row.resource, alias: &self.row.alias, this: None }
    }
}
