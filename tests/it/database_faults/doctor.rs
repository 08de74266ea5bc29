//! `nouns doctor` beside a PostgreSQL that stops answering.

use std::thread;
use std::time::Duration;

use super::proxy::{Fault, FaultKind, MessagePosition, MessageSender, Proxy};
use super::{postgres_address, proxied_url};
use crate::harness::{Backend, EXECUTABLE, Postgres, Process, Setup};

/// Far less than the tests would wait, and enough for every limit of the command.
const END_MAX: Duration = Duration::from_secs(100);

/// Regression: it waited forever for an answer, wherever PostgreSQL stopped answering.
#[test]
fn doctor_ends_at_whichever_message_postgres_stops_answering() {
    let server = Setup::new(Backend::Postgres).with_authentication().start();
    let (folder, key) = (server.folder().to_owned(), server.key_file());
    let name = Postgres::database_name(&folder);
    let examine = |proxy: &Proxy| {
        let mut command = std::process::Command::new(EXECUTABLE);
        command.args(["doctor", "--database", &proxied_url(proxy, &name, "sslmode=disable")]);
        command.arg("--key-file").arg(&key).env_clear().current_dir(&folder);
        Process::spawn(&mut command).end_within(END_MAX)
    };
    let database = postgres_address(&Postgres::shared());
    let proxy = Proxy::start(database);
    proxy.record_messages();
    let ended = examine(&proxy);
    assert!(ended.stdout.contains("\nok       key "), "{ended:?}");
    let messages = proxy.recorded_messages();
    let count = messages.iter().filter(|(side, _)| *side == MessageSender::Database).count();
    assert!(count > 10, "{messages:?}");
    thread::scope(|scope| {
        for number in 1..=count {
            let examine = &examine;
            scope.spawn(move || {
                let proxy = Proxy::start(database);
                let (side, position) = (MessageSender::Database, MessagePosition::Before);
                proxy.plant_fault(Fault { side, number, position, kind: FaultKind::Blackhole });
                let ended = examine(&proxy);
                assert_eq!(ended.code, Some(2), "{number}: {ended:?}");
                let is_late = ["no answer within", "did not answer within"];
                let is_late = is_late.iter().any(|words| ended.stdout.contains(words));
                assert!(is_late, "{number}: {ended:?}");
            });
        }
    });
}
