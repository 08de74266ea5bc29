//! HTTPS compared with HTTP: the cost of a request and of a connection, the throughput that established
//! connections keep during a flood of handshakes, and the memory of a connection.
//!
//! Two servers with the same items, each with its own database, run at the same time and are measured
//! in turn.

mod client;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::Result;
use crate::load_generator::{Client, RequestTemplate};
use crate::process::{self, Folder, Server};
use crate::report::{self, Target, median};
use client::{TlsLoad, TlsLoadResult, Transport};

/// The maximum cost of a GET over HTTPS, as a multiple of one over HTTP.
const COST_MAX: f64 = 1.3;
/// The minimum share of its throughput that a client keeps during a flood, compared with the same flood
/// at another server.
const SHARE_MIN: f64 = 0.5;
const ITEMS: usize = 1_000;
const CLIENTS: usize = 32;

type TlsBenchmarkPart = fn(&ServerPair, bool) -> Result<()>;

const PARTS: &[(&str, TlsBenchmarkPart)] = &[
    ("cost", cost),
    ("connections", connections),
    ("flood", throughput_during_flood),
    ("memory", connection_memory),
];

/// Runs the parts whose names begin with this.
pub fn run(part: &str, is_quick: bool) -> Result<()> {
    let nouns = process::build_dist()?;
    let folder = Folder::new()?;
    let pair = ServerPair::start(&nouns, &folder.0)?;
    let mut has_run = false;
    for (name, run) in PARTS.iter().filter(|(name, _)| name.starts_with(part)) {
        println!("\n--tls {name}");
        run(&pair, is_quick)?;
        has_run = true;
    }
    if has_run { Ok(()) } else { Err(format!("there is no part `{part}`").into()) }
}

/// The servers, and their items.
struct ServerPair {
    plain: Server,
    tls: Server,
    /// Another server, for floods that load the machine alone.
    decoy: Server,
    certificate: PathBuf,
    paths: Vec<String>,
}

impl ServerPair {
    fn start(nouns: &Path, folder: &Path) -> Result<Self> {
        process::run_to_success(
            Command::new(nouns).arg("cert").current_dir(folder).stdout(Stdio::null()),
        )?;
        let serve = |name: &str, is_tls: bool| {
            let mut command = Command::new(nouns);
            command.args(["serve", "--open", "--listen", "127.0.0.1:0", "--log", "json"]);
            command.args(["--database", &format!("sqlite:{name}.db")]).current_dir(folder);
            if is_tls {
                command.args(["--tls-cert", "nouns-cert.pem", "--tls-key", "nouns-key.pem"]);
            }
            Server::start(&mut command, &folder.join(format!("{name}.log")))
        };
        let first = serve("plain", false)?;
        let items: Vec<String> = (0..ITEMS)
            .map(|n| format!("{{\"name\":\"Name {n}\",\"email\":\"a{n}@example.com\"}}"))
            .collect();
        let body = format!("{{\"customers\":[{}]}}", items.join(","));
        let mut client = Client::connect(first.address)?;
        let answer = client.send(&RequestTemplate::send("POST", "/customers", &body))?.to_owned();
        let ids = answer.split("\"id\":\"").skip(1).filter_map(|rest| rest.split('"').next());
        let paths = ids.map(|id| format!("/customers/{id}")).collect();
        drop(client);
        first.stop()?;
        std::fs::copy(folder.join("plain.db"), folder.join("tls.db"))?;
        Ok(Self {
            plain: serve("plain", false)?,
            tls: serve("tls", true)?,
            decoy: serve("decoy", true)?,
            certificate: folder.join("nouns-cert.pem"),
            paths,
        })
    }

    fn task<'a>(&'a self, server: &Server, way: &'a Transport, time: Duration) -> TlsLoad<'a> {
        let (address, paths) = (server.address, &self.paths);
        TlsLoad { address, transport: way, paths, clients: CLIENTS, time, reconnects: false }
    }
}

/// One row: CPU of the server per request, requests a second, latencies.
#[derive(Debug, Default)]
struct TlsRow {
    cpu_us: Vec<f64>,
    rate: Vec<f64>,
    p99_us: Vec<f64>,
}

impl TlsRow {
    fn add(&mut self, cpu: Duration, done: &TlsLoadResult) {
        self.cpu_us.push(report::micros(cpu) / done.count.max(1) as f64);
        self.rate.push(done.rate());
        self.p99_us.push(report::micros(done.percentile(0.99)));
    }

    fn print(&self, name: &str) {
        println!(
            "{name:<40} {:>10.1} {:>9.0} {:>9.0}",
            median(self.cpu_us.clone()),
            median(self.rate.clone()),
            median(self.p99_us.clone())
        );
    }

    /// The median of the ratios of each round.
    fn cpu_ratio(&self, other: &Self) -> f64 {
        median(self.cpu_us.iter().zip(&other.cpu_us).map(|(own, other)| own / other).collect())
    }
}

fn print_head() {
    println!("{:<40} {:>10} {:>9} {:>9}", "", "CPU µs", "a second", "p99 µs");
}

fn measure_into(server: &Server, task: &TlsLoad<'_>, row: &mut TlsRow) -> Result<()> {
    let before = server.cpu_time()?;
    let done = task.run()?;
    row.add(server.cpu_time()? - before, &done);
    Ok(())
}

fn measurement_duration(is_quick: bool) -> Duration {
    Duration::from_secs(if is_quick { 1 } else { 5 })
}

/// GET by id over keep-alive connections.
fn cost(pair: &ServerPair, is_quick: bool) -> Result<()> {
    let encrypted = Transport::tls(&pair.certificate, false)?;
    let (mut plain, mut tls) = (TlsRow::default(), TlsRow::default());
    for _ in 0..report::ROUNDS {
        let task = pair.task(&pair.plain, &Transport::Plain, measurement_duration(is_quick));
        measure_into(&pair.plain, &task, &mut plain)?;
        measure_into(
            &pair.tls,
            &pair.task(&pair.tls, &encrypted, measurement_duration(is_quick)),
            &mut tls,
        )?;
    }
    print_head();
    plain.print("GET by id, HTTP");
    tls.print("GET by id, HTTPS");
    let ratio = tls.cpu_ratio(&plain);
    report::judge(&[("CPU of a GET, HTTPS to HTTP", ratio, Target::AtMost(COST_MAX))]);
    Ok(())
}

/// One GET per connection: the difference to plain HTTP is the handshake.
fn connections(pair: &ServerPair, is_quick: bool) -> Result<()> {
    let (whole, resumed) =
        (Transport::tls(&pair.certificate, false)?, Transport::tls(&pair.certificate, true)?);
    let cases = [
        ("connection and GET, HTTP", &pair.plain, &Transport::Plain),
        ("the same, HTTPS, whole handshake", &pair.tls, &whole),
        ("the same, HTTPS, resumed", &pair.tls, &resumed),
    ];
    let mut rows: [TlsRow; 3] = Default::default();
    for _ in 0..report::ROUNDS {
        for ((_, server, way), row) in cases.iter().zip(&mut rows) {
            let task = TlsLoad {
                reconnects: true,
                ..pair.task(server, way, measurement_duration(is_quick))
            };
            measure_into(server, &task, row)?;
        }
    }
    print_head();
    for ((name, _, _), row) in cases.iter().zip(&rows) {
        row.print(name);
    }
    Ok(())
}

/// Starts a process that does nothing but handshakes, at a low priority.
fn start_flood(server: &Server, certificate: &Path, seconds: u64) -> Result<Child> {
    let mut command = Command::new("nice");
    command.args(["-n", "10"]).arg(std::env::current_exe()?).arg("handshakes");
    command.arg(server.address.to_string()).arg(certificate).arg(seconds.to_string());
    Ok(command.stdout(Stdio::piped()).spawn()?)
}

/// The work of that process.
pub fn flood(address: &str, certificate: &str, seconds: &str) -> Result<()> {
    let way = Transport::tls(Path::new(certificate), false)?;
    let time = Duration::from_secs(seconds.parse()?);
    println!("{}", client::flood_handshakes(address.parse()?, &way, 200, time)?);
    Ok(())
}

/// Throughput of a connected client: alone, during a flood at another server, and during one at its
/// own.
fn throughput_during_flood(pair: &ServerPair, is_quick: bool) -> Result<()> {
    let way = Transport::tls(&pair.certificate, false)?;
    let seconds = if is_quick { 3 } else { 10 };
    let mut rows: [TlsRow; 3] = Default::default();
    let mut floods: [Vec<f64>; 2] = Default::default();
    for _ in 0..report::ROUNDS {
        let task = pair.task(&pair.tls, &way, Duration::from_secs(seconds));
        let [alone, elsewhere, here] = &mut rows;
        measure_into(&pair.tls, &task, alone)?;
        let rounds = [(&pair.decoy, elsewhere), (&pair.tls, here)];
        for ((server, row), rates) in rounds.into_iter().zip(&mut floods) {
            let attacker = start_flood(server, &pair.certificate, seconds + 2)?;
            // Waits until the flood has begun.
            thread::sleep(Duration::from_secs(1));
            measure_into(&pair.tls, &task, row)?;
            let output = attacker.wait_with_output()?;
            let count: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
            rates.push(count / (seconds + 2) as f64);
        }
    }
    print_head();
    let [alone, elsewhere, here] = &rows;
    alone.print("a caller alone");
    elsewhere.print("beside a flood at another server");
    here.print("beside a flood at its own");
    let [there, own] = floods.map(median);
    println!("handshakes a second: {there:.0} at the other server, {own:.0} at its own");
    let share = |row: &TlsRow, of: &TlsRow| {
        median(row.rate.iter().zip(&of.rate).map(|(own, other)| own / other).collect())
    };
    println!("share of its throughput alone: {:.2}", share(here, alone));
    report::judge(&[(
        "throughput beside a flood, own server to another",
        share(here, elsewhere),
        Target::AtLeast(SHARE_MIN),
    )]);
    Ok(())
}

/// Anonymous memory of an idle connection that has had one response.
fn connection_memory(pair: &ServerPair, is_quick: bool) -> Result<()> {
    let count = if is_quick { 400 } else { 4_000 };
    let encrypted = Transport::tls(&pair.certificate, false)?;
    for (name, server, way) in
        [("HTTP", &pair.plain, &Transport::Plain), ("HTTPS", &pair.tls, &encrypted)]
    {
        // The first connections allocate what all share.
        client::hold_idle_connections(server.address, way, 50, || Ok(()))?;
        let before = server.anonymous_megabytes()?;
        let after = client::hold_idle_connections(server.address, way, count, || {
            server.anonymous_megabytes()
        })?;
        let each = (after - before) * 1e3 / count as f64;
        println!("{name:<6} {each:>6.1} kB for each of {count} idle connections");
    }
    Ok(())
}
