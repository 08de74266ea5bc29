//! What a row of the table says: a client with one of its schemes, and what it does by itself.
//!
//! The one surprising thing: a row is held to the letter only with the version it was seen with. With
//! another one a client may be better than its row, and never worse, since the newest version of each is
//! not on every machine.

/// A client with one of its schemes.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    /// One run of it takes all its rows.
    pub program: &'static str,
    /// In `tests/clients/`.
    pub file: &'static str,
    /// As the file calls it.
    pub scheme: &'static str,
    /// What the version begins with.
    pub seen: &'static str,
    pub offered: Offered,
    pub is_tls_only: bool,
    pub asks: Asks,
    /// How many 401 a request with a wrong password gets, and what the client says in the end.
    pub refusals: usize,
    pub told: u16,
    /// Of the four people of `PEOPLE`.
    pub letters: [Fate; 4],
    /// The acts that it cannot do, and what becomes of them.
    pub fails: &'static [(Act, u16)],
}

/// What the realm offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// Digest, then Basic: what is offered unless the model says otherwise.
    Both,
    Digest,
    Basic,
}

/// When a client sends a request without credentials, to be asked for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// It sends the password along from the start.
    Never,
    /// It goes on with what it answered the first time.
    Once,
    EachTime,
}

/// What becomes of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Works,
    /// The server says 401.
    Refused,
    /// The client cannot send it.
    Unsent,
}

/// What is done in the life of an item, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    List,
    Create,
    /// A create with a query, which no create has: whoever is not let in does not get that far.
    Query,
    Read,
    Replace,
    Children,
    Delete,
    Gone,
}

/// A password and a name of Latin-1 and beyond it: name, password.
pub const PEOPLE: [(&str, &str); 4] = [
    ("ann", "größer als groß"),
    ("Jürgen", "größer als groß"),
    ("bob", "pässwörd ☂ ひらがな"),
    ("平田", "pässwörd ☂ ひらがな"),
];

impl Kind {
    pub const fn new(name: &'static str, file: &'static str, scheme: &'static str) -> Self {
        Self {
            name,
            program: "",
            file,
            scheme,
            seen: "",
            offered: Offered::Both,
            is_tls_only: false,
            asks: Asks::Never,
            refusals: 1,
            told: 401,
            letters: [Fate::Works; 4],
            fails: &[],
        }
    }

    pub const fn of(mut self, program: &'static str, seen: &'static str) -> Self {
        (self.program, self.seen) = (program, seen);
        self
    }

    /// How often it asks, and how many 401 a wrong password gets.
    pub const fn asks(mut self, asks: Asks, refusals: usize) -> Self {
        (self.asks, self.refusals) = (asks, refusals);
        self
    }

    pub const fn told(mut self, told: u16) -> Self {
        self.told = told;
        self
    }

    pub const fn where_only(mut self, offered: Offered) -> Self {
        self.offered = offered;
        self
    }

    pub const fn tls_only(mut self) -> Self {
        self.is_tls_only = true;
        self
    }

    pub const fn letters(mut self, letters: [Fate; 4]) -> Self {
        self.letters = letters;
        self
    }

    pub const fn fails(mut self, fails: &'static [(Act, u16)]) -> Self {
        self.fails = fails;
        self
    }

    pub fn is_digest(&self) -> bool {
        self.scheme.contains("digest") || self.scheme.contains("anyauth")
    }

    /// Whether it can do all there is, and so has to get in at the first try.
    pub fn is_whole(&self) -> bool {
        self.fails.is_empty()
    }
}

impl Act {
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

    /// What a client that can do it is told.
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
