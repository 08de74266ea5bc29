//! What somebody can find out, or get around, who has an account or none.

use md5::{Digest as _, Md5};

use crate::harness::{Backend, Person, Server, Setup};

fn md5(text: &str) -> String {
    Md5::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The parameters of a challenge for MD5.
struct Challenge {
    nonce: String,
    opaque: String,
}

impl Challenge {
    fn new(server: &Server) -> Self {
        let answer = server.get("/customers");
        let line = answer.all("WWW-Authenticate")[0].to_owned();
        let part = |name: &str| {
            let start = line.rfind(&format!("{name}=\"")).unwrap() + name.len() + 2;
            line[start..].split('"').next().unwrap().to_owned()
        };
        Self { nonce: part("nonce"), opaque: part("opaque") }
    }

    /// The status of a GET by somebody, whose name is sent as `shown`.
    fn status(
        &self,
        server: &Server,
        person: &Person,
        (shown, more): (&str, &str),
        nc: u32,
    ) -> u16 {
        let Self { nonce, opaque } = self;
        let ha1 = md5(&format!("{}:store:{}", person.name, person.password));
        let response = md5(&format!("{ha1}:{nonce}:{nc:08x}:c:auth:{}", md5("GET:/customers")));
        let header = format!(
            "Digest username=\"{shown}\", realm=\"store\", nonce=\"{nonce}\", uri=\"/customers\", qop=auth, \
             nc={nc:08x}, cnonce=\"c\", response=\"{response}\", opaque=\"{opaque}\"{more}"
        );
        server.request("GET /customers", &[("Authorization", &header)], "").status
    }
}

on_every_backend! {
    /// Whoever is in with a nonce may not use it to guess the password of somebody else.
    fn a_proved_nonce_is_proved_for_one(backend: Backend) {
        let server = Setup::new(backend).closed().start();
        let mallory = Person::new("mallory", "knows this one");
        let bob = Person::new("bob", "the right password");
        server.add_user(&mallory, &["clerk"]);
        server.add_user(&bob, &["clerk"]);
        let held = Challenge::new(&server);
        assert_eq!(held.status(&server, &mallory, ("mallory", ""), 1), 200);
        let guess = Person::new("bob", "a guess");
        let statuses: Vec<u16> =
            (2..34).map(|nc| held.status(&server, &guess, ("bob", ""), nc)).collect();
        assert_eq!(statuses[..30], [401; 30]);
        assert_eq!(statuses[30..], [429; 2]);
        assert_eq!(held.status(&server, &bob, ("bob", ""), 40), 429, "shut for the right one too");
        assert_eq!(held.status(&server, &mallory, ("mallory", ""), 41), 200, "who is in stays in");
    }

    /// Hashes of names are counted one by one, whether or not somebody is behind them.
    fn hashed_names_tell_nothing(backend: Backend) {
        let server = Setup::new(backend).closed().start();
        let bob = Person::new("bob", "the right password");
        server.add_user(&bob, &["clerk"]);
        let held = Challenge::new(&server);
        let mut count = 0;
        let mut guess = |name: &str| {
            count += 1;
            let person = Person::new(name, "a guess");
            held.status(&server, &person, (&md5(&format!("{name}:store")), ", userhash=true"), count)
        };
        for _ in 0..30 {
            assert_eq!(guess("nobody"), 401);
        }
        assert_eq!(guess("nobody"), 429);
        assert_eq!([guess("bob"), guess("nobody else")], [401; 2], "others are not shut");
        for _ in 0..29 {
            assert_eq!(guess("bob"), 401);
        }
        assert_eq!(guess("bob"), 429, "and one that exists is shut like one that does not");
    }
}
