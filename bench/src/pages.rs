//! Pages and the OpenAPI document: their cost beside the JSON of the same address, and in a large collection.

use crate::Result;
use crate::cases::{ROWS, RUN};
use crate::load_generator::{RequestTemplate, RequestTemplates};
use crate::process::{self, Server};
use crate::report::{self, BenchmarkCase, BenchmarkRow, Target};
use crate::store::{self, FilledDatabase};

const LIST: &str = "/customers";
/// The time of one page at 32 connections is mostly waiting, so one connection measures it.
const CONNECTIONS: usize = 1;

/// Runs this part alone.
pub fn run(rows_large: usize) -> Result<()> {
    let nouns = process::build_dist()?;
    let folder = process::Folder::new()?;
    let small = store::fill(&nouns, &folder.0.join("small"), ROWS)?;
    let large = store::fill(&nouns, &folder.0.join("large"), rows_large)?;
    let (few, many) = (small.serve(&nouns)?, large.serve(&nouns)?);
    let page = |path: &str| -> RequestTemplates { [RequestTemplate::page(path)].into() };
    let get = |path: &str| -> RequestTemplates { [RequestTemplate::get(path)].into() };
    let large_list = format!("list of 50, page, {rows_large} rows");
    let large_item = format!("item, page, {rows_large} rows");
    let cases = [
        case("list of 50, JSON", &few, get(LIST)),
        case("list of 50, page", &few, page(LIST)),
        case(&large_list, &many, page(LIST)),
        case("item, JSON", &few, get(&small.item_path())),
        case("item, page", &few, item_pages(&small)),
        case(&large_item, &many, item_pages(&large)),
        case("home, page", &few, page("/")),
        case("change log, page", &few, page("/-/changes?sort=-sequence")),
        case("API reference of a resource, page", &few, page("/-/docs/customer")),
        case("OpenAPI document", &few, get("/-/openapi.json")),
    ];
    let rows = report::measure(&cases, RUN)?;
    report::print(&rows);
    let [_, list, list_large, _, item, item_large, ..] = &*rows else { return Ok(()) };
    let ratio = |large: &BenchmarkRow, small: &BenchmarkRow| large.cpu_us() / small.cpu_us();
    report::judge(&[
        (
            "page of a list, CPU, all rows to 10000 rows",
            ratio(list_large, list),
            Target::AtMost(1.3),
        ),
        (
            "page of an item, CPU, all rows to 10000 rows",
            ratio(item_large, item),
            Target::AtMost(1.3),
        ),
    ]);
    Ok(())
}

/// Pages of items from all over the collection.
fn item_pages(database: &FilledDatabase) -> RequestTemplates {
    database.items().iter().take(1_000).map(|path| RequestTemplate::page(path)).collect()
}

fn case<'a>(name: &'a str, server: &'a Server, requests: RequestTemplates) -> BenchmarkCase<'a> {
    BenchmarkCase::new(name, server, CONNECTIONS, requests)
}
