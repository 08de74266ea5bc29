//! The number of fsync calls of a server, counted by strace.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::Result;
use crate::load_generator::{Client, RequestTemplates};
use crate::process::{self, Server};

/// Counts the fsync calls during this many sequential requests.
pub fn count(server: &Server, shots: &RequestTemplates, requests: usize) -> Result<String> {
    let mut strace = match Command::new("strace")
        .args(["-f", "-c", "-e", "trace=fsync,fdatasync,sync_file_range,msync", "-p"])
        .arg(server.id().to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
    {
        Ok(strace) => strace,
        Err(error) => return Ok(format!("not counted (strace: {error})")),
    };
    let stderr = strace.stderr.take().ok_or("no output of strace")?;
    let mut lines = BufReader::new(stderr).lines();
    let first = lines.next().ok_or("strace said nothing")??;
    if !first.contains("attached") {
        strace.wait()?;
        return Ok(format!("not counted ({first})"));
    }
    let mut client = Client::connect(server.address)?;
    for shot in shots.iter().cycle().take(requests) {
        client.send(shot)?;
    }
    process::run_to_success(Command::new("kill").args(["-INT", &strace.id().to_string()]))?;
    let mut calls = 0;
    for line in lines {
        let line = line?;
        let mut words = line.split_whitespace();
        let is_sync = words.next_back().is_some_and(|name| name.contains("sync"));
        if let Some(number) = words.nth(3).filter(|_| is_sync) {
            calls += number.parse::<usize>()?;
        }
    }
    strace.wait()?;
    Ok(calls.to_string())
}
