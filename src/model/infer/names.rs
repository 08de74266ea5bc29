//! Names of a model from names of tables and columns: snake case, singular, unique.

use std::collections::BTreeSet;

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use crate::model::file::resource_names::{SYSTEM_COLUMNS, SYSTEM_FIELDS, default_plural};

/// The longest name of a field.
pub const FIELD_CHARS_MAX: usize = 40;
/// The longest name of a resource: its plural has up to two more characters.
pub const RESOURCE_CHARS_MAX: usize = 38;

/// `CustomerID` → `customer_id`, `Größe (cm)` → `grosse_cm`, `2nd line` → `n2nd_line`; empty if nothing is left.
pub fn snake_case(text: &str) -> String {
    let chars: Vec<char> =
        text.replace('ß', "ss").nfkd().filter(|c| !is_combining_mark(*c)).collect();
    let mut name = String::new();
    for (at, c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| chars.get(at));
        let after = chars.get(at + 1);
        if !c.is_ascii_alphanumeric() {
            push_separator(&mut name);
            continue;
        }
        let is_start = c.is_ascii_uppercase()
            && before.is_some_and(|before| {
                let ends_word = before.is_ascii_lowercase() || before.is_ascii_digit();
                let begins_word = after.is_some_and(char::is_ascii_lowercase);
                ends_word || (before.is_ascii_uppercase() && begins_word)
            });
        if is_start {
            push_separator(&mut name);
        }
        name.push(c.to_ascii_lowercase());
    }
    let name = name.trim_matches('_');
    match name.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("n{name}"),
        false => name.to_owned(),
    }
}

fn push_separator(name: &mut String) {
    if !name.is_empty() && !name.ends_with('_') {
        name.push('_');
    }
}

/// Ends of words that are singular, although they end in `s`.
const SINGULAR_ENDS: [&str; 3] = ["ss", "us", "is"];

/// `customers` → `customer`, `categories` → `category`, `boxes` → `box`; a word that is no plural stays.
pub fn singular(name: &str) -> String {
    if SINGULAR_ENDS.iter().any(|end| name.ends_with(end)) {
        return name.to_owned();
    }
    let ies = name.strip_suffix("ies").map(|stem| format!("{stem}y"));
    let es = name.strip_suffix("es").filter(|stem| takes_es(stem)).map(str::to_owned);
    let s = name.strip_suffix('s').map(str::to_owned);
    let found = ies.into_iter().chain(es).chain(s).find(|candidate| {
        let is_word = candidate.len() > 1 && !candidate.ends_with('_');
        is_word && default_plural(candidate) == name
    });
    found.unwrap_or_else(|| name.to_owned())
}

/// Whether a stem is a whole word before `es`, as in `box-es` and `status-es`, and not in `house-s`.
fn takes_es(stem: &str) -> bool {
    let is_vowel = |c: char| "aeiou".contains(c);
    let before_us = stem.strip_suffix("us").and_then(|start| start.chars().next_back());
    ["x", "z", "ch", "sh", "ss"].iter().any(|end| stem.ends_with(end))
        || before_us.is_some_and(|c| !is_vowel(c))
}

/// The name, or the name with a number, of at most `chars_max` characters, that is not taken.
pub fn free_name(name: &str, chars_max: usize, is_taken: impl Fn(&str) -> bool) -> String {
    let cut = |length: usize| {
        let start: String = name.chars().take(length).collect();
        start.trim_end_matches('_').to_owned()
    };
    let whole = cut(chars_max);
    if !is_taken(&whole) {
        return whole;
    }
    let mut number = 2_u32;
    loop {
        let end = format!("_{number}");
        let candidate = format!("{}{end}", cut(chars_max.saturating_sub(end.len())));
        if !is_taken(&candidate) {
            return candidate;
        }
        number += 1;
    }
}

/// Prefixes of tables that a plural cannot begin with.
const RESERVED_PREFIXES: [&str; 3] = ["sqlite_", "pg_", "nouns_"];

/// The names of resources, in the order of their tables.
pub fn resource_names<'a>(tables: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut plurals = BTreeSet::new();
    let mut names: Vec<String> = Vec::new();
    for (table, number) in tables.zip(1..) {
        let name = match &*snake_case(table) {
            "" => format!("table_{number}"),
            name if RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) => {
                format!("my_{}", singular(name))
            }
            name => singular(name),
        };
        let is_taken = |name: &str| {
            let plural = default_plural(name);
            names.iter().any(|other| other == name) || plurals.contains(&plural)
        };
        let name = free_name(&name, RESOURCE_CHARS_MAX, is_taken);
        plurals.insert(default_plural(&name));
        names.push(name);
    }
    names
}

/// Names that no field of a resource can have. `parents`: the index of the parent of each resource.
pub fn reserved(at: usize, names: &[String], parents: &[Option<usize>]) -> BTreeSet<String> {
    let own = SYSTEM_FIELDS.iter().chain(SYSTEM_COLUMNS).map(|name| (*name).to_owned());
    let mut reserved: BTreeSet<String> = own.collect();
    let above = |at: usize| parents.get(at).copied().flatten();
    for ancestor in std::iter::successors(above(at), |at| above(*at)) {
        reserved.extend(names.get(ancestor).map(|name| format!("{name}_id")));
    }
    reserved.extend(above(at).and_then(|parent| names.get(parent).cloned()));
    for (_, name) in parents.iter().zip(names).filter(|(parent, _)| **parent == Some(at)) {
        let plural = default_plural(name);
        reserved.insert(format!("{plural}_next"));
        reserved.insert(plural);
    }
    reserved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snake_case_separates_words_and_keeps_letters_and_digits() {
        for (text, expected) in [
            ("CustomerID", "customer_id"),
            ("HTTPServer2Name", "http_server2_name"),
            ("customer_id", "customer_id"),
            ("Größe (cm)", "grosse_cm"),
            ("Order Details", "order_details"),
            ("2nd line", "n2nd_line"),
            ("__x__y__", "x_y"),
            ("клиенты", ""),
            ("\"; DROP TABLE x; --", "drop_table_x"),
            ("", ""),
        ] {
            assert_eq!(snake_case(text), expected, "{text}");
        }
    }

    #[test]
    fn singular_is_the_word_whose_plural_it_is() {
        for (name, expected) in [
            ("customers", "customer"),
            ("categories", "category"),
            ("boxes", "box"),
            ("houses", "house"),
            ("statuses", "status"),
            ("cases", "case"),
            ("addresses", "address"),
            ("address", "address"),
            ("status", "status"),
            ("analysis", "analysis"),
            ("album", "album"),
            ("order_details", "order_detail"),
            ("s", "s"),
        ] {
            assert_eq!(singular(name), expected);
        }
    }

    #[test]
    fn resource_names_are_unique_and_so_are_their_plurals() {
        let long = "a".repeat(60);
        let tables = ["Customer", "customers", "pg_notes", "клиенты", &long, &long, "page"];
        let names = resource_names(tables.into_iter());
        let cut = "a".repeat(RESOURCE_CHARS_MAX);
        let second = format!("{}_2", "a".repeat(RESOURCE_CHARS_MAX - 2));
        assert_eq!(
            names,
            ["customer", "customer_2", "my_pg_note", "table_4", &cut, &second, "page"]
        );
    }
}
