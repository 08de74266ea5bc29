//! Idempotency keys: waiting and its limit, stored responses and their lifetime, and the cost to
//! others.
//!
//! A lock on the customers' table, as an operator might hold it, makes a request take long; reads
//! still succeed.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{ANN, BEA, KEY, REPLAYED, check_replay, count, post, replayed_part, stored_responses};
use crate::harness::{
    Answer, Backend, Client, Folder, ForeignLock, Server, Setup, run_sql, wait_until,
};

fn model(limits: &str) -> String {
    format!(
        "title = \"T\"\n[server.limits]\n{limits}\n[resources.customer.fields]\n\
         name = {{ type = \"text\" }}\nemail = {{ type = \"email\" }}\n"
    )
}

/// Two concurrent clients, of which one has to wait until it is refused.
fn assert_one_of_two_is_refused(servers: [&Server; 2]) {
    // A server waits 5 s for the lock of another process: more than enough, unless the machine hangs.
    let keys = ["a", "b", "c", "d", "e"];
    assert!(keys.iter().any(|key| is_one_refused(servers, key)), "never in time");
}

/// False when one of them timed out (503) before the other one was refused.
fn is_one_refused(servers: [&Server; 2], key: &str) -> bool {
    let before = count(servers[0], "customers");
    let lock = ForeignLock::hold(servers[0]);
    let (tell, told) = mpsc::channel();
    let began = Instant::now();
    thread::scope(|scope| {
        for server in servers {
            let (tell, address) = (tell.clone(), server.address);
            scope.spawn(move || {
                let mut client = Client::connect(address);
                tell.send(client.request("POST /customers", &[(KEY, key)], ANN)).unwrap();
            });
        }
        let early = told.recv().unwrap();
        drop(lock);
        let first = told.recv().unwrap();
        if early.status == 503 || first.status == 503 {
            return false;
        }
        assert_eq!(
            (early.status, early.problem().as_str()),
            (409, "request-under-way"),
            "{early:?}"
        );
        assert_eq!(early.header("Retry-After"), Some("1"));
        assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!((first.status, first.header(REPLAYED)), (201, None), "{first:?}");
        for server in servers {
            check_replay(&first, &post(server, "/customers", key, ANN));
        }
        assert_eq!(count(servers[0], "customers"), before + 1);
        true
    })
}

on_every_backend! {
    fn idempotency_wait_limit_exceeded_is_409(backend: Backend) {
        let server = Setup::new(backend).model(&model("idempotency_wait_seconds_max = 1")).start();
        assert_one_of_two_is_refused([&server, &server]);
    }

    /// Waiting requests hold nothing that others need, least of all a database connection.
    fn idempotency_waiting_requests_do_not_block_others(backend: Backend) {
        let limits = "database_connections_max = 3\nrequests_max = 8\nrequest_seconds_max = 20\nstatement_seconds_max = 15\nidempotency_wait_seconds_max = 15";
        let server = Setup::new(backend).model(&model(limits)).start();
        let path = server.create("/customers", BEA);
        let lock = ForeignLock::hold(&server);
        let address = server.address;
        let (tell, told) = mpsc::channel();
        let answers: Vec<Answer> = thread::scope(|scope| {
            let clients: Vec<_> = (0..20).map(|_| {
                let tell = tell.clone();
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    tell.send(()).unwrap();
                    // A request does not wait for a lock for ever.
                    loop {
                        let answer = client.request("POST /customers", &[(KEY, "k")], ANN);
                        if !matches!(answer.status, 409 | 503) {
                            return answer;
                        }
                    }
                })
            }).collect();
            told.iter().take(20).for_each(drop);
            for _ in 0..20 {
                assert_eq!(server.get(&path).status, 200);
            }
            drop(lock);
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let new = answers.iter().filter(|answer| answer.header(REPLAYED).is_none()).count();
        assert_eq!(new, 1, "{answers:?}");
        assert!(answers.iter().all(|answer| answer.status == 201 && replayed_part(answer) == replayed_part(&answers[0])), "{answers:?}");
        assert_eq!(count(&server, "customers"), 2);
    }

    fn idempotency_stored_response_expires(backend: Backend) {
        let server = Setup::new(backend).model(&model("idempotency_key_seconds = 2")).start();
        let first = post(&server, "/customers", "k", ANN);
        assert_eq!(first.status, 201);
        let anew = wait_until("the key is free again", || {
            let answer = post(&server, "/customers", "k", ANN);
            assert_eq!(answer.status, 201, "{answer:?}");
            answer.header(REPLAYED).is_none().then_some(answer)
        });
        assert_ne!(first.header("Location"), anew.header("Location"));
        assert_eq!(count(&server, "customers"), 2);
        // The second response may have expired too.
        assert!(["0", "1"].contains(&stored_responses(&server).as_str()));
        // Another request may use the key as well.
        let other = wait_until("the key is free again", || {
            let answer = post(&server, "/customers", "k", BEA);
            (answer.status == 201).then_some(answer)
        });
        assert_eq!(other.header(REPLAYED), None);
    }

    /// More than two batches of the sweep; valid ones stay.
    fn idempotency_sweep_removes_expired_responses(backend: Backend) {
        let server = Server::on(backend);
        let first = post(&server, "/customers", "k", ANN);
        let folder = server.stop();
        run_sql(backend, folder.path(), "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
            INSERT INTO nouns_keys (scope, fingerprint, time, bytes, answer)
            SELECT 'old' || i, 'x', '2020-01-01T00:00:00.000000Z', 7, '201 ' FROM n");
        let server = Setup::new(backend).start_in(folder);
        wait_until("the old answers are gone", || (stored_responses(&server) == "1").then_some(()));
        check_replay(&first, &post(&server, "/customers", "k", ANN));
    }

    /// The longest possible response: a list of a thousand items in 8 MiB.
    fn idempotency_long_response_is_stored_completely(backend: Backend) {
        let server = Setup::new(backend).model(&model("")).start();
        let name = "n".repeat(8_000);
        let items: Vec<_> = (0..1_000).map(|_| json!({ "name": name })).collect();
        let body = json!({ "customers": items }).to_string();
        assert!(body.len() > 7 << 20);
        let first = post(&server, "/customers", "k", &body);
        assert_eq!(first.status, 201);
        assert!(first.body.len() > body.len());
        check_replay(&first, &post(&server, "/customers", "k", &body));
        let stored = run_sql(backend, server.folder(), "SELECT count(*) FROM customers");
        assert_eq!(stored.trim(), "1000");
    }

    /// A panic while the response is stored: nothing is done, and the key is free.
    fn idempotency_panic_before_the_commit_does_nothing(backend: Backend) {
        for fault in ["keep:1", "reply:1", "transaction:1", "commit:1"] {
            let server = Setup::new(backend).fault(fault).start();
            let failed = post(&server, "/customers", "k", ANN);
            assert_eq!((failed.status, failed.problem().as_str()), (500, "internal"), "{fault}");
            assert_eq!((count(&server, "customers"), stored_responses(&server).as_str()), (0, "0"), "{fault}");
            let first = post(&server, "/customers", "k", ANN);
            assert_eq!((first.status, first.header(REPLAYED)), (201, None), "{fault}: {first:?}");
        }
    }

    /// A panic after the commit: the client gets the outcome by its retry.
    fn idempotency_panic_after_the_commit_is_resolved_by_a_retry(backend: Backend) {
        let server = Setup::new(backend).fault("answer:1").start();
        assert_eq!(post(&server, "/customers", "k", ANN).status, 500);
        let again = post(&server, "/customers", "k", ANN);
        assert_eq!((again.status, again.header(REPLAYED)), (201, Some("true")), "{again:?}");
        assert_eq!(count(&server, "customers"), 1);
    }
}

/// The first request runs at another server.
#[test]
fn idempotency_wait_limit_for_another_server_is_409() {
    let text = model("idempotency_wait_seconds_max = 1");
    let first = Setup::new(Backend::Postgres).model(&text).start();
    let second = Setup::replica(first.database()).model(&text).start_in(Folder::new());
    assert_one_of_two_is_refused([&first, &second]);
}
