//! Cost of an authenticated request relative to the same request without authentication.

use super::{Algorithm, AuthenticatedDatabase};
use crate::Result;
use crate::cases::{ROWS, RUN};
use crate::load_generator::{Client, RequestTemplate};
use crate::postgres::PostgresServer;
use crate::process::{self, Folder, Server};
use crate::report::{self, BenchmarkCase, BenchmarkRow, Target};
use crate::store;

/// Basic and Digest on SQLite, by CPU of the server.
pub fn sqlite() -> Result<()> {
    let nouns = process::build_dist()?;
    let folder = Folder::new()?;
    let open = store::fill(&nouns, &folder.0.join("open"), ROWS)?;
    let closed = AuthenticatedDatabase::fill(&nouns, &folder, ROWS, "")?;
    let open_server = open.serve(&nouns)?;
    let (server, admin) = closed.serve(&nouns)?;
    let address = server.address;
    let sample = Client::connect(open_server.address)?.send(&open.item_request())?.to_owned();
    let bare = Server::start_baseline(&folder.0, &sample)?;
    let filled = &closed.filled;
    let md5 = admin.digest(address, Algorithm::Md5)?;
    let sha256 = admin.digest(address, Algorithm::Sha256)?;
    let case =
        |name, server, shots| BenchmarkCase { name, server, connections: 32, requests: shots };
    let cases = [
        case("bare hyper", &bare, [RequestTemplate::get("/")].into()),
        case("GET by id, open", &open_server, open.get_requests(usize::MAX)),
        case("GET by id, Basic", &server, filled.get_requests_with_credentials(&admin.basic())),
        case("GET by id, Digest MD5", &server, filled.get_requests_with_credentials(&md5)),
        case("GET by id, Digest SHA-256", &server, filled.get_requests_with_credentials(&sha256)),
    ];
    let rows = report::measure(&cases, RUN)?;
    report::print(&rows);
    let [_, open, basic, md5, sha256] = &*rows else { return Ok(()) };
    report::judge(&[
        ("GET with Basic, CPU, ratio to open", basic.cpu_ratio(open), Target::AtMost(1.15)),
        ("GET with Digest MD5, CPU, ratio to open", md5.cpu_ratio(open), Target::AtMost(1.4)),
        ("GET with Digest SHA-256, CPU, ratio", sha256.cpu_ratio(open), Target::AtMost(1.4)),
    ]);
    Ok(())
}

/// Digest on PostgreSQL, by throughput: each use of a nonce is claimed in the database.
pub fn postgres() -> Result<()> {
    let nouns = process::build_dist()?;
    let folder = Folder::new()?;
    let database = PostgresServer::start()?;
    let closed = AuthenticatedDatabase::fill_at(&nouns, &folder, ROWS, &database.address)?;
    let filled = &closed.filled;
    // Two servers on one database, one of them without authentication.
    let open_server = filled.serve(&nouns)?;
    let (server, admin) = closed.serve(&nouns)?;
    let digest = admin.digest(server.address, Algorithm::Sha256)?;
    let case =
        |name, server, shots| BenchmarkCase { name, server, connections: 32, requests: shots };
    let cases = [
        case("GET by id, open", &open_server, filled.get_requests(usize::MAX)),
        case("GET by id, Basic", &server, filled.get_requests_with_credentials(&admin.basic())),
        case("GET by id, Digest SHA-256", &server, filled.get_requests_with_credentials(&digest)),
    ];
    let rows = report::measure(&cases, RUN)?;
    report::print(&rows);
    let [open, basic, digest] = &*rows else { return Ok(()) };
    let rate = |row: &BenchmarkRow| row.rate_ratio(open);
    report::judge(&[
        ("GET with Digest, requests/s, ratio to open", rate(digest), Target::AtLeast(0.6)),
        ("GET with Basic, requests/s, ratio to open", rate(basic), Target::AtLeast(0.6)),
    ]);
    Ok(())
}
