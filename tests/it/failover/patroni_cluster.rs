//! A Patroni cluster of three nodes with etcd, and HAProxy, by the files of `docs/scaling.md`.
//!
//! The network of the guide becomes one of loopback addresses, `127.X.Y.0/24`, so that the ports stay. A node is killed
//! as a machine would be: Patroni, PostgreSQL and etcd with one blow.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::Value;

use crate::durability::seeded_random::SeededRandom;
use crate::harness::{Folder, Postgres, Process, WITH_POSTGRES, kill_with_children, wait_until};

const GUIDE: &str = include_str!("../../../docs/scaling.md");
const NODES: [&str; 3] = ["db1", "db2", "db3"];

/// A block of the guide, by the name of its file.
fn guide_file(name: &str) -> String {
    let (_, rest) = GUIDE.split_once(&format!("<!-- file: {name} -->\n```")).unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    rest.split_once("```\n").unwrap().0.to_owned()
}

/// The cluster; killed when dropped.
pub struct PatroniCluster {
    /// `127.X.Y.`
    network: String,
    nodes: [Node; 3],
    haproxy: Option<Process>,
    runner: Runner,
    // Dropped last.
    folder: Folder,
}

#[derive(Default)]
struct Node {
    etcd: Option<Process>,
    patroni: Option<Process>,
}

/// Runs programs as a user without rights, as PostgreSQL requires, and ends them with the test.
struct Runner {
    user: Option<u32>,
    group: Option<u32>,
}

impl Runner {
    fn new() -> Self {
        let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
        let id = |flag: &str| {
            let number = |name: &str| {
                let output = Command::new("id").args([flag, name]).output().unwrap();
                String::from_utf8(output.stdout).unwrap().trim().parse().ok()
            };
            number("postgres").or_else(|| number("nobody"))
        };
        match is_root {
            true => Self { user: id("-u"), group: id("-g") },
            false => Self { user: None, group: None },
        }
    }

    fn create_folder(&self, path: &Path) {
        fs::create_dir_all(path).unwrap();
        self.give(path, 0o700);
    }

    fn write(&self, path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        self.give(path, 0o600);
    }

    fn give(&self, path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        chown(path, self.user, self.group).unwrap();
    }

    /// `signal` is sent to the program when the test ends without its end.
    fn command(&self, signal: &str, program: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", signal]);
        if let (Some(user), Some(group)) = (self.user, self.group) {
            command.arg(format!("--reuid={user}")).arg(format!("--regid={group}"));
            command.arg("--clear-groups");
        }
        command.arg("--").args(program);
        command
    }
}

impl PatroniCluster {
    /// Starts the nodes, and waits until one is the primary and one its synchronous standby.
    pub fn start(random: &mut SeededRandom) -> Self {
        let network = format!("127.{}.{}.", 1 + random.below(250), random.below(250));
        let (folder, runner) = (Folder::new(), Runner::new());
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let nodes = Default::default();
        let mut cluster = Self { network, nodes, haproxy: None, runner, folder };
        (0..NODES.len()).for_each(|node| cluster.start_etcd(node));
        wait_until("etcd is healthy", || {
            get_json(&cluster.address(0, 2379), "/health").filter(|found| found["health"] == "true")
        });
        cluster.start_patroni(0);
        wait_until("the first node is the primary", || cluster.leader());
        (1..NODES.len()).for_each(|node| cluster.start_patroni(node));
        cluster.wait_until_whole();
        cluster
    }

    fn address(&self, node: usize, port: u16) -> SocketAddr {
        format!("{}{}:{port}", self.network, 11 + node).parse().unwrap()
    }

    /// An address of the guide: 10.0.0.N with its port.
    pub fn guide_address(&self, last: u8, port: u16) -> SocketAddr {
        format!("{}{last}:{port}", self.network).parse().unwrap()
    }

    fn node_folder(&self, node: usize) -> PathBuf {
        self.folder.path().join(NODES[node])
    }

    /// The text of a file of the guide, for this cluster.
    fn adapt(&self, text: &str) -> String {
        // Connections come from 127.0.0.1.
        text.replace("10.0.0.0/24", "127.0.0.0/8").replace("10.0.0.", &self.network)
    }

    /// The text of a file of a node, which the guide has for the first one.
    fn adapt_for_node(&self, text: &str, node: usize) -> String {
        let adapt_line = |line: &str| match line.contains("10.0.0.12") {
            true => line.to_owned(),
            false => line
                .replace("db1", NODES[node])
                .replace("10.0.0.11", &format!("10.0.0.{}", 11 + node)),
        };
        let text = text.lines().map(adapt_line).collect::<Vec<_>>().join("\n") + "\n";
        self.adapt(&text)
    }

    fn start_etcd(&mut self, node: usize) {
        let folder = self.node_folder(node);
        self.runner.create_folder(&folder);
        let text = self.adapt_for_node(&guide_file("etcd"), node);
        let data = folder.join("etcd").display().to_string();
        let mut command = self.runner.command("KILL", &["etcd"]);
        for line in text.replace("/var/lib/etcd/shop", &data).lines() {
            let (name, value) = line.split_once('=').unwrap();
            command.env(name, value.trim_matches('"'));
        }
        self.nodes[node].etcd = Some(Process::spawn(command.current_dir(&folder)));
    }

    fn start_patroni(&mut self, node: usize) {
        let folder = self.node_folder(node);
        let shown = folder.display();
        self.runner.create_folder(&folder.join("run"));
        let programs = Command::new(WITH_POSTGRES).arg("--programs").output().unwrap();
        let programs = String::from_utf8(programs.stdout).unwrap();
        let text = self
            .adapt_for_node(&guide_file("patroni.yml"), node)
            .replace("/var/lib/postgresql/15/shop", &format!("{shown}/data"))
            .replace("/usr/lib/postgresql/15/bin", programs.trim())
            .replace("/var/lib/postgresql/patroni.pgpass", &format!("{shown}/pgpass"))
            .replace("/var/run/postgresql", &format!("{shown}/run"));
        assert!(!text.contains("/var/"), "{text}");
        let file = folder.join("patroni.yml");
        self.runner.write(&file, &text);
        // It stops PostgreSQL when it is asked to end.
        let mut command = self.runner.command("TERM", &["patroni", file.to_str().unwrap()]);
        command.env_remove("PGPASSWORD").current_dir(&folder);
        self.nodes[node].patroni = Some(Process::spawn(&mut command));
    }

    /// Starts HAProxy in front of both servers and of PostgreSQL.
    pub fn start_haproxy(&mut self) {
        let text = guide_file("haproxy.cfg") + "\n" + &guide_file("haproxy-postgres.cfg");
        let file = self.folder.path().join("haproxy.cfg");
        self.runner.write(&file, &self.adapt(&text));
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command =
            self.runner.command("KILL", &["haproxy", "-db", "-f", file.to_str().unwrap()]);
        command.env("PATH", format!("{path}:/usr/sbin"));
        self.haproxy = Some(Process::spawn(&mut command));
        let address = self.guide_address(5, 5432);
        let database = Postgres::at(format!("postgres://postgres:SUPERUSER-PASSWORD@{address}"));
        // Until it has checked all hosts, it uses them in turn.
        wait_until("HAProxy leads to the primary", || {
            let is_primary = |_| {
                let found = database.try_sql("postgres", "SELECT pg_is_in_recovery()");
                found.stdout.trim() == "f"
            };
            (0..2 * NODES.len()).all(is_primary).then_some(())
        });
    }

    /// The members as Patroni knows them: name, role and state. `None` while no node answers.
    fn members(&self) -> Option<Vec<(String, String, String)>> {
        let found =
            (0..NODES.len()).find_map(|node| get_json(&self.address(node, 8008), "/cluster"))?;
        let text =
            |member: &Value, name: &str| member[name].as_str().unwrap_or_default().to_owned();
        let member = |one| (text(one, "name"), text(one, "role"), text(one, "state"));
        Some(found["members"].as_array()?.iter().map(member).collect())
    }

    /// The index of the node that is the primary, if it runs.
    pub fn leader(&self) -> Option<usize> {
        let members = self.members()?;
        let is_leader =
            |(_, role, state): &&(String, String, String)| role == "leader" && state == "running";
        let (name, ..) = members.iter().find(is_leader)?;
        let node = NODES.iter().position(|node| node == name)?;
        // Its own answer: others may know of a leader that is gone.
        get_json(&self.address(node, 8008), "/primary").map(|_| node)
    }

    /// Waits until all nodes run, and the primary has a synchronous standby.
    pub fn wait_until_whole(&self) {
        wait_until("all nodes run and one is a synchronous standby", || {
            let members = self.members()?;
            let count = |of: &str| members.iter().filter(|(_, role, _)| role == of).count();
            let is_running = |(_, _, state): &(String, String, String)| {
                state == "running" || state == "streaming"
            };
            let is_whole = members.len() == NODES.len() && members.iter().all(is_running);
            let sql = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
            (is_whole && count("leader") == 1 && count("sync_standby") == 1).then_some(())?;
            (self.primary()?.sql("postgres", sql).trim() == "2").then_some(())
        });
    }

    /// The primary, with the superuser of the guide.
    pub fn primary(&self) -> Option<Postgres> {
        let address = self.address(self.leader()?, 5432);
        Some(Postgres::at(format!("postgres://postgres:SUPERUSER-PASSWORD@{address}")))
    }

    /// Ends all processes of a node with SIGKILL.
    pub fn kill_node(&mut self, node: usize) {
        let file = self.node_folder(node).join("data/postmaster.pid");
        let postmaster = fs::read_to_string(file).unwrap().lines().next().unwrap().to_owned();
        let Node { etcd, patroni } = std::mem::take(&mut self.nodes[node]);
        // Patroni must not start PostgreSQL again.
        drop(patroni);
        kill_with_children(&postmaster);
        drop(etcd);
    }

    /// Starts a node that was killed.
    pub fn start_node(&mut self, node: usize) {
        self.start_etcd(node);
        self.start_patroni(node);
    }

    /// A file with the password of a role, for the address of a server.
    pub fn write_passfile(&self, role: &str, password: &str) -> PathBuf {
        let file = self.folder.path().join("pgpass");
        fs::write(&file, format!("*:*:*:{role}:{password}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        file
    }

    /// The output of Patroni on all nodes that run, for a test that fails.
    fn log(&self) -> String {
        let logs = self.nodes.iter().filter_map(|node| node.patroni.as_ref().map(Process::stderr));
        logs.collect::<Vec<_>>().join("\n")
    }
}

impl Drop for PatroniCluster {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.log());
        }
        for node in 0..NODES.len() {
            drop(self.nodes[node].patroni.take());
            let file = self.node_folder(node).join("data/postmaster.pid");
            let text = fs::read_to_string(file).unwrap_or_default();
            let id = text.lines().next().unwrap_or_default();
            // A node that was killed has left the file, and its number may be another process by now.
            let data = self.node_folder(node).join("data");
            let is_own = |id: &str| {
                fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|folder| folder == data)
            };
            if is_own(id) {
                kill_with_children(id);
            }
        }
    }
}

/// The JSON of a response with the status 200. Patroni answers in HTTP/1.0.
fn get_json(address: &SocketAddr, path: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let is_found = head.split(' ').nth(1) == Some("200");
    is_found.then(|| serde_json::from_str(body).ok()).flatten()
}
