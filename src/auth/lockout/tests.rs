//! Tests of the lockout, with a clock that the test sets, and of the limit of delayed responses.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use proptest::prelude::*;
use tokio::runtime::Builder;

use super::*;
use crate::clock;
use crate::rate_window::{SETS, SHARDS, WAYS};

const ANN: &str = "ann";

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn fail(lockout: &Lockout, times: u32, name: &str, from: IpAddr, now: Instant) {
    for _ in 0..times {
        let _ = lockout.count_failure(name, from, now);
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn lockout_locks_a_pair_out_until_its_window_ends() {
    let now = clock::now();
    let lockout = Lockout::new(30, now);
    let (here, there) = (address("192.0.2.1"), address("192.0.2.2"));
    fail(&lockout, 29, ANN, here, now);
    assert_eq!(lockout.locked_out_for(ANN, here, now), None);
    fail(&lockout, 1, ANN, here, now + seconds(20));
    assert_eq!(lockout.locked_out_for(ANN, here, now + seconds(20)), Some(seconds(40)));
    assert_eq!(lockout.locked_out_for(ANN, there, now + seconds(20)), None, "another address");
    assert_eq!(lockout.locked_out_for("bob", here, now + seconds(20)), None, "another user");
    let last = now + Duration::from_millis(59_999);
    assert_eq!(lockout.locked_out_for(ANN, here, last), Some(Duration::from_millis(1)));
    assert_eq!(lockout.locked_out_for(ANN, here, now + seconds(60)), None);
    fail(&lockout, 1, ANN, here, now + seconds(60));
    assert_eq!(
        lockout.locked_out_for(ANN, here, now + seconds(60)),
        None,
        "a new minute begins at 1"
    );
}

#[test]
fn lockout_concurrent_failures_count_up_to_the_limit() {
    let now = clock::now();
    let lockout = Lockout::new(30, now);
    let here = address("192.0.2.1");
    let counted: usize = std::thread::scope(|scope| {
        let guess = || (0..20).filter(|_| lockout.count_failure(ANN, here, now).is_ok()).count();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(guess)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(counted, 30);
    assert_eq!(lockout.count_failure(ANN, here, now + seconds(20)), Err(seconds(40)));
}

#[test]
fn lockout_treats_an_ipv6_64_as_one_address() {
    let now = clock::now();
    let lockout = Lockout::new(2, now);
    fail(&lockout, 1, ANN, address("2001:db8::1"), now);
    fail(&lockout, 1, ANN, address("2001:db8::ffff:ffff:ffff:ffff"), now);
    assert!(lockout.locked_out_for(ANN, address("2001:db8::2"), now).is_some());
    assert!(lockout.locked_out_for(ANN, address("2001:db8:0:1::1"), now).is_none());
    fail(&lockout, 1, ANN, address("192.0.2.1"), now);
    fail(&lockout, 1, ANN, address("::ffff:192.0.2.1"), now);
    assert!(lockout.locked_out_for(ANN, address("192.0.2.1"), now).is_some());
}

#[test]
fn lockout_many_names_neither_grow_memory_nor_evict_locked_pairs() {
    let now = clock::now();
    let lockout = Lockout::new(30, now);
    let here = address("192.0.2.1");
    fail(&lockout, 30, ANN, here, now);
    fail(&lockout, 29, "bob", here, now);
    for name in 0..10_000 {
        fail(&lockout, 1, &name.to_string(), here, now + seconds(1));
    }
    // 1,000,000 names in 32,768 entries: every set of the set-associative table fills up and evicts many
    // times.
    for name in 0..1_000_000 {
        fail(&lockout, 1, &format!("{name}"), here, now + seconds(2));
    }
    assert!(lockout.locked_out_for(ANN, here, now + seconds(3)).is_some(), "still locked out");
    fail(&lockout, 1, "bob", here, now + seconds(3));
    assert!(lockout.locked_out_for("bob", here, now + seconds(3)).is_some(), "still counted");
    let pairs = lockout.failures.len(now + seconds(3));
    assert_eq!(pairs, SHARDS * SETS * WAYS, "all sets are full");
}

#[test]
fn lockout_evicts_pairs_whose_window_has_ended_first() {
    let now = clock::now();
    let lockout = Lockout::new(30, now);
    let here = address("192.0.2.1");
    for name in 0..200_000 {
        fail(&lockout, 1, &name.to_string(), here, now);
    }
    fail(&lockout, 30, ANN, here, now);
    let later = now + seconds(60);
    fail(&lockout, 29, "bob", here, later);
    assert!(lockout.locked_out_for(ANN, here, later).is_none());
    fail(&lockout, 1, "bob", here, later);
    assert!(lockout.locked_out_for("bob", here, later).is_some());
}

#[test]
fn lockout_clock_before_the_start_is_harmless() {
    let now = clock::now() + seconds(100);
    let lockout = Lockout::new(1, now);
    fail(&lockout, 1, ANN, address("192.0.2.1"), now - seconds(100));
    assert!(lockout.locked_out_for(ANN, address("192.0.2.1"), now).is_some());
}

#[test]
fn tarpit_limits_the_number_of_delayed_responses() {
    let now = clock::now();
    let lockout = Lockout::new(1, now);
    let slots = lockout.delays.try_acquire_many(u32::try_from(DELAYED_MAX).unwrap()).unwrap();
    let is_delayed = || {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut delay = pin!(lockout.delay(clock::now() + seconds(60)));
            let polled = poll_fn(|context| Poll::Ready(delay.as_mut().poll(context))).await;
            polled.is_pending()
        })
    };
    assert!(!is_delayed(), "the response is sent immediately");
    drop(slots);
    assert!(is_delayed());
    assert_eq!(lockout.delays.available_permits(), DELAYED_MAX);
}

proptest! {
    /// Compared with a plain counter, with few pairs: locked out exactly from the last allowed failure of a
    /// minute to its end.
    #[test]
    fn lockout_agrees_with_a_plain_counter(
        steps in proptest::collection::vec((0..4usize, 0..20_000u64), 1..200),
        failures_max in 1..6u32,
    ) {
        let names = ["ann", "bob", "", "é"];
        let here = address("192.0.2.1");
        let start = clock::now();
        let lockout = Lockout::new(failures_max, start);
        let mut plain = [(0u32, 0u64); 4];
        let mut now_ms = 0;
        for (name, passed_ms) in steps {
            now_ms += passed_ms;
            let now = start + Duration::from_millis(now_ms);
            let _ = lockout.count_failure(names[name], here, now);
            let (failures, over_at_ms) = &mut plain[name];
            if *over_at_ms <= now_ms {
                (*failures, *over_at_ms) = (0, now_ms + 60_000);
            }
            *failures += 1;
            for (name, (failures, over_at_ms)) in names.iter().zip(plain) {
                let left_ms = over_at_ms.saturating_sub(now_ms);
                let expected = (failures >= failures_max && left_ms > 0).then(|| Duration::from_millis(left_ms));
                prop_assert_eq!(lockout.locked_out_for(name, here, now), expected);
            }
        }
    }
}
