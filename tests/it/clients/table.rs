//! `docs/clients.md` shows what the tests hold the clients to.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{ALL, Asks, Letters};

#[test]
fn the_document_has_a_row_for_each() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/clients.md");
    let text = fs::read_to_string(&document).unwrap();
    let (front, rest) = text.split_once("|---|---|---|---|---|\n").unwrap();
    let back = rest.split_once("\n\n").map(|(_, back)| back).unwrap();
    let mut rows = String::new();
    for kind in ALL {
        let asks = match kind.asks {
            Asks::Never => "never",
            Asks::Once => "once",
            Asks::EachTime => "for each request",
        };
        let stale = match (kind.scheme, kind.asks) {
            ("basic", _) | (_, Asks::Never) => "has no nonce",
            (_, Asks::Once) => "tries again by itself",
            (_, Asks::EachTime) => "uses none twice",
        };
        let letters = match kind.letters {
            Letters::Ascii => "ASCII",
            Letters::Latin1 => "Latin-1",
            Letters::All => "all of Unicode",
        };
        let (name, refusals) = (kind.name, kind.refusals_max);
        writeln!(rows, "| {name} | {asks} | {stale} | {refusals} | {letters} |").unwrap();
    }
    let wanted = format!("{front}|---|---|---|---|---|\n{rows}\n{back}");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&document, &wanted).unwrap();
    } else {
        assert!(text == wanted, "docs/clients.md is not what it should be:\n{rows}");
    }
}
