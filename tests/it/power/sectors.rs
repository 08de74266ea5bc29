//! The bytes of one file, sector by sector: layers of changes over the synced contents.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

/// The unit that a disk writes atomically.
pub const SECTOR: usize = 512;
const ZEROS: [u8; SECTOR] = [0; SECTOR];

#[derive(Debug, Clone)]
pub enum SectorChange {
    Write { offset: usize, bytes: Vec<u8> },
    Resize(usize),
}

/// Changed sectors of one file.
#[derive(Debug, Clone)]
pub struct SectorLayer {
    pub sectors: BTreeMap<usize, Vec<u8>>,
    pub length: usize,
}

/// Zero sectors hash to zero, so that a longer file of zeros need not be read.
pub fn sector_hash(sector: usize, bytes: &[u8]) -> u64 {
    if bytes == ZEROS { 0 } else { hash(&[&sector.to_le_bytes(), bytes]) }
}

/// A hash from a library: our own code would be slow in unoptimized tests.
pub fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    u64::from_le_bytes(hasher.finalize()[..8].try_into().unwrap())
}

/// A synced sector; zeros where the file has none.
pub fn synced_sector(synced: &[u8], sector: usize) -> Vec<u8> {
    let start = (sector * SECTOR).min(synced.len());
    let there = &synced[start..synced.len().min(start + SECTOR)];
    [there, &ZEROS[there.len()..]].concat()
}

impl SectorChange {
    /// The sectors it touches in a file of this length, and the length after it.
    pub fn touched_sectors(&self, length: usize) -> (std::ops::Range<usize>, usize) {
        match self {
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                (offset / SECTOR..end.div_ceil(SECTOR), length.max(end))
            }
            // The bytes between the old and the new end are zero already.
            Self::Resize(to) if *to >= length => (0..0, *to),
            Self::Resize(to) => (to / SECTOR..length.div_ceil(SECTOR), *to),
        }
    }
}

impl SectorLayer {
    /// Applies a change to those of its sectors that are `kept`.
    pub fn apply_change(
        &mut self,
        synced: &[u8],
        change: &SectorChange,
        mut kept: impl FnMut(usize) -> bool,
    ) {
        let (sectors, length) = change.touched_sectors(self.length);
        for sector in sectors.filter(|sector| kept(*sector)) {
            let start = sector * SECTOR;
            let target =
                self.sectors.entry(sector).or_insert_with(|| synced_sector(synced, sector));
            match change {
                SectorChange::Write { offset, bytes } => {
                    let (from, to) =
                        (start.max(*offset), (start + SECTOR).min(offset + bytes.len()));
                    target[from - start..to - start]
                        .copy_from_slice(&bytes[from - offset..to - offset]);
                }
                SectorChange::Resize(to) => target[to.saturating_sub(start).min(SECTOR)..].fill(0),
            }
        }
        self.length = length;
    }

    /// Sets the length of the file.
    pub fn set_length(&mut self, synced: &[u8], length: usize) {
        self.length = self.length.max(synced.len());
        let last = self.sectors.keys().next_back().map_or(0, |sector| (sector + 1) * SECTOR);
        self.length = self.length.max(last);
        self.apply_change(synced, &SectorChange::Resize(length), |_| true);
    }

    /// The whole file.
    pub fn apply_to(&self, synced: &[u8]) -> Vec<u8> {
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
