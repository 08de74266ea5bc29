//! Faults of the machine: disks, limits, certificates.

use std::process::Command;

use expect_test::{Expect, expect};

use super::{assert_findings, examine, findings, start_healthy};
use crate::harness::{Backend, CertificatePair, EXECUTABLE, Process, run_in_namespace};

const DAY: i64 = 86_400;

#[test]
fn doctor_finds_certificates_that_expire() {
    let server = start_healthy(Backend::Sqlite);
    let folder = server.folder();
    let check = |pair: &CertificatePair, expected: &Expect| {
        pair.write(folder);
        let ended = examine(&server, &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
        assert_findings(&ended, folder, expected);
    };
    check(&CertificatePair::new(), &expect![""]);
    check(
        &CertificatePair::valid(-DAY, 3 * DAY),
        &expect![[r#"
        warning  certificate  cert.pem expires at <time>; renew it, and send SIGHUP to the server
    "#]],
    );
    check(
        &CertificatePair::valid(-3 * DAY, -DAY),
        &expect![[r#"
        fault    certificate  --tls-cert: the certificate in cert.pem expired at <time>; renew it where it came from, or make a self-signed one with: nouns cert
    "#]],
    );
    check(
        &CertificatePair::valid(DAY, 3 * DAY),
        &expect![[r#"
        fault    certificate  --tls-cert: the certificate in cert.pem is valid only from <time> on, and it is <time> here; set the clock of this machine right, or use another certificate until then
    "#]],
    );
    std::fs::write(folder.join("cert.pem"), CertificatePair::new().der()).unwrap();
    check_only_certificate(
        &examine(&server, &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]).stdout,
    );
    let ended = examine(&server, &["--tls-cert", "cert.pem"]);
    assert_findings(
        &ended,
        folder,
        &expect![[r#"
        fault    certificate  --tls-cert alone is not enough: name the key of the certificate by --tls-key as well, or create a self-signed pair with: nouns cert
    "#]],
    );
}

/// The certificate file exists and is not PEM.
fn check_only_certificate(output: &str) {
    let faults: Vec<_> = output.lines().filter(|line| !line.starts_with("ok ")).collect();
    assert!(
        matches!(faults.as_slice(), [line] if line.starts_with("fault    certificate")),
        "{output}"
    );
}

#[test]
fn doctor_finds_too_few_open_files() {
    let server = start_healthy(Backend::Sqlite);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 200; exec \"$0\" doctor", EXECUTABLE]);
    let ended = Process::spawn(command.env_clear().current_dir(server.folder())).end();
    assert_findings(
        &ended,
        server.folder(),
        &expect![[r#"
        warning  open files   enough for 100 connections, and connections_max is 10000; raise the limit (ulimit -Hn, LimitNOFILE= of systemd), or lower connections_max
    "#]],
    );
}

#[test]
fn doctor_finds_full_and_read_only_disks() {
    let server = start_healthy(Backend::Sqlite);
    let folder = server.stop();
    let script = r#"
        cd "$1"
        mkdir disk
        mount -t tmpfs -o size=SIZE none disk
        cp nouns.db nouns.key disk
        READONLY
        cd disk
        exec "$2" doctor
    "#;
    let run = |size: &str, read_only: &str| {
        let _ = std::fs::remove_dir(folder.path().join("disk"));
        let script = script.replace("SIZE", size).replace("READONLY", read_only);
        let ended = run_in_namespace(folder.path(), &script);
        (findings(&ended, folder.path()), ended)
    };
    let (found, ended) = run("8m", "");
    expect![[r#"
        fault    disk         <n> MB are free on the disk of .: writes fail soon; free some space
    "#]]
    .assert_eq(&found);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), ""));
    let (found, ended) = run("128m", "");
    expect![[r#"
        warning  disk         <n> MB are free on the disk of ., too few for a backup beside the database; free some space
    "#]].assert_eq(&found);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), ""));
    let (found, ended) = run("600m", "mount -o remount,ro disk");
    expect![[r#"
        fault    database     cannot open nouns.db (unable to open database file); check that the folder exists and is writable, or name another --database
        fault    folder       this user cannot create files in . (Read-only file system (os error 30)), where SQLite has to; make it writable, with chown or mount
    "#]].assert_eq(&found);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), ""));
}
