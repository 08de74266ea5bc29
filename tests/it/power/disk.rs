//! A simulated disk that may lose unsynced data: after each step of a log, the files as a power cut
//! could leave them.
//!
//! It knows nothing of SQLite. It is stricter than most file systems: a name is durable only after a
//! sync of the folder, a file's bytes and length only after a sync of the file, and no order of writes
//! is kept. A failed sync leaves its pages clean in the page cache: the processes still read them, and
//! no later sync writes them, until they are written to again.
//! Overwritten data may survive. A sector can be as it was after any of the writes to it,
//! independently of other sectors.

use std::collections::{BTreeMap, HashMap};

use super::sectors::{SECTOR, SectorChange, SectorLayer, hash, sector_hash, synced_sector};
use super::strace::{TraceStep, TracedCall};
use crate::durability::seeded_random::SeededRandom;

/// Sectors of a page of the page cache, which is clean or dirty as a whole.
const PAGE_SECTORS: usize = 8;

/// Which of the unsynced changes survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survivors {
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
struct PendingChange<T> {
    call: usize,
    /// A sync covers only calls that have returned when it begins.
    has_returned: bool,
    change: T,
}

#[derive(Debug, Default)]
struct SimulatedFile {
    synced: Vec<u8>,
    synced_hash: u64,
    /// Sectors that a failed sync left clean: in the page cache, and not on the disk.
    lost: BTreeMap<usize, Vec<u8>>,
    pending: Vec<PendingChange<SectorChange>>,
}

/// A name in the folder, and the file it refers to, if any.
#[derive(Debug, Default)]
struct FolderEntry {
    synced: Option<usize>,
    pending: Vec<PendingChange<Option<usize>>>,
}

#[derive(Debug, Default)]
pub struct SimulatedDisk {
    files: Vec<SimulatedFile>,
    names: BTreeMap<String, FolderEntry>,
    /// For each sync that has begun, the calls that it makes durable: those that had returned before
    /// it.
    syncs: HashMap<usize, Vec<usize>>,
}

/// The files after a power cut, as differences from the synced state.
#[derive(Debug)]
pub struct PowerCutState {
    files: BTreeMap<String, (usize, SectorLayer)>,
    /// Equal for equal names, lengths and bytes.
    pub hash: u64,
}

/// The names of files, and whether each has any bytes.
pub type FileShape = Vec<(String, bool)>;

impl PowerCutState {
    pub fn shape(&self) -> FileShape {
        let files = self.files.iter();
        files.map(|(name, (_, layer))| (name.clone(), layer.length > 0)).collect()
    }
}

impl SimulatedDisk {
    /// A disk that holds these files, all synced.
    pub fn new(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let mut disk = Self::default();
        for (name, bytes) in files {
            let mut file = SimulatedFile::default();
            file.make_durable(&[SectorChange::Write { offset: 0, bytes }]);
            disk.names
                .insert(name, FolderEntry { synced: Some(disk.files.len()), pending: Vec::new() });
            disk.files.push(file);
        }
        disk
    }

    /// Applies one step of the log. True when it changed what a power cut could leave.
    pub fn apply_step(&mut self, step: TraceStep, calls: &[TracedCall]) -> bool {
        match step {
            TraceStep::Begin(call) => self.begin_call(call, &calls[call]),
            TraceStep::End(call) => self.end_call(call, &calls[call]),
        }
    }

    fn begin_call(&mut self, call: usize, what: &TracedCall) -> bool {
        match what {
            TracedCall::Create(name) => {
                if self.file_index(name).is_some() {
                    return false;
                }
                let file = self.files.len();
                self.files.push(SimulatedFile::default());
                self.rename(name, call, Some(file));
            }
            TracedCall::Remove(name) => self.rename(name, call, None),
            TracedCall::Write { file, offset, bytes } => {
                let change = SectorChange::Write { offset: *offset, bytes: bytes.clone() };
                let file = self.file(file);
                file.dirty_again(call, *offset..offset + bytes.len());
                file.pending.push(PendingChange { call, has_returned: false, change });
            }
            TracedCall::Resize { file, length } => {
                let change = SectorChange::Resize(*length);
                let file = self.file(file);
                file.truncate_lost(*length);
                file.pending.push(PendingChange { call, has_returned: false, change });
            }
            TracedCall::Sync(file) | TracedCall::SyncFailed(file) => {
                let synced = returned_calls(&self.file(file).pending);
                self.syncs.insert(call, synced);
                return false;
            }
            TracedCall::SyncFolder => {
                let synced =
                    self.names.values().flat_map(|name| returned_calls(&name.pending)).collect();
                self.syncs.insert(call, synced);
                return false;
            }
            TracedCall::Send(_) => {}
        }
        true
    }

    fn end_call(&mut self, call: usize, what: &TracedCall) -> bool {
        let has_returned = |pending: &mut Vec<PendingChange<SectorChange>>| {
            pending
                .iter_mut()
                .filter(|one| one.call == call)
                .for_each(|one| one.has_returned = true);
        };
        match what {
            TracedCall::Send(_) => {}
            TracedCall::Create(name) | TracedCall::Remove(name) => {
                let pending =
                    self.names.get_mut(name).into_iter().flat_map(|name| &mut name.pending);
                pending.filter(|one| one.call == call).for_each(|one| one.has_returned = true);
            }
            TracedCall::Write { file, .. } | TracedCall::Resize { file, .. } => {
                has_returned(&mut self.file(file).pending);
            }
            TracedCall::Sync(file) => {
                let synced = self.syncs.remove(&call).unwrap();
                let file = self.file(file);
                let changes = take_changes(&mut file.pending, &synced);
                let changed = !changes.is_empty();
                file.make_durable(&changes);
                return changed;
            }
            TracedCall::SyncFailed(file) => {
                let failed = self.syncs.remove(&call).unwrap();
                self.file(file).fail_sync(&failed);
                return true;
            }
            TracedCall::SyncFolder => {
                let synced = self.syncs.remove(&call).unwrap();
                for name in self.names.values_mut() {
                    if let Some(last) = take_changes(&mut name.pending, &synced).pop() {
                        name.synced = last;
                    }
                }
                return !synced.is_empty();
            }
        }
        false
    }

    /// The file that a name refers to for running processes.
    fn file_index(&self, name: &str) -> Option<usize> {
        let name = self.names.get(name)?;
        name.pending.last().map_or(name.synced, |last| last.change)
    }

    fn file(&mut self, name: &str) -> &mut SimulatedFile {
        let file =
            self.file_index(name).unwrap_or_else(|| panic!("{name} is written, and not there"));
        &mut self.files[file]
    }

    fn rename(&mut self, name: &str, call: usize, to: Option<usize>) {
        let name = self.names.entry(name.to_owned()).or_default();
        name.pending.push(PendingChange { call, has_returned: false, change: to });
    }

    /// The unsynced changes of the file that a sync is about.
    pub fn unsynced(&self, what: &TracedCall) -> Vec<usize> {
        match what {
            TracedCall::Sync(name) => {
                let file = &self.files[self.file_index(name).unwrap()];
                file.pending.iter().map(|one| one.call).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The files as a power cut could leave them now.
    pub fn power_cut(&self, survives: Survivors, chance: &mut SeededRandom) -> PowerCutState {
        let mut files = BTreeMap::new();
        let mut all = Vec::new();
        for (text, name) in &self.names {
            let Some(index) = name.surviving_target(survives, chance) else { continue };
            let file = &self.files[index];
            let layer = file.surviving_layer(survives, chance);
            all.extend(format!("{text} {} {} ", layer.length, file.hash(&layer)).into_bytes());
            files.insert(text.clone(), (index, layer));
        }
        PowerCutState { files, hash: hash(&[&all]) }
    }

    /// The names and bytes of a state.
    pub fn files(&self, state: &PowerCutState) -> BTreeMap<String, Vec<u8>> {
        let whole = |(name, (index, layer)): (&String, &(usize, SectorLayer))| {
            (name.clone(), layer.apply_to(&self.files[*index].synced))
        };
        state.files.iter().map(whole).collect()
    }
}

fn returned_calls<T>(pending: &[PendingChange<T>]) -> Vec<usize> {
    pending.iter().filter(|one| one.has_returned).map(|one| one.call).collect()
}

/// Removes and returns the changes of these calls.
fn take_changes<T>(pending: &mut Vec<PendingChange<T>>, calls: &[usize]) -> Vec<T> {
    pending.extract_if(.., |one| calls.contains(&one.call)).map(|one| one.change).collect()
}

impl FolderEntry {
    fn surviving_target(&self, survives: Survivors, chance: &mut SeededRandom) -> Option<usize> {
        let count = match survives {
            Survivors::Synced => 0,
            Survivors::All | Survivors::AllBut(_) => self.pending.len(),
            Survivors::Calls | Survivors::Sectors => chance.below(self.pending.len() + 1),
        };
        match count {
            0 => self.synced,
            count => self.pending[count - 1].change,
        }
    }
}

impl SimulatedFile {
    /// Makes changes durable.
    fn make_durable(&mut self, changes: &[SectorChange]) {
        let mut layer = SectorLayer { sectors: BTreeMap::new(), length: self.synced.len() };
        for change in changes {
            layer.apply_change(&self.synced, change, |_| true);
        }
        self.synced_hash = self.hash(&layer);
        self.synced = layer.apply_to(&self.synced);
    }

    /// The length that the processes see.
    fn length(&self) -> usize {
        self.pending
            .iter()
            .fold(self.synced.len(), |length, one| one.change.touched_sectors(length).1)
    }

    /// A sync of these calls has failed: their pages are clean, and not on the disk. The file's length
    /// is metadata, which the next sync writes.
    fn fail_sync(&mut self, failed: &[usize]) {
        let cached = self.surviving_layer(Survivors::All, &mut SeededRandom::new(0));
        let mut length = self.synced.len();
        let mut kept = Vec::new();
        for mut one in std::mem::take(&mut self.pending) {
            let (sectors, after) = one.change.touched_sectors(length);
            let is_lost =
                failed.contains(&one.call) && matches!(one.change, SectorChange::Write { .. });
            if is_lost {
                self.lost.extend(sectors.map(|sector| (sector, cached.sectors[&sector].clone())));
                one.change = SectorChange::Resize(after);
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
            let what = SectorChange::Write { offset, bytes };
            self.pending.push(PendingChange { call, has_returned: false, change: what });
        }
    }

    fn truncate_lost(&mut self, length: usize) {
        self.lost.retain(|sector, bytes| {
            let left = length.saturating_sub(sector * SECTOR).min(SECTOR);
            bytes[left..].fill(0);
            left > 0
        });
    }

    fn surviving_layer(&self, survives: Survivors, chance: &mut SeededRandom) -> SectorLayer {
        let mut layer = SectorLayer { sectors: BTreeMap::new(), length: self.synced.len() };
        if survives == Survivors::All {
            layer.sectors.clone_from(&self.lost);
        }
        // Few, half, or most of the calls.
        let odds = [1, 4, 7][chance.below(3)];
        match survives {
            Survivors::Synced => {}
            Survivors::Sectors => return self.torn_layer(chance),
            Survivors::All | Survivors::Calls | Survivors::AllBut(_) => {
                for one in &self.pending {
                    let is_kept = match survives {
                        Survivors::Calls => chance.below(8) < odds,
                        Survivors::AllBut(call) => one.call != call,
                        Survivors::All | Survivors::Synced | Survivors::Sectors => true,
                    };
                    if is_kept {
                        layer.apply_change(&self.synced, &one.change, |_| true);
                    }
                }
            }
        }
        layer
    }

    /// Each sector as it was after some of the changes to it, independently of the others.
    fn torn_layer(&self, chance: &mut SeededRandom) -> SectorLayer {
        let mut layer = SectorLayer { sectors: BTreeMap::new(), length: self.synced.len() };
        // A failed sync may have written a part.
        let written = self.lost.iter().filter(|_| chance.below(2) == 0);
        layer.sectors.extend(written.map(|(sector, bytes)| (*sector, bytes.clone())));
        let mut lengths = vec![layer.length];
        // How many more changes each sector takes.
        let mut left: HashMap<usize, usize> = HashMap::new();
        let mut touched: BTreeMap<usize, usize> = BTreeMap::new();
        let mut length = layer.length;
        for one in &self.pending {
            let (sectors, after) = one.change.touched_sectors(length);
            sectors.for_each(|sector| *touched.entry(sector).or_default() += 1);
            length = after;
            lengths.push(length);
        }
        for (sector, count) in touched {
            left.insert(sector, chance.below(count + 1));
        }
        for one in &self.pending {
            layer.apply_change(&self.synced, &one.change, |sector| {
                let left = left.get_mut(&sector).unwrap();
                let is_kept = *left > 0;
                *left = left.saturating_sub(1);
                is_kept
            });
        }
        // What lies beyond is truncated; what lies before it and did not survive is old, or zero.
        layer.set_length(&self.synced, lengths[chance.below(lengths.len())]);
        layer
    }

    /// The hash of all sectors, computed from that of the synced ones and the changes alone.
    fn hash(&self, layer: &SectorLayer) -> u64 {
        layer.sectors.iter().fold(self.synced_hash, |hash, (sector, bytes)| {
            hash ^ sector_hash(*sector, &synced_sector(&self.synced, *sector))
                ^ sector_hash(*sector, bytes)
        })
    }
}
