//! What a request costs, in one run beside a bare hyper server that sends the same bytes.
//!
//! `cargo run --release -p bench` starts everything, measures each case several times in turn, and
//! prints medians as ratios to the bare server: absolute times say more about the machine than
//! about the program. CPU per request comes from the kernel's accounting of the server's process, so
//! it hardly moves when others use the machine.

#![expect(clippy::print_stdout, reason = "a table on standard output is what it is for")]
#![expect(clippy::disallowed_methods, reason = "it measures by the real clock")]

mod bare;
mod load;
mod process;
mod report;
mod store;

use std::path::PathBuf;
use std::time::Duration;

use load::{Load, Shot};
use process::Server;
use report::{Figure, Row};

/// How long one measurement takes, and how often each is made.
const RUN: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["bare", reply] => bare::serve(PathBuf::from(reply)),
        [] => measure(1_000_000),
        ["--quick"] => measure(20_000),
        _ => Err("usage: bench [--quick]".into()),
    }
}

/// Measures every case, the servers in turn.
fn measure(rows_large: usize) -> Result<()> {
    let nouns = process::build()?;
    let folder = process::Folder::new()?;
    let small = store::fill(&nouns, &folder.0.join("small"), 10_000)?;
    let large = store::fill(&nouns, &folder.0.join("large"), rows_large)?;

    let server = small.serve(&nouns)?;
    let sample = load::one(&server, &Shot::get(&small.item()))?;
    let bare = Server::bare(&folder.0, &sample)?;
    let big = large.serve(&nouns)?;
    let cases: Vec<(&str, &Server, usize, Vec<Shot>)> = vec![
        ("bare hyper", &bare, 32, vec![Shot::get("/")]),
        ("GET by id, 10,000 rows", &server, 32, small.gets()),
        ("GET by id, all rows", &big, 32, large.gets()),
        ("list of 20", &server, 32, vec![Shot::get("/customers?limit=20")]),
        ("durable create, 32 connections", &server, 32, vec![store::create()]),
        ("durable create, 64 connections", &server, 64, vec![store::create()]),
        ("PUT, 32 connections", &server, 32, small.puts()),
        ("PUT, 64 connections", &server, 64, small.puts()),
    ];
    let mut rows: Vec<Row> = cases.iter().map(|(name, ..)| Row::new(name)).collect();
    for round in 0..ROUNDS {
        for ((_, server, connections, shots), row) in cases.iter().zip(&mut rows) {
            let before = server.cpu()?;
            let load = Load { connections: *connections, time: RUN, shots, first: round * 7_919 };
            let done = load.run(server.address)?;
            let cpu = server.cpu()? - before;
            row.figures.push(Figure { cpu, done });
        }
    }
    report::print(&rows);
    println!("\nmemory after it: {:.1} MB", server.memory_bytes()? as f64 / 1e6);
    drop(server);
    let first_answer = store::first_answer(&nouns, &small)?;
    println!("first answer after start, on {} rows: {first_answer:.1?}", small.rows);
    Ok(())
}
