//! Conditions and defaults of a catalogue: the few forms of SQL that a model can express.
//!
//! PostgreSQL prints conditions with casts and parentheses, SQLite as they were written. A condition that has another
//! form is not understood, and reported to the reader.

/// A part of an SQL text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SqlToken {
    /// A name or a keyword.
    Word(String),
    /// A name in quotes.
    Name(String),
    Text(String),
    Number(String),
    Symbol(&'static str),
}

/// A constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SqlLiteral {
    Text(String),
    Number(String),
    Boolean(bool),
}

/// A rule about one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnRule {
    pub column: String,
    pub condition: RuleCondition,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleCondition {
    OneOf(Vec<SqlLiteral>),
    AtLeast(SqlLiteral),
    AtMost(SqlLiteral),
    /// Exclusive bounds.
    Above(SqlLiteral),
    Below(SqlLiteral),
    LengthAtLeast(u64),
    LengthAtMost(u64),
    Present,
}

/// The rules of a condition, and whether they say all of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ConditionRules {
    pub rules: Vec<ColumnRule>,
    pub is_complete: bool,
}

const SYMBOLS: [&str; 19] = [
    "::", "<=", ">=", "<>", "!=", "||", "(", ")", "[", "]", ",", "=", "<", ">", "+", "-", ".", "*",
    "/",
];

/// The tokens without casts; `None` if the text has other characters.
fn tokens(text: &str) -> Option<Vec<SqlToken>> {
    let mut rest = text.trim_start();
    let mut all = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '\'' => quoted(rest, '\'').map(|(text, rest)| (SqlToken::Text(text), rest))?,
            '"' | '`' => quoted(rest, first).map(|(text, rest)| (SqlToken::Name(text), rest))?,
            c if c.is_ascii_digit() => {
                let end = number_end(rest);
                let (number, rest) = rest.split_at_checked(end)?;
                (SqlToken::Number(number.to_owned()), rest)
            }
            c if c.is_alphabetic() || c == '_' => {
                let is_inner = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
                let end = rest.find(|c| !is_inner(c)).unwrap_or(rest.len());
                let (word, rest) = rest.split_at_checked(end)?;
                (SqlToken::Word(word.to_owned()), rest)
            }
            _ => {
                let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol))?;
                (SqlToken::Symbol(symbol), rest.strip_prefix(symbol)?)
            }
        };
        all.push(token);
        rest = after.trim_start();
    }
    Some(without_casts(&all))
}

/// The content of a quoted text, and the rest.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix(quote)?;
    let mut content = String::new();
    loop {
        let (part, after) = rest.split_once(quote)?;
        content.push_str(part);
        match after.strip_prefix(quote) {
            Some(more) => {
                content.push(quote);
                rest = more;
            }
            None => return Some((content, after)),
        }
    }
}

fn number_end(text: &str) -> usize {
    let mut before = '0';
    let end = text.find(|c: char| {
        let is_part = c.is_ascii_digit()
            || c == '.'
            || c.eq_ignore_ascii_case(&'e')
            || ("+-".contains(c) && before.eq_ignore_ascii_case(&'e'));
        before = c;
        !is_part
    });
    end.unwrap_or(text.len())
}

/// Words that continue the name of a type.
const TYPE_WORDS: [&str; 7] = ["varying", "precision", "without", "with", "time", "zone", "large"];

/// Leaves out `::character varying(40)[]` and the like.
fn without_casts(all: &[SqlToken]) -> Vec<SqlToken> {
    let mut kept = Vec::new();
    let mut rest = all;
    while let Some((token, after)) = rest.split_first() {
        rest = after;
        if *token != SqlToken::Symbol("::") {
            kept.push(token.clone());
            continue;
        }
        let mut is_first = true;
        while let Some((token, after)) = rest.split_first() {
            let is_type = match token {
                SqlToken::Word(word) => {
                    is_first || TYPE_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
                }
                SqlToken::Name(_) => is_first,
                SqlToken::Symbol(".") => true,
                _ => false,
            };
            if !is_type {
                break;
            }
            is_first = *token == SqlToken::Symbol(".");
            rest = after;
        }
        for (open, close) in [("(", ")"), ("[", "]")] {
            if rest.first() == Some(&SqlToken::Symbol(open)) {
                let end = rest.iter().position(|token| *token == SqlToken::Symbol(close));
                rest = end.and_then(|end| rest.get(end + 1..)).unwrap_or(rest);
            }
        }
    }
    kept
}

/// A constant default.
pub fn parse_literal(text: &str) -> Option<SqlLiteral> {
    literal(&tokens(text)?)
}

/// The rules in the condition of a check constraint.
pub fn parse_condition(text: &str) -> ConditionRules {
    let Some(tokens) = tokens(text) else { return ConditionRules::default() };
    let mut all = ConditionRules { rules: Vec::new(), is_complete: true };
    for term in split(strip_parentheses(&tokens), "and") {
        match parse_term(term) {
            Some(rules) => all.rules.extend(rules),
            None => all.is_complete = false,
        }
    }
    all
}

fn is_symbol(token: Option<&SqlToken>, symbol: &str) -> bool {
    matches!(token, Some(SqlToken::Symbol(found)) if *found == symbol)
}

fn is_word(token: Option<&SqlToken>, word: &str) -> bool {
    matches!(token, Some(SqlToken::Word(found)) if found.eq_ignore_ascii_case(word))
}

/// The tokens inside of parentheses that enclose all of them.
fn strip_parentheses(tokens: &[SqlToken]) -> &[SqlToken] {
    let mut inner = tokens;
    while let [SqlToken::Symbol("("), middle @ .., SqlToken::Symbol(")")] = inner {
        let mut depth = 0_i32;
        let closes_early = middle.iter().any(|token| {
            depth += i32::from(*token == SqlToken::Symbol("("))
                - i32::from(*token == SqlToken::Symbol(")"));
            depth < 0
        });
        if closes_early {
            break;
        }
        inner = middle;
    }
    inner
}

/// Splits at a word outside of parentheses; the `and` of a `between` belongs to it.
fn split<'t>(tokens: &'t [SqlToken], word: &str) -> Vec<&'t [SqlToken]> {
    let (mut depth, mut is_between, mut start) = (0_i32, false, 0);
    let mut parts = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            SqlToken::Symbol("(" | "[") => depth += 1,
            SqlToken::Symbol(")" | "]") => depth -= 1,
            found if depth == 0 && is_word(Some(found), "between") => is_between = true,
            found if depth == 0 && is_word(Some(found), "and") && is_between => is_between = false,
            found if depth == 0 && is_word(Some(found), word) => {
                parts.extend(tokens.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(tokens.get(start..));
    parts
}

fn parse_term(term: &[SqlToken]) -> Option<Vec<ColumnRule>> {
    let term = strip_parentheses(term);
    if split(term, "and").len() > 1 {
        let rules = split(term, "and").into_iter().map(parse_term).collect::<Option<Vec<_>>>()?;
        return Some(rules.into_iter().flatten().collect());
    }
    let choices = split(term, "or");
    if choices.len() > 1 {
        return parse_choices(&choices);
    }
    let rule = |column: String, condition| Some(vec![ColumnRule { column, condition }]);
    if let [start @ .., is, not, null] = term
        && is_word(Some(is), "is")
        && is_word(Some(not), "not")
        && is_word(Some(null), "null")
    {
        return rule(column(start)?, RuleCondition::Present);
    }
    if let Some(at) = term.iter().position(|token| is_word(Some(token), "between")) {
        let (start, bounds) = (term.get(..at)?, split_bounds(term.get(at + 1..)?)?);
        let name = column(start)?;
        let [low, high] = bounds.map(literal);
        let low = ColumnRule { column: name.clone(), condition: RuleCondition::AtLeast(low?) };
        let high = ColumnRule { column: name, condition: RuleCondition::AtMost(high?) };
        return Some(vec![low, high]);
    }
    if let Some(at) = term.iter().position(|token| is_word(Some(token), "in")) {
        let values = literals(strip_parentheses(term.get(at + 1..)?))?;
        return rule(column(term.get(..at)?)?, RuleCondition::OneOf(values));
    }
    let comparisons = ["<=", ">=", "=", "<", ">"];
    let at = term.iter().position(
        |token| matches!(token, SqlToken::Symbol(symbol) if comparisons.contains(symbol)),
    )?;
    let SqlToken::Symbol(operator) = term.get(at)? else { return None };
    let (left, right) = (term.get(..at)?, term.get(at + 1..)?);
    if *operator == "=" && is_word(right.first(), "any") {
        let values = strip_parentheses(right.get(1..)?);
        let [SqlToken::Word(array), SqlToken::Symbol("["), values @ .., SqlToken::Symbol("]")] =
            values
        else {
            return None;
        };
        let values = array.eq_ignore_ascii_case("array").then(|| literals(values))??;
        return rule(column(left)?, RuleCondition::OneOf(values));
    }
    match literal(right) {
        Some(value) => compare(left, operator, value),
        None => {
            let flipped = match *operator {
                "<=" => ">=",
                ">=" => "<=",
                "<" => ">",
                ">" => "<",
                other => other,
            };
            compare(right, flipped, literal(left)?)
        }
    }
}

fn split_bounds(tokens: &[SqlToken]) -> Option<[&[SqlToken]; 2]> {
    let at = tokens.iter().position(|token| is_word(Some(token), "and"))?;
    Some([tokens.get(..at)?, tokens.get(at + 1..)?])
}

/// `a = 'x' or a = 'y'`; a row without a value fulfils a condition anyway.
fn parse_choices(choices: &[&[SqlToken]]) -> Option<Vec<ColumnRule>> {
    let mut values = Vec::new();
    let mut name: Option<String> = None;
    for choice in choices {
        let choice = strip_parentheses(choice);
        if let [start @ .., is, null] = choice
            && is_word(Some(is), "is")
            && is_word(Some(null), "null")
        {
            let found = column(start)?;
            if name.get_or_insert_with(|| found.clone()) != &found {
                return None;
            }
            continue;
        }
        let [rule] = <[ColumnRule; 1]>::try_from(parse_term(choice)?).ok()?;
        let RuleCondition::OneOf(more) = rule.condition else {
            // `a is null or a > 0`
            let is_alone = choices.len() == 2 && values.is_empty();
            let is_same = name.as_ref().is_none_or(|name| *name == rule.column);
            return (is_alone && is_same && name.is_some()).then(|| vec![rule]);
        };
        if name.get_or_insert_with(|| rule.column.clone()) != &rule.column {
            return None;
        }
        values.extend(more);
    }
    Some(vec![ColumnRule { column: name?, condition: RuleCondition::OneOf(values) }])
}

fn compare(left: &[SqlToken], operator: &str, value: SqlLiteral) -> Option<Vec<ColumnRule>> {
    let left = strip_parentheses(left);
    let is_length = ["length", "char_length", "character_length"]
        .iter()
        .any(|name| is_word(left.first(), name));
    if is_length && is_symbol(left.get(1), "(") {
        let (SqlLiteral::Number(number), column) = (value, column(left.get(1..)?)?) else {
            return None;
        };
        let number: u64 = number.parse().ok()?;
        let rule = |condition| ColumnRule { column: column.clone(), condition };
        if operator == "=" {
            let bounds =
                [RuleCondition::LengthAtLeast(number), RuleCondition::LengthAtMost(number)];
            return Some(bounds.map(rule).to_vec());
        }
        let condition = match operator {
            "<=" => RuleCondition::LengthAtMost(number),
            "<" => RuleCondition::LengthAtMost(number.checked_sub(1)?),
            ">=" => RuleCondition::LengthAtLeast(number),
            ">" => RuleCondition::LengthAtLeast(number.checked_add(1)?),
            _ => return None,
        };
        return Some(vec![rule(condition)]);
    }
    let condition = match operator {
        "<=" => RuleCondition::AtMost(value),
        ">=" => RuleCondition::AtLeast(value),
        "<" => RuleCondition::Below(value),
        ">" => RuleCondition::Above(value),
        _ => RuleCondition::OneOf(vec![value]),
    };
    Some(vec![ColumnRule { column: column(left)?, condition }])
}

fn column(tokens: &[SqlToken]) -> Option<String> {
    match strip_parentheses(tokens) {
        [SqlToken::Word(name) | SqlToken::Name(name)] => Some(name.clone()),
        _ => None,
    }
}

fn literals(tokens: &[SqlToken]) -> Option<Vec<SqlLiteral>> {
    let mut depth = 0_i32;
    let parts = tokens.split(|token| {
        depth +=
            i32::from(*token == SqlToken::Symbol("(")) - i32::from(*token == SqlToken::Symbol(")"));
        depth == 0 && *token == SqlToken::Symbol(",")
    });
    parts.map(literal).collect()
}

fn literal(tokens: &[SqlToken]) -> Option<SqlLiteral> {
    match strip_parentheses(tokens) {
        [SqlToken::Text(text)] => Some(SqlLiteral::Text(text.clone())),
        [SqlToken::Number(number)] => Some(SqlLiteral::Number(number.clone())),
        [SqlToken::Symbol("-"), rest @ ..] => match literal(rest)? {
            SqlLiteral::Number(number) => Some(SqlLiteral::Number(format!("-{number}"))),
            SqlLiteral::Text(_) | SqlLiteral::Boolean(_) => None,
        },
        [SqlToken::Symbol("+"), rest @ ..] => literal(rest),
        [SqlToken::Word(word)] if word.eq_ignore_ascii_case("true") => {
            Some(SqlLiteral::Boolean(true))
        }
        [SqlToken::Word(word)] if word.eq_ignore_ascii_case("false") => {
            Some(SqlLiteral::Boolean(false))
        }
        _ => None,
    }
}

/// The conditions of the check constraints in a `CREATE TABLE` of SQLite.
pub fn find_checks(create_table: &str) -> Vec<String> {
    let mut checks = Vec::new();
    let mut rest = create_table;
    while let Some((at, found)) = next_word(rest) {
        let after = rest.get(at + found.len()..).unwrap_or_default();
        rest = after;
        let inner = after.trim_start().strip_prefix('(');
        if let Some(inner) = inner.filter(|_| found.eq_ignore_ascii_case("check"))
            && let Some(end) = closing_parenthesis(inner)
        {
            checks.extend(inner.get(..end).map(|check| check.trim().to_owned()));
            rest = inner.get(end..).unwrap_or_default();
        }
    }
    checks
}

/// The position and the text of the next word outside of quotes and comments.
fn next_word(text: &str) -> Option<(usize, &str)> {
    let mut at = 0;
    loop {
        let rest = text.get(at..)?;
        let first = rest.chars().next()?;
        if let Some(skipped) = skip_quoted(rest) {
            at += skipped;
        } else if first.is_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
            return Some((at, rest.get(..end.unwrap_or(rest.len()))?));
        } else {
            at += first.len_utf8();
        }
    }
}

/// The length of the quoted text or comment that the text begins with.
fn skip_quoted(text: &str) -> Option<usize> {
    let until = |start: &str, end: &str| {
        let inner = text.strip_prefix(start)?;
        Some(inner.find(end).map_or(text.len(), |at| start.len() + at + end.len()))
    };
    let pairs = [("'", "'"), ("\"", "\""), ("`", "`"), ("[", "]"), ("--", "\n"), ("/*", "*/")];
    pairs.iter().find_map(|(start, end)| until(start, end))
}

/// The position of the parenthesis that closes the one before the text.
fn closing_parenthesis(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_u32, 0);
    loop {
        let rest = text.get(at..)?;
        let first = rest.chars().next()?;
        match (skip_quoted(rest), first) {
            (Some(skipped), _) => {
                at += skipped;
                continue;
            }
            (None, ')') if depth == 0 => return Some(at),
            (None, ')') => depth -= 1,
            (None, '(') => depth += 1,
            (None, _) => {}
        }
        at += first.len_utf8();
    }
}

#[cfg(test)]
mod tests;
