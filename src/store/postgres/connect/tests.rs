//! Connections to a private PostgreSQL, and to servers that imitate one.

mod certificates;
pub(in crate::store) mod cluster;
mod doors;
mod imitations;
mod session;

use std::time::Duration;

use super::*;
use crate::store::postgres::Environment;

/// Long enough for a busy machine; no test waits for it to elapse.
const PATIENCE: Duration = Duration::from_secs(60);

const SESSION: Session = Session {
    pooling: Pooling::Session,
    statement_ms_max: 5_000,
    lock_ms_max: 4_000,
    idle_in_transaction_ms_max: 20_000,
};

fn address(text: &str) -> Address {
    Address::parse(text, &Environment::default()).unwrap()
}

/// Connects, and runs one query.
fn ask(text: &str, session: &Session, question: &str) -> Result<String, ConnectError> {
    ask_within(text, session, question, PATIENCE)
}

fn ask_within(
    text: &str,
    session: &Session,
    question: &str,
    patience: Duration,
) -> Result<String, ConnectError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (until, database_clock) = (clock::now() + patience, DatabaseClock::default());
        let connected = address(text).connect(session, &database_clock, until).await;
        let (client, driver) = connected?;
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
fn said(outcome: Result<String, ConnectError>) -> String {
    match outcome {
        Ok(answer) => answer,
        Err(ConnectError::Passing(message)) => format!("PASSING {message}"),
        Err(ConnectError::Lasting(message)) => format!("LASTING {message}"),
    }
}
