//! The command lines in the documents: the tests run them and compare their output.
//!
//! CONTRIBUTING.md has the convention; `UPDATE_EXPECT=1` writes the real output into the documents.
//! The ids and cursors in a document come from another run. The test pairs each with the value that the
//! command printed in its place, and uses the printed value in later commands.

use std::collections::HashMap;
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{EXECUTABLE, Folder, Masks, Process};

/// The address in the documents, which is the default of `serve`.
const DOCUMENTED_ADDRESS: &str = "127.0.0.1:8080";

/// Stands for `cargo run --release -- serve` without a release build; `curl` is sent to the port in
/// use.
const CARGO: &str = "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec nouns \"$@\"\n";

#[test]
fn documents_command_lines_print_the_shown_output() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut documents = documents_in(&root.join("docs"));
    documents.push(root.join("README.md"));
    documents.sort();
    let is_update = std::env::var_os("UPDATE_EXPECT").is_some();
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        let (printed, differences) = DocumentSession::new().run_document(&text);
        if differences.is_empty() {
            continue;
        }
        // The whole document, so that its ids stay those of one run.
        assert!(is_update, "{}\n{}", document.display(), differences.join("\n"));
        fs::write(&document, printed).unwrap();
    }
}

/// Every document in a folder and its subfolders.
fn documents_in(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    let documents =
        files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "md"));
    documents.chain(folders.iter().flat_map(|folder| documents_in(folder))).collect()
}

/// A part of a document.
#[derive(Debug, PartialEq, Eq)]
enum DocumentPart<'a> {
    /// Lines that are only copied.
    Prose(&'a str),
    /// The text of a block that is saved under a name.
    File { name: &'a str, text: String },
    /// One command after a prompt, or all commands of a runnable block, and the output shown below.
    /// `prompt` and `between` stand before the command and before the output.
    Step { prompt: &'static str, command: String, between: &'static str, shown: String },
}

/// Between the commands of a runnable block and the block with their output.
const TO_OUTPUT: &str = "```\n\n```output\n";

/// Splits a document into parts; joined again they give every line back.
fn parts(text: &str) -> Vec<DocumentPart<'_>> {
    let mut parts = Vec::new();
    let (mut language, mut file) = (None, None);
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let command = line.strip_prefix("$ ").filter(|_| language == Some("sh"));
        if let Some(first) = command {
            let mut command = first.to_owned();
            while command.ends_with("\\\n") {
                command.push_str(lines.next().unwrap_or_default());
            }
            let mut shown = String::new();
            while let Some(line) =
                lines.next_if(|line| !line.starts_with("$ ") && !line.starts_with("```"))
            {
                shown.push_str(line);
            }
            parts.push(DocumentPart::Step { prompt: "$ ", command, between: "", shown });
            continue;
        }
        parts.push(DocumentPart::Prose(line));
        match (line.trim_end().strip_prefix("```"), language) {
            (Some(opened), None) => language = Some(opened),
            (Some(_), Some(_)) => language = None,
            (None, Some(_)) => {}
            (None, None) => {
                let name = line
                    .trim_end()
                    .strip_prefix("<!-- file: ")
                    .and_then(|rest| rest.strip_suffix(" -->"));
                file = name.or(file.filter(|_| line.trim().is_empty()));
            }
        }
        if let Some(name) = file.filter(|_| language.is_some()) {
            parts.push(DocumentPart::File { name, text: rest_of_block(&mut lines) });
            file = None;
        }
        if language == Some("sh run") {
            let command = rest_of_block(&mut lines);
            let mut ahead = lines.clone();
            let has_output = ahead.by_ref().take(3).collect::<String>() == TO_OUTPUT;
            let (between, shown) = match has_output {
                true => {
                    (lines, language) = (ahead, Some("output"));
                    (TO_OUTPUT, rest_of_block(&mut lines))
                }
                false => ("", String::new()),
            };
            parts.push(DocumentPart::Step { prompt: "", command, between, shown });
        }
    }
    parts
}

/// The lines up to the end of the block, exclusive.
fn rest_of_block<'a>(lines: &mut Peekable<impl Iterator<Item = &'a str>>) -> String {
    std::iter::from_fn(|| lines.next_if(|line| !line.starts_with("```"))).collect()
}

/// The state from command to command: a folder, a server, and the mapping of values.
struct DocumentSession {
    folder: Folder,
    server: Option<Process>,
    shown: Masks,
    printed: Masks,
    /// From a value in the document to the value of this run.
    real: HashMap<String, String>,
}

impl DocumentSession {
    fn new() -> Self {
        let folder = Folder::new();
        let tools = folder.path().join(".tools");
        fs::create_dir(&tools).unwrap();
        std::os::unix::fs::symlink(EXECUTABLE, tools.join("nouns")).unwrap();
        fs::write(tools.join("cargo"), CARGO).unwrap();
        fs::set_permissions(
            tools.join("cargo"),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        Self {
            folder,
            server: None,
            shown: Masks::default(),
            printed: Masks::default(),
            real: HashMap::new(),
        }
    }

    /// Runs a document; returns its text with the real output, and the differences.
    fn run_document(mut self, text: &str) -> (String, Vec<String>) {
        let (mut updated, mut differences) = (String::new(), Vec::new());
        for part in parts(text) {
            match part {
                DocumentPart::Prose(line) => updated.push_str(line),
                DocumentPart::File { name, text } => {
                    fs::write(self.folder.path().join(name), &text).unwrap();
                    updated.push_str(&text);
                }
                DocumentPart::Step { prompt, command, between, shown } => {
                    let command =
                        self.real.iter().fold(command, |text, (from, to)| text.replace(from, to));
                    let printed = self.run_command(&command, &shown);
                    differences.extend(self.compare(&command, &shown, &printed));
                    updated.push_str(&format!("{prompt}{command}{between}{printed}"));
                }
            }
        }
        (updated, differences)
    }

    fn run_command(&mut self, command: &str, shown: &str) -> String {
        if shown.contains("nouns: serving ") {
            self.serve(command)
        } else {
            self.run_to_end(command)
        }
    }

    /// Describes the difference; where there is none, maps each value shown to the value printed.
    fn compare(&mut self, command: &str, shown: &str, printed: &str) -> Option<String> {
        let (expected, got) = (self.shown.text(shown), self.printed.text(printed));
        if expected != got {
            return Some(format!("$ {command}shown, masked:\n{expected}printed, masked:\n{got}"));
        }
        let values = self.shown.values().zip(self.printed.values());
        self.real.extend(values.map(|(from, to)| (from.to_owned(), to.to_owned())));
        None
    }

    /// Starts a server that lives until the document ends or starts another.
    fn serve(&mut self, command: &str) -> String {
        if let Some(server) = self.server.take() {
            server.signal("TERM");
            server.end();
        }
        let server = Process::spawn(&mut self.shell(&format!("exec {command}")));
        let line = server.first_line();
        let address =
            line.rsplit_once("://").map(|(_, address)| address.to_owned()).unwrap_or_default();
        self.server = Some(server);
        let curlrc = format!(
            "connect-to = \"localhost:8080:{address}\"\nconnect-to = \"{DOCUMENTED_ADDRESS}:{address}\"\n"
        );
        fs::write(self.folder.path().join(".curlrc"), curlrc).unwrap();
        format!("{}\n", line.replace(&address, DOCUMENTED_ADDRESS))
    }

    fn run_to_end(&self, command: &str) -> String {
        // An assignment of a variable applies to the commands after it, as in a terminal.
        let keep: String = command
            .lines()
            .filter_map(|line| line.split_once('='))
            .filter(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase()))
            .map(|(name, _)| format!("declare -p {name} >> .variables\n"))
            .collect();
        let script = format!("touch .variables\n. ./.variables\nexec 2>&1\n{command}\n{keep}");
        let ended = Process::spawn(&mut self.shell(&script)).end();
        ended.stdout.replace('\r', "")
    }

    fn shell(&self, script: &str) -> Command {
        let folder = self.folder.path();
        let path =
            format!("{}:{}", folder.join(".tools").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-c", script]).env_clear().current_dir(folder);
        command.env("PATH", path).env("HOME", folder).env("NOUNS_LISTEN", "127.0.0.1:0");
        command
    }
}

#[test]
fn document_parts_separate_commands_files_and_outputs() {
    let text = "# Title\n```sh\n$ one \\\n  two\nout\n$ three\n```\n<!-- file: a.toml -->\n\n```toml\nx = 1\n```\n```sh\nnot run\n```\n```sh run\nfour\nfive\n```\n\n```output\nout\n```\n```sh run\nsix\n```\nnot output\n";
    let step = |prompt, command: &str, between, shown: &str| DocumentPart::Step {
        prompt,
        command: command.to_owned(),
        between,
        shown: shown.to_owned(),
    };
    let found = parts(text);
    let steps: Vec<_> =
        found.iter().filter(|part| !matches!(part, DocumentPart::Prose(_))).collect();
    assert_eq!(
        steps,
        [
            &step("$ ", "one \\\n  two\n", "", "out\n"),
            &step("$ ", "three\n", "", ""),
            &DocumentPart::File { name: "a.toml", text: "x = 1\n".into() },
            &step("", "four\nfive\n", TO_OUTPUT, "out\n"),
            &step("", "six\n", "", ""),
        ]
    );
}
