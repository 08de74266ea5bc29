//! Hand-made Digest credentials, by the formulas of RFC 7616: for features that no library has, and for
//! deliberate errors.

use md5::{Digest as _, Md5};

use super::{Person, Server};

pub fn md5(text: impl AsRef<[u8]>) -> String {
    Md5::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value of a parameter in the last Digest challenge of a line, or in an `Authentication-Info`.
pub fn parameter(text: &str, name: &str) -> String {
    let last = text.rsplit("Digest ").next().unwrap();
    let start = last.find(&format!("{name}=\"")).unwrap_or_else(|| panic!("{name} in {last}"));
    last[start + name.len() + 2..].split('"').next().unwrap().to_owned()
}

/// One challenge of a server, with a person who answers it.
#[derive(Debug, Clone)]
pub struct HeldChallenge {
    pub realm: String,
    pub nonce: String,
    opaque: String,
    ha1: String,
    /// The user name as it is sent.
    pub name: String,
}

impl HeldChallenge {
    pub fn new(server: &Server, person: &Person, path: &str) -> Self {
        let answer = server.get(path);
        let lines = answer.all("WWW-Authenticate");
        let line = lines.iter().find(|line| line.starts_with("Digest ")).unwrap();
        let realm = parameter(line, "realm");
        let (nonce, opaque) = (parameter(line, "nonce"), parameter(line, "opaque"));
        Self { realm, nonce, opaque, ha1: String::new(), name: String::new() }.answered_by(person)
    }

    /// The same challenge, answered by another person.
    pub fn answered_by(&self, person: &Person) -> Self {
        let ha1 = md5(format!("{}:{}:{}", person.name, self.realm, person.password));
        Self { ha1, name: person.name.clone(), ..self.clone() }
    }

    /// The `response` of a request, or the `rspauth` of an answer, over its A2 (RFC 7616 §3.4.3).
    pub fn digest_response(&self, nc: u32, qop: &str, a2: &str) -> String {
        let a2 = md5(a2);
        md5(format!("{}:{}:{nc:08x}:abc:{qop}:{a2}", self.ha1, self.nonce))
    }

    pub fn header(&self, (nc, qop): (u32, &str), uri: &str, response: &str) -> String {
        let Self { realm, nonce, opaque, name, .. } = self;
        format!(
            "Digest username=\"{name}\", realm=\"{realm}\", nonce=\"{nonce}\", uri=\"{uri}\", qop={qop}, \
             nc={nc:08x}, cnonce=\"abc\", response=\"{response}\", opaque=\"{opaque}\", algorithm=MD5"
        )
    }

    /// The value of `Authorization` for a GET.
    pub fn get(&self, nc: u32, path: &str) -> String {
        self.header((nc, "auth"), path, &self.digest_response(nc, "auth", &format!("GET:{path}")))
    }
}
