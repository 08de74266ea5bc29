//! The position of a resumable import, stored in the transaction of each of its batches.
//!
//! There is one for each resource. It holds a digest of the part of the file that is imported: a run goes on with any
//! file that begins with the same bytes, so that later lines can be mended, and a completed import is not repeated by
//! mistake.

use std::io;

use super::import_file::ImportFile;
use super::record_reader::RecordPosition;

const UNFINISHED: &str = "unfinished";
const COMPLETE: &str = "complete";

/// A position behind imported rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportPosition {
    pub is_complete: bool,
    /// The run that has written it.
    pub run: String,
    pub position: RecordPosition,
    pub rows: u64,
    /// Of the bytes before the position.
    pub digest: String,
    /// The name of the file, for messages.
    pub file: String,
}

/// Where an import begins.
pub enum PositionStart {
    First,
    /// After this many rows of an earlier run; the file is at the position.
    After(u64),
    /// All rows of the file were imported.
    Complete(u64),
    /// An import of another file is unfinished.
    Other(ImportPosition),
}

impl ImportPosition {
    /// Its name in `nouns_system`.
    pub fn key(label: &str) -> String {
        format!("import {label}")
    }

    /// The file name comes last, since it may contain spaces.
    pub fn to_text(&self) -> String {
        let Self { is_complete, run, position, rows, digest, file } = self;
        let state = if *is_complete { COMPLETE } else { UNFINISHED };
        let RecordPosition { offset, line } = position;
        format!("{state} {run} {offset} {line} {rows} {digest} {file}")
    }

    /// `None`: a text of another version.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(7, ' ');
        let is_complete = match words.next()? {
            COMPLETE => true,
            UNFINISHED => false,
            _ => return None,
        };
        let run = words.next()?.to_owned();
        let offset = words.next()?.parse().ok()?;
        let line = words.next()?.parse().ok()?;
        let rows = words.next()?.parse().ok()?;
        let digest = words.next()?.to_owned();
        let file = words.next()?.to_owned();
        let position = RecordPosition { offset, line };
        Some(Self { is_complete, run, position, rows, digest, file })
    }

    /// Compares the stored position with a file, which is then at that position.
    pub fn find_start(
        stored: Option<&str>,
        file: &mut ImportFile<'_>,
        file_bytes: u64,
    ) -> io::Result<PositionStart> {
        let Some(stored) = stored.and_then(Self::parse) else { return Ok(PositionStart::First) };
        // Nothing was imported, or the header of the file has changed since.
        if stored.rows == 0 {
            return Ok(PositionStart::First);
        }
        let is_same = file.resume(stored.position, &stored.digest)?;
        let is_whole = stored.position.offset == file_bytes;
        Ok(match (is_same, stored.is_complete) {
            (true, false) => PositionStart::After(stored.rows),
            (true, true) if is_whole => PositionStart::Complete(stored.rows),
            // Rows were appended since.
            (true, true) => PositionStart::After(stored.rows),
            (false, true) => PositionStart::First,
            (false, false) => PositionStart::Other(stored),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_position_text_round_trips() {
        let position = ImportPosition {
            is_complete: false,
            run: "01m7".to_owned(),
            position: RecordPosition { offset: 1_234, line: 12 },
            rows: 10,
            digest: "ab12".to_owned(),
            file: "my file.csv".to_owned(),
        };
        assert_eq!(position.to_text(), "unfinished 01m7 1234 12 10 ab12 my file.csv");
        assert_eq!(ImportPosition::parse(&position.to_text()), Some(position));
        assert_eq!(ImportPosition::parse("begun 01m7 1 1 0 ab x"), None);
        assert_eq!(ImportPosition::parse("complete 01m7 1"), None);
    }
}
