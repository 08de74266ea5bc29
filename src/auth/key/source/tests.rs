//! Tests of the key file on a real disk.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A temporary folder, removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!(
            "nouns-key-{}",
            uuid::Uuid::from_u128(u128::from(getrandom::u64().unwrap()),)
        ));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn source(&self) -> Source {
        Source::File(self.file("nouns.key"))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn sqlite(path: &Path) -> Database {
    Database::Sqlite(path.to_owned())
}

#[test]
fn key_file_of_a_new_database_is_readable_by_its_owner_only() {
    let folder = Folder::new();
    let source = Source::choose(None, None, &sqlite(&folder.file("my.db"))).unwrap();
    let made = source.settle(None).unwrap();
    assert!(made.is_made);
    assert_eq!(made.remember, Some(made.keys.fingerprint()));
    assert_eq!(folder.names(), ["nouns.key"], "nothing else is left");
    let mode = fs::metadata(folder.file("nouns.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read(folder.file("nouns.key")).unwrap().len(), 45);
    let again = source.settle(None).unwrap();
    assert!(!again.is_made && again.remember.is_some(), "the database never heard of it");
    let known = source.settle(Some(&made.keys.fingerprint())).unwrap();
    assert!(!known.is_made && known.remember.is_none());
    assert_eq!(known.keys.fingerprint(), made.keys.fingerprint());
}

#[test]
fn key_mismatch_is_refused_and_changes_nothing() {
    let folder = Folder::new();
    let source = folder.source();
    let fingerprint = Keys::random().unwrap().fingerprint();
    let missing = source.settle(Some(&fingerprint)).unwrap_err().0;
    assert!(missing.starts_with("there is no key file ") && missing.contains(&fingerprint));
    assert!(folder.names().is_empty());
    source.settle(None).unwrap();
    let before = fs::read(folder.file("nouns.key")).unwrap();
    let misfit = source.settle(Some(&fingerprint)).unwrap_err().0;
    assert!(misfit.contains(&fingerprint) && misfit.contains("--key-file"), "{misfit}");
    assert!(!misfit.contains(String::from_utf8(before.clone()).unwrap().trim()));
    assert_eq!(fs::read(folder.file("nouns.key")).unwrap(), before);
}

#[test]
fn key_rotation_interrupted_matches_before_and_after() {
    let folder = Folder::new();
    let source = folder.source();
    let old = source.settle(None).unwrap().keys;
    let old_fingerprint = old.fingerprint();
    let both = old.begin_rotation(Keys::random().unwrap());
    let new_fingerprint = both.fingerprint();
    let held = source.lock().unwrap();
    source.write(&held, &both).unwrap();
    assert!(source.settle(Some(&old_fingerprint)).is_ok());
    assert!(source.settle(Some(&new_fingerprint)).is_ok());
    source.write(&held, &both.end_rotation()).unwrap();
    assert!(source.settle(Some(&old_fingerprint)).is_err());
    assert!(source.settle(Some(&new_fingerprint)).is_ok());
    let second = source.lock().unwrap_err().0;
    assert!(second.starts_with("another nouns is writing the key file"), "{second}");
    drop(held);
    assert!(source.lock().is_ok());
}

#[test]
fn key_file_leftover_of_an_interrupted_write_is_replaced() {
    let folder = Folder::new();
    fs::write(folder.file("nouns.key.new"), "half a k").unwrap();
    folder.source().settle(None).unwrap();
    assert_eq!(folder.names(), ["nouns.key"]);
}

#[test]
fn key_file_readable_by_others_is_refused() {
    let folder = Folder::new();
    let source = folder.source();
    source.settle(None).unwrap();
    let set = |mode| {
        fs::set_permissions(folder.file("nouns.key"), fs::Permissions::from_mode(mode)).unwrap();
    };
    for mode in [0o604, 0o644, 0o620, 0o602, 0o601] {
        set(mode);
        let message = source.settle(None).unwrap_err().0;
        assert!(message.contains("chmod 600") && message.contains(&format!("{mode:o}")));
    }
    for mode in [0o400, 0o440, 0o600, 0o640] {
        set(mode);
        assert!(source.settle(None).is_ok(), "{mode:o}");
    }
}

#[test]
fn key_file_without_a_key_is_named_but_not_shown() {
    let folder = Folder::new();
    let write = |text: &str| {
        let _ = fs::remove_file(folder.file("nouns.key"));
        let mut file = OpenOptions::new();
        let mut file = file.write(true).create(true).mode(0o600).open(folder.file("nouns.key"));
        file.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    };
    for text in ["", "aGFsZg==", "no key at all", &"A".repeat(5000)] {
        write(text);
        let message = folder.source().settle(None).unwrap_err().0;
        assert!(message.contains("holds no key: expected"), "{message}");
        assert!(text.is_empty() || !message.contains(text), "{message}");
    }
    fs::remove_file(folder.file("nouns.key")).unwrap();
    fs::create_dir(folder.file("nouns.key")).unwrap();
    assert!(folder.source().settle(None).unwrap_err().0.starts_with("cannot read the key file "));
    let nowhere = Source::File(folder.file("nowhere/nouns.key")).settle(None).unwrap_err().0;
    assert!(nowhere.contains("does not exist; create it"), "{nowhere}");
}

#[test]
fn key_file_is_beside_the_target_of_a_database_link() {
    let folder = Folder::new();
    fs::create_dir(folder.file("data")).unwrap();
    symlink("data/real.db", folder.file("nouns.db")).unwrap();
    let source = Source::choose(None, None, &sqlite(&folder.file("nouns.db"))).unwrap();
    let expected = folder.file("data/nouns.key");
    assert!(matches!(source, Source::File(path) if path == expected), "before the file is there");
    assert_eq!(beside(Path::new("nouns.db")), Path::new("nouns.key"));
}

#[test]
fn key_from_the_environment_works_and_two_sources_are_refused() {
    let database = sqlite(Path::new("nouns.db"));
    let text = Keys::random().unwrap().text();
    let source = Source::choose(None, Some(text.clone()), &database).unwrap();
    assert_eq!(format!("{source:?}"), "Environment(…)");
    let settled = source.settle(None).unwrap();
    assert!(!settled.is_made && settled.remember.is_some());
    let misfit = source.settle(Some("0123")).unwrap_err().0;
    assert!(misfit.starts_with("the key in NOUNS_KEY has the fingerprint "), "{misfit}");
    let held = Held { _folder: File::open(".").unwrap() };
    assert!(source.write(&held, &settled.keys).is_err());
    let both = Source::choose(Some(Path::new("my.key")), Some(text), &database).unwrap_err().0;
    assert_eq!(
        both,
        "two keys are named, NOUNS_KEY and the key file my.key; leave one of them out"
    );
}

#[test]
fn keyring_reloads_a_changed_file() {
    let folder = Folder::new();
    let source = folder.source();
    let keys = source.settle(None).unwrap().keys;
    let old = keys.id();
    let ring = Keyring::new(source.clone(), source.read().unwrap().unwrap());
    assert_eq!(ring.look_again().id(), old);
    let both = keys.begin_rotation(Keys::random().unwrap());
    let new = both.id();
    source.write(&source.lock().unwrap(), &both).unwrap();
    assert!(!ring.keys().knows(new));
    assert!(ring.look_again().knows(new) && ring.keys().knows(old));
    fs::write(folder.file("nouns.key"), "damaged").unwrap();
    assert_eq!(ring.look_again().id(), new, "what is damaged changes nothing");
    fs::remove_file(folder.file("nouns.key")).unwrap();
    assert_eq!(ring.look_again().id(), new);
}
