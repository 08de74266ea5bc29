//! An nginx in front of one server, or of the two of the compose file, by the files of `packaging/`.
//!
//! It has a folder of its own and no privileges beyond the test's.
//! It cannot report the port it was given, so the test picks a free one, and retries where another
//! program was faster.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{Client, FinishedProcess, Folder, Process, Secrets, TIMEOUT, wait_until};

/// In front of one server; the guide shows it.
const SITE: &str = include_str!("../../../packaging/nginx.conf");
/// In front of the two servers of the compose file.
const COMPOSE_SITE: &str = include_str!("../../../packaging/compose/nginx.conf");

/// A running proxy; killed when dropped.
#[derive(Debug)]
pub struct Nginx {
    pub address: SocketAddr,
    // Dropped before the folder.
    process: Process,
    folder: Folder,
}

impl Nginx {
    /// Without TLS.
    pub fn start(server: SocketAddr) -> Self {
        Self::start_as(server, |block| block)
    }

    /// With TLS.
    pub fn start_tls(server: SocketAddr) -> Self {
        Self::launch(&[server], true, |block| block)
    }

    /// In front of two servers, without TLS.
    pub fn start_compose(servers: [SocketAddr; 2]) -> Self {
        Self::launch(&servers, false, |block| block)
    }

    /// Without TLS, with changes to the configuration.
    pub fn start_as(server: SocketAddr, change: impl Fn(String) -> String) -> Self {
        Self::launch(&[server], false, change)
    }

    fn launch(servers: &[SocketAddr], is_tls: bool, change: impl Fn(String) -> String) -> Self {
        let folder = Folder::new();
        if is_tls {
            certify(folder.path());
        }
        for _ in 0..20 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = free.local_addr().unwrap();
            drop(free);
            let text = change(shipped(servers, address, is_tls.then(|| folder.path())));
            fs::write(folder.path().join("nginx.conf"), full_configuration(folder.path(), &text))
                .unwrap();
            let mut command = Command::new("nginx");
            command.arg("-p").arg(folder.path()).args(["-c", "nginx.conf"]);
            command.args(["-g", "daemon off;", "-e", "stderr"]);
            let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap());
            let mut process = Process::spawn(command.env_clear().env("PATH", path));
            // The pid file is written once nginx has the port: another program may answer there before.
            let pid = folder.path().join("pid");
            let is_up = wait_until("nginx listens or ends", || {
                let is_up = pid.exists() && TcpStream::connect(address).is_ok();
                if process.has_ended() { Some(false) } else { is_up.then_some(true) }
            });
            if is_up {
                if let Some(secrets) = Secrets::of_server(servers[0]) {
                    secrets.register_server(address);
                }
                return Self { address, process, folder };
            }
            let FinishedProcess { stderr, .. } = process.end();
            assert!(stderr.contains("Address already in use"), "{stderr}");
        }
        panic!("no port was free");
    }

    /// A connection from this address, which is one of this machine.
    pub fn client_at(&self, source: &str) -> Client {
        Client::connect_from(source.parse().unwrap(), self.address)
    }

    /// Runs `curl` with these arguments, by TLS, and returns its output.
    pub fn curl(&self, path: &str, args: &[&str]) -> String {
        let mut command = Command::new("curl");
        command
            .args(["-s", "-S", "--max-time", "100", "--cacert"])
            .arg(self.folder.path().join("cert.pem"));
        command.args(["--resolve", &format!("shop.example:{}:127.0.0.1", self.address.port())]);
        command.args(args).arg(format!("https://shop.example:{}{path}", self.address.port()));
        let ended = Process::spawn(command.env_clear()).end();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{path} {args:?}");
        ended.stdout.trim_end().to_owned()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM ends its workers too; SIGKILL would leave them behind. Errors are ignored, since a
        // test may be failing already.
        if !self.process.has_ended() {
            let line = format!("kill -TERM {}", self.process.id());
            drop(Command::new("sh").args(["-c", &line]).status());
        }
        let deadline = Instant::now() + TIMEOUT;
        while !self.process.has_ended() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The shipped configuration, with the paths and addresses of this test.
fn shipped(servers: &[SocketAddr], own: SocketAddr, folder: Option<&Path>) -> String {
    let (site, addresses, files) = match servers.len() {
        1 => (SITE, &["127.0.0.1:8080"][..], "/etc/ssl/shop.example."),
        _ => (COMPOSE_SITE, &["10.133.7.11:8080", "10.133.7.12:8080"][..], "/run/secrets/"),
    };
    let mut text = site.to_owned();
    let mut change = |from: &str, to: &str| {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text = text.replace(from, to);
    };
    for (address, server) in addresses.iter().zip(servers) {
        change(address, &server.to_string());
    }
    match folder {
        Some(folder) => {
            let folder = folder.display();
            change("listen 443 ssl http2", &format!("listen {own} ssl http2"));
            change(&format!("{files}pem"), &format!("{folder}/cert.pem"));
            change(&format!("{files}key"), &format!("{folder}/key.pem"));
        }
        None => {
            change("listen 443 ssl http2", &format!("listen {own}"));
            let is_certificate = |line: &&str| line.trim_start().starts_with("ssl_certificate");
            text = text.lines().filter(|line| !is_certificate(line)).collect::<Vec<_>>().join("\n");
        }
    }
    text
}

/// All files of nginx are in its folder. Root's workers would switch to a user without access.
fn full_configuration(folder: &Path, servers: &str) -> String {
    let is_root =
        fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let user = if is_root { "user root;" } else { "" };
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders =
        kinds.map(|kind| format!("{kind}_temp_path {}/{kind};\n", folder.display())).concat();
    format!(
        "{user}\nworker_processes 1;\npid {}/pid;\nevents {{ worker_connections 256; }}\n\
         http {{\naccess_log off;\n{folders}{servers}}}\n",
        folder.display()
    )
}

/// A self-signed certificate for `shop.example`.
fn certify(folder: &Path) {
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]);
    command.args([
        "-days",
        "2",
        "-subj",
        "/CN=shop.example",
        "-addext",
        "subjectAltName=DNS:shop.example",
    ]);
    command.args(["-keyout", "key.pem", "-out", "cert.pem"]).current_dir(folder);
    let ended = Process::spawn(&mut command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
