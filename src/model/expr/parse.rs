//! The parser of expressions: a syntax tree with the position of every node. Names and types are not checked
//! here.
//!
//! Precedence, from low to high: `or`, `and`, `not`, comparisons and `in`, `+ -`, `* /`, unary minus,
//! parentheses. Comparisons do not chain. Size and depth are limited.

use std::ops::Range;

use super::token::{Kind, Token, tokens};
use super::{Arithmetic, Comparison, Failure};

const TOKENS_MAX: usize = 500;
const DEPTH_MAX: usize = 32;

/// A syntax node and its position.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Syntax {
    pub(super) at: Range<usize>,
    pub(super) part: Part,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    /// Its source text, with a minus sign if there was one.
    Number(String),
    Text(String),
    Boolean(bool),
    User,
    /// A field, or a field inside objects.
    Name(Vec<String>),
    Negate(Box<Syntax>),
    Not(Box<Syntax>),
    Arithmetic(Arithmetic, Box<Syntax>, Box<Syntax>),
    Compare(Comparison, Box<Syntax>, Box<Syntax>),
    And(Box<Syntax>, Box<Syntax>),
    Or(Box<Syntax>, Box<Syntax>),
    In(Box<Syntax>, Vec<Syntax>),
    Sum(Vec<Syntax>),
    Count(Vec<Syntax>),
}

pub(super) fn parse(text: &str) -> Result<Syntax, Failure> {
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        return Err(Failure::new(0..text.len(), "expected an expression, got an empty text"));
    }
    if tokens.len() > TOKENS_MAX {
        return Err(Failure::new(
            0..text.len(),
            format!("expected at most {TOKENS_MAX} words and signs, got {}", tokens.len()),
        ));
    }
    let mut parser = Parser { tokens: &tokens, next: 0, depth: 0, end: text.len() };
    let syntax = parser.either()?;
    match parser.peek() {
        None => Ok(syntax),
        Some(token) if matches!(token.kind, Kind::Compare(_)) => Err(Failure::with(
            token.at.clone(),
            "comparisons do not chain",
            "join them with `and`: `a < b and b < c`",
        )),
        Some(token) => Err(Failure::new(
            token.at.clone(),
            format!("expected the end or an operator, got {}", token.kind.shown()),
        )),
    }
}

struct Parser<'t> {
    tokens: &'t [Token],
    next: usize,
    depth: usize,
    /// The length of the text.
    end: usize,
}

type Parsed = Result<Syntax, Failure>;

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.next).cloned();
        self.next += 1;
        token
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found =
            matches!(self.peek(), Some(Token { kind: Kind::Word(next), .. }) if next == word);
        self.next += usize::from(found);
        found
    }

    fn take_sign(&mut self, sign: char) -> bool {
        let found =
            matches!(self.peek(), Some(Token { kind: Kind::Sign(next), .. }) if *next == sign);
        self.next += usize::from(found);
        found
    }

    /// The error for an unexpected token.
    fn expected<T>(&self, what: &str) -> Result<T, Failure> {
        match self.peek() {
            Some(token) => Err(Failure::new(
                token.at.clone(),
                format!("expected {what}, got {}", token.kind.shown()),
            )),
            None => Err(Failure::new(self.end..self.end, format!("expected {what}, got the end"))),
        }
    }

    fn expect_sign(&mut self, sign: char) -> Result<usize, Failure> {
        let end = self.peek().map_or(self.end, |token| token.at.end);
        if self.take_sign(sign) { Ok(end) } else { self.expected(&format!("`{sign}`")) }
    }

    fn deeper(&mut self, inner: fn(&mut Self) -> Parsed) -> Parsed {
        if self.depth >= DEPTH_MAX {
            let at = self.peek().map_or(self.end..self.end, |token| token.at.clone());
            return Err(Failure::new(
                at,
                format!("expected at most {DEPTH_MAX} levels of nesting"),
            ));
        }
        self.depth += 1;
        let parsed = inner(self);
        self.depth -= 1;
        parsed
    }

    fn either(&mut self) -> Parsed {
        let mut left = self.both()?;
        while self.take_word("or") {
            left = join(Part::Or, left, self.both()?);
        }
        Ok(left)
    }

    fn both(&mut self) -> Parsed {
        let mut left = self.negation()?;
        while self.take_word("and") {
            left = join(Part::And, left, self.negation()?);
        }
        Ok(left)
    }

    fn negation(&mut self) -> Parsed {
        let start = self.peek().map_or(self.end, |token| token.at.start);
        if !self.take_word("not") {
            return self.comparison();
        }
        let inner = self.deeper(Self::negation)?;
        Ok(Syntax { at: start..inner.at.end, part: Part::Not(Box::new(inner)) })
    }

    fn comparison(&mut self) -> Parsed {
        let left = self.sum()?;
        if let Some(Token { kind: Kind::Compare(comparison), .. }) = self.peek() {
            let comparison = *comparison;
            self.next += 1;
            let right = self.sum()?;
            return Ok(join(|left, right| Part::Compare(comparison, left, right), left, right));
        }
        if self.take_word("in") {
            if !self.take_sign('[') {
                return self.expected("a list such as [\"a\", \"b\"]");
            }
            let (among, end) = self.several(']')?;
            return Ok(Syntax { at: left.at.start..end, part: Part::In(Box::new(left), among) });
        }
        Ok(left)
    }

    fn sum(&mut self) -> Parsed {
        let mut left = self.product()?;
        loop {
            let operation = match self.peek().map(|token| &token.kind) {
                Some(Kind::Sign('+')) => Arithmetic::Add,
                Some(Kind::Sign('-')) => Arithmetic::Subtract,
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.product()?;
            left = join(|left, right| Part::Arithmetic(operation, left, right), left, right);
        }
    }

    fn product(&mut self) -> Parsed {
        let mut left = self.minus()?;
        loop {
            let operation = match self.peek().map(|token| &token.kind) {
                Some(Kind::Sign('*')) => Arithmetic::Multiply,
                Some(Kind::Sign('/')) => Arithmetic::Divide,
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.minus()?;
            left = join(|left, right| Part::Arithmetic(operation, left, right), left, right);
        }
    }

    fn minus(&mut self) -> Parsed {
        let start = self.peek().map_or(self.end, |token| token.at.start);
        if !self.take_sign('-') {
            return self.primary();
        }
        let inner = self.deeper(Self::minus)?;
        let at = start..inner.at.end;
        // A minus before a number is part of the literal, so that a `where` can have negative literals.
        let part = match inner.part {
            Part::Number(text) if !text.starts_with('-') => Part::Number(format!("-{text}")),
            part => Part::Negate(Box::new(Syntax { at: inner.at, part })),
        };
        Ok(Syntax { at, part })
    }

    fn primary(&mut self) -> Parsed {
        let Some(Token { at, kind }) = self.take() else {
            return self.expected("a field, a number or a text");
        };
        let part = match kind {
            Kind::Number(text) => Part::Number(text),
            Kind::Text(text) => Part::Text(text),
            Kind::User => Part::User,
            Kind::Sign('(') => {
                let inner = self.deeper(Self::either)?;
                let end = self.expect_sign(')')?;
                return Ok(Syntax { at: at.start..end, part: inner.part });
            }
            Kind::Word(word) => return self.word(at, word),
            Kind::Sign(_) | Kind::Compare(_) => {
                self.next -= 1;
                return self.expected("a field, a number or a text");
            }
        };
        Ok(Syntax { at, part })
    }

    fn word(&mut self, at: Range<usize>, word: String) -> Parsed {
        let call = matches!(self.peek(), Some(Token { kind: Kind::Sign('('), .. }));
        if call {
            self.next += 1;
            let (arguments, end) = self.several(')')?;
            let part = match word.as_str() {
                "sum" => Part::Sum(arguments),
                "count" => Part::Count(arguments),
                _ => {
                    let message = format!("there is no function `{word}`");
                    return Err(Failure::with(
                        at,
                        message,
                        "there are `sum(list, expression)` and `count(list)`",
                    ));
                }
            };
            return Ok(Syntax { at: at.start..end, part });
        }
        match word.as_str() {
            "true" => return Ok(Syntax { at, part: Part::Boolean(true) }),
            "false" => return Ok(Syntax { at, part: Part::Boolean(false) }),
            "and" | "or" | "not" | "in" => {
                self.next -= 1;
                return self.expected("a field, a number or a text");
            }
            _ => {}
        }
        let mut names = vec![word];
        let mut end = at.end;
        while self.take_sign('.') {
            match self.take() {
                Some(Token { at, kind: Kind::Word(word) }) => {
                    end = at.end;
                    names.push(word);
                }
                _ => {
                    self.next -= 1;
                    return self.expected("the name of a field after the dot");
                }
            }
        }
        Ok(Syntax { at: at.start..end, part: Part::Name(names) })
    }

    /// Parses comma-separated expressions up to a closing sign; also returns where that ends.
    fn several(&mut self, close: char) -> Result<(Vec<Syntax>, usize), Failure> {
        let mut list = Vec::new();
        let end = self.peek().map_or(self.end, |token| token.at.end);
        if self.take_sign(close) {
            return Ok((list, end));
        }
        loop {
            list.push(self.deeper(Self::either)?);
            if !self.take_sign(',') {
                return Ok((list, self.expect_sign(close)?));
            }
        }
    }
}

fn join(
    part: impl FnOnce(Box<Syntax>, Box<Syntax>) -> Part,
    left: Syntax,
    right: Syntax,
) -> Syntax {
    let at = left.at.start..right.at.end;
    Syntax { at, part: part(Box::new(left), Box::new(right)) }
}
