//! Expressions in the model file: maps an error inside an expression to its position in the file.

use std::ops::Range;

use super::toml_tree::TomlText;
use crate::model::expr::ExprError;

/// The expression, or mistakes within its text.
pub fn read<T>(text: &TomlText<'_>, parsed: Result<T, ExprError>) -> Option<T> {
    parsed.map_err(|error| refuse(text, error)).ok()
}

fn refuse(text: &TomlText<'_>, error: ExprError) {
    match error {
        ExprError::AlreadyReported => {}
        ExprError::Mistake { at, message, help } => {
            text.refuse_at(span_in_file(text, &at), message, help);
        }
        ExprError::Several(errors) => errors.into_iter().for_each(|error| refuse(text, error)),
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
