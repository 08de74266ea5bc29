//! The measured processes, and the kernel's accounting of them.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// A temporary folder that is removed on drop.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("nouns-bench-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Builds the executable of the server as packages contain it, and returns its path.
pub fn build_dist() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    // The baselines are in this program: both need the same optimization.
    if !this.parent().is_some_and(|folder| folder.ends_with("dist")) {
        return Err("run it with `cargo run --profile dist -p bench`".into());
    }
    let mut build = Command::new("cargo");
    run_to_success(build.args(["build", "--profile", "dist", "--package", "nouns"]))?;
    Ok(this.with_file_name("nouns"))
}

/// Runs a command to its end; a failure is an error.
pub fn run_to_success(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {status}").into()),
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    /// Starts a command that prints its address on the first line, with its log in a file.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let log = std::fs::File::create(log)?;
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn()?;
        let stdout = child.stdout.take().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address =
            line.trim().rsplit_once("://").ok_or("the server did not start")?.1.parse()?;
        Ok(Self { child, address })
    }

    /// Starts a command that listens at this address, and waits until it does.
    pub fn start_at(address: SocketAddr, command: &mut Command, log: &Path) -> Result<Self> {
        let log = std::fs::File::create(log)?;
        let child = command.stdout(log.try_clone()?).stderr(log).spawn()?;
        let server = Self { child, address };
        let until = Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(address).is_err() {
            if Instant::now() > until {
                return Err(format!("{command:?} does not listen").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Starts the bare server, with the response that ours gave.
    pub fn start_baseline(folder: &Path, reply: &str) -> Result<Self> {
        let file = folder.join("reply.txt");
        std::fs::write(&file, reply)?;
        Self::start(
            Command::new(std::env::current_exe()?).arg("bare").arg(file),
            &folder.join("bare.log"),
        )
    }

    /// Terminates the server, and waits until it has ended.
    pub fn stop(mut self) -> Result<()> {
        run_to_success(Command::new("kill").arg(self.id().to_string()))?;
        self.child.wait()?;
        Ok(())
    }

    pub fn has_ended(&mut self) -> bool {
        // A server that ran out of memory does not end at once.
        std::thread::sleep(Duration::from_millis(100));
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// User and system time so far, of all threads.
    pub fn cpu_time(&self) -> Result<Duration> {
        let mut nanos = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.id()))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            nanos += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// User and system time so far, of the threads with this name.
    pub fn thread_cpu_time(&self, thread: &str) -> Result<Duration> {
        let mut nanos = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.id()))? {
            let path = task?.path();
            if std::fs::read_to_string(path.join("comm"))?.trim() == thread {
                let text = std::fs::read_to_string(path.join("schedstat"))?;
                nanos += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
            }
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// Anonymous memory in megabytes: without the program's text and mapped files.
    pub fn anonymous_megabytes(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let line = line.ok_or("no RssAnon")?.trim().trim_end_matches(" kB");
        Ok(line.parse::<f64>()? * 1024.0 / 1e6)
    }

    /// Bytes read from the disk, not from the page cache.
    pub fn disk_bytes(&self) -> Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/io", self.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
        Ok(line.ok_or("no read_bytes")?.parse()?)
    }

    /// The proportional set size, without mapped database files. The executable counts in full,
    /// although several processes may share it.
    pub fn memory_bytes(&self) -> Result<u64> {
        let folder = PathBuf::from(format!("/proc/{}", self.id()));
        let executable = std::fs::read_link(folder.join("exe"))?;
        let executable = executable.to_string_lossy();
        let text = std::fs::read_to_string(folder.join("smaps"))?;
        let mut bytes = 0;
        let mut counted = "Pss:";
        for line in text.lines() {
            if let Some(size) = line.strip_prefix(counted).filter(|_| !counted.is_empty()) {
                bytes += size.trim().trim_end_matches(" kB").parse::<u64>()? * 1024;
            } else if line.split(' ').next().is_some_and(|first| first.contains('-')) {
                counted = match line {
                    _ if line.contains(".db") => "",
                    _ if line.ends_with(&*executable) => "Rss:",
                    _ => "Pss:",
                };
            }
        }
        Ok(bytes)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
