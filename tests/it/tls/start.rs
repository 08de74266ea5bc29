//! Permitted listen addresses with and without TLS, and the messages at the start.

use std::process::Command;

use super::{run_program as run_beside, setup};
use crate::harness::{
    Backend, CertificatePair, EXECUTABLE, Folder, Process, Setup, run_nouns, wait_until,
};

/// With TLS passwords are accepted from anywhere; without authentication only loopback is allowed.
#[test]
fn listen_any_address_with_tls_but_only_loopback_when_open() {
    let folder = Folder::new();
    CertificatePair::new().write(folder.path());
    let refused = run_nouns(folder.path(), &["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert_eq!(
        refused.stderr,
        "nouns: the realm \"store\" offers Basic, which sends passwords in clear, and 0.0.0.0:0 can be reached \
         from other machines; serve HTTPS with --tls-cert and --tls-key (nouns cert creates a self-signed pair), say \
         --behind-proxy where a proxy terminates TLS, listen on a loopback address, or declare schemes = [\"digest\"] \
         for the realm\n"
    );
    let tls = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];
    let open = [&["serve", "--open", "--listen", "0.0.0.0:0"][..], &tls].concat();
    let refused = run_nouns(folder.path(), &open);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--open lets everyone do everything"), "{refused:?}");
    let mut command = Command::new(EXECUTABLE);
    command.args(["serve", "--listen", "0.0.0.0:0"]).args(tls);
    let process = Process::spawn(command.current_dir(folder.path()).env_clear());
    assert!(process.first_line().starts_with("nouns: serving Store at https://0.0.0.0:"));
}

#[test]
fn redirect_without_a_valid_target_fails_the_start() {
    let folder = Folder::new();
    CertificatePair::new().write(folder.path());
    let refused = run_nouns(folder.path(), &["serve", "--redirect", "127.0.0.1:0"]);
    assert_eq!(refused.code, Some(2));
    assert_eq!(
        refused.stderr,
        "nouns: --redirect 127.0.0.1:0 redirects to HTTPS, which is not served; name a certificate by \
         --tls-cert and --tls-key, or create a self-signed pair with: nouns cert\n"
    );
    let setup = setup("base_url = \"http://shop.example\"").tls(&CertificatePair::new());
    let (ended, _folder) =
        setup.flags(&["--redirect", "127.0.0.1:0"]).try_start_in(Folder::new()).unwrap_err();
    assert_eq!(ended.code, Some(2));
    assert_eq!(
        ended.stderr,
        "nouns: --redirect 127.0.0.1:0 redirects to HTTPS, but base_url is http://shop.example; let base_url \
         begin with https://\n"
    );
    let tls = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];
    let bad = [&["serve", "--listen", "127.0.0.1:0", "--redirect", "80"][..], &tls].concat();
    let refused = run_nouns(folder.path(), &bad);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.starts_with("nouns: cannot listen on 80: "), "{refused:?}");
}

/// Flags, environment and file have the same settings.
#[test]
fn tls_settings_come_from_flags_environment_and_file() {
    let folder = Folder::new();
    CertificatePair::new().write(folder.path());
    std::fs::rename(folder.path().join("key.pem"), folder.path().join("other.pem")).unwrap();
    let model = "title = \"Safe\"\n[server]\ntls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\nredirect = [\"127.0.0.1:0\"]\n[resources.a.fields]\nb = { type = \"text\" }\n";
    std::fs::write(folder.path().join("nouns.toml"), model).unwrap();
    let mut command = Command::new(EXECUTABLE);
    command.args(["serve", "--open", "--listen", "127.0.0.1:0"]).current_dir(folder.path());
    let process = Process::spawn(command.env_clear().env("NOUNS_TLS_KEY", "other.pem"));
    assert!(process.first_line().starts_with("nouns: serving Safe at https://127.0.0.1:"));
    wait_until("it redirects", || process.stderr().contains("redirected to HTTPS").then_some(()));
}

/// Mistakes in the model file are reported with their position.
#[test]
fn tls_settings_invalid_in_the_model_fail_the_start() {
    let folder = Folder::new();
    let model = "title = \"Safe\"\n[server]\ntls_cert = \"\"\ntls_key = 1\nredirect = [\"80\"]\nhsts = \"forever\"\ntls_certificate = \"a\"\n[server.limits]\nhandshake_seconds_max = 0\n[resources.a.fields]\nb = { type = \"text\" }\n";
    std::fs::write(folder.path().join("nouns.toml"), model).unwrap();
    let ended = run_nouns(folder.path(), &["check"]);
    assert_eq!(ended.code, Some(2));
    for expected in [
        "`tls_cert` expected the path of a file, got nothing",
        "`redirect` expected ADDRESS:PORT, got \"80\"",
        "`hsts` expected a time such as \"180d\", got \"forever\"",
        "`tls_certificate`",
        "tls_cert",
        "`tls_key`",
        "`handshake_seconds_max`",
    ] {
        assert!(ended.stderr.contains(expected), "{expected}: {}", ended.stderr);
    }
}

/// The printed command for the first user works when it is pasted, with a self-signed certificate.
#[test]
fn first_user_command_works_when_pasted() {
    // The command is only printed to a terminal: `script` provides one.
    let folder = Folder::new();
    CertificatePair::new().write(folder.path());
    let command = format!(
        "{EXECUTABLE} serve --listen 127.0.0.1:0 --tls-cert cert.pem --tls-key key.pem --log json"
    );
    // The tests may run with SIGHUP ignored, as under `nohup`.
    let mut shell = Command::new("env");
    shell.args(["--default-signal=HUP", "script"]);
    shell.args(["--quiet", "--flush", "--return", "--command", &command, "typescript"]);
    let process = Process::spawn(
        shell.current_dir(folder.path()).env_clear().env("PATH", std::env::var("PATH").unwrap()),
    );
    let line = wait_until("the line is shown", || {
        let shown = std::fs::read_to_string(folder.path().join("typescript")).unwrap_or_default();
        shown
            .lines()
            .find(|line| line.trim_start().starts_with("curl ") && line.contains("https://"))
            .map(|line| line.trim().to_owned())
    });
    assert!(line.contains("--cacert cert.pem https://127.0.0.1:"), "{line}");
    // The password file is written on a terminal too.
    let file = folder.path().join("nouns.admin-password");
    let password = std::fs::read_to_string(&file).unwrap();
    assert!(line.contains(&format!("-u admin:{} ", password.trim_end())), "{line}");
    let mut curl = Command::new("bash");
    curl.args(["-c", &line.replacen("curl ", "curl --disable --silent --show-error --fail ", 1)]);
    let ended = Process::spawn(curl.current_dir(folder.path())).end();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{line}");
    // The server ends with its terminal, although SIGHUP alone would not end it.
    let (_, address) = line.rsplit_once("https://").unwrap();
    let address: std::net::SocketAddr = address.trim_end_matches('/').parse().unwrap();
    drop(std::net::TcpStream::connect(address).unwrap());
    drop(process);
    wait_until("the server has ended", || std::net::TcpStream::connect(address).err());
}

/// Basic is accepted over TLS.
#[test]
fn basic_over_tls_logs_in() {
    let server =
        Setup::new(Backend::Sqlite).tls(&CertificatePair::new()).with_authentication().start();
    let admin = server.admin();
    let basic = format!("{}:{}", admin.name, admin.password);
    let address = format!("https://{}/customers", server.address);
    let args =
        ["--disable", "--silent", "--fail", "--cacert", "cert.pem", "--user", &basic, &address];
    assert_eq!(run_beside(&server, "curl", &args).code, Some(0));
}
