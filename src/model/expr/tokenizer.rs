//! The tokenizer of expressions: words and signs with their positions.

use std::ops::Range;

use super::tree::{Comparison, ExprError};

#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub at: Range<usize>,
    pub kind: TokenKind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum TokenKind {
    Number(String),
    Text(String),
    Word(String),
    User,
    Sign(char),
    Compare(Comparison),
}

impl TokenKind {
    pub fn describe(&self) -> String {
        match self {
            Self::Number(text) => text.clone(),
            Self::Text(_) => "a text".to_owned(),
            Self::Word(word) => format!("`{word}`"),
            Self::User => "`$user`".to_owned(),
            Self::Sign(sign) => format!("`{sign}`"),
            Self::Compare(comparison) => format!("`{}`", comparison.as_str()),
        }
    }
}

pub fn tokenize(text: &str) -> Result<Vec<Token>, ExprError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text.get(at..).and_then(|rest| rest.chars().next()) {
        if first.is_ascii_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (length, kind) = read_token(text.get(at..).unwrap_or_default(), first, at)?;
        tokens.push(Token { at: at..at + length, kind });
        at += length;
    }
    Ok(tokens)
}

/// Operators of other languages, and the ones to use instead.
const FOREIGN_OPERATORS: &[(&str, &str, &str)] = &[
    ("==", "=", "a comparison is one `=`"),
    ("<>", "!=", "\"not equal\" is `!=`"),
    ("&&", "and", "write the word: `a and b`"),
    ("||", "or", "write the word: `a or b`"),
];

/// The token at the start of `rest`, and its length in bytes.
fn read_token(rest: &str, first: char, at: usize) -> Result<(usize, TokenKind), ExprError> {
    let count = |fits: fn(char) -> bool| rest.find(|c| !fits(c)).unwrap_or(rest.len());
    if let Some((sign, here, help)) =
        FOREIGN_OPERATORS.iter().find(|(sign, _, _)| rest.starts_with(sign))
    {
        return Err(ExprError::with_help(
            at..at + 2,
            format!("expected `{here}`, got `{sign}`"),
            *help,
        ));
    }
    let second = rest.chars().nth(1);
    Ok(match (first, second) {
        ('"' | '\'', _) => read_quoted(rest, first, at)?,
        ('0'..='9', _) => {
            let length = count(|c| c.is_ascii_digit() || c == '.');
            let number = rest.get(..length).unwrap_or_default();
            let zero_before =
                number.len() > 1 && number.starts_with('0') && !number.starts_with("0.");
            if zero_before || number.matches('.').count() > 1 || number.ends_with('.') {
                return Err(ExprError::new(
                    at..at + length,
                    format!("expected a number such as 1 or 1.5, got {number}"),
                ));
            }
            (length, TokenKind::Number(number.to_owned()))
        }
        ('a'..='z' | 'A'..='Z' | '_', _) => {
            let length = count(|c| c.is_ascii_alphanumeric() || c == '_');
            (length, TokenKind::Word(rest.get(..length).unwrap_or_default().to_owned()))
        }
        ('$', _) => {
            let length = 1 + rest.get(1..).map_or(0, |rest| {
                rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len())
            });
            if rest.get(..length) != Some("$user") {
                return Err(ExprError::with_help(
                    at..at + length,
                    "the only name with a `$` is `$user`",
                    "fields are named without it",
                ));
            }
            (length, TokenKind::User)
        }
        ('!', Some('=')) => (2, TokenKind::Compare(Comparison::NotEqual)),
        ('<', Some('=')) => (2, TokenKind::Compare(Comparison::LessOrEqual)),
        ('>', Some('=')) => (2, TokenKind::Compare(Comparison::GreaterOrEqual)),
        ('=', _) => (1, TokenKind::Compare(Comparison::Equal)),
        ('<', _) => (1, TokenKind::Compare(Comparison::Less)),
        ('>', _) => (1, TokenKind::Compare(Comparison::Greater)),
        ('+' | '-' | '*' | '/' | '(' | ')' | '[' | ']' | ',' | '.', _) => {
            (1, TokenKind::Sign(first))
        }
        _ => {
            return Err(ExprError::new(
                at..at + first.len_utf8(),
                format!("`{}` means nothing here", first.escape_debug()),
            ));
        }
    })
}

/// A string in single or double quotes, without escapes: it cannot contain its own quote character.
fn read_quoted(rest: &str, quote: char, at: usize) -> Result<(usize, TokenKind), ExprError> {
    let inner = rest.get(1..).unwrap_or_default();
    match inner.split_once(quote) {
        // PostgreSQL cannot store it.
        Some((text, _)) if text.contains('\0') => Err(ExprError::new(
            at..at + text.len() + 2,
            "the text has a NUL character, which no value may have".to_owned(),
        )),
        Some((text, _)) => Ok((text.len() + 2, TokenKind::Text(text.to_owned()))),
        None => {
            Err(ExprError::new(at..at + rest.len(), format!("the text has no closing {quote}")))
        }
    }
}
