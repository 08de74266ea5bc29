//! PostgreSQL servers: the one that all tests share, or one of a test's own that may be restarted.
//!
//! `tests/with-postgres` starts and stops both.
//! A test's own server stops when the input of a process is closed, so that it ends even when the
//! test is killed.

use std::io::{BufRead, BufReader, Write};
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use super::{FakeClock, FinishedProcess, Folder, Process, TIMEOUT, wait_until};

/// The script next to the tests that starts a server for a command and stops it.
pub const WITH_POSTGRES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/with-postgres");

/// The URL of a server, `postgres://USER@HOST:PORT`, without a database.
#[derive(Debug, Clone)]
pub struct Postgres(String);

impl Postgres {
    /// The server that all tests share; each has a database of its own there.
    pub fn shared() -> Self {
        match std::env::var("NOUNS_TEST_POSTGRES") {
            Ok(address) => Self(address),
            Err(_) => panic!("this test needs PostgreSQL: run `tests/with-postgres cargo test …`"),
        }
    }

    /// A server of another kind of cluster.
    pub fn at(address: String) -> Self {
        Self(address)
    }

    pub fn database_url(&self, database: &str) -> String {
        format!("{}/{database}", self.0)
    }

    /// The database name of a test with this folder.
    pub fn database_name(folder: &Path) -> String {
        folder.file_name().unwrap().to_str().unwrap().replace('-', "_")
    }

    /// Creates an empty database on the shared server.
    pub fn create_database(name: &str) {
        AdminConnection::run(&format!("CREATE DATABASE {name} {}", copy_strategy())).unwrap();
    }

    /// Creates a copy of another database, which no session may have open.
    pub fn copy_database(from: &str, name: &str) {
        let strategy = copy_strategy();
        AdminConnection::run(&format!("CREATE DATABASE {name} TEMPLATE {from} {strategy}"))
            .unwrap();
    }

    /// Terminates all sessions of a database, and drops it.
    pub fn drop_database(name: &str) {
        // Also called while a test fails: an error is ignored, since the database goes with the server.
        drop(AdminConnection::run(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")));
    }

    /// Fills an empty database with a dump of another one, by `pg_dump` without options.
    pub fn dump_and_restore(from: &str, to: &str) {
        let server = Self::shared();
        let folder = Folder::new();
        let file = folder.path().join("dump");
        let mut dump = Command::new("pg_dump");
        dump.arg("--format=custom").arg("--file").arg(&file).arg(server.database_url(from));
        let mut restore = Command::new("pg_restore");
        restore.arg("--exit-on-error").arg("--dbname").arg(server.database_url(to)).arg(&file);
        for mut command in [dump, restore] {
            let ended = Process::spawn(&mut command).end();
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{command:?}");
        }
    }

    /// Runs statements and returns their rows, one a line, as `psql` below does.
    pub fn sql(&self, database: &str, text: &str) -> String {
        let connection = AdminConnection::open(&self.database_url(database)).unwrap();
        connection.query(text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }

    /// Runs statements that may fail.
    pub fn try_sql(&self, database: &str, text: &str) -> FinishedProcess {
        Process::spawn(self.psql(database).args(["-c", text])).end()
    }

    /// `psql` with settings that make it print as `sqlite3` does: rows alone.
    pub fn psql(&self, database: &str) -> Command {
        let mut command = Command::new("psql");
        command.args(["-X", "-A", "-t", "-q", "-F", "|", "-v", "ON_ERROR_STOP=1", "-d"]);
        command.arg(self.database_url(database));
        command.env("PGTZ", "UTC").env("PGOPTIONS", "-c client_min_messages=warning");
        command
    }
}

/// How `CREATE DATABASE` copies the template: from PostgreSQL 15 on, a copy of the files costs half of the default,
/// which writes every page to the WAL.
fn copy_strategy() -> &'static str {
    static HAS_STRATEGIES: OnceLock<bool> = OnceLock::new();
    let has_strategies = HAS_STRATEGIES.get_or_init(|| {
        let version = AdminConnection::run("SHOW server_version_num").unwrap();
        version.trim_end().parse::<u32>().unwrap() >= 150_000
    });
    if *has_strategies { "STRATEGY file_copy" } else { "" }
}

/// A connection for statements of the tests, which costs less than a process of `psql`.
#[derive(Debug)]
pub(super) struct AdminConnection {
    runtime: Runtime,
    client: Client,
}

/// Idle connections to the database `postgres` of the shared server.
static IDLE: Mutex<Vec<AdminConnection>> = Mutex::new(Vec::new());

impl AdminConnection {
    pub(super) fn open(url: &str) -> Result<Self, String> {
        let mut config: Config = url.parse().map_err(|error| describe(&error))?;
        config.options("-c timezone=UTC").connect_timeout(TIMEOUT);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (client, connection) =
            runtime.block_on(config.connect(NoTls)).map_err(|error| describe(&error))?;
        runtime.spawn(connection);
        Ok(Self { runtime, client })
    }

    /// The rows in the text format of PostgreSQL, one a line, with `|` between columns.
    pub(super) fn query(&self, text: &str) -> Result<String, String> {
        let mut lines = String::new();
        let result = self.runtime.block_on(async {
            // Also a statement that waits for a lock of its own test has to end.
            tokio::time::timeout(TIMEOUT, self.client.simple_query(text)).await
        });
        let messages = result
            .map_err(|_| format!("no end after {TIMEOUT:?}"))?
            .map_err(|error| describe(&error))?;
        for message in messages {
            if let SimpleQueryMessage::Row(row) = message {
                let columns = (0..row.len()).map(|column| row.get(column).unwrap_or_default());
                lines += &columns.collect::<Vec<_>>().join("|");
                lines.push('\n');
            }
        }
        Ok(lines)
    }

    /// Runs a statement in the database `postgres` of the shared server.
    fn run(statement: &str) -> Result<String, String> {
        let idle = || IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let connection = match kept {
            Some(connection) => connection,
            None => Self::open(&Postgres::shared().database_url("postgres"))?,
        };
        let result = connection.query(statement);
        // After an error the connection may still wait for the statement.
        if result.is_ok() && !connection.client.is_closed() {
            idle().push(connection);
        }
        result
    }
}

fn describe(error: &tokio_postgres::Error) -> String {
    format!("{error:?}")
}

/// A server of a test's own with durable commits; stopped when dropped.
#[derive(Debug)]
pub struct OwnPostgres {
    server: Postgres,
    folder: String,
    /// The process that reads its input to the end, and then stops the server.
    script: Child,
}

impl OwnPostgres {
    pub fn start() -> Self {
        Self::start_under(&[])
    }

    /// Run by another program, such as one that mounts a disk for it.
    pub fn start_under(program: &[&str]) -> Self {
        Self::start_by(&[program, &[WITH_POSTGRES, "--durable"]].concat())
    }

    /// A standby of this server, by streaming replication.
    pub fn start_standby(&self) -> Self {
        Self::start_by(&[WITH_POSTGRES, "--standby", &self.folder])
    }

    /// By the script with these options, which another program may run.
    fn start_by(script: &[&str]) -> Self {
        let show = "echo \"$NOUNS_TEST_POSTGRES $NOUNS_TEST_POSTGRES_FOLDER\"; exec cat";
        let words = [script, &["sh", "-c", show]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let Some((address, folder)) = line.trim_end().split_once(' ') else {
            panic!("PostgreSQL did not start: {:?}", process.wait());
        };
        Self { server: Postgres(address.to_owned()), folder: folder.to_owned(), script: process }
    }

    /// With a clock of its own.
    pub fn start_under_clock(clock: &FakeClock) -> Self {
        let program = clock.command_prefix();
        Self::start_under(&program.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// `HOST:PORT`, for an address of several hosts.
    pub fn host(&self) -> &str {
        self.server.0.rsplit('@').next().unwrap()
    }

    /// Makes commits wait for these standbys.
    pub fn require_standbys(&self, names: &str) {
        self.sql("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        self.sql("postgres", "SELECT pg_reload_conf()");
    }

    /// A standby that has every commit before it is answered.
    pub fn start_synchronous_standby(&self) -> Self {
        let standby = self.start_standby();
        self.require_standbys("*");
        wait_until("the standby is synchronous", || {
            let state = self.sql("postgres", "SELECT sync_state FROM pg_stat_replication");
            (state.trim() == "sync").then_some(())
        });
        standby
    }

    /// Stops the replication to a standby, once it has replayed everything up to now.
    pub fn stop_replication(&self, standby: &Self) {
        let written = self.sql("postgres", "SELECT pg_current_wal_lsn()").trim().to_owned();
        let has_all = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'");
        wait_until("the standby has caught up", || {
            (standby.sql("postgres", &has_all).trim() == "t").then_some(())
        });
        standby.sql("postgres", "ALTER SYSTEM SET primary_conninfo = ''");
        standby.sql("postgres", "SELECT pg_reload_conf()");
        wait_until("nothing is replicated any more", || {
            let receivers = self.sql("postgres", "SELECT count(*) FROM pg_stat_replication");
            (receivers.trim() == "0").then_some(())
        });
    }

    /// Makes it the primary, and waits until it takes writes.
    pub fn promote(&self) {
        self.pg_ctl(&["promote"]);
        wait_until("the standby takes writes", || {
            (self.sql("postgres", "SELECT pg_is_in_recovery()").trim() == "f").then_some(())
        });
    }

    /// Ends all its processes with SIGKILL, as a power failure would.
    pub fn kill(&self) {
        kill_with_children(&self.process_id());
    }

    /// Stops all its processes with SIGSTOP: it accepts connections and answers nothing, until the result is dropped,
    /// which kills them.
    #[must_use]
    pub fn freeze(&self) -> FrozenPostgres<'_> {
        let postmaster = self.process_id();
        assert!(send_signal("STOP", std::slice::from_ref(&postmaster)), "PostgreSQL has ended");
        stop_with_children(&postmaster);
        FrozenPostgres(self)
    }

    /// The id of the postmaster process.
    pub fn process_id(&self) -> String {
        let file = Path::new(&self.folder).join("data/postmaster.pid");
        std::fs::read_to_string(file).unwrap().lines().next().unwrap().to_owned()
    }

    /// Stops it as `pg_ctl` does in this mode, `fast` or `immediate`, and starts it again.
    pub fn restart(&self, mode: &str) {
        self.pg_ctl(&["-m", mode, "restart"]);
    }

    /// Runs `pg_ctl` for it.
    pub fn pg_ctl(&self, args: &[&str]) {
        let mut command = Command::new(WITH_POSTGRES);
        let command = command.args(["--control", &self.folder]).args(args);
        let ended = Process::spawn(command).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

impl Deref for OwnPostgres {
    type Target = Postgres;

    fn deref(&self) -> &Postgres {
        &self.server
    }
}

impl Drop for OwnPostgres {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        drop(self.script.wait());
    }
}

/// A server that is frozen.
pub struct FrozenPostgres<'a>(&'a OwnPostgres);

impl Drop for FrozenPostgres<'_> {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// Returns whether all of them got it; one may have ended by itself.
fn send_signal(name: &str, process_ids: &[String]) -> bool {
    let line = format!("kill -{name} {}", process_ids.join(" "));
    Command::new("sh").args(["-c", &line]).stderr(Stdio::null()).status().unwrap().success()
}

/// Stops a process and its children with SIGSTOP, and returns their ids.
fn stop_with_children(process_id: &str) -> Vec<String> {
    let mut ids = vec![process_id.to_owned()];
    // It starts no more of them.
    send_signal("STOP", &ids);
    let children = child_processes(process_id);
    send_signal("STOP", &children);
    ids.extend(children);
    ids
}

/// Kills a process and its children with SIGKILL, and waits until they are gone.
pub fn kill_with_children(process_id: &str) {
    let ids = stop_with_children(process_id);
    send_signal("KILL", &ids);
    wait_until("the processes are gone", || {
        let is_gone = |id: &String| {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        ids.iter().all(is_gone).then_some(())
    });
}

fn child_processes(parent: &str) -> Vec<String> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().map_while(Result::ok) {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The state and the parent's id follow the name, which may contain anything.
        let parent_id = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if parent_id == Some(parent) {
            children.push(entry.file_name().into_string().unwrap());
        }
    }
    children
}

/// An open transaction that commits on request.
#[derive(Debug)]
pub struct OpenTransaction {
    psql: Child,
    /// The number that its statement returned.
    pub number: i64,
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        drop(self.psql.kill());
        drop(self.psql.wait());
    }
}

impl OpenTransaction {
    /// In the database of a server with this folder; the last statement returns a number.
    pub fn begin(folder: &Path, statements: &str) -> Self {
        let mut command = Postgres::shared().psql(&Postgres::database_name(folder));
        let mut psql = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        psql.stdin.as_mut().unwrap().write_all(statements.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(psql.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self { psql, number: line.trim().parse().unwrap() }
    }

    /// Runs more statements in it; the last returns a number, which replaces the stored one.
    pub fn run_statements(&mut self, statements: &str) {
        self.psql.stdin.as_mut().unwrap().write_all(statements.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(self.psql.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        self.number = line.trim().parse().unwrap();
    }

    pub fn commit(mut self) -> i64 {
        self.psql.stdin.take().unwrap().write_all(b"COMMIT;\n").unwrap();
        assert!(self.psql.wait().unwrap().success());
        self.number
    }
}
