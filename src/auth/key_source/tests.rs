//! Tests of the key file on a real disk.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A temporary folder, removed with the test.
struct KeyFolder(PathBuf);

impl KeyFolder {
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

    fn source(&self) -> KeySource {
        KeySource::File(self.file("nouns.key"))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for KeyFolder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn sqlite(path: &Path) -> Database {
    Database::Sqlite(path.to_owned())
}

#[test]
fn key_file_of_a_new_database_is_readable_by_its_owner_only() {
    let folder = KeyFolder::new();
    let source = KeySource::choose(None, None, &sqlite(&folder.file("my.db"))).unwrap();
    let made = source.resolve(None).unwrap();
    assert!(made.is_new_file);
    assert_eq!(made.fingerprint_to_store, Some(made.keys.fingerprint()));
    assert_eq!(folder.names(), ["nouns.key"], "nothing else is left");
    let mode = fs::metadata(folder.file("nouns.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read(folder.file("nouns.key")).unwrap().len(), 45);
    let again = source.resolve(None).unwrap();
    assert!(
        !again.is_new_file && again.fingerprint_to_store.is_some(),
        "the database never heard of it"
    );
    let known = source.resolve(Some(&made.keys.fingerprint())).unwrap();
    assert!(!known.is_new_file && known.fingerprint_to_store.is_none());
    assert_eq!(known.keys.fingerprint(), made.keys.fingerprint());
}

#[test]
fn key_mismatch_is_refused_and_changes_nothing() {
    let folder = KeyFolder::new();
    let source = folder.source();
    let fingerprint = KeySet::random().unwrap().fingerprint();
    let missing = source.resolve(Some(&fingerprint)).unwrap_err().0;
    assert!(missing.starts_with("there is no key file ") && missing.contains(&fingerprint));
    assert!(folder.names().is_empty());
    source.resolve(None).unwrap();
    let before = fs::read(folder.file("nouns.key")).unwrap();
    let misfit = source.resolve(Some(&fingerprint)).unwrap_err().0;
    assert!(misfit.contains(&fingerprint) && misfit.contains("--key-file"), "{misfit}");
    assert!(!misfit.contains(String::from_utf8(before.clone()).unwrap().trim()));
    assert_eq!(fs::read(folder.file("nouns.key")).unwrap(), before);
}

#[test]
fn key_rotation_interrupted_matches_before_and_after() {
    let folder = KeyFolder::new();
    let source = folder.source();
    let old = source.resolve(None).unwrap().keys;
    let old_fingerprint = old.fingerprint();
    let both = old.begin_rotation(KeySet::random().unwrap());
    let new_fingerprint = both.fingerprint();
    let held = source.lock().unwrap();
    source.write(&held, &both).unwrap();
    assert!(source.resolve(Some(&old_fingerprint)).is_ok());
    assert!(source.resolve(Some(&new_fingerprint)).is_ok());
    source.write(&held, &both.end_rotation()).unwrap();
    assert!(source.resolve(Some(&old_fingerprint)).is_err());
    assert!(source.resolve(Some(&new_fingerprint)).is_ok());
    let second = source.lock().unwrap_err().0;
    assert!(second.starts_with("another nouns is writing the key file"), "{second}");
    drop(held);
    assert!(source.lock().is_ok());
}

#[test]
fn key_file_leftover_of_an_interrupted_write_is_replaced() {
    let folder = KeyFolder::new();
    fs::write(folder.file("nouns.key.new"), "half a k").unwrap();
    folder.source().resolve(None).unwrap();
    assert_eq!(folder.names(), ["nouns.key"]);
}

#[test]
fn key_file_replaced_by_root_keeps_its_owner() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = KeyFolder::new();
    let source = folder.source();
    let keys = source.resolve(None).unwrap().keys;
    std::os::unix::fs::chown(folder.file("nouns.key"), Some(1234), Some(2345)).unwrap();
    let lock = source.lock().unwrap();
    source.write(&lock, &keys).unwrap();
    let owner = fs::metadata(folder.file("nouns.key")).unwrap();
    assert_eq!((owner.uid(), owner.gid()), (1234, 2345));
}

#[test]
fn key_file_readable_by_others_is_refused() {
    let folder = KeyFolder::new();
    let source = folder.source();
    source.resolve(None).unwrap();
    let set = |mode| {
        fs::set_permissions(folder.file("nouns.key"), fs::Permissions::from_mode(mode)).unwrap();
    };
    for mode in [0o604, 0o644, 0o620, 0o602, 0o601] {
        set(mode);
        let message = source.resolve(None).unwrap_err().0;
        assert!(message.contains("chmod 600") && message.contains(&format!("{mode:o}")));
    }
    for mode in [0o400, 0o440, 0o600, 0o640] {
        set(mode);
        assert!(source.resolve(None).is_ok(), "{mode:o}");
    }
}

#[test]
fn key_file_without_a_key_is_named_but_not_shown() {
    let folder = KeyFolder::new();
    let write = |text: &str| {
        let _ = fs::remove_file(folder.file("nouns.key"));
        let mut file = OpenOptions::new();
        let mut file = file.write(true).create(true).mode(0o600).open(folder.file("nouns.key"));
        file.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    };
    for text in ["", "aGFsZg==", "no key at all", &"A".repeat(5000)] {
        write(text);
        let message = folder.source().resolve(None).unwrap_err().0;
        assert!(message.contains("holds no key: expected"), "{message}");
        assert!(text.is_empty() || !message.contains(text), "{message}");
    }
    fs::remove_file(folder.file("nouns.key")).unwrap();
    fs::create_dir(folder.file("nouns.key")).unwrap();
    assert!(folder.source().resolve(None).unwrap_err().0.starts_with("cannot read the key file "));
    let nowhere = KeySource::File(folder.file("nowhere/nouns.key")).resolve(None).unwrap_err().0;
    assert!(nowhere.contains("does not exist; create it"), "{nowhere}");
}

#[test]
fn key_file_is_beside_the_target_of_a_database_link() {
    let folder = KeyFolder::new();
    fs::create_dir(folder.file("data")).unwrap();
    symlink("data/real.db", folder.file("nouns.db")).unwrap();
    let source = KeySource::choose(None, None, &sqlite(&folder.file("nouns.db"))).unwrap();
    let expected = folder.file("data/nouns.key");
    assert!(
        matches!(source, KeySource::File(path) if path == expected),
        "before the file is there"
    );
    assert_eq!(default_path(Path::new("nouns.db")), Path::new("nouns.key"));
}

#[test]
fn key_from_the_environment_works_and_two_sources_are_refused() {
    let database = sqlite(Path::new("nouns.db"));
    let text = KeySet::random().unwrap().file_text();
    let source = KeySource::choose(None, Some(text.clone()), &database).unwrap();
    assert_eq!(format!("{source:?}"), "Environment(…)");
    let settled = source.resolve(None).unwrap();
    assert!(!settled.is_new_file && settled.fingerprint_to_store.is_some());
    let misfit = source.resolve(Some("0123")).unwrap_err().0;
    assert!(misfit.starts_with("the key in NOUNS_KEY has the fingerprint "), "{misfit}");
    let held = KeyFileLock { _folder: File::open(".").unwrap() };
    assert!(source.write(&held, &settled.keys).is_err());
    let both = KeySource::choose(Some(Path::new("my.key")), Some(text), &database).unwrap_err().0;
    assert_eq!(
        both,
        "two keys are named, NOUNS_KEY and the key file my.key; leave one of them out"
    );
}

#[test]
fn keyring_reloads_a_changed_file() {
    let folder = KeyFolder::new();
    let source = folder.source();
    let keys = source.resolve(None).unwrap().keys;
    let old = keys.id();
    let ring = Keyring::new(source.clone(), source.read().unwrap().unwrap());
    assert_eq!(ring.reload_if_changed().id(), old);
    let both = keys.begin_rotation(KeySet::random().unwrap());
    let new = both.id();
    source.write(&source.lock().unwrap(), &both).unwrap();
    assert!(!ring.keys().has_id(new));
    assert!(ring.reload_if_changed().has_id(new) && ring.keys().has_id(old));
    fs::write(folder.file("nouns.key"), "damaged").unwrap();
    assert_eq!(ring.reload_if_changed().id(), new, "what is damaged changes nothing");
    fs::remove_file(folder.file("nouns.key")).unwrap();
    assert_eq!(ring.reload_if_changed().id(), new);
}
