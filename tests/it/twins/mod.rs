//! Differential tests of the backends: both get the same random requests, and must give the same
//! responses to the byte.
//!
//! `NOUNS_SOAK=1` sends 200 sequences in place of ten. A failure prints the seed of its sequence, which
//! `NOUNS_SEED` makes the first one of a run, and the shortest failing sequence that was found.
//! The test also compares the change logs, which no response shows.

mod request_template;
mod generate;
mod integer_ids;
mod pair;
mod queries;
mod shrink;
mod values;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use self::generate::RequestGenerator;
use self::pair::{BackendPair, ResponseDifference};
use self::request_template::RequestTemplate;
use self::shrink::shrink;
use crate::durability::seeded_random::print_seed;
use crate::harness::{Backend, Setup, is_soak};

const MODEL: &str = include_str!("model.toml");
const REQUESTS: usize = 300;
const CONCURRENT_PAIRS: usize = 2;

/// How often each status was returned.
type Statuses = BTreeMap<u16, usize>;

fn sequences() -> usize {
    if is_soak() { 200 } else { 10 }
}

/// One sequence, and the difference it found.
#[derive(Debug)]
struct SequenceRun {
    requests: Vec<RequestTemplate>,
    statuses: Statuses,
    difference: Option<ResponseDifference>,
}

fn run(seed: u64, setups: &[Setup; 2]) -> SequenceRun {
    let mut generator = RequestGenerator::new(seed, MODEL);
    let mut pair = BackendPair::new(setups);
    let mut run = SequenceRun { requests: Vec::new(), statuses: Statuses::new(), difference: None };
    for number in 0..REQUESTS {
        let ask = generator.next_request(number);
        run.requests.push(ask.clone());
        match pair.send_to_both(&ask) {
            Ok(answer) => {
                *run.statuses.entry(answer.status).or_default() += 1;
                generator.learn(&ask, &answer, pair.learned());
            }
            Err(difference) => return SequenceRun { difference: Some(difference), ..run },
        }
    }
    let lists = generator.final_lists(REQUESTS);
    run.requests.extend(lists.iter().cloned());
    let found = lists.iter().find_map(|ask| pair.send_to_both(ask).err());
    run.difference = found.or_else(|| pair.compare_logs().err());
    run
}

/// The message of a failure.
fn describe(seed: u64, run: SequenceRun, setups: &[Setup; 2]) -> String {
    let requests = run.requests.len();
    match shrink(run.requests, setups) {
        Some((count, text)) => {
            format!(
                "NOUNS_SEED={seed}: the answers differ; shrunk from {requests} to {count} requests:\n{text}"
            )
        }
        None => format!(
            "NOUNS_SEED={seed}: the answers differed once, and not again: {:#?}",
            run.difference.map(|difference| difference.answers)
        ),
    }
}

#[test]
fn backends_give_equal_responses_to_random_requests() {
    let seed = print_seed("twins");
    let setups =
        [Backend::Sqlite, Backend::Postgres].map(|backend| Setup::new(backend).model(MODEL));
    let (next, count, statuses) = (AtomicUsize::new(0), sequences(), Mutex::new(Statuses::new()));
    let one_after_another = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        for number in numbers.take_while(|number| *number < count) {
            let seed = seed.wrapping_add(u64::try_from(number).unwrap());
            let run = run(seed, &setups);
            if run.difference.is_some() {
                next.store(count, Ordering::Relaxed);
                return Err(describe(seed, run, &setups));
            }
            let mut all = statuses.lock().unwrap();
            run.statuses
                .iter()
                .for_each(|(status, times)| *all.entry(*status).or_default() += times);
        }
        Ok(())
    };
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..CONCURRENT_PAIRS).map(|_| scope.spawn(one_after_another)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for result in results {
        if let Err(message) = result {
            panic!("{message}");
        }
    }
    let statuses = statuses.into_inner().unwrap();
    println!("twins: {count} sequences of {REQUESTS} requests; answers by status: {statuses:?}");
    assert!(statuses[&201] > 10 * count && statuses[&409] > 3 * count, "{statuses:?}");
}

/// Two backends that differ: one of them accepts a unique value twice.
#[test]
fn backends_planted_difference_is_found_and_shrunk() {
    let other = MODEL.replace(r#"max_length = 12, unique = true }"#, r#"max_length = 12 }"#);
    assert_ne!(MODEL, other);
    let setups = [MODEL, &other].map(|model| Setup::new(Backend::Sqlite).model(model));
    // Fixed seeds: how far a sequence can be shrunk depends on its references.
    let (seed, run) = (1..20)
        .map(|seed| (seed, run(seed, &setups)))
        .find(|(_, run)| run.difference.is_some())
        .expect("20 sequences without a name that is taken");
    let asked = run.requests.len();
    let (count, text) = shrink(run.requests, &setups).expect("it differs again");
    println!("planted: NOUNS_SEED={seed}: shrunk from {asked} to {count} requests:\n{text}");
    assert!(
        count <= 10 && count < asked,
        "two creates, and what they refer to, are enough:\n{text}"
    );
    assert!(
        text.contains("POST /users HTTP/1.1\n") && text.contains("/-/problems/taken"),
        "{text}"
    );
}
