//! The known word nearest to one that is not known, for messages that say "did you mean".
//!
//! It only suggests what is really near: a wrong suggestion costs more than none.

/// Words longer than this are not typing mistakes of a name.
const WORD_CHARS_MAX: usize = 60;

/// The candidate nearest to `word`, if one is near enough to be what was meant.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let word: Vec<char> =
        word.chars().flat_map(char::to_lowercase).take(WORD_CHARS_MAX + 1).collect();
    if word.is_empty() || word.len() > WORD_CHARS_MAX {
        return None;
    }
    let allowed = match word.len() {
        // Half of a short word is another word: `page` is not `name`.
        0..=4 => 1,
        5..=6 => 2,
        _ => 3,
    };
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let chars: Vec<char> = candidate.chars().collect();
            if chars.len() > WORD_CHARS_MAX {
                return None;
            }
            // `int` for `integer`: cut short on purpose, so weighed like the largest slip allowed.
            let abbreviated = word.len() >= 3 && chars.starts_with(&word);
            let distance = distance(&word, &chars);
            if distance <= allowed && distance < chars.len() {
                Some((distance, candidate))
            } else {
                abbreviated.then_some((allowed, candidate))
            }
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many letters must be put in, left out, changed or swapped with their neighbour.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    let mut last = None;
    for (row, &a) in from.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, &b) in to.iter().enumerate() {
            let at =
                |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut cost = (at(&above, column + 1) + 1)
                .min(at(&current, column) + 1)
                .min(at(&above, column) + usize::from(a != b));
            let previous = column.checked_sub(1).and_then(|index| to.get(index));
            if let (Some(last), Some(&previous)) = (last, previous)
                && last == b
                && a == previous
            {
                cost = cost.min(at(&before, column - 1) + 1);
            }
            current.push(cost);
        }
        before = std::mem::replace(&mut above, current);
        last = Some(a);
    }
    above.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: &[&str] =
        &["text", "email", "integer", "number", "boolean", "date", "timestamp", "list"];

    #[test]
    fn a_slip_of_the_hand_finds_its_word() {
        let find = |word: &str| nearest(word, TYPES.iter().copied());
        assert_eq!(find("txet"), Some("text"));
        assert_eq!(find("Text"), Some("text"));
        assert_eq!(find("emial"), Some("email"));
        assert_eq!(find("integr"), Some("integer"));
        assert_eq!(find("int"), Some("integer"));
        assert_eq!(find("bool"), Some("boolean"));
        assert_eq!(find("lst"), Some("list"));
    }

    #[test]
    fn what_is_far_finds_nothing() {
        let find = |word: &str| nearest(word, TYPES.iter().copied());
        assert_eq!(find("colour"), None);
        assert_eq!(find("x"), None);
        assert_eq!(find(""), None);
        assert_eq!(find(&"text".repeat(100)), None);
    }

    #[test]
    fn distances_count_a_swap_as_one() {
        let count = |a: &str, b: &str| {
            distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
        };
        assert_eq!(count("ab", "ba"), 1);
        assert_eq!(count("", "abc"), 3);
        assert_eq!(count("abc", ""), 3);
        assert_eq!(count("kitten", "sitting"), 3);
        assert_eq!(count("same", "same"), 0);
    }
}
