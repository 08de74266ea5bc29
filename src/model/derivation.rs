//! Derived texts: folded texts for `~`, and sort keys for `order = "unicode"`. They are computed from the text of a field
//! and stored beside it, in a column that no response contains.
//!
//! Each engine folds case and sorts by language in its own way, which may change with its version. Therefore derived
//! texts are computed here, and both engines compare them by their bytes.

use std::sync::LazyLock;

use icu_collator::options::CollatorOptions;
use icu_collator::{Collator, CollatorBorrowed, CollatorPreferences};
use unicode_normalization::UnicodeNormalization as _;

use crate::fault;

/// The version of all derived texts, which is part of the stored model: another one is a migration that computes them
/// again. A test fails if the libraries make other texts than they did.
pub const DERIVED_VERSION: u64 = 1;

/// Texts are sorted by this many characters. An index contains no more of a text, and a cursor has to fit
/// into a URL.
pub const SORTED_CHARS_MAX: usize = 256;

/// The characters of a folded text that are kept. Only texts without `max_length` can be longer.
pub const FOLDED_CHARS_MAX: usize = 100_000;

/// How a text is derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Derivation {
    /// Without case and accents, for the operator `~`.
    Folded,
    /// The sort key of the Unicode Collation Algorithm.
    SortKey,
}

impl Derivation {
    pub const ALL: [Self; 2] = [Self::Folded, Self::SortKey];

    pub fn derive(self, text: &str) -> String {
        match self {
            Self::Folded => fold(text),
            Self::SortKey => sort_key(text),
        }
    }
}

/// A text without case and accents: decomposed (NFKD), without accents, in lower case. `ß` is `ss`, because upper case has
/// no other form of it.
pub fn fold(text: &str) -> String {
    let without_case =
        |c: char| c.to_lowercase().flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    let folded = text.nfkd().filter(|c| !is_accent(*c)).flat_map(without_case);
    // A letter in lower case may decompose into a letter and an accent again: `İ` becomes `i` and U+0307.
    folded.nfkd().filter(|c| !is_accent(*c)).take(FOLDED_CHARS_MAX).collect()
}

/// The combining marks of Latin, Greek and Cyrillic letters. In other scripts, marks are vowels and other letters.
fn is_accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

/// The order of the root collation as a text, each of whose characters is a byte of the sort key. It is made from as
/// many characters as other texts are sorted by, and has as many bytes: texts with equal keys are sorted by id.
fn sort_key(text: &str) -> String {
    let text: String = text.chars().take(SORTED_CHARS_MAX).collect();
    let mut key = Vec::new();
    let Ok(()) = COLLATOR.write_sort_key_to(&text, &mut key);
    key.into_iter().take(SORTED_CHARS_MAX).map(key_char).collect()
}

/// No byte is the NUL character, which PostgreSQL does not store, and the order of UTF-8 is that of the bytes.
fn key_char(byte: u8) -> char {
    char::from_u32(0x100 + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Whether a text is one that `Derivation::SortKey` makes.
pub fn is_sort_key(text: &str) -> bool {
    text.chars().all(|c| ('\u{100}'..='\u{1ff}').contains(&c))
}

static COLLATOR: LazyLock<CollatorBorrowed<'static>> = LazyLock::new(|| {
    let root = Collator::try_new(CollatorPreferences::default(), CollatorOptions::default());
    root.unwrap_or_else(|_| fault::bug("the data of the root collation is compiled in"))
});

#[cfg(test)]
mod tests;
