//! Our server with a database that is filled with customers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Result;
use crate::auth::Login;
use crate::cage::Cage;
use crate::load::{Client, Load, NUMBER, Pace, Shot, Shots};
use crate::process::Server;

/// How many items are requested in turn, at most.
const ITEMS_MAX: usize = 100_000;
const STARTS: usize = 5;

/// A filled database.
#[derive(Debug)]
pub struct Filled {
    folder: PathBuf,
    /// The database's location, when not in the folder.
    database: Option<String>,
    /// Paths of items from all over the collection, in random order.
    items: Vec<String>,
}

fn command(nouns: &Path, folder: &Path) -> Command {
    let mut command = Command::new(nouns);
    command
        .args(["serve", "--open", "--listen", "127.0.0.1:0", "--log", "json"])
        .current_dir(folder);
    command
}

fn serve(nouns: &Path, folder: &Path, database: Option<&str>) -> Result<Server> {
    let mut command = command(nouns, folder);
    if let Some(database) = database {
        command.args(["--database", database]);
    }
    Server::start(&mut command, &folder.join("log.json"))
}

/// Makes a database with this many customers, over HTTP.
pub fn fill(nouns: &Path, folder: &Path, rows: usize) -> Result<Filled> {
    fill_in(nouns, folder, rows, None)
}

/// The same in this database.
pub fn fill_at(nouns: &Path, folder: &Path, rows: usize, database: &str) -> Result<Filled> {
    fill_in(nouns, folder, rows, Some(database.to_owned()))
}

fn fill_in(nouns: &Path, folder: &Path, rows: usize, database: Option<String>) -> Result<Filled> {
    std::fs::create_dir_all(folder)?;
    let server = serve(nouns, folder, database.as_deref())?;
    let mut client = Client::connect(server.address)?;
    let mut items = Vec::new();
    let step = rows.div_ceil(ITEMS_MAX).max(1);
    for start in (0..rows).step_by(1_000) {
        let answer = client.send(&bulk(start..(start + 1_000).min(rows)))?;
        let ids = answer.split("\"id\":\"").skip(1).filter_map(|rest| rest.split('"').next());
        items.extend(ids.step_by(step).map(|id| format!("/customers/{id}")));
    }
    drop(client);
    server.stop()?;
    shuffle(&mut items);
    Ok(Filled { folder: folder.to_owned(), database, items })
}

/// Shuffles with a fixed seed, so that every run requests the items in the same order.
pub fn shuffle<T>(items: &mut [T]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for index in (1..items.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(index, (state >> 33) as usize % (index + 1));
    }
}

fn customer(number: impl std::fmt::Display) -> String {
    format!("{{\"name\":\"Customer {number}\",\"email\":\"customer{number}@example.com\"}}")
}

/// A bulk create.
pub fn bulk(numbers: impl Iterator<Item = usize>) -> Shot {
    let list: Vec<String> = numbers.map(customer).collect();
    Shot::send("POST", "/customers", &format!("{{\"customers\":[{}]}}", list.join(",")))
}

/// A body with a unique name.
pub fn fields() -> String {
    format!("{{\"name\":\"Customer {NUMBER}\",\"email\":\"customer7@example.com\"}}")
}

pub fn create() -> Shots {
    [Shot::send("POST", "/customers", &format!("{{\"customer\":{}}}", fields()))].into()
}

/// Creates, each with an idempotency key of its own.
pub fn create_once() -> Shots {
    let key = format!("Idempotency-Key: bench-{NUMBER}\r\n");
    let body = "{\"customer\":{\"name\":\"Customer\",\"email\":\"customer7@example.com\"}}";
    [Shot::send_as("POST", "/customers", &key, body)].into()
}

impl Filled {
    pub fn serve(&self, nouns: &Path) -> Result<Server> {
        serve(nouns, &self.folder, self.database.as_deref())
    }

    /// Starts the server inside a control group.
    pub fn serve_in(&self, nouns: &Path, cage: &Cage) -> Result<Server> {
        let command = command(nouns, &self.folder);
        Server::start(&mut cage.around(&command), &self.folder.join("log.json"))
    }

    pub fn file(&self) -> PathBuf {
        self.folder.join("nouns.db")
    }

    pub fn item(&self) -> Shot {
        Shot::get(&self.item_path())
    }

    pub fn item_path(&self) -> String {
        self.items.first().cloned().unwrap_or_default()
    }

    /// The paths of items from all over the collection, in random order.
    pub fn items(&self) -> &[String] {
        &self.items
    }

    /// GET requests for at most this many items, from all over the collection.
    pub fn gets(&self, items_max: usize) -> Shots {
        self.items.iter().take(items_max).map(|path| Shot::get(path)).collect()
    }

    /// GET requests for all of them, with these credentials.
    pub fn gets_as(&self, login: &Login) -> Shots {
        self.items.iter().map(|path| Shot::get_as(path, login)).collect()
    }

    /// PUT requests, each with another name than before, so that each creates a new version.
    pub fn puts(&self, items_max: usize) -> Shots {
        let body = format!("{{\"customer\":{}}}", fields());
        self.items.iter().take(items_max).map(|path| Shot::send("PUT", path, &body)).collect()
    }
}

/// The time from the start of the process to its first response, on a database that was closed cleanly.
pub fn first_answer(nouns: &Path, filled: &Filled) -> Result<Duration> {
    median(STARTS, || {
        let (server, time) = time_to_answer(nouns, filled)?;
        server.stop()?;
        Ok(time)
    })
}

/// The same after a kill in the middle of writing, including recovery.
pub fn first_answer_after_kill(nouns: &Path, filled: &Filled) -> Result<Duration> {
    let time = Duration::from_millis(300);
    let load = Load { connections: 32, pace: Pace::Closed, time, shots: create(), first: 0 };
    median(STARTS, || {
        let server = filled.serve(nouns)?;
        load.run(server.address)?;
        drop(server);
        Ok(time_to_answer(nouns, filled)?.1)
    })
}

fn time_to_answer(nouns: &Path, filled: &Filled) -> Result<(Server, Duration)> {
    let item = filled.item();
    let began = Instant::now();
    let server = filled.serve(nouns)?;
    Client::connect(server.address)?.send(&item)?;
    Ok((server, began.elapsed()))
}

fn median(times: usize, measure: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    let mut found = std::iter::repeat_with(measure).take(times).collect::<Result<Vec<_>>>()?;
    found.sort();
    found.get(found.len() / 2).copied().ok_or_else(|| "no run".into())
}
