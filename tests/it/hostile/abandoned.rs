//! Requests whose clients disconnect while they wait: their memory and permits stay accounted for, and bounded.

use std::time::Instant;

use crate::harness::{Backend, ForeignLock, Http2, Server, Setup, run_sql, wait_until};

use super::attack_run::memory_megabytes;

const MIB: u64 = 1 << 20;

fn start(backend: Backend) -> Server {
    let model = "title = \"Abandoned\"\n[server]\nhttp2_prior_knowledge = true\n\
        [server.limits]\nrequest_seconds_max = 600\nstatement_seconds_max = 600\n\
        [resources.customer.fields]\nname = { type = \"text\", max_length = 1000000 }\n";
    Setup::new(backend).model(model).start()
}

/// The number of writes that wait for another session's lock, including those without a client.
fn waiting_writes(server: &Server) -> u64 {
    match server.backend() {
        // The writer thread is executing one of them.
        Backend::Sqlite => server.metric::<u64>("nouns_sqlite_writes_queued").unwrap() + 1,
        Backend::Postgres => server.metric("nouns_requests_in_flight").unwrap(),
    }
}

fn held_bytes(server: &Server) -> u64 {
    server.metric("nouns_buffered_bytes").unwrap()
}

/// Sends requests over HTTP/2, and resets them when this many are queued, or when it is too late for that.
fn send_and_reset(server: &Server, requests: u32, waiting_then: u64, body: &[u8]) {
    let began = Instant::now();
    let mut client = Http2::connect(server);
    let streams = || (0..requests).map(|number| 2 * number + 1);
    for stream in streams() {
        client.request(stream, ("POST", "/customers"), &[], body);
        if stream == 1 && server.backend() == Backend::Sqlite {
            // Otherwise a write that the writer thread has not taken yet would count as a queued one.
            wait_until("the writer thread has the first", || {
                let in_flight = server.metric::<u64>("nouns_requests_in_flight");
                let queued = server.metric::<u64>("nouns_sqlite_writes_queued");
                let is_taken = (in_flight, queued) == (Some(1), Some(0));
                (is_taken || ForeignLock::may_have_timed_out(server.backend(), began)).then_some(())
            });
        }
    }
    wait_until("they wait for the lock", || {
        (waiting_writes(server) == waiting_then
            || ForeignLock::may_have_timed_out(server.backend(), began))
        .then_some(())
    });
    streams().for_each(|stream| client.reset(stream));
    client.ping();
    drop(client);
    wait_until("the connection is gone", || {
        (server.metric::<u64>("nouns_connections_open") == Some(1)).then_some(())
    });
}

/// Returns false when the machine was so slow that the writer may have given up waiting for the lock.
fn abandon_writes_and_count_their_memory(server: &Server) -> bool {
    let name = "n".repeat(700_000);
    let body = format!("{{\"customer\":{{\"name\":\"{name}\"}}}}");
    let lock = ForeignLock::hold(server);
    let began = Instant::now();
    send_and_reset(server, 3, 3, body.as_bytes());
    let waiting = waiting_writes(server);
    if ForeignLock::may_have_timed_out(server.backend(), began) {
        return false;
    }
    assert_eq!(waiting, 3);
    // Other connections that are being closed hold some bytes for a moment.
    wait_until("the bodies are held, and nothing else", || {
        let is_held = held_bytes(server) == 3 * body.len() as u64;
        (is_held || ForeignLock::may_have_timed_out(server.backend(), began)).then_some(())
    });
    if ForeignLock::may_have_timed_out(server.backend(), began) {
        return false;
    }
    drop(lock);
    wait_until("they are done or dropped, and so is their memory", || {
        (held_bytes(server) == 0).then_some(())
    });
    wait_until("nothing is under way", || {
        (server.metric::<u64>("nouns_requests_in_flight") == Some(0)).then_some(())
    });
    true
}

on_every_backend! {
    fn abandoned_writes_memory_stays_accounted_for(backend: Backend) {
        let is_conclusive = (0..20).any(|_| abandon_writes_and_count_their_memory(&start(backend)));
        assert!(is_conclusive, "the machine was too slow each time");
    }
}

/// On PostgreSQL alone, where a read can wait for a lock. The database continues to execute it.
#[test]
fn abandoned_reads_keep_their_admission_permits() {
    let server = start(Backend::Postgres);
    let lock = ForeignLock::lock_table(
        &server,
        "customers",
        "LOCK TABLE customers IN ACCESS EXCLUSIVE MODE;",
    );
    let mut client = Http2::connect(&server);
    let paths = ["/customers", "/customers/0198c0de-0000-7000-8000-000000000000"];
    for (number, path) in (0..).zip(paths) {
        client.request(2 * number + 1, ("GET", path), &[], b"");
        wait_until("the database has it", || {
            let waiting = "SELECT count(*) FROM pg_stat_activity \
                WHERE datname = current_database() AND wait_event_type = 'Lock'";
            let found = run_sql(server.backend(), server.folder(), waiting);
            (found.trim() == (number + 1).to_string()).then_some(())
        });
    }
    assert_eq!(waiting_writes(&server), 2);
    client.reset(1);
    client.reset(3);
    client.ping();
    drop(client);
    wait_until("the connection is gone", || {
        (server.metric::<u64>("nouns_connections_open") == Some(1)).then_some(())
    });
    assert_eq!(waiting_writes(&server), 2);
    drop(lock);
    wait_until("they are done", || (waiting_writes(&server) == 0).then_some(()));
}

/// On PostgreSQL alone, where a lock is waited for as long as the test needs to send so much.
#[test]
fn abandoned_writes_fill_the_memory_limit_and_shed_load() {
    let server = start(Backend::Postgres);
    let mut body = br#"{"customers":[{"name":"Ann"}]}"#.to_vec();
    body.resize(usize::try_from(8 * MIB).unwrap(), b' ');
    let lock = ForeignLock::hold(&server);
    let mut count = 0;
    // Of 8 MiB each, and then one of 1 MiB, so that no more of 8 fit.
    while held_bytes(&server) + 9 * MIB <= 128 * MIB {
        count += 1;
        assert!(count <= 15, "{} bytes are held", held_bytes(&server));
        send_and_reset(&server, 1, count, &body);
    }
    count += 1;
    send_and_reset(&server, 1, count, body.get(..1 << 20).unwrap());
    let answer = server.post("/customers", &body);
    assert_eq!((answer.status, answer.problem().as_str()), (503, "busy"), "{answer:?}");
    let small = server.get("/customers");
    assert_eq!(small.status, 200, "{small:?}");
    println!("{count} abandoned writes, {} MB", memory_megabytes(&server));
    assert!(memory_megabytes(&server) < 512, "{} MB", memory_megabytes(&server));
    drop(lock);
    wait_until("their memory is free", || (held_bytes(&server) == 0).then_some(()));
    assert_eq!(server.post("/customers", &body).status, 201);
}
