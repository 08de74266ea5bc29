//! The parser of `json_bodies.txt`: bodies and their expected responses.
//!
//! The tests of the JSON parser include this file too, so it imports nothing. The head of the table
//! explains the format.

/// One line of the table.
#[derive(Debug)]
pub struct Row {
    /// The line in the file, for messages.
    pub line: String,
    /// The collection it is sent to.
    pub path: String,
    /// The field that is compared in a 201.
    pub field: String,
    pub body: Vec<u8>,
    pub expected: Expected,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Expected {
    /// 201, and the field has exactly this text.
    Stored(String),
    /// 400 with this problem.
    Refused(String),
    /// 422 with these codes, sorted.
    Faults(Vec<String>),
}

pub fn rows() -> Vec<Row> {
    let mut section = ("", "", "");
    let mut rows = Vec::new();
    for line in include_str!("../json_bodies.txt").lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(header) = line.strip_prefix("@ ") {
            let mut words = header.splitn(3, ' ');
            section = [(); 3].map(|()| words.next().unwrap()).into();
            continue;
        }
        let (piece, answer) =
            line.rsplit_once(" => ").unwrap_or_else(|| panic!("no answer: {line}"));
        let (path, field, template) = section;
        rows.push(Row {
            line: line.to_owned(),
            path: path.to_owned(),
            field: field.to_owned(),
            body: expand(&template.replace('§', piece.trim())),
            expected: expected(answer.trim()),
        });
    }
    rows
}

fn expected(answer: &str) -> Expected {
    let (status, rest) = answer.split_once(' ').unwrap_or_else(|| panic!("no status: {answer}"));
    match status {
        "201" => Expected::Stored(String::from_utf8(expand(rest)).unwrap()),
        "400" => Expected::Refused(rest.to_owned()),
        "422" => {
            let mut codes: Vec<_> = rest.split(' ').map(str::to_owned).collect();
            codes.sort();
            Expected::Faults(codes)
        }
        _ => panic!("an unknown status: {answer}"),
    }
}

/// Replaces what stands in `⟨⟩` by bytes and repetitions.
fn expand(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('⟨') {
        let (inside, after) = after.split_once('⟩').unwrap();
        out.extend_from_slice(before.as_bytes());
        match inside.rsplit_once('×') {
            Some((quoted, count)) => {
                let piece =
                    quoted.strip_prefix('\'').and_then(|piece| piece.strip_suffix('\'')).unwrap();
                out.extend_from_slice(piece.repeat(count.parse().unwrap()).as_bytes());
            }
            None => out
                .extend(inside.split_whitespace().map(|hex| u8::from_str_radix(hex, 16).unwrap())),
        }
        rest = after;
    }
    out.extend_from_slice(rest.as_bytes());
    out
}
