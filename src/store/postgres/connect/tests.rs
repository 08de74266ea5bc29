//! Connections to a private PostgreSQL, and to servers that imitate one.

mod certificates;
pub mod cluster;
mod authentication;
mod fake_servers;
mod hosts;
mod session;

use std::time::Duration;

use super::*;
use crate::store::postgres::connection_url::address::LibpqEnvironment;

/// Long enough for a busy machine; no test waits for it to elapse.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

const SESSION: SessionSettings = SessionSettings {
    pooling: Pooling::Session,
    statement_ms_max: 5_000,
    lock_ms_max: 4_000,
    idle_in_transaction_ms_max: 20_000,
};

fn parse_url(text: &str) -> PostgresUrl {
    PostgresUrl::parse(text, &LibpqEnvironment::default()).unwrap()
}

/// Connects, and runs one query.
fn connect_and_query(
    text: &str,
    session: &SessionSettings,
    question: &str,
) -> Result<String, ConnectError> {
    connect_and_query_within(text, session, question, TEST_TIMEOUT)
}

fn connect_and_query_within(
    text: &str,
    session: &SessionSettings,
    question: &str,
    patience: Duration,
) -> Result<String, ConnectError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (until, primary) = (clock::now() + patience, PrimaryState::default());
        let connected = parse_url(text).connect(session, &primary, until).await;
        let OpenConnection { client, driver, .. } = connected?;
        let driver = tokio::spawn(driver);
        let answer = client.simple_query(question).await.unwrap();
        let rows = answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                let values = (0..row.len()).map(|index| row.get(index).unwrap_or("NULL"));
                Some(values.collect::<Vec<_>>().join("|"))
            }
            _ => None,
        });
        let rows = rows.collect::<Vec<_>>().join("\n");
        drop(client);
        driver.await.unwrap().unwrap();
        Ok(rows)
    })
}

/// The outcome in one line: the answer, or whether the error is transient and its message.
fn outcome_line(outcome: Result<String, ConnectError>) -> String {
    match outcome {
        Ok(answer) => answer,
        Err(ConnectError::Transient(message)) => format!("TRANSIENT {message}"),
        Err(ConnectError::Permanent(message)) => format!("PERMANENT {message}"),
    }
}
