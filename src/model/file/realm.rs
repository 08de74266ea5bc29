//! Realms: their authentication schemes and Digest parameters.
//!
//! If the model declares none, it has one realm, named `nouns`, with all defaults. Stored Digest credentials
//! depend on the name of their realm, so the default name does not depend on the title. Algorithms are
//! offered strongest first, whatever their order in the file.

use super::keys;
use super::toml_tree::{TomlEntry, TomlTable};
use crate::model::resource::{Algorithm, AuthScheme, ChallengeForm, Qop, Realm};

/// The keys that only apply to Digest.
const DIGEST_KEYS: &[&str] = &["algorithms", "qop", "challenge", "legacy"];

/// The name of the realm if none is declared.
const DEFAULT_NAME: &str = "nouns";

pub fn read(root: &TomlTable<'_>) -> Vec<Realm> {
    let Some(entry) = root.find("realms") else {
        return vec![read_realm(DEFAULT_NAME, &TomlTable::default())];
    };
    let Some(table) = root.table("realms") else { return Vec::new() };
    if table.entries.is_empty() {
        let help = "declare one, such as [realms.main], or leave `realms` out";
        entry.key.refuse_with_help("`realms` is empty", help);
    }
    table.entries.iter().filter_map(read_declared).collect()
}

fn read_declared(entry: &TomlEntry<'_>) -> Option<Realm> {
    let name = entry.key.value;
    // RFC 9110 §11.5: a realm is a quoted string; without `"` and `\` it needs no escaping.
    if name.is_empty() || name.contains(['"', '\\']) || name.chars().any(char::is_control) {
        entry.key.refuse_with_help(
            format!("{name:?} cannot be the name of a realm"),
            "a realm name is not empty and has no `\"`, no `\\` and no control characters",
        );
    }
    let table = entry.table()?;
    table.check(&keys::REALM);
    Some(read_realm(name, &table))
}

fn read_realm(name: &str, table: &TomlTable<'_>) -> Realm {
    let all_schemes = || keys::SCHEMES.iter().map(|(_, scheme)| *scheme).collect();
    let all_algorithms = || keys::ALGORITHMS.iter().map(|(_, algorithm)| *algorithm).collect();
    let schemes: Vec<AuthScheme> =
        table.choices("schemes", keys::SCHEMES).unwrap_or_else(all_schemes);
    let mut algorithms: Vec<Algorithm> =
        table.choices("algorithms", keys::ALGORITHMS).unwrap_or_else(all_algorithms);
    algorithms.sort_by_key(|algorithm| *algorithm == Algorithm::Md5);
    let legacy = table.flag("legacy").unwrap_or(false);
    // If the list has a mistake, the schemes are uncertain.
    if !schemes.is_empty() && !schemes.contains(&AuthScheme::Digest) {
        for entry in DIGEST_KEYS.iter().filter_map(|key| table.find(key)) {
            let key = entry.key.value;
            let message = format!("`{key}` is about digest, which this realm does not have");
            entry.key.refuse_with_help(message, "take it out, or add \"digest\" to `schemes`");
        }
    } else if let Some(entry) = table.find("legacy").filter(|_| legacy)
        && algorithms == [Algorithm::Sha256]
    {
        let help =
            "clients so old know no other: add \"md5\" to `algorithms`, or take `legacy` out";
        entry.key.refuse_with_help("`legacy` needs the algorithm md5", help);
    }
    Realm {
        name: name.into(),
        schemes,
        algorithms,
        qop: table.choices("qop", keys::QOPS).unwrap_or_else(|| vec![Qop::Auth]),
        challenge: table
            .choice("challenge", keys::CHALLENGE_FORMS)
            .unwrap_or(ChallengeForm::Merged),
        legacy,
    }
}
