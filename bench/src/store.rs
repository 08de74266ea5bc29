//! Our server with a database that is filled with customers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Result;
use crate::auth::Credentials;
use crate::cgroup::Cgroup;
use crate::load_generator::{
    Client, Load, NUMBER_PLACEHOLDER, Pacing, RequestTemplate, RequestTemplates,
};
use crate::process::Server;

/// How many items are requested in turn, at most.
const ITEMS_MAX: usize = 100_000;
const STARTS: usize = 5;

/// A filled database.
#[derive(Debug)]
pub struct FilledDatabase {
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
pub fn fill(nouns: &Path, folder: &Path, rows: usize) -> Result<FilledDatabase> {
    fill_in(nouns, folder, rows, None)
}

/// The same in this database.
pub fn fill_at(nouns: &Path, folder: &Path, rows: usize, database: &str) -> Result<FilledDatabase> {
    fill_in(nouns, folder, rows, Some(database.to_owned()))
}

fn fill_in(
    nouns: &Path,
    folder: &Path,
    rows: usize,
    database: Option<String>,
) -> Result<FilledDatabase> {
    std::fs::create_dir_all(folder)?;
    let server = serve(nouns, folder, database.as_deref())?;
    let mut client = Client::connect(server.address)?;
    let mut items = Vec::new();
    let step = rows.div_ceil(ITEMS_MAX).max(1);
    for start in (0..rows).step_by(1_000) {
        let answer = client.send(&bulk_create(start..(start + 1_000).min(rows)))?;
        let ids = answer.split("\"id\":\"").skip(1).filter_map(|rest| rest.split('"').next());
        items.extend(ids.step_by(step).map(|id| format!("/customers/{id}")));
    }
    drop(client);
    server.stop()?;
    shuffle(&mut items);
    Ok(FilledDatabase { folder: folder.to_owned(), database, items })
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
pub fn bulk_create(numbers: impl Iterator<Item = usize>) -> RequestTemplate {
    let list: Vec<String> = numbers.map(customer).collect();
    RequestTemplate::send("POST", "/customers", &format!("{{\"customers\":[{}]}}", list.join(",")))
}

/// A body with a unique name.
pub fn customer_fields() -> String {
    format!("{{\"name\":\"Customer {NUMBER_PLACEHOLDER}\",\"email\":\"customer7@example.com\"}}")
}

pub fn create_requests() -> RequestTemplates {
    [RequestTemplate::send(
        "POST",
        "/customers",
        &format!("{{\"customer\":{}}}", customer_fields()),
    )]
    .into()
}

/// Creates, each with an idempotency key of its own.
pub fn idempotent_create_requests() -> RequestTemplates {
    let key = format!("Idempotency-Key: bench-{NUMBER_PLACEHOLDER}\r\n");
    let body = "{\"customer\":{\"name\":\"Customer\",\"email\":\"customer7@example.com\"}}";
    [RequestTemplate::send_with("POST", "/customers", &key, body)].into()
}

impl FilledDatabase {
    pub fn serve(&self, nouns: &Path) -> Result<Server> {
        serve(nouns, &self.folder, self.database.as_deref())
    }

    /// Starts the server inside a control group.
    pub fn serve_in_cgroup(&self, nouns: &Path, cage: &Cgroup) -> Result<Server> {
        let command = command(nouns, &self.folder);
        Server::start(&mut cage.command_inside(&command), &self.folder.join("log.json"))
    }

    pub fn file(&self) -> PathBuf {
        self.folder.join("nouns.db")
    }

    pub fn item_request(&self) -> RequestTemplate {
        RequestTemplate::get(&self.item_path())
    }

    pub fn item_path(&self) -> String {
        self.items.first().cloned().unwrap_or_default()
    }

    /// The paths of items from all over the collection, in random order.
    pub fn items(&self) -> &[String] {
        &self.items
    }

    /// GET requests for at most this many items, from all over the collection.
    pub fn get_requests(&self, items_max: usize) -> RequestTemplates {
        self.items.iter().take(items_max).map(|path| RequestTemplate::get(path)).collect()
    }

    /// GET requests for all of them, with these credentials.
    pub fn get_requests_with_credentials(&self, login: &Credentials) -> RequestTemplates {
        self.items.iter().map(|path| RequestTemplate::get_with_credentials(path, login)).collect()
    }

    /// PUT requests, each with another name than before, so that each creates a new version.
    pub fn put_requests(&self, items_max: usize) -> RequestTemplates {
        let body = format!("{{\"customer\":{}}}", customer_fields());
        self.items
            .iter()
            .take(items_max)
            .map(|path| RequestTemplate::send("PUT", path, &body))
            .collect()
    }
}

/// The time from the start of the process to its first response, on a database that was closed cleanly.
pub fn time_to_first_response(nouns: &Path, filled: &FilledDatabase) -> Result<Duration> {
    median_duration(STARTS, || {
        let (server, time) = start_and_time(nouns, filled)?;
        server.stop()?;
        Ok(time)
    })
}

/// The same after a kill in the middle of writing, including recovery.
pub fn time_to_first_response_after_kill(
    nouns: &Path,
    filled: &FilledDatabase,
) -> Result<Duration> {
    let time = Duration::from_millis(300);
    let load = Load {
        connections: 32,
        pacing: Pacing::ClosedLoop,
        time,
        requests: create_requests(),
        first_request: 0,
    };
    median_duration(STARTS, || {
        let server = filled.serve(nouns)?;
        load.run(server.address)?;
        drop(server);
        Ok(start_and_time(nouns, filled)?.1)
    })
}

fn start_and_time(nouns: &Path, filled: &FilledDatabase) -> Result<(Server, Duration)> {
    let item = filled.item_request();
    let began = Instant::now();
    let server = filled.serve(nouns)?;
    Client::connect(server.address)?.send(&item)?;
    Ok((server, began.elapsed()))
}

fn median_duration(times: usize, measure: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    let mut found = std::iter::repeat_with(measure).take(times).collect::<Result<Vec<_>>>()?;
    found.sort();
    found.get(found.len() / 2).copied().ok_or_else(|| "no run".into())
}
