//! A simulated disk that may lose unsynced data: after each step of a log, the files as a power cut
//! could leave them.
//!
//! It knows nothing of SQLite. It is stricter than most file systems: a name is durable only after a
//! sync of the folder, a file's bytes and length only after a sync of the file, and no order of writes
//! is kept. A failed sync leaves its pages clean in the page cache: the processes still read them, and
//! no later sync writes them, until they are written to again.
//! The one surprising thing: overwritten data may survive. A sector can be as it was after any of the
//! writes to it, independently of other sectors.

use std::collections::{BTreeMap, HashMap};

use super::sectors::{Change, Layer, SECTOR, hash, old, sector_hash};
use super::strace::{Call, Step};
use crate::durability::chance::Chance;

/// Sectors of a page of the page cache, which is clean or dirty as a whole.
const PAGE_SECTORS: usize = 8;

/// Which of the unsynced changes survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    /// None.
    Synced,
    /// Everything in the page cache: as after the end of the process alone.
    All,
    /// Some of the calls, each of them completely.
    Calls,
    /// Each sector as it was after some call, and some length that the file had.
    Sectors,
    /// All but this call.
    AllBut(usize),
}

/// A change that may or may not survive.
#[derive(Debug)]
struct Pending<T> {
    call: usize,
    /// A sync covers only calls that have returned when it begins.
    has_returned: bool,
    what: T,
}

#[derive(Debug, Default)]
struct File {
    synced: Vec<u8>,
    synced_hash: u64,
    /// Sectors that a failed sync left clean: in the page cache, and not on the disk.
    lost: BTreeMap<usize, Vec<u8>>,
    pending: Vec<Pending<Change>>,
}

/// A name in the folder, and the file it refers to, if any.
#[derive(Debug, Default)]
struct Name {
    synced: Option<usize>,
    pending: Vec<Pending<Option<usize>>>,
}

#[derive(Debug, Default)]
pub struct Disk {
    files: Vec<File>,
    names: BTreeMap<String, Name>,
    /// For each sync that has begun, the calls that it makes durable: those that had returned before
    /// it.
    syncs: HashMap<usize, Vec<usize>>,
}

/// The files after a power cut, as differences from the synced state.
#[derive(Debug)]
pub struct State {
    files: BTreeMap<String, (usize, Layer)>,
    /// Equal for equal names, lengths and bytes.
    pub hash: u64,
}

/// The names of files, and whether each has any bytes.
pub type Shape = Vec<(String, bool)>;

impl State {
    pub fn shape(&self) -> Shape {
        let files = self.files.iter();
        files.map(|(name, (_, layer))| (name.clone(), layer.length > 0)).collect()
    }
}

impl Disk {
    /// A disk that holds these files, all synced.
    pub fn new(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let mut disk = Self::default();
        for (name, bytes) in files {
            let mut file = File::default();
            file.settle(&[Change::Write { offset: 0, bytes }]);
            disk.names.insert(name, Name { synced: Some(disk.files.len()), pending: Vec::new() });
            disk.files.push(file);
        }
        disk
    }

    /// Applies one step of the log. True when it changed what a power cut could leave.
    pub fn step(&mut self, step: Step, calls: &[Call]) -> bool {
        match step {
            Step::Begin(call) => self.begin(call, &calls[call]),
            Step::End(call) => self.end(call, &calls[call]),
        }
    }

    fn begin(&mut self, call: usize, what: &Call) -> bool {
        match what {
            Call::Create(name) => {
                if self.leads_to(name).is_some() {
                    return false;
                }
                let file = self.files.len();
                self.files.push(File::default());
                self.rename(name, call, Some(file));
            }
            Call::Remove(name) => self.rename(name, call, None),
            Call::Write { file, offset, bytes } => {
                let change = Change::Write { offset: *offset, bytes: bytes.clone() };
                let file = self.file(file);
                file.dirty_again(call, *offset..offset + bytes.len());
                file.pending.push(Pending { call, has_returned: false, what: change });
            }
            Call::Resize { file, length } => {
                let change = Change::Resize(*length);
                let file = self.file(file);
                file.cut_off_lost(*length);
                file.pending.push(Pending { call, has_returned: false, what: change });
            }
            Call::Sync(file) | Call::SyncFailed(file) => {
                let synced = returned(&self.file(file).pending);
                self.syncs.insert(call, synced);
                return false;
            }
            Call::SyncFolder => {
                let synced = self.names.values().flat_map(|name| returned(&name.pending)).collect();
                self.syncs.insert(call, synced);
                return false;
            }
            Call::Send(_) => {}
        }
        true
    }

    fn end(&mut self, call: usize, what: &Call) -> bool {
        let has_returned = |pending: &mut Vec<Pending<Change>>| {
            pending
                .iter_mut()
                .filter(|one| one.call == call)
                .for_each(|one| one.has_returned = true);
        };
        match what {
            Call::Send(_) => {}
            Call::Create(name) | Call::Remove(name) => {
                let pending =
                    self.names.get_mut(name).into_iter().flat_map(|name| &mut name.pending);
                pending.filter(|one| one.call == call).for_each(|one| one.has_returned = true);
            }
            Call::Write { file, .. } | Call::Resize { file, .. } => {
                has_returned(&mut self.file(file).pending);
            }
            Call::Sync(file) => {
                let synced = self.syncs.remove(&call).unwrap();
                let file = self.file(file);
                let changes = take(&mut file.pending, &synced);
                let changed = !changes.is_empty();
                file.settle(&changes);
                return changed;
            }
            Call::SyncFailed(file) => {
                let failed = self.syncs.remove(&call).unwrap();
                self.file(file).lose(&failed);
                return true;
            }
            Call::SyncFolder => {
                let synced = self.syncs.remove(&call).unwrap();
                for name in self.names.values_mut() {
                    if let Some(last) = take(&mut name.pending, &synced).pop() {
                        name.synced = last;
                    }
                }
                return !synced.is_empty();
            }
        }
        false
    }

    /// The file that a name refers to for running processes.
    fn leads_to(&self, name: &str) -> Option<usize> {
        let name = self.names.get(name)?;
        name.pending.last().map_or(name.synced, |last| last.what)
    }

    fn file(&mut self, name: &str) -> &mut File {
        let file =
            self.leads_to(name).unwrap_or_else(|| panic!("{name} is written, and not there"));
        &mut self.files[file]
    }

    fn rename(&mut self, name: &str, call: usize, to: Option<usize>) {
        let name = self.names.entry(name.to_owned()).or_default();
        name.pending.push(Pending { call, has_returned: false, what: to });
    }

    /// The unsynced changes of the file that a sync is about.
    pub fn unsynced(&self, what: &Call) -> Vec<usize> {
        match what {
            Call::Sync(name) => {
                let file = &self.files[self.leads_to(name).unwrap()];
                file.pending.iter().map(|one| one.call).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The files as a power cut could leave them now.
    pub fn cut(&self, survives: Survives, chance: &mut Chance) -> State {
        let mut files = BTreeMap::new();
        let mut all = Vec::new();
        for (text, name) in &self.names {
            let Some(index) = name.cut(survives, chance) else { continue };
            let file = &self.files[index];
            let layer = file.cut(survives, chance);
            all.extend(format!("{text} {} {} ", layer.length, file.hash(&layer)).into_bytes());
            files.insert(text.clone(), (index, layer));
        }
        State { files, hash: hash(&[&all]) }
    }

    /// The names and bytes of a state.
    pub fn files(&self, state: &State) -> BTreeMap<String, Vec<u8>> {
        let whole = |(name, (index, layer)): (&String, &(usize, Layer))| {
            (name.clone(), layer.put_on(&self.files[*index].synced))
        };
        state.files.iter().map(whole).collect()
    }
}

fn returned<T>(pending: &[Pending<T>]) -> Vec<usize> {
    pending.iter().filter(|one| one.has_returned).map(|one| one.call).collect()
}

/// Removes and returns the changes of these calls.
fn take<T>(pending: &mut Vec<Pending<T>>, calls: &[usize]) -> Vec<T> {
    pending.extract_if(.., |one| calls.contains(&one.call)).map(|one| one.what).collect()
}

impl Name {
    fn cut(&self, survives: Survives, chance: &mut Chance) -> Option<usize> {
        let count = match survives {
            Survives::Synced => 0,
            Survives::All | Survives::AllBut(_) => self.pending.len(),
            Survives::Calls | Survives::Sectors => chance.below(self.pending.len() + 1),
        };
        match count {
            0 => self.synced,
            count => self.pending[count - 1].what,
        }
    }
}

impl File {
    /// Makes changes durable.
    fn settle(&mut self, changes: &[Change]) {
        let mut layer = Layer { sectors: BTreeMap::new(), length: self.synced.len() };
        for change in changes {
            layer.change(&self.synced, change, |_| true);
        }
        self.synced_hash = self.hash(&layer);
        self.synced = layer.put_on(&self.synced);
    }

    /// The length that the processes see.
    fn length(&self) -> usize {
        self.pending.iter().fold(self.synced.len(), |length, one| one.what.reach(length).1)
    }

    /// A sync of these calls has failed: their pages are clean, and not on the disk. The file's length
    /// is metadata, which the next sync writes.
    fn lose(&mut self, failed: &[usize]) {
        let cached = self.cut(Survives::All, &mut Chance::new(0));
        let mut length = self.synced.len();
        let mut kept = Vec::new();
        for mut one in std::mem::take(&mut self.pending) {
            let (sectors, after) = one.what.reach(length);
            let is_lost = failed.contains(&one.call) && matches!(one.what, Change::Write { .. });
            if is_lost {
                self.lost.extend(sectors.map(|sector| (sector, cached.sectors[&sector].clone())));
                one.what = Change::Resize(after);
            }
            if !is_lost || after > length {
                kept.push(one);
            }
            length = after;
        }
        self.pending = kept;
    }

    /// A write makes the pages dirty that it touches, with all that the page cache has of them.
    fn dirty_again(&mut self, call: usize, range: std::ops::Range<usize>) {
        let page = SECTOR * PAGE_SECTORS;
        let sectors = range.start / page * PAGE_SECTORS..range.end.div_ceil(page) * PAGE_SECTORS;
        let length = self.length();
        for (sector, mut bytes) in self.lost.extract_if(sectors, |_, _| true) {
            let offset = sector * SECTOR;
            bytes.truncate(length.saturating_sub(offset));
            let what = Change::Write { offset, bytes };
            self.pending.push(Pending { call, has_returned: false, what });
        }
    }

    fn cut_off_lost(&mut self, length: usize) {
        self.lost.retain(|sector, bytes| {
            let left = length.saturating_sub(sector * SECTOR).min(SECTOR);
            bytes[left..].fill(0);
            left > 0
        });
    }

    fn cut(&self, survives: Survives, chance: &mut Chance) -> Layer {
        let mut layer = Layer { sectors: BTreeMap::new(), length: self.synced.len() };
        if survives == Survives::All {
            layer.sectors.clone_from(&self.lost);
        }
        // Few, half, or most of the calls.
        let odds = [1, 4, 7][chance.below(3)];
        match survives {
            Survives::Synced => {}
            Survives::Sectors => return self.torn(chance),
            Survives::All | Survives::Calls | Survives::AllBut(_) => {
                for one in &self.pending {
                    let is_kept = match survives {
                        Survives::Calls => chance.below(8) < odds,
                        Survives::AllBut(call) => one.call != call,
                        Survives::All | Survives::Synced | Survives::Sectors => true,
                    };
                    if is_kept {
                        layer.change(&self.synced, &one.what, |_| true);
                    }
                }
            }
        }
        layer
    }

    /// Each sector as it was after some of the changes to it, independently of the others.
    fn torn(&self, chance: &mut Chance) -> Layer {
        let mut layer = Layer { sectors: BTreeMap::new(), length: self.synced.len() };
        // A failed sync may have written a part.
        let written = self.lost.iter().filter(|_| chance.below(2) == 0);
        layer.sectors.extend(written.map(|(sector, bytes)| (*sector, bytes.clone())));
        let mut lengths = vec![layer.length];
        // How many more changes each sector takes.
        let mut left: HashMap<usize, usize> = HashMap::new();
        let mut touched: BTreeMap<usize, usize> = BTreeMap::new();
        let mut length = layer.length;
        for one in &self.pending {
            let (sectors, after) = one.what.reach(length);
            sectors.for_each(|sector| *touched.entry(sector).or_default() += 1);
            length = after;
            lengths.push(length);
        }
        for (sector, count) in touched {
            left.insert(sector, chance.below(count + 1));
        }
        for one in &self.pending {
            layer.change(&self.synced, &one.what, |sector| {
                let left = left.get_mut(&sector).unwrap();
                let is_kept = *left > 0;
                *left = left.saturating_sub(1);
                is_kept
            });
        }
        // What lies beyond is truncated; what lies before it and did not survive is old, or zero.
        layer.cut_off(&self.synced, lengths[chance.below(lengths.len())]);
        layer
    }

    /// The hash of all sectors, computed from that of the synced ones and the changes alone.
    fn hash(&self, layer: &Layer) -> u64 {
        layer.sectors.iter().fold(self.synced_hash, |hash, (sector, bytes)| {
            hash ^ sector_hash(*sector, &old(&self.synced, *sector)) ^ sector_hash(*sector, bytes)
        })
    }
}
