//! The processes that are measured, and what the kernel says about them.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Result;

/// A temporary folder that goes with its owner.
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

/// Builds the server as it is released, and says where it is.
pub fn build() -> Result<PathBuf> {
    let status =
        Command::new("cargo").args(["build", "--release", "--package", "nouns"]).status()?;
    if !status.success() {
        return Err("the server does not build".into());
    }
    // Beside this program: both are release builds of one workspace.
    Ok(std::env::current_exe()?.with_file_name("nouns"))
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    /// Starts a command that says its address on the first line, with its log in a file.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let log = std::fs::File::create(log)?;
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn()?;
        let stdout = child.stdout.take().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address =
            line.trim().rsplit_once("http://").ok_or("the server did not start")?.1.parse()?;
        Ok(Self { child, address })
    }

    /// The bare server, with the answer that ours gave.
    pub fn bare(folder: &Path, reply: &str) -> Result<Self> {
        let file = folder.join("reply.txt");
        std::fs::write(&file, reply)?;
        Self::start(
            Command::new(std::env::current_exe()?).arg("bare").arg(file),
            &folder.join("bare.log"),
        )
    }

    /// User and system time so far, of all threads.
    pub fn cpu(&self) -> Result<Duration> {
        let mut nanos = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            nanos += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// The proportional share of memory, without mapped database files.
    pub fn memory_bytes(&self) -> Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps", self.child.id()))?;
        let mut bytes = 0;
        let mut is_database = false;
        for line in text.lines() {
            if let Some(pss) = line.strip_prefix("Pss:") {
                let kilobytes: u64 = pss.trim().trim_end_matches(" kB").parse()?;
                bytes += if is_database { 0 } else { kilobytes * 1024 };
            } else if line.split(' ').next().is_some_and(|first| first.contains('-')) {
                is_database = line.contains(".db");
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
