//! Suggestions ("did you mean"): the known word nearest to an unknown one, by edit distance.
//!
//! Only near words are suggested: a wrong suggestion is worse than none.

/// The maximum length of a word: longer ones are not misspelled names.
const WORD_CHARS_MAX: usize = 60;

/// The candidate nearest to `word`, if it is near enough.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let word: Vec<char> =
        word.chars().flat_map(char::to_lowercase).take(WORD_CHARS_MAX + 1).collect();
    if word.is_empty() || word.len() > WORD_CHARS_MAX {
        return None;
    }
    let allowed = match word.len() {
        // In a short word, two edits make another word: `page` is not `name`.
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
            // `int` for `integer`: an abbreviation counts as the largest allowed distance.
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

/// The edit distance with insertions, deletions, substitutions and swaps of neighbours (Damerau-Levenshtein).
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
    fn nearest_finds_misspelled_words() {
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
    fn nearest_of_distant_word_is_none() {
        let find = |word: &str| nearest(word, TYPES.iter().copied());
        assert_eq!(find("colour"), None);
        assert_eq!(find("x"), None);
        assert_eq!(find(""), None);
        assert_eq!(find(&"text".repeat(100)), None);
    }

    #[test]
    fn distance_counts_a_swap_as_one() {
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
