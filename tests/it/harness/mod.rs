//! The test harness: starts the real executable, sends requests to it, and stops it.
//!
//! It knows no rule of the interface: the tests say what a response should be.
//! A server gets an empty environment and its own folder as the working directory, so that no
//! `NOUNS_…` variable and no `nouns.toml` of the developer reaches a test.

mod backend;
mod closed_port;
mod event_parser;
mod event_source;
mod fake_clock;
mod folder;
mod handmade_digest;
mod http;
mod http2;
mod foreign_lock;
mod login;
mod masks;
mod postgres;
mod process;
mod secrets;
mod stopwatch;
mod tls;

use std::fmt::Debug;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

pub use backend::{Backend, run_sql};
pub use closed_port::ClosedPort;
pub use event_parser::StreamEvent;
pub use event_source::{ConnectError, EventSource, Received, StreamEnd};
pub use fake_clock::FakeClock;
pub use folder::Folder;
pub use foreign_lock::ForeignLock;
pub use handmade_digest::{HeldChallenge, md5, parameter};
pub use http::{Answer, Client};
pub use http2::Http2;
pub use login::{DigestSession, Person};
pub use masks::Masks;
pub use postgres::{OpenTransaction, OwnPostgres, Postgres, WITH_POSTGRES, kill_with_children};
pub use process::{FinishedProcess, Process, parse_address};
pub use secrets::{LeakSearch, Secrets};
pub use stopwatch::Stopwatch;
pub use tls::{CertificatePair, trusting_client};

/// Long enough for the slowest machine; a test that reaches it has failed.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Whether the long versions of tests run: `./test --soak`.
pub fn is_soak() -> bool {
    std::env::var_os("NOUNS_SOAK").is_some()
}

/// A customer, as the body of a create.
pub const ANN: &str = r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#;

/// The executable under test: the one that cargo has built for these tests, or another one, such as a
/// release build, by its full path in `NOUNS_EXECUTABLE` while they are built.
pub const EXECUTABLE: &str = match option_env!("NOUNS_EXECUTABLE") {
    Some(path) => path,
    None => DEBUG_EXECUTABLE,
};

/// The debug build, the only one in which a panic can be injected.
pub const DEBUG_EXECUTABLE: &str = env!("CARGO_BIN_EXE_nouns");

/// Makes each test a module with one test for each backend. A test declares its argument: `server:
/// Server` is a server of the built-in store, `backend: Backend` is the backend alone.
/// The file imports the type it names.
///
/// A new backend is one more line here and one more arm in `harness/backend.rs`.
macro_rules! on_every_backend {
    ($($(#[$attribute:meta])* fn $name:ident($given:ident: $kind:ident) $body:block)*) => {
        $($(#[$attribute])* mod $name {
            use super::*;
            on_every_backend!(@test sqlite Sqlite $given $kind $body);
            on_every_backend!(@test postgres Postgres $given $kind $body);
        })*
    };
    (@test $test:ident $backend:ident $given:ident $kind:ident $body:block) => {
        #[test]
        fn $test() {
            let $given = $kind::on($crate::harness::Backend::$backend);
            $body
        }
    };
}

/// The configuration with which a server is started.
#[derive(Debug, Clone)]
pub struct Setup {
    backend: Backend,
    model: Option<String>,
    database: &'static str,
    fault: Option<String>,
    /// A program that runs the server, with its arguments.
    run_under: Vec<String>,
    /// A shared database, in place of one of its own.
    shared_database: Option<String>,
    /// Whether requests need authentication; and the key file, when it is not in the folder.
    has_authentication: bool,
    key_file: Option<PathBuf>,
    /// The certificate it serves, and the flags that tests add.
    tls: Option<CertificatePair>,
    flags: Vec<String>,
}

impl Setup {
    pub fn new(backend: Backend) -> Self {
        Self {
            backend,
            model: None,
            database: "nouns.db",
            fault: None,
            run_under: Vec::new(),
            shared_database: None,
            has_authentication: false,
            key_file: None,
            tls: None,
            flags: Vec::new(),
        }
    }

    /// One of several servers on the database at this URL.
    pub fn replica(address: String) -> Self {
        Self { shared_database: Some(address), ..Self::new(Backend::Postgres) }
    }

    /// The text of a model file; without one the server serves the built-in store.
    pub fn model(mut self, text: &str) -> Self {
        self.model = Some(text.to_owned());
        self
    }

    /// Another name of the database, relative to the server's folder.
    pub fn database(mut self, name: &'static str) -> Self {
        self.database = name;
        self
    }

    /// Where the server panics: `PLACE:N`, as `src/fault.rs` defines it.
    pub fn fault(mut self, fault: &str) -> Self {
        self.fault = Some(fault.to_owned());
        self
    }

    /// Requests need authentication; the first start creates the first user.
    pub fn with_authentication(mut self) -> Self {
        self.has_authentication = true;
        self
    }

    /// With authentication and the key of another server.
    pub fn key_file(mut self, path: PathBuf) -> Self {
        self.key_file = Some(path);
        self.with_authentication()
    }

    /// Serves over TLS, with this certificate, in `cert.pem` and `key.pem` of its folder.
    pub fn tls(mut self, pair: &CertificatePair) -> Self {
        self.tls = Some(pair.clone());
        self
    }

    /// More flags of `serve`.
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        self
    }

    /// Runs the server by another program, such as a tracer, which must leave it the child of the
    /// tests.
    pub fn run_under(mut self, program: &[impl AsRef<str>]) -> Self {
        self.run_under = program.iter().map(|word| word.as_ref().to_owned()).collect();
        self
    }

    pub fn start(self) -> Server {
        self.start_in(Folder::new())
    }

    /// Starts on the database that an earlier server left in `folder`.
    pub fn start_in(self, folder: Folder) -> Server {
        let (ended, _folder) = match self.try_start_in(folder) {
            Ok(server) => return server,
            Err(failed) => failed,
        };
        panic!("it did not start: {ended:?}");
    }

    /// Starts the server, or returns how the start ended.
    pub fn try_start_in(self, folder: Folder) -> Result<Server, (FinishedProcess, Folder)> {
        let process = Process::spawn(&mut self.command(&folder));
        let Some(line) = process.next_line() else { return Err((process.end(), folder)) };
        let (address, key_file) = (parse_address(&line), self.key_path(folder.path()));
        let last_look = LeakSearch::new(
            &process,
            self.backend,
            &self.database_url(&folder),
            (folder.path(), key_file),
        );
        last_look.secrets.register_server(address);
        Ok(Server { address, setup: self, process, leak_search: last_look, folder })
    }

    /// The command line of the server, in its folder and with an empty environment.
    pub fn command(&self, folder: &Folder) -> Command {
        let nouns = if self.fault.is_some() { DEBUG_EXECUTABLE } else { EXECUTABLE };
        let mut command = match self.run_under.split_first() {
            None => Command::new(nouns),
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(nouns);
                command
            }
        };
        command.arg("serve").env_clear().current_dir(folder.path());
        if let Some(text) = &self.model {
            fs::write(folder.path().join("model.toml"), text).unwrap();
            command.arg("model.toml");
        }
        if let Some(fault) = &self.fault {
            command.env("NOUNS_FAULT", fault);
        }
        if let Some(pair) = &self.tls {
            pair.write(folder.path());
            command.args(["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
        }
        if !self.flags.iter().any(|flag| flag == "--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(&self.flags).args(["--log", "json", "--database"]);
        command.arg(self.database_url(folder));
        if self.has_authentication {
            command.arg("--key-file").arg(self.key_path(folder.path()));
        } else {
            command.arg("--open");
        }
        command
    }

    fn key_path(&self, folder: &Path) -> PathBuf {
        self.key_file.clone().unwrap_or_else(|| folder.join("nouns.key"))
    }

    /// The value of `--database`.
    fn database_url(&self, folder: &Folder) -> String {
        match &self.shared_database {
            Some(address) => address.clone(),
            None => self.backend.database(folder, self.database),
        }
    }
}

/// A running server; killed, and its folder removed, when dropped.
#[derive(Debug)]
pub struct Server {
    pub address: SocketAddr,
    setup: Setup,
    // Before the folder, so that the process is gone when the folder is removed.
    process: Process,
    // In between, since it searches the files that the process has left in the folder.
    pub leak_search: LeakSearch,
    folder: Folder,
}

impl Server {
    /// The built-in store on this backend.
    pub fn on(backend: Backend) -> Self {
        Setup::new(backend).start()
    }

    pub fn backend(&self) -> Backend {
        self.setup.backend
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of its key file, for replicas of it.
    pub fn key_file(&self) -> PathBuf {
        self.setup.key_path(self.folder.path())
    }

    /// The file to which the first start writes the password of the first user.
    pub fn password_file(&self) -> PathBuf {
        self.setup.backend.password_file(&self.database(), &self.key_file())
    }

    /// The first user, created at the first start.
    pub fn admin(&self) -> Person {
        let path = self.password_file();
        let password =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        Person::new("admin", password.trim_end())
    }

    /// Creates a user with these roles.
    pub fn add_user(&self, person: &Person, roles: &[&str]) -> String {
        let (name, password) = (&person.name, &person.password);
        let user =
            serde_json::json!({"user": {"name": name, "password": password, "roles": roles}});
        let admin = self.admin().basic();
        let answer = self.request("POST /-/users", &[("Authorization", &admin)], user.to_string());
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.header("Location").unwrap().to_owned()
    }

    /// Its database, for replicas of it.
    pub fn database(&self) -> String {
        self.setup.database_url(&self.folder)
    }

    pub fn process_id(&self) -> u32 {
        self.process.child.id()
    }

    /// The server's stderr so far.
    pub fn log(&self) -> String {
        self.process.stderr.lock().unwrap().clone()
    }

    /// The server's stdout so far.
    pub fn output(&self) -> String {
        self.process.stdout.lock().unwrap().clone()
    }

    /// A connection that stays open between requests.
    pub fn client(&self) -> Client {
        match &self.setup.tls {
            None => Client::connect(self.address),
            Some(pair) => Client::connect_tls(self.address, pair.trusting_client()),
        }
    }

    /// Writes bytes on a new connection and returns everything until the server closes it.
    pub fn send_raw(&self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        let mut client = self.client();
        client.write(bytes.as_ref());
        client.read_to_close()
    }

    /// Sends a request given as text on a new connection: exactly as written, `\r\n` and all.
    pub fn send(&self, text: impl AsRef<[u8]>) -> Answer {
        self.client().send(text.as_ref())
    }

    /// `request("PUT /customers/1", &[("Accept", "text/html")], "{}")`, on a new connection.
    pub fn request(&self, line: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
        self.client().request(line, headers, body)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request(&format!("GET {path}"), &[], "")
    }

    /// A value of `/-/metrics`; `None` when it is missing.
    pub fn metric<T: FromStr<Err: Debug>>(&self, name: &str) -> Option<T> {
        let answer = self.get("/-/metrics");
        assert_eq!(answer.status, 200, "{answer:?}");
        let mut lines = answer.text().lines();
        lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(' ')?.parse().unwrap()))
    }

    pub fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request(&format!("POST {path}"), &[], body)
    }

    pub fn put(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request(&format!("PUT {path}"), &[], body)
    }

    pub fn delete(&self, path: &str) -> Answer {
        self.request(&format!("DELETE {path}"), &[], "")
    }

    /// Creates an item and returns its path.
    pub fn create(&self, path: &str, body: impl AsRef<[u8]>) -> String {
        let answer = self.post(path, body);
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.header("Location").expect("a created item has a Location").to_owned()
    }

    /// Sends SIGHUP, at which the server reloads the certificate.
    pub fn send_sighup(&self) {
        self.process.signal("HUP");
    }

    /// Sends SIGTERM without waiting for the end.
    pub fn terminate(&self) {
        self.process.signal("TERM");
    }

    /// Sends signals, one directly after the other. Returns whether the process existed.
    pub fn try_signals(&self, names: &[&str]) -> bool {
        self.process.try_signals(names)
    }

    /// Stops the whole process with SIGSTOP, until `resume`.
    pub fn pause(&self) {
        self.process.signal("STOP");
        let stat = format!("/proc/{}/stat", self.process.child.id());
        wait_until("the process stands still", || {
            fs::read_to_string(&stat).unwrap().contains(") T ").then_some(())
        });
    }

    pub fn resume(&self) {
        self.process.signal("CONT");
    }

    /// Waits for the end after `terminate`.
    pub fn wait(mut self) -> (ExitStatus, Folder) {
        let status = self.process.wait();
        (status, self.folder)
    }

    /// Stops the server gracefully, and keeps its folder.
    pub fn stop(self) -> Folder {
        self.terminate();
        let log = self.process.stderr.clone();
        let (status, folder) = self.wait();
        assert_eq!(status.code(), Some(0), "after SIGTERM; stderr:\n{}", log.lock().unwrap());
        folder
    }

    /// Kills the server with SIGKILL, and keeps its folder.
    pub fn kill(mut self) -> Folder {
        self.process.kill();
        self.folder
    }

    /// Stops and starts again on the same data.
    pub fn restart(self) -> Self {
        let setup = self.setup.clone();
        setup.start_in(self.stop())
    }
}

/// Runs `nouns` with these arguments in a folder until it ends by itself.
pub fn run_nouns(folder: &Path, args: &[&str]) -> FinishedProcess {
    Process::spawn(Command::new(EXECUTABLE).args(args).env_clear().current_dir(folder)).end()
}

/// Runs a shell script in a mount namespace of its own, with `$1` the folder and `$2` the executable.
pub fn run_in_namespace(folder: &Path, script: &str) -> FinishedProcess {
    // Root may mount directly, and in a chroot cannot have a user namespace.
    const UNSHARE: &str = r#"
        if unshare --mount true 2>/dev/null; then exec unshare --mount "$@"; fi
        exec unshare --map-root-user --mount "$@"
    "#;
    let mut command = Command::new("sh");
    command.args(["-ec", UNSHARE, "sh", "sh", "-ec", script, "sh"]).arg(folder).arg(EXECUTABLE);
    command.env_remove("NOUNS_DATABASE");
    Process::spawn(&mut command).end()
}

/// Polls until a condition holds; the only place where a test sleeps.
pub fn wait_until<T>(what: &str, mut happened: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = happened() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {TIMEOUT:?} in vain until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
