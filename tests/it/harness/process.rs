//! Child processes and their output.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::{TIMEOUT, wait_until};

/// A child process whose output is collected while it runs.
#[derive(Debug)]
pub struct Process {
    pub(super) child: Child,
    lines: mpsc::Receiver<String>,
    pub(super) stdout: Arc<Mutex<String>>,
    pub(super) stderr: Arc<Mutex<String>>,
    readers: Vec<thread::JoinHandle<()>>,
}

/// How a process ended, and its output.
#[derive(Debug)]
pub struct FinishedProcess {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Process {
    pub fn spawn(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (sender, lines) = mpsc::channel();
        let (stdout, stderr) = (Arc::default(), Arc::default());
        let out = collect_lines(child.stdout.take().unwrap(), &stdout, move |line| {
            drop(sender.send(line));
        });
        let err = collect_lines(child.stderr.take().unwrap(), &stderr, drop);
        Self { child, lines, stdout, stderr, readers: vec![out, err] }
    }

    /// The first line on stdout; fails when the process ends without one.
    pub fn first_line(&self) -> String {
        self.next_line().unwrap_or_else(|| {
            // Not inside the panic, which would poison the lock that `drop` needs.
            let stderr = self.stderr.lock().unwrap().clone();
            panic!("no line on stdout; stderr:\n{stderr}");
        })
    }

    /// The next line on stdout; `None` when the process ends without one.
    pub fn next_line(&self) -> Option<String> {
        match self.lines.recv_timeout(TIMEOUT) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no line on stdout and no end"),
        }
    }

    /// Its stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub fn signal(&self, name: &str) {
        assert!(self.try_signals(&[name]));
    }

    /// Sends signals, one directly after the other. Returns whether the process existed.
    pub(super) fn try_signals(&self, names: &[&str]) -> bool {
        // The shell's own `kill`: the separate program is not on every machine.
        let id = self.child.id();
        let lines: Vec<_> = names.iter().map(|name| format!("kill -{name} {id}")).collect();
        let mut shell = Command::new("sh");
        shell.args(["-c", &lines.join(" && ")]).stderr(Stdio::null());
        shell.status().unwrap().success()
    }

    pub(super) fn kill(&mut self) {
        // An error here means that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait_until("the process ends", || self.child.try_wait().unwrap())
    }

    /// `end` for a program that computes for minutes, such as a compiler on a busy machine.
    pub fn end_within(mut self, limit: Duration) -> FinishedProcess {
        let deadline = Instant::now() + limit;
        while !self.has_ended() {
            assert!(
                Instant::now() < deadline,
                "timed out after {limit:?}: the process has not ended"
            );
            thread::sleep(Duration::from_millis(20));
        }
        self.end()
    }

    /// Waits for the end and for the last byte of both outputs.
    pub fn end(mut self) -> FinishedProcess {
        let status = self.wait();
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        let text = |shared: &Mutex<String>| shared.lock().unwrap().clone();
        FinishedProcess {
            code: status.code(),
            stdout: text(&self.stdout),
            stderr: text(&self.stderr),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A test that fails because its server is gone should say so.
        if let (true, Ok(Some(status))) = (thread::panicking(), self.child.try_wait()) {
            eprintln!("the process had ended: {status}; stderr:\n{}", self.stderr.lock().unwrap());
        }
        self.kill();
        // Its last output is searched too. A process that it has started may continue to write.
        let deadline = Instant::now() + Duration::from_secs(1);
        while self.readers.iter().any(|reader| !reader.is_finished()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Reads lines on a thread of its own, so that the child never blocks on a full pipe.
fn collect_lines(
    from: impl Read + Send + 'static,
    into: &Arc<Mutex<String>>,
    mut on_line: impl FnMut(String) + Send + 'static,
) -> thread::JoinHandle<()> {
    let into = Arc::clone(into);
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let mut text = into.lock().unwrap();
            text.push_str(&line);
            text.push('\n');
            drop(text);
            on_line(line);
        }
    })
}

/// The address in the line that a server prints when it serves.
pub fn parse_address(line: &str) -> SocketAddr {
    let found = line.rsplit_once(" at https://").or_else(|| line.rsplit_once(" at http://"));
    match found {
        Some((front, address)) if front.starts_with("nouns: serving ") => {
            // A client cannot connect to the wildcard address.
            address.replace("0.0.0.0:", "127.0.0.1:").parse().unwrap()
        }
        _ => panic!("expected `nouns: serving TITLE at http://ADDR:PORT`, got {line:?}"),
    }
}
