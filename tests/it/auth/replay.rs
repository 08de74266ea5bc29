//! Replay protection: a captured request is never executed again, not at another replica and not after
//! a restart.

use std::net::SocketAddr;
use std::thread;

use crate::harness::{
    ANN, Answer, Backend, Client, DigestSession, FakeClock, Folder, OwnPostgres, Person, Postgres,
    Server, Setup, run_sql, wait_until,
};

/// A request that was sent once, with its response's status.
struct CapturedRequest {
    authorization: String,
}

impl CapturedRequest {
    /// Creates a customer, and captures the request.
    fn create(server: &Server, person: &Person) -> Self {
        let mut session = person.log_in(server, "/customers");
        let captured = Self { authorization: session.answer("POST /customers", ANN.as_bytes()) };
        assert_eq!(captured.send(server, "POST /customers", ANN).status, 201);
        captured
    }

    fn send(&self, server: &Server, line: &str, body: &str) -> Answer {
        server.request(line, &[("Authorization", &self.authorization)], body)
    }

    /// The next request of a session.
    fn next(server: &Server, session: &mut DigestSession) -> Self {
        let captured = Self { authorization: session.answer("POST /customers", ANN.as_bytes()) };
        assert_eq!(captured.send(server, "POST /customers", ANN).status, 201);
        captured
    }

    /// Sends it again, and expects a refusal.
    fn replay(&self, server: &Server, occasion: &str) {
        let answer = self.send(server, "POST /customers", ANN);
        assert_eq!(answer.status, 401, "{occasion}: {answer:?}");
        let challenges = answer.all("WWW-Authenticate").join("");
        assert!(challenges.contains("stale=true"), "{occasion}: {challenges}");
    }
}

/// Sends it on a new connection.
fn post(address: SocketAddr, authorization: &str) -> u16 {
    let headers = [("Authorization", authorization)];
    Client::connect(address).request("POST /customers", &headers, ANN).status
}

fn customers(server: &Server) -> String {
    let count = run_sql(server.backend(), server.folder(), "SELECT count(*) FROM customers");
    count.trim().to_owned()
}

on_every_backend! {
    fn replay_of_a_captured_request_is_refused(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let captured = CapturedRequest::create(&server, &server.admin());
        for _ in 0..3 {
            captured.replay(&server, "the same");
        }
        for line in ["GET /customers", "PUT /customers", "DELETE /customers"] {
            assert!(matches!(captured.send(&server, line, "").status, 401 | 405), "{line}");
        }
        for line in ["POST /customers?x=1", "POST /", "GET /", "GET /-/users", "POST /-/users"] {
            let status = captured.send(&server, line, ANN).status;
            assert!(matches!(status, 400 | 401 | 405), "{line}: {status}");
        }
        // With its count changed, the response hash does not match.
        let counted = captured.authorization.replace("nc=00000001", "nc=00000002");
        assert_ne!(counted, captured.authorization);
        let answer = server.request("POST /customers", &[("Authorization", &counted)], ANN);
        assert_eq!(answer.status, 401);
        assert_eq!(customers(&server), "1");
        let server = server.restart();
        if backend == Backend::Sqlite {
            // On SQLite the used counts are in memory, so nonces end with the process.
            captured.replay(&server, "after a restart");
        } else {
            captured.replay(&server, "after a restart, with the pairs in the database");
        }
        let server = Setup::new(backend).with_authentication().start_in(server.kill());
        captured.replay(&server, "after a crash");
        assert_eq!(customers(&server), "1");
    }

    /// Requests on one nonce may arrive out of order and concurrently; a count that arrives twice is
    /// accepted once.
    fn nonce_used_concurrently_accepts_each_count_once(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let address = server.address;
        let mut session = server.admin().log_in(&server, "/customers");
        let answers: Vec<String> = (0..64).map(|_| session.answer("POST /customers", ANN.as_bytes())).collect();
        thread::scope(|scope| {
            let send = |authorization: &String| post(address, authorization);
            let sent: Vec<_> = answers.iter().rev().map(|answer| scope.spawn(move || send(answer))).collect();
            for status in sent {
                assert_eq!(status.join().unwrap(), 201);
            }
        });
        assert_eq!(customers(&server), "64");
        let one = session.answer("POST /customers", ANN.as_bytes());
        let statuses: Vec<u16> = thread::scope(|scope| {
            let send = || post(address, &one);
            let sent: Vec<_> = (0..16).map(|_| scope.spawn(send)).collect();
            sent.into_iter().map(|status| status.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 15, "{statuses:?}");
        assert_eq!(customers(&server), "65");
    }
}

/// A nonce is valid at every replica, and a count used at one is used at all.
#[test]
fn replay_at_another_replica_is_refused() {
    let one = Setup::new(Backend::Postgres).with_authentication().start();
    let two = Setup::replica(one.database()).key_file(one.key_file()).start();
    let admin = one.admin();
    let captured = CapturedRequest::create(&one, &admin);
    captured.replay(&two, "at another replica");
    let mut session = admin.log_in(&one, "/customers");
    for server in [&two, &one, &two, &two, &one] {
        assert_eq!(session.request(server, "POST /customers", ANN).status, 201);
    }
    assert_eq!(customers(&one), "6");
}

/// A client that stays at one replica is served from a nonce lease in memory. At another replica its nonce
/// is stale, and the client continues with a new one; used counts stay used.
#[test]
fn replay_after_a_nonce_lease_at_another_replica_is_refused() {
    let one = Setup::new(Backend::Postgres).with_authentication().start();
    let two = Setup::replica(one.database()).key_file(one.key_file()).start();
    let mut session = one.admin().log_in(&one, "/customers");
    let mut captured = Vec::new();
    for server in [&one, &two, &one] {
        if !captured.is_empty() {
            let authorization = session.answer("POST /customers", ANN.as_bytes());
            CapturedRequest { authorization }.replay(server, "leased by another replica");
            session = one.admin().log_in(server, "/customers");
        }
        for _ in 0..20 {
            let authorization = session.answer("POST /customers", ANN.as_bytes());
            let created = CapturedRequest { authorization };
            assert_eq!(created.send(server, "POST /customers", ANN).status, 201);
            captured.push(created);
        }
        for server in [&one, &two] {
            for captured in &captured {
                captured.replay(server, "after a long stay");
            }
        }
        assert_eq!(customers(&one), captured.len().to_string());
    }
    // The lease is in memory alone: when its replica is killed, the nonce is lost, and no replica
    // accepts it.
    let mut session = one.admin().log_in(&one, "/customers");
    let mut answers = (0..30).map(|_| session.answer("POST /customers", ANN.as_bytes()));
    let sent: Vec<String> = answers.by_ref().take(20).collect();
    let unsent: Vec<String> = answers.collect();
    assert!(sent.iter().all(|authorization| post(one.address, authorization) == 201));
    let killed = one.kill();
    let address = two.address;
    thread::scope(|scope| {
        for authorization in sent.iter().chain(&unsent) {
            scope.spawn(move || assert_eq!(post(address, authorization), 401));
        }
    });
    let count = run_sql(Backend::Postgres, killed.path(), "SELECT count(*) FROM customers");
    assert_eq!(count.trim(), "80");
}

/// A crash of PostgreSQL loses the used counts, and with them every nonce issued before: at a server
/// that has noticed the crash, and at one that still has the old epoch.
#[test]
fn replay_after_a_crash_of_postgres_is_refused() {
    let postgres = OwnPostgres::start();
    postgres.sql("postgres", "CREATE DATABASE crash");
    let address = postgres.database_url("crash");
    let one = Setup::replica(address.clone()).with_authentication().start();
    let two = Setup::replica(address).key_file(one.key_file()).start();
    let admin = one.admin();
    let captured = CapturedRequest::create(&one, &admin);
    // Both have the old epoch in memory, and one of them a lease as well.
    let mut session = admin.log_in(&two, "/customers");
    for _ in 0..20 {
        assert_eq!(session.request(&two, "GET /customers", "").status, 200);
    }
    let unsent =
        CapturedRequest { authorization: session.answer("POST /customers", ANN.as_bytes()) };
    postgres.restart("immediate");
    for server in [&two, &one] {
        wait_until("it serves again", || (server.get("/-/ready").status == 200).then_some(()));
        captured.replay(server, "after a crash of the database");
        unsent.replay(server, "from before a crash of the database");
    }
    for server in [&two, &one] {
        let mut session = admin.log_in(server, "/customers");
        assert_eq!(session.request(server, "GET /customers", "").status, 200);
    }
    let count = postgres.sql("crash", "SELECT count(*) FROM customers");
    assert_eq!(count.trim(), "1");
}

const DAY: i64 = 86_400;

/// Logs in by Digest with a new challenge. After the clock was set back, also by a restart, a server may
/// issue one more nonce of the old epoch, and report it as stale: clients then try once more by themselves.
fn logs_in(server: &Server, person: &Person, tries: usize) -> bool {
    (0..tries).any(|_| {
        let mut session = person.log_in(server, "/customers");
        let answer = session.request(server, "GET /customers", "");
        println!("{answer:?}");
        answer.status == 200
    })
}

/// The clock of the machine and its database is a day ahead and is corrected, again and again.
fn check_clock_corrections(clock: &FakeClock, server: Server, count: impl Fn(&Server) -> String) {
    let admin = server.admin();
    let mut captured = vec![CapturedRequest::create(&server, &admin)];
    let refused = |server: &Server, captured: &[CapturedRequest], occasion: &str| {
        for captured in captured {
            captured.replay(server, occasion);
        }
    };
    clock.set(0);
    assert!((0..32).all(|_| logs_in(&server, &admin, 2)), "while it runs");
    refused(&server, &captured, "after the clock was set right");
    captured.push(CapturedRequest::create(&server, &admin));
    clock.set(DAY);
    assert!(logs_in(&server, &admin, 1), "ahead again");
    refused(&server, &captured, "when the time has come for which the nonce was made");
    captured.push(CapturedRequest::create(&server, &admin));
    clock.set(0);
    let server = server.restart();
    assert!(logs_in(&server, &admin, 2), "after a restart with the right clock");
    refused(&server, &captured, "after a restart with the right clock");
    clock.set(DAY);
    refused(&server, &captured, "at the next server, when the time has come");
    assert_eq!(count(&server), captured.len().to_string());
}

#[test]
fn replay_after_a_clock_correction_is_refused_on_sqlite() {
    let clock = FakeClock::new(DAY);
    let server = Setup::new(Backend::Sqlite)
        .with_authentication()
        .run_under(&clock.command_prefix())
        .start();
    // Used nonces are kept in many shards, and a login touches one of them.
    let admin = server.admin();
    assert!((0..64).all(|_| logs_in(&server, &admin, 1)));
    check_clock_corrections(&clock, server, customers);
}

#[test]
fn replay_after_a_clock_correction_is_refused_on_postgres() {
    let clock = FakeClock::new(DAY);
    let postgres = OwnPostgres::start_under_clock(&clock);
    postgres.sql("postgres", "CREATE DATABASE clock");
    let address = postgres.database_url("clock");
    let server =
        Setup::replica(address).with_authentication().run_under(&clock.command_prefix()).start();
    let count =
        |_: &Server| postgres.sql("clock", "SELECT count(*) FROM customers").trim().to_owned();
    check_clock_corrections(&clock, server, count);
}

/// A copy of a database lacks the claims made at the original since, so that it accepts none of the
/// earlier nonces.
#[test]
fn nonce_epoch_is_new_in_a_restored_database() {
    let original = Setup::new(Backend::Postgres).with_authentication().start();
    let admin = original.admin();
    let mut session = admin.log_in(&original, "/customers");
    let mut captured = vec![CapturedRequest::next(&original, &mut session)];
    let restored = Folder::new();
    restored.with_database(|name| {
        Postgres::create_database(name);
        Postgres::dump_and_restore(&Postgres::database_name(original.folder()), name);
    });
    captured.push(CapturedRequest::next(&original, &mut session));
    let unsent =
        CapturedRequest { authorization: session.answer("POST /customers", ANN.as_bytes()) };
    let address = Postgres::shared().database_url(&Postgres::database_name(restored.path()));
    let copy = Setup::replica(address).key_file(original.key_file()).start();
    for captured in captured.iter().chain([&unsent]) {
        captured.replay(&copy, "at a restored database");
    }
    assert!(logs_in(&copy, &admin, 1));
    assert_eq!(
        run_sql(Backend::Postgres, restored.path(), "SELECT count(*) FROM customers").trim(),
        "1"
    );
    // The original continues.
    assert_eq!(unsent.send(&original, "POST /customers", ANN).status, 201);
}

/// The same by a copy of the files, which keeps even the transaction ids.
#[test]
fn nonce_epoch_is_new_in_a_database_from_a_template() {
    let original = Setup::new(Backend::Postgres).with_authentication().start();
    let admin = original.admin();
    let mut session = admin.log_in(&original, "/customers");
    drop(CapturedRequest::next(&original, &mut session));
    let folder = original.stop();
    let copy = Backend::Postgres.copy_database(&folder);
    let original = Setup::new(Backend::Postgres).with_authentication().start_in(folder);
    let captured = CapturedRequest::next(&original, &mut session);
    let address = Postgres::shared().database_url(&Postgres::database_name(copy.path()));
    let server = Setup::replica(address).key_file(original.key_file()).start();
    captured.replay(&server, "at a copy");
    assert!(logs_in(&server, &admin, 1));
    assert_eq!(
        run_sql(Backend::Postgres, copy.path(), "SELECT count(*) FROM customers").trim(),
        "1"
    );
}
