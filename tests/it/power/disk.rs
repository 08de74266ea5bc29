//! A disk that may lose what was not synced: after each step of a log, the files as a power cut could
//! leave them.
//!
//! It knows nothing of SQLite. It is stricter than most file systems: a name is durable only after a
//! sync of the folder, a file's bytes and length only after a sync of the file, and nothing is kept in
//! the order in which it was written.
//! The one surprising thing: what is overwritten before a sync may still win. A sector can be as it was
//! after any of the writes to it, and each sector goes its own way.

use std::collections::{BTreeMap, HashMap};

use sha2::{Digest, Sha256};

use super::strace::{Call, Step};
use crate::durability::chance::Chance;

/// What a disk writes as a whole.
const SECTOR: usize = 512;
const ZEROS: [u8; SECTOR] = [0; SECTOR];

/// Which of the unsynced changes survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    /// Nothing.
    Synced,
    /// Everything: as after the end of the process alone.
    All,
    /// Some of the calls, each of them whole.
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
    /// Only what has returned when a sync begins is synced by it.
    has_returned: bool,
    what: T,
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Resize(usize),
}

#[derive(Debug, Default)]
struct File {
    synced: Vec<u8>,
    synced_hash: u64,
    pending: Vec<Pending<Change>>,
}

/// A name in the folder: which file it leads to, if any.
#[derive(Debug, Default)]
struct Name {
    synced: Option<usize>,
    pending: Vec<Pending<Option<usize>>>,
}

#[derive(Debug, Default)]
pub struct Disk {
    files: Vec<File>,
    names: BTreeMap<String, Name>,
    /// What each sync that has begun will make durable: the calls that had returned before it.
    syncs: HashMap<usize, Vec<usize>>,
}

/// The files after a power cut, as differences from what was synced.
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

/// Changed sectors of one file.
#[derive(Debug, Clone)]
struct Layer {
    sectors: BTreeMap<usize, Vec<u8>>,
    length: usize,
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

    /// Takes one step of the log. True when it changed what a power cut could leave.
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
                self.file(file).pending.push(Pending { call, has_returned: false, what: change });
            }
            Call::Resize { file, length } => {
                let change = Change::Resize(*length);
                self.file(file).pending.push(Pending { call, has_returned: false, what: change });
            }
            Call::Sync(file) => {
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

    /// Where a name leads for the processes that run.
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

/// Takes the changes of these calls away.
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

    fn cut(&self, survives: Survives, chance: &mut Chance) -> Layer {
        let mut layer = Layer { sectors: BTreeMap::new(), length: self.synced.len() };
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

    /// Each sector as it was after some of the changes to it, each for itself.
    fn torn(&self, chance: &mut Chance) -> Layer {
        let mut layer = Layer { sectors: BTreeMap::new(), length: self.synced.len() };
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
        // What lies beyond is cut off; what lies before it and did not survive is old, or zero.
        layer.cut_off(&self.synced, lengths[chance.below(lengths.len())]);
        layer
    }

    /// The hash of all sectors, from that of the synced ones and the changes alone.
    fn hash(&self, layer: &Layer) -> u64 {
        layer.sectors.iter().fold(self.synced_hash, |hash, (sector, bytes)| {
            hash ^ sector_hash(*sector, &old(&self.synced, *sector)) ^ sector_hash(*sector, bytes)
        })
    }
}

/// Zeros count for nothing, so that a longer file of zeros need not be looked at.
fn sector_hash(sector: usize, bytes: &[u8]) -> u64 {
    if bytes == ZEROS { 0 } else { hash(&[&sector.to_le_bytes(), bytes]) }
}

/// A hash from a library: code of our own would be slow where tests are not optimised.
pub fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    u64::from_le_bytes(hasher.finalize()[..8].try_into().unwrap())
}

/// A sector as it was synced; zeros where the file has none.
fn old(synced: &[u8], sector: usize) -> Vec<u8> {
    let start = (sector * SECTOR).min(synced.len());
    let there = &synced[start..synced.len().min(start + SECTOR)];
    [there, &ZEROS[there.len()..]].concat()
}

impl Change {
    /// The sectors it touches in a file of this length, and the length after it.
    fn reach(&self, length: usize) -> (std::ops::Range<usize>, usize) {
        match self {
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                (offset / SECTOR..end.div_ceil(SECTOR), length.max(end))
            }
            Self::Resize(to) => (to / SECTOR..length.div_ceil(SECTOR).max(to / SECTOR), *to),
        }
    }
}

impl Layer {
    /// Makes a change in those of its sectors that are `kept`.
    fn change(&mut self, synced: &[u8], change: &Change, mut kept: impl FnMut(usize) -> bool) {
        let (sectors, length) = change.reach(self.length);
        for sector in sectors.filter(|sector| kept(*sector)) {
            let start = sector * SECTOR;
            let target = self.sectors.entry(sector).or_insert_with(|| old(synced, sector));
            match change {
                Change::Write { offset, bytes } => {
                    let (from, to) =
                        (start.max(*offset), (start + SECTOR).min(offset + bytes.len()));
                    target[from - start..to - start]
                        .copy_from_slice(&bytes[from - offset..to - offset]);
                }
                Change::Resize(to) => target[to.saturating_sub(start).min(SECTOR)..].fill(0),
            }
        }
        self.length = length;
    }

    /// Makes the file this long, whatever it was.
    fn cut_off(&mut self, synced: &[u8], length: usize) {
        self.length = self.length.max(synced.len());
        let last = self.sectors.keys().next_back().map_or(0, |sector| (sector + 1) * SECTOR);
        self.length = self.length.max(last);
        self.change(synced, &Change::Resize(length), |_| true);
    }

    /// The whole file.
    fn put_on(&self, synced: &[u8]) -> Vec<u8> {
        let end = self.sectors.keys().next_back().map_or(0, |sector| (sector + 1) * SECTOR);
        let mut bytes = vec![0; end.max(synced.len()).max(self.length)];
        bytes[..synced.len()].copy_from_slice(synced);
        for (sector, changed) in &self.sectors {
            bytes[sector * SECTOR..][..SECTOR].copy_from_slice(changed);
        }
        bytes.truncate(self.length);
        bytes
    }
}
