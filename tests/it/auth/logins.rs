//! Right and wrong passwords, lockout, and how soon a change of a user takes effect.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Backend, Person, Server, Setup, run_sql, wait_until};

fn start_authenticated(backend: Backend) -> Server {
    Setup::new(backend).with_authentication().start()
}

fn status(server: &Server, person: &Person) -> u16 {
    server.request("GET /customers", &[("Authorization", &person.basic())], "").status
}

/// Changes a user, as an admin.
fn change(server: &Server, admin: &Person, path: &str, user: &serde_json::Value) {
    let body = json!({ "user": user }).to_string();
    let basic = admin.basic();
    let answer = server.request(&format!("PUT {path}"), &[("Authorization", &basic)], body);
    assert_eq!(answer.status, 200, "{answer:?}");
}

on_every_backend! {
    /// The credential cache accepts only the password that it was filled with.
    fn login_cached_password_does_not_admit_a_wrong_one(backend: Backend) {
        let server = start_authenticated(backend);
        let right = server.admin();
        let wrong = Person::new("admin", &format!("{}x", right.password));
        let short = Person::new("admin", &right.password[1..]);
        let other = Person::new("Admin", &right.password);
        for _ in 0..3 {
            assert_eq!(status(&server, &wrong), 401);
            assert_eq!(status(&server, &right), 200);
            assert_eq!(status(&server, &short), 401);
            assert_eq!(status(&server, &right), 200);
            assert_eq!(status(&server, &other), 401);
        }
        assert_eq!(status(&server, &Person::new("", "")), 401);
        assert_eq!(status(&server, &Person::new("nobody", &right.password)), 401);
    }

    /// A change made by this server is in force at its next request.
    fn user_change_takes_effect_at_the_next_request(backend: Backend) {
        let server = start_authenticated(backend);
        let admin = server.admin();
        let clerk = Person::new("clerk", "the first one");
        let path = server.add_user(&clerk, &["clerk"]);
        let mut session = clerk.log_in(&server, "/customers");
        assert_eq!(status(&server, &clerk), 200);
        assert_eq!(session.request(&server, "GET /customers", "").status, 200);

        let newer = Person::new("clerk", "the second one");
        change(&server, &admin, &path, &json!({"name": "clerk", "roles": ["clerk"], "password": newer.password}));
        assert_eq!(status(&server, &clerk), 401, "the old password");
        assert_eq!(status(&server, &newer), 200, "the new password");
        assert_eq!(session.request(&server, "GET /customers", "").status, 401, "a session of the old one");
        let mut session = newer.log_in(&server, "/customers");
        assert_eq!(session.request(&server, "GET /customers", "").status, 200);

        change(&server, &admin, &path, &json!({"name": "clerk", "roles": []}));
        assert_eq!(status(&server, &newer), 403, "without its role");
        change(&server, &admin, &path, &json!({"name": "clerk", "roles": ["clerk"], "disabled": true}));
        assert_eq!(status(&server, &newer), 401, "disabled");
        assert_eq!(session.request(&server, "GET /customers", "").status, 401, "disabled");
        change(&server, &admin, &path, &json!({"name": "clerk", "roles": ["clerk"], "disabled": false}));
        assert_eq!(status(&server, &newer), 200, "enabled again");
        let basic = admin.basic();
        let gone = server.request(&format!("DELETE {path}"), &[("Authorization", &basic)], "");
        assert_eq!(gone.status, 204);
        assert_eq!(status(&server, &newer), 401, "removed");
        assert_eq!(session.request(&server, "GET /customers", "").status, 401, "removed");
    }

    /// A new user with a removed user's name is another user.
    fn user_name_reused_does_not_admit_the_old_password(backend: Backend) {
        let server = start_authenticated(backend);
        let (old, new) = (Person::new("kim", "the old password"), Person::new("kim", "the new password"));
        let path = server.add_user(&old, &["clerk"]);
        assert_eq!(status(&server, &old), 200);
        let basic = server.admin().basic();
        let gone = server.request(&format!("DELETE {path}"), &[("Authorization", &basic)], "");
        assert_eq!(gone.status, 204);
        server.add_user(&new, &["admin"]);
        for _ in 0..2 {
            assert_eq!(status(&server, &old), 401);
            assert_eq!(status(&server, &new), 200);
        }
    }

    /// A change by plain SQL takes effect too.
    fn user_change_by_sql_takes_effect(backend: Backend) {
        let server = start_authenticated(backend);
        let clerk = Person::new("clerk", "a good password");
        server.add_user(&clerk, &["clerk"]);
        assert_eq!(status(&server, &clerk), 200);
        let yes = if backend == Backend::Sqlite { "1" } else { "true" };
        run_sql(backend, server.folder(), &format!("UPDATE nouns_users SET disabled = {yes} WHERE name = 'clerk'"));
        wait_until("it is seen", || (status(&server, &clerk) == 401).then_some(()));
    }

    /// Names and passwords of any script, in any Unicode composition.
    fn login_names_in_other_scripts_are_normalized(backend: Backend) {
        let server = start_authenticated(backend);
        for (name, password) in [("Jürgen", "größer als groß"), ("平田", "ひらがなのことば"), ("a b", "with: colon")] {
            let person = Person::new(name, password);
            server.add_user(&person, &["clerk"]);
            assert_eq!(status(&server, &person), 200, "{name}");
        }
        // The same name with a combining diaeresis.
        assert_eq!(status(&server, &Person::new("Ju\u{308}rgen", "gro\u{308}ßer als groß")), 200);
        // A name that only looks like it.
        assert_eq!(status(&server, &Person::new("Jurgen", "größer als groß")), 401);
    }

    /// After too many wrong passwords for one name from one address, that name is locked out for a
    /// while, even with the right password; a client that is logged in stays so, and other names are
    /// not affected.
    fn lockout_after_too_many_failures_spares_sessions_and_other_names(backend: Backend) {
        let server = start_authenticated(backend);
        let (known, late) = (Person::new("known", "proved before"), Person::new("late", "comes too late"));
        server.add_user(&known, &["clerk"]);
        server.add_user(&late, &["clerk"]);
        assert_eq!(status(&server, &known), 200);
        let mut session = known.log_in(&server, "/customers");
        assert_eq!(session.request(&server, "GET /customers", "").status, 200);
        for person in [&known, &late] {
            let wrong = Person::new(&person.name, "never this one");
            // By Digest, which hashes quickly: all of it has to happen within a minute.
            let mut session = wrong.log_in(&server, "/customers");
            let mut guess = || session.request(&server, "GET /customers", "").status;
            let answers: Vec<u16> = (0..31).map(|_| guess()).collect();
            assert_eq!(answers, [vec![401; 30], vec![429]].concat(), "{person:?}");
        }
        let shut = server.request("GET /customers", &[("Authorization", &late.basic())], "");
        assert_eq!((shut.status, shut.problem().as_str()), (429, "too-many-logins"));
        let seconds: u64 = shut.header("Retry-After").unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds), "{seconds}");
        assert_eq!(status(&server, &known), 200, "proved before");
        assert_eq!(session.request(&server, "GET /customers", "").status, 200, "proved before");
        assert_eq!(status(&server, &server.admin()), 200, "another name");
    }

    /// Failed logins are delayed (tarpit): the response time reveals nothing about the check, and
    /// guessing is slow.
    fn tarpit_delays_every_failed_login(backend: Backend) {
        let server = start_authenticated(backend);
        for name in ["admin", "nobody"] {
            let wrong = Person::new(name, "never this one");
            let began = Instant::now();
            assert_eq!(status(&server, &wrong), 401);
            let took = began.elapsed();
            assert!(took >= Duration::from_millis(100), "{name}, Basic: {took:?}");
            let mut session = wrong.log_in(&server, "/customers");
            let began = Instant::now();
            assert_eq!(session.request(&server, "GET /customers", "").status, 401);
            let took = began.elapsed();
            assert!(took >= Duration::from_millis(100), "{name}, Digest: {took:?}");
        }
        let mut session = Person::new("late", "never this one").log_in(&server, "/customers");
        let mut guess = || {
            let began = Instant::now();
            (session.request(&server, "GET /customers", "").status, began.elapsed())
        };
        let (status, took) = (0..40).map(|_| guess()).find(|(status, _)| *status != 401).unwrap();
        assert_eq!(status, 429);
        assert!(took >= Duration::from_secs(1), "{took:?}");
    }
}

/// A change made by one server takes effect at another within a second.
#[test]
fn user_change_reaches_other_replicas() {
    let one = Setup::new(Backend::Postgres).with_authentication().start();
    let two = Setup::replica(one.database()).key_file(one.key_file()).start();
    let clerk = Person::new("clerk", "a good password");
    let path = one.add_user(&clerk, &["clerk"]);
    assert_eq!(status(&two, &clerk), 200, "a new user is known at once");
    let admin = one.admin();
    change(&one, &admin, &path, &json!({"name": "clerk", "roles": ["clerk"], "disabled": true}));
    assert_eq!(status(&one, &clerk), 401);
    wait_until("the other one knows", || (status(&two, &clerk) == 401).then_some(()));
}

/// A failover may lose a change of the users that a server has seen. The next change gets another
/// stamp, so that the server notices it too.
#[test]
fn users_stamp_is_not_repeated_after_lost_changes() {
    let server = start_authenticated(Backend::Postgres);
    let (admin, kim) = (server.admin(), Person::new("kim", "the password of kim"));
    let path = server.add_user(&kim, &["clerk"]);
    let run = |text: &str| run_sql(Backend::Postgres, server.folder(), text).trim().to_owned();
    let stamp = || run("SELECT value FROM nouns_system WHERE name = 'users_stamp'");
    let before = stamp();
    change(&server, &admin, &path, &json!({"name": "kim", "roles": ["clerk", "shopper"]}));
    assert_eq!(status(&server, &kim), 200);
    let seen = stamp();
    assert_ne!(seen, before);
    // The state of a standby that missed the change, followed by a change of its own: no server sees
    // the state in between.
    run(&format!(
        "ALTER TABLE nouns_users DISABLE TRIGGER USER; \
         UPDATE nouns_users SET roles = '[\"clerk\"]' WHERE name = 'kim'; \
         UPDATE nouns_system SET value = '{before}' WHERE name = 'users_stamp'; \
         ALTER TABLE nouns_users ENABLE TRIGGER USER; \
         UPDATE nouns_users SET disabled = true WHERE name = 'kim'"
    ));
    wait_until("kim is shut out", || (status(&server, &kim) == 401).then_some(()));
    assert_ne!(stamp(), seen);
}

/// A database of an older version, whose stamp was a counter, gets a random one at the next start.
#[test]
fn users_stamp_that_counts_is_replaced_at_the_next_start() {
    let server = start_authenticated(Backend::Postgres);
    let run = |folder: &std::path::Path, text: &str| run_sql(Backend::Postgres, folder, text);
    let folder = server.stop();
    run(
        folder.path(),
        "CREATE OR REPLACE FUNCTION nouns_count_users() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         EXECUTE format('UPDATE %I.nouns_system SET value = (value::bigint + 1)::text \
         WHERE name = ''users_stamp''', TG_TABLE_SCHEMA); RETURN NULL; END $$; \
         UPDATE nouns_system SET value = '7' WHERE name = 'users_stamp'",
    );
    let server = Setup::new(Backend::Postgres).with_authentication().start_in(folder);
    server.add_user(&Person::new("kim", "the password of kim"), &["clerk"]);
    let stamp = "SELECT value FROM nouns_system WHERE name = 'users_stamp'";
    assert_ne!(run(server.folder(), stamp).trim(), "8");
}
