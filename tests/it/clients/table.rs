//! `docs/clients.md` shows what the tests hold the clients to.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::kind::{Asks, Fate, Kind, Offered};
use super::rows::ALL;

const RULE: &str = "|---|---|---|---|---|---|---|---|\n";

#[test]
fn the_document_has_a_row_for_each() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/clients.md");
    let text = fs::read_to_string(&document).unwrap();
    let (front, rest) = text.split_once(RULE).unwrap();
    let back = rest.split_once("\n\n").map(|(_, back)| back).unwrap();
    let rows: String = ALL.iter().map(row).collect();
    println!("{rows}");
    let wanted = format!("{front}{RULE}{rows}\n{back}");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&document, &wanted).unwrap();
    } else {
        assert!(text == wanted, "docs/clients.md is not what it should be:\n{rows}");
    }
}

fn row(kind: &Kind) -> String {
    let offered = match kind.offered {
        Offered::Both => "both",
        Offered::Digest => "Digest alone",
        Offered::Basic => "Basic alone",
    };
    let asks = match kind.asks {
        Asks::Never => "never",
        Asks::Once => "once",
        Asks::EachTime => "for each request",
    };
    let expired = match (kind.is_digest(), kind.asks) {
        (false, _) => "has no nonce",
        (true, Asks::EachTime) => "uses none twice",
        (true, _) => "tries again by itself",
    };
    let refusals = match kind.told {
        401 => kind.refusals.to_string(),
        0 => format!("{}, then an error of its own", kind.refusals),
        told => format!("{}, then {told}", kind.refusals),
    };
    let [password, name, odd_password, odd_name] = kind.letters;
    let letters = |latin1: Fate, all: Fate| match (latin1, all) {
        (_, Fate::Works) => "all of Unicode",
        (Fate::Works, _) => "Latin-1",
        _ => "ASCII",
    };
    let (passwords, names) = (letters(password, odd_password), letters(name, odd_name));
    let seen = kind.seen.trim_end_matches('.');
    let mut row = String::new();
    writeln!(
        row,
        "| {} | {seen} | {offered} | {asks} | {expired} | {refusals} | {passwords} | {names} |",
        kind.name
    )
    .unwrap();
    row
}
