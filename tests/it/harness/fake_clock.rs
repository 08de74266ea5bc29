//! A fake wall clock for programs that a test starts, moved while they run, by `libfaketime`.
//!
//! Timeouts and intervals use the monotonic clock, which is not changed.

use std::fs;
use std::path::Path;

use super::Folder;

/// A clock that is ahead of the real time, or behind it, by this many seconds.
#[derive(Debug)]
pub struct FakeClock(Folder);

impl FakeClock {
    pub fn new(seconds: i64) -> Self {
        remove_leftovers();
        let clock = Self(Folder::new());
        clock.set(seconds);
        clock
    }

    /// Takes effect at once: a program reads the file whenever it reads its clock.
    pub fn set(&self, seconds: i64) {
        let new = self.0.path().join("new");
        fs::write(&new, format!("{seconds:+}")).unwrap();
        fs::rename(new, self.0.path().join("clock")).unwrap();
    }

    /// The prefix of a command that runs with this clock, for `Setup::under` and the like.
    pub fn command_prefix(&self) -> Vec<String> {
        let file = self.0.path().join("clock");
        [
            "/usr/bin/env",
            "LD_PRELOAD=/usr/$LIB/faketime/libfaketime.so.1",
            &format!("FAKETIME_TIMESTAMP_FILE={}", file.display()),
            "FAKETIME_NO_CACHE=1",
            // The first is the variable's former name.
            "DONT_FAKE_MONOTONIC=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        ]
        .map(str::to_owned)
        .to_vec()
    }
}

/// Removes the semaphores and shared memory of killed processes. They are named after the process id, and
/// a process of another user that gets this id could not start.
fn remove_leftovers() {
    for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some((front, id)) = name.rsplit_once('_')
            && (front.ends_with("faketime_sem") || front.ends_with("faketime_shm"))
            && !Path::new("/proc").join(id).exists()
        {
            // Another test may have removed it, or another user owns it.
            drop(fs::remove_file(entry.path()));
        }
    }
}
