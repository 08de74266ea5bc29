//! The change feed: memory of idle event streams, the delay of one change to all of them, creates beside
//! streams, and CPU time per event.
//!
//! The streams are those of browsers: HTTP/1.1 without TLS, one connection each, on one thread of this process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Result;
use crate::load_generator::{Client, Load, Pacing, RequestTemplate, RequestTemplates, runtime};
use crate::process::{Folder, Server, build_dist};
use crate::report::{self, ROUNDS, Target};

const MODEL: &str = r#"
title = "Feed"
[server.limits]
streams_max = 10000
streams_per_caller_max = 10000
[resources.entry.fields]
text = { type = "text", filter = true }
count = { type = "integer", filter = true }
"#;
const IDLE_STREAMS: usize = 2_000;
const UNREAD_STREAMS: usize = 50;
const CONNECTIONS: usize = 32;
/// Long enough for 2,000 connections one after the other.
const WAIT_MAX: Duration = Duration::from_secs(60);
const EVENT: &[u8] = b"\nevent: ";

/// Runs this part alone.
pub fn run(is_quick: bool) -> Result<()> {
    let nouns = build_dist()?;
    let folder = Folder::new()?;
    let time = Duration::from_secs(if is_quick { 2 } else { 5 });
    let rounds = if is_quick { 1 } else { ROUNDS };
    let mut figures = measure_idle(&nouns, &folder.0.join("idle"))?;
    figures.extend(measure_creates(&nouns, &folder.0.join("creates"), (time, rounds))?);
    measure_events(&nouns, &folder.0.join("events"), time)?;
    report::judge(&figures);
    Ok(())
}

fn serve(nouns: &Path, folder: &Path) -> Result<Server> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("nouns.toml"), MODEL)?;
    let mut command = Command::new(nouns);
    command.args(["serve", "--open", "--listen", "127.0.0.1:0", "--log", "json"]);
    Server::start(command.current_dir(folder), &folder.join("log.json"))
}

fn create_requests() -> RequestTemplates {
    let body =
        r#"{"entry":{"text":"a line of some words that is neither short nor long","count":1}}"#;
    Arc::new([RequestTemplate::send("POST", "/entries", body)])
}

/// What the streams of a thread have seen.
#[derive(Debug, Default)]
struct StreamCounts {
    opened: AtomicUsize,
    events: AtomicUsize,
    is_over: AtomicBool,
}

/// Streams that are read on a thread of their own until they are dropped.
struct EventStreams {
    counts: Arc<StreamCounts>,
    thread: Option<JoinHandle<()>>,
}

impl EventStreams {
    /// Opens one stream for each target.
    fn open(address: SocketAddr, targets: Vec<String>) -> Result<Self> {
        let (counts, wanted) = (Arc::new(StreamCounts::default()), targets.len());
        let shared = Arc::clone(&counts);
        let thread = std::thread::spawn(move || {
            let Ok(runtime) = runtime() else { return };
            runtime.block_on(async {
                for target in targets {
                    let counts = Arc::clone(&shared);
                    tokio::task::spawn_local(async move {
                        read_stream(address, &target, &counts).await
                    });
                }
                while !shared.is_over.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        });
        let streams = Self { counts, thread: Some(thread) };
        wait_until(|| streams.counts.opened.load(Ordering::Relaxed) == wanted)?;
        Ok(streams)
    }

    fn events(&self) -> usize {
        self.counts.events.load(Ordering::Relaxed)
    }
}

impl Drop for EventStreams {
    fn drop(&mut self) {
        self.counts.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Counts the events of one stream. Its end shows as too few events.
async fn read_stream(address: SocketAddr, target: &str, counts: &StreamCounts) -> Option<()> {
    let mut socket = TcpStream::connect(address).await.ok()?;
    socket.write_all(stream_request(target).as_bytes()).await.ok()?;
    let (mut buffer, mut kept, mut is_open) = ([0; 4096], Vec::new(), false);
    loop {
        let length = socket.read(&mut buffer).await.ok().filter(|length| *length > 0)?;
        kept.extend_from_slice(buffer.get(..length)?);
        if !is_open && kept.starts_with(b"HTTP/1.1 200 ") {
            is_open = true;
            counts.opened.fetch_add(1, Ordering::Relaxed);
        }
        let found = kept.windows(EVENT.len()).filter(|window| *window == EVENT).count();
        counts.events.fetch_add(found, Ordering::Relaxed);
        // The beginning of the pattern may be at the end of what was read.
        kept.drain(..kept.len().saturating_sub(EVENT.len() - 1));
    }
}

fn stream_request(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
}

fn wait_until(is_reached: impl Fn() -> bool) -> Result<Duration> {
    let began = Instant::now();
    while !is_reached() {
        if began.elapsed() > WAIT_MAX {
            return Err("the streams did not arrive where they should".into());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(began.elapsed())
}

fn resident_megabytes(server: &Server) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.id()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0 / 1e6)
}

/// Memory of idle streams, and one change to all of them.
fn measure_idle(nouns: &Path, folder: &Path) -> Result<Vec<(&'static str, f64, Target)>> {
    let server = serve(nouns, folder)?;
    let before = resident_megabytes(&server)?;
    let streams = EventStreams::open(server.address, vec!["/entries".to_owned(); IDLE_STREAMS])?;
    let with = resident_megabytes(&server)?;
    println!("\n{IDLE_STREAMS} idle streams: {before:.1} MB before, {with:.1} MB with them");
    let mut client = Client::connect(server.address)?;
    let (mut halves, mut lasts) = (Vec::new(), Vec::new());
    for round in 0..20 {
        let wanted = round * IDLE_STREAMS;
        wait_until(|| streams.events() == wanted)?;
        let began = Instant::now();
        for request in create_requests().iter() {
            client.send(request)?;
        }
        wait_until(|| streams.events() >= wanted + IDLE_STREAMS / 2)?;
        halves.push(began.elapsed().as_secs_f64() * 1e3);
        wait_until(|| streams.events() >= wanted + IDLE_STREAMS)?;
        lasts.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let (half, last) = (report::median(halves), report::median(lasts));
    println!("one change to all of them: half after {half:.1} ms, the last after {last:.1} ms");
    drop(streams);
    server.stop()?;
    Ok(vec![("MB with 2,000 idle streams", with, Target::AtMost(100.0))])
}

/// Creates without streams, with idle ones whose filter matches nothing, and with streams that read nothing.
fn measure_creates(
    nouns: &Path,
    folder: &Path,
    (time, rounds): (Duration, usize),
) -> Result<Vec<(&'static str, f64, Target)>> {
    let server = serve(nouns, folder)?;
    let load = Load {
        connections: CONNECTIONS,
        pacing: Pacing::ClosedLoop,
        time,
        requests: create_requests(),
        first_request: 0,
    };
    let rate =
        || -> Result<f64> { Ok(report::run_without_refusals(&load, server.address)?.rate()) };
    rate()?;
    let (mut alone, mut idle, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        alone.push(rate()?);
        let targets = vec!["/entries?count:eq=7".to_owned(); IDLE_STREAMS];
        let streams = EventStreams::open(server.address, targets)?;
        idle.push(rate()?);
        drop(streams);
        alone.push(rate()?);
        let mut sockets = Vec::new();
        for _ in 0..UNREAD_STREAMS {
            let mut socket = std::net::TcpStream::connect(server.address)?;
            std::io::Write::write_all(&mut socket, stream_request("/entries").as_bytes())?;
            sockets.push(socket);
        }
        // At first the buffers of their sockets fill.
        rate()?;
        unread.push(rate()?);
        drop(sockets);
    }
    let (alone, idle, unread) =
        (report::median(alone), report::median(idle), report::median(unread));
    println!(
        "\ncreates a second: {alone:.0} alone, {idle:.0} with {IDLE_STREAMS} idle streams, {unread:.0} with {UNREAD_STREAMS} that read nothing"
    );
    server.stop()?;
    Ok(vec![
        ("creates with 2,000 idle streams, ratio", idle / alone, Target::AtLeast(0.8)),
        ("creates with 50 streams that read nothing, ratio", unread / alone, Target::AtLeast(0.98)),
    ])
}

/// CPU time of the feed's thread and of the process for each event: one stream, many with one filter, many
/// with a filter each.
fn measure_events(nouns: &Path, folder: &Path, time: Duration) -> Result<()> {
    const MANY: usize = 100;
    let cases: [(&str, Vec<String>); 4] = [
        ("no stream", Vec::new()),
        ("1 stream", vec!["/entries".to_owned()]),
        ("100 streams of one view", vec!["/entries".to_owned(); MANY]),
        (
            "100 views that match nothing",
            (0..MANY).map(|number| format!("/entries?count:eq={}", number + 10)).collect(),
        ),
    ];
    println!("\nat 500 creates a second: CPU µs per create");
    println!("{:<30} {:>10} {:>10} {:>12}", "", "feed", "process", "events");
    for (name, targets) in cases {
        let server = serve(nouns, &folder.join(name.replace(' ', "-")))?;
        let streams = EventStreams::open(server.address, targets)?;
        let load = Load {
            connections: 10,
            pacing: Pacing::FixedInterval(Duration::from_millis(20)),
            time,
            requests: create_requests(),
            first_request: 0,
        };
        let before = (server.thread_cpu_time("feed")?, server.cpu_time()?);
        let creates = report::run_without_refusals(&load, server.address)?.latencies.len() as f64;
        let feed = report::micros(server.thread_cpu_time("feed")? - before.0) / creates;
        let process = report::micros(server.cpu_time()? - before.1) / creates;
        println!("{name:<30} {feed:>10.1} {process:>10.1} {:>12}", streams.events());
        drop(streams);
        server.stop()?;
    }
    Ok(())
}
