//! The checks of the machine: permissions, disk space, open files, the certificate, the password file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access, statvfs};

use super::health_check::HealthChecks;
use crate::auth::key_source::{KeyError, KeySource};
use crate::cli::model_source::password_file;
use crate::cli::report::CommandError;
use crate::cli::serve_settings::read_tls;
use crate::clock;
use crate::model::Model;
use crate::server;
use crate::store::{Database, SqliteHealth, resolve_links};

/// Below this, writes fail soon.
const SPACE_MIN: u64 = 64 << 20;
/// Below this, or the size of the database, there is no room for a backup beside it.
const SPACE_COMFORTABLE: u64 = 256 << 20;
/// A certificate that expires within this time should be renewed.
const EXPIRY_SOON: Duration = Duration::from_secs(14 * 86_400);

/// The permissions of the files of an SQLite database.
pub fn check_files(checks: &mut HealthChecks, health: &SqliteHealth) {
    const NAME: &str = "permissions";
    let SqliteHealth { files, partial_file, .. } = health;
    let mut is_well = true;
    for file in files {
        let shown = file.display();
        if let Err(error) = access(file, Access::READ_OK | Access::WRITE_OK) {
            is_well = false;
            checks.fault(
                NAME,
                &format!("this user cannot write {shown} ({error}); change its owner with chown"),
            );
        }
        let mode = fs::metadata(file).map_or(0, |file| file.mode() & 0o777);
        if mode & 0o007 != 0 {
            is_well = false;
            checks.warn(
                NAME,
                &format!(
                    "other users of this machine can read {shown}, which holds password hashes (mode {mode:03o}); \
                     revoke that with: chmod 600 {shown}"
                ),
            );
        }
    }
    if is_well {
        checks.ok(NAME, "only this user and its group can use the files of the database");
    }
    if let Some(file) = partial_file {
        checks.warn(
            "leftover",
            &format!(
                "{file} is left by a restore that was killed; remove it",
                file = file.display()
            ),
        );
    }
}

/// SQLite creates files beside the database.
pub fn check_folder(checks: &mut HealthChecks, database: &Path) {
    let folder = folder_of(database);
    if let Err(error) = access(&folder, Access::WRITE_OK | Access::EXEC_OK) {
        checks.fault(
            "folder",
            &format!(
                "this user cannot create files in {} ({error}), where SQLite has to; make it writable, with chown or mount",
                folder.display()
            ),
        );
    }
}

fn folder_of(database: &Path) -> PathBuf {
    let real = resolve_links(database);
    let folder = real.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

/// `used` is the size of the database with its log.
pub fn check_space(checks: &mut HealthChecks, database: &Path, used: u64) {
    const NAME: &str = "disk";
    let folder = folder_of(database);
    let shown = folder.display();
    let free = match statvfs(&folder) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => return checks.warn(NAME, &format!("its free space is unknown ({error})")),
    };
    let megabytes = free / 1_000_000;
    let message = format!("{megabytes} MB are free on the disk of {shown}");
    if free < SPACE_MIN {
        checks.fault(NAME, &format!("{message}: writes fail soon; free some space"));
    } else if free < SPACE_COMFORTABLE.max(used) {
        checks.warn(
            NAME,
            &format!("{message}, too few for a backup beside the database; free some space"),
        );
    } else {
        checks.ok(NAME, &message);
    }
}

/// The limit of open files against the connections that the model allows.
pub fn check_connections(checks: &mut HealthChecks, model: &Model) {
    const NAME: &str = "open files";
    let (wanted, allowed) = (model.server.limits.connections_max, server::connections_allowed());
    match allowed >= wanted {
        true => checks.ok(NAME, &format!("enough for {wanted} connections")),
        false => checks.warn(
            NAME,
            &format!(
                "enough for {allowed} connections, and connections_max is {wanted}; raise the limit (ulimit -Hn, \
                 LimitNOFILE= of systemd), or lower connections_max"
            ),
        ),
    }
}

pub fn check_password_file(
    checks: &mut HealthChecks,
    database: &Database,
    key: &Result<KeySource, KeyError>,
) {
    let Ok(source) = key else { return };
    let file = password_file(database, source);
    if file.symlink_metadata().is_ok() {
        checks.warn(
            "password",
            &format!(
                "{file} holds the first password of admin in clear text; set another one, which removes the file: \
                 nouns user passwd admin",
                file = file.display()
            ),
        );
    }
}

pub fn check_certificate(
    checks: &mut HealthChecks,
    model: &Model,
    (certificate, key): (&Option<PathBuf>, &Option<PathBuf>),
) {
    const NAME: &str = "certificate";
    let tls = match read_tls((certificate.clone(), key.clone()), model) {
        Ok(None) => return,
        Ok(Some(tls)) => tls,
        Err(CommandError(message)) => {
            return checks.fault(NAME, message.strip_prefix("nouns: ").unwrap_or(&message));
        }
    };
    let (file, end) = (tls.files().certificate.display(), tls.expiry());
    let is_soon = clock::moment().checked_add(EXPIRY_SOON).is_none_or(|soon| end < soon);
    match is_soon {
        true => checks.warn(
            NAME,
            &format!("{file} expires at {end}; renew it, and send SIGHUP to the server"),
        ),
        false => checks.ok(NAME, &format!("{file} is valid until {end}")),
    }
}
