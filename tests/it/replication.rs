//! Synchronous replication of PostgreSQL: a write that was answered with success is on the standby.
//!
//! The primary and the standby are real, and of the test's own. A stopped standby makes every commit
//! wait; PostgreSQL ends that wait with a warning, and reports success, when the session is cancelled.
//! A primary whose standby has never existed is enough to cause that wait, and most tests have no
//! other.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::harness::{
    Answer, Client, EXECUTABLE, FinishedProcess, Folder, OwnPostgres, Process, Server, Setup,
    wait_until,
};

/// Creates that are batched, a unique value, children, and ids of both kinds.
const MODEL: &str = r#"
title = "Replication"
[server]
changes_keep = "forever"
[server.limits]
LIMITS
[resources.note.fields]
text = { type = "text" }
[resources.person]
plural = "people"
[resources.person.fields]
name = { type = "text", unique = true }
[resources.team]
id = "integer"
[resources.team.fields]
name = { type = "text" }
[resources.task]
parent = "team"
on_delete = "cascade"
[resources.task.fields]
title = { type = "text" }
"#;

const SYNC_WAITS: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

fn model(limits: &str) -> String {
    MODEL.replace("LIMITS", limits)
}

fn serve(database: &OwnPostgres, limits: &str) -> Server {
    Setup::replica(database.database_url("postgres")).model(&model(limits)).start()
}

/// Waits until commits wait for a standby that does not exist. PostgreSQL's checkpointer notifies the
/// sessions some time after a reload.
fn wait_until_commits_wait(primary: &OwnPostgres) {
    wait_until("a commit waits for a standby", || {
        let mut psql = primary.psql("postgres");
        psql.args(["-c", "SELECT pg_logical_emit_message(true, 'probe', '')"]);
        let mut probe = Process::spawn(&mut psql);
        let waits = wait_until("the commit is done, or waits", || {
            if count_sync_waits(primary) > 0 {
                Some(true)
            } else {
                probe.has_ended().then_some(false)
            }
        });
        waits.then_some(())
    });
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    primary.sql("postgres", end);
    wait_until("the probe has ended", || (count_sync_waits(primary) == 0).then_some(()));
}

fn count_sync_waits(database: &OwnPostgres) -> usize {
    database.sql("postgres", SYNC_WAITS).trim().parse().unwrap()
}

/// A write request.
struct WriteRequest {
    line: String,
    key: Option<String>,
    body: String,
}

impl WriteRequest {
    fn new(line: impl Into<String>, body: impl Into<String>) -> Self {
        Self { line: line.into(), key: None, body: body.into() }
    }

    fn send(&self, address: SocketAddr) -> Answer {
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(self.key.as_deref().map(|key| ("Idempotency-Key", key)));
        Client::connect(address).request(&self.line, &headers, &self.body)
    }
}

/// One of each kind of write. `word` distinguishes the rounds.
fn each_write(server: &Server, word: &str) -> Vec<WriteRequest> {
    let path = |path: &str, body: &str| server.create(path, body);
    let person = |name: &str| format!(r#"{{"person":{{"name":"{word} {name}"}}}}"#);
    let [replaced, patched] = ["old", "older"].map(|name| path("/people", &person(name)));
    let team = path("/teams", r#"{"team":{"name":"One"}}"#);
    path(&format!("{team}/tasks"), r#"{"task":{"title":"x"}}"#);
    let keyed = WriteRequest::new("POST /people", person("keyed"));
    let many = format!(r#"{{"people":[{{"name":"{word} many 1"}},{{"name":"{word} many 2"}}]}}"#);
    let mut writes = vec![
        WriteRequest::new("POST /people", person("one")),
        WriteRequest::new("POST /people", many),
        WriteRequest::new(format!("PUT {replaced}"), person("replaced")),
        WriteRequest::new(format!("PATCH {patched}"), person("patched")),
        WriteRequest::new(format!("DELETE {team}"), ""),
        WriteRequest::new("POST /teams", format!(r#"{{"team":{{"name":"{word}"}}}}"#)),
        WriteRequest { key: Some(format!("key-{word}")), ..keyed },
    ];
    // Some of these are written by one statement.
    let note = || WriteRequest::new("POST /notes", format!(r#"{{"note":{{"text":"{word}"}}}}"#));
    writes.extend((0..8).map(|_| note()));
    writes
}

fn send_all(address: SocketAddr, requests: &[WriteRequest]) -> Vec<Answer> {
    thread::scope(|scope| {
        let sent: Vec<_> =
            requests.iter().map(|request| scope.spawn(|| request.send(address))).collect();
        sent.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

fn assert_unknown(requests: &[WriteRequest], answers: &[Answer]) {
    for (request, answer) in requests.iter().zip(answers) {
        let line = &request.line;
        assert_eq!(answer.status, 503, "{line}: {answer:?}");
        assert_eq!(answer.problem(), "outcome-unknown", "{line}: {answer:?}");
        assert!(answer.header("Retry-After").is_some(), "{line}: {answer:?}");
    }
}

/// `nouns user add`, with the model and the key of a server's folder.
fn add_user(folder: &Path, database: &OwnPostgres, name: &str) -> FinishedProcess {
    let mut command = Command::new(EXECUTABLE);
    let address = database.database_url("postgres");
    command.args(["user", "add", name, "--password-stdin", "--model", "model.toml"]);
    command.args(["--database", &address, "--key-file", "nouns.key"]);
    command.env_clear().current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"Circle of Life\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    FinishedProcess {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// A complete failover: every write answered with success is on the promoted standby.
#[test]
fn synchronous_standby_failover_keeps_every_answered_write() {
    let primary = OwnPostgres::start();
    let server = serve(&primary, "request_seconds_max = 10");
    let folder = Folder::new();
    std::fs::write(folder.path().join("model.toml"), model("request_seconds_max = 10")).unwrap();
    let standby = primary.start_synchronous_standby();

    let before = each_write(&server, "before");
    let away = each_write(&server, "away");
    let answers = send_all(server.address, &before);
    for (request, answer) in before.iter().zip(&answers) {
        assert!((200..300).contains(&answer.status), "{}: {answer:?}", request.line);
    }
    let added = add_user(folder.path(), &primary, "ann");
    assert_eq!(added.code, Some(0), "{added:?}");

    standby.pg_ctl(&["-m", "fast", "stop"]);
    wait_until_commits_wait(&primary);
    assert_unknown(&away, &send_all(server.address, &away));
    let refused = add_user(folder.path(), &primary, "bob");
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{refused:?}");

    primary.pg_ctl(&["-m", "immediate", "stop"]);
    standby.pg_ctl(&["start"]);
    standby.pg_ctl(&["promote"]);
    drop(server);
    let server = serve(&standby, "");
    for (request, answer) in before.iter().zip(&answers) {
        let (method, path) = request.line.split_once(' ').unwrap();
        let found = answer.header("Location").map_or_else(|| path.to_owned(), str::to_owned);
        match method {
            "DELETE" => assert_eq!(server.get(&found).status, 404),
            _ if answer.body.is_empty() => {}
            _ if answer.header("Location").is_none() && method == "POST" => {}
            _ => assert_eq!(server.get(&found).body, answer.body, "{}", request.line),
        }
    }
    let names = "SELECT string_agg(name, ',' ORDER BY name) FROM people";
    assert_eq!(
        standby.sql("postgres", names).trim(),
        "away old,away older,before keyed,before many 1,before many 2,before one,\
         before patched,before replaced"
    );
    assert_eq!(standby.sql("postgres", "SELECT count(*) FROM notes").trim(), "8");
    assert_eq!(standby.sql("postgres", "SELECT name FROM nouns_users").trim(), "ann");
}

/// Another session may cancel the wait: the server notices the warning that comes with the success.
#[test]
fn synchronous_standby_wait_cancelled_is_outcome_unknown() {
    let primary = OwnPostgres::start();
    let server = serve(&primary, "");
    // A role that suppresses warnings must not hide it.
    primary.sql("postgres", "ALTER ROLE nouns SET client_min_messages = error");
    primary.restart("fast");
    let writes = wait_until("the server has found it again", || {
        (server.post("/notes", r#"{"note":{}}"#).status == 201).then(|| each_write(&server, "cut"))
    });
    primary.require_standbys("nobody");
    wait_until_commits_wait(&primary);
    let (address, count) = (server.address, writes.len());
    let requests = &writes;
    let answers = thread::scope(|scope| {
        let sent = scope.spawn(move || send_all(address, requests));
        let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity \
             WHERE wait_event = 'SyncRep'";
        wait_until("all are answered", || {
            primary.sql("postgres", cancel);
            sent.is_finished().then_some(())
        });
        sent.join().unwrap()
    });
    assert_eq!(answers.len(), count);
    assert_unknown(&writes, &answers);
    primary.require_standbys("");
    let again = writes.iter().find(|request| request.key.is_some()).unwrap().send(address);
    assert_eq!(again.status, 201, "the key tells what became of it: {again:?}");
}

/// Each waiting commit occupies a database session. Their number is bounded, and reads still succeed.
#[test]
fn synchronous_standby_waits_use_a_bounded_number_of_connections() {
    let threads = thread::available_parallelism().unwrap().get();
    let connections_max = 3 * threads;
    let limits = format!("request_seconds_max = 1\ndatabase_connections_max = {connections_max}");
    let primary = OwnPostgres::start();
    let server = serve(&primary, &limits);
    // On a busy machine a commit may take longer than the deadline of one second.
    let path = wait_until("a note is created", || {
        let answer = server.post("/notes", r#"{"note":{"text":"first"}}"#);
        answer.header("Location").map(str::to_owned)
    });
    primary.require_standbys("nobody");
    wait_until_commits_wait(&primary);
    let requests: Vec<_> = (0..4 * threads)
        .map(|_| WriteRequest::new("POST /notes", r#"{"note":{"text":"waits"}}"#))
        .collect();
    wait_until("no more are let to the database", || {
        let answers = send_all(server.address, &requests);
        assert!(answers.iter().all(|answer| answer.status == 503), "{answers:?}");
        let is_sent = |answer: &Answer| answer.problem() == "outcome-unknown";
        (!answers.iter().any(is_sent)).then_some(())
    });
    let waits = count_sync_waits(&primary);
    assert!(waits <= 2 * connections_max, "{waits} sessions wait");
    // Without a connection for reads, none would ever be answered.
    wait_until("it still reads", || (server.get(&path).status == 200).then_some(()));
    primary.require_standbys("");
    wait_until("all are done", || (count_sync_waits(&primary) == 0).then_some(()));
    wait_until("it writes again", || {
        (server.post("/notes", r#"{"note":{}}"#).status == 201).then_some(())
    });
}

/// A start commits too. It locks no table while that commit waits, reports what it waits for, and times out.
#[test]
fn start_without_its_synchronous_standby_reports_it_and_times_out() {
    let primary = OwnPostgres::start();
    let server = serve(&primary, "");
    let path = server.create("/notes", r#"{"note":{"text":"first"}}"#);
    primary.require_standbys("nobody");
    wait_until_commits_wait(&primary);
    let (process, _folder) = spawn_newer(&primary, &[]);
    wait_until("it says what it waits for", || {
        process.stderr().contains("waits for a synchronous standby").then_some(())
    });
    assert!(process.stderr().contains(r#""synchronous_standby_names":"nobody""#));
    assert_eq!(server.get(&path).status, 200);
    let ended = process.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    let message = ended.stderr.lines().last().unwrap();
    let address = primary.database_url("postgres");
    assert_eq!(
        message.replace(&address, "ADDRESS"),
        "nouns: ADDRESS: PostgreSQL has not confirmed a commit within 15 seconds, because no synchronous \
         standby answers (synchronous_standby_names = 'nobody'); start the standby, or take it out of \
         synchronous_standby_names and reload PostgreSQL; with --wait the start goes on waiting"
    );
    // It has touched no table.
    assert_eq!(primary.sql("postgres", "SELECT count(*) FROM nouns_servers").trim(), "1");
    let columns = "SELECT count(*) FROM information_schema.columns WHERE column_name = 'mood'";
    assert_eq!(primary.sql("postgres", columns).trim(), "0");
}

#[test]
fn start_with_wait_serves_when_commits_no_longer_wait_for_a_standby() {
    let primary = OwnPostgres::start();
    primary.require_standbys("nobody");
    wait_until_commits_wait(&primary);
    let (process, _folder) = spawn_newer(&primary, &["--wait"]);
    wait_until("it says what it waits for", || {
        process.stderr().contains("waits for a synchronous standby").then_some(())
    });
    assert!(!process.stderr().contains("--wait"), "it waits already: {}", process.stderr());
    primary.require_standbys("");
    let line = process.first_line();
    assert!(line.starts_with("nouns: serving "), "{line}");
    process.signal("TERM");
    assert_eq!(process.end().code, Some(0));
}

#[test]
fn start_that_waits_for_a_standby_is_ended_by_sigterm() {
    let primary = OwnPostgres::start();
    primary.require_standbys("nobody");
    wait_until_commits_wait(&primary);
    let (mut process, _folder) = spawn_newer(&primary, &["--wait"]);
    wait_until("it waits", || (count_sync_waits(&primary) > 0).then_some(()));
    process.signal("TERM");
    assert!(!process.wait().success());
}

/// A start with one more field.
fn spawn_newer(primary: &OwnPostgres, flags: &[&str]) -> (Process, Folder) {
    let newer = model("").replace("text = { type", "mood = { type = \"text\" }\ntext = { type");
    let folder = Folder::new();
    let setup = Setup::replica(primary.database_url("postgres")).model(&newer).flags(flags);
    (Process::spawn(&mut setup.command(&folder)), folder)
}
