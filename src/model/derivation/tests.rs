//! Tests of derived texts, by examples and by a hash of what the libraries make of every character.

use sha2::{Digest as _, Sha256};

use super::*;

#[test]
fn fold_ignores_case_accents_and_compatibility_forms() {
    for (text, folded) in [
        ("", ""),
        ("Müller", "muller"),
        ("MU\u{308}LLER", "muller"),
        ("Straße", "strasse"),
        ("STRASSE", "strasse"),
        ("ẞ", "ss"),
        ("İstanbul", "istanbul"),
        ("ΣΊΣΥΦΟΣ", "σισυφοσ"),
        ("Σίσυφος", "σισυφοσ"),
        ("Ångström", "angstrom"),
        ("ﬁne №5 ½", "fine no5 1⁄2"),
        ("Ａｂｃ", "abc"),
        ("ſ", "s"),
        ("Łódź", "łodz"),
        ("Ё", "е"),
        ("日本", "日本"),
        ("दिल", "दिल"),
        ("ハハ", "ハハ"),
        ("パパ", "ハ\u{309a}ハ\u{309a}"),
        ("a%_\\", "a%_\\"),
    ] {
        assert_eq!(fold(text), folded, "{text}");
        assert_eq!(fold(folded), folded, "{text}");
    }
}

#[test]
fn fold_of_a_long_text_is_cut() {
    assert_eq!(fold(&"Ä".repeat(FOLDED_CHARS_MAX + 5)), "a".repeat(FOLDED_CHARS_MAX));
    // One character that becomes 18.
    assert_eq!(fold(&"\u{fdfa}".repeat(FOLDED_CHARS_MAX)).chars().count(), FOLDED_CHARS_MAX);
}

#[test]
fn sort_keys_are_in_the_order_of_people() {
    let sorted = [
        "", " ", "_", "-", ",", "!", "€", "1", "10", "2", "a", "A", "á", "Á", "ä", "Ab", "äb",
        "abc", "b", "o", "Ö", "œ", "z", "Z", "α", "б", "日",
    ];
    let keys: Vec<String> = sorted.iter().map(|text| Derivation::SortKey.derive(text)).collect();
    for (pair, names) in keys.windows(2).zip(sorted.windows(2)) {
        assert!(pair[0] < pair[1], "{names:?} {pair:?}");
    }
    // Canonically equivalent texts are equal.
    assert_eq!(Derivation::SortKey.derive("é"), Derivation::SortKey.derive("e\u{301}"));
}

#[test]
fn sort_keys_are_bounded_and_storable() {
    for text in ["日本".repeat(500), "é".repeat(1000), "\u{1}\u{10ffff}".repeat(300), "a".into()]
    {
        let key = Derivation::SortKey.derive(&text);
        assert!(key.chars().count() <= SORTED_CHARS_MAX && is_sort_key(&key), "{key:?}");
    }
    assert!(!is_sort_key("a"));
}

/// If this fails after an update of a library, stored texts are no longer what the server makes: raise
/// `DERIVED_VERSION`, so that `nouns migrate` makes them anew, and change the hashes here.
#[test]
fn derived_texts_are_those_of_the_version() {
    let hash = |derivation: Derivation| {
        let mut hash = Sha256::new();
        for c in '\u{1}'..=char::MAX {
            hash.update(derivation.derive(&format!("a{c}b")));
        }
        hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    assert_eq!(DERIVED_VERSION, 1);
    let hashes = Derivation::ALL.map(hash);
    assert_eq!(hashes, ["75cb3012de450491", "f246004733bbd0c6"]);
}
