//! `docs/explanation/tested-clients.md` shows what the tests hold the clients to, and
//! `docs/reference/clients.md` how the tests use them.
//!
//! The code in the document is that of `tests/clients/`, between two comments.

use std::fs;
use std::path::Path;

use super::client_row::{ChallengePolicy, ClientRow, LifecycleAction, LoginResult, OfferedSchemes};
use super::rows::ALL;

/// A part of a document that the tests know, and the lines around it.
#[derive(Debug)]
struct KnownPart {
    path: &'static str,
    begin: &'static str,
    end: &'static str,
}

const TABLE: KnownPart = KnownPart {
    path: "docs/explanation/tested-clients.md",
    begin: "|---|---|---|---|---|---|---|---|---|---|\n",
    end: "\n",
};
const CODE: KnownPart = KnownPart {
    path: "docs/reference/clients.md",
    begin: "<!-- from tests/clients -->\n",
    end: "<!-- so far -->\n",
};

/// The comments around the part of a client's file that the document shows.
const EXCERPT_MARKS: (&str, &str) = ("In docs/reference/clients.md:", "Not in it:");

#[test]
fn clients_document_table_matches_the_rows() {
    let rows: String = ALL.iter().map(markdown_row).collect();
    println!("{rows}");
    check(&TABLE, &rows);
}

#[test]
fn clients_document_code_matches_the_files() {
    let mut files: Vec<&str> =
        ALL.iter().filter(|kind| can_log_in(kind)).map(|kind| kind.file).collect();
    files.dedup();
    let blocks: String = files.into_iter().map(code_block).collect();
    check(&CODE, &format!("\n{blocks}"));
}

/// Holds a document to what it should have between two marks.
fn check(part: &KnownPart, wanted: &str) {
    let KnownPart { path, begin, end } = *part;
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = fs::read_to_string(&document).unwrap();
    let (front, rest) = text.split_once(begin).unwrap();
    // The expected text may contain the end mark as well, such as an empty line.
    let (shown, back) = match rest.strip_prefix(wanted) {
        Some(rest) => (wanted, rest),
        None => rest.split_at(rest.find(&format!("\n{end}")).unwrap() + 1),
    };
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&document, format!("{front}{begin}{wanted}{back}")).unwrap();
    } else {
        assert!(
            shown == wanted && back.starts_with(end),
            "{path} is not what it should be:\n{wanted}"
        );
    }
}

/// Whether it can log in at all.
fn can_log_in(kind: &ClientRow) -> bool {
    !kind.failing_actions.contains(&(LifecycleAction::Read, 401))
}

fn markdown_row(kind: &ClientRow) -> String {
    let over = if kind.is_tls_only { "HTTPS" } else { "HTTP, HTTPS" };
    let offered = match kind.offered {
        OfferedSchemes::Both => "both",
        OfferedSchemes::Digest => "Digest only",
        OfferedSchemes::Basic => "Basic only",
    };
    let asks = match kind.challenge_policy {
        ChallengePolicy::Never => "never",
        ChallengePolicy::Once => "once",
        ChallengePolicy::EachTime => "each request",
    };
    let expired = match (kind.is_digest() && can_log_in(kind), kind.challenge_policy) {
        (false, _) => "no nonce",
        (true, ChallengePolicy::EachTime) => "not reused",
        (true, _) => "retries",
    };
    let refusals = match kind.reported_status {
        401 => kind.refusals.to_string(),
        0 => format!("{}, then an error", kind.refusals),
        told => format!("{}, then {told}", kind.refusals),
    };
    let [password, name, odd_password, odd_name] = kind.login_results;
    let cells = [
        kind.name,
        kind.tested_version.trim_end_matches('.'),
        over,
        offered,
        &methods(kind),
        asks,
        expired,
        &refusals,
        login_results_text(kind, password, odd_password),
        login_results_text(kind, name, odd_name),
    ];
    format!("| {} |\n", cells.join(" | "))
}

fn login_results_text(kind: &ClientRow, latin1: LoginResult, all: LoginResult) -> &'static str {
    match (latin1, all) {
        _ if !can_log_in(kind) => "none",
        (_, LoginResult::Works) => "Unicode",
        (LoginResult::Works, _) => "Latin-1",
        _ => "ASCII",
    }
}

/// The methods that it supports.
fn methods(kind: &ClientRow) -> String {
    let all = [
        (LifecycleAction::Read, "GET"),
        (LifecycleAction::Create, "POST"),
        (LifecycleAction::Replace, "PUT"),
        (LifecycleAction::Delete, "DELETE"),
    ];
    let fails =
        |act: LifecycleAction| kind.failing_actions.iter().any(|(failing, _)| *failing == act);
    let able: Vec<&str> =
        all.iter().filter(|(act, _)| !fails(*act)).map(|(_, method)| *method).collect();
    match able.len() {
        4 => "all".to_owned(),
        0 => "none".to_owned(),
        _ => able.join(", "),
    }
}

/// An arm of a shell `case`, as a command line.
fn command_line(arm: &str) -> Option<String> {
    let (_, command) = arm.strip_suffix(" ;;")?.split_once(") ")?;
    Some(command.replace("\"$@\"", "\"$url\""))
}

/// The part of a file for the document, as a code block.
fn code_block(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(file);
    let text = fs::read_to_string(path).unwrap();
    let mut shown = String::new();
    let mut indent = None;
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        if line.ends_with(EXCERPT_MARKS.0) {
            indent = Some(depth);
        } else if line.ends_with(EXCERPT_MARKS.1) {
            indent = None;
        } else if let Some(indent) = indent {
            let line = line.get(indent..).unwrap_or_default();
            shown.push_str(&command_line(line).unwrap_or_else(|| line.to_owned()));
            shown.push('\n');
        }
    }
    assert!(!shown.is_empty(), "{file} has nothing for docs/reference/clients.md");
    let language = match file.rsplit_once('.').unwrap().1 {
        "sh" => "bash",
        "py" => "python",
        "mjs" => "js",
        "pl" => "perl",
        other => other,
    };
    format!("`tests/clients/{file}`:\n\n```{language}\n{shown}```\n\n")
}
