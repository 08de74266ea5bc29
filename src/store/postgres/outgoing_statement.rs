//! Pipelined sending of statements.
//!
//! Several statements are sent before the first is answered (`join_pipelined`); the answers arrive in the
//! order of the statements.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use futures_util::TryStreamExt;
use futures_util::future::{MaybeDone, maybe_done};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, RowStream, Statement};

use crate::store::statement::Bind;

/// A statement to send.
pub enum OutgoingStatement<'a> {
    Command(&'static str),
    Prepared(Statement, &'a [Bind<'a>]),
    /// Prepared and executed in one round trip.
    Unprepared(&'a str, &'a [Bind<'a>]),
}

/// Sends a statement, and returns how many rows it changed. A command counts as one.
pub async fn execute(client: &Client, message: OutgoingStatement<'_>) -> Result<u64, Error> {
    match message {
        OutgoingStatement::Command(word) => client.batch_execute(word).await.map(|()| 1),
        OutgoingStatement::Prepared(statement, binds) => {
            client.execute_raw(&statement, binds).await
        }
        OutgoingStatement::Unprepared(sql, binds) => {
            let rows = Box::pin(client.query_typed_raw(sql, with_unknown_types(binds))).await?;
            let mut rows = pin!(rows);
            while rows.as_mut().try_next().await?.is_some() {}
            Ok(rows.rows_affected().unwrap_or(0))
        }
    }
}

pub async fn query(client: &Client, message: OutgoingStatement<'_>) -> Result<RowStream, Error> {
    match message {
        OutgoingStatement::Command(word) => {
            Box::pin(client.query_typed_raw(word, with_unknown_types(&[]))).await
        }
        OutgoingStatement::Prepared(statement, binds) => client.query_raw(&statement, binds).await,
        OutgoingStatement::Unprepared(sql, binds) => {
            Box::pin(client.query_typed_raw(sql, with_unknown_types(binds))).await
        }
    }
}

/// Leaves the parameter types to PostgreSQL.
fn with_unknown_types<'a>(binds: &'a [Bind<'a>]) -> impl Iterator<Item = (&'a Bind<'a>, Type)> {
    binds.iter().map(|bind| (bind, Type::UNKNOWN))
}

/// Polls all futures once, in order, before it awaits the first, so that all statements are sent together.
/// Answers arrive in the same order.
pub async fn join_pipelined<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut flight: Vec<Pin<Box<MaybeDone<F>>>> =
        futures.map(|future| Box::pin(maybe_done(future))).collect();
    poll_fn(|context| {
        for one in &mut flight {
            let _ = one.as_mut().poll(context);
        }
        Poll::Ready(())
    })
    .await;
    let mut all = Vec::with_capacity(flight.len());
    for mut one in flight {
        one.as_mut().await;
        all.extend(one.as_mut().take_output());
    }
    all
}
