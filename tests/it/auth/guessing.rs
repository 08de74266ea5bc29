//! What somebody can find out, or get around, who has an account or none.

use crate::harness::{Backend, Held, Person, Server, Setup, md5};

fn status(server: &Server, authorization: &str) -> u16 {
    server.request("GET /customers", &[("Authorization", authorization)], "").status
}

on_every_backend! {
    /// Whoever is in with a nonce may not use it to guess the password of somebody else.
    fn a_proved_nonce_is_proved_for_one(backend: Backend) {
        let server = Setup::new(backend).closed().start();
        let mallory = Person::new("mallory", "knows this one");
        let bob = Person::new("bob", "the right password");
        server.add_user(&mallory, &["clerk"]);
        server.add_user(&bob, &["clerk"]);
        let held = Held::new(&server, &bob, "/customers");
        assert_eq!(status(&server, &held.by(&mallory).get(1, "/customers")), 200);
        let guess = Person::new("bob", "a guess");
        let statuses: Vec<u16> =
            (2..34).map(|nc| status(&server, &held.by(&guess).get(nc, "/customers"))).collect();
        assert_eq!(statuses[..30], [401; 30]);
        assert_eq!(statuses[30..], [429; 2]);
        assert_eq!(status(&server, &held.by(&bob).get(40, "/customers")), 429, "shut for the right one too");
        assert_eq!(status(&server, &held.by(&mallory).get(41, "/customers")), 200, "who is in stays in");
    }

    /// Hashes of names are counted one by one, whether or not somebody is behind them.
    fn hashed_names_tell_nothing(backend: Backend) {
        let server = Setup::new(backend).closed().start();
        let bob = Person::new("bob", "the right password");
        server.add_user(&bob, &["clerk"]);
        let held = Held::new(&server, &bob, "/customers");
        let mut count = 0;
        let mut guess = |name: &str| {
            count += 1;
            let mut guess = held.by(&Person::new(name, "a guess"));
            guess.name = md5(format!("{name}:store"));
            status(&server, &format!("{}, userhash=true", guess.get(count, "/customers")))
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
