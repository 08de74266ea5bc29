//! Password guessing and user enumeration: limits on failed logins, and responses that reveal no
//! account.

use crate::harness::{Backend, Client, HeldChallenge, Person, Server, Setup, md5};

fn status(server: &Server, authorization: &str) -> u16 {
    server.request("GET /customers", &[("Authorization", authorization)], "").status
}

/// Sends requests with these credentials at the same moment, each on a connection of its own, in this
/// order.
fn send_simultaneously(server: &Server, authorizations: &[String]) -> Vec<u16> {
    // All of them arrive while the process is stopped (SIGSTOP).
    server.pause();
    let mut clients: Vec<Client> = authorizations.iter().map(|_| server.client()).collect();
    for (client, authorization) in clients.iter_mut().zip(authorizations) {
        let head = format!(
            "GET /customers HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n\r\n"
        );
        client.write(head.as_bytes());
    }
    server.resume();
    clients.iter_mut().map(|client| client.read_answer(false).status).collect()
}

/// One worker thread, so that requests are handled in the order of their arrival.
fn start(backend: Backend) -> (Server, Person) {
    let model = format!("{STORE}\n[server.limits]\nfailed_logins_max = {FAILED_LOGINS_MAX}\n");
    let server = Setup::new(backend)
        .model(&model)
        .run_under(&["taskset", "-c", "0"])
        .with_authentication()
        .start();
    let bob = Person::new("bob", "the right password");
    server.add_user(&bob, &["clerk"]);
    (server, bob)
}

const STORE: &str = include_str!("../../../examples/store/nouns.toml");
const FAILED_LOGINS_MAX: usize = 10;

/// Sends guesses, the last of which is the right password. PostgreSQL determines the order in which users are read,
/// so the right one may come before the limit there; then another server gets another attempt.
fn check_limited(backend: Backend, guesses: impl Fn(&Server, &Person) -> Vec<String>) {
    let attempts = if backend == Backend::Postgres { 3 } else { 1 };
    let is_limited = (0..attempts).any(|_| {
        let (server, bob) = start(backend);
        let mut statuses = send_simultaneously(&server, &guesses(&server, &bob));
        let last = statuses.pop().unwrap();
        expect_wrong_limited(&statuses);
        last == 429
    });
    assert!(is_limited, "the right password was compared after the limit");
}

/// Only as many wrong passwords as the limit were compared.
fn expect_wrong_limited(statuses: &[u16]) {
    let wrong = statuses.iter().filter(|status| **status == 401).count();
    assert_eq!(wrong, FAILED_LOGINS_MAX, "{statuses:?}");
    assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
}

on_every_backend! {
    /// The lockout counts when the users have been read, in an order that the database determines; the first
    /// correct passwords may come before the limit.
    fn login_throttle_limits_concurrent_digest_guesses(backend: Backend) {
        let (server, bob) = start(backend);
        let held = HeldChallenge::new(&server, &bob, "/customers");
        let guess = |nc: u32| held.answered_by(&Person::new("bob", &format!("guess {nc}"))).get(nc, "/customers");
        // A nonce each, because a login admits the later requests with its nonce.
        let login = |_| HeldChallenge::new(&server, &bob, "/customers").get(1, "/customers");
        let logins: Vec<String> = (0..20).map(login).collect();
        let guesses: Vec<String> = (1..=150).map(guess).collect();
        let each = guesses.chunks(guesses.len() / logins.len()).map(<[String]>::to_vec);
        let mixed: Vec<String> = each
            .zip(logins.iter().cloned())
            .flat_map(|(guesses, login)| guesses.into_iter().chain([login]))
            .collect();
        let statuses = send_simultaneously(&server, &mixed);
        let (mut correct, mut wrong) = (Vec::new(), Vec::new());
        for (sent, status) in mixed.iter().zip(statuses) {
            if logins.contains(sent) { correct.push(status) } else { wrong.push(status) }
        }
        let refused = correct.iter().filter(|status| **status == 429).count();
        assert!(refused > correct.len() / 2, "{correct:?}");
        expect_wrong_limited(&wrong);
    }

    /// A cached user is compared without a read, so a correct guess could overtake wrong ones.
    fn login_throttle_limits_digest_guesses_at_a_cached_user(backend: Backend) {
        check_limited(backend, |server, bob| {
            let cached = HeldChallenge::new(server, bob, "/customers");
            assert_eq!(status(server, &cached.get(1, "/customers")), 200);
            let held = HeldChallenge::new(server, bob, "/customers");
            let guess = |nc: u32| held.answered_by(&Person::new("bob", &format!("guess {nc}"))).get(nc, "/customers");
            let last = held.get(151, "/customers");
            (1..=150).map(guess).chain([last]).collect()
        });
    }

    /// More than the limit; each waits for the thread that hashes.
    fn login_throttle_limits_concurrent_basic_guesses(backend: Backend) {
        check_limited(backend, |_, bob| {
            let guess = |number: u32| Person::new("bob", &format!("guess {number}")).basic();
            (1..=25).map(guess).chain([bob.basic()]).collect()
        });
    }

    /// A client that opens many connections concurrently is not guessing.
    fn login_throttle_accepts_concurrent_correct_passwords(backend: Backend) {
        let (server, bob) = start(backend);
        let held = HeldChallenge::new(&server, &bob, "/customers");
        let digests: Vec<String> = (1..=50).map(|nc| held.get(nc, "/customers")).collect();
        assert_eq!(send_simultaneously(&server, &digests), [200; 50]);
        // The same once the user is in memory, by a nonce that nobody has used.
        let held = HeldChallenge::new(&server, &bob, "/customers");
        let digests: Vec<String> = (1..=50).map(|nc| held.get(nc, "/customers")).collect();
        assert_eq!(send_simultaneously(&server, &digests), [200; 50]);
        assert_eq!(send_simultaneously(&server, &vec![bob.basic(); 50]), [200; 50]);
    }

    fn login_throttle_counts_a_hashed_name_for_its_user(backend: Backend) {
        let (server, bob) = start(backend);
        let held = HeldChallenge::new(&server, &bob, "/customers");
        let guess = |nc: u32, is_hashed: bool| {
            let mut guess = held.answered_by(&Person::new("bob", "a guess"));
            if !is_hashed {
                return status(&server, &guess.get(nc, "/customers"));
            }
            guess.name = md5("bob:store");
            status(&server, &format!("{}, userhash=true", guess.get(nc, "/customers")))
        };
        let statuses: Vec<u16> = (1..=12).map(|nc| guess(nc, nc % 2 == 0)).collect();
        assert_eq!(statuses[..10], [401; 10]);
        assert_eq!(statuses[10..], [429; 2]);
        let wrong = Person::new("bob", "a guess").basic();
        assert_eq!([status(&server, &wrong), status(&server, &bob.basic())], [429; 2]);
    }

    /// A user with a valid nonce may not use it to guess another user's password.
    fn nonce_proved_by_one_user_does_not_exempt_others(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let mallory = Person::new("mallory", "knows this one");
        let bob = Person::new("bob", "the right password");
        server.add_user(&mallory, &["clerk"]);
        server.add_user(&bob, &["clerk"]);
        let held = HeldChallenge::new(&server, &bob, "/customers");
        assert_eq!(status(&server, &held.answered_by(&mallory).get(1, "/customers")), 200);
        let guess = Person::new("bob", "a guess");
        let statuses: Vec<u16> =
            (2..34).map(|nc| status(&server, &held.answered_by(&guess).get(nc, "/customers"))).collect();
        assert_eq!(statuses[..30], [401; 30]);
        assert_eq!(statuses[30..], [429; 2]);
        assert_eq!(status(&server, &held.answered_by(&bob).get(40, "/customers")), 429, "locked out, also with the right password");
        assert_eq!(status(&server, &held.answered_by(&mallory).get(41, "/customers")), 200, "a verified nonce stays usable");
    }

    /// Failures are counted for each hashed name, whether or not such a user exists.
    fn hashed_names_do_not_reveal_whether_a_user_exists(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let bob = Person::new("bob", "the right password");
        server.add_user(&bob, &["clerk"]);
        let held = HeldChallenge::new(&server, &bob, "/customers");
        let mut count = 0;
        let mut guess = |name: &str| {
            count += 1;
            let mut guess = held.answered_by(&Person::new(name, "a guess"));
            guess.name = md5(format!("{name}:store"));
            status(&server, &format!("{}, userhash=true", guess.get(count, "/customers")))
        };
        for _ in 0..30 {
            assert_eq!(guess("nobody"), 401);
        }
        assert_eq!(guess("nobody"), 429);
        assert_eq!([guess("bob"), guess("nobody else")], [401; 2], "others are not locked out");
        for _ in 0..29 {
            assert_eq!(guess("bob"), 401);
        }
        assert_eq!(guess("bob"), 429, "a name that exists is locked out like one that does not");
    }
}
