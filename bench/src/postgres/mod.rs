//! The same work on PostgreSQL, beside a client that runs the same statements and nothing else.
//!
//! `tests/with-postgres` starts the database, which syncs to the disk as it should.
//! The one surprising thing: CPU is the server's own; what PostgreSQL itself costs is in neither figure,
//! and shows in the throughput alone.

mod raw;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Result;
use crate::cases::{ROWS, RUN, list};
use crate::load::Client;
use crate::process::{self, Server};
use crate::report::{self, Case, Row, Target, median};
use crate::store;
pub use raw::{Kind, run as run_raw};

/// A database server that lives as long as this does.
#[derive(Debug)]
pub struct Database {
    keeper: Child,
    pub address: String,
}

impl Database {
    pub fn start() -> Result<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/with-postgres");
        let show = r#"psql -qX "$NOUNS_TEST_POSTGRES/postgres" -c "CREATE DATABASE bench" && echo "$NOUNS_TEST_POSTGRES/bench"; exec cat"#;
        let mut command = Command::new(script);
        command.args(["--durable", "sh", "-c", show]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = command.spawn()?;
        let mut address = String::new();
        let output = keeper.stdout.as_mut().ok_or("no output")?;
        BufReader::new(output).read_line(&mut address)?;
        Ok(Self { keeper, address: address.trim().to_owned() })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

pub fn run() -> Result<()> {
    let nouns = process::build()?;
    let folder = process::Folder::new()?;
    let database = Database::start()?;
    let filled = store::fill_at(&nouns, &folder.0.join("bench"), ROWS, &database.address)?;
    let server = filled.serve(&nouns)?;
    let sample = Client::connect(server.address)?.send(&filled.item())?.to_owned();
    let bare = Server::bare(&folder.0, &sample)?;
    let case = |name, server, connections, shots| Case { name, server, connections, shots };
    let cases = [
        case("bare hyper", &bare, 32, [crate::load::Shot::get("/")].into()),
        case("GET by id", &server, 32, filled.gets(usize::MAX)),
        case("list of 20", &server, 32, [list()].into()),
        case("durable create, 32 connections", &server, 32, store::create()),
        case("durable create, 64 connections", &server, 64, store::create()),
        case("PUT, 32 connections", &server, 32, filled.puts(usize::MAX)),
    ];
    let rows = report::measure(&cases, RUN)?;
    report::print(&rows);
    println!("memory after it {:.1} MB", server.memory_bytes()? as f64 / 1e6);
    drop((server, bare));
    let select = client(&folder.0, &database.address, Kind::Select)?;
    let insert = client(&folder.0, &database.address, Kind::Insert)?;
    judge(&rows, select, insert);
    Ok(())
}

/// CPU of the client alone for one statement, in microseconds, and statements a second.
fn client(folder: &Path, address: &str, kind: Kind) -> Result<(f64, f64)> {
    let (mut cpu, mut rate) = (Vec::new(), Vec::new());
    for _ in 0..report::ROUNDS {
        let output = Command::new(std::env::current_exe()?)
            .args(["raw", kind.word(), address])
            .current_dir(folder)
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        let (count, nanos) = text.trim().split_once(' ').ok_or("the client failed")?;
        let count: f64 = count.parse()?;
        cpu.push(nanos.parse::<f64>()? / 1e3 / count);
        rate.push(count / RUN.as_secs_f64());
    }
    let (cpu, rate) = (median(cpu), median(rate));
    println!("{:<40} {cpu:>10.2} {:>7} {rate:>9.0}", format!("client alone, {}", kind.word()), "");
    Ok((cpu, rate))
}

fn judge(rows: &[Row], select: (f64, f64), insert: (f64, f64)) {
    let [bare, get, _, create, _, _] = rows else { return };
    // What is left when the client's share is taken off, in bare hyper's requests.
    let above = |row: &Row, client: f64| (row.cpu_us() - client) / bare.cpu_us();
    report::judge(&[
        (
            "GET by id, CPU above the client's, ratio to bare",
            above(get, select.0),
            Target::AtMost(2.0),
        ),
        (
            "create, CPU above the client's, ratio to bare",
            above(create, insert.0),
            Target::AtMost(3.0),
        ),
    ]);
}

/// How long the client alone runs.
pub const CLIENT_TIME: Duration = RUN;
