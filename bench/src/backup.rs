//! Creates while `nouns backup` copies the database.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Result;
use crate::load_generator::{Load, LoadResult, Pacing};
use crate::process::{self, Server};
use crate::report::{self, Target, micros};
use crate::store::{self, FilledDatabase};

const CONNECTIONS: usize = 50;
/// Creates a second, of all connections.
const RATE: u32 = 5_000;
const QUIET: Duration = Duration::from_secs(10);

/// Runs this part alone.
pub fn run(is_quick: bool) -> Result<()> {
    let nouns = process::build_dist()?;
    let folder = process::Folder::new()?;
    let rows = if is_quick { 100_000 } else { 1_000_000 };
    let filled = store::fill(&nouns, &folder.0.join("store"), rows)?;
    let server = filled.serve(&nouns)?;
    println!("\n{RATE} creates a second, {rows} rows before them:");
    let quiet = create(&server, QUIET)?;
    let backups = Backups { nouns: &nouns, filled: &filled, folder: &folder.0 };
    let (beside, backup) = backups.run_beside(&server)?;
    for (name, load) in [("alone", &quiet), ("beside a backup", &beside)] {
        println!(
            "{name:<20} {:>8.0} a second, p50 {:>8.0} µs, p99 {:>8.0} µs, longest {:>8.0} µs",
            load.rate(),
            micros(load.percentile(0.5)),
            micros(load.percentile(0.99)),
            micros(load.percentile(1.0)),
        );
    }
    println!("the backup took {:.1} s", backup.as_secs_f64());
    let ratio = micros(beside.percentile(0.99)) / micros(quiet.percentile(0.99));
    report::judge(&[("p99 of creates beside a backup, ratio", ratio, Target::AtMost(5.0))]);
    server.stop()
}

/// Creates at a fixed rate.
fn create(server: &Server, time: Duration) -> Result<LoadResult> {
    let load = Load {
        connections: CONNECTIONS,
        pacing: Pacing::FixedInterval(Duration::from_secs(1) * CONNECTIONS as u32 / RATE),
        time,
        requests: store::create_requests(),
        first_request: 0,
    };
    report::run_without_refusals(&load, server.address)
}

struct Backups<'a> {
    nouns: &'a Path,
    filled: &'a FilledDatabase,
    folder: &'a Path,
}

impl Backups<'_> {
    /// The creates while backups run, one after the other, and how long the first one took.
    fn run_beside(&self, server: &Server) -> Result<(LoadResult, Duration)> {
        let began = Instant::now();
        let (nouns, database) = (self.nouns.to_owned(), self.filled.file());
        let folder = self.folder.to_owned();
        let copier = std::thread::spawn(move || {
            let mut first = None;
            for number in 0.. {
                if began.elapsed() >= QUIET {
                    break;
                }
                let file = folder.join(format!("backup-{number}.db"));
                let mut command = Command::new(&nouns);
                command.arg("backup").arg(&file).arg("--database");
                command.arg(format!("sqlite:{}", database.display()));
                let ended = command.current_dir(&folder).output();
                if !ended.as_ref().is_ok_and(|ended| ended.status.success()) {
                    return Err(format!("nouns backup: {ended:?}"));
                }
                first.get_or_insert(began.elapsed());
                // The copies stay until the end: to remove one delays the syncs of other files.
            }
            Ok(first.unwrap_or_default())
        });
        let load = create(server, QUIET)?;
        let took = copier.join().map_err(|_| "the thread of the backups panicked")??;
        Ok((load, took))
    }
}
