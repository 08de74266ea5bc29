//! A wall clock for programs that a test starts, moved while they run, by `libfaketime`.
//!
//! Time limits and intervals go by the monotonic clock, which stays as it is.

use std::fs;

use super::Folder;

/// A clock that is ahead of the real time, or behind it, by so many seconds.
#[derive(Debug)]
pub struct FakeClock(Folder);

impl FakeClock {
    pub fn new(seconds: i64) -> Self {
        let clock = Self(Folder::new());
        clock.set(seconds);
        clock
    }

    /// At once: the file is read whenever a program looks at its clock.
    pub fn set(&self, seconds: i64) {
        let new = self.0.path().join("new");
        fs::write(&new, format!("{seconds:+}")).unwrap();
        fs::rename(new, self.0.path().join("clock")).unwrap();
    }

    /// What runs a program with this clock, for `Setup::under` and the like.
    pub fn program(&self) -> Vec<String> {
        let file = self.0.path().join("clock");
        [
            "/usr/bin/env",
            "LD_PRELOAD=/usr/$LIB/faketime/libfaketime.so.1",
            &format!("FAKETIME_TIMESTAMP_FILE={}", file.display()),
            "FAKETIME_NO_CACHE=1",
            // The first is how it was called before.
            "DONT_FAKE_MONOTONIC=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        ]
        .map(str::to_owned)
        .to_vec()
    }
}
