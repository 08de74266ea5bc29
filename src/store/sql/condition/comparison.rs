//! Comparisons of two operands, which may have different types.

use crate::model::expr::Comparison;
use crate::store::sql::expressions::{ExpressionSyntax, OperandType, comparison_operator};

/// An operand of a condition.
#[derive(Debug)]
pub struct ConditionOperand {
    pub text: String,
    pub kind: OperandType,
}

impl ConditionOperand {
    pub fn truth(text: String) -> Self {
        Self { text, kind: OperandType::Boolean }
    }
}

pub fn compare_operands(
    words: &ExpressionSyntax,
    comparison: Comparison,
    (one, other): (&ConditionOperand, &ConditionOperand),
) -> String {
    let sign = comparison_operator(comparison);
    let as_real = |side: &ConditionOperand| match side.kind {
        OperandType::Units(scale) => (words.as_real)(&side.text, scale),
        _ => side.text.clone(),
    };
    let as_text = |side: &ConditionOperand| match side.kind {
        OperandType::Uuid => (words.uuid_text)(&side.text),
        _ => side.text.clone(),
    };
    match (one.kind, other.kind) {
        (OperandType::Units(less), OperandType::Units(more)) if less < more => {
            (words.compare_scaled)(comparison, &one.text, &other.text, more - less)
        }
        (OperandType::Units(more), OperandType::Units(less)) if less < more => {
            (words.compare_scaled)(comparison.mirrored(), &other.text, &one.text, more - less)
        }
        (OperandType::Units(_), OperandType::Real) | (OperandType::Real, OperandType::Units(_)) => {
            format!("({} {sign} {})", as_real(one), as_real(other))
        }
        (OperandType::Uuid, OperandType::Text) | (OperandType::Text, OperandType::Uuid) => {
            format!("({} {sign} {})", as_text(one), as_text(other))
        }
        (_, _) => format!("({} {sign} {})", one.text, other.text),
    }
}

/// Whether an operand is equal to one of the others.
pub fn is_among(
    words: &ExpressionSyntax,
    inner: &ConditionOperand,
    among: &[ConditionOperand],
) -> String {
    if among.iter().all(|one| one.kind == inner.kind) {
        let texts: Vec<&str> = among.iter().map(|one| &*one.text).collect();
        return format!("({} IN ({}))", inner.text, texts.join(", "));
    }
    let is_one = |one| compare_operands(words, Comparison::Equal, (inner, one));
    format!("({})", among.iter().map(is_one).collect::<Vec<_>>().join(" OR "))
}
