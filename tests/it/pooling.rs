//! PostgreSQL behind pgbouncer in transaction mode, which gives each transaction another session.
//!
//! SQLite is not involved. The proxy has three sessions for all of a server's connections, so that
//! state left in one affects the others.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use expect_test::{Expect, expect};
use regex::Regex;
use serde_json::json;

use crate::harness::{
    ANN, Backend, Client, Folder, Masks, OpenTransaction, Postgres, Process, Server, Setup,
    wait_until,
};

const STORE: &str = include_str!("../../examples/store/nouns.toml");
const POOLED: &str = "\n[server]\ndatabase_pooling = \"transaction\"\n";

/// A pgbouncer in front of the tests' PostgreSQL; stopped when dropped.
pub struct PgBouncer {
    child: Child,
    port: u16,
    /// The database behind it. Dropped after the proxy, so that no session has it open.
    folder: Folder,
}

impl PgBouncer {
    /// `more` is added to the proxy's settings.
    pub fn start(more: &str) -> Self {
        let folder = Folder::new();
        let direct = Backend::Postgres.database(&folder, "nouns.db");
        let name = Postgres::database_name(folder.path());
        // The tests' PostgreSQL does not sync. Here it cannot be set per session.
        Postgres::shared()
            .sql("postgres", &format!("ALTER DATABASE {name} SET synchronous_commit = on"));
        let place = direct.split_once("nouns@").unwrap().1.split_once('/').unwrap().0.to_owned();
        let (host, port) = place.split_once(':').unwrap();
        let settings = |listen: u16| {
            format!(
                "[databases]\n* = host={host} port={port} user=nouns\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {listen}\nunix_socket_dir =\n\
                 auth_type = any\npool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 500\n{more}\n"
            )
        };
        for _ in 0..20 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            fs::write(folder.path().join("pgbouncer.ini"), settings(free)).unwrap();
            if let Some(child) = start_listening(folder.path(), free) {
                return Self { child, port: free, folder };
            }
        }
        panic!("pgbouncer found no free port");
    }

    pub fn setup(&self, model: &str) -> Setup {
        let name = Postgres::database_name(self.folder.path());
        Setup::replica(format!("postgres://nouns@127.0.0.1:{}/{name}", self.port)).model(model)
    }

    fn serve(&self) -> Server {
        self.setup(&format!("{STORE}{POOLED}")).start()
    }

    /// A start that must fail, and its one message.
    fn assert_start_fails(&self, model: &str, message: &Expect) {
        let folder = Folder::new();
        let ended = Process::spawn(&mut self.setup(model).command(&folder)).end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        // Each version of the proxy has its own wording.
        let words = Regex::new(r"\(unsupported startup parameter[^)]*\)").unwrap();
        let output = ended.stderr.replace(&format!(":{}", self.port), ":PORT");
        message.assert_eq(&words.replace(&output, "(…)"));
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Starts pgbouncer, and waits until it listens. `None`: another program has the port.
fn start_listening(folder: &Path, port: u16) -> Option<Child> {
    let log = folder.join("pgbouncer.log");
    let program =
        if Path::new("/usr/sbin/pgbouncer").exists() { "/usr/sbin/pgbouncer" } else { "pgbouncer" };
    let mut command = Command::new(program);
    command.arg(folder.join("pgbouncer.ini")).current_dir("/").env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).unwrap());
    // As root it needs the name of another user.
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.args(["-u", "nobody"]);
    }
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
    let line = format!("listening on 127.0.0.1:{port}");
    wait_until("pgbouncer listens", || {
        let text = fs::read_to_string(&log).unwrap();
        if text.contains(&line) {
            return Some(true);
        }
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none() || text.contains("nowhere to listen"), "{text}");
        ended.map(|_| false)
    })
    .then_some(child)
}

/// Each kind of request, one after the other.
#[test]
fn pgbouncer_requests_of_every_kind_succeed() {
    let proxy = PgBouncer::start("");
    let server = proxy.serve();
    let mut masks = Masks::default();
    let customer = server.create("/customers", ANN);
    let order =
        r#"{"order":{"items":[{"product":"cup","quantity":2,"unit_price":250}],"note":"\u00fc"}}"#;
    let order = server.create(&format!("{customer}/orders"), order);
    let many = json!({"customers": [{"name": "Bea", "email": "b@x.org"}, {"name": "Cem", "email": "c@x.org"}]});
    let mut outcomes = String::new();
    let mut send = |line: &str, body: &str| {
        let answer = server.request(line, &[], body);
        let (verb, _) = line.split_once(' ').unwrap();
        outcomes += &format!("{verb} {} {}\n", answer.status, masks.text(answer.text()));
    };
    send("POST /customers", &many.to_string());
    send(&format!("GET {customer}"), "");
    send(&format!("PUT {customer}"), &ANN.replace("Ann", "Ada"));
    send(&format!("PUT {customer}"), &ANN.replace("Ann", "Ada"));
    send(&format!("GET {order}"), "");
    send("GET /customers?limit=2", "");
    send(&format!("DELETE {customer}"), "");
    send(&format!("GET {order}"), "");
    send("GET /-/ready", "");
    expect![[r#"
        POST 201 {"customers":[{"id":"<id-1>","name":"Bea","email":"b@x.org","created_at":"<time-1>","updated_at":"<time-1>","version":1},{"id":"<id-2>","name":"Cem","email":"c@x.org","created_at":"<time-1>","updated_at":"<time-1>","version":1}]}
        GET 200 {"customer":{"id":"<id-3>","name":"Ann","email":"ann@example.com","created_at":"<time-2>","updated_at":"<time-2>","version":1}}
        PUT 200 {"customer":{"id":"<id-3>","name":"Ada","email":"ann@example.com","created_at":"<time-2>","updated_at":"<time-3>","version":2}}
        PUT 200 {"customer":{"id":"<id-3>","name":"Ada","email":"ann@example.com","created_at":"<time-2>","updated_at":"<time-3>","version":2}}
        GET 200 {"order":{"id":"<id-4>","customer_id":"<id-3>","status":"placed","currency":"EUR","items":[{"product":"cup","quantity":2,"unit_price":250}],"total":500,"note":"ü","created_at":"<time-4>","updated_at":"<time-4>","version":1}}
        GET 200 {"customers":[{"id":"<id-3>","name":"Ada","email":"ann@example.com","created_at":"<time-2>","updated_at":"<time-3>","version":2},{"id":"<id-1>","name":"Bea","email":"b@x.org","created_at":"<time-1>","updated_at":"<time-1>","version":1}],"page":{"limit":2,"next":"<cursor-1>"}}
        DELETE 204 
        GET 404 {"type":"/-/problems/not-found","title":"There is no such item","status":404,"instance":"/customers/<id-3>/orders/<id-4>","request_id":"<request-1>"}
        GET 200 {"status":"ready"}
    "#]].assert_eq(&outcomes);
    let name = Postgres::database_name(proxy.folder.path());
    let changes = Postgres::shared().sql(&name, "SELECT count(*) FROM nouns_changes");
    assert_eq!(changes.trim(), "7", "two removed by one request");
}

/// A cursor lives in one transaction, which the proxy keeps on one session; more exports than sessions
/// wait for each other, and leave nothing behind.
#[test]
fn pgbouncer_exports_beyond_the_sessions_wait() {
    let proxy = PgBouncer::start("");
    let server = proxy.serve();
    let people: Vec<_> =
        (0..1_000).map(|n| json!({"name": format!("p{n}"), "email": "p@x.org"})).collect();
    for _ in 0..3 {
        assert_eq!(server.post("/customers", json!({"customers": people}).to_string()).status, 201);
    }
    thread::scope(|scope| {
        for accept in ["application/x-ndjson", "text/csv"].repeat(3) {
            let mut client = server.client();
            scope.spawn(move || {
                let whole = client.request("GET /customers", &[("Accept", accept)], "");
                let lines = whole.text().lines().filter(|line| line.contains("p@x.org")).count();
                assert_eq!((whole.status, lines), (200, 3_000), "{accept}");
            });
        }
    });
    server.create("/customers", ANN);
}

/// More connections than the proxy has sessions, concurrently: reads, creates, and one hot item.
#[test]
fn pgbouncer_many_clients_share_few_sessions() {
    const CLIENTS: usize = 16;
    const ROUNDS: usize = 12;
    let proxy = PgBouncer::start("");
    let server = proxy.serve();
    let hot = server.create("/customers", ANN);
    let work = |client: usize| {
        let mut connection = Client::connect(server.address);
        let mut versions = Vec::new();
        for round in 0..ROUNDS {
            let body =
                json!({"customer": {"name": format!("{client} {round}"), "email": "a@x.org"}});
            let body = body.to_string();
            let new = connection.request("POST /customers", &[], &body);
            assert_eq!(new.status, 201, "{new:?}");
            let path = new.header("Location").unwrap().to_owned();
            let read = connection.request(&format!("GET {path}"), &[], "");
            assert_eq!(read.text(), new.text());
            let put = connection.request(&format!("PUT {hot}"), &[], &body);
            assert_eq!(put.status, 200, "{put:?}");
            versions.push(put.json()["customer"]["version"].as_u64().unwrap());
        }
        versions
    };
    let versions: Vec<u64> = thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || work(client))).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let last = u64::try_from(CLIENTS * ROUNDS).unwrap() + 1;
    assert_eq!(versions.len(), CLIENTS * ROUNDS);
    assert!(versions.into_iter().collect::<BTreeSet<_>>().into_iter().eq(2..=last));
    // Only a few sessions were used.
    let name = Postgres::database_name(proxy.folder.path());
    let text = format!(
        "SELECT count(*) BETWEEN 1 AND 3 FROM pg_stat_activity WHERE datname = '{name}' AND backend_type = 'client backend'"
    );
    assert_eq!(Postgres::shared().sql("postgres", &text).trim(), "t");
    server.stop();
}

/// The setting is missing: the proxy refuses or ignores the session settings.
#[test]
fn pgbouncer_without_the_pooling_setting_fails_the_start() {
    PgBouncer::start("").assert_start_fails(STORE, &expect![[r#"
        nouns: PostgreSQL at 127.0.0.1:PORT is behind a proxy that does not pass our settings on (…); if it is a pooling proxy such as pgbouncer, put database_pooling = "transaction" into [server]
    "#]]);
    PgBouncer::start("ignore_startup_parameters = options").assert_start_fails(STORE, &expect![[r#"
        nouns: a proxy at 127.0.0.1:PORT does not pass our settings on to PostgreSQL; if it is a pooling proxy such as pgbouncer, put database_pooling = "transaction" into [server]
    "#]]);
}

/// Settings that cannot be set per session have to be right already.
#[test]
fn pgbouncer_sessions_with_wrong_settings_fail_the_start() {
    let proxy = PgBouncer::start("");
    let name = Postgres::database_name(proxy.folder.path());
    let set = |text: &str| {
        Postgres::shared().sql("postgres", &format!("ALTER DATABASE {name} SET {text}"))
    };
    let pooled = format!("{STORE}{POOLED}");
    set("synchronous_commit = off");
    proxy.assert_start_fails(&pooled, &expect![[r#"
        nouns: synchronous_commit is off at 127.0.0.1:PORT, so an acknowledged write could be lost; run: ALTER ROLE "nouns" SET synchronous_commit = on
    "#]]);
}

/// Session settings have no effect behind the proxy, so the start sets timeouts for each transaction.
#[test]
fn start_behind_a_proxy_times_out_while_another_start_hangs() {
    let proxy = PgBouncer::start("");
    let lock = "BEGIN; SELECT 1 FROM pg_advisory_xact_lock(1313821262, 1);\n";
    let late = OpenTransaction::begin(proxy.folder.path(), lock);
    let folder = Folder::new();
    let setup = proxy.setup(&format!("{STORE}{POOLED}"));
    let ended = Process::spawn(&mut setup.command(&folder)).end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    let message = "another server that starts has not finished for 20 seconds";
    assert!(ended.stderr.contains(message), "{}", ended.stderr);
    late.commit();
    proxy.serve();
}
