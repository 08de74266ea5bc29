//! A start without its database: the message, and the time until it.

use std::io::{Read, Write};
use std::time::Duration;

use expect_test::{Expect, expect};

use super::proxy::{Fault, FaultKind, MessagePosition, MessageSender, Proxy};
use super::{model, postgres_address, proxied_url};
use crate::harness::{
    ClosedPort, FinishedProcess, Folder, Postgres, Process, Setup, Stopwatch, is_soak, wait_until,
};

/// The start fails with this message, well before a supervisor gives up on it.
fn assert_start_fails(setup: Setup, expected: &Expect, masked: &[(&str, &str)]) {
    let folder = Folder::new();
    let start = Stopwatch::start();
    let (FinishedProcess { code, stdout, mut stderr }, _folder) =
        setup.try_start_in(folder).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    for (text, mask) in masked {
        stderr = stderr.replace(text, mask);
    }
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
    expected.assert_eq(&stderr);
}

#[test]
fn start_without_a_listening_database_fails() {
    let closed = ClosedPort::reserve();
    let port = closed.address.port().to_string();
    let address = format!("postgres://nouns@127.0.0.1:{port}/nouns?sslmode=disable");
    assert_start_fails(
        Setup::replica(address),
        &expect![[r#"
        nouns: cannot reach PostgreSQL at 127.0.0.1:PORT (connection refused); start it, or check --database; start with --wait to retry
    "#]],
        &[(&port, "PORT")],
    );
}

#[test]
fn start_with_a_silent_database_times_out() {
    let proxy = Proxy::start(postgres_address(&Postgres::shared()));
    proxy.accept_silently();
    let port = proxy.address.port().to_string();
    // The default is 10 s.
    let is_long = is_soak();
    let (limit, said) = if is_long { ("", "10.0s") } else { ("&connect_timeout=2", "2.0s") };
    let setup = Setup::replica(proxied_url(&proxy, "nouns", &format!("sslmode=disable{limit}")));
    assert_start_fails(
        setup,
        &expect![[r#"
            nouns: cannot reach PostgreSQL at 127.0.0.1:PORT (no answer within TIME); start it, or check --database; start with --wait to retry
        "#]],
        &[(&port, "PORT"), (said, "TIME")],
    );
}

#[test]
fn start_with_a_missing_database_fails() {
    let server = Postgres::shared();
    let port = postgres_address(&server).port().to_string();
    assert_start_fails(
        Setup::replica(server.database_url("nowhere")),
        &expect![[r#"
        nouns: PostgreSQL at 127.0.0.1:PORT has no such database (database "nowhere" does not exist); run: CREATE DATABASE "nowhere", or check the address
    "#]],
        &[(&port, "PORT")],
    );
}

#[test]
fn start_with_a_missing_user_fails() {
    let server = postgres_address(&Postgres::shared());
    let setup = Setup::replica(format!("postgres://nobody@{server}/postgres?sslmode=disable"));
    assert_start_fails(
        setup,
        &expect![[r#"
        nouns: PostgreSQL at 127.0.0.1:PORT does not let us in (role "nobody" does not exist); check the user of the address
    "#]],
        &[(&server.port().to_string(), "PORT")],
    );
}

/// Stands for a PostgreSQL server with a password: one message is enough.
#[test]
fn start_without_the_needed_password_fails() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let asks = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        stream.write_all(&[b'R', 0, 0, 0, 8, 0, 0, 0, 3]).unwrap();
        // Waits until the client disconnects.
        drop(stream.read(&mut [0; 1]));
    });
    let address = format!("postgres://nouns@127.0.0.1:{port}/nouns?sslmode=disable");
    assert_start_fails(
        Setup::replica(address),
        &expect![[r#"
        nouns: PostgreSQL at 127.0.0.1:PORT requires a password; set the right one: in NOUNS_DATABASE, PGPASSWORD or a passfile
    "#]],
        &[(&port, "PORT")],
    );
    asks.join().unwrap();
}

/// The server logs once that it waits, and serves when the database is up.
#[test]
fn start_waiting_for_the_database_serves_when_it_is_up() {
    let proxy = Proxy::start(postgres_address(&Postgres::shared()));
    proxy.refuse_connections();
    let folder = Folder::new();
    folder.with_database(Postgres::create_database);
    let address = proxied_url(&proxy, &Postgres::database_name(folder.path()), "sslmode=disable");
    let setup = Setup::replica(address).model(&model(""));
    let mut command = setup.command(&folder);
    let process = Process::spawn(command.arg("--wait"));
    // It has logged that it waits, and has tried once more since.
    wait_until("it says that it waits", || {
        process.stderr().contains("waiting for the database").then_some(())
    });
    let tried = proxy.accepted_connections();
    wait_until("it tries again", || (proxy.accepted_connections() > tried + 1).then_some(()));
    proxy.clear_fault();
    let line = process.first_line();
    assert!(line.starts_with("nouns: serving "), "{line}");
    assert_eq!(process.stderr().matches("waiting for the database").count(), 1);
    assert!(!process.stderr().contains("--wait"), "it waits already: {}", process.stderr());
    process.signal("TERM");
    assert_eq!(process.end().code, Some(0));
}

/// A start that waits loses the database at some of its messages, and goes on when it is back: also where it creates the
/// first user.
#[test]
fn start_waiting_for_the_database_survives_its_loss_at_any_message() {
    let run = |fault: Option<Fault>| {
        let proxy = Proxy::start(postgres_address(&Postgres::shared()));
        let folder = Folder::new();
        folder.with_database(Postgres::create_database);
        let address =
            proxied_url(&proxy, &Postgres::database_name(folder.path()), "sslmode=disable");
        let setup = Setup::replica(address).model(&model("")).with_authentication();
        proxy.record_messages();
        if let Some(fault) = fault {
            proxy.plant_fault(fault);
        }
        let mut command = setup.command(&folder);
        let process = Process::spawn(command.arg("--wait"));
        if fault.is_some() {
            wait_until("the database is lost, and missed", || {
                let said = process.stderr();
                assert!(said.lines().all(|line| line.starts_with('{')), "{fault:?}: {said}");
                said.contains("waiting for the database").then_some(())
            });
            proxy.clear_fault();
        }
        let line = process.first_line();
        assert!(line.starts_with("nouns: serving "), "{fault:?}: {line} {}", process.stderr());
        let messages = proxy.recorded_messages();
        let files = std::fs::read_dir(folder.path()).unwrap();
        let mut names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        assert!(
            names.any(|name| name.ends_with(".admin-password")),
            "{fault:?}: {}",
            process.stderr()
        );
        process.signal("TERM");
        assert_eq!(process.end().code, Some(0));
        messages.iter().filter(|(side, _)| *side == MessageSender::Server).count()
    };
    let count = run(None);
    let points = if is_soak() { count } else { 8 };
    for at in 1..points {
        let number = 1 + at * count / points;
        let (side, position) = (MessageSender::Server, MessagePosition::After);
        run(Some(Fault { side, number, position, kind: FaultKind::Outage }));
    }
}
