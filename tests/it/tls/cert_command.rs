//! `nouns cert`: a self-signed certificate for trials, and the printed commands.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::harness::{EXECUTABLE, Folder, Process, run_nouns};

#[test]
fn cert_command_output_works_when_pasted() {
    let folder = Folder::new();
    for out in [".", "it's a folder"] {
        fs::create_dir_all(folder.path().join(out)).unwrap();
        let args = ["cert", "--name", "shop.example", "--name", "192.0.2.7", "--out", out];
        let ended = run_nouns(folder.path(), if out == "." { &args[..1] } else { &args[..] });
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        let mut lines = ended.stdout.lines().map(str::trim);
        let first = lines.next().unwrap();
        assert!(first.contains("for localhost, 127.0.0.1, ::1"), "{first}");
        assert!(first.ends_with("; valid for 396 days"), "{first}");
        let (serve, curl) = (lines.next().unwrap(), lines.next().unwrap());
        assert_eq!(lines.next(), None);
        // Only the port differs, since tests run concurrently.
        let script = format!(
            "PATH=$1:$PATH; exec {serve} --open --listen 127.0.0.1:0 --database sqlite:a.db"
        );
        let mut server = Command::new("bash");
        let tools = std::path::Path::new(EXECUTABLE).parent().unwrap();
        server.args(["-c", &script, "bash"]).arg(tools).current_dir(folder.path());
        let server = Process::spawn(&mut server);
        let line = server.first_line();
        let (_, address) = line.rsplit_once("https://127.0.0.1:").unwrap();
        let curl = curl.replace(":8080/", &format!(":{address}/"));
        let curl = curl.replacen("curl ", "curl --disable --silent --show-error ", 1);
        let mut command = Command::new("bash");
        let ended = Process::spawn(command.args(["-c", &curl]).current_dir(folder.path())).end();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{curl}");
        assert_eq!(ended.stdout.trim_end(), "{\"status\":\"ok\"}");
        server.signal("TERM");
        server.end();
    }
}

#[test]
fn cert_command_certificate_contents() {
    let folder = Folder::new();
    let ended = run_nouns(
        folder.path(),
        &["cert", "--name", "Shop.Example", "--name", "*.shop.example", "--name", "2001:db8::1"],
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let key = folder.path().join("nouns-key.pem");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let mut command = Command::new("openssl");
    command.args(["x509", "-in", "nouns-cert.pem", "-noout", "-text"]).current_dir(folder.path());
    let text = Process::spawn(&mut command).end().stdout;
    for expected in [
        "Version: 3",
        "ecdsa-with-SHA256",
        "NIST CURVE: P-256",
        "CA:FALSE",
        "TLS Web Server Authentication",
        "DNS:localhost, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1, DNS:shop.example, DNS:*.shop.example, IP Address:2001:DB8:0:0:0:0:0:1",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    // Valid now, and for no longer than browsers accept: 398 days.
    for (seconds, is_valid) in [("0", true), ("34128000", true), ("34387200", false)] {
        let mut command = Command::new("openssl");
        command.args(["x509", "-in", "nouns-cert.pem", "-noout", "-checkend", seconds]);
        let ended = Process::spawn(command.current_dir(folder.path())).end();
        assert_eq!(ended.code == Some(0), is_valid, "{seconds}");
    }
}

#[test]
fn cert_command_overwrites_nothing_and_leaves_no_partial_files() {
    for taken in ["nouns-cert.pem", "nouns-key.pem"] {
        let folder = Folder::new();
        fs::write(folder.path().join(taken), "mine").unwrap();
        let ended = run_nouns(folder.path(), &["cert"]);
        assert_eq!(ended.code, Some(2));
        let expected = format!(
            "nouns: {taken} exists already, and is not overwritten; move it away first, or choose another folder with --out\n"
        );
        assert_eq!((ended.stdout.as_str(), ended.stderr), ("", expected));
        assert_eq!(fs::read_to_string(folder.path().join(taken)).unwrap(), "mine");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
    let folder = Folder::new();
    let ended = run_nouns(folder.path(), &["cert", "--out", "nowhere"]);
    assert_eq!(ended.code, Some(2));
    assert_eq!(
        ended.stderr,
        "nouns: cannot write nowhere/nouns-key.pem: there is no such folder; make it first\n"
    );
    let ended = run_nouns(folder.path(), &["cert", "--name", "https://shop.example"]);
    assert_eq!(ended.code, Some(2));
    assert_eq!(
        ended.stderr,
        "nouns: --name: expected a host name such as shop.example, or an address such as 192.0.2.1, got \
         \"https://shop.example\"; scheme, port and path are no part of it\n"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
