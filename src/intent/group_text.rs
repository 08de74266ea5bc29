//! Parts in parentheses inside the value of a parameter: `(status=paid;total:gt=100)`.
//!
//! A backslash before `;`, `(`, `)` or another backslash makes it a plain character. Other backslashes belong to the
//! value: `in` uses them before commas.

use crate::fault::OrBug as _;
use crate::json;

/// The text inside parentheses that are around the whole text.
pub fn strip_parentheses(text: &str) -> Result<&str, String> {
    let inside = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    // The first parenthesis must be closed by the last one.
    inside.filter(|inside| split_outside(inside, ';').is_ok()).ok_or_else(|| {
        format!(
            "expected filters in parentheses, such as (status=paid;total:gt=100), got {}",
            json::quote_for_message(text)
        )
    })
}

/// The parts of a text between separators that are not in parentheses, with their escapes.
pub fn split_outside(text: &str, separator: char) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut depth, mut is_escaped) = (Vec::new(), 0, 0_usize, false);
    let unbalanced = || {
        let got = json::quote_for_message(text);
        Err(format!(
            r"expected a closing ) for each (, with \( and \) for those in a value, got {got}"
        ))
    };
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '(' => depth += 1,
            ')' => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return unbalanced(),
            },
            c if c == separator && depth == 0 => {
                parts.push(text.get(start..at).or_bug("a separator is a boundary"));
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    // A backslash at the end would escape the parenthesis after the text.
    if depth > 0 || is_escaped {
        return unbalanced();
    }
    parts.push(text.get(start..).or_bug("a separator is a boundary"));
    Ok(parts)
}

const ESCAPED: [char; 4] = [';', '(', ')', '\\'];

pub fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match chars.peek().copied().filter(|next| c == '\\' && ESCAPED.contains(next)) {
            Some(next) => {
                plain.push(next);
                chars.next();
            }
            None => plain.push(c),
        }
    }
    plain
}

pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if ESCAPED.contains(&c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn group_text_is_split_outside_parentheses() {
        assert_eq!(split_outside("a;b(c;d);e", ';'), Ok(vec!["a", "b(c;d)", "e"]));
        assert_eq!(split_outside(r"a\;b;c\(", ';'), Ok(vec![r"a\;b", r"c\("]));
        assert_eq!(split_outside("", ';'), Ok(vec![""]));
        for text in ["a(", "a)", "a)(", "a\\", r"(a\)"] {
            assert!(split_outside(text, ';').is_err(), "{text}");
        }
    }

    #[test]
    fn group_text_in_parentheses_is_the_whole_text() {
        assert_eq!(strip_parentheses("(a;(b))"), Ok("a;(b)"));
        for text in ["", "a", "(a", "a)", "(a)(b)", r"(a\)"] {
            assert!(strip_parentheses(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn group_text_that_is_escaped_is_one_part_and_reads_back(text in r"[();\\,a]{0,12}|\PC*") {
            let escaped = escape(&text);
            prop_assert_eq!(split_outside(&escaped, ';'), Ok(vec![escaped.as_str()]));
            prop_assert_eq!(unescape(&escaped), text);
        }
    }
}
