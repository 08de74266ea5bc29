//! A foreign write lock on the database, and more requests than may be in flight.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::ANN;
use crate::harness::{Answer, Backend, Client, ForeignLock, Server, Setup, Stopwatch, wait_until};

/// How long the server waits for another process's lock.
const LOCKED_MAX: Duration = Duration::from_secs(5);

/// Sends this many writes concurrently, each on its own connection; returns their responses as they
/// arrive.
fn write_concurrently(server: &Server, count: usize) -> mpsc::Receiver<Answer> {
    let (sender, answers) = mpsc::channel();
    for _ in 0..count {
        let (sender, address) = (sender.clone(), server.address);
        thread::spawn(move || {
            let answer = Client::connect(address).request("POST /customers", &[], ANN);
            // The test may have failed already.
            drop(sender.send(answer));
        });
    }
    answers
}

/// A server with this line in `[server.limits]`.
fn start_limited(backend: Backend, limit: &str) -> Server {
    let model = format!(
        "title = \"Narrow\"\n[server.limits]\n{limit}\n[resources.customer.fields]\n\
         name = {{ type = \"text\" }}\nemail = {{ type = \"email\" }}\n"
    );
    Setup::new(backend).model(&model).start()
}

/// One request executes, one waits, and the rest are refused. Returns false when the machine was so slow that the
/// writer may have given up waiting for the lock.
fn exceed_the_admission_limit(backend: Backend) -> bool {
    // On PostgreSQL the wait for a lock is limited like a statement.
    let server = start_limited(backend, "requests_max = 1\nstatement_seconds_max = 60");
    server.create("/customers", ANN);
    let lock = ForeignLock::hold(&server);
    let (began, waited) = (Stopwatch::start(), Instant::now());
    let is_late = || ForeignLock::may_have_timed_out(backend, waited);
    let answers = write_concurrently(&server, 3);
    let refused = answers.recv().unwrap();
    if is_late() {
        return false;
    }
    assert_eq!((refused.status, refused.problem().as_str()), (503, "busy"));
    assert_eq!(refused.header("Retry-After"), Some("1"));
    // Now one executes and one waits, until the lock is released.
    for _ in 0..3 {
        let (read, write) = (server.get("/customers"), server.post("/customers", ANN));
        if is_late() {
            return false;
        }
        assert_eq!((read.problem().as_str(), write.problem().as_str()), ("busy", "busy"));
        // Requests that need no data need no admission.
        assert_eq!(server.get("/").status, 200);
        assert_eq!(server.get("/-/health").status, 200);
    }
    let took = began.elapsed();
    drop(lock);
    let done: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    if is_late() {
        return false;
    }
    assert!(took < LOCKED_MAX, "they waited {took:?}");
    assert_eq!(done, [201, 201]);
    assert_eq!(names(&server), 3);
    true
}

/// The number of customers. With a deadline of one second, a busy machine may need several requests.
fn names(server: &Server) -> usize {
    let list = wait_until("the list is not refused", || {
        Some(server.get("/customers")).filter(|answer| answer.status != 503)
    });
    list.json()["customers"].as_array().unwrap().len()
}

on_every_backend! {
    /// Regression: writes that waited at the same time each waited five seconds, one after another.
    fn foreign_lock_all_waiting_writes_time_out_together(server: Server) {
        server.create("/customers", ANN);
        let lock = ForeignLock::hold(&server);
        let (began, waited) = (Stopwatch::start(), Instant::now());
        let answers = write_concurrently(&server, 6);
        // Reads still succeed, and the readiness check says so.
        assert_eq!(names(&server), 1);
        assert_eq!(server.get("/-/ready").status, 200);
        assert!(began.elapsed() < LOCKED_MAX, "reads waited {:?}", began.elapsed());
        for answer in answers {
            assert_eq!((answer.status, answer.problem().as_str()), (503, "unavailable"), "{answer:?}");
            assert_eq!(answer.header("Retry-After"), Some("1"));
            assert!(!answer.text().contains("lock"), "the cause is for the log alone: {answer:?}");
        }
        let took = began.elapsed();
        // One after another they take six times as long.
        assert!(waited.elapsed() >= LOCKED_MAX && took < LOCKED_MAX * 4, "{took:?}");
        wait_until("the log says why", || server.log().contains("another process has locked the database").then_some(()));
        drop(lock);
        server.create("/customers", ANN);
        assert_eq!(names(&server), 2, "what was refused was not done later");
    }

    /// A write that has not begun by then never will: the client may have retried it.
    fn write_queued_beyond_its_deadline_is_dropped(backend: Backend) {
        let server = start_limited(backend, "request_seconds_max = 1");
        let lock = ForeignLock::hold(&server);
        // The deadline also limits the opening of a connection to PostgreSQL.
        let (answer, began, waited) = wait_until("the database has the write", || {
            let (began, waited) = (Stopwatch::start(), Instant::now());
            let answer = server.post("/customers", ANN);
            let is_unavailable = answer.status == 503 && answer.problem() == "unavailable";
            let is_sent = backend == Backend::Sqlite || !is_unavailable;
            is_sent.then_some((answer, began, waited))
        });
        assert_eq!((answer.status, answer.problem().as_str()), (503, "timed-out"));
        assert_eq!(answer.header("Retry-After"), Some("1"));
        assert!(waited.elapsed() >= Duration::from_secs(1), "{:?}", waited.elapsed());
        assert!(began.elapsed() < LOCKED_MAX, "{:?}", began.elapsed());
        drop(lock);
        // A machine that is busy with something else may need more than the second it has, also while it commits.
        let mut unknown = 0;
        wait_until("a write succeeds", || {
            let answer = server.post("/customers", ANN);
            if answer.status == 201 {
                return Some(());
            }
            let problem = answer.problem();
            assert!(["timed-out", "outcome-unknown"].contains(&&*problem), "{answer:?}");
            unknown += usize::from(problem == "outcome-unknown");
            None
        });
        assert!((1..=1 + unknown).contains(&names(&server)), "{unknown} outcomes are unknown");
    }

    /// One request executes, one waits, and the rest are refused at once (load shedding).
    fn admission_limit_reached_sheds_load(backend: Backend) {
        let is_conclusive = (0..20).any(|_| exceed_the_admission_limit(backend));
        assert!(is_conclusive, "the machine was too slow each time");
    }
}
