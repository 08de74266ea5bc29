//! The thread: whoever waits for it, and how it ends. What it does next is `line`'s to show.

use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::*;

const HERE: Who = Who::Unproved(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Begins a piece of work that goes on until the sender it returns is used; when it returns, the thread
/// is at work.
fn busy(hasher: &Arc<Hasher>) -> (mpsc::Sender<Wrong>, JoinHandle<Result<(), Full>>) {
    let (begun, has_begun) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let hasher = Arc::clone(hasher);
    let asker = thread::spawn(move || {
        runtime().block_on(hasher.run(Who::Proved, move || {
            begun.send(()).unwrap();
            ((), ended.recv().unwrap_or(Wrong::No))
        }))
    });
    has_begun.recv().unwrap();
    (end, asker)
}

#[test]
fn work_is_done_on_the_one_thread_and_its_result_comes_back() {
    let hasher = Hasher::start().unwrap();
    let name = || (thread::current().name().map(str::to_owned), Wrong::No);
    let names = [0; 3].map(|_| runtime().block_on(hasher.run(HERE, name)).unwrap());
    assert!(names.iter().all(|name| name.as_deref() == Some("nouns-hasher")), "{names:?}");
}

#[test]
fn work_whose_asker_has_gone_is_not_done() {
    let hasher = Arc::new(Hasher::start().unwrap());
    let (end, asker) = busy(&hasher);
    let (done, is_done) = mpsc::channel();
    {
        let done = done.clone();
        let mut gone = pin!(hasher.run(HERE, move || (done.send("gone").unwrap(), Wrong::No)));
        let polled = gone.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending));
        assert_eq!(hasher.waiting(), 1);
    }
    end.send(Wrong::No).unwrap();
    asker.join().unwrap().unwrap();
    runtime().block_on(hasher.run(HERE, move || (done.send("here").unwrap(), Wrong::No))).unwrap();
    assert_eq!(is_done.iter().collect::<Vec<_>>(), ["here"]);
}

#[test]
fn a_panic_is_the_askers_and_the_thread_goes_on() {
    let hasher = Hasher::start().unwrap();
    let asked = AssertUnwindSafe(|| {
        runtime().block_on(hasher.run(HERE, || -> ((), Wrong) { panic!("planted") }))
    });
    let panic = catch_unwind(asked).unwrap_err();
    assert_eq!(crate::fault::words(&*panic), "panic: planted");
    assert_eq!(runtime().block_on(hasher.run(HERE, || (7, Wrong::No))), Ok(7));
}

#[test]
fn at_the_end_those_who_wait_are_told_and_the_thread_ends() {
    let hasher = Arc::new(Hasher::start().unwrap());
    let (end, asker) = busy(&hasher);
    let shared = Arc::clone(&hasher.shared);
    let mut waits = Box::pin({
        let hasher = Arc::clone(&hasher);
        async move { hasher.run(HERE, || ((), Wrong::No)).await }
    });
    assert!(matches!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    shared.line().close();
    end.send(Wrong::No).unwrap();
    asker.join().unwrap().unwrap();
    assert_eq!(runtime().block_on(waits), Err(Full));
    assert_eq!(runtime().block_on(hasher.run(HERE, || ((), Wrong::No))), Err(Full));
    // Ends only when the thread does.
    drop(Arc::into_inner(hasher).expect("nobody else holds it"));
}

/// By the clock, so only a lower bound: a busy machine makes it longer, never shorter.
#[test]
fn after_a_wrong_one_it_rests_three_times_as_long() {
    let hasher = Hasher::start().unwrap();
    let run = runtime();
    let slow = || {
        let began = clock::now();
        thread::sleep(Duration::from_millis(20));
        ((began, began.elapsed()), Wrong::Yes)
    };
    let (began, took) = run.block_on(hasher.run(HERE, slow)).unwrap();
    let next = run.block_on(hasher.run(HERE, || (clock::now(), Wrong::No))).unwrap();
    assert!(next >= began + took * 4, "{:?} {took:?}", next - began);
}
