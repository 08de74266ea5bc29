//! Expressions in the model file: maps an error inside an expression to its position in the file.

use std::ops::Range;

use super::tree::Text;
use crate::model::Field;
use crate::model::expr::{self, Expr, Failure, Scope};
use crate::model::report::Mistakes;

pub(super) fn computed(
    text: &Text<'_>,
    target: &Field,
    scope: Scope<'_>,
    mistakes: &mut Mistakes,
) -> Option<Expr> {
    kept(text, expr::computed(text.value, target, scope), mistakes)
}

pub(super) fn condition(
    text: &Text<'_>,
    scope: Scope<'_>,
    mistakes: &mut Mistakes,
) -> Option<Expr> {
    kept(text, expr::condition(text.value, scope), mistakes)
}

fn kept(text: &Text<'_>, result: Result<Expr, Failure>, mistakes: &mut Mistakes) -> Option<Expr> {
    result.map_err(|failure| refuse(text, failure, mistakes)).ok()
}

fn refuse(text: &Text<'_>, failure: Failure, mistakes: &mut Mistakes) {
    match failure {
        Failure::Elsewhere => {}
        Failure::Mistake { at, message, help: Some(help) } => {
            mistakes.add_with(place(text, &at), message, help);
        }
        Failure::Mistake { at, message, help: None } => mistakes.add(place(text, &at), message),
        Failure::Several(failures) => {
            failures.into_iter().for_each(|failure| refuse(text, failure, mistakes));
        }
    }
}

/// Exact if the expression stands unchanged in the file: in quotes, without escapes.
fn place(text: &Text<'_>, at: &Range<usize>) -> Range<usize> {
    if text.span.len() != text.value.len() + 2 {
        return text.span.clone();
    }
    let start = text.span.start + 1;
    // At the end of the text only the closing quote can be underlined.
    start + at.start..(start + at.end).max(start + at.start + 1)
}
