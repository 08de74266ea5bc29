//! The rules of the repository, as tests.
//!
//! They read the sources and the documents as text; rules that a compiler or a linter can check are not
//! here.

mod layers;
mod templates;
mod vocabulary;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use regex::Regex;

use crate::harness::{Backend, Server};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file of the repository with this ending, by its path from the root.
fn files(folder: &str, ending: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            let skipped = name.starts_with("target") || name.starts_with('.');
            if path.is_dir() && !skipped {
                folders.push(path);
            } else if name.ends_with(ending) && !skipped {
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no file ends with {ending}");
    found
}

/// Fails with all faults at once.
fn assert_no_faults(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The cells of each row of the table below a heading of ARCHITECTURE.md.
fn cells(heading: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, section) = text
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("no heading {heading}"));
    let lines = section
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<String>> = lines
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    assert!(!rows.is_empty(), "no table below {heading}");
    rows
}

/// The words in backticks of each row of the table below a heading of ARCHITECTURE.md.
fn table(heading: &str) -> Vec<Vec<String>> {
    let word = Regex::new("`([a-z0-9_]+)`").unwrap();
    let words = |row: &[String]| -> Vec<String> {
        word.captures_iter(&row.join(" ")).map(|found| found[1].to_owned()).collect()
    };
    cells(heading).iter().map(|row| words(row)).collect()
}

/// The top-level module that a source file belongs to.
fn module(path: &str) -> &str {
    path.trim_start_matches("src/").split(['/', '.']).next().unwrap()
}

/// A source text without its comments.
fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The top-level modules that a source text names by a path from the root of the crate.
fn imports(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let code = without_comments(text);
    for (at, start) in code.match_indices("crate::") {
        let rest = &code[at + start.len()..];
        let name = |text: &str| {
            text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
        };
        match rest.strip_prefix('{') {
            None => drop(found.insert(name(rest))),
            Some(group) => {
                let (mut depth, mut fresh) = (0, true);
                for (index, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => fresh = true,
                        c if fresh && c.is_alphabetic() => {
                            fresh = false;
                            found.insert(name(&group[index..]));
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    found.remove("");
    found
}

#[test]
fn imports_parser_finds_every_spelling() {
    let text = "use crate::value::Value;\nuse crate::{json::{self, Json}, model,\n    problem::Problem};\nlet x = crate::store::open();\n// crate::cli::no\n";
    let found: Vec<_> = imports(text).into_iter().collect();
    assert_eq!(found, ["json", "model", "problem", "store", "value"]);
}

/// Whether a path of `super::` goes up to the crate root, bypassing the check of `crate::`.
fn leaves_by_super(path: &str, text: &str) -> bool {
    let file = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    let depth = file.split('/').count();
    let chain = Regex::new(r"(?m)^( *).*?((?:super::)+)").unwrap();
    // Indented code may be in an inline module, such as the file's tests.
    chain.captures_iter(text).any(|found| {
        let ups = found[2].len() / "super::".len();
        ups > depth || (ups == depth && found[1].is_empty() && depth == 1)
    })
}

#[test]
fn imports_follow_the_import_order() {
    let layers = table("Import order");
    let layer = |module: &str| layers.iter().position(|row| row.iter().any(|name| name == module));
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    let is_above = |path: &str| ["src/main.rs", "src/lib.rs"].contains(&path);
    for (path, text) in files("src", ".rs").iter().filter(|(path, _)| !is_above(path)) {
        let from = module(path);
        seen.insert(from.to_owned());
        let Some(own) = layer(from) else {
            faults.push(format!("{path}: `{from}` has no row in ARCHITECTURE.md"));
            continue;
        };
        for to in imports(text).iter().filter(|to| *to != from) {
            match layer(to) {
                Some(other) if other > own => {}
                Some(_) => faults
                    .push(format!("{path}: `{from}` may not import `{to}`, which is not below it")),
                None => faults.push(format!("{path}: `{to}` has no row in ARCHITECTURE.md")),
            }
        }
        if leaves_by_super(path, text) {
            faults.push(format!("{path}: write crate:: where super:: leaves the module"));
        }
    }
    for name in layers.iter().flatten().filter(|name| !seen.contains(*name)) {
        faults.push(format!("ARCHITECTURE.md: there is no module `{name}`"));
    }
    assert_no_faults(&faults);
}

/// Crates that only one part of the code may use: `store` uses no HTTP, `formats` no SQL.
#[test]
fn external_crates_are_used_only_in_their_modules() {
    let mut faults = Vec::new();
    for row in table("Crate ownership") {
        let (name, allowed) = row.split_first().unwrap();
        let used = Regex::new(&format!(r"\b{name}::")).unwrap();
        for (path, text) in files("src", ".rs") {
            if !allowed.iter().any(|module_name| module_name == module(&path))
                && used.is_match(&without_comments(&text))
            {
                faults.push(format!("{path}: `{name}` may be used only in {}", allowed.join(", ")));
            }
        }
    }
    assert_no_faults(&faults);
}

/// Modules below `clock` in the table of imports are pure: no waiting and no input or output. A banned
/// word is a crude sign of it; `clippy.toml` bans the clock as well.
#[test]
fn pure_modules_have_no_side_effects() {
    const BANNED: &str = r"\basync\b|\.await\b|\bstd::(?:fs|net|env|process|thread)\b|\bFile::|\bTcp|\b(?:Instant|SystemTime|Timestamp)::now\b|\bgetrandom\b|\bnow_v7\b|\bprint(?:ln)?!";
    let banned = Regex::new(BANNED).unwrap();
    let layers = table("Import order");
    let clock = layers.iter().position(|row| row == &["clock"]).unwrap();
    let pure: BTreeSet<_> = layers[clock + 1..].iter().flatten().map(String::as_str).collect();
    assert!(pure.contains("plan") && pure.contains("value"), "{pure:?}");
    let mut faults = Vec::new();
    for (path, text) in files("src", ".rs") {
        // Failpoints panic where a test says, and read the name of the thread.
        let is_exempt = path.ends_with("/tests.rs") || path == "src/fault.rs";
        if !is_exempt && pure.contains(module(&path)) {
            // Tests are at the end of a file, and may do anything.
            let code = without_comments(text.split("\n#[cfg(test)]\nmod tests {").next().unwrap());
            let found = banned.find_iter(&code);
            faults.extend(found.map(|word| format!("{path}: {} in a pure module", word.as_str())));
        }
    }
    assert_no_faults(&faults);
}

#[test]
fn sources_begin_with_a_module_comment() {
    let sources = [files("src", ".rs"), files("tests", ".rs")].concat();
    let faults: Vec<_> = sources
        .iter()
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| format!("{path}: no //!"))
        .collect();
    assert_no_faults(&faults);
}

#[test]
fn sources_are_within_the_line_limit() {
    let sources = [files("src", ".rs"), files("tests", ".rs")].concat();
    let lines = |text: &str| text.lines().count();
    let faults: Vec<_> = sources
        .iter()
        .filter(|(_, text)| lines(text) > 500)
        .map(|(path, text)| format!("{path}: {} lines", lines(text)))
        .collect();
    assert_no_faults(&faults);
}

#[test]
fn sources_have_no_leftovers() {
    let banned = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("dbg", "!("),
        concat!("#[ign", "ore"),
        concat!("[all", "ow("),
    ];
    let sources = [files("src", ".rs"), files("tests", ".rs")].concat();
    let mut faults = Vec::new();
    for (path, text) in &sources {
        for (number, line) in (1..).zip(text.lines()) {
            faults.extend(
                banned
                    .iter()
                    .filter(|word| line.contains(*word))
                    .map(|word| format!("{path}:{number}: {word}")),
            );
        }
    }
    assert_no_faults(&faults);
}

/// A renamed test whose old name stays in `tests/slow` would run in `./test`, unnoticed.
#[test]
fn names_of_slow_tests_exist() {
    let sources = [files("src", ".rs"), files("tests/it", ".rs")].concat();
    let names = fs::read_to_string(root().join("tests/slow")).unwrap();
    let names = names.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_missing = |name: &&str| {
        let last = name.trim_end_matches("::").rsplit("::").next().unwrap();
        let forms = [format!("fn {last}("), format!("mod {last};"), format!("    {last}: \"")];
        !sources.iter().any(|(_, text)| forms.iter().any(|form| text.contains(form)))
    };
    let faults: Vec<_> =
        names.filter(is_missing).map(|name| format!("tests/slow: no test {name}")).collect();
    assert_no_faults(&faults);
}

/// A module's facade decides what others see; a path in a visibility repeats that at every item.
#[test]
fn visibilities_name_no_module() {
    let mut faults = Vec::new();
    for (path, text) in files("src", ".rs") {
        for (number, line) in (1..).zip(text.lines()) {
            if line.contains(concat!("pub(", "in ")) {
                faults.push(format!(
                    "{path}:{number}: write `pub`, and re-export it where it is used"
                ));
            }
        }
    }
    assert_no_faults(&faults);
}

#[test]
fn module_names_are_not_generic() {
    let banned = [
        "util", "utils", "common", "helper", "helpers", "misc", "manager", "service", "handler",
        "handlers",
    ];
    let words = |path: &str| {
        path.trim_end_matches(".rs").split(['/', '_']).map(str::to_owned).collect::<Vec<_>>()
    };
    let sources = [files("src", ".rs"), files("tests", ".rs")].concat();
    let faults: Vec<_> = sources
        .iter()
        .filter(|(path, _)| words(path).iter().any(|word| banned.contains(&word.as_str())))
        .map(|(path, _)| path.clone())
        .collect();
    assert_no_faults(&faults);
}

#[test]
fn documents_follow_the_format() {
    let mut faults = Vec::new();
    for (path, text) in files("", ".md") {
        if !text.ends_with('\n') || text.ends_with("\n\n") {
            faults.push(format!("{path}: ends without exactly one line end"));
        }
        for (number, line) in (1..).zip(text.lines()) {
            if line.ends_with(' ') || line.contains('\t') {
                faults.push(format!("{path}:{number}: a trailing space or a tab"));
            }
        }
    }
    assert_no_faults(&faults);
}

/// Links between documents lead to existing files.
#[test]
fn document_links_lead_to_existing_files() {
    let link = Regex::new(r"\]\(([^)#:]+)(?:#[^)]*)?\)").unwrap();
    let mut faults = Vec::new();
    for (path, text) in files("", ".md") {
        let folder = root().join(&path).parent().unwrap().to_owned();
        for found in link.captures_iter(&text).filter(|found| !folder.join(&found[1]).exists()) {
            faults.push(format!("{path}: {}", &found[1]));
        }
    }
    assert_no_faults(&faults);
}

/// Files that documents name exist, and CONTRIBUTING.md names every part of the black-box tests.
#[test]
fn documents_name_existing_files() {
    let mut faults = Vec::new();
    let name = Regex::new(r"`((?:src|tests|docs|examples)/[a-z0-9_./-]*)`").unwrap();
    for (path, text) in files("", ".md") {
        for found in name.captures_iter(&text).filter(|found| !root().join(&found[1]).exists()) {
            faults.push(format!("{path}: there is no {}", &found[1]));
        }
    }
    let contributing = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let main = fs::read_to_string(root().join("tests/it/main.rs")).unwrap();
    let module = Regex::new(r"(?m)^mod (\w+);").unwrap();
    for found in module.captures_iter(&main) {
        let row = Regex::new(&format!(r"(?m)^\|.*`tests/it/{}(?:\.rs|/)`.*\|", &found[1])).unwrap();
        if !row.is_match(&contributing) {
            faults.push(format!("CONTRIBUTING.md: tests/it/{} has no row", &found[1]));
        }
    }
    assert_no_faults(&faults);
}

/// `docs/reference/problems.md` equals the server's own texts of its problems, in the order of the table.
#[test]
fn problems_document_is_up_to_date() {
    let table = fs::read_to_string(root().join("src/problem.rs")).unwrap();
    let slug = Regex::new(r#"(?m)^    [A-Z_]+ "([a-z-]+)" [A-Z_]+ ""#).unwrap();
    let slugs: Vec<_> = slug.captures_iter(&table).map(|found| found[1].to_owned()).collect();
    assert!(slugs.len() > 20, "the table in src/problem.rs was not found");
    let server = Server::on(Backend::Sqlite);
    let mut text = "# Problems\n\n\
        Every error response is a problem document (RFC 9457), sent as `application/problem+json`, or as `application/json` if `Accept` prefers that type.\n\
        If `Accept` lists neither, the response has no body, and `Link` has its type, with `rel=\"type\"`.\n\
        A client that accepts CSV alone sends `Accept: text/csv, application/problem+json` to learn more.\n\
        `type` is the path of one of the entries below, whose slug never changes its meaning.\n\
        They are listed in the order of the checks: of two faults in one request, the earlier one is reported.\n"
        .to_owned();
    for slug in slugs {
        let page = server.get(&format!("/-/problems/{slug}")).json()["problem"].clone();
        let part = |name: &str| {
            page[name].as_str().unwrap_or_else(|| panic!("{slug}: no {name}")).to_owned()
        };
        let help = part("help").replace(". ", ".\n");
        write!(text, "\n## {slug}\n\n{} {}\n\n{help}\n", page["status"], part("title")).unwrap();
    }
    text.push_str("\n## Codes of field faults\n\nEach entry of `errors` has a JSON `pointer` into the body, a `detail` for people and one of these codes.\n\n");
    text.push_str("| code | meaning |\n|---|---|\n");
    let code = Regex::new(r#"(?m)^    [A-Za-z]+ "([a-z_]+)" "([^"]+)";$"#).unwrap();
    for found in code.captures_iter(&table) {
        writeln!(text, "| `{}` | {} |", &found[1], &found[2]).unwrap();
    }
    expect_file!["../../docs/reference/problems.md"].assert_eq(&text);
}
