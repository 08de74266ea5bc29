//! Tests of the hasher's thread: its callers, and its end. The tests of `fair_queue` cover the order of
//! jobs.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::*;

const HERE: HashPriority = HashPriority::Unauthenticated(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Starts a job that runs until the returned sender is used; returns when the thread is busy with it.
fn busy(hasher: &Arc<Hasher>) -> (mpsc::Sender<WrongPassword>, JoinHandle<Result<(), HasherBusy>>) {
    let (begun, has_begun) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let hasher = Arc::clone(hasher);
    let asker = thread::spawn(move || {
        runtime().block_on(hasher.run(HashPriority::Authenticated, move || {
            begun.send(()).unwrap();
            ((), ended.recv().unwrap_or(WrongPassword::No))
        }))
    });
    has_begun.recv().unwrap();
    (end, asker)
}

#[test]
fn hasher_runs_jobs_on_its_thread_and_returns_the_result() {
    let hasher = Hasher::start().unwrap();
    let name = || (thread::current().name().map(str::to_owned), WrongPassword::No);
    let names = [0; 3].map(|_| runtime().block_on(hasher.run(HERE, name)).unwrap());
    assert!(names.iter().all(|name| name.as_deref() == Some("nouns-hasher")), "{names:?}");
}

#[test]
fn hasher_skips_jobs_whose_caller_has_disconnected() {
    let hasher = Arc::new(Hasher::start().unwrap());
    let (end, asker) = busy(&hasher);
    let (done, is_done) = mpsc::channel();
    {
        let done = done.clone();
        let mut gone =
            pin!(hasher.run(HERE, move || (done.send("gone").unwrap(), WrongPassword::No)));
        let polled = gone.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending));
        assert_eq!(hasher.waiting(), 1);
    }
    end.send(WrongPassword::No).unwrap();
    asker.join().unwrap().unwrap();
    runtime()
        .block_on(hasher.run(HERE, move || (done.send("here").unwrap(), WrongPassword::No)))
        .unwrap();
    assert_eq!(is_done.iter().collect::<Vec<_>>(), ["here"]);
}

#[test]
fn hasher_panic_resumes_in_the_caller_and_the_thread_survives() {
    let hasher = Hasher::start().unwrap();
    let asked = AssertUnwindSafe(|| {
        runtime().block_on(hasher.run(HERE, || -> ((), WrongPassword) { panic!("planted") }))
    });
    let panic = catch_unwind(asked).unwrap_err();
    assert_eq!(crate::fault::panic_message(&*panic), "panic: planted");
    assert_eq!(runtime().block_on(hasher.run(HERE, || (7, WrongPassword::No))), Ok(7));
}

#[test]
fn hasher_drop_refuses_waiting_jobs_and_joins_the_thread() {
    let hasher = Arc::new(Hasher::start().unwrap());
    let (end, asker) = busy(&hasher);
    let shared = Arc::clone(&hasher.shared);
    let mut waits = Box::pin({
        let hasher = Arc::clone(&hasher);
        async move { hasher.run(HERE, || ((), WrongPassword::No)).await }
    });
    assert!(matches!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    shared.lock_queue().close();
    end.send(WrongPassword::No).unwrap();
    asker.join().unwrap().unwrap();
    assert_eq!(runtime().block_on(waits), Err(HasherBusy));
    assert_eq!(runtime().block_on(hasher.run(HERE, || ((), WrongPassword::No))), Err(HasherBusy));
    // Returns only when the thread ends.
    drop(Arc::into_inner(hasher).expect("nobody else holds it"));
}

/// Measured by the clock, so only as a lower bound: a busy machine makes the pause longer, never shorter.
#[test]
fn hasher_pauses_three_times_as_long_after_a_wrong_password() {
    let hasher = Hasher::start().unwrap();
    let run = runtime();
    let slow = || {
        let began = clock::now();
        thread::sleep(Duration::from_millis(20));
        ((began, began.elapsed()), WrongPassword::Yes)
    };
    let (began, took) = run.block_on(hasher.run(HERE, slow)).unwrap();
    let next = run.block_on(hasher.run(HERE, || (clock::now(), WrongPassword::No))).unwrap();
    assert!(next >= began + took * 4, "{:?} {took:?}", next - began);
}
