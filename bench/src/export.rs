//! Exports of a whole collection as JSON lines and as CSV, compared with the same items in pages of
//! 500.
//!
//! One client reads as fast as it can and only counts the items. Rows a second show how fast the
//! machine is; the ratio to pages, and the server's CPU and memory, show the cost of streaming a
//! collection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::load_generator::{Client, RequestTemplate};
use crate::process::Server;
use crate::report::{self, ROUNDS};
use crate::{Result, store};

/// A way to read all items: its name and its function.
type ExportMethod = (&'static str, fn(SocketAddr) -> Result<usize>);

const EXPORT_METHODS: [ExportMethod; 3] = [
    ("pages of 500, JSON", read_pages),
    ("whole, NDJSON", |address| read_export(address, "application/x-ndjson", b"}\n")),
    ("whole, CSV", |address| read_export(address, "text/csv", b"Z,1\r\n")),
];

/// Measures and prints all ways.
fn measure(nouns: &Path, folder: &Path, rows: usize) -> Result<()> {
    let filled = store::fill(nouns, folder, rows)?;
    let server = filled.serve(nouns)?;
    println!("\n{rows} customers by one client, medians of {ROUNDS}:");
    println!("{:<20} {:>10} {:>7} {:>12} {:>10}", "", "rows/s", "ratio", "CPU µs/row", "memory MB");
    let mut found: Vec<[Vec<f64>; 3]> = EXPORT_METHODS.iter().map(|_| Default::default()).collect();
    for _ in 0..ROUNDS {
        for ((name, way), [rates, times, memory]) in EXPORT_METHODS.iter().zip(&mut found) {
            let before = (cpu_time(&server)?, memory_kilobytes(&server, "VmRSS")?);
            std::fs::write(format!("/proc/{}/clear_refs", server.id()), "5")?;
            let began = Instant::now();
            let count = way(server.address)?;
            let took = began.elapsed();
            if count != rows {
                return Err(format!("{name}: {count} items").into());
            }
            rates.push(rows as f64 / took.as_secs_f64());
            times.push(report::micros(cpu_time(&server)? - before.0) / rows as f64);
            memory.push((memory_kilobytes(&server, "VmHWM")? - before.1) / 1e3);
        }
    }
    let pages = found.first().map_or(1.0, |[rates, ..]| report::median(rates.clone()));
    for ((name, _), [rates, cpu, memory]) in EXPORT_METHODS.iter().zip(found) {
        let rate = report::median(rates);
        println!(
            "{name:<20} {rate:>10.0} {:>6.2}× {:>12.2} {:>10.1}",
            rate / pages,
            report::median(cpu),
            report::median(memory)
        );
    }
    server.stop()
}

/// User and system time so far, including threads that have ended: an export has a thread of its own.
fn cpu_time(server: &Server) -> Result<Duration> {
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id()))?;
    let fields = stat.rsplit_once(')').ok_or("no such account")?.1.split_whitespace();
    let ticks = fields.skip(11).take(2).map(str::parse::<u32>).sum::<std::result::Result<u32, _>>();
    Ok(TICK * ticks?)
}

/// A figure of the server's memory, in kilobytes.
fn memory_kilobytes(server: &Server, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no such account")?.parse()?)
}

fn read_pages(address: SocketAddr) -> Result<usize> {
    let mut client = Client::connect(address)?;
    let mut path = "/customers?limit=500".to_owned();
    let mut count = 0;
    loop {
        let answer = client.send(&RequestTemplate::get(&path))?;
        count += answer.matches("\"version\":").count();
        let next = answer.rsplit_once("\"next\":\"").and_then(|(_, rest)| rest.split('"').next());
        match next {
            Some(cursor) => path = format!("/customers?limit=500&cursor={cursor}"),
            None => return Ok(count),
        }
    }
}

/// Reads to the terminating chunk, which must arrive, and counts the ends of items.
fn read_export(address: SocketAddr, accept: &str, end: &[u8]) -> Result<usize> {
    const LAST: &[u8] = b"\r\n0\r\n\r\n";
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    let request = format!(
        "GET /customers HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes())?;
    let (mut buffer, mut kept, mut count) = (vec![0; 256 << 10], Vec::new(), 0);
    loop {
        let read = socket.read(&mut buffer)?;
        if read == 0 {
            let is_whole = kept.ends_with(LAST);
            return if is_whole { Ok(count) } else { Err("the export was cut".into()) };
        }
        kept.extend_from_slice(buffer.get(..read).unwrap_or_default());
        count += kept.windows(end.len()).filter(|window| *window == end).count();
        // An item's end may be split between two reads; the kept rest never contains a complete one.
        let last = kept.len().saturating_sub(LAST.len());
        let tail = kept.split_off(last);
        count -= tail.windows(end.len()).filter(|window| *window == end).count();
        kept = tail;
    }
}

/// Runs this part alone.
pub fn run(is_quick: bool) -> Result<()> {
    let nouns = crate::process::build_dist()?;
    let folder = crate::process::Folder::new()?;
    measure(&nouns, &folder.0.join("export"), if is_quick { 20_000 } else { 1_000_000 })
}
