//! The files of `packaging/`: the systemd unit, the Debian package and the container image.
//!
//! `packaging/try-deb` installs the package and runs it under systemd, which needs root and a mirror of Debian;
//! `tests/it/proxy/compose.rs` tests the files of the compose example.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{EXECUTABLE, FinishedProcess, Folder, Process, run_nouns};

const UNIT: &str = include_str!("../../../packaging/nouns.service");
const SERVICE_GUIDE: &str = include_str!("../../../docs/guides/run-as-a-service.md");

/// The text of each block of a document in this language.
fn blocks<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let parts = document.split(&format!("\n```{language}\n")).skip(1).collect::<Vec<_>>();
    parts.into_iter().map(|part| part.split_once("```").unwrap().0).collect()
}

/// The guide shows the files that are shipped and tested.
#[test]
fn service_guide_shows_the_shipped_files() {
    assert!(blocks(SERVICE_GUIDE, "ini").contains(&UNIT), "packaging/nouns.service");
    let nginx = include_str!("../../../packaging/nginx.conf");
    assert_eq!(blocks(SERVICE_GUIDE, "nginx"), [nginx], "packaging/nginx.conf");
}

fn run_analyze(folder: &Folder, args: &[&str]) -> FinishedProcess {
    let mut command = Command::new("systemd-analyze");
    command.args(args).current_dir(folder.path()).env("SYSTEMD_COLORS", "0");
    Process::spawn(&mut command).end()
}

/// A folder with the unit, and with the sections that the guide adds to it.
fn unit_folder(additions: &[&str]) -> Folder {
    let folder = Folder::new();
    let unit = UNIT.replace("/usr/bin/nouns", EXECUTABLE);
    fs::write(folder.path().join("nouns.service"), unit).unwrap();
    let drop_ins = folder.path().join("nouns.service.d");
    fs::create_dir(&drop_ins).unwrap();
    for (index, addition) in additions.iter().enumerate() {
        fs::write(drop_ins.join(format!("{index}.conf")), addition).unwrap();
    }
    folder
}

/// The unit alone, and with each drop-in of the guide, is accepted by systemd without a word.
#[test]
fn systemd_unit_is_valid() {
    let drop_ins: Vec<_> =
        blocks(SERVICE_GUIDE, "ini").into_iter().filter(|block| *block != UNIT).collect();
    assert!(drop_ins.len() >= 2, "{drop_ins:?}");
    let additions = [&[][..]].into_iter().chain(drop_ins.chunks(1));
    for additions in additions {
        let folder = unit_folder(additions);
        let verify = ["verify", "--man=no", "--recursive-errors=one", "./nouns.service"];
        let ended = run_analyze(&folder, &verify);
        let own = |text: &str| text.lines().filter(|line| line.contains("nouns")).count();
        assert_eq!((ended.code, own(&ended.stderr)), (Some(0), 0), "{additions:?}: {ended:?}");
    }
}

/// How much of the system the service could use, by systemd's measure from 0 to 10.
#[test]
fn systemd_unit_exposes_little() {
    let ended = run_analyze(&unit_folder(&[]), &["security", "--offline=true", "./nouns.service"]);
    let (_, level) = ended.stdout.split_once("Overall exposure level for nouns.service: ").unwrap();
    let level: f64 = level.split(' ').next().unwrap().parse().unwrap();
    assert!(level <= 1.5, "{}", ended.stdout);
}

/// The model that the package puts into `/etc/nouns`, and that of the compose example.
#[test]
fn packaged_models_are_valid() {
    for model in ["nouns.toml", "compose/nouns.toml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(model);
        let ended = run_nouns(Folder::new().path(), &["check", path.to_str().unwrap()]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{model}");
    }
}

/// The files that `Cargo.toml` lists for the package exist, or `packaging/build-deb` makes them.
#[test]
fn debian_package_has_all_its_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let script = fs::read_to_string(root.join("packaging/build-deb")).unwrap();
    let (_, assets) = manifest.split_once("\nassets = [\n").unwrap();
    let (assets, _) = assets.split_once("\n]\n").unwrap();
    for line in assets.lines() {
        let source = line.split('"').nth(1).unwrap();
        let is_there = match source.strip_prefix("target/packaging/") {
            Some("man/*.1") => script.contains("man --out \"$files/man\""),
            Some(made) => script.contains(&format!(">\"$files/{made}\"")),
            None => source == "target/release/nouns" || root.join(source).exists(),
        };
        assert!(is_there, "{source}");
    }
}

/// The image is built with the Rust version of `Cargo.toml`.
#[test]
fn container_image_is_built_with_the_declared_rust_version() {
    let rust_version = concat!("FROM docker.io/library/rust:", env!("CARGO_PKG_RUST_VERSION"), "-");
    let containerfile = include_str!("../../../packaging/Containerfile");
    assert!(containerfile.contains(rust_version), "{rust_version}");
}
