//! A PostgreSQL session next to the server, kept open to read what is stored and to hold locks.
//!
//! It speaks the simple query protocol, in text, to a server without a password.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::harness::TIMEOUT;

/// One session.
#[derive(Debug)]
pub struct PostgresSession(TcpStream);

/// PostgreSQL's error code (SQLSTATE).
pub type SqlState = String;

impl PostgresSession {
    pub fn open(server: SocketAddr, database: &str) -> Self {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let words = ["user", "nouns", "database", database, "application_name", "beside", ""];
        let words: Vec<u8> =
            words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
        let length = u32::try_from(8 + words.len()).unwrap().to_be_bytes();
        // Version 3.0 of the protocol.
        stream.write_all(&[&length[..], &[0, 3, 0, 0], &words].concat()).unwrap();
        let mut session = Self(stream);
        session.read_response().unwrap();
        session
    }

    /// The rows; a null is empty.
    pub fn rows(&mut self, sql: &str) -> Vec<Vec<String>> {
        self.try_rows(sql).unwrap_or_else(|code| panic!("{code} from {sql}"))
    }

    pub fn try_rows(&mut self, sql: &str) -> Result<Vec<Vec<String>>, SqlState> {
        self.send_statement(sql);
        self.read_response()
    }

    /// The one column of the one row.
    pub fn value(&mut self, sql: &str) -> String {
        self.rows(sql).remove(0).remove(0)
    }

    /// Sends a statement without waiting for its response.
    pub fn send_statement(&mut self, sql: &str) {
        let length = u32::try_from(5 + sql.len()).unwrap().to_be_bytes();
        self.0.write_all(&[b"Q", &length[..], sql.as_bytes(), b"\0"].concat()).unwrap();
    }

    /// The response to the last statement sent.
    pub fn read_response(&mut self) -> Result<Vec<Vec<String>>, SqlState> {
        let mut rows = Vec::new();
        let mut failed = None;
        loop {
            let (kind, body) = self.message();
            match kind {
                'D' => rows.push(columns(&body[2..])),
                'E' => failed = Some(code(&body)),
                'Z' => return failed.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    fn message(&mut self) -> (char, Vec<u8>) {
        let mut head = [0; 5];
        self.0.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        let mut body = vec![0; length - 4];
        self.0.read_exact(&mut body).unwrap();
        (char::from(head[0]), body)
    }
}

fn columns(mut bytes: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        // Null has the length -1.
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        let (text, rest) = rest.split_at(length);
        all.push(String::from_utf8(text.to_vec()).unwrap());
        bytes = rest;
    }
    all
}

fn code(body: &[u8]) -> SqlState {
    let fields = body.split(|&byte| byte == 0);
    let code = fields.filter_map(|field| field.strip_prefix(b"C")).next().unwrap();
    String::from_utf8(code.to_vec()).unwrap()
}
