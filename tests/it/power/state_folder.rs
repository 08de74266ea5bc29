//! A folder that holds one state after the other.
//!
//! It writes only the difference to the previous state, since most states are almost equal.
//! It assumes that no other program changes its files; `mark_changed` reports such a change.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::harness::Folder;

const BLOCK: usize = 4096;
/// The files are read back once in this many times.
const CHECK_INTERVAL: usize = 256;

#[derive(Debug)]
pub struct StateFolder {
    folder: Folder,
    files: BTreeMap<String, Vec<u8>>,
    count: usize,
}

impl StateFolder {
    pub fn new() -> Self {
        // Nothing here has to survive, and a memory file system does not wait for a disk.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { Folder::new_in(memory) } else { Folder::new() };
        Self { folder, files: BTreeMap::new(), count: 0 }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes the folder hold these files and no others.
    pub fn write_state(&mut self, files: BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(self.path()).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if !files.contains_key(&name) || !self.files.contains_key(&name) {
                fs::remove_file(entry.path()).unwrap();
                self.files.remove(&name);
            }
        }
        for (name, bytes) in &files {
            let path = self.path().join(name);
            let file =
                File::options().create(true).truncate(false).write(true).open(&path).unwrap();
            let held = self.files.get(name).map_or(&[][..], Vec::as_slice);
            file.set_len(u64::try_from(bytes.len()).unwrap()).unwrap();
            for (index, block) in bytes.chunks(BLOCK).enumerate() {
                let start = index * BLOCK;
                if held.get(start..start + block.len()) != Some(block) {
                    file.write_all_at(block, u64::try_from(start).unwrap()).unwrap();
                }
            }
        }
        self.files = files;
        self.count += 1;
        if self.count.is_multiple_of(CHECK_INTERVAL) {
            self.check();
        }
    }

    /// Reports that the files may have been changed.
    pub fn mark_changed(&mut self) {
        self.files.clear();
    }

    fn check(&self) {
        for (name, bytes) in &self.files {
            let found = fs::read(self.path().join(name)).unwrap();
            assert!(found == *bytes, "{name} was changed behind our back");
        }
    }
}
