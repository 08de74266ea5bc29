//! Cost of each attack: the server's memory and CPU time, and the latency of another client.
//!
//! The attacker runs in a separate process, at the lowest priority and at a fixed rate, since on a real
//! network it would not share the processor with its victim.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::attack::{self, ALL, Attack};

use crate::Result;
use crate::load_generator::{Client, RequestTemplate};
use crate::probe_client::{self, ProbeResult};
use crate::process::{self, Server};

/// The other client is measured this long before the attack, and as long after it.
const BASELINE_DURATION: Duration = Duration::from_secs(5);
/// Pause between the end of an attack and the next measurement of the server.
const RECOVERY_PAUSE: Duration = Duration::from_secs(4);

const MODEL: &str = r#"
title = "Besieged"

[server]
http2_prior_knowledge = true

[resources.customer.fields]
name  = { type = "text" }
email = { type = "email" }
note  = { type = "text" }
"#;

/// Runs one attack; the parent process reads the printed line. `force`: actions a second and seconds,
/// where they are not the attack's own.
pub fn run_attack_process(name: &str, address: &str, force: &[&str]) -> Result<()> {
    let attack = attack::find_attack(name).ok_or("no such attack")?;
    let mut chosen = attack.force;
    if let [rate, seconds] = force {
        chosen.actions_per_second = rate.parse()?;
        chosen.time = Duration::from_secs(seconds.parse()?);
    }
    let tally = attack::run(attack, address.parse()?, chosen)?;
    println!("{}\t{tally}", tally.actions);
    Ok(())
}

/// Measures every attack whose name contains this.
pub fn measure_attacks(part: &str) -> Result<()> {
    let nouns = process::build_dist()?;
    let folder = process::Folder::new()?;
    std::fs::write(folder.0.join("model.toml"), MODEL)?;
    let items = fill(&nouns, &folder.0)?;
    println!(
        "{:<36} {:>9} {:>19} {:>9} {:>19} {:>8} {:>8} {:>11} {:>11}  how it ended",
        "",
        "actions/s",
        "MB before/peak/after",
        "CPU",
        "GET p50/p99 quiet",
        "attack",
        "ratio",
        "create p99",
        "ratio",
    );
    for attack in ALL.iter().filter(|attack| attack.name.contains(part)) {
        measure_attack(attack, &nouns, &folder.0, &items)?;
    }
    Ok(())
}

/// Every attack one after another on one server: what each leaves behind adds up.
pub fn measure_in_turn() -> Result<()> {
    let nouns = process::build_dist()?;
    let folder = process::Folder::new()?;
    std::fs::write(folder.0.join("model.toml"), MODEL)?;
    let items = fill(&nouns, &folder.0)?;
    let log = folder.0.join("log.json");
    let server = serve(&nouns, &folder.0, &log)?;
    println!("{:<36} {:>14}  how it ended", "", "MB peak/after");
    for attack in ALL {
        let siege = measure_during_attack(attack, &server, &items)?;
        thread::sleep(RECOVERY_PAUSE);
        let after = server.anonymous_megabytes()?;
        println!("{:<36} {:>7.0}/{after:>6.0}  {}", attack.name, siege.peak, siege.ends);
    }
    println!("{}", internal_errors(&log)?);
    Ok(())
}

fn serve(nouns: &Path, folder: &Path, log: &Path) -> Result<Server> {
    let mut command = Command::new(nouns);
    command.args(["serve", "model.toml", "--open", "--listen", "127.0.0.1:0", "--log", "json"]);
    Server::start(command.current_dir(folder), log)
}

/// Creates large items first, so that the first page is as large as a page can be; then small ones,
/// whose paths are returned.
fn fill(nouns: &Path, folder: &Path) -> Result<Vec<String>> {
    let server = serve(nouns, folder, &folder.join("fill.json"))?;
    let note = "x".repeat(15_500);
    for _ in 0..5 {
        let large = vec![format!("{{\"name\":\"Large\",\"note\":\"{note}\"}}"); 100];
        post(&server, &large)?;
    }
    let small: Vec<String> = (0..1_000).map(|n| format!("{{\"name\":\"Small {n}\"}}")).collect();
    let answer = post(&server, &small)?;
    let ids = answer.split("\"id\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    Ok(ids.map(|id| format!("/customers/{id}")).collect())
}

fn post(server: &Server, list: &[String]) -> Result<String> {
    let body = format!("{{\"customers\":[{}]}}", list.join(","));
    let mut client = Client::connect(server.address)?;
    Ok(client.send(&RequestTemplate::send("POST", "/customers", &body))?.to_owned())
}

/// Runs the other client for this long.
fn measure_client(server: &Server, items: &[String], time: Duration) -> ProbeResult {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
        });
        probe_client::probe(server.address, items, &stop)
    })
}

/// Measurements during an attack.
struct AttackMeasurement {
    probe_result: ProbeResult,
    peak: f64,
    cores: f64,
    actions: f64,
    ends: String,
}

/// Starts an attacking process, with the attack's own strength or with this many actions a second for
/// this many seconds.
pub fn start_attack(name: &str, server: &Server, force: Option<(u32, u64)>) -> Result<Child> {
    let program: PathBuf = std::env::current_exe()?;
    // The highest limit of open files, and a lower priority than the server and the other client.
    let script = r#"ulimit -n "$(ulimit -Hn)"; exec nice -n 10 "$0" attack "$@""#;
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(program).args([name, &server.address.to_string()]);
    if let Some((rate, seconds)) = force {
        command.args([rate.to_string(), seconds.to_string()]);
    }
    Ok(command.stdout(Stdio::piped()).spawn()?)
}

/// Parses the output of an attack: how many actions it did, and their results.
pub fn parse_attack_output(output: Vec<u8>) -> Result<(f64, String)> {
    let text = String::from_utf8(output)?;
    let (actions, ends) = text.trim().split_once('\t').ok_or("the attack failed")?;
    Ok((actions.parse()?, ends.to_owned()))
}

fn measure_during_attack(
    attack: &Attack,
    server: &Server,
    items: &[String],
) -> Result<AttackMeasurement> {
    let attacker = start_attack(attack.name, server, None)?;
    let began = Instant::now();
    let before = server.cpu_time()?;
    let stop = AtomicBool::new(false);
    let (noticed, peak, output) = thread::scope(|scope| {
        let client = scope.spawn(|| probe_client::probe(server.address, items, &stop));
        let sampler = scope.spawn(|| {
            let mut peak: f64 = 0.0;
            while !stop.load(Ordering::Relaxed) {
                peak = peak.max(server.anonymous_megabytes().unwrap_or(f64::NAN));
                thread::sleep(Duration::from_millis(50));
            }
            peak
        });
        let output = attacker.wait_with_output();
        stop.store(true, Ordering::Relaxed);
        (client.join().unwrap_or_default(), sampler.join().unwrap_or(f64::NAN), output)
    });
    let seconds = began.elapsed().as_secs_f64();
    let cores = (server.cpu_time()? - before).as_secs_f64() / seconds;
    let (actions, ends) = parse_attack_output(output?.stdout)?;
    Ok(AttackMeasurement { probe_result: noticed, peak, cores, actions: actions / seconds, ends })
}

fn measure_attack(attack: &Attack, nouns: &Path, folder: &Path, items: &[String]) -> Result<()> {
    let log = folder.join("log.json");
    let server = serve(nouns, folder, &log)?;
    measure_client(&server, items, Duration::from_secs(1));
    let before = server.anonymous_megabytes()?;
    let mut quiet = measure_client(&server, items, BASELINE_DURATION);
    let siege = measure_during_attack(attack, &server, items)?;
    thread::sleep(RECOVERY_PAUSE);
    let after = server.anonymous_megabytes()?;
    quiet.add(&measure_client(&server, items, BASELINE_DURATION));
    let micros =
        |times: &[Duration], share| probe_client::percentile(times, share).as_secs_f64() * 1e6;
    let (p50, p99) = (micros(&quiet.gets, 0.5), micros(&quiet.gets, 0.99));
    let (hard50, hard99) =
        (micros(&siege.probe_result.gets, 0.5), micros(&siege.probe_result.gets, 0.99));
    let (create, hard_create) =
        (micros(&quiet.creates, 0.99), micros(&siege.probe_result.creates, 0.99));
    println!(
        "{:<36} {:>9.0} {before:>6.0}/{:>5.0}/{after:>5.0} {:>8.0}% {p50:>7.0}/{p99:>7.0} {hard50:>7.0}/{hard99:>7.0} {:>6.1} {create:>7.0}/{hard_create:>7.0} {:>6.1}  {}{}{}",
        attack.name,
        siege.actions,
        siege.peak,
        siege.cores * 100.0,
        hard99 / p99,
        hard_create / create,
        siege.ends,
        failures(&siege.probe_result, &quiet),
        internal_errors(&log)?,
    );
    Ok(())
}

fn failures(hard: &ProbeResult, quiet: &ProbeResult) -> String {
    match (hard.failures, quiet.failures) {
        (0, 0) => String::new(),
        (hard, quiet) => format!("; the other client failed {hard} times, in quiet {quiet}"),
    }
}

fn internal_errors(log: &Path) -> Result<String> {
    let text = std::fs::read_to_string(log)?;
    let count = text.lines().filter(|line| line.contains("\"status\":500")).count();
    Ok(if count == 0 { String::new() } else { format!("; {count} answers of 500") })
}
