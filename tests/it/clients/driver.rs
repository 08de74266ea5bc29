//! The driver of a client in `tests/clients/`: it starts the client and has it take one step after
//! another.
//!
//! A client reads lines. `LOGIN`, and then one line each for the base of all URLs, the scheme, the name
//! and the password: from there on it has no state from earlier logins. `VERSION`: it writes a line
//! with its version.
//! Any other line is a step, `METHOD PATH BODY`, where the body may be empty: it writes a line when it
//! has its response, `STATUS BODY`, or `0 REASON` when it cannot send the request at all. It keeps its
//! state from step to step, as a program that uses it would.
//! A client inherits nothing of our environment but `PATH`, so that no proxy and no settings of the
//! developer take effect.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client_row::ClientRow;
use super::test_server;
use crate::harness::{Folder, Person, TIMEOUT};

/// A running client; it ends when dropped.
#[derive(Debug)]
pub struct ClientDriver {
    file: &'static str,
    child: Child,
    steps: Option<ChildStdin>,
    answers: mpsc::Receiver<String>,
    // Its home folder is removed with it.
    _home: Folder,
}

/// A client's report of a step.
#[derive(Debug, PartialEq, Eq)]
pub struct StepResult {
    /// 0: it could not send the request.
    pub status: u16,
    pub text: String,
}

impl StepResult {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

impl ClientDriver {
    pub fn start(file: &'static str) -> Self {
        let home = Folder::new();
        let mut child = client_command(file, &home)
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

    /// Logs in as this person, with no state from earlier logins.
    pub fn log_in(&mut self, kind: &ClientRow, base: &str, person: &Person) {
        assert_eq!(kind.file, self.file);
        let (name, password) = (&person.name, &person.password);
        self.write_lines(&format!("LOGIN\n{base}\n{}\n{name}\n{password}", kind.scheme));
    }

    /// The version of the program that has logged in last.
    pub fn version(&mut self) -> String {
        self.request_line("VERSION")
    }

    /// `step("POST /customers", "{}")`
    pub fn step(&mut self, line: &str, body: &str) -> StepResult {
        let answer = self.request_line(&format!("{line} {body}"));
        let (status, text) = answer.split_once(' ').unwrap_or((&answer, ""));
        let file = self.file;
        let status = status.parse().unwrap_or_else(|error| panic!("{file}: {error} in {answer}"));
        StepResult { status, text: text.to_owned() }
    }

    fn write_lines(&mut self, lines: &str) {
        let steps = self.steps.as_mut().unwrap();
        writeln!(steps, "{lines}").unwrap_or_else(|error| panic!("{}: {error}", self.file));
    }

    fn request_line(&mut self, line: &str) -> String {
        self.write_lines(line);
        self.answers.recv_timeout(4 * TIMEOUT).unwrap_or_else(|error| {
            // The reason is on stderr, which the client shares with us.
            panic!("{}, {line}: no answer: {error}; ./test installs what is missing", self.file)
        })
    }
}

impl Drop for ClientDriver {
    fn drop(&mut self) {
        // At the end of its input the client exits, and stops the browser that it has started.
        drop(self.steps.take());
        let deadline = Instant::now() + TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The folder in which `./test` installs what is not a Debian package.
fn packages_folder() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("clients")
}

fn client_command(file: &str, home: &Folder) -> Command {
    let mut command = match file.rsplit_once('.') {
        Some((_, "sh")) => Command::new("bash"),
        Some((_, "py")) => Command::new(packages_folder().join("python/bin/python3")),
        Some((_, "mjs")) => Command::new("node"),
        Some((_, "pl")) => Command::new("perl"),
        Some((_, "java")) => {
            let mut java = Command::new("java");
            // It runs for seconds, so that JIT compilation does not pay off.
            java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]);
            java
        }
        _ => panic!("{file}: nothing is known to run it"),
    };
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(file));
    command.env_clear().env("LC_ALL", "C.UTF-8").env("CLIENT_PACKAGES", packages_folder());
    command.env("HOME", home.path()).env("TMPDIR", home.path());
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    // Node reads it at its start.
    let authority = test_server::write_ca_certificate(home.path());
    command.env("CLIENT_CA", &authority).env("NODE_EXTRA_CA_CERTS", &authority);
    command.envs(std::env::var_os("PATH").map(|value| ("PATH", value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}
