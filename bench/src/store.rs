//! Our server with many customers in it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Result;
use crate::load::{self, Shot};
use crate::process::Server;

/// How many items are looked at in turn.
const SAMPLE: usize = 500;

/// A filled database.
#[derive(Debug)]
pub struct Filled {
    folder: PathBuf,
    pub rows: usize,
    /// Paths of items from all over the collection.
    items: Vec<String>,
}

fn serve(nouns: &Path, folder: &Path) -> Result<Server> {
    let mut command = Command::new(nouns);
    command
        .args(["serve", "--open", "--listen", "127.0.0.1:0", "--log", "json"])
        .current_dir(folder);
    Server::start(&mut command, &folder.join("log.json"))
}

/// Makes a database with so many customers, through the front door.
pub fn fill(nouns: &Path, folder: &Path, rows: usize) -> Result<Filled> {
    std::fs::create_dir(folder)?;
    let server = serve(nouns, folder)?;
    let mut items = Vec::new();
    for start in (0..rows).step_by(1_000) {
        let end = (start + 1_000).min(rows);
        let list: Vec<String> = (start..end).map(customer).collect();
        let body = format!("{{\"customers\":[{}]}}", list.join(","));
        let answer = load::one(&server, &Shot::send("POST", "/customers", &body))?;
        let ids = answer.split("\"id\":\"").skip(1).filter_map(|rest| rest.split('"').next());
        let wanted = (SAMPLE * (end - start)).div_ceil(rows).max(1);
        items.extend(ids.step_by(1_000 / wanted.min(1_000)).map(|id| format!("/customers/{id}")));
    }
    Ok(Filled { folder: folder.to_owned(), rows, items })
}

fn customer(number: usize) -> String {
    format!("{{\"name\":\"Customer {number}\",\"email\":\"customer{number}@example.com\"}}")
}

pub fn create() -> Shot {
    Shot::send("POST", "/customers", &format!("{{\"customer\":{}}}", customer(7)))
}

impl Filled {
    pub fn serve(&self, nouns: &Path) -> Result<Server> {
        serve(nouns, &self.folder)
    }

    pub fn item(&self) -> String {
        self.items.first().cloned().unwrap_or_default()
    }

    pub fn gets(&self) -> Vec<Shot> {
        self.items.iter().map(|path| Shot::get(path)).collect()
    }

    /// Each differs from the one before it at the same item, so that each makes a new version.
    pub fn puts(&self) -> Vec<Shot> {
        let put = |(number, path): (usize, &String)| {
            Shot::send("PUT", path, &format!("{{\"customer\":{}}}", customer(number)))
        };
        let twice = self
            .items
            .iter()
            .enumerate()
            .chain(self.items.iter().enumerate().map(|(n, path)| (n + 1_000_000, path)));
        twice.map(put).collect()
    }
}

/// From the start of the process to its first answer, on a database that is there.
pub fn first_answer(nouns: &Path, filled: &Filled) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        let server = filled.serve(nouns)?;
        load::one(&server, &Shot::get("/-/health"))?;
        times.push(began.elapsed());
    }
    times.sort();
    times.get(times.len() / 2).copied().ok_or_else(|| "no run".into())
}
