//! `nouns user` and `nouns key`: management of users and keys on the command line, while servers run.
//!
//! The tests start a server with authentication as an operator would, and send requests with `curl`.

mod keys;
mod rotation;
mod secrets;
mod terminal;
mod users;

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::{fs, thread};

use crate::harness::{
    Backend, DEBUG_EXECUTABLE, EXECUTABLE, FinishedProcess, Folder, LeakSearch, Process, Secrets,
    run_sql,
};

const PASSWORD: &str = "Circle of Life";

/// A database and a key file, and the commands that work on them.
struct AccountsFixture {
    backend: Backend,
    folder: Folder,
}

impl AccountsFixture {
    /// A database without users and without a key, as a server under `--open` leaves it.
    fn on(backend: Backend) -> Self {
        let accounts = Self::without_database(backend);
        accounts.create_tables(&accounts.database());
        accounts
    }

    /// No database yet; with PostgreSQL, one without tables.
    fn without_database(backend: Backend) -> Self {
        let accounts = Self { backend, folder: Folder::new() };
        accounts.database();
        accounts
    }

    /// Creates the tables of a database.
    fn create_tables(&self, database: &str) {
        let mut command = Command::new(EXECUTABLE);
        command.args(["serve", "--open", "--listen", "127.0.0.1:0", "--database", database]);
        let server = Process::spawn(command.env_clear().current_dir(self.folder.path()));
        server.first_line();
        server.signal("TERM");
        let ended = server.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }

    fn secrets(&self) -> Arc<Secrets> {
        Secrets::of_database(&self.database())
    }

    /// Runs a command to its end, and checks that its output contains no secret.
    fn run_to_end(&self, command: &mut Command, input: &str) -> FinishedProcess {
        let secrets = self.secrets();
        let words: Vec<_> =
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        if let (Some(name), true) =
            (words.get(2), words.iter().any(|word| word == "--password-stdin"))
        {
            secrets.learn_person(name, input.trim_end());
        }
        let ended = run_to_end(command, input);
        secrets.learn_files(&self.key_file());
        secrets
            .check("what a command says", format!("{}{}", ended.stdout, ended.stderr).as_bytes());
        ended
    }

    fn database(&self) -> String {
        self.backend.database(&self.folder, "nouns.db")
    }

    fn key_file(&self) -> PathBuf {
        self.folder.path().join("nouns.key")
    }

    fn password_file(&self) -> PathBuf {
        self.backend.password_file(&self.database(), &self.key_file())
    }

    fn key_text(&self) -> String {
        fs::read_to_string(self.key_file()).unwrap()
    }

    fn write_key(&self, text: &str) {
        fs::write(self.key_file(), text).unwrap();
        fs::set_permissions(self.key_file(), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// `nouns`, in the folder, with this database and a clean environment.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(EXECUTABLE);
        command.args(args).args(["--database", &self.database()]);
        command.env_clear().current_dir(self.folder.path());
        command
    }

    /// The same with the key file given.
    fn with_key(&self, args: &[&str]) -> Command {
        let mut command = self.command(args);
        command.args(["--key-file", "nouns.key"]);
        command
    }

    fn run(&self, args: &[&str]) -> FinishedProcess {
        self.run_to_end(&mut self.with_key(args), "")
    }

    /// Runs a command that must succeed, and returns its output.
    fn run_to_success(&self, args: &[&str], input: &str) -> String {
        let ended = self.run_to_end(&mut self.with_key(args), input);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?}");
        ended.stdout
    }

    /// Runs a command that must fail, and returns its message.
    fn run_to_failure(&self, args: &[&str], input: &str) -> String {
        run_to_failure(&mut self.with_key(args), input)
    }

    fn add(&self, name: &str) {
        self.run_to_success(
            &["user", "add", name, "--role", "clerk", "--password-stdin"],
            PASSWORD,
        );
    }

    fn sql(&self, text: &str) -> String {
        run_sql(self.backend, self.folder.path(), text)
    }

    fn fingerprint(&self) -> String {
        let query = "SELECT value FROM nouns_system WHERE name = 'key_fingerprint'";
        self.sql(query).trim().to_owned()
    }

    /// A first start that ends between the commit of the first user and the rename of its password file.
    fn interrupt_first_start(&self) {
        let mut command = Command::new(DEBUG_EXECUTABLE);
        command.args(["serve", "--listen", "127.0.0.1:0", "--key-file", "nouns.key"]);
        command.args(["--database", &self.database()]);
        command.env_clear().env("NOUNS_FAULT", "first_user:2").current_dir(self.folder.path());
        let ended = run_to_end(&mut command, "");
        assert!(ended.stderr.contains("planted at first_user"), "{ended:?}");
    }

    /// A server with authentication.
    fn serve(&self) -> AuthenticatedServer {
        let mut command = self.with_key(&["serve", "--listen", "127.0.0.1:0", "--log", "json"]);
        let process = Process::spawn(&mut command);
        let line = process.first_line();
        let (_, address) = line.rsplit_once(" at http://").expect("the line of a server");
        let places = (self.folder.path(), self.key_file());
        let last_look = LeakSearch::new(&process, self.backend, &self.database(), places);
        last_look.secrets.learn_realm("store");
        AuthenticatedServer {
            address: address.parse().unwrap(),
            _process: process,
            leak_search: last_look,
        }
    }

    /// The key of another database.
    fn foreign_key() -> &'static str {
        "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n"
    }
}

/// A server with authentication; killed when dropped.
struct AuthenticatedServer {
    address: SocketAddr,
    _process: Process,
    // Dropped after the process, whose log it searches.
    leak_search: LeakSearch,
}

impl AuthenticatedServer {
    /// The status that a user gets.
    fn status(&self, scheme: &str, name: &str, password: &str) -> String {
        let mut command = Command::new("curl");
        command.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", scheme, "-u"]);
        command.arg(format!("{name}:{password}")).arg(format!("http://{}/customers", self.address));
        let ended = Process::spawn(command.env_clear()).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout.trim().to_owned()
    }

    fn statuses_by_both_schemes(&self, name: &str, password: &str) -> [String; 2] {
        ["--basic", "--digest"].map(|scheme| self.status(scheme, name, password))
    }
}

/// Runs a command with this standard input until it ends.
fn run_to_end(command: &mut Command, input: &str) -> FinishedProcess {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // The command may end without reading it.
    let writer = thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    FinishedProcess {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

fn run_to_failure(command: &mut Command, input: &str) -> String {
    let ended = run_to_end(command, input);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    let line = ended.stderr.trim_end();
    assert!(line.starts_with("nouns: ") && line.lines().count() == 1, "{line}");
    line.trim_start_matches("nouns: ").to_owned()
}
