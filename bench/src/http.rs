//! Cost of HTTP features beyond plain reads and writes: conditional requests, patches, idempotency
//! keys, filters and sorting.
//!
//! Each is compared with the plain request that it extends, on SQLite and on PostgreSQL.

use std::path::Path;

use crate::Result;
use crate::cases::{ROWS, RUN, list};
use crate::load::{Client, NUMBER, Shot, Shots};
use crate::postgres::Database;
use crate::process::{self, Server};
use crate::report::{self, Case};
use crate::store::{self, Filled};

pub fn run() -> Result<()> {
    let nouns = process::build()?;
    let folder = process::Folder::new()?;
    println!("\nSQLite:");
    let filled = store::fill(&nouns, &folder.0.join("sqlite"), ROWS)?;
    measure(&nouns, &folder.0, &filled)?;
    println!("\nPostgreSQL:");
    let database = Database::start()?;
    let filled = store::fill_at(&nouns, &folder.0.join("postgres"), ROWS, &database.address)?;
    measure(&nouns, &folder.0, &filled)
}

fn measure(nouns: &Path, folder: &Path, filled: &Filled) -> Result<()> {
    let server = filled.serve(nouns)?;
    let mut client = Client::connect(server.address)?;
    let sample = client.send(&filled.item())?.to_owned();
    let unchanged_item = unchanged(&mut client, &filled.item_path())?;
    let unchanged_list = unchanged(&mut client, "/customers?limit=20")?;
    drop(client);
    let bare = Server::bare(folder, &sample)?;
    let case = |name, server, shots| Case { name, server, connections: 32, shots };
    let bare_case = || case("bare hyper", &bare, [Shot::get("/")].into());
    // The data stays unchanged until all reads are measured.
    let reads = [
        bare_case(),
        case("GET by id", &server, filled.gets(usize::MAX)),
        case("304 on an item", &server, unchanged_item),
        case("list of 20", &server, [list()].into()),
        case("304 on a list", &server, unchanged_list),
        case("list of 20, filter and sort", &server, filtered()),
    ];
    let writes = [
        bare_case(),
        case("PUT", &server, filled.puts(usize::MAX)),
        case("PATCH", &server, filled.patches()),
        case("durable create", &server, store::create()),
        case("durable create with a key", &server, store::create_once()),
    ];
    report::print(&report::measure(&reads, RUN)?);
    report::print(&report::measure(&writes, RUN)?);
    Ok(())
}

/// Conditional requests (`If-None-Match`) that the server answers with 304.
fn unchanged(client: &mut Client, path: &str) -> Result<Shots> {
    let answer = client.send(&Shot::get(path))?;
    let tag = answer.lines().find_map(|line| line.strip_prefix("etag: "));
    let line = format!("If-None-Match: {}\r\n", tag.ok_or("an answer without a tag")?);
    Ok([Shot::get_with(path, &line).wanting(304)].into())
}

/// Filtered lists from many positions of the order, each followed by twenty items.
fn filtered() -> Shots {
    let starts = (1_000..9_000).step_by(8);
    let path = |start| format!("/customers?name:lt=Customer%20{start}&sort=-name&limit=20");
    starts.map(|start| Shot::get(&path(start))).collect()
}

impl Filled {
    /// Each with another name than before, so that each creates a new version.
    fn patches(&self) -> Shots {
        let body = format!("{{\"customer\":{{\"name\":\"Customer {NUMBER}\"}}}}");
        let patch = |path: &String| Shot::send("PATCH", path, &body);
        self.items().iter().map(patch).collect()
    }
}
