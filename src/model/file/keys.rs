//! The keys of the model file, by table, each with its value type and a line of help.
//!
//! Both the reader and the JSON Schema (`schema`) use these tables, so they cannot drift apart.

use crate::model::settings::{LogFormat, Pooling};
use crate::model::{
    Algorithm, AuthScheme, ChallengeForm, ChangeLogDetail, GrantVerb, OnDelete, Qop,
};
use crate::value::IdKind;

/// One key of one table.
#[derive(Debug)]
pub struct KeySpec {
    pub name: &'static str,
    pub value: KeyValue,
    pub about: &'static str,
}

/// The type of a key's value.
#[derive(Debug, Clone, Copy)]
pub enum KeyValue {
    Text,
    /// A name that the author chooses.
    Name,
    Flag,
    /// An integer of at least this value.
    Count(u64),
    /// One of these words.
    Choice(WordList),
    Names,
    Choices(WordList),
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
pub type WordMeanings<T> = [(&'static str, T)];

type WordList = fn() -> Vec<&'static str>;

/// The words alone.
pub fn words<T>(meanings: &WordMeanings<T>) -> Vec<&'static str> {
    meanings.iter().map(|(word, _)| *word).collect()
}

const fn key(name: &'static str, holds: KeyValue, about: &'static str) -> KeySpec {
    KeySpec { name, value: holds, about }
}

pub static SCHEMES: &WordMeanings<AuthScheme> =
    &[("digest", AuthScheme::Digest), ("basic", AuthScheme::Basic)];
pub static ALGORITHMS: &WordMeanings<Algorithm> =
    &[("sha-256", Algorithm::Sha256), ("md5", Algorithm::Md5)];
pub static QOPS: &WordMeanings<Qop> = &[("auth", Qop::Auth), ("auth-int", Qop::AuthInt)];
pub static CHALLENGE_FORMS: &WordMeanings<ChallengeForm> =
    &[("merged", ChallengeForm::Merged), ("separate", ChallengeForm::Separate)];
pub static ID_KINDS: &WordMeanings<IdKind> =
    &[("uuid", IdKind::Uuid), ("integer", IdKind::Integer)];
pub static ON_DELETE: &WordMeanings<OnDelete> =
    &[("restrict", OnDelete::Restrict), ("cascade", OnDelete::Cascade)];
pub static CHANGES: &WordMeanings<ChangeLogDetail> =
    &[("values", ChangeLogDetail::Values), ("ids", ChangeLogDetail::Ids)];
pub static VERBS: &WordMeanings<GrantVerb> = &[
    ("get", GrantVerb::Get),
    ("post", GrantVerb::Post),
    ("put", GrantVerb::Put),
    ("patch", GrantVerb::Patch),
    ("delete", GrantVerb::Delete),
];
pub static LOGS: &WordMeanings<LogFormat> =
    &[("pretty", LogFormat::Pretty), ("json", LogFormat::Json)];

pub static POOLINGS: &WordMeanings<Pooling> =
    &[("session", Pooling::Session), ("transaction", Pooling::Transaction)];

pub static ROOT: &[KeySpec] = &[
    key("title", KeyValue::Text, "what the service is called"),
    key(
        "realms",
        KeyValue::Tables("realm"),
        "protection spaces; left out, there is one with the name of the title",
    ),
    key("resources", KeyValue::Tables("resource"), "the nouns, by their singular names"),
    key("roles", KeyValue::Tables("role"), "who may do what; what no role grants is closed"),
    key(
        "server",
        KeyValue::Table("server"),
        "settings of the server, which flags and the environment override",
    ),
];

pub static REALM: &[KeySpec] = &[
    key(
        "schemes",
        KeyValue::Choices(|| words(SCHEMES)),
        "ways to prove identity, offered in this order",
    ),
    key("algorithms", KeyValue::Choices(|| words(ALGORITHMS)), "the hashes of digest"),
    key(
        "qop",
        KeyValue::Choices(|| words(QOPS)),
        "what a digest covers: the request, its body too",
    ),
    key(
        "challenge",
        KeyValue::Choice(|| words(CHALLENGE_FORMS)),
        "the challenges of digest in one line, or a line for each algorithm",
    ),
    key("legacy", KeyValue::Flag, "accepts digests without qop, from clients older than RFC 2617"),
];

pub static RESOURCE: &[KeySpec] = &[
    key("plural", KeyValue::Name, "the word in paths, where adding s, es or ies is not right"),
    key("parent", KeyValue::Name, "the resource whose items these belong to"),
    key(
        "on_delete",
        KeyValue::Choice(|| words(ON_DELETE)),
        "what deleting the parent does: refuse while there are any, or delete them too",
    ),
    key("id", KeyValue::Choice(|| words(ID_KINDS)), "the kind of id the server makes"),
    key("realm", KeyValue::Text, "the protection space; a nested resource has its parent's"),
    key("fields", KeyValue::Tables("field"), "what an item is made of"),
    key("unique", KeyValue::UniqueGroups, "groups of fields whose values together occur once"),
    key(
        "require_if_match",
        KeyValue::Flag,
        "updates and deletes must say which version they saw (428 otherwise)",
    ),
    key(
        "changes",
        KeyValue::Choice(|| words(CHANGES)),
        "what the change log keeps of an item: its values, or its id alone",
    ),
    key("deprecated", KeyValue::Table("deprecated"), "marks it as going away"),
];

/// The keys of every field, whatever its type.
pub const FIELD_COMMON: &[&str] = &["type", "required", "nullable", "default", "deprecated"];

/// All keys of fields; `FieldType::keys` says which of them a type allows.
pub static FIELD: &[KeySpec] = &[
    key("type", KeyValue::Name, "the type of its values"),
    key("required", KeyValue::Flag, "must be sent"),
    key("nullable", KeyValue::Flag, "may be null, and is null where it has no value"),
    key("default", KeyValue::Value, "the value where none is sent"),
    key("computed", KeyValue::Text, "an expression that the server evaluates on every write"),
    key("min", KeyValue::Value, "the smallest value"),
    key("max", KeyValue::Value, "the largest value"),
    key("min_length", KeyValue::Count(0), "the fewest characters"),
    key("max_length", KeyValue::Count(1), "the most characters"),
    key(
        "pattern",
        KeyValue::Text,
        "a regular expression that must be found in the text; ^ and $ anchor it",
    ),
    key("one_of", KeyValue::Values, "the only values there are"),
    key("min_items", KeyValue::Count(0), "the fewest elements"),
    key("max_items", KeyValue::Count(1), "the most elements"),
    key("scale", KeyValue::Count(0), "digits after the point, 0 to 9; 2 where left out"),
    key("to", KeyValue::Name, "the resource that it refers to"),
    key(
        "on_delete",
        KeyValue::Choice(|| words(ON_DELETE)),
        "what deleting the item referred to does",
    ),
    key("initial", KeyValue::Name, "the state of a new item"),
    key("next", KeyValue::Transitions, "each state with those that may follow it"),
    key("of", KeyValue::Table("element"), "what the list is made of"),
    key("fields", KeyValue::Tables("member"), "what the object is made of"),
    key(
        "unique",
        KeyValue::Unique,
        "occurs once: in the resource (true) or within one parent (\"parent\")",
    ),
    key("filter", KeyValue::Flag, "may be filtered and sorted by, and has an index"),
    key("deprecated", KeyValue::Table("deprecated"), "marks it as going away"),
];

pub static DEPRECATED: &[KeySpec] = &[
    key("since", KeyValue::Text, "the day from which it is deprecated, YYYY-MM-DD"),
    key("sunset", KeyValue::Text, "the day from which it may be gone, YYYY-MM-DD"),
    key("use", KeyValue::Name, "what to use instead"),
];

pub static GRANT: &[KeySpec] = &[
    key("verbs", KeyValue::Choices(|| words(VERBS)), "what may be done; \"*\" is all of it"),
    key("where", KeyValue::Text, "only items for which this holds"),
    key("hide", KeyValue::Names, "fields that are hidden from this role"),
    key("readonly", KeyValue::Names, "fields that this role may not change"),
];

/// Server paths that can be granted to a role.
pub const SERVER_PATHS: [&str; 2] = ["/-/metrics", "/-/users"];

pub static SERVER: &[KeySpec] = &[
    key(
        "database",
        KeyValue::Text,
        "where the data lives: sqlite:PATH or postgres://USER@HOST/NAME",
    ),
    key(
        "database_pooling",
        KeyValue::Choice(|| words(POOLINGS)),
        "transaction, where a proxy such as pgbouncer gives each transaction another session",
    ),
    key("key_file", KeyValue::Text, "the file that holds the key, which is not in the database"),
    key("listen", KeyValue::Texts, "addresses to listen on, such as 127.0.0.1:8080"),
    key(
        "behind_proxy",
        KeyValue::Texts,
        "networks of proxies that say where a request comes from, such as 10.0.0.0/8",
    ),
    key("tls_cert", KeyValue::Text, "the file of the certificate and its chain, in PEM: HTTPS"),
    key("tls_key", KeyValue::Text, "the file of the certificate's key, in PEM"),
    key(
        "redirect",
        KeyValue::Texts,
        "addresses without TLS that redirect to HTTPS, such as 0.0.0.0:80",
    ),
    key("hsts", KeyValue::Text, "how long browsers must use HTTPS only: 180d, 12h or 90m"),
    key("open", KeyValue::Flag, "no authentication; loopback addresses only"),
    key("wait", KeyValue::Flag, "keep trying while the database cannot be reached"),
    key("log", KeyValue::Choice(|| words(LOGS)), "the format of log lines"),
    key("realm", KeyValue::Text, "the realm of / and /-/"),
    key("base_path", KeyValue::Text, "a prefix of all paths, such as /v1"),
    key(
        "base_url",
        KeyValue::Text,
        "the address that clients reach the server at, such as https://example.com",
    ),
    key(
        "changes_keep",
        KeyValue::Text,
        "how long the change log is kept: 30d, 12h, 90m or forever",
    ),
    key(
        "cors_origins",
        KeyValue::Texts,
        "origins whose pages may use the server, such as https://app.example",
    ),
    key(
        "http2_prior_knowledge",
        KeyValue::Flag,
        "HTTP/2 without TLS for clients that begin with it",
    ),
    key("limits", KeyValue::Table("limits"), "upper bounds"),
    key(
        "rate_limits",
        KeyValue::Tables("rate_limit"),
        "rate limits by role; a role that is not listed is not limited",
    ),
];

pub static RATE_LIMIT: &[KeySpec] = &[
    key("requests", KeyValue::Count(1), "requests of one caller within the window"),
    key(
        "seconds",
        KeyValue::Count(1),
        "length of the fixed window, which starts with the first request",
    ),
];

/// Reserved keys that are not implemented yet, with an alternative. They are refused, so that no author
/// relies on them.
static RESERVED_KEYS: &[(&str, &str)] = &[
    ("renamed_from", "nothing is renamed; leave it out, and keep the old name"),
    ("search", "there is no full-text search; leave it out"),
];

/// The alternative, if the key is reserved and not implemented yet.
pub fn reserved_key_help(name: &str) -> Option<&'static str> {
    RESERVED_KEYS.iter().find(|(key, _)| *key == name).map(|(_, help)| *help)
}

/// The names of a table's keys.
pub fn names(keys: &'static [KeySpec]) -> impl Iterator<Item = &'static str> + Clone {
    keys.iter().map(|key| key.name)
}
