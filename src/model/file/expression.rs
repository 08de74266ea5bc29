//! Expressions in the model file: maps an error inside an expression to its position in the file.

use std::ops::Range;

use super::toml_tree::TomlText;
use crate::model::Field;
use crate::model::expr::{self, Expr, ExprError, ExprScope};
use crate::model::report::Mistakes;

pub fn read_computed(
    text: &TomlText<'_>,
    target: &Field,
    scope: ExprScope<'_>,
    mistakes: &mut Mistakes,
) -> Option<Expr> {
    ok_or_mistake(text, expr::parse_computed(text.value, target, scope), mistakes)
}

pub fn read_condition(
    text: &TomlText<'_>,
    scope: ExprScope<'_>,
    mistakes: &mut Mistakes,
) -> Option<Expr> {
    ok_or_mistake(text, expr::parse_condition(text.value, scope), mistakes)
}

fn ok_or_mistake(
    text: &TomlText<'_>,
    result: Result<Expr, ExprError>,
    mistakes: &mut Mistakes,
) -> Option<Expr> {
    result.map_err(|failure| add_mistake(text, failure, mistakes)).ok()
}

fn add_mistake(text: &TomlText<'_>, failure: ExprError, mistakes: &mut Mistakes) {
    match failure {
        ExprError::AlreadyReported => {}
        ExprError::Mistake { at, message, help: Some(help) } => {
            mistakes.add_with_help(span_in_file(text, &at), message, help);
        }
        ExprError::Mistake { at, message, help: None } => {
            mistakes.add(span_in_file(text, &at), message);
        }
        ExprError::Several(failures) => {
            failures.into_iter().for_each(|failure| add_mistake(text, failure, mistakes));
        }
    }
}

/// Exact if the expression stands unchanged in the file: in quotes, without escapes.
fn span_in_file(text: &TomlText<'_>, at: &Range<usize>) -> Range<usize> {
    if text.span.len() != text.value.len() + 2 {
        return text.span.clone();
    }
    let start = text.span.start + 1;
    // At the end of the text only the closing quote can be underlined.
    start + at.start..(start + at.end).max(start + at.start + 1)
}
