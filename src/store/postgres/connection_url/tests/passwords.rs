//! Tests of the sources of a password, and that it is never shown.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use expect_test::expect;

use super::*;

/// However a URL is malformed, the message about it never contains the password.
#[test]
fn password_in_malformed_url_is_never_shown() {
    let mut told = String::new();
    for text in [
        "postgres://ann:hunter2@",
        "postgres://ann:hunter2/x@db/shop",
        "postgres://ann:hunter2@x@db/shop",
        "postgres://ann:x@hunter2@db/shop",
        "postgres://ann:hunter2:x@db:y/shop",
        "postgres://ann:x/hunter2?x@db/shop",
        "postgres://ann:x?hunter2=x/y@db/shop",
        "postgres://ann:x/hunter2?sslmode=hunter2@db/shop",
        "postgres://ann:%hunter2@db/shop",
        "postgres://ann:hunter2%00@db/shop",
        "postgres://ann:hunter2",
        "postgres://ann:hunter2@db?sslmode=never",
        "postgres://db?password=hunter2&port=x",
        "postgres://db?password=hunter2=",
        "postgres://db?password=hunter2%",
        "postgres://[ann:hunter2@db",
    ] {
        match PostgresUrl::parse(text, &environment()) {
            Ok(address) => {
                let printed = format!("{address} {address:?}");
                assert!(!printed.contains("hunter2"), "{text}: {printed}");
                told.push_str("(could be read)\n");
            }
            Err(mistake) => {
                assert!(!mistake.contains("hunter2"), "{text}: {mistake}");
                told.push_str(&format!("{mistake}\n"));
            }
        }
    }
    expect![[r#"
        (could be read)
        database: cannot read the address; in its user name and password write each of / ? # @ : % as %2F %3F %23 %40 %3A %25
        database: cannot read the address; in its user name and password write each of / ? # @ : % as %2F %3F %23 %40 %3A %25
        database: cannot read the address; in its user name and password write each of / ? # @ : % as %2F %3F %23 %40 %3A %25
        database: expected a port from 1 to 65535 after the host; is the host missing, as in USER:PASSWORD@HOST?
        database: cannot read the address; in its user name and password write each of / ? # @ : % as %2F %3F %23 %40 %3A %25
        database: cannot read the address; in its user name and password write each of / ? # @ : % as %2F %3F %23 %40 %3A %25
        database: cannot read the address; in its user name and password write each of / ? # @ : % as %2F %3F %23 %40 %3A %25
        database: the password has a % without two hexadecimal digits; a % itself is %25
        database: the password has a zero byte in it
        database: expected a port from 1 to 65535 after the host; is the host missing, as in USER:PASSWORD@HOST?
        database: there is no sslmode "never"; expected one of disable, allow, prefer, require, verify-ca, verify-full
        database: expected a port from 1 to 65535 after the host; is the host missing, as in USER:PASSWORD@HOST?
        database: expected key=value after the ?, with & between pairs; another = is %3D
        database: the parameter "password" has a % without two hexadecimal digits; a % itself is %25
        (could be read)
    "#]].assert_eq(&told);
}

#[test]
fn password_in_url_is_detected() {
    let table = [
        ("sqlite:nouns.db", false),
        ("postgres://db/shop", false),
        ("postgres://ann@db/shop", false),
        ("postgres://ann:@db/shop", false),
        ("postgres://ann:x@db/shop", true),
        ("postgresql://ann:x@db/shop", true),
        ("postgres://db/shop?password=x", true),
        ("postgres://db/shop?p%61ssword=x", true),
        ("postgres://db/shop?password=", false),
        // It cannot be parsed, so it may contain one.
        ("postgres://ann:%x@db/shop", true),
        ("postgres://db/shop?user=a=b", false),
    ];
    for (text, shows) in table {
        assert_eq!(PostgresUrl::has_password(text), shows, "{text}");
    }
}

/// Precedence: the URL, then `PGPASSWORD`, then the passfile that is named, then the default one.
#[test]
fn password_sources_follow_precedence() {
    let folder = std::env::temp_dir().join(format!("nouns-passfile-{}", std::process::id()));
    fs::create_dir_all(folder.join(".postgresql")).unwrap();
    let write = |name: &str, text: &str, mode: u32| {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        file
    };
    write(".pgpass", "a:*:*:*:usual a\nb:*:*:*:usual b\nlocalhost:*:*:*:socket\n", 0o600);
    let named = write("named", "*:*:*:ann:named\n", 0o600);
    let open = write("open", "*:*:*:*:open\n", 0o644);
    let home = LibpqEnvironment { home: Some(folder.clone()), ..environment() };
    let with_password =
        LibpqEnvironment { password: Some("variable".to_owned().into()), ..home.clone() };
    let with_file =
        |path: &PathBuf| LibpqEnvironment { passfile: Some(path.clone()), ..home.clone() };
    let say =
        |text: &str, environment: &LibpqEnvironment| match PostgresUrl::parse(text, environment) {
            Ok(address) => url_summary(&address),
            Err(mistake) => mistake.replace(folder.to_str().unwrap(), "HOME"),
        };
    let told = [
        say("postgres://ann:own@a", &with_password),
        say("postgres://a", &with_password),
        say("postgres://a,b,c", &home),
        say("postgres:///shop", &home),
        say("postgres://a", &with_file(&named)),
        say("postgres://bob@a", &with_file(&named)),
        say(&format!("postgres://a?passfile={}", named.display()), &home),
        say("postgres://a", &with_file(&open)),
        say("postgres://a", &with_file(&folder.join("none"))),
        say("postgres://ann:own@a", &with_file(&folder.join("none"))),
    ];
    // A root certificate in the default place is used.
    write(".postgresql/root.crt", "", 0o644);
    let trust = ["prefer", "require", "verify-full"]
        .map(|mode| say(&format!("postgres://ann:own@a?sslmode={mode}"), &home))
        .map(|line| line.replace(folder.to_str().unwrap(), "HOME"));
    fs::remove_dir_all(&folder).unwrap();
    expect![[r#"
        postgres://ann@a:5432/ann · Prefer · password "own"
        postgres://ann@a:5432/ann · Prefer · password "variable"
        postgres://ann@a:5432,b:5432,c:5432/ann · Prefer · password "usual a" · password "usual b"
        postgres://ann@%2Frun%2Fpostgresql:5432/shop · Prefer · password "socket"
        postgres://ann@a:5432/ann · Prefer · password "named"
        postgres://bob@a:5432/bob · Prefer
        postgres://ann@a:5432/ann · Prefer · password "named"
        database: others can read the passfile HOME/open; run: chmod 600 HOME/open
        database: cannot read the passfile HOME/none (No such file or directory (os error 2))
        postgres://ann@a:5432/ann · Prefer · password "own"

        postgres://ann@a:5432/ann · Prefer · password "own" · Some(File("HOME/.postgresql/root.crt"))
        postgres://ann@a:5432/ann · VerifyCa · password "own" · Some(File("HOME/.postgresql/root.crt"))
        postgres://ann@a:5432/ann · VerifyFull · password "own" · Some(File("HOME/.postgresql/root.crt"))
    "#]].assert_eq(&format!("{}\n\n{}\n", told.join("\n"), trust.join("\n")));
}
