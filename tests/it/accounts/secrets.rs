//! What can be found by whoever gets hold of the database, the output or the log: no password, no HA1, no key.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Desk, PASSWORD, end};
use crate::harness::Backend;

/// Of `ann:store:Circle of Life`, by `md5sum` and `sha256sum`.
const HA1_MD5: &str = "695b48c6d2ff6d326451f49f89f54be2";
const HA1_SHA256: &str = "4c512ed88e1ac6541366918149e86159a88973746ae8d7d83142ab63c62fdd58";

/// Everything that could be found, in each way that it could be written.
fn needles(keys: &[String]) -> Vec<Vec<u8>> {
    let raw = |hex: &str| {
        let digits = hex.as_bytes().chunks(2);
        digits
            .map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap())
            .collect::<Vec<_>>()
    };
    let mut needles = vec![PASSWORD.as_bytes().to_vec(), STANDARD.encode(PASSWORD).into_bytes()];
    for hash in [HA1_MD5, HA1_SHA256] {
        let raw = raw(hash);
        needles.extend([hash.as_bytes().to_vec(), hash.to_uppercase().into_bytes()]);
        needles.push(STANDARD.encode(&raw).trim_end_matches('=').as_bytes().to_vec());
        needles.push(raw);
    }
    for key in keys {
        needles.push(key.trim().trim_end_matches('=').as_bytes().to_vec());
        needles.push(STANDARD.decode(key.trim()).unwrap());
    }
    needles
}

fn find(place: &str, bytes: &[u8], needles: &[Vec<u8>]) {
    for (index, needle) in needles.iter().enumerate() {
        let found = bytes.windows(needle.len()).any(|window| window == needle);
        assert!(!found, "secret {index} is in {place}");
    }
}

/// All that the database holds, as its own tool tells it or as it lies on the disk.
fn stored(desk: &Desk) -> Vec<u8> {
    match desk.backend {
        Backend::Sqlite => {
            let files =
                fs::read_dir(desk.folder.path()).unwrap().map(|entry| entry.unwrap().path());
            let files = files
                .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("nouns.db"));
            files.flat_map(|path| fs::read(path).unwrap()).collect()
        }
        Backend::Postgres => {
            let tables = ["nouns_users", "nouns_changes", "nouns_system"];
            tables.map(|table| desk.sql(&format!("SELECT * FROM {table}"))).concat().into_bytes()
        }
    }
}

on_every_backend! {
    fn nothing_secret_is_stored_shown_or_logged(backend: Backend) {
        let desk = Desk::on(backend);
        let mut said = desk.done(&["user", "add", "ann", "--role", "admin", "--password-stdin"], PASSWORD);
        let mut keys = vec![desk.key_text()];
        let server = desk.serve();
        assert_eq!(server.by_both("ann", PASSWORD), ["200", "200"]);
        said += &desk.done(&["key", "rotate"], "");
        keys.push(desk.key_text());
        assert_eq!(server.by_both("ann", PASSWORD), ["200", "200"]);
        said += &desk.done(&["user", "passwd", "ann", "--password-stdin"], PASSWORD);
        said += &desk.done(&["user", "list", "--json"], "");
        said += &end(&mut desk.command(&["changes"]), "").stdout;
        let needles = needles(&keys);
        find("what the commands said", said.as_bytes(), &needles);
        find("the log", server.log().as_bytes(), &needles);
        let stored = stored(&desk);
        assert!(stored.windows(9).any(|window| window == b"$argon2id"), "the users were looked at");
        find("the database", &stored, &needles);
    }
}
