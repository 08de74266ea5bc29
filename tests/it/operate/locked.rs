//! Another process holds the database's write lock, or there is more to do than may be under way.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::ANN;
use crate::harness::{Answer, Backend, Client, Lock, Server, Setup, wait_until};

/// How long the server waits for another process's lock.
const LOCKED_MAX: Duration = Duration::from_secs(5);

/// Sends so many writes at once, each on its own connection; their answers come as they are given.
fn write_at_once(server: &Server, count: usize) -> mpsc::Receiver<Answer> {
    let (sender, answers) = mpsc::channel();
    for _ in 0..count {
        let (sender, address) = (sender.clone(), server.address);
        thread::spawn(move || {
            let answer = Client::connect(address).request("POST /customers", &[], ANN);
            // The test may have failed and gone.
            drop(sender.send(answer));
        });
    }
    answers
}

/// A server with this line in `[server.limits]`.
fn limited(backend: Backend, limit: &str) -> Server {
    let model = format!(
        "title = \"Narrow\"\n[server.limits]\n{limit}\n[resources.customer.fields]\n\
         name = {{ type = \"text\" }}\nemail = {{ type = \"email\" }}\n"
    );
    Setup::new(backend).model(&model).start()
}

fn names(server: &Server) -> usize {
    server.get("/customers").json()["customers"].as_array().unwrap().len()
}

on_every_backend! {
    /// Each of the writes that waited together waited five seconds for itself, one after another.
    fn writes_waited_for_a_foreign_lock_one_after_another(server: Server) {
        server.create("/customers", ANN);
        let lock = Lock::hold(&server);
        let began = Instant::now();
        let answers = write_at_once(&server, 6);
        // Reading goes on meanwhile, and says that it can.
        assert_eq!(names(&server), 1);
        assert_eq!(server.get("/-/ready").status, 200);
        assert!(began.elapsed() < LOCKED_MAX, "reads waited {:?}", began.elapsed());
        for answer in answers {
            assert_eq!((answer.status, answer.problem().as_str()), (503, "unavailable"), "{answer:?}");
            assert_eq!(answer.header("Retry-After"), Some("1"));
            assert!(!answer.text().contains("lock"), "the cause is for the log alone: {answer:?}");
        }
        let took = began.elapsed();
        assert!(took >= LOCKED_MAX && took < LOCKED_MAX * 2, "{took:?}");
        wait_until("the log says why", || server.log().contains("another process has locked the database").then_some(()));
        drop(lock);
        server.create("/customers", ANN);
        assert_eq!(names(&server), 2, "what was refused was not done later");
    }

    /// What has not begun by then never will: the client may have sent it again.
    fn a_write_that_waits_too_long_is_given_up(backend: Backend) {
        let server = limited(backend, "request_seconds_max = 1");
        let lock = Lock::hold(&server);
        let began = Instant::now();
        let answer = server.post("/customers", ANN);
        assert_eq!((answer.status, answer.problem().as_str()), (503, "timed-out"));
        assert_eq!(answer.header("Retry-After"), Some("1"));
        assert!(began.elapsed() >= Duration::from_secs(1) && began.elapsed() < LOCKED_MAX, "{:?}", began.elapsed());
        drop(lock);
        server.create("/customers", ANN);
        assert_eq!(names(&server), 1);
    }

    /// One request works, one waits, and the rest are told to come back, at once.
    fn the_gate_is_full(backend: Backend) {
        let server = limited(backend, "requests_max = 1");
        server.create("/customers", ANN);
        let lock = Lock::hold(&server);
        let began = Instant::now();
        let answers = write_at_once(&server, 3);
        let refused = answers.recv().unwrap();
        assert_eq!((refused.status, refused.problem().as_str()), (503, "busy"));
        assert_eq!(refused.header("Retry-After"), Some("1"));
        // Now one is at work and one waits, until the lock is gone.
        for _ in 0..3 {
            assert_eq!(server.get("/customers").problem(), "busy");
            assert_eq!(server.post("/customers", ANN).problem(), "busy");
            // What needs no data needs no place.
            assert_eq!(server.get("/").status, 200);
            assert_eq!(server.get("/-/health").status, 200);
        }
        assert!(began.elapsed() < LOCKED_MAX, "they waited {:?}", began.elapsed());
        drop(lock);
        let done: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(done, [201, 201]);
        assert_eq!(names(&server), 3);
    }
}
