//! Patterns of the model as regular expressions of JSON Schema.
//!
//! A pattern of the model is one of the `regex` crate, one of JSON Schema is one of ECMA-262. Most patterns
//! mean the same in both. One that uses anything else is left out of the schema: `\d` and `\w`, for example,
//! are Unicode classes in the one and ASCII in the other.

/// The same pattern in ECMA-262, if there is one.
pub fn to_ecma(pattern: &str) -> Option<String> {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // ECMA-262 has more line ends than the `regex` crate.
            '.' => out.push_str("[^\\n]"),
            '\\' => push_escape(&mut out, chars.next()?, false)?,
            '[' => push_class(&mut out, &mut chars)?,
            '(' => {
                out.push('(');
                if chars.peek() == Some(&'?') {
                    chars.next();
                    // Flags and named groups are spelled differently.
                    chars.next_if_eq(&':')?;
                    out.push_str("?:");
                }
            }
            // Outside of a quantifier, ECMA-262 wants it escaped.
            '}' | ']' if !is_quantifier_end(&out, c) => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

fn is_quantifier_end(before: &str, c: char) -> bool {
    let Some((_, inside)) = before.rsplit_once('{') else { return false };
    c == '}' && !inside.is_empty() && inside.bytes().all(|b| b.is_ascii_digit() || b == b',')
}

/// Escapes that both know.
fn push_escape(out: &mut String, escaped: char, is_in_class: bool) -> Option<()> {
    let is_known = "^$\\.*+?()[]{}|/nrtfv".contains(escaped) || (is_in_class && escaped == '-');
    is_known.then(|| out.extend(['\\', escaped]))
}

/// A class of single characters and ranges.
fn push_class(
    out: &mut String,
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
) -> Option<()> {
    out.push('[');
    if chars.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut is_first = true;
    loop {
        match chars.next()? {
            // The `regex` crate reads a `]` at the beginning as a character.
            ']' if is_first => return None,
            ']' => break,
            '\\' => push_escape(out, chars.next()?, true)?,
            // Nested classes, and set operations.
            '[' => return None,
            c @ ('&' | '-' | '~') if chars.peek() == Some(&c) => return None,
            c => out.push(c),
        }
        is_first = false;
    }
    out.push(']');
    Some(())
}

/// A text that matches a pattern of `to_ecma`, as far as this simple generator can make one: it takes the
/// first alternative, the smallest number of repetitions but at least one, and the first character of a class.
/// The caller checks the text.
pub fn example(pattern: &str) -> Option<String> {
    let pattern = to_ecma(pattern)?;
    let mut chars: Vec<char> = pattern.chars().collect();
    chars.reverse();
    alternatives(&mut chars)
}

fn alternatives(rest: &mut Vec<char>) -> Option<String> {
    let first = sequence(rest)?;
    while rest.last() == Some(&'|') {
        rest.pop();
        sequence(rest)?;
    }
    Some(first)
}

fn sequence(rest: &mut Vec<char>) -> Option<String> {
    let mut out = String::new();
    while let Some(c) = rest.pop_if(|c| !matches!(c, '|' | ')')) {
        let atom = match c {
            '^' | '$' => String::new(),
            '(' => {
                if rest.ends_with(&[':', '?']) {
                    rest.truncate(rest.len() - 2);
                }
                let inside = alternatives(rest)?;
                rest.pop_if(|c| *c == ')')?;
                inside
            }
            '[' => class_member(rest)?.to_string(),
            '\\' => unescape(rest.pop()?).to_string(),
            c => c.to_string(),
        };
        out.push_str(&atom.repeat(repetitions(rest)?));
    }
    Some(out)
}

/// How often to repeat: the minimum, but at least once.
fn repetitions(rest: &mut Vec<char>) -> Option<usize> {
    let count = match rest.last() {
        Some('*' | '+' | '?') => {
            rest.pop();
            1
        }
        Some('{') => {
            rest.pop();
            let mut inside = String::new();
            loop {
                match rest.pop()? {
                    '}' => break,
                    c => inside.push(c),
                }
            }
            let min = inside.split(',').next()?;
            min.parse::<usize>().ok()?.max(1)
        }
        _ => return Some(1),
    };
    // Lazy.
    rest.pop_if(|c| *c == '?');
    (count <= 1000).then_some(count)
}

fn class_member(rest: &mut Vec<char>) -> Option<char> {
    let mut is_negated = false;
    let mut members: Vec<(char, char)> = Vec::new();
    if rest.pop_if(|c| *c == '^').is_some() {
        is_negated = true;
    }
    loop {
        let c = match rest.pop()? {
            ']' => break,
            '\\' => unescape(rest.pop()?),
            c => c,
        };
        let is_range = rest.last() == Some(&'-') && rest.iter().rev().nth(1) != Some(&']');
        let last = match is_range {
            true => {
                rest.pop();
                match rest.pop()? {
                    '\\' => unescape(rest.pop()?),
                    last => last,
                }
            }
            false => c,
        };
        members.push((c, last));
    }
    if !is_negated {
        return members.first().map(|(first, _)| *first);
    }
    let is_member = |c: &char| members.iter().any(|(first, last)| (first..=last).contains(&c));
    ('a'..='z').chain('0'..='9').chain(['-', '_', ' ']).find(|c| !is_member(c))
}

fn unescape(c: char) -> char {
    match c {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'f' => '\u{c}',
        'v' => '\u{b}',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn pattern_of_the_shared_subset_is_kept_and_has_an_example() {
        for pattern in [
            "^[A-Z]{3}$",
            "^97[89][0-9]{10}$",
            "^[A-Z][0-9]{1,3}$",
            "^[a-z]+$",
            "",
            "a|b",
            "^(?:ab|c)*x?$",
            "^(a(b){2})+$",
            r"^\[\d\]$",
            r"^\+49[ /-]?[1-9]$",
            "^[^a-c]{2,}$",
            r"^[\-x]\.$",
            "ä{2}",
        ] {
            let Some(same) = to_ecma(pattern) else {
                assert!(pattern.contains("\\d"), "{pattern}");
                continue;
            };
            assert_eq!(same, pattern);
            let text = example(pattern).unwrap_or_else(|| panic!("{pattern}"));
            assert!(Regex::new(pattern).unwrap().is_match(&text), "{pattern}: {text}");
        }
        assert_eq!(to_ecma("^a.b$").as_deref(), Some("^a[^\\n]b$"));
    }

    #[test]
    fn pattern_with_other_syntax_is_left_out() {
        for pattern in [
            r"\d+",
            r"\w",
            r"(?i)a",
            r"(?P<x>a)",
            r"(?<x>a)",
            r"\Aa\z",
            r"\x{41}",
            r"[[:alpha:]]",
            r"[a-z&&b]",
            r"[]a]",
            r"\p{L}",
            r"\bx",
            r"[a--b]",
            r"a}",
        ] {
            assert_eq!(to_ecma(pattern), None, "{pattern}");
        }
    }
}
