//! Fuzz target: a model file, or two separated by a line `#---`: the model before and after a change.
//!
//! Properties: no panic; every error has a position in the file; SQLite accepts the tables of a valid model,
//! and the database restores the model from the shape that it stores; the difference of two models is either
//! refused or can be applied.

use crate::model::diff::{Difference, MigrationEffect, compare};
use crate::model::{Model, read, read_shape};
use crate::store;

const SEPARATOR: &str = "#---\n";
/// Errors after these are not printed.
const SHOWN_MAX: usize = 100;

pub fn model(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let (before, after) = text.split_once(SEPARATOR).unwrap_or((text, ""));
    let before = read_or_check_errors(before);
    let after = if after.is_empty() { None } else { read_or_check_errors(after) };
    if let Some(model) = &before {
        check_stored_shape(model);
        check_migration(model, model, &[]);
    }
    if let (Some(before), Some(after)) = (&before, &after) {
        check_migration(before, after, &compare(before, after));
    }
}

fn read_or_check_errors(text: &str) -> Option<Model> {
    let errors = match read("nouns.toml", text) {
        Ok(model) => return Some(model),
        Err(errors) => errors,
    };
    assert!(!errors.mistakes().is_empty(), "refused without a reason");
    for mistake in errors.mistakes() {
        let span = &mistake.span;
        assert!(span.start <= span.end && span.end <= text.len(), "{mistake:?}");
        assert!(!mistake.message.is_empty(), "{mistake:?}");
    }
    let shown = errors.render(false);
    assert!(errors.render(true).len() >= shown.len());
    let places = shown.matches("--> nouns.toml:").count();
    assert!(places >= errors.mistakes().len().min(SHOWN_MAX), "{shown}");
    None
}

/// A database restores the same model from the shape that it stores.
fn check_stored_shape(model: &Model) {
    let again = read_shape(&model.shape);
    assert!(again.is_ok(), "{again:?}\n{}", model.shape);
    if let Ok(again) = again {
        assert_eq!(again.shape, model.shape);
        assert_eq!(compare(&again, model), []);
        assert_eq!(compare(model, &again), []);
    }
}

fn check_migration(before: &Model, after: &Model, differences: &[Difference]) {
    // Only `nouns migrate` renames, also where there are no items.
    let is_renamed = |difference: &Difference| matches!(difference, Difference::Change(change) if change.effect == MigrationEffect::Rename);
    if differences.iter().any(is_renamed) {
        return;
    }
    let is_refused =
        differences.iter().any(|difference| matches!(difference, Difference::Change(_)));
    let applied = store::check_migration(before, after);
    let is_right = match &applied {
        Ok(is_applied) => *is_applied != is_refused,
        Err(_) => false,
    };
    assert!(is_right, "{applied:?} {differences:?}\n{}\n{}", before.shape, after.shape);
}
