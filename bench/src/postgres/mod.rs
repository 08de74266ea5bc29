//! PostgreSQL: the server compared with a client that runs the same statements and nothing else.
//!
//! `tests/with-postgres` starts the database, with fsync on.
//! CPU is the server's own; PostgreSQL's own CPU is in neither figure, and shows in the throughput
//! alone.

mod raw;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Result;
use crate::cases::{ROWS, RUN, list_request};
use crate::load_generator::Client;
use crate::process::{self, Server};
use crate::report::{self, BenchmarkCase, Target, median};
use crate::store;
pub use raw::{RawStatement, run as run_raw};

/// A PostgreSQL server that is stopped on drop.
#[derive(Debug)]
pub struct PostgresServer {
    script: Child,
    pub address: String,
}

impl PostgresServer {
    pub fn start() -> Result<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/with-postgres");
        let show = r#"psql -qX "$NOUNS_TEST_POSTGRES/postgres" -c "CREATE DATABASE bench" && echo "$NOUNS_TEST_POSTGRES/bench"; exec cat"#;
        let mut command = Command::new(script);
        command.args(["--durable", "sh", "-c", show]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = command.spawn()?;
        let mut address = String::new();
        let output = keeper.stdout.as_mut().ok_or("no output")?;
        BufReader::new(output).read_line(&mut address)?;
        Ok(Self { script: keeper, address: address.trim().to_owned() })
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

pub fn run() -> Result<()> {
    let nouns = process::build_dist()?;
    let folder = process::Folder::new()?;
    let database = PostgresServer::start()?;
    let filled = store::fill_at(&nouns, &folder.0.join("bench"), ROWS, &database.address)?;
    let server = filled.serve(&nouns)?;
    let sample = Client::connect(server.address)?.send(&filled.item_request())?.to_owned();
    let bare = Server::start_baseline(&folder.0, &sample)?;
    let case = BenchmarkCase::new;
    let cases = [
        case("bare hyper", &bare, 32, [crate::load_generator::RequestTemplate::get("/")].into()),
        case("GET by id", &server, 32, filled.get_requests(usize::MAX)),
        case("list of 20", &server, 32, [list_request()].into()),
        case("durable create, 32 connections", &server, 32, store::create_requests()),
        case("durable create, 64 connections", &server, 64, store::create_requests()),
        case("PUT, 32 connections", &server, 32, filled.put_requests(usize::MAX)),
    ];
    let [bare, get, _, create, ..] = &cases;
    // First, and reads before writes: after writes, autovacuum takes CPU time from whatever is measured
    // then.
    let alone = |kind| measure_raw_client(&folder.0, &database.address, kind);
    let [select, insert, insert_all] =
        [RawStatement::Select, RawStatement::Insert, RawStatement::InsertBatch];
    let reading = CpuOverClient::measure((bare, get), || Ok([alone(select)?]))?;
    let writing =
        CpuOverClient::measure((bare, create), || Ok([alone(insert)?, alone(insert_all)?]))?;
    report::print(&report::measure(&cases, RUN)?);
    println!("memory after it {:.1} MB", server.memory_bytes()? as f64 / 1e6);
    reading.print("GET by id", ["select"]);
    writing.print("create", ["insert", "insert of eight rows, for each"]);
    let ([get], [create, create_of_eight]) = (reading.medians(), writing.medians());
    report::judge(&[
        ("GET by id, CPU above the client's, ratio to bare", get, Target::AtMost(2.0)),
        ("create, CPU above the client's, ratio to bare", create, Target::AtMost(3.0)),
        ("create, above a client that writes eight at once", create_of_eight, Target::AtMost(3.0)),
    ]);
    Ok(())
}

/// How often all are measured, one after the other, so that other load on the machine affects them
/// alike.
const ROUNDS: usize = 9;

/// The server's CPU per request beyond that of clients that run the same statements, in microseconds.
#[derive(Debug)]
struct CpuOverClient<const CLIENTS: usize>(Vec<CpuRound<CLIENTS>>);

#[derive(Debug)]
struct CpuRound<const CLIENTS: usize> {
    bare: f64,
    server: f64,
    clients: [f64; CLIENTS],
}

impl<const CLIENTS: usize> CpuOverClient<CLIENTS> {
    fn measure(
        (bare, server): (&BenchmarkCase<'_>, &BenchmarkCase<'_>),
        clients: impl Fn() -> Result<[f64; CLIENTS]>,
    ) -> Result<Self> {
        let round = |round| {
            let (bare, server) = (bare.cpu_us(round, RUN)?, server.cpu_us(round, RUN)?);
            Ok(CpuRound { bare, server, clients: clients()? })
        };
        (0..ROUNDS).map(round).collect::<Result<_>>().map(Self)
    }

    /// For each client and round: the server's CPU without the client's share, as a multiple of a bare
    /// hyper request.
    fn ratios(&self) -> [Vec<f64>; CLIENTS] {
        std::array::from_fn(|at| {
            let above = |round: &CpuRound<CLIENTS>| {
                round.clients.get(at).map(|client| (round.server - client) / round.bare)
            };
            self.0.iter().filter_map(above).collect()
        })
    }

    fn medians(&self) -> [f64; CLIENTS] {
        self.ratios().map(median)
    }

    fn print(&self, name: &str, statements: [&str; CLIENTS]) {
        let column =
            |of: &dyn Fn(&CpuRound<CLIENTS>) -> f64| median(self.0.iter().map(of).collect());
        let (server, bare) = (column(&|round| round.server), column(&|round| round.bare));
        println!("\n{name}: {server:.2} µs, bare hyper {bare:.2}");
        for ((at, statement), mut ratios) in statements.iter().enumerate().zip(self.ratios()) {
            let client = column(&|round| round.clients.get(at).copied().unwrap_or_default());
            ratios.sort_by(f64::total_cmp);
            let ratios: Vec<_> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
            println!(
                "the client alone ({statement}) {client:.2} µs; above it, in bare hyper's requests: {}",
                ratios.join(" ")
            );
        }
    }
}

/// CPU of the raw client for one statement, in microseconds.
fn measure_raw_client(folder: &Path, address: &str, kind: RawStatement) -> Result<f64> {
    let output = Command::new(std::env::current_exe()?)
        .args(["raw", kind.name(), address])
        .current_dir(folder)
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let (count, nanos) = text.trim().split_once(' ').ok_or("the client failed")?;
    Ok(nanos.parse::<f64>()? / 1e3 / count.parse::<f64>()?)
}

/// How long the raw client runs.
pub const CLIENT_TIME: Duration = RUN;
