//! The passfile (`.pgpass`), libpq's file of passwords: lines of `host:port:database:user:password`.
//!
//! A file that other users can read is an error; libpq ignores it with a warning.

use std::borrow::Cow;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio_postgres::config::Host;

use crate::store::postgres::connection_url::address::{
    HostTarget, LibpqEnvironment, SOCKET_DIRECTORY,
};

/// Gives each target its password. A file that was named must exist; the default one need not.
pub fn fill_passwords(
    targets: &mut [HostTarget],
    named: Option<PathBuf>,
    user: &str,
    name: &str,
    environment: &LibpqEnvironment,
) -> Result<(), String> {
    let named = named.or_else(|| environment.passfile.clone());
    let usual = || environment.home.as_ref().map(|home| home.join(".pgpass"));
    let must_be_there = named.is_some();
    let Some(path) = named.or_else(usual) else { return Ok(()) };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound && !must_be_there => return Ok(()),
        Err(error) => return Err(format!("cannot read the passfile {} ({error})", path.display())),
    };
    check_permissions(&path)?;
    for target in targets {
        let host = passfile_host(&target.host);
        if let Some(password) = find_password(&text, &host, target.port, name, user) {
            target.config.password(password);
        }
    }
    Ok(())
}

/// libpq's rule for the keys of certificates: the group may read a file of root, which is how secrets are mounted
/// for a service.
fn check_permissions(path: &Path) -> Result<(), String> {
    let open = fs::metadata(path).is_ok_and(|file| is_open_to_others(file.mode(), file.uid()));
    let path = path.display();
    if open {
        Err(format!("others can read the passfile {path}; run: chmod 600 {path}"))
    } else {
        Ok(())
    }
}

fn is_open_to_others(mode: u32, owner: u32) -> bool {
    let forbidden = if owner == 0 { 0o037 } else { 0o077 };
    mode & forbidden != 0
}

/// libpq's rule: the default socket directory is matched as `localhost`.
fn passfile_host(host: &Host) -> Cow<'_, str> {
    match host {
        Host::Unix(folder) if folder == Path::new(SOCKET_DIRECTORY) => "localhost".into(),
        Host::Unix(folder) => folder.to_string_lossy(),
        Host::Tcp(name) => name.into(),
    }
}

/// The password of the first line that matches.
fn find_password(text: &str, host: &str, port: u16, name: &str, user: &str) -> Option<String> {
    let port = port.to_string();
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = PassfileFields(Some(line));
        let fits = [host, &port, name, user].iter().all(|wanted| {
            // An escaped `\*` is a literal star.
            let raw = fields.0.unwrap_or_default();
            let is_star = raw.starts_with("*:");
            fields.next().is_some_and(|field| is_star || field == *wanted)
        });
        let password = fields.next().filter(|password| fits && !password.is_empty());
        password.map(|password| password.trim_end_matches('\r').to_owned())
    })
}

/// The fields of a line, separated by colons; a backslash escapes the next character.
struct PassfileFields<'a>(Option<&'a str>);

impl Iterator for PassfileFields<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let rest = self.0.take()?;
        let mut field = String::new();
        let mut characters = rest.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                ':' => {
                    self.0 = rest.get(at + 1..);
                    return Some(field);
                }
                '\\' => field.extend(characters.next().map(|(_, next)| next)),
                other => field.push(other),
            }
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passfile_of_root_may_be_readable_by_its_group() {
        for (mode, owner, is_open) in [
            (0o100_600, 1000, false),
            (0o100_400, 0, false),
            (0o100_440, 0, false),
            (0o100_640, 0, false),
            (0o100_440, 1000, true),
            (0o100_660, 0, true),
            (0o100_444, 0, true),
            (0o100_604, 1000, true),
        ] {
            assert_eq!(is_open_to_others(mode, owner), is_open, "{mode:o} {owner}");
        }
    }

    #[test]
    fn passfile_several_lines_first_match_wins() {
        let text = "# comment\n\
            one:5432:shop:ann:first\n\
            *:*:*:ann:a\\:b\\\\c\n\
            one:*:\\*:bob:star\n\
            ::1:wrong\n\
            two:5432:shop:bob:\n\
            two:5432:shop:bob:with:colon\r\n\
            \n:";
        let table = [
            (("one", 5432, "shop", "ann"), Some("first")),
            (("one", 5433, "shop", "ann"), Some("a:b\\c")),
            (("three", 1, "x", "ann"), Some("a:b\\c")),
            (("one", 5432, "*", "bob"), Some("star")),
            (("one", 5432, "shop", "bob"), None),
            // As in libpq, text after a fifth colon is ignored.
            (("two", 5432, "shop", "bob"), Some("with")),
            (("", 0, "", ""), None),
        ];
        for ((host, port, name, user), wanted) in table {
            let found = find_password(text, host, port, name, user);
            assert_eq!(found.as_deref(), wanted, "{host} {port} {name} {user}");
        }
    }
}
