//! The keys of the model file, by table, each with the form of its value and a line of help.
//!
//! A key is declared here and nowhere else: `TomlTable::check` validates a model file against these tables, the
//! JSON Schema is generated from them, and tests compare the documents with them.

use std::ops::Range;

use crate::model::field::{DefaultSource, OnDelete, TextOrder};
use crate::model::resource::{
    Algorithm, AuthScheme, ChallengeForm, ChangeLogDetail, GrantVerb, Qop, UniqueConflict,
};
use crate::model::settings::{ChangeRetention, LIMIT_RANGE, LogFormat, Pooling, RATE_SECONDS_MAX};
use crate::model::types::is_origin_url;
use crate::value::IdKind;
use KeyForm::*;
use OtherForm::*;

/// The keys of one table.
#[derive(Debug)]
pub struct TableKeys {
    /// The owner of the keys, in messages.
    pub owner: &'static str,
    pub keys: &'static [KeySpec],
}

/// One key of one table.
#[derive(Debug)]
pub struct KeySpec {
    pub name: &'static str,
    pub form: KeyForm,
    pub about: &'static str,
}

/// The form of a key's value, which `TomlTable::check` validates. Rules that involve several keys are checked by
/// the functions that read the table.
#[derive(Debug, Clone)]
pub enum KeyForm {
    Text,
    /// A text that a function checks.
    Checked(&'static TextCheck),
    /// A name that the author chooses.
    Name,
    Flag,
    Count(Range<u64>),
    /// One of these words.
    Choice(Words),
    /// A list of these words, and what a message calls one of them.
    Choices(&'static str, Words),
    /// A list of names that the author chooses.
    Names,
    /// A text or a list of texts, and what a message calls it.
    Texts(&'static str),
    /// The table of the schema with this name.
    Table(&'static str),
    /// A table whose keys are names that the author chooses, and whose values are the named table.
    Tables(&'static str),
    /// A form that only the function that reads it can validate; this is its description in the JSON Schema.
    Other(OtherForm),
}

/// The values that `KeyForm` has no other variant for.
#[derive(Debug, Clone, Copy)]
pub enum OtherForm {
    /// A value of the field's own type, and a list of them.
    Value,
    Values,
    /// `true`, `false` or "parent".
    Unique,
    UniqueGroups,
    /// A list of the tables `CHECK`.
    Checks,
    /// `true`, `false` or a name.
    Flat,
    Transitions,
    StateMoves,
    /// A date, as a text or as a TOML date.
    Date,
    Verbs,
}

/// A form of texts: what is expected, how to write it, and whether a text has it.
#[derive(Debug)]
pub struct TextCheck {
    pub expected: &'static str,
    pub help: &'static str,
    pub is_valid: fn(&str) -> bool,
}

/// Words and their meanings.
pub type WordMeanings<T> = [(&'static str, T)];

type Words = fn() -> Vec<&'static str>;

/// The words alone.
pub fn words<T>(meanings: &WordMeanings<T>) -> Vec<&'static str> {
    meanings.iter().map(|(word, _)| *word).collect()
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
pub static REFERENCE_ON_DELETE: &WordMeanings<OnDelete> =
    &[("restrict", OnDelete::Restrict), ("cascade", OnDelete::Cascade), ("clear", OnDelete::Clear)];
pub static REFERENCES_ON_DELETE: &WordMeanings<OnDelete> =
    &[("restrict", OnDelete::Restrict), ("remove", OnDelete::Clear)];
pub static DEFAULT_SOURCES: &WordMeanings<DefaultSource> =
    &[("now", DefaultSource::Now), ("user", DefaultSource::User), ("uuid", DefaultSource::Uuid)];
pub static TEXT_ORDERS: &WordMeanings<TextOrder> =
    &[("code-points", TextOrder::CodePoints), ("unicode", TextOrder::Unicode)];
pub static UNIQUE_CONFLICTS: &WordMeanings<UniqueConflict> =
    &[("silent", UniqueConflict::Silent), ("tell", UniqueConflict::Tell)];
pub static CHANGE_LOG_DETAILS: &WordMeanings<ChangeLogDetail> =
    &[("values", ChangeLogDetail::Values), ("ids", ChangeLogDetail::Ids)];
pub static GRANT_VERBS: &WordMeanings<GrantVerb> = &[
    ("get", GrantVerb::Get),
    ("post", GrantVerb::Post),
    ("put", GrantVerb::Put),
    ("patch", GrantVerb::Patch),
    ("delete", GrantVerb::Delete),
];
pub static LOG_FORMATS: &WordMeanings<LogFormat> =
    &[("pretty", LogFormat::Pretty), ("json", LogFormat::Json)];
pub static POOLING_MODES: &WordMeanings<Pooling> =
    &[("session", Pooling::Session), ("transaction", Pooling::Transaction)];

macro_rules! table_keys {
    ($($(#[$doc:meta])* $table:ident $owner:literal { $($name:literal $form:expr, $about:literal;)* })*) => {
        $($(#[$doc])* pub static $table: TableKeys = TableKeys {
            owner: $owner,
            keys: &[$(KeySpec { name: $name, form: $form, about: $about },)*],
        };)*
    };
}

table_keys! {
    ROOT "a model" {
        "title" Text, "what the service is called";
        "realms" Tables("realm"), "protection spaces; left out, there is one with the name of the title";
        "resources" Tables("resource"), "the nouns, by their singular names";
        "roles" Tables("role"), "who may do what; what no role grants is closed";
        "server" Table("server"), "settings of the server, which flags and the environment override";
        "users" Table("users"), "fields that users have besides their names and roles";
    }

    USERS "the users" {
        "fields" Tables("member"), "each with a type and its rules; row filters compare them as $user.NAME";
    }

    REALM "a realm" {
        "schemes" Choices("scheme", || words(SCHEMES)), "ways to prove identity, offered in this order";
        "algorithms" Choices("algorithm", || words(ALGORITHMS)), "the hashes of digest";
        "qop" Choices("qop", || words(QOPS)), "what a digest covers: the request, its body too";
        "challenge" Choice(|| words(CHALLENGE_FORMS)),
            "the challenges of digest in one line, or a line for each algorithm";
        "legacy" Flag, "accepts digests without qop, from clients older than RFC 2617";
    }

    RESOURCE "a resource" {
        "plural" Name, "the word in paths, where adding s, es or ies is not right";
        "parent" Name, "the resource whose items these belong to";
        "on_delete" Choice(|| words(ON_DELETE)),
            "what deleting the parent does: refuse while there are any, or delete them too";
        "flat" Other(Flat),
            "the path at which a nested resource is read across all parents: another name, or false for none";
        "id" Choice(|| words(ID_KINDS)), "the kind of id the server makes";
        "realm" Text, "the protection space; a nested resource has its parent's";
        "fields" Tables("field"), "what an item is made of";
        "unique" Other(UniqueGroups), "groups of fields whose values together occur once";
        "conflict" Choice(|| words(UNIQUE_CONFLICTS)),
            "the response to a unique value that is taken by an item which the caller cannot read";
        "check" Other(Checks), "rules that the values of an item satisfy together";
        "created_by" Flag, "adds a field with the name of the user who created the item";
        "updated_by" Flag, "adds a field with the name of the user who changed the item last";
        "require_if_match" Flag, "updates and deletes must say which version they saw (428 otherwise)";
        "changes" Choice(|| words(CHANGE_LOG_DETAILS)),
            "what the change log keeps of an item: its values, or its id alone";
        "deprecated" Table("deprecated"), "marks it as going away";
        "renamed_from" Name, "its former name, by which a migration keeps the stored items";
    }

    /// All keys of fields; `FieldType::keys` says which of them a type allows.
    FIELD "a field" {
        "type" Name, "the type of its values";
        "required" Flag, "must be sent";
        "nullable" Flag, "may be null, and is null where it has no value";
        "default" Other(Value), "the value where none is sent: a constant, or { from = \"now\" }";
        "computed" Text, "an expression that the server evaluates on every write";
        "min" Other(Value), "the smallest value";
        "max" Other(Value), "the largest value";
        "min_length" Count(0..u64::MAX), "the fewest characters";
        "max_length" Count(1..u64::MAX), "the most characters";
        "pattern" Text, "a regular expression that must be found in the text; ^ and $ anchor it";
        "one_of" Other(Values), "the only values there are";
        "min_items" Count(0..u64::MAX), "the fewest elements";
        "max_items" Count(1..u64::MAX), "the most elements";
        "scale" Count(0..10), "digits after the point, 0 to 9; 2 where left out";
        "to" Name, "the resource that it refers to";
        "on_delete" Choice(|| words(REFERENCE_ON_DELETE)), "what deleting the item referred to does";
        "where" Text, "a condition on the item referred to; `this.` begins a field of the referring item";
        "initial" Name, "the state of a new item";
        "next" Other(Transitions), "each state with those that may follow it, for everybody or for some roles";
        "moved_to" Other(StateMoves), "each removed state with the one that a migration moves its items to";
        "of" Table("element"), "what the list is made of";
        "fields" Tables("member"), "what the object is made of";
        "unique" Other(Unique), "occurs once: in the resource (true) or within one parent (\"parent\")";
        "filter" Flag, "may be filtered and sorted by, and has an index";
        "match" Flag, "may be matched without regard to case and accents (~)";
        "order" Choice(|| words(TEXT_ORDERS)), "how it is sorted: by code points, or as people do";
        "deprecated" Table("deprecated"), "marks it as going away";
        "renamed_from" Name, "its former name, by which a migration keeps the stored values";
        "fill" Other(Value), "the value that a migration gives to existing items without one";
    }

    CHECK "a check" {
        "that" Text, "an expression over the fields that must not be false";
        "message" Text, "the error message for clients whose item breaks it";
    }

    TRANSITION "a limited transition" {
        "to" Names, "the states that may follow";
        "roles" Names, "the roles that may choose them, besides admins";
    }

    DEFAULT "`default`" {
        "from" Text, "made for each new item: the time, the name of the user or another field of it, or a random UUID";
    }

    DEPRECATED "`deprecated`" {
        "since" Other(Date), "the day from which it is deprecated, YYYY-MM-DD";
        "sunset" Other(Date), "the day from which it may be gone, YYYY-MM-DD";
        "use" Name, "what to use instead";
    }

    GRANT "a grant" {
        "verbs" Other(Verbs), "what may be done; \"*\" is all of it";
        "where" Text, "only items for which this holds";
        "hide" Names, "fields that are hidden from this role";
        "readonly" Names, "fields that this role may not change";
    }

    SERVER "the server" {
        "database" Text, "where the data lives: sqlite:PATH or postgres://USER@HOST/NAME";
        "database_pooling" Choice(|| words(POOLING_MODES)),
            "transaction, where a proxy such as pgbouncer gives each transaction another session";
        "key_file" Text, "the file that holds the key, which is not in the database";
        "listen" Texts("an address or a list of addresses"),
            "addresses to listen on, such as 127.0.0.1:8080";
        "behind_proxy" Texts("a network or a list of networks"),
            "networks of proxies that say where a request comes from, such as 10.0.0.0/8";
        "tls_cert" Text, "the file of the certificate and its chain, in PEM: HTTPS";
        "tls_key" Text, "the file of the certificate's key, in PEM";
        "redirect" Texts("an address or a list of addresses"),
            "addresses without TLS that redirect to HTTPS, such as 0.0.0.0:80";
        "hsts" Checked(&HSTS), "how long browsers must use HTTPS only: 180d, 12h or 90m";
        "open" Flag, "no authentication; loopback addresses only";
        "wait" Flag, "keep trying while the database cannot be reached";
        "log" Choice(|| words(LOG_FORMATS)), "the format of log lines";
        "realm" Text, "the realm of / and /-/";
        "base_path" Checked(&BASE_PATH), "a prefix of all paths, such as /v1";
        "base_url" Checked(&BASE_URL),
            "the address that clients reach the server at, such as https://example.com";
        "changes_keep" Checked(&CHANGES_KEEP), "how long the change log is kept: 30d, 12h, 90m or forever";
        "cors_origins" Texts("an origin or a list of origins"),
            "origins whose pages may use the server, such as https://app.example";
        "http2_prior_knowledge" Flag, "HTTP/2 without TLS for clients that begin with it";
        "webhook_allow_private" Flag, "webhooks may use http, and lead to private addresses";
        "limits" Table("limits"), "upper bounds";
        "rate_limits" Tables("rate_limit"), "rate limits by role; a role that is not listed is not limited";
    }

    RATE_LIMIT "a rate limit" {
        "requests" Count(LIMIT_RANGE), "requests of one caller within the window";
        "seconds" Count(1..RATE_SECONDS_MAX + 1),
            "length of the fixed window, which starts with the first request";
    }
}

static HSTS: TextCheck = TextCheck {
    expected: "a time such as \"180d\"",
    help: "a number and `d` for days, `h` for hours or `m` for minutes",
    is_valid: |text| ChangeRetention::parse(text).and_then(ChangeRetention::duration).is_some(),
};
static CHANGES_KEEP: TextCheck = TextCheck {
    expected: "a time such as \"30d\"",
    help: "a number and `d` for days, `h` for hours or `m` for minutes, or \"forever\"",
    is_valid: |text| ChangeRetention::parse(text).is_some(),
};
static BASE_PATH: TextCheck = TextCheck {
    expected: "a path such as \"/v1\"",
    help: "it begins with `/`, does not end with it, and has letters, digits and `-._~`",
    is_valid: |text| {
        // RFC 3986 §2.3: unreserved characters are equal in every encoding.
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        let is_segment =
            |name: &str| !matches!(name, "" | "." | "..") && name.bytes().all(is_plain);
        text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_segment))
    },
};
static BASE_URL: TextCheck = TextCheck {
    expected: "an address such as \"https://example.com\"",
    help: "scheme and host, and a port where needed; a path goes into `base_path`",
    is_valid: is_origin_url,
};

/// The keys of every field, whatever its type.
pub const FIELD_COMMON: &[&str] =
    &["type", "required", "nullable", "default", "deprecated", "renamed_from", "fill"];

/// Server paths that can be granted to a role.
pub const SERVER_PATHS: [&str; 4] = ["/-/changes", "/-/metrics", "/-/users", WEBHOOKS_PATH];
/// The only server path that can be granted for more than reading.
pub const WEBHOOKS_PATH: &str = "/-/webhooks";

/// Reserved keys that are not implemented yet, with an alternative. They are refused, so that no author
/// relies on them.
static RESERVED_KEYS: &[(&str, &str)] = &[("search", "there is no full-text search; leave it out")];

/// The alternative, if the key is reserved and not implemented yet.
pub fn reserved_key_help(name: &str) -> Option<&'static str> {
    RESERVED_KEYS.iter().find(|(key, _)| *key == name).map(|(_, help)| *help)
}

impl TableKeys {
    pub fn names(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.keys.iter().map(|key| key.name)
    }
}
