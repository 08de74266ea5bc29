//! A Linux control group (cgroup) that limits the memory of a server, and optionally its disk.
//!
//! It includes the page cache: a file that is read again and again does not stay in memory beyond the
//! limit. Process limits (`ulimit`) exclude it, so they cannot cause cold reads.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

const ROOT: &str = "/sys/fs/cgroup";

/// The limits of a control group.
#[derive(Debug, Clone, Copy)]
pub struct CgroupLimits {
    pub memory_bytes: u64,
    /// Disk reads a second.
    pub reads_per_second: Option<u32>,
}

/// A control group; removed on drop, after the processes in it have ended.
#[derive(Debug)]
pub struct Cgroup {
    folders: Vec<PathBuf>,
}

impl Cgroup {
    /// Creates a group whose processes read `file` from its disk.
    pub fn new(limits: CgroupLimits, file: &Path) -> Result<Self> {
        let mut cage = Self { folders: Vec::new() };
        cage.apply_limits(limits, file).map_err(|error| {
            format!("no control group with limits ({error}); it needs root, and {ROOT} writable")
        })?;
        Ok(cage)
    }

    fn apply_limits(&mut self, limits: CgroupLimits, file: &Path) -> Result<()> {
        let name = format!("nouns-bench-{}", std::process::id());
        let is_unified = Path::new(ROOT).join("cgroup.controllers").exists();
        let memory = limits.memory_bytes.to_string();
        let rate = limits.reads_per_second;
        if is_unified {
            let folder = self.create_group(&Path::new(ROOT).join(&name))?;
            fs::write(folder.join("memory.max"), memory)?;
            if let Some(rate) = rate {
                fs::write(folder.join("io.max"), format!("{} riops={rate}", block_device(file)?))?;
            }
        } else {
            let folder = self.create_group(&Path::new(ROOT).join("memory").join(&name))?;
            fs::write(folder.join("memory.limit_in_bytes"), memory)?;
            if let Some(rate) = rate {
                let folder = self.create_group(&Path::new(ROOT).join("blkio").join(&name))?;
                let line = format!("{} {rate}", block_device(file)?);
                fs::write(folder.join("blkio.throttle.read_iops_device"), line)?;
            }
        }
        Ok(())
    }

    fn create_group(&mut self, folder: &Path) -> Result<PathBuf> {
        fs::create_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        self.folders.push(folder.to_owned());
        Ok(folder.to_owned())
    }

    /// The same command, started inside the group.
    pub fn command_inside(&self, command: &Command) -> Command {
        let mut script = String::new();
        for folder in &self.folders {
            script += &format!("echo $$ > {}/cgroup.procs && ", folder.display());
        }
        script += "exec \"$0\" \"$@\"";
        let mut caged = Command::new("sh");
        caged.arg("-c").arg(script).arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            caged.current_dir(folder);
        }
        caged
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The disk that holds a file, as the kernel's two device numbers.
fn block_device(file: &Path) -> Result<String> {
    let number = fs::metadata(file)?.dev();
    let major = (number >> 8) & 0xfff | (number >> 32) & 0xffff_f000;
    let minor = number & 0xff | (number >> 12) & 0xffff_ff00;
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition has no limits of its own.
    if folder.join("partition").exists() {
        return Ok(fs::read_to_string(folder.canonicalize()?.join("../dev"))?.trim().to_owned());
    }
    Ok(format!("{major}:{minor}"))
}
