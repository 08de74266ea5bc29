//! Tests of the fair queue by itself: jobs are names, the time is given.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::clock;

fn at(address: &str) -> HashPriority {
    HashPriority::Unauthenticated(address.parse().unwrap())
}

/// All jobs in the queue, in their order.
fn turns<J: PartialEq + std::fmt::Debug>(line: &mut FairQueue<J>, now: Instant) -> Vec<J> {
    let mut turns = Vec::new();
    while let NextJob::Run(job) = line.next(now) {
        turns.push(job);
    }
    assert_eq!(line.next(now), NextJob::Idle);
    turns
}

#[test]
fn fair_queue_alternates_addresses_and_authenticated_go_first() {
    let mut line = FairQueue::new();
    for job in ["a1", "a2", "a3"] {
        line.enqueue(at("192.0.2.1"), job).unwrap();
    }
    line.enqueue(at("192.0.2.2"), "b1").unwrap();
    line.enqueue(at("2001:db8::1"), "c1").unwrap();
    line.enqueue(at("192.0.2.2"), "b2").unwrap();
    line.enqueue(HashPriority::Authenticated, "admin").unwrap();
    assert_eq!(line.len(), 7);
    assert_eq!(turns(&mut line, clock::now()), ["admin", "a1", "b1", "c1", "a2", "b2", "a3"]);
}

#[test]
fn fair_queue_treats_an_ipv6_64_as_one_address() {
    let mut line = FairQueue::new();
    for (address, job) in [
        ("2001:db8::1", "a1"),
        ("2001:db8::ffff:2", "a2"),
        ("2001:db8:0:1::1", "b1"),
        ("192.0.2.1", "c1"),
        ("::ffff:192.0.2.1", "c2"),
    ] {
        line.enqueue(at(address), job).unwrap();
    }
    assert_eq!(turns(&mut line, clock::now()), ["a1", "b1", "c1", "a2", "c2"]);
}

#[test]
fn fair_queue_full_evicts_the_last_job_of_the_longest_address() {
    let mut line = FairQueue::new();
    for job in 0..WAITING_MAX {
        line.enqueue(at("192.0.2.1"), job).unwrap();
    }
    assert_eq!(line.enqueue(at("192.0.2.1"), 1000), Err(HasherBusy));
    line.enqueue(at("192.0.2.2"), 2000).unwrap();
    line.enqueue(HashPriority::Authenticated, 3000).unwrap();
    assert_eq!(line.len(), WAITING_MAX + 1);
    let turns = turns(&mut line, clock::now());
    assert_eq!(turns[..4], [3000, 0, 2000, 1]);
    assert!(!turns.contains(&(WAITING_MAX - 1)) && turns.contains(&(WAITING_MAX - 2)));
}

#[test]
fn fair_queue_authenticated_have_their_own_limit() {
    let mut line = FairQueue::new();
    for _ in 0..WAITING_MAX {
        line.enqueue(HashPriority::Authenticated, "admin").unwrap();
    }
    assert_eq!(line.enqueue(HashPriority::Authenticated, "admin"), Err(HasherBusy));
    line.enqueue(at("192.0.2.1"), "ann").unwrap();
}

#[test]
fn fair_queue_pauses_after_a_wrong_password_but_not_for_authenticated() {
    let (mut line, began) = (FairQueue::new(), clock::now());
    let ended = began + Duration::from_millis(20);
    line.enqueue(at("192.0.2.1"), "ann").unwrap();
    line.start_cooldown(began, ended);
    assert_eq!(line.next(ended), NextJob::CoolDown(Duration::from_millis(60)));
    assert_eq!(
        line.next(ended + Duration::from_millis(59)),
        NextJob::CoolDown(Duration::from_millis(1))
    );
    line.enqueue(HashPriority::Authenticated, "admin").unwrap();
    assert_eq!(line.next(ended), NextJob::Run("admin"));
    assert_eq!(line.next(ended + Duration::from_millis(60)), NextJob::Run("ann"));
    assert_eq!(line.next(ended), NextJob::Idle);
}

#[test]
fn fair_queue_close_drops_all_jobs() {
    let mut line = FairQueue::new();
    line.enqueue(at("192.0.2.1"), "ann").unwrap();
    line.close();
    assert_eq!((line.len(), line.next(clock::now())), (0, NextJob::End));
    assert_eq!(line.enqueue(HashPriority::Authenticated, "admin"), Err(HasherBusy));
}

proptest! {
    /// For any sequence of arrivals: the queue stays short, no job runs twice, each address keeps its order,
    /// and between two jobs of one address every other address has had a turn.
    #[test]
    fn fair_queue_stays_short_and_fair(arrivals in proptest::collection::vec(0..12u8, 0..300)) {
        let mut line = FairQueue::new();
        for (job, from) in arrivals.iter().enumerate() {
            let _ = line.enqueue(at(&format!("192.0.2.{from}")), (*from, job));
            prop_assert!(line.len() <= WAITING_MAX);
        }
        let turns = turns(&mut line, clock::now());
        prop_assert_eq!(turns.len(), arrivals.len().min(WAITING_MAX));
        let mut last: HashMap<u8, (usize, usize)> = HashMap::new();
        for (turn, (from, job)) in turns.iter().enumerate() {
            if let Some((turn_before, job_before)) = last.insert(*from, (turn, *job)) {
                prop_assert!(job_before < *job);
                let between: Vec<_> = turns[turn_before + 1..turn].iter().map(|(from, _)| from).collect();
                let others: HashSet<_> = turns[turn..].iter().map(|(from, _)| from).filter(|other| *other != from).collect();
                prop_assert!(others.iter().all(|other| between.contains(other)));
            }
        }
    }
}
