//! The vocabulary of the sources, as tests: terms of art that can be searched for, and one meaning for each
//! type name.
//!
//! They compare the glossary of ARCHITECTURE.md and the sources as text.

use std::collections::BTreeMap;
use std::fs;
use std::sync::LazyLock;

use regex::Regex;

use super::{assert_no_faults, cells, files, root};

/// Type names that several modules may define, each with its reason.
const SHARED_TYPE_NAMES: &[(&str, &str)] = &[];

/// The text in lower case and on one line, without comment markers and with spaces for `-` and `_`, so that
/// a term is found where a comment wraps and in names.
fn searchable(text: &str) -> String {
    static SEPARATOR: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\s*\n\s*(?://[/!]?)?\s*|[_-]").unwrap());
    SEPARATOR.replace_all(&text.to_lowercase(), " ").into_owned()
}

#[test]
fn term_search_finds_wrapped_and_joined_words() {
    let text = "//! The low-water\n//! mark.\nfn group_commit() {}\n";
    let found = searchable(text);
    assert!(found.contains(&searchable("Low-water mark")), "{found}");
    assert!(found.contains(&searchable("group commit")), "{found}");
    assert!(!found.contains(&searchable("row lock")), "{found}");
}

/// A search for a term of the glossary finds the file that implements it.
#[test]
fn glossary_terms_are_in_their_files() {
    let path = Regex::new(r"`(src/[a-z0-9_/]+\.rs)`").unwrap();
    let mut faults = Vec::new();
    for row in cells("Infrastructure glossary") {
        let [term, _, named] = row.as_slice() else {
            panic!("expected a term, its meaning and its file, got {row:?}")
        };
        if !path.is_match(named) {
            faults
                .push(format!("ARCHITECTURE.md: the glossary names no source file for \"{term}\""));
        }
        for found in path.captures_iter(named) {
            let name = &found[1];
            match fs::read_to_string(root().join(name)) {
                Ok(text) if searchable(&text).contains(&searchable(term)) => {}
                Ok(_) => faults.push(format!(
                    "{name}: \"{term}\" is not in it; say the term where the code implements it, or name another file in ARCHITECTURE.md"
                )),
                Err(error) => faults.push(format!("ARCHITECTURE.md: {name} of \"{term}\": {error}")),
            }
        }
    }
    assert_no_faults(&faults);
}

#[test]
fn glossary_terms_are_listed_once_in_order() {
    let terms: Vec<_> =
        cells("Infrastructure glossary").iter().map(|row| row[0].to_lowercase()).collect();
    let faults: Vec<_> = terms
        .windows(2)
        .filter(|pair| pair[0] >= pair[1])
        .map(|pair| format!("ARCHITECTURE.md: \"{}\" stands before \"{}\"", pair[0], pair[1]))
        .collect();
    assert_no_faults(&faults);
}

/// The names of the types that a source text defines at its top level. Types of `impl` blocks, functions and
/// inline modules are indented, and not among them.
fn type_names(text: &str) -> Vec<String> {
    static DEFINITION: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?m)^(?:pub(?:\([^)]*\))? )?(?:struct|enum|union|trait|type) (\w+)").unwrap()
    });
    DEFINITION.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

#[test]
fn type_name_search_finds_top_level_definitions_only() {
    let text = "pub struct A;\npub(super) enum B<T> {\n}\nimpl C for A {\n    type Error = E;\n}\n\
        pub(in crate::store) trait D {}\ntype F = u8;\n// struct G\nuse h::I;\n";
    assert_eq!(type_names(text), ["A", "B", "D", "F"]);
}

#[test]
fn type_names_are_unique_in_the_crate() {
    let mut definitions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in files("src", ".rs") {
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
        for name in type_names(&text).into_iter().filter(|_| !is_test) {
            definitions.entry(name).or_default().push(path.clone());
        }
    }
    assert!(definitions.contains_key("Model") && definitions.contains_key("Intent"));
    let is_shared = |name: &str| SHARED_TYPE_NAMES.iter().any(|(shared, _)| *shared == name);
    let mut faults = Vec::new();
    for (name, paths) in &definitions {
        match (paths.len() > 1, is_shared(name)) {
            (true, false) => faults.push(format!(
                "`{name}` is defined in {}: qualify the names, as `CursorPosition` for `Position`, so that each has one meaning",
                paths.join(", ")
            )),
            (false, true) => {
                faults.push(format!("`{name}` has one definition: remove it from SHARED_TYPE_NAMES"));
            }
            (true, true) | (false, false) => {}
        }
    }
    assert_no_faults(&faults);
}
