//! Runs a client of `tests/clients/` and has it take one step after another.
//!
//! A client reads lines. `LOGIN`, and then one line each for the base of all URLs, the scheme, the name and
//! the password: from there on it is new to the server. `VERSION`: it writes a line with its version.
//! Any other line is a step, `METHOD PATH BODY`, where the body may be empty: it writes a line when it
//! has its answer, `STATUS BODY`, or `0 REASON` when it cannot send the request at all. It keeps what it
//! knows from step to step, as a program that uses it would.
//! The one surprising thing: a client is given nothing of our environment but the way to its programs,
//! so that no proxy and no settings of the developer's take part.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::kind::Kind;
use super::place;
use crate::harness::{Folder, PATIENCE, Person};

/// A client at work; it ends when dropped.
#[derive(Debug)]
pub struct Driver {
    file: &'static str,
    child: Child,
    steps: Option<ChildStdin>,
    answers: mpsc::Receiver<String>,
    // What it keeps in its home goes with it.
    _home: Folder,
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
    pub fn start(file: &'static str) -> Self {
        let home = Folder::new();
        let mut child = command(file, &home)
            .spawn()
            .unwrap_or_else(|error| panic!("{file}: {error}; ./test installs what is missing"));
        let (sender, answers) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                drop(sender.send(line));
            }
        });
        let steps = child.stdin.take();
        Self { file, child, steps, answers, _home: home }
    }

    /// From here on it is somebody else, who knows of no server yet.
    pub fn log_in(&mut self, kind: &Kind, base: &str, person: &Person) {
        assert_eq!(kind.file, self.file);
        let (name, password) = (&person.name, &person.password);
        self.say(&format!("LOGIN\n{base}\n{}\n{name}\n{password}", kind.scheme));
    }

    /// Of the program that has logged in last.
    pub fn version(&mut self) -> String {
        self.ask("VERSION")
    }

    /// `step("POST /customers", "{}")`
    pub fn step(&mut self, line: &str, body: &str) -> Step {
        let answer = self.ask(&format!("{line} {body}"));
        let (status, text) = answer.split_once(' ').unwrap_or((&answer, ""));
        let file = self.file;
        let status = status.parse().unwrap_or_else(|error| panic!("{file}: {error} in {answer}"));
        Step { status, text: text.to_owned() }
    }

    fn say(&mut self, lines: &str) {
        let steps = self.steps.as_mut().unwrap();
        writeln!(steps, "{lines}").unwrap_or_else(|error| panic!("{}: {error}", self.file));
    }

    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.answers.recv_timeout(4 * PATIENCE).unwrap_or_else(|error| {
            // Why is on stderr, which the client shares with us.
            panic!("{}, {line}: no answer: {error}; ./test installs what is missing", self.file)
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // At the end of its input it ends, and takes the browser with it that it has started.
        drop(self.steps.take());
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Where `./test` has put what is no Debian package.
fn packages() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("clients")
}

fn command(file: &str, home: &Folder) -> Command {
    let mut command = match file.rsplit_once('.') {
        Some((_, "sh")) => Command::new("bash"),
        Some((_, "py")) => Command::new(packages().join("python/bin/python3")),
        Some((_, "mjs")) => Command::new("node"),
        Some((_, "pl")) => Command::new("perl"),
        Some((_, "java")) => {
            let mut java = Command::new("java");
            // It runs for seconds: what pays later is not worth its price.
            java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]);
            java
        }
        _ => panic!("{file}: nothing is known to run it"),
    };
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(file));
    command.env_clear().env("LC_ALL", "C.UTF-8").env("CLIENT_PACKAGES", packages());
    command.env("HOME", home.path()).env("TMPDIR", home.path());
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    // Node has to know it before it starts.
    let authority = place::authority(home.path());
    command.env("CLIENT_CA", &authority).env("NODE_EXTRA_CA_CERTS", &authority);
    command.envs(std::env::var_os("PATH").map(|value| ("PATH", value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}
