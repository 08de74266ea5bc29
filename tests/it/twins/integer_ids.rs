//! Masks for integer ids.
//!
//! PostgreSQL uses up a number for a create that is then refused, SQLite gives it to the next one:
//! neither reuses a number, and only the order can be compared.
//! Both begin high up, each resource at its own value, so that all numbers have six digits and none
//! is an id of two resources; otherwise a length or a conflict would differ by chance.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::harness::{Backend, Server, run_sql};

/// Where the numbers of a resource occur, apart from the ids of its own items: in paths, in members of
/// other items, and in the message about an id that contradicts the path.
const NOUNS: &[(&str, &str)] = &[
    (
        "branch",
        r#"/branches/|"branch_id":|(?:/branch(?:es)?/id|/branch_id)","code":"mismatch","detail":"the path says "#,
    ),
    ("copy", r#"/copies/|"next":|/cop(?:y|ies)/id","code":"mismatch","detail":"the path says "#),
];

static RULES: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    let rule = |places: &str| {
        Regex::new(&format!(r#"(?P<place>(?:"pointer":")?(?:{places}))(?P<number>\d+)\b"#)).unwrap()
    };
    NOUNS.iter().map(|(noun, places)| (*noun, rule(places))).collect()
});
static ID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(?P<place>"id":)(?P<number>\d+)\b"#).unwrap());
static WRAPPER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(?m)^\{"([a-z]+)":|^([a-z]+)\|"#).unwrap());

/// Sets the first number of each resource.
pub fn set_first_numbers(server: &Server) {
    let text = match server.backend() {
        Backend::Sqlite => {
            "INSERT INTO sqlite_sequence (name, seq) VALUES ('branches', 100000), ('copies', 500000)"
        }
        Backend::Postgres => {
            "SELECT setval(pg_get_serial_sequence('branches', 'id'), 100000), \
             setval(pg_get_serial_sequence('copies', 'id'), 500000)"
        }
    };
    run_sql(server.backend(), server.folder(), text);
}

/// The numbers seen so far, by resource and first appearance.
#[derive(Debug, Clone, Default)]
pub struct IntegerIdMasks(Vec<(&'static str, String)>);

impl IntegerIdMasks {
    /// Masks a response, or an entry of the change log.
    pub fn mask(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (noun, rule) in RULES.iter() {
            text = rule
                .replace_all(&text, |found: &Captures<'_>| self.placeholder(noun, found))
                .into_owned();
        }
        let wrapper = WRAPPER.captures(&text);
        let wrapper = wrapper.and_then(|found| found.get(1).or(found.get(2)));
        let noun = match wrapper.map(|found| found.as_str()) {
            Some("branch" | "branches") => "branch",
            Some("copy" | "copies") => "copy",
            _ => return text,
        };
        ID.replace_all(&text, |found: &Captures<'_>| self.placeholder(noun, found)).into_owned()
    }

    fn placeholder(&mut self, noun: &'static str, found: &Captures<'_>) -> String {
        let (place, number) = (&found["place"], &found["number"]);
        if place.starts_with("\"pointer\"") && place.ends_with('/') {
            // A position in a body: the index of an item in its list.
            return found[0].to_owned();
        }
        let mut of_noun = self.0.iter().filter(|(known, _)| *known == noun);
        let count = of_noun.clone().count();
        let index = of_noun.position(|(_, known)| known == number);
        if index.is_none() {
            self.0.push((noun, number.to_owned()));
        }
        let index = index.unwrap_or(count);
        format!("{place}<{noun}-{}>", index + 1)
    }
}

#[test]
fn integer_ids_are_masked_by_their_resource() {
    let mut numbers = IntegerIdMasks::default();
    let text = "location: /branches/17\ncontent-length: 99\n\n{\"branch\":{\"id\":17,\"number\":17,\"version\":1}}";
    let masked = "location: /branches/<branch-1>\ncontent-length: 99\n\n{\"branch\":{\"id\":<branch-1>,\"number\":17,\"version\":1}}";
    assert_eq!(numbers.mask(text), masked);
    let copy = "copy|created|/branches/17/books/x/copies/17|{\"id\":17,\"next\":18,\"version\":1}";
    let masked = "copy|created|/branches/<branch-1>/books/x/copies/<copy-1>|{\"id\":<copy-1>,\"next\":<copy-2>,\"version\":1}";
    assert_eq!(numbers.mask(copy), masked);
    let fault = "{\"errors\":[{\"pointer\":\"/branches/1/rent\"}]}";
    assert_eq!(numbers.mask(fault), fault);
}
