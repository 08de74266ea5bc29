//! Suggestions ("did you mean"): the known word nearest to an unknown one, by edit distance.
//!
//! Only near words are suggested: a wrong suggestion is worse than none.

/// The maximum length of a word: longer ones are not misspelled names.
const WORD_CHARS_MAX: usize = 60;

/// The candidate nearest to `word`, if it is near enough.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let word: String = word.chars().flat_map(char::to_lowercase).take(WORD_CHARS_MAX + 1).collect();
    let length = word.chars().count();
    if length == 0 || length > WORD_CHARS_MAX {
        return None;
    }
    let allowed = match length {
        // In a short word, two edits make another word: `page` is not `name`.
        0..=4 => 1,
        5..=6 => 2,
        _ => 3,
    };
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let candidate_length = candidate.chars().count();
            if candidate_length > WORD_CHARS_MAX {
                return None;
            }
            // `int` for `integer`: an abbreviation counts as the largest allowed distance.
            let abbreviated = length >= 3 && candidate.starts_with(&word);
            // With swaps of neighbours (Damerau-Levenshtein).
            let distance = strsim::osa_distance(&word, candidate);
            if distance <= allowed && distance < candidate_length {
                Some((distance, candidate))
            } else {
                abbreviated.then_some((allowed, candidate))
            }
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: &[&str] =
        &["text", "email", "integer", "number", "boolean", "date", "timestamp", "list"];

    #[test]
    fn nearest_finds_misspelled_words() {
        let find = |word: &str| nearest(word, TYPES.iter().copied());
        assert_eq!(find("txet"), Some("text"), "a swap is one edit");
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
}
