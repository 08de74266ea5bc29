//! Users who log in, and their responses to challenges.
//!
//! A third-party library computes the Digest responses, so that the server is tested against another
//! reading of the standard. Tests write wrong credentials by themselves.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_auth::{DigestClient, PasswordParams};

use super::{Answer, Server};

/// A user with a name and a password.
#[derive(Debug, Clone)]
pub struct Person {
    pub name: String,
    pub password: String,
}

impl Person {
    pub fn new(name: &str, password: &str) -> Self {
        Self { name: name.to_owned(), password: password.to_owned() }
    }

    /// The value of `Authorization` for Basic.
    pub fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.name, self.password)))
    }

    /// A Digest session from the first challenge of a response with this algorithm.
    pub fn digest(&self, challenged: &Answer, algorithm: &str) -> DigestSession {
        let lines = challenged.all("WWW-Authenticate");
        let all = lines.iter().flat_map(|line| {
            http_auth::parse_challenges(line).unwrap_or_else(|error| panic!("{line}: {error:?}"))
        });
        let is_wanted = |challenge: &http_auth::ChallengeRef<'_>| {
            let named = challenge.params.iter().find(|(name, _)| *name == "algorithm");
            let named = named.map_or("MD5".to_owned(), |(_, value)| value.to_unescaped());
            challenge.scheme.eq_ignore_ascii_case("Digest") && named == algorithm
        };
        let mut all = all;
        let challenge = all.find(is_wanted).unwrap_or_else(|| panic!("{challenged:?}"));
        DigestSession { person: self.clone(), client: DigestClient::try_from(&challenge).unwrap() }
    }

    /// A Digest session with a server; requests the challenge for `path` first.
    pub fn log_in(&self, server: &Server, path: &str) -> DigestSession {
        self.digest(&server.get(path), "MD5")
    }
}

/// A nonce in use: each request increments its count.
#[derive(Debug)]
pub struct DigestSession {
    person: Person,
    pub client: DigestClient,
}

impl DigestSession {
    /// The value of `Authorization` for a request line such as `GET /customers`.
    pub fn answer(&mut self, line: &str, body: &[u8]) -> String {
        let (method, uri) = line.split_once(' ').unwrap();
        let (username, password) = (self.person.name.as_str(), self.person.password.as_str());
        let asked = PasswordParams { username, password, uri, method, body: Some(body) };
        self.client.respond(&asked).unwrap()
    }

    /// Sends a request with this session's next credentials.
    pub fn request(&mut self, server: &Server, line: &str, body: &str) -> Answer {
        let answer = self.answer(line, body.as_bytes());
        server.request(line, &[("Authorization", &answer)], body)
    }
}
