//! Problem details (RFC 9457): errors as the client sees them, and the table of all kinds.
//!
//! A `Problem` has two halves: the part that is safe to show, and the `cause`, which goes only to the log.
//! The table `ALL` feeds the bodies, `/-/problems/:slug` and `docs/reference/problems.md`; a slug is never
//! reused.

use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::value::count_before;

/// One row of the table: the constant parts of a kind of problem.
#[derive(Debug, PartialEq, Eq)]
pub struct ProblemKind {
    pub slug: &'static str,
    pub status: StatusCode,
    pub title: &'static str,
    /// Advice for the person who has to act on it.
    pub help: &'static str,
}

macro_rules! kinds {
    ($($name:ident $slug:literal $status:ident $title:literal $help:literal)*) => {
        $(pub static $name: ProblemKind = ProblemKind { slug: $slug, status: StatusCode::$status, title: $title, help: $help };)*
        /// Every kind of problem, in the order of the checks.
        pub static ALL: &[&ProblemKind] = &[$(&$name),*];
    };
}

kinds! {
    BAD_REQUEST "bad-request" BAD_REQUEST "The request is not well-formed HTTP"
        "The request line, a header or the framing of the body breaks HTTP (RFC 9112), and the connection is closed. Look for hand-made requests, a faulty proxy, or a body that does not match its Content-Length."
    BAD_HOST "bad-host" BAD_REQUEST "The Host header is missing, doubled or not valid"
        "HTTP/1.1 requires exactly one Host header with a host name or address and an optional port (RFC 9112, section 3.2)."
    HTTP_VERSION_NOT_SUPPORTED "http-version-not-supported" HTTP_VERSION_NOT_SUPPORTED "This version of HTTP is not supported"
        "The request line names a version of HTTP other than 1.0 and 1.1. HTTP/2 is offered over TLS (ALPN)."
    TARGET_TOO_LONG "target-too-long" URI_TOO_LONG "The request target is too long"
        "The path and query together are limited (8 KiB by default). Move large values from the query into a body."
    HEADERS_TOO_LARGE "headers-too-large" REQUEST_HEADER_FIELDS_TOO_LARGE "The headers are too large"
        "The headers are limited in size and number (32 KiB and 100 by default). Large cookies are the usual cause."
    UNKNOWN_TRANSFER_CODING "unknown-transfer-coding" NOT_IMPLEMENTED "The transfer coding is not known here"
        "The only transfer coding accepted is a single \"chunked\". Send the body without compression."
    EXPECTATION_FAILED "expectation-failed" EXPECTATION_FAILED "The expectation cannot be met"
        "The only expectation known in HTTP is \"100-continue\"."
    UNKNOWN_METHOD "unknown-method" NOT_IMPLEMENTED "The method is not known here"
        "Methods are case-sensitive: \"get\" is not GET. OPTIONS * lists the methods that are used here."
    NO_SUCH_PATH "no-such-path" NOT_FOUND "Nothing lives at this path"
        "The path names no declared resource. GET / lists the resources. Names are plural in paths, and nested resources are under their parent: /customers/:customer_id/orders."
    METHOD_NOT_ALLOWED "method-not-allowed" METHOD_NOT_ALLOWED "The method is not offered here"
        "The Allow header lists the methods of this path. Collections take GET, HEAD and POST, items take GET, HEAD, PUT, PATCH and DELETE, and every path takes OPTIONS. A nested resource that is read across all parents, at /orders, is written under its parent: /customers/:customer_id/orders."
    CROSS_SITE "cross-site" FORBIDDEN "A page of another site may not do this here"
        "Browsers send stored credentials by themselves, so a request that a page starts must come from this server's own pages or from an origin that the operator declares as cors_origins; links may lead here from anywhere. If the server's address is not that of the Host header, the operator declares it as base_url."
    WRONG_HOST "wrong-host" MISDIRECTED_REQUEST "This server does not answer for that host name"
        "A server without authentication (--open) answers only to localhost, a loopback address, or a name given with --listen, so that web pages cannot reach it through a DNS name of theirs."
    CREDENTIALS_NEEDED "credentials-needed" UNAUTHORIZED "Show who you are"
        "This is not open to everyone. Send the name and password of a user, by one of the schemes that WWW-Authenticate lists."
    BAD_CREDENTIALS "bad-credentials" BAD_REQUEST "The credentials are not well-formed"
        "There is more than one Authorization header, a parameter of Digest is missing, repeated or malformed, or its uri is not the target of the request: some clients leave the query out (RFC 7616, section 3.4.6)."
    CREDENTIALS_WRONG "credentials-wrong" UNAUTHORIZED "The credentials are not right"
        "The name, the password or the Digest response is wrong, the user is disabled, or the scheme is not offered here. WWW-Authenticate lists what is. A user whose password was set before the realm offered Digest has to log in once with Basic, or needs a new password."
    STALE_NONCE "stale-nonce" UNAUTHORIZED "The nonce is too old, or was used with this count before"
        "The credentials are right, but the nonce is older than five minutes, is from before a restart of the server or a restore of the database, or was used with the same nc before (replay protection). Answer the new challenge; common clients do so by themselves."
    LOGGED_OUT "logged-out" UNAUTHORIZED "You are logged out"
        "Your browser has forgotten the name and password for this server, and so has the server. To log in again, open any other page of it. If you were asked for a password here, you were not logged in: cancel."
    TOO_MANY_LOGINS "too-many-logins" TOO_MANY_REQUESTS "Too many failed logins, or too many logins at once"
        "There were too many failed logins for this name from this address (30 a minute by default), or too many logins are waiting to be checked. Wait for the time in Retry-After. Clients that are logged in already are not affected."
    TOO_MANY_REQUESTS "too-many-requests" TOO_MANY_REQUESTS "Too many requests"
        "The number of requests is limited for your role: RateLimit-Policy has the number (q) and the window in seconds (w), RateLimit the number that is left (r) and the seconds until it is reset (t). Wait for the time in Retry-After. Nothing was changed."
    PASSWORD_IN_CLEAR "password-in-clear" FORBIDDEN "A password may not be sent this way"
        "This needs a password, which others could read on the network. Use https. Behind a proxy, the operator lets it set X-Forwarded-Proto or Forwarded and names it with --behind-proxy, or offers Digest too."
    FORBIDDEN "forbidden" FORBIDDEN "Your roles do not allow this"
        "None of your roles allows this. GET / lists what you may use."
    NOT_ACCEPTABLE "not-acceptable" NOT_ACCEPTABLE "None of the types you accept can be sent"
        "The Accept header lists no type that this path can be sent as. Use application/json, or leave the header out."
    BAD_IDEMPOTENCY_KEY "bad-idempotency-key" BAD_REQUEST "The Idempotency-Key cannot be used"
        "Send one Idempotency-Key header with 1 to 255 characters: a text in double quotes, with \\ before a quote or a backslash, or a bare word such as a UUID. A server that was started with --open and has no key file does not accept the header where passwords are sent."
    UNSUPPORTED_CODING "unsupported-coding" UNSUPPORTED_MEDIA_TYPE "The coding of the body cannot be read"
        "Send the body without Content-Encoding. The Accept-Encoding header of the response lists the codings that are accepted here."
    UNSUPPORTED_TYPE "unsupported-type" UNSUPPORTED_MEDIA_TYPE "The type of the body cannot be read"
        "Send the body as application/json; new items also as application/x-ndjson, or as text/csv in UTF-8 with a header line. The Accept header of the response lists the types that are accepted here."
    PARTIAL_PUT "partial-put" BAD_REQUEST "A part cannot be put in place of the whole"
        "Content-Range says that the body is a part of the item (RFC 9110, section 14.5), and PUT replaces the whole. Send the whole item without that header, or use PATCH. Nothing was changed."
    TOO_LARGE "too-large" PAYLOAD_TOO_LARGE "The body is too large"
        "By default one item may have 1 MiB, and a list of new items 8 MiB and 1,000 items. A request may refer to 10,000 other items. Send several smaller requests."
    TOO_SLOW "too-slow" REQUEST_TIMEOUT "The request did not arrive in time"
        "By default the headers of a request must arrive within 10 seconds and its body within 30. Nothing was changed; send the request again."
    BAD_JSON "bad-json" BAD_REQUEST "The body is not valid JSON"
        "The body must be one JSON value in UTF-8 (RFC 8259): no byte-order mark, no duplicate keys, no text after it, at most 32 levels deep. The detail says where reading stopped."
    BAD_LINES "bad-lines" BAD_REQUEST "A line of the body cannot be read"
        "NDJSON is one object a line, without a wrapper key. CSV (RFC 4180) is in UTF-8, begins with a line of column names, each once, and has as many cells in every line; cells with a comma, a quote or a line break are quoted, and quotes in them doubled. Nothing was created; the detail has the number of the line."
    BAD_WRAPPER "bad-wrapper" BAD_REQUEST "The body does not have the expected wrapper key"
        "A body is an object with one key, the singular or plural name of the resource: {\"customer\": {…}}. A list of new items goes under the plural: {\"customers\": [{…}, {…}]}."
    BAD_PATCH "bad-patch" BAD_REQUEST "The body is not a JSON Patch"
        "A JSON Patch (RFC 6902) is a list of at most 1,000 operations, each with op, path and, if needed, value or from. The paths begin with the wrapper: /customer/name. The detail says what was expected."
    BAD_QUERY "bad-query" BAD_REQUEST "A query parameter cannot be used"
        "Unknown or repeated parameters, and values that do not fit, are refused. The detail names the parameter and, if there is one, the nearest known name."
    BAD_CURSOR "bad-cursor" BAD_REQUEST "The cursor does not belong to this list"
        "A cursor continues one list. Take it from page.next or from the Link header, unchanged, and keep filters and sort as they were, or start again without a cursor."
    POSITION_GONE "position-gone" GONE "The change log no longer has this position"
        "Changes after this position were deleted, because the change log is kept for a limited time (changes_keep). Changes-Oldest has the number of the oldest change that is kept. Read the items again, and follow the changes from there; since=0 begins with the oldest change."
    POSITION_NOT_REACHED "position-not-reached" BAD_REQUEST "The change log has not reached this position"
        "No change has a number as large as this position. Take positions from Changes-Position or page.position, of the same database: one that was restored from a backup may be behind."
    TOO_MANY_STREAMS "too-many-streams" TOO_MANY_REQUESTS "Too many concurrent streaming responses"
        "A caller may have a limited number of exports and event streams in progress (20 by default). Read one of them to its end, or close it, and send the request again."
    NOT_OBSERVABLE "not-observable" FORBIDDEN "The change log does not tell which events you may see"
        "The server itself changes these items (the deliveries of a webhook), and does not log it; or your roles show only some of these items, and the change log does not have the values that decide which (changes = \"ids\" in the model), or those of an item above them, so that no events can be sent to you. Read the list instead."
    IDEMPOTENCY_KEY_USED "idempotency-key-used" UNPROCESSABLE_ENTITY "The Idempotency-Key belongs to another request"
        "You have sent another request to this path with the same key, and its response is still kept. A retry must have the same body, query, types and conditions. Nothing was changed; use a new key for a new request."
    REQUEST_UNDER_WAY "request-under-way" CONFLICT "The same request is still in progress"
        "A request with this Idempotency-Key is still in progress. Wait for the time in Retry-After, then send it again with the same key: you get the response of the first one."
    NOT_FOUND "not-found" NOT_FOUND "There is no such item"
        "The item, or an item that its path runs through, does not exist, or your roles do not show it. A nested item is found only under its own parent."
    NO_HISTORY "no-history" NOT_FOUND "There is no history of this item"
        "The model declares changes = \"ids\" for this resource, or declared it at that time: the change log then has no values, so that only the item as it is now can be read."
    NO_SUCH_VERSION "no-such-version" NOT_FOUND "There is no such version of the item"
        "The item has no version with this number, or did not exist at this time; the detail says which. The path without version and as_of is the item as it is now."
    VERSION_GONE "version-gone" GONE "The change log no longer has this version"
        "The item had this version, or existed at this time, but the change log is kept for a limited time (changes_keep). The detail has the oldest version that can still be read."
    PRECONDITION_REQUIRED "precondition-required" PRECONDITION_REQUIRED "The request must say which version it changes"
        "This resource requires If-Match for changes, so that no concurrent change is lost. Read the item, and send its ETag in If-Match."
    PRECONDITION_FAILED "precondition-failed" PRECONDITION_FAILED "The item is not as the request expects it"
        "A condition of the request (If-Match, If-None-Match, If-Unmodified-Since) does not hold, and nothing was changed. Somebody else may have changed the item: read it, make your change again, and send it with the current ETag, which is also in this response. A tag has quotes: If-Match: \"3\"."
    PATCH_FAILED "patch-failed" CONFLICT "The patch does not fit the item"
        "An operation names a path that the item does not have, or a test failed. Nothing was changed: a patch is applied as a whole or not at all. Read the item, and make a new patch."
    INVALID_FIELDS "invalid-fields" UNPROCESSABLE_ENTITY "Some fields are not valid"
        "Each entry of errors points to one field with a JSON pointer and says what was expected. Nothing was changed. All faults are listed at once, at most 100."
    READ_ONLY_FIELD "read-only-field" FORBIDDEN "Your roles do not let you change a field"
        "Each entry of errors points to a field that you may not change, or not in this item, as its detail says. Send the stored value (or, for a new item, the default), or leave the field out. Nothing was changed."
    OUTSIDE_GRANT "outside-grant" FORBIDDEN "Your roles do not allow an item with these values"
        "Your roles are limited to some items, and the changed item would not be one of them, or would clash with an item that you may not see. Errors, if any, point to the fields that decide it. Nothing was changed."
    TRANSITION_NOT_ALLOWED "transition-not-allowed" CONFLICT "The state cannot be reached from where the item is"
        "The model declares which state may follow which. state is the current one, allowed lists those that may follow and that your roles let you choose. A new item starts in its initial state."
    TRANSITION_NOT_GRANTED "transition-not-granted" FORBIDDEN "Your roles do not let you choose this state"
        "The model lets only some roles choose this state from where the item is. state is the current one, allowed lists those that you may choose. Nothing was changed."
    TAKEN "taken" CONFLICT "A value that must be unique is already in use"
        "Another item has a value, or a combination of values, that must be unique. The errors point to the fields of every such rule; in a list of new items, to those of the first item that breaks one. Fields that you may not see are not named. Nothing was changed."
    REFERENCED "referenced" CONFLICT "Other items still refer to this one"
        "The model does not allow deleting this item while children or references to it exist. Delete those first, or declare on_delete = \"cascade\"."
    TOO_MANY_CHILDREN "too-many-children" CONFLICT "Too many items would be deleted at once"
        "Deleting this item would delete more others than one request may (10,000 by default). Delete some of them first."
    LAST_ADMIN "last-admin" CONFLICT "No user with the role admin would be left"
        "This is the only enabled user with the role admin. Give the role to somebody else first, or use nouns user with --force. Nothing was changed."
    TOO_MANY_WEBHOOKS "too-many-webhooks" CONFLICT "There are as many webhooks as there may be"
        "The number of webhooks is limited (100 by default). Delete one that is not needed any more, or let one webhook send more events. Nothing was changed."
    NO_SERVER_KEY "no-server-key" CONFLICT "The server has no secret key to protect secrets with"
        "The secrets of webhooks are stored encrypted with the key of the server. A server that was only ever started with --open has none: start it once without --open, which makes one. Nothing was changed."
    INTERNAL "internal" INTERNAL_SERVER_ERROR "Something went wrong here"
        "This is a fault of the server, not of the request. The operator finds it in the log under the request_id. It is not known whether a change was made: check before you send it again."
    BUSY "busy" SERVICE_UNAVAILABLE "The server is overloaded"
        "Nothing was changed. Wait for the time in Retry-After, then send the request again."
    TIMED_OUT "timed-out" SERVICE_UNAVAILABLE "The request took too long"
        "Nothing was changed. Request less at a time, or try again later. For a list, the detail names the filters and sort fields that no index supports."
    UNAVAILABLE "unavailable" SERVICE_UNAVAILABLE "The data cannot be reached or written now"
        "Nothing was changed. The operator finds the reason in the log under the request_id; a full disk is the usual one."
    OUTCOME_UNKNOWN "outcome-unknown" SERVICE_UNAVAILABLE "It is not known whether the change was made"
        "The storage failed or the database did not answer during the commit. Check whether the change was made before you send the request again; with SQLite, after the restart that writes then need. A request with an Idempotency-Key can simply be sent again: it takes effect once, and its response says what happened."
}

/// An error response to the client.
#[derive(Debug)]
pub struct Problem(Box<ProblemParts>);

#[derive(Debug)]
pub struct ProblemParts {
    pub kind: &'static ProblemKind,
    pub detail: Option<String>,
    pub faults: Vec<FieldFault>,
    /// Extension members beyond those of RFC 9457, such as `state` and `allowed`.
    pub members: Vec<(&'static str, ExtensionValue)>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The cause, for the log only.
    pub cause: Option<String>,
}

/// The value of an extension member.
#[derive(Debug, PartialEq, Eq)]
pub enum ExtensionValue {
    Text(String),
    Texts(Vec<String>),
}

impl Problem {
    pub fn new(kind: &'static ProblemKind) -> Self {
        let mut headers = Vec::new();
        if kind.status == StatusCode::SERVICE_UNAVAILABLE {
            // Where the outcome is unknown, an operator may have to repair the disk or the connection first.
            let seconds = if kind == &OUTCOME_UNKNOWN { "60" } else { "1" };
            headers.push((header::RETRY_AFTER, HeaderValue::from_static(seconds)));
        }
        Self(Box::new(ProblemParts {
            kind,
            detail: None,
            faults: Vec::new(),
            members: Vec::new(),
            headers,
            cause: None,
        }))
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    pub fn cause(mut self, cause: impl Into<String>) -> Self {
        self.0.cause = Some(cause.into());
        self
    }

    pub fn member(mut self, name: &'static str, value: ExtensionValue) -> Self {
        self.0.members.push((name, value));
        self
    }

    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// The faults of `invalid-fields`, or of another kind whose errors point into the body. At most 100 are
    /// sent. An empty list changes nothing.
    pub fn faults(mut self, mut faults: Vec<FieldFault>) -> Self {
        if faults.is_empty() {
            return self;
        }
        self.0.detail = Some(match faults.len() {
            1 => "1 field needs attention".to_owned(),
            count @ 0..FAULTS_MAX => format!("{count} fields need attention"),
            count => {
                format!("at least {count} fields need attention; the first {FAULTS_MAX} are listed")
            }
        });
        faults.truncate(FAULTS_MAX);
        self.0.faults = faults;
        self
    }

    pub fn kind(&self) -> &'static ProblemKind {
        self.0.kind
    }

    pub fn parts(&self) -> &ProblemParts {
        &self.0
    }
}

/// Finds a kind by its slug.
pub fn find_by_slug(slug: &str) -> Option<&'static ProblemKind> {
    ALL.iter().copied().find(|kind| kind.slug == slug)
}

macro_rules! fault_codes {
    ($($name:ident $code:literal $meaning:literal;)*) => {
        /// The kind of a fault in one field. Codes are part of the API: clients branch on them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum FaultCode {
            $(#[doc = $meaning] $name,)*
        }

        impl FaultCode {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// The meaning of the code, for the documentation.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }
        }
    };
}

fault_codes! {
    Required "required" "the field has no default and must be sent";
    Null "null" "the field is not nullable";
    Type "type" "another JSON type is expected";
    Format "format" "the text does not have the form of its type";
    Length "length" "the text is too short or too long";
    Range "range" "the value is too small, too large or too precise";
    Pattern "pattern" "the text does not match the declared pattern";
    OneOf "one_of" "the value is not one of the declared ones";
    Items "items" "the list has too few or too many items, or one twice";
    Unknown "unknown" "the resource has no such field";
    ReadOnly "read_only" "the server sets this field";
    Mismatch "mismatch" "the value contradicts the path";
    Reference "reference" "the item referred to does not exist";
    Taken "taken" "another item has this value";
    Check "check" "the values together break a rule of the model";
    Overflow "overflow" "the computed value is out of range";
    Outside "outside" "your roles do not allow items with this value";
}

/// One fault, with the JSON pointer (RFC 6901) to its position in the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldFault {
    pub pointer: String,
    pub code: FaultCode,
    pub detail: String,
}

impl FieldFault {
    /// The fault of a field that the caller may not know: its type and its rules are hidden too.
    pub fn of_hidden_field(root: &str) -> Self {
        let code = FaultCode::Check;
        Self { pointer: root.to_owned(), code, detail: code.meaning().to_owned() }
    }
}

/// Collects faults while walking a body. Keeps the first 100: a hostile body must not cause a large response.
#[derive(Debug)]
pub struct FaultCollector {
    at: String,
    list: Vec<FieldFault>,
}

pub const FAULTS_MAX: usize = 100;

impl FaultCollector {
    /// `root` is the JSON pointer of the object to check.
    pub fn at_root(root: String) -> Self {
        Self { at: root, list: Vec::new() }
    }

    /// Runs `work` one level deeper, at a member or an index: its faults have pointers that end there.
    pub fn within<T>(&mut self, segment: &str, work: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.at.len();
        self.push_segment(segment);
        let done = work(self);
        self.at.truncate(length);
        done
    }

    fn push_segment(&mut self, segment: &str) {
        self.at.push('/');
        // RFC 6901 §3: `~` and `/` are escaped.
        let plain = count_before(segment.as_bytes(), |b| (b == b'~') | (b == b'/'));
        let (plain, rest) = segment.split_at(plain);
        self.at.push_str(plain);
        for c in rest.chars() {
            match c {
                '~' => self.at.push_str("~0"),
                '/' => self.at.push_str("~1"),
                c => self.at.push(c),
            }
        }
    }

    /// Adds a fault at the current position.
    pub fn add(&mut self, code: FaultCode, detail: impl Into<String>) {
        if self.list.len() < FAULTS_MAX {
            self.list.push(FieldFault { pointer: self.at.clone(), code, detail: detail.into() });
        }
    }

    /// Adds a fault at a member of the current position.
    pub fn add_at(&mut self, segment: &str, code: FaultCode, detail: impl Into<String>) {
        self.within(segment, |faults| faults.add(code, detail));
    }

    /// Whether further faults would be dropped, so that computing a suggestion for them is useless.
    pub fn is_full(&self) -> bool {
        self.list.len() >= FAULTS_MAX
    }

    pub fn into_list(self) -> Vec<FieldFault> {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_kinds_have_unique_slugs_and_error_statuses() {
        for (index, kind) in ALL.iter().enumerate() {
            assert!(
                kind.status.is_client_error() || kind.status.is_server_error(),
                "{}",
                kind.slug
            );
            assert!(ALL[index + 1..].iter().all(|other| other.slug != kind.slug), "{}", kind.slug);
            assert!(
                kind.slug.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
                "{}",
                kind.slug
            );
            assert_eq!(find_by_slug(kind.slug), Some(*kind));
        }
    }

    #[test]
    fn fault_pointer_is_escaped_as_in_rfc_6901() {
        let mut faults = FaultCollector::at_root("/customer".to_owned());
        faults.add_at("a/b~c", FaultCode::Unknown, "no such field");
        assert_eq!(faults.into_list()[0].pointer, "/customer/a~1b~0c");
    }
}
