//! Comparison with another program (PocketBase), in one run with ours and the bare server.
//!
//! Everything is installed into the temporary folder of the run. Each program runs with its defaults:
//! PocketBase answers a create before it is on disk, which the count of syncs shows.

mod pocketbase;
mod syncs;

use crate::cases::{ROWS, RUN, list};
use crate::load::{Client, Shot};
use crate::process::{self, Server};
use crate::report::{self, Case};
use crate::{Result, store};
use pocketbase::PocketBase;

/// How many sequential creates are made while syncs are counted.
const CREATES: usize = 200;

pub fn run() -> Result<()> {
    let nouns = process::build()?;
    let folder = process::Folder::new()?;
    println!("PocketBase {} goes to {}", pocketbase::VERSION, folder.0.display());
    let pocketbase = PocketBase::install(&folder.0.join("pocketbase"))?;
    let small = store::fill(&nouns, &folder.0.join("small"), ROWS)?;
    let busy = store::fill(&nouns, &folder.0.join("busy"), ROWS)?;
    let peer_reads = pocketbase.fill("reads", ROWS)?;
    let peer_writes = pocketbase.fill("writes", ROWS)?;

    let reads = small.serve(&nouns)?;
    let writes = busy.serve(&nouns)?;
    let sample = Client::connect(reads.address)?.send(&small.item())?.to_owned();
    let bare = Server::bare(&folder.0, &sample)?;
    let case = |name, server, connections, shots| Case { name, server, connections, shots };
    let (peer, peer_busy) = (&peer_reads.server, &peer_writes.server);
    let cases = [
        case("bare hyper", &bare, 32, [Shot::get("/")].into()),
        case("GET by id", &reads, 32, small.gets(usize::MAX)),
        case("  PocketBase", peer, 32, peer_reads.gets()),
        case("list of 20", &reads, 32, [list()].into()),
        case("  PocketBase, with its count", peer, 32, [pocketbase::list("")].into()),
        case("  PocketBase, without", peer, 32, [pocketbase::list("&skipTotal=1")].into()),
        case("create, 32 connections", &writes, 32, store::create()),
        case("  PocketBase", peer_busy, 32, pocketbase::create()),
        case("create, 64 connections", &writes, 64, store::create()),
        case("  PocketBase", peer_busy, 64, pocketbase::create()),
        case("PUT, 32 connections", &writes, 32, busy.puts(usize::MAX)),
        case("  PocketBase, PATCH", peer_busy, 32, peer_writes.patches()),
        case("PUT, 64 connections", &writes, 64, busy.puts(usize::MAX)),
        case("  PocketBase, PATCH", peer_busy, 64, peer_writes.patches()),
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
    println!("ours        {}", syncs::count(&writes, &store::create(), CREATES)?);
    println!("PocketBase  {}", syncs::count(peer_busy, &pocketbase::create(), CREATES)?);
    Ok(())
}
