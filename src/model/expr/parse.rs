//! The parser of expressions: a syntax tree with the position of every node. Names and types are not checked
//! here.
//!
//! Precedence, from low to high: `or`, `and`, `not`, comparisons and `in`, `+ -`, `* /`, unary minus,
//! parentheses. Comparisons do not chain. Size and depth are limited.

use std::ops::Range;

use super::tokenizer::{Token, TokenKind, tokenize};
use super::tree::{Arithmetic, Comparison, ExprError, TextFunction};

const TOKENS_MAX: usize = 500;
const DEPTH_MAX: usize = 32;

/// A syntax node and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct SyntaxNode {
    pub at: Range<usize>,
    pub kind: SyntaxKind,
}

impl SyntaxNode {
    pub fn error(&self, message: impl Into<String>) -> ExprError {
        ExprError::new(self.at.clone(), message)
    }

    pub fn error_with_help(
        &self,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> ExprError {
        ExprError::with_help(self.at.clone(), message, help)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum SyntaxKind {
    /// Its source text, with a minus sign if there was one.
    Number(String),
    Text(String),
    Boolean(bool),
    User,
    /// A declared field of the user.
    UserField(String),
    /// A field, or a field inside objects.
    Name(Vec<String>),
    Negate(Box<SyntaxNode>),
    Not(Box<SyntaxNode>),
    Arithmetic(Arithmetic, Box<SyntaxNode>, Box<SyntaxNode>),
    Compare(Comparison, Box<SyntaxNode>, Box<SyntaxNode>),
    And(Box<SyntaxNode>, Box<SyntaxNode>),
    Or(Box<SyntaxNode>, Box<SyntaxNode>),
    In(Box<SyntaxNode>, Vec<SyntaxNode>),
    Sum(Vec<SyntaxNode>),
    Count(Vec<SyntaxNode>),
    Call(TextFunction, Vec<SyntaxNode>),
    Contains(Vec<SyntaxNode>),
    /// The name of a resource, and a condition.
    Exists(String, Box<SyntaxNode>),
}

impl SyntaxKind {
    pub fn is_literal(&self) -> bool {
        matches!(self, Self::Number(_) | Self::Text(_) | Self::Boolean(_))
    }
}

/// Makes the node of a binary operator.
type MakeBinary = fn(Box<SyntaxNode>, Box<SyntaxNode>) -> SyntaxKind;

pub fn parse(text: &str) -> Result<SyntaxNode, ExprError> {
    let tokens = tokenize(text)?;
    if tokens.is_empty() {
        return Err(ExprError::new(0..text.len(), "expected an expression, got an empty text"));
    }
    if tokens.len() > TOKENS_MAX {
        return Err(ExprError::new(
            0..text.len(),
            format!("expected at most {TOKENS_MAX} words and signs, got {}", tokens.len()),
        ));
    }
    let mut parser = ExprParser { tokens: &tokens, next: 0, depth: 0, end: text.len() };
    let syntax = parser.parse_or()?;
    match parser.peek() {
        None => Ok(syntax),
        Some(token) if matches!(token.kind, TokenKind::Compare(_)) => Err(ExprError::with_help(
            token.at.clone(),
            "comparisons do not chain",
            "join them with `and`: `a < b and b < c`",
        )),
        Some(token) => Err(ExprError::new(
            token.at.clone(),
            format!("expected the end or an operator, got {}", token.kind.describe()),
        )),
    }
}

struct ExprParser<'t> {
    tokens: &'t [Token],
    next: usize,
    depth: usize,
    /// The length of the text.
    end: usize,
}

type ParseResult = Result<SyntaxNode, ExprError>;

impl ExprParser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn next_token(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.next).cloned();
        self.next += 1;
        token
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found =
            matches!(self.peek(), Some(Token { kind: TokenKind::Word(next), .. }) if next == word);
        self.next += usize::from(found);
        found
    }

    fn take_sign(&mut self, sign: char) -> bool {
        let found =
            matches!(self.peek(), Some(Token { kind: TokenKind::Sign(next), .. }) if *next == sign);
        self.next += usize::from(found);
        found
    }

    /// The error for an unexpected token.
    fn expected<T>(&self, what: &str) -> Result<T, ExprError> {
        match self.peek() {
            Some(token) => Err(ExprError::new(
                token.at.clone(),
                format!("expected {what}, got {}", token.kind.describe()),
            )),
            None => {
                Err(ExprError::new(self.end..self.end, format!("expected {what}, got the end")))
            }
        }
    }

    fn expect_sign(&mut self, sign: char) -> Result<usize, ExprError> {
        let end = self.peek().map_or(self.end, |token| token.at.end);
        if self.take_sign(sign) { Ok(end) } else { self.expected(&format!("`{sign}`")) }
    }

    fn with_depth(&mut self, inner: fn(&mut Self) -> ParseResult) -> ParseResult {
        if self.depth >= DEPTH_MAX {
            let at = self.peek().map_or(self.end..self.end, |token| token.at.clone());
            return Err(ExprError::new(
                at,
                format!("expected at most {DEPTH_MAX} levels of nesting"),
            ));
        }
        self.depth += 1;
        let parsed = inner(self);
        self.depth -= 1;
        parsed
    }

    fn parse_or(&mut self) -> ParseResult {
        self.parse_binary(Self::parse_and, |token| match token {
            TokenKind::Word(word) if word == "or" => Some(SyntaxKind::Or),
            _ => None,
        })
    }

    fn parse_and(&mut self) -> ParseResult {
        self.parse_binary(Self::parse_not, |token| match token {
            TokenKind::Word(word) if word == "and" => Some(SyntaxKind::And),
            _ => None,
        })
    }

    fn parse_sum(&mut self) -> ParseResult {
        self.parse_binary(Self::parse_product, |token| match token {
            TokenKind::Sign('+') => Some(|a, b| SyntaxKind::Arithmetic(Arithmetic::Add, a, b)),
            TokenKind::Sign('-') => Some(|a, b| SyntaxKind::Arithmetic(Arithmetic::Subtract, a, b)),
            _ => None,
        })
    }

    fn parse_product(&mut self) -> ParseResult {
        self.parse_binary(Self::parse_unary_minus, |token| match token {
            TokenKind::Sign('*') => Some(|a, b| SyntaxKind::Arithmetic(Arithmetic::Multiply, a, b)),
            TokenKind::Sign('/') => Some(|a, b| SyntaxKind::Arithmetic(Arithmetic::Divide, a, b)),
            _ => None,
        })
    }

    /// Parses operands and the operators of one level between them, which associate to the left.
    fn parse_binary(
        &mut self,
        parse_operand: fn(&mut Self) -> ParseResult,
        find_operator: fn(&TokenKind) -> Option<MakeBinary>,
    ) -> ParseResult {
        let mut left = parse_operand(self)?;
        while let Some(make) = self.peek().and_then(|token| find_operator(&token.kind)) {
            self.next += 1;
            left = binary_node(make, left, parse_operand(self)?);
        }
        Ok(left)
    }

    fn parse_not(&mut self) -> ParseResult {
        let start = self.peek().map_or(self.end, |token| token.at.start);
        if !self.take_word("not") {
            return self.parse_comparison();
        }
        let inner = self.with_depth(Self::parse_not)?;
        Ok(SyntaxNode { at: start..inner.at.end, kind: SyntaxKind::Not(Box::new(inner)) })
    }

    fn parse_comparison(&mut self) -> ParseResult {
        let left = self.parse_sum()?;
        if let Some(Token { kind: TokenKind::Compare(comparison), .. }) = self.peek() {
            let comparison = *comparison;
            self.next += 1;
            let right = self.parse_sum()?;
            return Ok(binary_node(
                |left, right| SyntaxKind::Compare(comparison, left, right),
                left,
                right,
            ));
        }
        if self.take_word("in") {
            if !self.take_sign('[') {
                return self.expected("a list such as [\"a\", \"b\"]");
            }
            let (among, end) = self.parse_list(']')?;
            return Ok(SyntaxNode {
                at: left.at.start..end,
                kind: SyntaxKind::In(Box::new(left), among),
            });
        }
        Ok(left)
    }

    fn parse_unary_minus(&mut self) -> ParseResult {
        let start = self.peek().map_or(self.end, |token| token.at.start);
        if !self.take_sign('-') {
            return self.parse_primary();
        }
        let inner = self.with_depth(Self::parse_unary_minus)?;
        let at = start..inner.at.end;
        // A minus before a number is part of the literal, so that a `where` can have negative literals.
        let part = match inner.kind {
            SyntaxKind::Number(text) if !text.starts_with('-') => {
                SyntaxKind::Number(format!("-{text}"))
            }
            part => SyntaxKind::Negate(Box::new(SyntaxNode { at: inner.at, kind: part })),
        };
        Ok(SyntaxNode { at, kind: part })
    }

    fn parse_primary(&mut self) -> ParseResult {
        let Some(Token { at, kind }) = self.next_token() else {
            return self.expected("a field, a number or a text");
        };
        let part = match kind {
            TokenKind::Number(text) => SyntaxKind::Number(text),
            TokenKind::Text(text) => SyntaxKind::Text(text),
            TokenKind::User if self.take_sign('.') => {
                let Some(Token { at: end, kind: TokenKind::Word(name) }) = self.next_token() else {
                    self.next -= 1;
                    return self.expected("the name of a user's field after the dot");
                };
                return Ok(SyntaxNode { at: at.start..end.end, kind: SyntaxKind::UserField(name) });
            }
            TokenKind::User => SyntaxKind::User,
            TokenKind::Sign('(') => {
                let inner = self.with_depth(Self::parse_or)?;
                let end = self.expect_sign(')')?;
                return Ok(SyntaxNode { at: at.start..end, kind: inner.kind });
            }
            TokenKind::Word(word) => return self.parse_word(at, word),
            TokenKind::Sign(_) | TokenKind::Compare(_) => {
                self.next -= 1;
                return self.expected("a field, a number or a text");
            }
        };
        Ok(SyntaxNode { at, kind: part })
    }

    fn parse_word(&mut self, at: Range<usize>, word: String) -> ParseResult {
        let call = matches!(self.peek(), Some(Token { kind: TokenKind::Sign('('), .. }));
        if call && word == "exists" {
            self.next += 1;
            return self.parse_exists(at.start);
        }
        if call {
            self.next += 1;
            let (arguments, end) = self.parse_list(')')?;
            let text_function = TextFunction::ALL.into_iter().find(|one| one.name() == word);
            let part = match (word.as_str(), text_function) {
                ("sum", _) => SyntaxKind::Sum(arguments),
                ("count", _) => SyntaxKind::Count(arguments),
                ("contains", _) => SyntaxKind::Contains(arguments),
                (_, Some(function)) => SyntaxKind::Call(function, arguments),
                (_, None) => {
                    let message = format!("there is no function `{word}`");
                    let help = "there are `sum(list, expression)`, `count(list)`, \
                                `concat(text, text)`, `lower(text)`, `trim(text)` and `length(text)`, and in \
                                `where` `contains(list, value)` and `exists(resource where condition)`";
                    return Err(ExprError::with_help(at, message, help));
                }
            };
            return Ok(SyntaxNode { at: at.start..end, kind: part });
        }
        match word.as_str() {
            "true" => return Ok(SyntaxNode { at, kind: SyntaxKind::Boolean(true) }),
            "false" => return Ok(SyntaxNode { at, kind: SyntaxKind::Boolean(false) }),
            "and" | "or" | "not" | "in" => {
                self.next -= 1;
                return self.expected("a field, a number or a text");
            }
            _ => {}
        }
        let mut names = vec![word];
        let mut end = at.end;
        while self.take_sign('.') {
            match self.next_token() {
                Some(Token { at, kind: TokenKind::Word(word) }) => {
                    end = at.end;
                    names.push(word);
                }
                _ => {
                    self.next -= 1;
                    return self.expected("the name of a field after the dot");
                }
            }
        }
        Ok(SyntaxNode { at: at.start..end, kind: SyntaxKind::Name(names) })
    }

    /// Parses `member where condition)`, after `exists(`.
    fn parse_exists(&mut self, start: usize) -> ParseResult {
        let resource = match self.next_token() {
            Some(Token { kind: TokenKind::Word(word), .. }) => word,
            _ => {
                self.next -= 1;
                return self.expected("the name of a resource, as in `exists(member where …)`");
            }
        };
        if !self.take_word("where") {
            return self.expected("`where`");
        }
        let condition = Box::new(self.with_depth(Self::parse_or)?);
        let end = self.expect_sign(')')?;
        Ok(SyntaxNode { at: start..end, kind: SyntaxKind::Exists(resource, condition) })
    }

    /// Parses comma-separated expressions up to a closing sign; also returns where that ends.
    fn parse_list(&mut self, close: char) -> Result<(Vec<SyntaxNode>, usize), ExprError> {
        let mut list = Vec::new();
        let end = self.peek().map_or(self.end, |token| token.at.end);
        if self.take_sign(close) {
            return Ok((list, end));
        }
        loop {
            list.push(self.with_depth(Self::parse_or)?);
            if !self.take_sign(',') {
                return Ok((list, self.expect_sign(close)?));
            }
        }
    }
}

fn binary_node(
    part: impl FnOnce(Box<SyntaxNode>, Box<SyntaxNode>) -> SyntaxKind,
    left: SyntaxNode,
    right: SyntaxNode,
) -> SyntaxNode {
    let at = left.at.start..right.at.end;
    SyntaxNode { at, kind: part(Box::new(left), Box::new(right)) }
}
