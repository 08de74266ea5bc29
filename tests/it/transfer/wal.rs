//! The WAL of SQLite during a resumable import: bounded, also where no server makes checkpoints.

use super::*;
use crate::harness::wait_until;

const MODEL: &str = r#"
title = "Notes"
[resources.note.fields]
text = { type = "text", required = true, max_length = 4000 }
"#;
const ROWS: usize = 5_000;
/// A checkpoint is due from 8 MiB on, and a batch of these rows takes another 8. Without checkpoints it has 40 MB.
const WAL_BYTES_MAX: u64 = 24 << 20;

/// Regression: without a server, and beside one that wrote nothing, it grew with the file.
#[test]
fn import_resumable_on_sqlite_keeps_the_wal_small() {
    let text = "z".repeat(3_000);
    let rows: String = (0..ROWS).map(|_| format!("{text}\n")).collect();
    for is_served in [false, true] {
        let server = Setup::new(Backend::Sqlite).model(MODEL).start();
        let database = server.database();
        fs::write(server.folder().join("new.csv"), format!("text\n{rows}")).unwrap();
        let (server, folder) = match is_served {
            true => (Some(server), None),
            false => (None, Some(server.stop())),
        };
        let path = server.as_ref().map_or_else(|| folder.as_ref().unwrap().path(), Server::folder);
        let mut command = Command::new(EXECUTABLE);
        command.args(["import", "note", "new.csv", "--resumable", "--model", "model.toml"]);
        command.args(["--database", &database]).env_clear().current_dir(path);
        let mut import = Process::spawn(&mut command);
        let mut largest = 0;
        wait_until("the import has ended", || {
            let wal = fs::metadata(path.join("nouns.db-wal"));
            largest = largest.max(wal.map_or(0, |file| file.len()));
            import.has_ended().then_some(())
        });
        let ended = import.end();
        assert_eq!(ended.stdout, "nouns: created 5,000 notes from new.csv\n", "{ended:?}");
        assert!(
            (1 << 20..WAL_BYTES_MAX).contains(&largest),
            "served: {is_served}, {largest} bytes"
        );
    }
}
