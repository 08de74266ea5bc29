//! Exports: whole collections streamed as NDJSON and CSV.
//!
//! SQL inserts the rows, because creating so many over HTTP would take too long.

mod third_party_parsers;
mod disconnects;
mod limits;
mod memory;
mod snapshot;
mod surface;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use socket2::{Domain, Socket, Type};

use crate::harness::{Backend, Server, Setup, TIMEOUT, run_sql, wait_until};

pub(crate) const NDJSON: &str = "application/x-ndjson";
const CSV: &str = "text/csv";

/// Limits with which an export that waits for its client is not cut, however slow the machine is.
const PATIENT: &str =
    "stream_idle_seconds_max = 600\nsend_seconds_max = 600\nstream_seconds_max = 3600";

/// A server whose `entries` have this many rows of about 400 bytes each.
pub fn start_with_entries(backend: Backend, rows: usize, limits: &str) -> Server {
    let server = Setup::new(backend).model(&model(limits)).start();
    insert_rows(&server, rows);
    server
}

fn model(limits: &str) -> String {
    format!(
        "title = \"Log\"\n[server]\nhttp2_prior_knowledge = true\n[server.limits]\n{limits}\n\
         [resources.entry]\nid = \"integer\"\n[resources.entry.fields]\n\
         text = {{ type = \"text\" }}\nnumber = {{ type = \"integer\" }}\n"
    )
}

/// The text of a row: its number, and padding.
const TEXT: &str =
    "substr('                    ' || n, -20) || replace(hex(zeroblob(140)), '0', 'x')";
const TEXT_POSTGRES: &str = "lpad(n::text, 20) || repeat('x', 280)";

pub(crate) fn insert_rows(server: &Server, rows: usize) {
    let time = "'2026-01-01T00:00:00.000000Z'";
    let columns = "entries (id, created_at, updated_at, version, text, number)";
    let text = match server.backend() {
        Backend::Sqlite => format!(
            "INSERT INTO {columns} WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows}) \
             SELECT n, {time}, {time}, 1, {TEXT}, n FROM s"
        ),
        Backend::Postgres => format!(
            "INSERT INTO {columns} SELECT n, {time}, {time}, 1, {TEXT_POSTGRES}, n FROM generate_series(1, {rows}) n; \
             SELECT setval(pg_get_serial_sequence('entries', 'id'), {rows}); ANALYZE entries"
        ),
    };
    run_sql(server.backend(), server.folder(), &text);
}

fn wait_for_metric(server: &Server, name: &str, value: u64) {
    wait_until(&format!("{name} is {value}"), || {
        (server.metric(name) == Some(value)).then_some(())
    });
}

/// An export that is read at the test's pace.
pub(crate) struct Export {
    socket: TcpStream,
    head: String,
    /// Received bytes of the body that were not consumed yet.
    buffer: Vec<u8>,
    /// Bytes of the current chunk that are still to come.
    chunk_bytes_left: usize,
}

/// How an export ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExportEnd {
    Complete,
    Cut,
}

impl Export {
    /// Sends the request over a socket with a small receive buffer, and reads the head.
    fn begin(server: &Server, accept: &str) -> Self {
        Self::begin_with(server, &format!("Accept: {accept}\r\n"))
    }

    pub(crate) fn begin_with(server: &Server, headers: &str) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(8 << 10).unwrap();
        socket.connect(&server.address.into()).unwrap();
        let mut socket: TcpStream = socket.into();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let request = format!("GET /entries HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", server.address);
        socket.write_all(request.as_bytes()).unwrap();
        let mut export =
            Self { socket, head: String::new(), buffer: Vec::new(), chunk_bytes_left: 0 };
        while !export.buffer.windows(4).any(|window| window == b"\r\n\r\n") {
            assert!(export.read_more(), "closed in the head");
        }
        let end = export.buffer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        export.head = String::from_utf8(export.buffer.drain(..end).collect()).unwrap();
        export
    }

    fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn read_more(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        match self.socket.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&bytes[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// The next bytes of the body, or how it ended.
    fn next(&mut self) -> Result<Vec<u8>, ExportEnd> {
        loop {
            if self.chunk_bytes_left > 0 && !self.buffer.is_empty() {
                let count = self.chunk_bytes_left.min(self.buffer.len());
                self.chunk_bytes_left -= count;
                return Ok(self.buffer.drain(..count).collect());
            }
            // A chunk is followed by its line end, and preceded by its size.
            let skip = if self.buffer.starts_with(b"\r\n") { 2 } else { 0 };
            let line = self.buffer[skip..].windows(2).position(|window| window == b"\r\n");
            match line.filter(|_| self.chunk_bytes_left == 0) {
                Some(end) => {
                    let size = std::str::from_utf8(&self.buffer[skip..skip + end]).unwrap();
                    self.chunk_bytes_left = usize::from_str_radix(size, 16).unwrap();
                    self.buffer.drain(..skip + end + 2);
                    if self.chunk_bytes_left == 0 {
                        return Err(ExportEnd::Complete);
                    }
                }
                None if !self.read_more() => return Err(ExportEnd::Cut),
                None => {}
            }
        }
    }

    /// Reads to the end: the bytes, and how it ended.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, ExportEnd) {
        let mut body = Vec::new();
        loop {
            match self.next() {
                Ok(bytes) => body.extend(bytes),
                Err(end) => return (body, end),
            }
        }
    }
}
