//! Cost of HTTP features beyond plain reads and writes: conditional requests, patches, idempotency
//! keys, filters and sorting.
//!
//! Each is compared with the plain request that it extends, on SQLite and on PostgreSQL.

use std::path::Path;

use crate::Result;
use crate::cases::{ROWS, RUN, list_request};
use crate::load_generator::{Client, NUMBER_PLACEHOLDER, RequestTemplate, RequestTemplates};
use crate::postgres::PostgresServer;
use crate::process::{self, Server};
use crate::report::{self, BenchmarkCase, Target};
use crate::store::{self, FilledDatabase};

pub fn run() -> Result<()> {
    let nouns = process::build_dist()?;
    let folder = process::Folder::new()?;
    println!("\nSQLite:");
    let filled = store::fill(&nouns, &folder.0.join("sqlite"), ROWS)?;
    measure(&nouns, &folder.0, &filled)?;
    println!("\nPostgreSQL:");
    let database = PostgresServer::start()?;
    let filled = store::fill_at(&nouns, &folder.0.join("postgres"), ROWS, &database.address)?;
    measure(&nouns, &folder.0, &filled)
}

fn measure(nouns: &Path, folder: &Path, filled: &FilledDatabase) -> Result<()> {
    let server = filled.serve(nouns)?;
    let mut client = Client::connect(server.address)?;
    let sample = client.send(&filled.item_request())?.to_owned();
    let unchanged_item = not_modified_requests(&mut client, &filled.item_path())?;
    let unchanged_list = not_modified_requests(&mut client, "/customers?limit=20")?;
    drop(client);
    let bare = Server::start_baseline(folder, &sample)?;
    let case =
        |name, server, shots| BenchmarkCase { name, server, connections: 32, requests: shots };
    let bare_case = || case("bare hyper", &bare, [RequestTemplate::get("/")].into());
    // The data stays unchanged until all reads are measured.
    let reads = [
        bare_case(),
        case("GET by id", &server, filled.get_requests(usize::MAX)),
        case("304 on an item", &server, unchanged_item),
        case("list of 20", &server, [list_request()].into()),
        case("304 on a list", &server, unchanged_list),
        case("list of 20, filter and sort", &server, filtered_lists()),
    ];
    let writes = [
        bare_case(),
        case("PUT", &server, filled.put_requests(usize::MAX)),
        case("PATCH", &server, filled.patches()),
        case("durable create", &server, store::create_requests()),
        case("durable create with a key", &server, store::idempotent_create_requests()),
    ];
    let reads = report::measure(&reads, RUN)?;
    report::print(&reads);
    report::print(&report::measure(&writes, RUN)?);
    let orders = create_orders(&server)?;
    let related = [
        case("list of 50", &server, [RequestTemplate::get(LIST_WITH_ORDERS)].into()),
        case("orders of a customer", &server, orders),
        case("list of 50 with orders", &server, [RequestTemplate::get(EXPANDED_LIST)].into()),
    ];
    let related = report::measure(&related, RUN)?;
    report::print(&related);
    let ([bare, .., filtered], [list, orders, expanded]) = (&*reads, &*related) else {
        return Ok(());
    };
    let parts = list.cpu_us() + 50.0 * orders.cpu_us();
    report::judge(&[
        (
            "list with a filter and an order, CPU to bare hyper",
            filtered.cpu_ratio(bare),
            Target::AtMost(7.0),
        ),
        (
            "list with orders, CPU to that of its parts",
            expanded.cpu_us() / parts,
            Target::AtMost(1.0),
        ),
    ]);
    Ok(())
}

const LIST_WITH_ORDERS: &str = "/customers?sort=name&limit=50";
const EXPANDED_LIST: &str = "/customers?sort=name&limit=50&expand=orders";

/// Ten orders for each customer of the list; returns the requests of their lists.
fn create_orders(server: &Server) -> Result<RequestTemplates> {
    let mut client = Client::connect(server.address)?;
    let list = client.send(&RequestTemplate::get(LIST_WITH_ORDERS))?.to_owned();
    let ids = list.split("\"id\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let paths: Vec<String> = ids.map(|id| format!("/customers/{id}/orders")).collect();
    let order = "{\"items\":[{\"product\":\"A-1\",\"quantity\":2,\"unit_price\":350}]}";
    let body = format!("{{\"orders\":[{}]}}", [order; 10].join(","));
    for path in &paths {
        client.send(&RequestTemplate::send("POST", path, &body))?;
    }
    Ok(paths.iter().map(|path| RequestTemplate::get(path)).collect())
}

/// Conditional requests (`If-None-Match`) that the server answers with 304.
fn not_modified_requests(client: &mut Client, path: &str) -> Result<RequestTemplates> {
    let answer = client.send(&RequestTemplate::get(path))?;
    let tag = answer.lines().find_map(|line| line.strip_prefix("etag: "));
    let line = format!("If-None-Match: {}\r\n", tag.ok_or("an answer without a tag")?);
    Ok([RequestTemplate::get_with(path, &line).expecting(304)].into())
}

/// Filtered lists from many positions of the order, each followed by twenty items.
fn filtered_lists() -> RequestTemplates {
    let starts = (1_000..9_000).step_by(8);
    let path = |start| format!("/customers?name:lt=Customer%20{start}&sort=-name&limit=20");
    starts.map(|start| RequestTemplate::get(&path(start))).collect()
}

impl FilledDatabase {
    /// Each with another name than before, so that each creates a new version.
    fn patches(&self) -> RequestTemplates {
        let body = format!("{{\"customer\":{{\"name\":\"Customer {NUMBER_PLACEHOLDER}\"}}}}");
        let patch = |path: &String| RequestTemplate::send("PATCH", path, &body);
        self.items().iter().map(patch).collect()
    }
}
