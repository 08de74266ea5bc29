//! A disk that is full or cannot be written.

use expect_test::expect;

use super::{customers, files, stopped_store};
use crate::harness::run_in_namespace;

/// Both commands on a disk of half the size that they need: the message names the disk, and nothing is left.
#[test]
fn backup_and_restore_on_a_full_disk_are_refused() {
    let folder = stopped_store();
    let before = files(folder.path());
    let script = r#"
        cd "$1"
        mkdir disk
        "$2" backup disk-free.db >&2
        mount -t tmpfs -o size=64k none disk
        code=0
        "$2" backup disk/copy.db || code=$?
        ls -A disk
        "$2" restore disk-free.db --database sqlite:disk/new.db || code=$code$?
        ls -A disk
        umount disk
        rmdir disk
        rm disk-free.db
        echo "$code"
    "#;
    let ended = run_in_namespace(folder.path(), script);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    expect![[r#"
        22
    "#]]
    .assert_eq(&ended.stdout);
    expect![[r#"
        nouns: wrote disk-free.db, 0.2 MB, verified, with the changes up to 1
        nouns: the disk that holds disk/copy.db is full; free some space, or name another file
        nouns: the disk that holds disk/new.db is full; free some space, or name another file
    "#]]
    .assert_eq(&ended.stderr.replace(folder.path().to_str().unwrap(), "FOLDER"));
    assert!(files(folder.path()) == before, "{:?}", files(folder.path()).keys());
    assert_eq!(customers(folder.path()), "Ann ");
}

#[test]
fn backup_into_a_read_only_folder_is_refused() {
    let folder = stopped_store();
    let script = r#"
        cd "$1"
        mkdir disk
        mount --bind disk disk
        mount -o remount,ro,bind disk
        "$2" backup disk/copy.db
    "#;
    let ended = run_in_namespace(folder.path(), script);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    expect![[r#"
        nouns: cannot write disk/copy.db (Read-only file system (os error 30)); make the folder writable, or name another file
    "#]].assert_eq(&ended.stderr);
}
