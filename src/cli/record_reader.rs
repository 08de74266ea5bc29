//! Records of a file, one at a time: the lines of NDJSON, or the rows of CSV, which quotes may spread over lines.
//!
//! The reader finds where a record ends, and leaves its content to the parsers. It knows its position, at which
//! another reader can go on, and a digest of everything before it.

use std::io::{self, BufRead, Read as _, Seek, SeekFrom};

use sha2::{Digest as _, Sha256};

use super::transfer::FileFormat;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// How much of a line that is too long is skipped in one step.
const SKIPPED_BYTES: u64 = 64 << 10;

/// A position in a file: before a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPosition {
    pub offset: u64,
    /// The number of the next line.
    pub line: usize,
}

/// A record, and the line on which it begins.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    pub line: usize,
    pub content: RecordContent,
}

#[derive(Debug, PartialEq, Eq)]
pub enum RecordContent {
    /// With its line end, in the buffer of the reader.
    Bytes,
    /// It exceeds the limit. The next record can be read only if the format is NDJSON.
    TooLong,
}

/// Reads the records of a file.
#[derive(Debug)]
pub struct RecordReader<R> {
    input: R,
    format: FileFormat,
    bytes_max: usize,
    position: RecordPosition,
    digest: Sha256,
    /// Both before the last record.
    before: (RecordPosition, Sha256),
    record: Vec<u8>,
}

/// The SHA-256 digest of all bytes before a position, in hexadecimal digits.
fn hexadecimal(digest: &Sha256) -> String {
    digest.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl<R: BufRead + Seek> RecordReader<R> {
    /// From the beginning of the file; a record may have `bytes_max` bytes.
    pub fn new(mut input: R, format: FileFormat, bytes_max: usize) -> io::Result<Self> {
        input.seek(SeekFrom::Start(0))?;
        let position = RecordPosition { offset: 0, line: 1 };
        let (digest, record) = (Sha256::new(), Vec::new());
        let before = (position, digest.clone());
        Ok(Self { input, format, bytes_max, position, digest, before, record })
    }

    pub fn position(&self) -> RecordPosition {
        self.position
    }

    /// The SHA-256 digest of all bytes before the position, in hexadecimal digits.
    pub fn digest(&self) -> String {
        hexadecimal(&self.digest)
    }

    /// The position before the last record, and its digest.
    pub fn before_last(&self) -> (RecordPosition, String) {
        let (position, digest) = &self.before;
        (*position, hexadecimal(digest))
    }

    /// The bytes of the last record.
    pub fn bytes(&self) -> &[u8] {
        &self.record
    }

    /// Reads on up to an offset, without looking at records. Ends early at the end of the file.
    pub fn skip_to(&mut self, target: RecordPosition) -> io::Result<()> {
        while self.position.offset < target.offset {
            self.record.clear();
            let left = target.offset - self.position.offset;
            if self.take(left.min(SKIPPED_BYTES), u8::MAX)? == 0 {
                break;
            }
        }
        self.position.line = target.line;
        Ok(())
    }

    /// Reads the next record; `None` at the end. Empty lines are no records.
    pub fn next_record(&mut self) -> io::Result<Option<Record>> {
        loop {
            self.before = (self.position, self.digest.clone());
            let (line, is_at_start) = (self.position.line, self.position.offset == 0);
            let is_whole = self.read_record()?;
            if is_at_start && self.format == FileFormat::Csv {
                // Excel writes a byte order mark.
                if self.record.starts_with(BYTE_ORDER_MARK) {
                    self.record.drain(..BYTE_ORDER_MARK.len());
                }
            }
            if !is_whole {
                self.skip_line()?;
                return Ok(Some(Record { line, content: RecordContent::TooLong }));
            }
            if self.record.is_empty() {
                return Ok(None);
            }
            if !self.record.trim_ascii().is_empty() {
                return Ok(Some(Record { line, content: RecordContent::Bytes }));
            }
        }
    }

    /// Reads one record into the buffer. False if it is too long.
    fn read_record(&mut self) -> io::Result<bool> {
        self.record.clear();
        let mut quotes = 0;
        loop {
            let left = self.bytes_max.saturating_sub(self.record.len());
            let before = self.record.len();
            let count = self.take(u64::try_from(left).unwrap_or(u64::MAX).max(1), b'\n')?;
            let new = self.record.get(before..).unwrap_or_default();
            let is_line = new.last() == Some(&b'\n');
            quotes += new.iter().filter(|byte| **byte == b'"').count();
            if is_line {
                self.position.line += 1;
            }
            let is_open = self.format == FileFormat::Csv && !quotes.is_multiple_of(2);
            if count == 0 || (is_line && !is_open) {
                return Ok(true);
            }
            if self.record.len() >= self.bytes_max {
                // The last line of a file may have no line end.
                return Ok(!is_open && self.input.fill_buf()?.is_empty());
            }
        }
    }

    /// Skips the rest of a line.
    fn skip_line(&mut self) -> io::Result<()> {
        while self.record.last() != Some(&b'\n') {
            self.record.clear();
            if self.take(SKIPPED_BYTES, b'\n')? == 0 {
                return Ok(());
            }
            if self.record.last() == Some(&b'\n') {
                self.position.line += 1;
            }
        }
        Ok(())
    }

    /// Appends up to `bytes_max` bytes to the buffer, up to and with a delimiter.
    fn take(&mut self, bytes_max: u64, delimiter: u8) -> io::Result<usize> {
        let before = self.record.len();
        let count = self.input.by_ref().take(bytes_max).read_until(delimiter, &mut self.record)?;
        self.digest.update(self.record.get(before..).unwrap_or_default());
        self.position.offset += u64::try_from(count).unwrap_or(0);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    fn read_all(text: &[u8], format: FileFormat, bytes_max: usize) -> Vec<(usize, Option<String>)> {
        let mut reader = RecordReader::new(Cursor::new(text), format, bytes_max).unwrap();
        let mut all = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            let text = String::from_utf8_lossy(reader.bytes()).into_owned();
            all.push((record.line, (record.content == RecordContent::Bytes).then_some(text)));
        }
        assert_eq!(reader.position().offset, text.len() as u64);
        all
    }

    fn found(records: &[(usize, &str)]) -> Vec<(usize, Option<String>)> {
        let found = |(line, text): &(usize, &str)| (*line, Some((*text).to_owned()));
        records.iter().map(found).collect()
    }

    #[test]
    fn record_of_csv_ends_with_a_line_outside_quotes() {
        let text = b"\xef\xbb\xbfa,b\r\n\n\"x\ny\",1\n\r\n\"\"\"\n\",2\nz,3";
        let all = read_all(text, FileFormat::Csv, 100);
        let expected = [(1, "a,b\r\n"), (3, "\"x\ny\",1\n"), (6, "\"\"\"\n\",2\n"), (8, "z,3")];
        assert_eq!(all, found(&expected));
        let lines = read_all(b"{\"a\":1}\n\n \n{\"b\":\"", FileFormat::Ndjson, 100);
        assert_eq!(lines, found(&[(1, "{\"a\":1}\n"), (4, "{\"b\":\"")]));
    }

    #[test]
    fn record_over_the_limit_is_skipped_to_the_end_of_its_line() {
        let all = read_all(b"12345\n123456\n1234567890\n12\n123456", FileFormat::Ndjson, 6);
        let text = |text: &str| Some(text.to_owned());
        let expected =
            [(1, text("12345\n")), (2, None), (3, None), (4, text("12\n")), (5, text("123456"))];
        assert_eq!(all, expected);
    }

    proptest! {
        /// A reader that goes on at any record finds the rest, with the same lines and the same digest.
        #[test]
        fn record_reader_goes_on_at_every_position(text in "([ab,]|\"[a\n\"]?\"|\r?\n){0,40}") {
            let open = || RecordReader::new(Cursor::new(text.as_bytes()), FileFormat::Csv, 1_000).unwrap();
            let (mut reader, mut all, mut positions) = (open(), Vec::new(), Vec::new());
            loop {
                positions.push((reader.position(), reader.digest()));
                let Some(record) = reader.next_record().unwrap() else { break };
                all.push((record.line, reader.bytes().to_vec()));
            }
            for (at, (position, digest)) in positions.into_iter().enumerate() {
                let mut other = open();
                other.skip_to(position).unwrap();
                prop_assert_eq!((other.position(), other.digest()), (position, digest));
                let mut rest = Vec::new();
                while let Some(record) = other.next_record().unwrap() {
                    rest.push((record.line, other.bytes().to_vec()));
                }
                prop_assert_eq!(&rest, &all[at..]);
            }
        }
    }
}
