//! Panics injected in each stage and each thread: each fails the request in which it happens, and no
//! other.
//!
//! The executable under test is a debug build, which panics where `NOUNS_FAULT` says (`src/fault.rs`).
//! The same request may be answered with an error and its change be stored, when the panic comes
//! after the commit; a write that is answered as done is always stored.

use serde_json::Value;

use crate::contention::{CLIENTS, run_concurrently};
use crate::harness::{
    ANN, Answer, Backend, Client, Folder, Process, Server, Setup, run_sql, wait_until,
};

const BEA: &str = r#"{"customer":{"name":"Bea","email":"bea@example.com"}}"#;

/// The request that meets the panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PanicRequest {
    Create,
    /// The same, by a client that accepts a content coding.
    CreateCoded,
    /// A list so long that a thread of the reader pool reads it.
    LongList,
    Show,
    /// An export of the collection.
    Export,
    Nothing,
}

/// The expected response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PanicResponse {
    Problem(u16, &'static str),
    /// The status alone: the code that writes the body panicked.
    StatusOnly,
    /// The connection ends without a response.
    ConnectionClosed,
    /// As without a panic.
    Success,
}

/// Where it panics, the request, the response, and whether a create is stored.
type PanicRow = (&'static str, PanicRequest, PanicResponse, bool);

const INTERNAL: PanicResponse = PanicResponse::Problem(500, "internal");

const STAGES: &[PanicRow] = &[
    ("head:1", PanicRequest::Create, INTERNAL, false),
    ("route:1", PanicRequest::Create, INTERNAL, false),
    ("identify:1", PanicRequest::Create, INTERNAL, false),
    ("permit:1", PanicRequest::Create, INTERNAL, false),
    ("negotiate:1", PanicRequest::Create, INTERNAL, false),
    ("body:1", PanicRequest::Create, INTERNAL, false),
    ("intent:1", PanicRequest::Create, INTERNAL, false),
    ("plan:1", PanicRequest::Create, INTERNAL, false),
    ("admission:1", PanicRequest::Create, INTERNAL, false),
    ("queue:1", PanicRequest::Create, INTERNAL, false),
    ("transaction:1", PanicRequest::Create, INTERNAL, false),
    ("entry:1", PanicRequest::Create, INTERNAL, false),
    ("reply:1", PanicRequest::Create, INTERNAL, true),
    // An item is first encoded for its change log entry.
    ("format:2", PanicRequest::Create, INTERNAL, true),
    ("problem:1", PanicRequest::Nothing, PanicResponse::StatusOnly, false),
    ("coding:1", PanicRequest::CreateCoded, PanicResponse::StatusOnly, true),
    ("finish:1", PanicRequest::Create, PanicResponse::StatusOnly, true),
    ("line:1", PanicRequest::Create, PanicResponse::StatusOnly, true),
    ("read@worker:1", PanicRequest::Show, INTERNAL, false),
];

const THREADS: &[PanicRow] = &[
    ("commit:1", PanicRequest::Create, INTERNAL, false),
    ("answer:1", PanicRequest::Create, INTERNAL, true),
    ("sweep:1", PanicRequest::Create, PanicResponse::Success, true),
    ("sweep:1-", PanicRequest::Create, PanicResponse::Success, true),
    ("log:1", PanicRequest::Create, PanicResponse::Success, true),
    ("webhooks:1", PanicRequest::Create, PanicResponse::Success, true),
    ("webhooks:1-", PanicRequest::Create, PanicResponse::Success, true),
    // Before the first byte; in the middle it is a cut: `exports::limits`.
    ("export:1", PanicRequest::Export, INTERNAL, false),
    // The other client's connection is the first.
    ("accept:2", PanicRequest::Create, PanicResponse::ConnectionClosed, false),
    ("connection:2", PanicRequest::Create, PanicResponse::ConnectionClosed, false),
];

/// Threads of SQLite alone: the WAL's, and the reader pool.
const THREADS_OF_SQLITE: &[PanicRow] = &[
    ("checkpoint:2", PanicRequest::Create, PanicResponse::Success, true),
    ("read@reader:1", PanicRequest::LongList, INTERNAL, false),
    ("pool@reader:1", PanicRequest::LongList, PanicResponse::Problem(503, "unavailable"), false),
];

/// A database with one customer, created once and copied for every row.
struct PreparedDatabase {
    folder: Folder,
    path: String,
}

impl PreparedDatabase {
    fn new(backend: Backend) -> Self {
        let server = Server::on(backend);
        let path = server.create("/customers", ANN);
        Self { folder: server.stop(), path }
    }
}

/// Sends one request; `None` when the connection ends without a response.
fn send(server: &Server, sent: PanicRequest, path: &str) -> Option<Answer> {
    let (line, body) = match sent {
        PanicRequest::Create | PanicRequest::CreateCoded => ("POST /customers".to_owned(), BEA),
        PanicRequest::LongList => ("GET /customers?limit=200".to_owned(), ""),
        PanicRequest::Show => (format!("GET {path}"), ""),
        PanicRequest::Export => ("GET /customers".to_owned(), ""),
        PanicRequest::Nothing => ("GET /nothing".to_owned(), ""),
    };
    let accept = match sent {
        PanicRequest::Export => "text/csv, application/problem+json;q=0.1",
        _ => "*/*",
    };
    let mut client = server.client();
    let length = body.len();
    let address = server.address;
    let coded = if sent == PanicRequest::CreateCoded { "Accept-Encoding: gzip\r\n" } else { "" };
    client.write(
        format!(
            "{line} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\n{coded}Content-Length: {length}\r\n\r\n{body}"
        )
        .as_bytes(),
    );
    (!client.is_closed()).then(|| client.read_answer(false))
}

/// The log lines about one request.
fn lines(server: &Server, request_id: &str) -> Vec<Value> {
    let log = server.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["request_id"] == request_id).collect()
}

fn check(backend: Backend, start: &PreparedDatabase, &(fault, sent, got, is_stored): &PanicRow) {
    let (place, _) = fault.split_once([':', '@']).unwrap();
    let planted = format!("planted at {place}");
    let server = Setup::new(backend).fault(fault).start_in(backend.copy_database(&start.folder));
    let mut bystander = Client::connect(server.address);
    if got == PanicResponse::ConnectionClosed {
        // A worker has accepted it, so that the next connection is the second.
        assert_eq!(bystander.request("GET /-/health", &[], "").status, 200, "{fault}");
    }
    let answer = send(&server, sent, &start.path);
    check_answer(&server, fault, got, answer.as_ref());
    wait_until("the panic is in the log", || server.log().contains(&planted).then_some(()));

    // Other requests, and the same one again, succeed.
    let shown = bystander.request(&format!("GET {}", start.path), &[], "");
    assert_eq!(shown.status, 200, "{fault}: {shown:?}");
    let again = server.create("/customers", BEA);
    let ready = server.get("/-/ready");
    assert_eq!(ready.status, 200, "{fault}: {ready:?}");
    let log = wait_until("the log goes on", || {
        let id = ready.header("X-Request-Id").unwrap();
        (!lines(&server, id).is_empty()).then(|| server.log())
    });
    assert!(log.lines().count() < 30, "{fault}: it goes round in circles:\n{log}");

    // As after a power cut: every answered write is there, with its entry in the change log.
    let folder = server.kill();
    let items = 2 + usize::from(is_stored);
    let counts = "SELECT (SELECT count(*) FROM customers), (SELECT count(*) FROM nouns_changes), \
        (SELECT count(*) FROM customers JOIN nouns_changes ON nouns_changes.subject = '/customers/' || customers.id)";
    let counted = run_sql(backend, folder.path(), counts);
    assert_eq!(counted, format!("{items}|{items}|{items}\n"), "{fault}");
    let server = Setup::new(backend).start_in(folder);
    assert_eq!(server.get(&again).status, 200, "{fault}");
}

fn check_answer(server: &Server, fault: &str, got: PanicResponse, answer: Option<&Answer>) {
    let (place, _) = fault.split_once([':', '@']).unwrap();
    let Some(answer) = answer else {
        assert_eq!(got, PanicResponse::ConnectionClosed, "{fault}");
        return;
    };
    let text = answer.to_string();
    assert!(!text.contains("planted") && !text.contains("panic"), "{fault}: {text}");
    let id = answer.header("X-Request-Id").unwrap();
    let cause = match got {
        PanicResponse::Problem(status, slug) => {
            let problem = (answer.status, answer.problem());
            assert_eq!(problem, (status, slug.to_owned()), "{fault}: {text}");
            // The writer thread's panics concern several requests.
            if ["commit", "answer", "pool"].contains(&place) { "panic" } else { place }
        }
        PanicResponse::StatusOnly => {
            assert_eq!((answer.status, answer.text()), (500, ""), "{fault}: {text}");
            place
        }
        PanicResponse::Success => return assert_eq!(answer.status, 201, "{fault}: {text}"),
        PanicResponse::ConnectionClosed => panic!("{fault}: an answer: {text}"),
    };
    wait_until("the request's line has the cause", || {
        let lines = lines(server, id);
        let causes = lines.iter().filter_map(|line| line["cause"].as_str());
        let mut causes = causes.filter(|words| words.contains("panic"));
        causes.any(|words| words.contains(cause)).then_some(())
    });
}

#[test]
fn panic_in_a_sqlite_thread_fails_only_its_requests() {
    let start = PreparedDatabase::new(Backend::Sqlite);
    THREADS_OF_SQLITE.iter().for_each(|row| check(Backend::Sqlite, &start, row));
}

/// As many panics as SQLite's pool has threads, and it still reads.
#[test]
fn panic_in_the_reader_pool_loses_no_thread() {
    let backend = Backend::Sqlite;
    let start = PreparedDatabase::new(backend);
    let server =
        Setup::new(backend).fault("pool@reader:1-4").start_in(backend.copy_database(&start.folder));
    let told: Vec<_> = (0..5)
        .map(|_| send(&server, PanicRequest::LongList, &start.path).unwrap().status)
        .collect();
    assert_eq!(told, [503, 503, 503, 503, 200]);
}

on_every_backend! {
    fn panic_in_a_stage_fails_one_request(backend: Backend) {
        let start = PreparedDatabase::new(backend);
        STAGES.iter().for_each(|row| check(backend, &start, row));
    }

    fn panic_in_a_thread_fails_only_its_requests(backend: Backend) {
        let start = PreparedDatabase::new(backend);
        THREADS.iter().for_each(|row| check(backend, &start, row));
    }

    /// Insert batching may coalesce concurrent creates.
    fn panic_among_concurrent_creates_fails_one(backend: Backend) {
        let start = PreparedDatabase::new(backend);
        for fault in ["transaction:9", "entry:20"] {
            let server = Setup::new(backend).fault(fault).start_in(backend.copy_database(&start.folder));
            let told = run_concurrently(&server, 1, |_, _| ("POST /customers".to_owned(), BEA.to_owned()));
            let wrong: Vec<_> = told.iter().filter(|answer| answer.status != 201).collect();
            let [wrong] = &*wrong else { panic!("{fault}: {wrong:?}") };
            assert_eq!((wrong.status, wrong.problem().as_str()), (500, "internal"), "{fault}");
            let list = server.get("/customers?limit=500").json();
            assert_eq!(list["customers"].as_array().unwrap().len(), 1 + (CLIENTS - 1), "{fault}");
        }
    }

    /// A worker's event loop cannot continue: the others finish, and the process logs it and ends.
    fn panic_in_a_worker_loop_ends_the_process(backend: Backend) {
        let start = PreparedDatabase::new(backend);
        let server = Setup::new(backend).fault("worker:3").start_in(backend.copy_database(&start.folder));
        // At least two connections, so that every worker of a small machine has one.
        let mut first = Client::connect(server.address);
        assert_eq!(first.request("GET /-/ready", &[], "").status, 200);
        let created = server.create("/customers", BEA);
        assert!(Client::connect(server.address).is_closed());
        let log = wait_until("the end is logged", || {
            let log = server.log();
            log.contains("ended by an internal error").then_some(log)
        });
        assert!(log.contains("planted at worker"), "{log}");
        assert!(log.ends_with("nouns: ended by an internal error: a worker thread died\n"), "{log}");
        let (status, folder) = server.wait();
        assert_eq!(status.code(), Some(1));
        let server = Setup::new(backend).start_in(folder);
        for path in [&start.path, &created] {
            assert_eq!(server.get(path).status, 200);
        }
    }

    /// Nothing is half created: the next start begins from scratch.
    fn panic_at_start_ends_the_start(backend: Backend) {
        let folder = Folder::new();
        let ended = Process::spawn(&mut Setup::new(backend).fault("create:1").command(&folder)).end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{}", ended.stderr);
        assert!(ended.stderr.contains("nouns: ended by an internal error: panic: planted at create"), "{}", ended.stderr);
        let server = Setup::new(backend).start_in(folder);
        server.create("/customers", ANN);
    }
}
