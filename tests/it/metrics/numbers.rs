//! Durations, sizes, queues and positions: the metrics other than the count of requests.

use super::prometheus_parser::Scrape;
use super::{ANN, requests, scrape};
use crate::harness::{Backend, Client, ForeignLock, Server, Setup, run_sql, wait_until};

/// How often a stage was timed.
fn stage_count(scrape: &Scrape, stage: &str) -> f64 {
    let samples = &scrape.family("nouns_stage_seconds").samples;
    let mut found = samples
        .iter()
        .filter(|sample| sample.name.ends_with("_count") && sample.labels["stage"] == stage);
    found.next().map_or(0.0, |sample| sample.value)
}

/// Scrapes until a metric without labels has this value.
fn wait_for_metric(client: &mut Client, name: &str, value: f64) -> Scrape {
    wait_until(&format!("{name} is {value}"), || {
        Some(scrape(client)).filter(|seen| seen.get(name) == Some(value))
    })
}

/// Clients that have sent a write while another process has the database locked. They connect before,
/// because a request does not wait for a lock for long.
fn send_blocked_writes(
    server: &Server,
    count: usize,
    line: &str,
    body: &str,
) -> (ForeignLock, Vec<Client>) {
    let mut writers: Vec<Client> = (0..count).map(|_| server.client()).collect();
    for writer in &mut writers {
        assert_eq!(writer.request("GET /-/health", &[], "").status, 200);
    }
    let lock = ForeignLock::hold(server);
    let length = body.len();
    let request =
        format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}");
    for writer in &mut writers {
        writer.write(request.as_bytes());
    }
    (lock, writers)
}

on_every_backend! {
    fn metrics_time_every_stage_of_every_request(server: Server) {
        let ann = server.create("/customers", ANN);
        let mut client = server.client();
        let before = scrape(&mut client);
        for _ in 0..5 {
            assert_eq!(client.request(&format!("GET {ann}"), &[], "").status, 200);
        }
        // It ends at its path, with nothing but a reply.
        assert_eq!(client.request("GET /nothing", &[], "").status, 404);
        let after = scrape(&mut client);
        let grown = |name: &str| stage_count(&after, name) - stage_count(&before, name);
        // The first scrape is one more, and needs no data.
        let stages = ["head", "body", "plan", "store", "reply", "other"].map(grown);
        assert_eq!(stages, [6.0, 6.0, 6.0, 5.0, 7.0, 0.0]);
        let grown = |name: &str| after.value(name) - before.value(name);
        assert_eq!(grown("nouns_request_seconds_count"), 7.0);
        let sum = grown("nouns_request_seconds_sum");
        assert!(sum > 0.0 && sum < 60.0, "{sum}");
    }

    /// Including entries that another server wrote.
    fn metrics_show_the_position_of_the_change_log(server: Server) {
        let mut client = server.client();
        let empty = scrape(&mut client);
        assert_eq!(empty.get("nouns_changes_newest_sequence"), None, "there is no entry yet");
        for _ in 0..3 {
            server.create("/customers", ANN);
        }
        let seen = scrape(&mut client);
        let numbers = run_sql(server.backend(), server.folder(), "SELECT sequence FROM nouns_changes ORDER BY sequence");
        let numbers: Vec<f64> = numbers.lines().map(|number| number.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 3);
        assert_eq!(seen.get("nouns_changes_oldest_sequence"), numbers.first().copied());
        assert_eq!(seen.get("nouns_changes_newest_sequence"), numbers.last().copied());
    }

    fn metrics_count_sweeps(server: Server) {
        let backend = server.backend();
        for _ in 0..4 {
            server.create("/customers", ANN);
        }
        let folder = server.stop();
        run_sql(backend, folder.path(), "UPDATE nouns_changes SET time = '2020-01-01T00:00:00.000000Z'");
        let server = Setup::new(backend).start_in(folder);
        // All of it is old; the newest stays.
        let mut client = server.client();
        wait_for_metric(&mut client, "nouns_changes_swept_total", 3.0);
        // A scrape queries the positions before it reads the counters.
        let seen = scrape(&mut client);
        assert_eq!(seen.get("nouns_changes_oldest_sequence"), seen.get("nouns_changes_newest_sequence"));
    }

    fn metrics_count_connections(server: Server) {
        let mut client = server.client();
        let before = scrape(&mut client);
        assert_eq!((before.value("nouns_connections_accepted_total"), before.value("nouns_connections_open")), (1.0, 1.0));
        let mut others: Vec<Client> = (0..7).map(|_| server.client()).collect();
        for other in &mut others {
            assert_eq!(other.request("GET /-/health", &[], "").status, 200);
        }
        let seen = scrape(&mut client);
        assert_eq!((seen.value("nouns_connections_accepted_total"), seen.value("nouns_connections_open")), (8.0, 8.0));
        drop(others);
        let seen = wait_for_metric(&mut client, "nouns_connections_open", 1.0);
        assert_eq!(seen.value("nouns_connections_accepted_total"), 8.0);
        assert_eq!(seen.value("nouns_connections_refused_total"), 0.0);
    }

    /// Heads that cannot be parsed and refused connections have no verb.
    fn metrics_count_refusals(backend: Backend) {
        let model = "title = \"T\"\n[server.limits]\nconnections_max = 2\n[resources.note.fields]\ntext = { type = \"text\" }\n";
        let server = Setup::new(backend).model(model).start();
        let mut client = server.client();
        let before = scrape(&mut client);
        assert_eq!(server.send("nonsense\r\n\r\n").status, 400);
        let seen = wait_until("its place is free", || {
            Some(scrape(&mut client)).filter(|seen| seen.value("nouns_connections_open") == 1.0)
        });
        let mut second = server.client();
        assert_eq!(second.request("GET /-/health", &[], "").status, 200);
        assert_eq!(server.client().read_answer(false).status, 503);
        let after = scrape(&mut client);
        assert_eq!(after.value("nouns_connections_refused_total"), 1.0);
        assert_eq!(after.value("nouns_connections_accepted_total"), 4.0);
        let other = |scrape: &Scrape| {
            let counted = requests(scrape).into_iter();
            let other = counted.filter(|((_, verb, _), _)| verb == "other");
            other.map(|((resource, _, status), count)| (format!("{resource} {status}"), count)).collect::<Vec<_>>()
        };
        assert_eq!(other(&before), []);
        assert_eq!(other(&seen), [("- 400".to_owned(), 1)]);
        assert_eq!(other(&after), [("- 400".to_owned(), 1), ("- 503".to_owned(), 1)]);
    }

    /// The metrics can be read while the store accepts no request.
    fn metrics_show_requests_waiting_for_the_store(backend: Backend) {
        let model = "title = \"T\"\n[server.limits]\nrequests_max = 3\n[resources.customer.fields]\nname = { type = \"text\" }\nemail = { type = \"text\" }\n";
        let server = Setup::new(backend).model(model).start();
        let mut client = server.client();
        let (lock, mut writers) = send_blocked_writes(&server, 5, "POST /customers", ANN);
        wait_for_metric(&mut client, "nouns_requests_queued", 2.0);
        let seen = wait_for_metric(&mut client, "nouns_requests_in_flight", 3.0);
        match backend {
            // The writer thread is executing one of the three, and waits for the lock.
            Backend::Sqlite => {
                wait_for_metric(&mut client, "nouns_sqlite_writes_queued", 2.0);
                assert_eq!(seen.value("nouns_sqlite_writes_stopped"), 0.0);
            }
            Backend::Postgres => {
                wait_until("each has a connection", || (scrape(&mut client).value("nouns_pool_connections_open") >= 3.0).then_some(()));
                assert!(seen.family("nouns_sqlite_writes_queued").samples.is_empty(), "there is no writer");
            }
        }
        drop(lock);
        for writer in &mut writers {
            assert_eq!(writer.read_answer(false).status, 201);
        }
        // A response may arrive before its request has ended.
        wait_for_metric(&mut client, "nouns_requests_queued", 0.0);
        wait_for_metric(&mut client, "nouns_requests_in_flight", 0.0);
    }

    fn metrics_show_bytes_of_bodies_in_memory(server: Server) {
        let mut client = server.client();
        let mut slow = server.client();
        slow.write(format!("POST /customers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n{}", " ".repeat(150_000)).as_bytes());
        wait_for_metric(&mut client, "nouns_buffered_bytes", 150_000.0);
        slow.write(" ".repeat(50_000).as_bytes());
        assert_eq!(slow.read_answer(false).status, 400);
        wait_for_metric(&mut client, "nouns_buffered_bytes", 0.0);
    }

    fn metrics_include_the_standard_process_metrics(server: Server) {
        let mut client = server.client();
        let seen = scrape(&mut client);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let started = seen.value("process_start_time_seconds");
        assert!((now - 3600.0..=now).contains(&started), "{started} {now}");
        assert!(seen.value("process_cpu_seconds_total") > 0.0);
        assert!(seen.value("process_resident_memory_bytes") > f64::from(1 << 20));
        assert!(seen.value("process_virtual_memory_bytes") >= seen.value("process_resident_memory_bytes"));
        let files = std::fs::read_dir(format!("/proc/{}/fd", server.process_id())).unwrap().count();
        assert!((seen.value("process_open_fds") - files as f64).abs() <= 10.0, "{files}");
        assert!(seen.value("process_max_fds") >= seen.value("process_open_fds"));
        let build = &seen.family("nouns_build_info").samples[0];
        assert_eq!((build.labels["version"].as_str(), build.value), (env!("CARGO_PKG_VERSION"), 1.0));
    }
}

/// One client with one request at a time: each has a commit of its own.
#[test]
fn metrics_count_commits_and_group_sizes() {
    let server = Server::on(Backend::Sqlite);
    let mut client = server.client();
    let before = scrape(&mut client);
    for _ in 0..20 {
        assert_eq!(client.request("POST /customers", &[], ANN).status, 201);
    }
    let after = scrape(&mut client);
    let grown = |name: &str| after.value(name) - before.value(name);
    assert_eq!(
        (
            grown("nouns_sqlite_commit_group_requests_count"),
            grown("nouns_sqlite_commit_group_requests_sum")
        ),
        (20.0, 20.0)
    );
    // The sweep commits too.
    assert!(grown("nouns_sqlite_commit_seconds_count") >= 20.0);
    assert!(grown("nouns_sqlite_commit_seconds_sum") > 0.0);
    assert_eq!(after.value("nouns_sqlite_writes_queued"), 0.0);
    assert!(after.value("nouns_sqlite_wal_pages") > 0.0);
    assert!(after.family("nouns_pool_wait_seconds").samples.is_empty(), "there is no pool");
}

/// A connection is opened on demand, kept in the pool, and lost when the database closes it.
#[test]
fn metrics_count_database_connections() {
    let server = Server::on(Backend::Postgres);
    let ann = server.create("/customers", ANN);
    let mut client = server.client();
    let before = scrape(&mut client);
    for _ in 0..20 {
        assert_eq!(client.request(&format!("GET {ann}"), &[], "").status, 200);
    }
    let after = scrape(&mut client);
    let grown = |name: &str| after.value(name) - before.value(name);
    // Each read has leased one, and so have the two scrapes; the sweep may have, too.
    assert!(grown("nouns_pool_wait_seconds_count") >= 21.0);
    assert!(after.value("nouns_pool_connections_opened_total") >= 1.0);
    let (open, idle) =
        (after.value("nouns_pool_connections_open"), after.value("nouns_pool_connections_idle"));
    assert!(open >= 1.0 && idle <= open, "{open} {idle}");
    wait_for_metric(&mut client, "nouns_pool_requests_queued", 0.0);
    let gone = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
    run_sql(Backend::Postgres, server.folder(), gone);
    wait_until("it is noticed", || {
        client.request(&format!("GET {ann}"), &[], "");
        Some(scrape(&mut client))
            .filter(|seen| seen.value("nouns_pool_connections_failed_total") >= 1.0)
    });
}

/// Group commit: requests that wait at the same time share a commit, and their number is the group's
/// size.
#[test]
fn metrics_group_commit_counts_as_one_commit() {
    let server = Server::on(Backend::Sqlite);
    let mut client = server.client();
    let before = scrape(&mut client);
    let (lock, mut writers) = send_blocked_writes(&server, 30, "POST /customers", ANN);
    // The writer thread has one of them, and waits for the lock.
    wait_for_metric(&mut client, "nouns_sqlite_writes_queued", 29.0);
    drop(lock);
    for writer in &mut writers {
        assert_eq!(writer.read_answer(false).status, 201);
    }
    let after = scrape(&mut client);
    let grown = |name: &str| after.value(name) - before.value(name);
    assert_eq!(after.value("nouns_sqlite_writes_queued"), 0.0);
    assert_eq!(grown("nouns_sqlite_commit_group_requests_sum"), 30.0);
    let groups = grown("nouns_sqlite_commit_group_requests_count");
    assert!((1.0..30.0).contains(&groups), "{groups}");
}

/// A WAL that has grown is checkpointed, and the checkpoint is timed.
#[test]
fn metrics_count_checkpoints() {
    let server = Server::on(Backend::Sqlite);
    let name = "x".repeat(200);
    let customers: Vec<String> =
        (0..1000).map(|_| format!(r#"{{"name":"{name}","email":"a@example.com"}}"#)).collect();
    let body = format!(r#"{{"customers":[{}]}}"#, customers.join(","));
    let mut client = server.client();
    assert_eq!(scrape(&mut client).value("nouns_sqlite_checkpoint_seconds_count"), 0.0);
    wait_until("there is a checkpoint", || {
        assert_eq!(client.request("POST /customers", &[], &body).status, 201);
        let count = scrape(&mut client).value("nouns_sqlite_checkpoint_seconds_count");
        (count > 0.0).then_some(())
    });
}
