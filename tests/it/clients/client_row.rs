//! A row of the client table: a client with one of its schemes, and its known behaviour.
//!
//! A row is checked exactly only with the version for which it was written. With another version a
//! client may be better than its row, and never worse, since the newest version of each is not on
//! every machine.

/// A client with one of its schemes.
#[derive(Debug, Clone, Copy)]
pub struct ClientRow {
    pub name: &'static str,
    /// The name of its program: one run of it tests all its rows.
    pub program: &'static str,
    /// In `tests/clients/`.
    pub file: &'static str,
    /// The scheme's name in the client's file.
    pub scheme: &'static str,
    /// The prefix of the version for which the row was written.
    pub tested_version: &'static str,
    pub offered: OfferedSchemes,
    pub is_tls_only: bool,
    pub challenge_policy: ChallengePolicy,
    /// How many 401 a request with a wrong password gets, and which status the client reports in the
    /// end.
    pub refusals: usize,
    pub reported_status: u16,
    /// The results for the four people of `PEOPLE`.
    pub login_results: [LoginResult; 4],
    /// The actions that it cannot do, and the status that they get.
    pub failing_actions: &'static [(LifecycleAction, u16)],
}

/// The schemes that the realm offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferedSchemes {
    /// Digest, then Basic: the default.
    Both,
    Digest,
    Basic,
}

/// When a client sends a request without credentials, to be challenged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChallengePolicy {
    /// It sends the password from the start (preemptive authentication).
    Never,
    /// It reuses its first challenge.
    Once,
    EachTime,
}

/// The result of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginResult {
    Works,
    /// The server answers with 401.
    Refused,
    /// The client cannot send it.
    NotSent,
}

/// The actions in the lifecycle of an item, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifecycleAction {
    List,
    Create,
    /// A create with a query, which a create does not allow: a client that is not logged in gets 401
    /// instead.
    Query,
    Read,
    Replace,
    Children,
    Delete,
    Gone,
}

/// Names and passwords in ASCII, in Latin-1 and beyond.
pub const PEOPLE: [(&str, &str); 4] = [
    ("ann", "größer als groß"),
    ("Jürgen", "größer als groß"),
    ("bob", "pässwörd ☂ ひらがな"),
    ("平田", "pässwörd ☂ ひらがな"),
];

impl ClientRow {
    pub const fn new(name: &'static str, file: &'static str, scheme: &'static str) -> Self {
        Self {
            name,
            program: "",
            file,
            scheme,
            tested_version: "",
            offered: OfferedSchemes::Both,
            is_tls_only: false,
            challenge_policy: ChallengePolicy::Never,
            refusals: 1,
            reported_status: 401,
            login_results: [LoginResult::Works; 4],
            failing_actions: &[],
        }
    }

    pub const fn program(mut self, program: &'static str, seen: &'static str) -> Self {
        (self.program, self.tested_version) = (program, seen);
        self
    }

    /// How often it asks for a challenge, and how many 401 a wrong password gets.
    pub const fn challenges(mut self, asks: ChallengePolicy, refusals: usize) -> Self {
        (self.challenge_policy, self.refusals) = (asks, refusals);
        self
    }

    pub const fn reported_status(mut self, told: u16) -> Self {
        self.reported_status = told;
        self
    }

    pub const fn only_with(mut self, offered: OfferedSchemes) -> Self {
        self.offered = offered;
        self
    }

    pub const fn tls_only(mut self) -> Self {
        self.is_tls_only = true;
        self
    }

    pub const fn login_results(mut self, letters: [LoginResult; 4]) -> Self {
        self.login_results = letters;
        self
    }

    pub const fn failing_actions(mut self, fails: &'static [(LifecycleAction, u16)]) -> Self {
        self.failing_actions = fails;
        self
    }

    pub fn is_digest(&self) -> bool {
        self.scheme.contains("digest") || self.scheme.contains("anyauth")
    }

    /// Whether it supports everything, and so has to log in at the first try.
    pub fn supports_everything(&self) -> bool {
        self.failing_actions.is_empty()
    }
}

impl LifecycleAction {
    pub const ALL: [Self; 8] = [
        Self::List,
        Self::Create,
        Self::Query,
        Self::Read,
        Self::Replace,
        Self::Children,
        Self::Delete,
        Self::Gone,
    ];

    /// The status that a client gets if it supports the action.
    pub fn status(self) -> u16 {
        match self {
            Self::List | Self::Read | Self::Replace | Self::Children => 200,
            Self::Create => 201,
            Self::Query => 400,
            Self::Delete => 204,
            Self::Gone => 404,
        }
    }
}
