//! Idempotency keys: a write that is retried is executed once, and its stored response is replayed.
//!
//! The transaction first looks up the key, and at its end stores the response, so that neither the write nor
//! the response exists without the other. The content of the response is opaque here. A refusal is stored and
//! committed too, after its writes are rolled back to a savepoint. Where several servers write, a request
//! that finds its key locked is refused immediately and retried by the caller, so that it holds no connection
//! while it waits.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::plan::{IdempotentRequest, IdempotentResponse, Outcome, RequestRefusal};
use crate::store::context::StoreContext;
use crate::store::driver::{Driver, Then};
use crate::store::error::{InternalError, StatementError, StoreError, WriteError};
use crate::store::statement::{Bind, Columns, Statement};
use crate::store::system_values;

/// The key in `nouns_system` that records that the table exists.
const FORMAT_KEY: &str = "keys_form";

/// Creates the table, unless it exists.
pub async fn create<D: Driver>(driver: &mut D) -> Result<(), StatementError> {
    if system_values::read(driver, FORMAT_KEY).await?.is_some() {
        return Ok(());
    }
    for table in D::DIALECT.idempotency_tables {
        driver.execute(table, &[]).await?;
    }
    system_values::write(driver, FORMAT_KEY, "1").await
}

/// How long a response is stored.
pub fn retention(context: &StoreContext) -> Duration {
    Duration::from_secs(context.model.server.limits.idempotency_key_seconds.into())
}

/// Reads the stored response to this request.
pub async fn read<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    once: &IdempotentRequest,
) -> Result<Outcome, StoreError> {
    let find = find_statement(driver, context, once)?;
    let kept = driver.query_statement(&find, IdempotencyRecord::read).await?.pop();
    let kept = kept.ok_or(StoreError::Refused(RequestRefusal::Missing))?;
    kept.replay(once).map_err(StoreError::Refused)
}

fn find_statement<'a, D: Driver>(
    driver: &D,
    context: &'a StoreContext,
    once: &'a IdempotentRequest,
) -> Result<Statement<'a>, StatementError> {
    let expired = driver.now().checked_sub(retention(context));
    let expired =
        expired.ok_or_else(|| StatementError::Engine("the clock is out of range".to_owned()))?;
    let binds = vec![Bind::Text(&once.scope), Bind::Moment(expired)];
    Ok(Statement::new(&context.sql.keys.find, binds))
}

/// A row of `nouns_keys`.
struct IdempotencyRecord {
    fingerprint: String,
    answer: String,
}

impl IdempotencyRecord {
    fn read(row: &dyn Columns) -> Result<Self, InternalError> {
        Ok(Self { fingerprint: row.required_text(0)?, answer: row.required_text(1)? })
    }

    /// The stored response, if it belongs to the same request; a refusal if the key was used for another one.
    fn replay(self, once: &IdempotentRequest) -> Result<Outcome, RequestRefusal> {
        match once.matches(&self.fingerprint) {
            true => {
                Ok(Outcome::Idempotent(IdempotentResponse { text: self.answer, is_replay: true }))
            }
            false => Err(RequestRefusal::IdempotencyKeyReused),
        }
    }
}

/// Locks the key, and looks up its stored response.
pub async fn lock_or_replay<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    once: &IdempotentRequest,
) -> Result<Option<Outcome>, WriteError> {
    let find = find_statement(driver, context, once)?;
    let Some(claim) = D::DIALECT.lock_idempotency_key else {
        let kept = driver.query_statement(&find, IdempotencyRecord::read).await?.pop();
        return Ok(kept.map(|kept| kept.replay(once)).transpose()?);
    };
    // Two statements, in this order: the second one sees the commit of the previous holder of the lock.
    let statements = [Statement::new(claim, vec![Bind::Integer(once.lock_number)]), find];
    let read = |at: usize, row: &dyn Columns| match at {
        0 => Ok((row.boolean(0)? == Some(true), None)),
        _ => Ok((true, Some(IdempotencyRecord::read(row)?))),
    };
    let mut found = driver.query_all(&statements, read, |_| false).await?.into_iter().flatten();
    let is_claimed = found.next().is_some_and(|(is_claimed, _)| is_claimed);
    match found.next() {
        // A stored response is final, regardless of who holds the lock now.
        Some((_, Some(kept))) => Ok(Some(kept.replay(once)?)),
        _ if is_claimed => Ok(None),
        _ => Err(RequestRefusal::IdempotencyKeyInFlight.into()),
    }
}

/// Renders the response. A large one is rendered where it blocks no other task; SQLite's writer thread, which
/// has no runtime, renders all of them itself.
pub async fn encode_answer(
    once: &IdempotentRequest,
    done: Result<Outcome, RequestRefusal>,
) -> Result<Option<String>, StatementError> {
    let is_large = done.as_ref().is_ok_and(Outcome::is_large);
    let Some(runtime) = Handle::try_current().ok().filter(|_| is_large) else {
        return Ok((once.render)(done));
    };
    let render = once.render.clone();
    match runtime.spawn_blocking(move || render(done)).await {
        Ok(text) => Ok(text),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down.
            Err(_) => Err(StatementError::TimedOut),
        },
    }
}

pub async fn store_answer<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    once: &IdempotentRequest,
    text: &str,
) -> Result<(), StatementError> {
    let print = once.fingerprints.first().map_or("", |print| print);
    let binds = vec![
        Bind::Text(&once.scope),
        Bind::Text(print),
        Bind::Moment(driver.now()),
        Bind::Integer(i64::try_from(text.len()).unwrap_or(i64::MAX)),
        Bind::Text(text),
    ];
    let store = Statement::new(&context.sql.keys.store, binds);
    Ok(driver.execute_all(&[store], Then::Commit).await?)
}
