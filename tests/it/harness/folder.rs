//! A temporary folder for one test, and the database with its name.
//!
//! The folder's name may have been taken by an earlier run that was killed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Postgres;

/// A temporary folder, removed when dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The PostgreSQL database of this name, if there is one; it is dropped with the folder.
    database: OnceLock<String>,
}

impl Folder {
    pub fn new() -> Self {
        Self::new_in(&std::env::temp_dir())
    }

    pub fn new_in(parent: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("nouns-test-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Self { path, database: OnceLock::new() },
                // Left behind by an earlier run that was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the database of this folder unless it exists.
    pub fn with_database(&self, make: impl FnOnce(&str)) {
        self.database.get_or_init(|| {
            let name = Postgres::database_name(&self.path);
            make(&name);
            name
        });
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed is no reason to fail a test that passed.
        drop(fs::remove_dir_all(&self.path));
        if let Some(name) = self.database.get() {
            Postgres::drop_database(name);
        }
    }
}
