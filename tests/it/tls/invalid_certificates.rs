//! Invalid certificates and keys: each fails the start with a message that names the remedy, exit 2,
//! before anything is created.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{CertificatePair, EXECUTABLE, FinishedProcess, Folder, Process, run_nouns};

const CERTIFICATE: [&str; 2] = ["--tls-cert", "cert.pem"];
const KEY: [&str; 2] = ["--tls-key", "key.pem"];

fn serve(folder: &Path, args: &[&str]) -> FinishedProcess {
    run_nouns(folder, &[&["serve", "--listen", "127.0.0.1:0"], args].concat())
}

/// Starts with a modified pair, and compares the message.
fn check_start_fails(prepare: impl FnOnce(&Path), args: &[&str], expected: &str) {
    let folder = Folder::new();
    CertificatePair::new().write(folder.path());
    prepare(folder.path());
    let before = names(folder.path());
    let ended = serve(folder.path(), args);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert_eq!((ended.stdout.as_str(), ended.stderr.lines().count()), ("", 1), "{ended:?}");
    let pattern = regex::Regex::new(&format!("^nouns: {expected}\n$")).unwrap();
    assert!(pattern.is_match(&ended.stderr), "expected {expected}\ngot {}", ended.stderr);
    assert_eq!(names(folder.path()), before, "nothing is touched");
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn both_flags() -> Vec<&'static str> {
    [CERTIFICATE, KEY].concat()
}

fn openssl(folder: &Path, args: &[&str]) {
    let mut command = Command::new("openssl");
    let ended = Process::spawn(command.args(args).current_dir(folder)).end();
    assert_eq!(ended.code, Some(0), "{args:?}: {}", ended.stderr);
}

#[test]
fn certificate_without_key_or_key_without_certificate_is_refused() {
    check_start_fails(
        |_| (),
        &CERTIFICATE,
        "--tls-cert alone is not enough: name the key of the certificate by --tls-key as well, or create a self-signed pair with: nouns cert",
    );
    check_start_fails(
        |_| (),
        &KEY,
        "--tls-key alone is not enough: name the certificate of the key by --tls-cert as well, or create a self-signed pair with: nouns cert",
    );
    let from_file = |folder: &Path| {
        fs::write(folder.join("nouns.toml"), "title = \"A\"\n[server]\ntls_key = \"key.pem\"\n[resources.a.fields]\nb = { type = \"text\" }\n").unwrap();
    };
    check_start_fails(from_file, &[], "--tls-key alone is not enough: .*");
}

#[test]
fn certificate_and_key_files_of_the_wrong_kind_are_refused() {
    let remove =
        |name: &'static str| move |folder: &Path| fs::remove_file(folder.join(name)).unwrap();
    check_start_fails(
        remove("cert.pem"),
        &both_flags(),
        "--tls-cert: there is no file cert.pem; name the file with the certificate, or create a self-signed pair with: nouns cert",
    );
    check_start_fails(
        remove("key.pem"),
        &both_flags(),
        "--tls-key: there is no file key.pem; name the file with the key, or .*",
    );
    check_start_fails(
        |_| (),
        &["--tls-cert", ".", "--tls-key", "key.pem"],
        r"--tls-cert: cannot read \. \(it is a folder\); expected a file in PEM with the certificate",
    );
    check_start_fails(
        |_| (),
        &["--tls-cert", "/dev/zero", "--tls-key", "key.pem"],
        r"--tls-cert: cannot read /dev/zero \(it is no file\); .*",
    );
}

#[test]
fn certificate_and_key_files_with_invalid_contents_are_refused() {
    let write = |name: &'static str, text: &'static str| {
        move |folder: &Path| fs::write(folder.join(name), text).unwrap()
    };
    check_start_fails(
        write("cert.pem", "0\u{82}"),
        &both_flags(),
        "--tls-cert: cert.pem is not PEM: expected a line -----BEGIN CERTIFICATE-----, got none; .* openssl x509 -inform der -in cert.pem -out cert.pem",
    );
    check_start_fails(write("cert.pem", ""), &both_flags(), "--tls-cert: cert.pem is not PEM: .*");
    check_start_fails(
        write("key.pem", "hunter2"),
        &both_flags(),
        "--tls-key: key.pem is not PEM: expected a line -----BEGIN PRIVATE KEY-----, got none; .*",
    );
    check_start_fails(
        write("cert.pem", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"),
        &both_flags(),
        r"--tls-cert: cert.pem is damaged \(.*\); copy it once more",
    );
    check_start_fails(
        write("cert.pem", "-----BEGIN CERTIFICATE-----\nMAA=\n"),
        &both_flags(),
        r"--tls-cert: cert.pem is damaged \(.*\); copy it once more",
    );
    check_start_fails(
        write("cert.pem", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"),
        &both_flags(),
        r"--tls-cert: the certificate in cert.pem cannot be used \(.*\); ask for a new one .*",
    );
    check_start_fails(
        write("key.pem", "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n"),
        &both_flags(),
        r"--tls-key: the key in key.pem cannot be used \(.*\); expected ECDSA with .*",
    );
    check_start_fails(
        |_| (),
        &["--tls-cert", "key.pem", "--tls-key", "cert.pem"],
        "--tls-cert: there is no certificate in key.pem, got PRIVATE KEY; .* by --tls-key",
    );
    check_start_fails(
        |_| (),
        &["--tls-cert", "cert.pem", "--tls-key", "cert.pem"],
        "--tls-key: there is no private key in cert.pem, got CERTIFICATE; .* by --tls-cert",
    );
    let grow = |folder: &Path| fs::write(folder.join("cert.pem"), vec![b'a'; 2 << 20]).unwrap();
    check_start_fails(
        grow,
        &both_flags(),
        r"--tls-cert: cannot read cert.pem \(it has more than 1048576 bytes\); .*",
    );
}

#[test]
fn private_key_encrypted_or_not_matching_is_refused() {
    let seal = |args: &'static [&'static str]| {
        move |folder: &Path| {
            openssl(folder, &[&["ec", "-in", "key.pem", "-out", "sealed.pem"][..], args].concat());
            fs::rename(folder.join("sealed.pem"), folder.join("key.pem")).unwrap();
        }
    };
    let expected = r"--tls-key: the key in key.pem has a passphrase, which nobody could type at every start; write it without one, .* \(umask 077; openssl pkey -in key.pem -out key.pem\)";
    // RFC 1421 first, then PKCS#8.
    check_start_fails(seal(&["-aes128", "-passout", "pass:hunter2"]), &both_flags(), expected);
    let seal_new = |folder: &Path| {
        openssl(
            folder,
            &["pkcs8", "-topk8", "-in", "key.pem", "-out", "new.pem", "-passout", "pass:hunter2"],
        );
        fs::rename(folder.join("new.pem"), folder.join("key.pem")).unwrap();
    };
    check_start_fails(seal_new, &both_flags(), expected);
    let other =
        |folder: &Path| fs::write(folder.join("key.pem"), CertificatePair::new().key).unwrap();
    check_start_fails(
        other,
        &both_flags(),
        "the key in key.pem does not belong to the certificate in cert.pem; name the key that the certificate was made for, and let the server's own certificate come first in its file",
    );
    // The chain before the certificate.
    let turn = |folder: &Path| {
        let own = fs::read_to_string(folder.join("cert.pem")).unwrap();
        fs::write(folder.join("cert.pem"), CertificatePair::new().certificate + &own).unwrap();
    };
    check_start_fails(
        turn,
        &both_flags(),
        "the key in key.pem does not belong to the certificate in cert.pem; .*",
    );
    let weak = |folder: &Path| {
        openssl(
            folder,
            &[
                "req",
                "-x509",
                "-newkey",
                "rsa:1024",
                "-nodes",
                "-keyout",
                "key.pem",
                "-out",
                "cert.pem",
                "-days",
                "9",
                "-subj",
                "/CN=localhost",
            ],
        );
    };
    check_start_fails(
        weak,
        &both_flags(),
        r"--tls-key: the key in key.pem cannot be used \(.*\); expected .* RSA of 2048 .*",
    );
}

#[test]
fn certificate_expired_or_not_yet_valid_is_refused() {
    let pair = |from, to| move |folder: &Path| CertificatePair::valid(from, to).write(folder);
    check_start_fails(
        pair(-7200, -3600),
        &both_flags(),
        r"--tls-cert: the certificate in cert.pem expired at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ; renew it where it came from, or make a self-signed one with: nouns cert",
    );
    check_start_fails(
        pair(3600, 7200),
        &both_flags(),
        r"--tls-cert: the certificate in cert.pem is valid only from \S+Z on, and it is \S+Z here; set the clock of this machine right, or .*",
    );
}

#[test]
fn private_key_without_read_permission_is_refused() {
    let folder = Folder::new();
    CertificatePair::new().write(folder.path());
    // Root may read everything, so another user runs the server.
    let script = "cp \"$1\" nouns && chmod 711 . && chmod 000 key.pem && exec setpriv --reuid=65534 --regid=65534 --clear-groups \
        \"$0\" serve --listen 127.0.0.1:0 --tls-cert cert.pem --tls-key key.pem";
    let mut command = Command::new("sh");
    let is_root = fs::metadata("/proc/self")
        .map(|found| std::os::unix::fs::MetadataExt::uid(&found))
        .unwrap()
        == 0;
    let script = if is_root {
        script
    } else {
        "cp \"$1\" nouns && chmod 000 key.pem && exec \"$0\" serve --tls-cert cert.pem --tls-key key.pem"
    };
    // The shell copies it: while this process had it open for writing, a process that another test starts would have so too,
    // and such a file cannot be executed.
    command.args(["-c", script, "./nouns", EXECUTABLE]);
    let ended = Process::spawn(command.current_dir(folder.path()).env_clear()).end();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.stderr.starts_with("nouns: --tls-key: cannot read key.pem (Permission denied"),
        "{ended:?}"
    );
    assert!(
        ended.stderr.trim_end().ends_with("let the user that runs the server read it"),
        "{ended:?}"
    );
}

/// Every private key format that other programs write.
#[test]
fn private_key_of_every_format_is_accepted() {
    let forms: [(&str, &[&[&str]]); 4] = [
        ("PKCS#8, ECDSA", &[]),
        ("SEC1", &[&["ec", "-in", "key.pem", "-out", "key.pem"]]),
        (
            "PKCS#1",
            &[
                &[
                    "req",
                    "-x509",
                    "-newkey",
                    "rsa:2048",
                    "-nodes",
                    "-keyout",
                    "new.pem",
                    "-out",
                    "cert.pem",
                    "-days",
                    "9",
                    "-subj",
                    "/CN=localhost",
                ],
                &["rsa", "-traditional", "-in", "new.pem", "-out", "key.pem"],
            ],
        ),
        (
            "Ed25519",
            &[&[
                "req",
                "-x509",
                "-newkey",
                "ed25519",
                "-nodes",
                "-keyout",
                "key.pem",
                "-out",
                "cert.pem",
                "-days",
                "9",
                "-subj",
                "/CN=localhost",
            ]],
        ),
    ];
    for (form, commands) in forms {
        let folder = Folder::new();
        CertificatePair::new().write(folder.path());
        for command in commands {
            openssl(folder.path(), command);
        }
        let mut command = Command::new(EXECUTABLE);
        command.args(["serve", "--open", "--listen", "127.0.0.1:0"]).args(both_flags());
        let process = Process::spawn(command.current_dir(folder.path()).env_clear());
        assert!(
            process.first_line().starts_with("nouns: serving Store at https://127.0.0.1:"),
            "{form}"
        );
    }
}
