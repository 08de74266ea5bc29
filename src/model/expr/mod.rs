//! The expression language of `computed`, `check` and `where`.
//!
//! Expressions are parsed and type-checked once, when the model is read; afterwards evaluation can only
//! overflow. No I/O and no SQL here; the syntax tree is public so that the store can translate a `where` to
//! SQL. Expressions have three-valued logic, as in SQL: a comparison with null is null, `not` of null is
//! null; a `where` holds only when it is true, and a `check` fails only when it is false.

mod check;
mod evaluate;
mod fraction;
mod literal;
mod names;
mod parse;
mod tokenizer;
mod tree;
mod types;

use super::field::{Field, ResourceIndex, StorageClass};
pub use evaluate::{
    Candidates, ExprRow, RelationFacts, UserValues, evaluate, fails, holds, holds_part,
    reference_holds,
};
pub use fraction::ComputedFault;
pub use names::{ExprScope, RelationScope, ResourceScope};
pub use tree::{
    Comparison, Expr, ExprError, ExprNode, ExprResult, MemberTest, Path, PathRoot, RelatedPath,
    RelationStep, RowVersion,
};

/// Parses the `computed` of `target`, a field of type integer, number, decimal, boolean or text.
pub fn parse_computed(text: &str, target: &Field, scope: ExprScope<'_>) -> Result<Expr, ExprError> {
    let result = match target.storage_class() {
        StorageClass::Integer => ExprResult::Integer,
        StorageClass::Decimal => ExprResult::Decimal(target.rules.scale),
        StorageClass::Real => ExprResult::Number,
        StorageClass::Text => ExprResult::Text,
        StorageClass::Boolean | StorageClass::Moment | StorageClass::Json => ExprResult::Boolean,
    };
    let root = check::check_computed(&parse::parse(text)?, target, scope)?;
    Ok(Expr { text: text.into(), root, result })
}

/// Parses a `check` of a resource.
pub fn parse_check(text: &str, scope: ExprScope<'_>) -> Result<Expr, ExprError> {
    let root = check::check_check(&parse::parse(text)?, scope)?;
    Ok(Expr { text: text.into(), root, result: ExprResult::Boolean })
}

/// Parses the `where` of a grant.
pub fn parse_condition(text: &str, scope: ExprScope<'_>) -> Result<Expr, ExprError> {
    let root = check::check_condition(&parse::parse(text)?, scope)?;
    Ok(Expr { text: text.into(), root, result: ExprResult::Boolean })
}

/// Parses the `where` of a `ref`: its names are those of the target, and `this.` begins one of the row.
pub fn parse_reference_rule(
    text: &str,
    relations: RelationScope<'_>,
    target: ResourceIndex,
) -> Result<MemberTest, ExprError> {
    check::check_member(&parse::parse(text)?, relations, target)
}

/// The words of an expression, its field names among them.
pub fn words(text: &str) -> Vec<String> {
    let tokens = tokenizer::tokenize(text).unwrap_or_default().into_iter();
    let words = tokens.filter_map(|token| match token.kind {
        tokenizer::TokenKind::Word(word) => Some(word),
        _ => None,
    });
    words.collect()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod where_tests;
