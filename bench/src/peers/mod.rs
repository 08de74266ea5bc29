//! Comparison with another program (PocketBase), in one run with ours and the bare server.
//!
//! Everything is installed into the temporary folder of the run. Each program runs with its defaults:
//! PocketBase answers a create before it is on disk, which the count of syncs shows.

mod pocketbase;
mod fsync_count;

use crate::cases::{ROWS, RUN, list_request};
use crate::load_generator::{Client, RequestTemplate};
use crate::process::{self, Server};
use crate::report::{self, BenchmarkCase};
use crate::{Result, store};
use pocketbase::PocketBase;

/// How many sequential creates are made while syncs are counted.
const CREATES: usize = 200;

pub fn run() -> Result<()> {
    let nouns = process::build_dist()?;
    let folder = process::Folder::new()?;
    println!("PocketBase {} goes to {}", pocketbase::VERSION, folder.0.display());
    let pocketbase = PocketBase::install(&folder.0.join("pocketbase"))?;
    let small = store::fill(&nouns, &folder.0.join("small"), ROWS)?;
    let busy = store::fill(&nouns, &folder.0.join("busy"), ROWS)?;
    let peer_reads = pocketbase.start_filled("reads", ROWS)?;
    let peer_writes = pocketbase.start_filled("writes", ROWS)?;

    let reads = small.serve(&nouns)?;
    let writes = busy.serve(&nouns)?;
    let sample = Client::connect(reads.address)?.send(&small.item_request())?.to_owned();
    let bare = Server::start_baseline(&folder.0, &sample)?;
    let case = BenchmarkCase::new;
    let (peer, peer_busy) = (&peer_reads.server, &peer_writes.server);
    let cases = [
        case("bare hyper", &bare, 32, [RequestTemplate::get("/")].into()),
        case("GET by id", &reads, 32, small.get_requests(usize::MAX)),
        case("  PocketBase", peer, 32, peer_reads.get_requests()),
        case("list of 20", &reads, 32, [list_request()].into()),
        case("  PocketBase, with its count", peer, 32, [pocketbase::list_request("")].into()),
        case("  PocketBase, without", peer, 32, [pocketbase::list_request("&skipTotal=1")].into()),
        case("create, 32 connections", &writes, 32, store::create_requests()),
        case("  PocketBase", peer_busy, 32, pocketbase::create_requests()),
        case("create, 64 connections", &writes, 64, store::create_requests()),
        case("  PocketBase", peer_busy, 64, pocketbase::create_requests()),
        case("PUT, 32 connections", &writes, 32, busy.put_requests(usize::MAX)),
        case("  PocketBase, PATCH", peer_busy, 32, peer_writes.patch_requests()),
        case("PUT, 64 connections", &writes, 64, busy.put_requests(usize::MAX)),
        case("  PocketBase, PATCH", peer_busy, 64, peer_writes.patch_requests()),
    ];
    report::print(&report::measure(&cases, RUN)?);
    println!("\nmemory after it, without mapped database files:");
    let servers = [("reads", &reads, peer), ("writes", &writes, peer_busy)];
    for (name, ours, theirs) in servers {
        println!(
            "{name:<8} ours {:.1} MB, PocketBase {:.1} MB",
            ours.memory_bytes()? as f64 / 1e6,
            theirs.memory_bytes()? as f64 / 1e6
        );
    }
    println!("\nfsync and fdatasync in {CREATES} creates, one after the other:");
    println!("ours        {}", fsync_count::count(&writes, &store::create_requests(), CREATES)?);
    println!(
        "PocketBase  {}",
        fsync_count::count(peer_busy, &pocketbase::create_requests(), CREATES)?
    );
    Ok(())
}
