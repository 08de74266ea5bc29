//! Runs a client of `tests/clients/` and has it take one step after another.
//!
//! A client reads lines: the base of all URLs, the scheme, the name, the password; then a line for each
//! step, `METHOD PATH BODY`, where the body may be empty. To each step it writes a line when it has its
//! answer, `STATUS BODY`, or `0 REASON` when it cannot send the request at all. It keeps what it knows
//! from step to step, as a program that uses it would.
//! The one surprising thing: a client is given nothing of our environment but the way to its programs,
//! so that no proxy and no settings of the developer's take part.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use serde_json::Value;

use super::Kind;
use crate::harness::{PATIENCE, Person};

/// A client at work; killed when dropped.
#[derive(Debug)]
pub struct Driver {
    kind: Kind,
    child: Child,
    steps: ChildStdin,
    answers: mpsc::Receiver<String>,
}

/// What a client says of a step.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// 0: it could not send the request.
    pub status: u16,
    pub text: String,
}

impl Step {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

impl Driver {
    pub fn start(kind: &Kind, address: SocketAddr, person: &Person) -> Self {
        let mut child = command(kind).spawn().unwrap_or_else(|error| {
            panic!("{}: {error}; ./test installs what is missing", kind.name)
        });
        let (sender, answers) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                drop(sender.send(line));
            }
        });
        let mut steps = child.stdin.take().unwrap();
        let (name, password) = (&person.name, &person.password);
        write!(steps, "http://{address}\n{}\n{name}\n{password}\n", kind.scheme).unwrap();
        Self { kind: *kind, child, steps, answers }
    }

    /// `step("POST /customers", "{}")`
    pub fn step(&mut self, line: &str, body: &str) -> Step {
        let name = self.kind.name;
        writeln!(self.steps, "{line} {body}").unwrap_or_else(|error| panic!("{name}: {error}"));
        let answer = self.answers.recv_timeout(2 * PATIENCE).unwrap_or_else(|error| {
            // Why is on stderr, which the client shares with us.
            panic!("{name}, {line}: no answer: {error}; ./test installs what is missing")
        });
        let (status, text) = answer.split_once(' ').unwrap_or((&answer, ""));
        let status = status.parse().unwrap_or_else(|error| panic!("{name}: {error} in {answer}"));
        Step { status, text: text.to_owned() }
    }

    /// A step whose status is known.
    pub fn expect(&mut self, line: &str, body: &str, status: u16) -> Step {
        let step = self.step(line, body);
        assert_eq!(step.status, status, "{}, {line}: {step:?}", self.kind.name);
        step
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Where `./test` has put what is no Debian package.
fn packages() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("clients")
}

fn command(kind: &Kind) -> Command {
    let program = match kind.file.rsplit_once('.') {
        Some((_, "sh")) => "bash",
        Some((_, "py")) => "python3",
        Some((_, "mjs")) => "node",
        _ => panic!("{}: nothing is known to run it", kind.file),
    };
    let mut command = Command::new(program);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(kind.file));
    command.env_clear().env("LC_ALL", "C.UTF-8").env("CLIENT_PACKAGES", packages());
    for name in ["PATH", "HOME"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}
