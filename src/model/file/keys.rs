//! The keys of the model file, by table, each with its value type and a line of help.
//!
//! Both the reader and the JSON Schema (`schema`) use these tables, so they cannot drift apart.

use crate::model::settings::{Log, Pooling};
use crate::model::{Algorithm, ChallengeForm, ChangesKept, OnDelete, Qop, Scheme, Verb};
use crate::value::IdKind;

/// One key of one table.
#[derive(Debug)]
pub(in crate::model) struct Key {
    pub(in crate::model) name: &'static str,
    pub(in crate::model) holds: Holds,
    pub(in crate::model) about: &'static str,
}

/// The type of a key's value.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) enum Holds {
    Text,
    /// A name that the author chooses.
    Name,
    Flag,
    /// An integer of at least this value.
    Count(u64),
    /// One of these words.
    Choice(Words),
    Names,
    Choices(Words),
    /// A value of the field's own type.
    Value,
    Values,
    /// A text or a list of texts.
    Texts,
    /// The table of the schema with this name.
    Table(&'static str),
    /// A table whose keys are names that the author chooses, and whose values are the named table.
    Tables(&'static str),
    Unique,
    UniqueGroups,
    Transitions,
}

/// Words and their meanings.
pub(in crate::model) type Meanings<T> = [(&'static str, T)];

type Words = fn() -> Vec<&'static str>;

/// The words alone.
pub(in crate::model) fn words<T>(meanings: &Meanings<T>) -> Vec<&'static str> {
    meanings.iter().map(|(word, _)| *word).collect()
}

const fn key(name: &'static str, holds: Holds, about: &'static str) -> Key {
    Key { name, holds, about }
}

pub(in crate::model) static SCHEMES: &Meanings<Scheme> =
    &[("digest", Scheme::Digest), ("basic", Scheme::Basic)];
pub(in crate::model) static ALGORITHMS: &Meanings<Algorithm> =
    &[("sha-256", Algorithm::Sha256), ("md5", Algorithm::Md5)];
pub(in crate::model) static QOPS: &Meanings<Qop> =
    &[("auth", Qop::Auth), ("auth-int", Qop::AuthInt)];
pub(in crate::model) static CHALLENGE_FORMS: &Meanings<ChallengeForm> =
    &[("merged", ChallengeForm::Merged), ("separate", ChallengeForm::Separate)];
pub(in crate::model) static ID_KINDS: &Meanings<IdKind> =
    &[("uuid", IdKind::Uuid), ("integer", IdKind::Integer)];
pub(in crate::model) static ON_DELETE: &Meanings<OnDelete> =
    &[("restrict", OnDelete::Restrict), ("cascade", OnDelete::Cascade)];
pub(in crate::model) static CHANGES: &Meanings<ChangesKept> =
    &[("values", ChangesKept::Values), ("ids", ChangesKept::Ids)];
pub(in crate::model) static VERBS: &Meanings<Verb> = &[
    ("get", Verb::Get),
    ("post", Verb::Post),
    ("put", Verb::Put),
    ("patch", Verb::Patch),
    ("delete", Verb::Delete),
];
pub(in crate::model) static LOGS: &Meanings<Log> = &[("pretty", Log::Pretty), ("json", Log::Json)];

pub(in crate::model) static POOLINGS: &Meanings<Pooling> =
    &[("session", Pooling::Session), ("transaction", Pooling::Transaction)];

pub(in crate::model) static ROOT: &[Key] = &[
    key("title", Holds::Text, "what the service is called"),
    key(
        "realms",
        Holds::Tables("realm"),
        "protection spaces; left out, there is one with the name of the title",
    ),
    key("resources", Holds::Tables("resource"), "the nouns, by their singular names"),
    key("roles", Holds::Tables("role"), "who may do what; what no role grants is closed"),
    key(
        "server",
        Holds::Table("server"),
        "settings of the server, which flags and the environment override",
    ),
];

pub(in crate::model) static REALM: &[Key] = &[
    key(
        "schemes",
        Holds::Choices(|| words(SCHEMES)),
        "ways to prove identity, offered in this order",
    ),
    key("algorithms", Holds::Choices(|| words(ALGORITHMS)), "the hashes of digest"),
    key("qop", Holds::Choices(|| words(QOPS)), "what a digest covers: the request, its body too"),
    key(
        "challenge",
        Holds::Choice(|| words(CHALLENGE_FORMS)),
        "the challenges of digest in one line, or a line for each algorithm",
    ),
    key("legacy", Holds::Flag, "accepts digests without qop, from clients older than RFC 2617"),
];

pub(in crate::model) static RESOURCE: &[Key] = &[
    key("plural", Holds::Name, "the word in paths, where adding s, es or ies is not right"),
    key("parent", Holds::Name, "the resource whose items these belong to"),
    key(
        "on_delete",
        Holds::Choice(|| words(ON_DELETE)),
        "what deleting the parent does: refuse while there are any, or delete them too",
    ),
    key("id", Holds::Choice(|| words(ID_KINDS)), "the kind of id the server makes"),
    key("realm", Holds::Text, "the protection space; a nested resource has its parent's"),
    key("fields", Holds::Tables("field"), "what an item is made of"),
    key("unique", Holds::UniqueGroups, "groups of fields whose values together occur once"),
    key(
        "require_if_match",
        Holds::Flag,
        "updates and deletes must say which version they saw (428 otherwise)",
    ),
    key(
        "changes",
        Holds::Choice(|| words(CHANGES)),
        "what the change log keeps of an item: its values, or its id alone",
    ),
    key("deprecated", Holds::Table("deprecated"), "marks it as going away"),
];

/// The keys of every field, whatever its type.
pub(in crate::model) const FIELD_COMMON: &[&str] =
    &["type", "required", "nullable", "default", "deprecated"];

/// All keys of fields; `FieldType::keys` says which of them a type allows.
pub(in crate::model) static FIELD: &[Key] = &[
    key("type", Holds::Name, "the type of its values"),
    key("required", Holds::Flag, "must be sent"),
    key("nullable", Holds::Flag, "may be null, and is null where it has no value"),
    key("default", Holds::Value, "the value where none is sent"),
    key("computed", Holds::Text, "an expression that the server evaluates on every write"),
    key("min", Holds::Value, "the smallest value"),
    key("max", Holds::Value, "the largest value"),
    key("min_length", Holds::Count(0), "the fewest characters"),
    key("max_length", Holds::Count(1), "the most characters"),
    key(
        "pattern",
        Holds::Text,
        "a regular expression that must be found in the text; ^ and $ anchor it",
    ),
    key("one_of", Holds::Values, "the only values there are"),
    key("min_items", Holds::Count(0), "the fewest elements"),
    key("max_items", Holds::Count(1), "the most elements"),
    key("scale", Holds::Count(0), "digits after the point, 0 to 9; 2 where left out"),
    key("to", Holds::Name, "the resource that it refers to"),
    key("on_delete", Holds::Choice(|| words(ON_DELETE)), "what deleting the item referred to does"),
    key("initial", Holds::Name, "the state of a new item"),
    key("next", Holds::Transitions, "each state with those that may follow it"),
    key("of", Holds::Table("element"), "what the list is made of"),
    key("fields", Holds::Tables("member"), "what the object is made of"),
    key(
        "unique",
        Holds::Unique,
        "occurs once: in the resource (true) or within one parent (\"parent\")",
    ),
    key("filter", Holds::Flag, "may be filtered and sorted by, and has an index"),
    key("deprecated", Holds::Table("deprecated"), "marks it as going away"),
];

pub(in crate::model) static DEPRECATED: &[Key] = &[
    key("since", Holds::Text, "the day from which it is deprecated, YYYY-MM-DD"),
    key("sunset", Holds::Text, "the day from which it may be gone, YYYY-MM-DD"),
    key("use", Holds::Name, "what to use instead"),
];

pub(in crate::model) static GRANT: &[Key] = &[
    key("verbs", Holds::Choices(|| words(VERBS)), "what may be done; \"*\" is all of it"),
    key("where", Holds::Text, "only items for which this holds"),
    key("hide", Holds::Names, "fields that this role does not know of"),
    key("readonly", Holds::Names, "fields that this role may not change"),
];

/// Server paths that can be granted to a role.
pub(in crate::model) const SERVER_PATHS: [&str; 2] = ["/-/metrics", "/-/users"];

pub(in crate::model) static SERVER: &[Key] = &[
    key("database", Holds::Text, "where the data lives: sqlite:PATH or postgres://USER@HOST/NAME"),
    key(
        "database_pooling",
        Holds::Choice(|| words(POOLINGS)),
        "transaction, where a proxy such as pgbouncer gives each transaction another session",
    ),
    key("key_file", Holds::Text, "the file that holds the key, which is not in the database"),
    key("listen", Holds::Texts, "addresses to listen on, such as 127.0.0.1:8080"),
    key(
        "behind_proxy",
        Holds::Texts,
        "networks of proxies that say where a request comes from, such as 10.0.0.0/8",
    ),
    key("tls_cert", Holds::Text, "the file of the certificate and its chain, in PEM: HTTPS"),
    key("tls_key", Holds::Text, "the file of the certificate's key, in PEM"),
    key(
        "redirect",
        Holds::Texts,
        "addresses without TLS whose callers are sent to HTTPS, such as 0.0.0.0:80",
    ),
    key("hsts", Holds::Text, "how long browsers shall come by HTTPS alone: 180d, 12h or 90m"),
    key("open", Holds::Flag, "no authentication; loopback addresses only"),
    key("wait", Holds::Flag, "keep trying while the database cannot be reached"),
    key("log", Holds::Choice(|| words(LOGS)), "how log lines look"),
    key("realm", Holds::Text, "the realm of / and /-/"),
    key("base_path", Holds::Text, "a prefix of all paths, such as /v1"),
    key(
        "base_url",
        Holds::Text,
        "the address that clients reach the server at, such as https://example.com",
    ),
    key("changes_keep", Holds::Text, "how long the change log is kept: 30d, 12h, 90m or forever"),
    key(
        "cors_origins",
        Holds::Texts,
        "origins whose pages may use the server, such as https://app.example",
    ),
    key("http2_prior_knowledge", Holds::Flag, "HTTP/2 without TLS for clients that begin with it"),
    key("limits", Holds::Table("limits"), "upper bounds"),
    key(
        "rate_limits",
        Holds::Tables("rate_limit"),
        "how often callers with a role may ask; a role that is not here is not limited",
    ),
];

pub(in crate::model) static RATE_LIMIT: &[Key] = &[
    key("requests", Holds::Count(1), "so many requests of one caller"),
    key("seconds", Holds::Count(1), "in so many seconds from the first one"),
];

/// Reserved keys that are not implemented yet, with an alternative. They are refused, so that nobody relies
/// on them.
static WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("renamed_from", "nothing is renamed; leave it out, and keep the old name"),
    ("search", "there is no full-text search; leave it out"),
];

/// The alternative, if the key is reserved and not implemented yet.
pub(in crate::model) fn without_effect(name: &str) -> Option<&'static str> {
    WITHOUT_EFFECT.iter().find(|(key, _)| *key == name).map(|(_, help)| *help)
}

/// The names of a table's keys.
pub(in crate::model) fn names(keys: &'static [Key]) -> impl Iterator<Item = &'static str> + Clone {
    keys.iter().map(|key| key.name)
}
