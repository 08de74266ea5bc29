//! Realms: their authentication schemes and Digest parameters.
//!
//! If the model declares none, it has one realm, named `nouns`, with all defaults. Stored Digest credentials
//! depend on the name of their realm, so the default name does not depend on the title. Algorithms are
//! offered strongest first, whatever their order in the file.

use super::keys;
use super::toml_tree::{TomlEntry, TomlTable};
use crate::model::report::Mistakes;
use crate::model::{Algorithm, AuthScheme, ChallengeForm, Qop, Realm};

/// The keys that only apply to Digest.
const DIGEST_KEYS: &[&str] = &["algorithms", "qop", "challenge", "legacy"];

/// The name of the realm if none is declared.
const DEFAULT_NAME: &str = "nouns";

pub fn read(root: &TomlTable<'_>, mistakes: &mut Mistakes) -> Vec<Realm> {
    let Some(entry) = root.find("realms") else {
        return vec![read_realm(DEFAULT_NAME, &TomlTable::default(), mistakes)];
    };
    let Some(table) = entry.table(mistakes) else { return Vec::new() };
    if table.entries().is_empty() {
        let help = "declare one, such as [realms.main], or leave `realms` out";
        mistakes.add_with_help(entry.key_span.clone(), "`realms` is empty", help);
    }
    table.entries().iter().filter_map(|entry| read_declared(entry, mistakes)).collect()
}

fn read_declared(entry: &TomlEntry<'_>, mistakes: &mut Mistakes) -> Option<Realm> {
    if entry.key.is_empty() || !is_realm_name(entry.key) {
        let message = format!("{:?} cannot be the name of a realm", entry.key);
        mistakes.add_with_help(
            entry.key_span.clone(),
            message,
            "a realm name is not empty and has no `\"`, no `\\` and no control characters",
        );
    }
    let table = entry.table(mistakes)?;
    table.refuse_unknown_keys(&keys::names(keys::REALM), "a realm", mistakes);
    Some(read_realm(entry.key, &table, mistakes))
}

fn read_realm(name: &str, table: &TomlTable<'_>, mistakes: &mut Mistakes) -> Realm {
    let schemes = match table.find("schemes") {
        Some(entry) => entry.choices("scheme", keys::SCHEMES, mistakes),
        None => keys::SCHEMES.iter().map(|(_, scheme)| *scheme).collect(),
    };
    let mut algorithms = match table.find("algorithms") {
        Some(entry) => entry.choices("algorithm", keys::ALGORITHMS, mistakes),
        None => keys::ALGORITHMS.iter().map(|(_, algorithm)| *algorithm).collect(),
    };
    algorithms.sort_by_key(|algorithm| match algorithm {
        Algorithm::Sha256 => 0,
        Algorithm::Md5 => 1,
    });
    let qop = match table.find("qop") {
        Some(entry) => entry.choices("qop", keys::QOPS, mistakes),
        None => vec![Qop::Auth],
    };
    let challenge =
        table.choice("challenge", keys::CHALLENGE_FORMS, mistakes).unwrap_or(ChallengeForm::Merged);
    let legacy = table.flag("legacy", mistakes).unwrap_or(false);
    // If the list has a mistake, the schemes are uncertain.
    if !schemes.is_empty() && !schemes.contains(&AuthScheme::Digest) {
        for entry in DIGEST_KEYS.iter().filter_map(|key| table.find(key)) {
            let message =
                format!("`{}` is about digest, which this realm does not have", entry.key);
            let help = "take it out, or add \"digest\" to `schemes`";
            mistakes.add_with_help(entry.key_span.clone(), message, help);
        }
    } else if let Some(entry) = table.find("legacy").filter(|_| legacy)
        && algorithms == [Algorithm::Sha256]
    {
        let help =
            "clients so old know no other: add \"md5\" to `algorithms`, or take `legacy` out";
        mistakes.add_with_help(entry.key_span.clone(), "`legacy` needs the algorithm md5", help);
    }
    Realm { name: name.into(), schemes, algorithms, qop, challenge, legacy }
}

// RFC 9110 §11.5: a realm is a quoted string; without `"` and `\` it needs no escaping.
fn is_realm_name(name: &str) -> bool {
    !name.contains(['"', '\\']) && !name.chars().any(char::is_control)
}
