//! Revocation of rights while a request waits, a response streams or a connection is idle.
//!
//! `nouns user` makes the change, and returns when every server has seen it.
//! The transaction itself refuses a request that waited for a lock, since the rights count that are
//! in force when the lock is granted.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::exports::{Export, ExportEnd, NDJSON, insert_rows};
use crate::harness::{
    Answer, Backend, Client, EXECUTABLE, ForeignLock, Http2, Person, Process, Server, Setup,
    Stopwatch, wait_until,
};

const MODEL: &str = r#"
title = "Log"
[server]
http2_prior_knowledge = true
[server.limits]
stream_idle_seconds_max = 600
failed_logins_max = 1000
send_seconds_max = 600
body_seconds_max = 600
request_seconds_max = 600
statement_seconds_max = 60
[resources.entry]
id = "integer"
[resources.entry.fields]
text = { type = "text" }
number = { type = "integer", filter = true }
[roles.writer]
entry = "*"
[roles.reader]
entry = ["get"]
[roles.unnumbered]
entry = { verbs = ["get", "post", "put", "patch", "delete"], hide = ["number"] }
[roles.positive]
entry = { verbs = ["get", "post", "put", "patch", "delete"], where = "number > 0" }
"#;

/// Longer than a server trusts its cached users.
const LEASE: Duration = Duration::from_millis(500);

fn start(backend: Backend) -> (Server, Person) {
    let server = Setup::new(backend).model(MODEL).with_authentication().start();
    let ann = Person::new("ann", "the password of ann");
    server.add_user(&ann, &["writer"]);
    (server, ann)
}

/// Begins `nouns user …` beside the server.
fn begin_user(server: &Server, arguments: &[&str]) -> Process {
    let mut command = Command::new(EXECUTABLE);
    command.arg("user").args(arguments);
    command.args(["--model", "model.toml", "--database", &server.database()]);
    command.arg("--key-file").arg(server.key_file()).env_clear().current_dir(server.folder());
    Process::spawn(&mut command)
}

/// Runs it to its end.
fn user(server: &Server, arguments: &[&str]) {
    let ended = begin_user(server, arguments).end();
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
}

fn as_admin(server: &Server, line: &str) -> Answer {
    server.request(line, &[("Authorization", &server.admin().basic())], "")
}

fn metric(server: &Server, name: &str) -> u64 {
    let answer = as_admin(server, "GET /-/metrics");
    let mut lines = answer.text().lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("{name}: {answer:?}"))
}

/// The stored entries: text and number of each.
fn stored(server: &Server) -> Vec<Value> {
    let entries = as_admin(server, "GET /entries?limit=500").json();
    let entries = entries["entries"].as_array().unwrap();
    entries.iter().map(|entry| json!([entry["text"], entry["number"]])).collect()
}

/// A request whose head and half of the body are sent.
struct SlowRequest {
    client: Client,
    rest: Vec<u8>,
    line: String,
}

impl SlowRequest {
    fn begin(
        server: &Server,
        authorization: &str,
        (line, headers, body): (&str, &str, &str),
    ) -> Self {
        let mut client = server.client();
        let (half, rest) = body.as_bytes().split_at(body.len() / 2);
        let head = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: {authorization}\r\n{headers}Content-Length: {}\r\n\r\n",
            server.address,
            body.len()
        );
        client.write(&[head.as_bytes(), half].concat());
        Self { client, rest: rest.to_vec(), line: format!("{line} {headers}") }
    }

    fn finish(mut self) -> (String, Answer) {
        self.client.write(&self.rest);
        let answer = self.client.read_answer(false);
        (self.line, answer)
    }
}

/// Every kind of write, on the two entries of `start_with_entries`.
fn writes() -> Vec<(&'static str, &'static str, &'static str)> {
    vec![
        ("POST /entries", "", r#"{"entry":{"text":"new","number":7}}"#),
        (
            "POST /entries",
            "Idempotency-Key: \"one\"\r\n",
            r#"{"entry":{"text":"keyed","number":7}}"#,
        ),
        (
            "POST /entries",
            "",
            r#"{"entries":[{"text":"bulk","number":7},{"text":"bulk","number":8}]}"#,
        ),
        ("POST /entries", "Content-Type: text/csv\r\n", "text,number\ntable,7\n"),
        ("PUT /entries/1", "", r#"{"entry":{"text":"replaced","number":7}}"#),
        ("PATCH /entries/1", "", r#"{"entry":{"text":"amended"}}"#),
        ("DELETE /entries/2", "", r#"{"this":"is read, and not looked at"}"#),
    ]
}

/// Sends all of them slowly, changes the users before they are complete, and finishes them.
fn send_slowly_during(
    server: &Server,
    ann: &Person,
    change: impl FnOnce(),
) -> Vec<(String, Answer)> {
    for number in [-1, -2] {
        let entry = json!({"entry": {"text": "old", "number": number}}).to_string();
        let answer = server.request("POST /entries", &[("Authorization", &ann.basic())], entry);
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    let mut requests: Vec<SlowRequest> =
        writes().into_iter().map(|write| SlowRequest::begin(server, &ann.basic(), write)).collect();
    let body = r#"{"entry":{"text":"by digest","number":7}}"#;
    let digest = ann.log_in(server, "/entries").answer("POST /entries", body.as_bytes());
    requests.push(SlowRequest::begin(server, &digest, ("POST /entries", "X-By: digest\r\n", body)));
    let sent = writes().iter().map(|(_, _, body)| body.len() / 2).sum::<usize>() + body.len() / 2;
    wait_until("the server has read all that was sent", || {
        (metric(server, "nouns_buffered_bytes") == sent as u64).then_some(())
    });
    change();
    requests.into_iter().map(SlowRequest::finish).collect()
}

fn assert_all_answered(answers: &[(String, Answer)], status: u16, problem: &str) {
    for (line, answer) in answers {
        assert_eq!(
            (answer.status, answer.problem().as_str()),
            (status, problem),
            "{line}: {answer:?}"
        );
    }
}

fn unchanged_entries() -> Vec<Value> {
    vec![json!(["old", -1]), json!(["old", -2])]
}

on_every_backend! {
    fn revocation_slow_body_of_a_disabled_user_is_refused(backend: Backend) {
        let (server, ann) = start(backend);
        let answers = send_slowly_during(&server, &ann, || user(&server, &["disable", "ann"]));
        assert_all_answered(&answers, 401, "credentials-wrong");
        for (line, answer) in &answers {
            assert_eq!(answer.all("WWW-Authenticate").len(), 2, "{line}: {answer:?}");
        }
        assert_eq!(stored(&server), unchanged_entries());
        // Nothing is stored under the idempotency key either.
        user(&server, &["enable", "ann"]);
        let (line, headers, body) = writes()[1];
        let (_, again) = SlowRequest::begin(&server, &ann.basic(), (line, headers, body)).finish();
        assert_eq!((again.status, again.header("Idempotent-Replayed")), (201, None), "{again:?}");
    }

    fn revocation_slow_body_of_a_removed_user_is_refused(backend: Backend) {
        let (server, ann) = start(backend);
        let answers = send_slowly_during(&server, &ann, || {
            user(&server, &["remove", "ann"]);
            // Another user with the same name and password.
            server.add_user(&ann, &["writer"]);
        });
        assert_all_answered(&answers, 401, "credentials-wrong");
        assert_eq!(stored(&server), unchanged_entries());
    }

    fn revocation_slow_body_with_a_replaced_password_is_refused(backend: Backend) {
        let (server, ann) = start(backend);
        let answers = send_slowly_during(&server, &ann, || {
            let users = as_admin(&server, "GET /-/users").json();
            let id = users["users"].as_array().unwrap().iter().find(|user| user["name"] == "ann").unwrap()["id"].clone();
            let line = format!("PATCH /-/users/{}", id.as_str().unwrap());
            let admin = server.admin().basic();
            let patch = r#"{"user":{"password":"another password"}}"#;
            assert_eq!(server.request(&line, &[("Authorization", &admin)], patch).status, 200);
            let changed = Instant::now();
            wait_until("the lease is over", || (changed.elapsed() > LEASE).then_some(()));
        });
        assert_all_answered(&answers, 401, "credentials-wrong");
        assert_eq!(stored(&server), unchanged_entries());
    }

    fn revocation_slow_body_after_losing_the_verb_is_forbidden(backend: Backend) {
        let (server, ann) = start(backend);
        let answers = send_slowly_during(&server, &ann, || user(&server, &["roles", "ann", "--role", "reader"]));
        assert_all_answered(&answers, 403, "forbidden");
        assert_eq!(stored(&server), unchanged_entries());
    }

    /// The rows and fields of the new roles apply, not those at the time of the head.
    fn revocation_slow_body_is_checked_against_the_new_roles(backend: Backend) {
        let (server, ann) = start(backend);
        let answers = send_slowly_during(&server, &ann, || user(&server, &["roles", "ann", "--role", "unnumbered"]));
        let statuses: Vec<u16> = answers.iter().map(|(_, answer)| answer.status).collect();
        assert_eq!(statuses, [422, 422, 422, 422, 422, 200, 204, 422]);
        assert_eq!(stored(&server), [json!(["amended", -1])]);

        let (server, ann) = start(backend);
        let answers = send_slowly_during(&server, &ann, || user(&server, &["roles", "ann", "--role", "positive"]));
        let statuses: Vec<u16> = answers.iter().map(|(_, answer)| answer.status).collect();
        assert_eq!(statuses, [201, 201, 201, 201, 404, 404, 404, 201]);
        assert_eq!(stored(&server)[..2], unchanged_entries());
    }

    fn revocation_of_others_does_not_affect_a_slow_body(backend: Backend) {
        let (server, ann) = start(backend);
        server.add_user(&Person::new("bob", "the password of bob"), &["writer"]);
        let answers = send_slowly_during(&server, &ann, || user(&server, &["disable", "bob"]));
        let statuses: Vec<u16> = answers.iter().map(|(_, answer)| answer.status).collect();
        assert_eq!(statuses, [201, 201, 201, 201, 200, 200, 204, 201]);
    }

    /// The request waits for a lock, and the holder of the lock revokes the right.
    fn revocation_refuses_a_write_queued_behind_it(backend: Backend) {
        let (server, ann) = start(backend);
        let entry = r#"{"entry":{"text":"old","number":-1}}"#;
        let ann = ann.basic();
        assert_eq!(server.request("POST /entries", &[("Authorization", &ann)], entry).status, 201);
        let disable = "UPDATE nouns_users SET disabled = TRUE WHERE name = 'ann';";
        // Caches the admin's login: a hash would take a part of the 5 seconds that the write waits on SQLite.
        metric(&server, "nouns_requests_in_flight");
        let lock = ForeignLock::lock_table(&server, "entries", disable);
        let mut queued = server.client();
        let body = r#"{"entry":{"text":"replaced","number":7}}"#;
        queued.write(format!("PUT /entries/1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: {ann}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        wait_until("it waits for the lock", || (metric(&server, "nouns_requests_in_flight") == 1).then_some(()));
        let waiting = Instant::now();
        wait_until("it has waited for longer than the lease", || (waiting.elapsed() > LEASE).then_some(()));
        lock.commit();
        let answer = queued.read_answer(false);
        assert_eq!((answer.status, answer.problem().as_str()), (401, "credentials-wrong"), "{answer:?}");
        assert_eq!(stored(&server), unchanged_entries()[..1]);
    }

    /// A head may come at the end of one lease, and its rights are trusted for another one. When the command has
    /// ended, both are over.
    fn requests_begun_while_the_command_runs_are_refused_after_it(backend: Backend) {
        let (server, ann) = start(backend);
        let write = ("POST /entries", "", r#"{"entry":{"text":"late","number":7}}"#);
        for _ in 0..3 {
            let answer = server.request("GET /entries", &[("Authorization", &ann.basic())], "");
            assert_eq!(answer.status, 200, "{answer:?}");
            let mut command = begin_user(&server, &["disable", "ann"]);
            let mut begun = Vec::new();
            while !command.has_ended() {
                begun.push(SlowRequest::begin(&server, &ann.basic(), write));
                let last = Instant::now();
                wait_until("it is time for the next", || (last.elapsed() > LEASE / 20).then_some(()));
            }
            assert_eq!(command.end().code, Some(0));
            for request in begun {
                let (_, answer) = request.finish();
                // Of many concurrent wrong passwords, some find the queue of the hasher full.
                assert!([401, 429].contains(&answer.status), "{answer:?}");
            }
            assert!(stored(&server).is_empty());
            user(&server, &["enable", "ann"]);
        }
    }

    fn keep_alive_connection_is_refused_after_a_revocation(backend: Backend) {
        let (server, ann) = start(backend);
        let mut client = server.client();
        let ann = [("Authorization", &*ann.basic())];
        assert_eq!(client.request("GET /entries", &ann, "").status, 200);
        user(&server, &["disable", "ann"]);
        let answer = client.request("GET /entries", &ann, "");
        assert_eq!((answer.status, answer.problem().as_str()), (401, "credentials-wrong"));
    }

    /// The client reads nothing, so that only the revocation can end the response.
    fn revocation_cuts_the_export_of_a_disabled_user(backend: Backend) {
        let (server, ann) = start(backend);
        insert_rows(&server, 60_000);
        let ann = ann.basic();
        let headers = format!("Accept: {NDJSON}\r\nAuthorization: {ann}\r\n");
        let mut stalled = Export::begin_with(&server, &headers);
        let mut over_http_2 = Http2::connect(&server);
        let fields = [("accept", NDJSON), ("authorization", &*ann)];
        over_http_2.request(1, ("GET", "/entries"), &fields, b"");
        assert!(over_http_2.read_until(|frame| frame.kind == Http2::DATA));
        wait_until("both are under way", || (metric(&server, "nouns_exports_in_flight") == 2).then_some(()));
        user(&server, &["disable", "ann"]);
        let returned = Stopwatch::start();
        wait_until("the exports are over", || (metric(&server, "nouns_exports_in_flight") == 0).then_some(()));
        wait_until("the responses are cut", || (metric(&server, "nouns_streams_in_flight") == 0).then_some(()));
        let took = returned.elapsed();
        println!("cut {took:?} after the command returned");
        // One second is promised, on a machine that has the time.
        assert!(took < Duration::from_secs(3), "{took:?}");
        assert_eq!(stalled.rest().1, ExportEnd::Cut);
        assert!(!over_http_2.read_until(|frame| frame.kind == Http2::DATA && frame.is_end()));
        wait_until("the log says why", || {
            let cut = server.log().matches("the rights of the caller have changed").count();
            (cut == 2).then_some(())
        });
        assert!(!server.log().contains("does not read its response"), "{}", server.log());
    }

    /// The other streams of the connection may belong to other users, as behind a proxy.
    fn revoked_http2_stream_leaves_its_connection_alone(backend: Backend) {
        let (server, ann) = start(backend);
        let bob = Person::new("bob", "the password of bob");
        server.add_user(&bob, &["writer"]);
        insert_rows(&server, 20_000);
        let mut client = Http2::connect(&server);
        for (stream, person) in [(1, &ann), (3, &bob)] {
            let fields = [("accept", NDJSON), ("authorization", &*person.basic())];
            client.request(stream, ("GET", "/entries"), &fields, b"");
        }
        wait_until("both are under way", || (metric(&server, "nouns_streams_in_flight") == 2).then_some(()));
        user(&server, &["disable", "ann"]);
        wait_until("one of them is cut", || (metric(&server, "nouns_streams_in_flight") == 1).then_some(()));
        client.open_window(1, 100 << 20);
        client.open_window(3, 100 << 20);
        let (mut is_reset, mut is_whole) = (false, false);
        while !(is_reset && is_whole) {
            let frame = client.next().unwrap_or_else(|| panic!("the connection ended: {}", server.log()));
            is_reset |= (frame.kind, frame.stream) == (Http2::RST_STREAM, 1);
            is_whole |= (frame.kind, frame.stream) == (Http2::DATA, 3) && frame.is_end();
            assert!(frame.stream != 1 || frame.kind != Http2::DATA || !frame.is_end(), "it looks whole");
        }
        let log = wait_until("the cut is logged", || {
            Some(server.log()).filter(|log| log.contains("the rights of the caller have changed"))
        });
        assert_eq!(log.matches("the rights of the caller have changed").count(), 1, "{log}");
        assert!(!log.contains("connection aborted"), "{log}");
    }

    fn revocation_of_others_does_not_cut_an_export(backend: Backend) {
        let (server, ann) = start(backend);
        insert_rows(&server, 20_000);
        server.add_user(&Person::new("bob", "the password of bob"), &["writer"]);
        let headers = format!("Accept: {NDJSON}\r\nAuthorization: {}\r\n", ann.basic());
        let mut export = Export::begin_with(&server, &headers);
        wait_until("it is under way", || (metric(&server, "nouns_exports_in_flight") == 1).then_some(()));
        user(&server, &["disable", "bob"]);
        // The same rights by another set of roles.
        user(&server, &["roles", "ann", "--role", "writer", "--role", "reader"]);
        let seen = Instant::now();
        wait_until("the servers have looked again", || (seen.elapsed() > LEASE).then_some(()));
        assert_eq!(export.rest().1, ExportEnd::Complete);
    }
}
