//! Pagination during concurrent writes: no item that exists throughout and keeps its position is
//! skipped or repeated.
//!
//! Writers never touch some items, and only these are counted: their position in the order does not
//! change.
//! The writers do not stop until the last walk has ended, so that every page is read during writes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::harness::{Backend, Client, Setup, is_soak};

const MODEL: &str = r#"
title = "Under fire"
[resources.thing.fields]
name = { type = "text", filter = true }
rank = { type = "integer", filter = true }
price = { type = "decimal", filter = true, nullable = true }
is_new = { type = "boolean", filter = true }
at = { type = "timestamp", filter = true }
place = { type = "object", fields = { city = { type = "text", filter = true } } }
status = { type = "state", initial = "a", next = { a = ["b"], b = ["a"] } }
is_left_alone = { type = "boolean", required = true }
"#;

/// Every way to sort by one field, and some by several.
const ORDERS: &[&str] = &[
    "id",
    "-id",
    "name",
    "-name",
    "rank",
    "-rank",
    "price",
    "-price",
    "is_new",
    "-is_new",
    "at",
    "-at",
    "place.city",
    "-place.city",
    "status",
    "-status",
    "created_at",
    "-created_at",
    "updated_at",
    "-updated_at",
    "rank,-name",
    "-is_new,price,-at",
    "status,-rank,name,-id",
];

const WRITERS: usize = 8;
const READERS: usize = 4;

fn draft(chance: &mut SeededRandom, is_left_alone: bool) -> Value {
    let mut item = json!({"is_left_alone": is_left_alone});
    let number = chance.below(400);
    let mut set = |name: &str, value: Value| {
        if chance.below(5) > 0 {
            item[name] = value;
        }
    };
    set("name", json!(format!("{}{}", ["a", "é", "Z", "𝄞"][number % 4], number)));
    set("rank", json!(number % 7));
    set("price", json!(format!("{}.{:02}", number % 50, number % 100)));
    set("is_new", json!(number.is_multiple_of(2)));
    set("at", json!(format!("2026-11-15T02:{:02}:14Z", number % 60)));
    set("place", json!({"city": format!("c{}", number % 20)}));
    item
}

/// Creates items by one request; returns their ids.
fn create_items(client: &mut Client, drafts: &[Value]) -> Vec<String> {
    let answer = client.request("POST /things", &[], json!({"things": drafts}).to_string());
    assert_eq!(answer.status, 201, "{answer:?}");
    let items = answer.json();
    items["things"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect()
}

/// Inserts, changes and removes uncounted items until stopped; returns how often.
fn write_until_over(
    address: SocketAddr,
    seed: u64,
    mut own: Vec<String>,
    is_over: &AtomicBool,
) -> usize {
    let (mut chance, mut client) = (SeededRandom::new(seed), Client::connect(address));
    let mut writes = 0;
    while !is_over.load(Ordering::Relaxed) {
        let at = chance.below(own.len().max(1));
        match (chance.below(4), own.get(at)) {
            (0, _) | (_, None) => {
                let draft = draft(&mut chance, false);
                own.extend(create_items(&mut client, &[draft]));
            }
            (1, Some(id)) if own.len() > 200 => {
                let answer = client.request(&format!("DELETE /things/{id}"), &[], "");
                assert_eq!(answer.status, 204, "{answer:?}");
                own.swap_remove(at);
            }
            (_, Some(id)) => {
                let body = json!({"thing": draft(&mut chance, false)}).to_string();
                let answer = client.request(&format!("PUT /things/{id}"), &[], body);
                assert_eq!(answer.status, 200, "{answer:?}");
            }
        }
        writes += 1;
    }
    writes
}

/// One walk from the first page to the last; returns the number of pages.
fn walk_pages(client: &mut Client, order: &str, left_alone: &HashMap<String, usize>) -> usize {
    let mut seen = vec![0u8; left_alone.len()];
    let mut path = format!("/things?sort={order}&limit=500&fields=id");
    for pages in 1.. {
        let answer = client.request(&format!("GET {path}"), &[], "");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        for item in answer.json()["things"].as_array().unwrap() {
            if let Some(at) = left_alone.get(item["id"].as_str().unwrap()) {
                seen[*at] += 1;
            }
        }
        if let Some(link) = answer.header("Link") {
            path = link.strip_prefix('<').unwrap().split_once('>').unwrap().0.to_owned();
            continue;
        }
        let skipped = seen.iter().filter(|times| **times == 0).count();
        let doubled = seen.iter().filter(|times| **times > 1).count();
        assert_eq!((skipped, doubled), (0, 0), "skipped and doubled, sorted by {order}");
        return pages;
    }
    unreachable!("a list without an end")
}

/// Fills a collection, half of which the writers never touch, and walks every order during writes.
fn run(address: SocketAddr, seed: u64, items: usize, orders: &[&str]) {
    let mut chance = SeededRandom::new(seed);
    let mut client = Client::connect(address);
    let (mut left_alone, mut others) = (HashMap::new(), Vec::new());
    for _ in 0..items.div_ceil(1000) {
        // Both kinds are adjacent in every order.
        let drafts: Vec<Value> =
            (0..1000).map(|number| draft(&mut chance, number % 2 == 0)).collect();
        for (number, id) in create_items(&mut client, &drafts).into_iter().enumerate() {
            if number % 2 == 0 {
                left_alone.insert(id, left_alone.len());
            } else {
                others.push(id);
            }
        }
    }
    let (is_over, next, pages) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let failure = Mutex::new(None);
    let shares: Vec<Vec<String>> =
        (0..WRITERS).map(|at| others.iter().skip(at).step_by(WRITERS).cloned().collect()).collect();
    let writes: usize = thread::scope(|scope| {
        let (is_over, next, pages, left_alone, failure) =
            (&is_over, &next, &pages, &left_alone, &failure);
        let writers: Vec<_> = (0u64..)
            .zip(shares)
            .map(|(number, own)| {
                scope.spawn(move || write_until_over(address, seed ^ (number + 1), own, is_over))
            })
            .collect();
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    while let Some(order) = orders.get(next.fetch_add(1, Ordering::Relaxed)) {
                        pages.fetch_add(
                            walk_pages(&mut client, order, left_alone),
                            Ordering::Relaxed,
                        );
                    }
                })
            })
            .collect();
        for reader in readers {
            if let Err(panic) = reader.join() {
                failure.lock().unwrap().get_or_insert(panic);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    if let Some(panic) = failure.into_inner().unwrap() {
        std::panic::resume_unwind(panic);
    }
    let pages = pages.into_inner();
    println!(
        "under fire: {} items left alone of {items}, {} orders, {pages} pages, {writes} writes",
        left_alone.len(),
        orders.len()
    );
    assert!(writes >= orders.len(), "nobody wrote: {writes}");
}

on_every_backend! {
    fn pagination_during_writes_skips_and_repeats_nothing(backend: Backend) {
        let seed = print_seed("fire");
        let (runs, items) = if is_soak() { (20, 50_000) } else { (1, 4_000) };
        for number in 0..runs {
            let server = Setup::new(backend).model(MODEL).start();
            run(server.address, seed.wrapping_add(number), items, ORDERS);
        }
    }
}
