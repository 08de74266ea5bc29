//! Idempotency keys: a write that is retried is executed once, and its stored answer is replayed.
//!
//! The transaction first looks up the key, and at its end stores the answer, so that neither the write nor
//! the answer exists without the other. The content of the answer is opaque here.
//! A refusal is stored and committed too, after its writes are rolled back to a savepoint. Where several
//! servers write, a request that finds its key locked is refused at once and retried by the caller, so that
//! it holds no connection while it waits.

use std::time::Duration;

use super::driver::{Bind, Columns, Driver, Failure, Stroke};
use super::schema::{recall, remember};
use super::sql::Dialect;
use super::transaction::{self, Context, Given, Halt, Pace, broken};
use super::{Broken, StoreError};
use crate::plan::{Once, Outcome, Refusal, Said, Write};

/// The key in `nouns_system` that records that the table exists.
const FORM: &str = "keys_form";

/// Creates the table, unless it exists.
pub(super) async fn create<D: Driver>(driver: &mut D, dialect: &Dialect) -> Result<(), Failure> {
    if recall(driver, dialect, FORM).await?.is_some() {
        return Ok(());
    }
    for table in dialect.keys_tables {
        driver.execute(table, &[]).await?;
    }
    remember(driver, dialect, FORM, "1").await
}

/// How long an answer is stored.
pub(super) fn keep(context: &Context) -> Duration {
    Duration::from_secs(context.model.server.limits.idempotency_key_seconds.into())
}

/// Reads the stored answer to this request.
pub(super) async fn read<D: Driver>(
    driver: &mut D,
    context: &Context,
    once: &Once,
) -> Result<Outcome, StoreError> {
    let binds = find_binds(driver, context, once)?;
    let kept = driver.rows(&context.sql.keys.find, &binds, Kept::read).await?.pop();
    let kept = kept.ok_or(StoreError::Refused(Refusal::Missing))?;
    kept.again(once).map_err(StoreError::Refused)
}

fn find_binds<'a, D: Driver>(
    driver: &D,
    context: &Context,
    once: &'a Once,
) -> Result<[Bind<'a>; 2], Failure> {
    let expired = driver.now().earlier(keep(context));
    let expired = expired.ok_or_else(|| Failure::Engine("a clock from before time".to_owned()))?;
    Ok([Bind::Text(&once.scope), Bind::Moment(expired)])
}

/// A row of `nouns_keys`.
struct Kept {
    print: String,
    answer: String,
}

impl Kept {
    fn read(row: &dyn Columns) -> Result<Self, Broken> {
        let text = |at| {
            let text = row.text(at)?.map(str::to_owned);
            text.ok_or_else(|| Broken("a kept answer without its text".to_owned()))
        };
        Ok(Self { print: text(0)?, answer: text(1)? })
    }

    /// The stored answer, if it belongs to the same request; a refusal if the key was used for another one.
    fn again(self, once: &Once) -> Result<Outcome, Refusal> {
        match once.is(&self.print) {
            true => Ok(Outcome::Said(Said { text: self.answer, is_again: true })),
            false => Err(Refusal::KeyUsed),
        }
    }
}

/// Replays the stored answer, or executes the write and stores its answer.
pub(super) async fn write<D: Driver>(
    driver: &mut D,
    context: &Context,
    (once, write): (&Once, Given<'_>),
    pace: Pace,
) -> Result<Outcome, Halt<Box<Write>>> {
    if let Some(kept) = claim(driver, context, once).await? {
        // Nothing was written, so there is nothing to commit.
        driver.recover().await?;
        return Ok(kept);
    }
    driver.hold().await?;
    let done = match transaction::perform(driver, context, write, pace).await {
        Ok(outcome) => Ok(outcome),
        Err(Halt::Error(StoreError::Refused(refusal))) if once.keeps(&refusal) => {
            driver.undo().await?;
            Err(refusal)
        }
        Err(halt) => return Err(halt),
    };
    let text = say(driver, once, done).await?;
    let Some(text) = text else { return Err(broken("an answer that cannot be kept")) };
    crate::fault::point("keep");
    store_answer(driver, context, once, &text).await?;
    Ok(Outcome::Said(Said { text, is_again: false }))
}

/// Locks the key, and looks up its stored answer.
async fn claim<D: Driver>(
    driver: &mut D,
    context: &Context,
    once: &Once,
) -> Result<Option<Outcome>, Halt<Box<Write>>> {
    let binds = find_binds(driver, context, once)?;
    let find = Stroke::new(&context.sql.keys.find, binds.to_vec());
    let Some(claim) = context.sql.dialect.claim_key else {
        let kept = driver.rows(&find.sql, &find.binds, Kept::read).await?.pop();
        return Ok(kept.map(|kept| kept.again(once)).transpose()?);
    };
    // Two statements, in this order: the second one sees what the previous holder of the lock has committed.
    let strokes = [Stroke::new(claim, vec![Bind::Integer(once.number)]), find];
    let read = |at: usize, row: &dyn Columns| match at {
        0 => Ok((row.boolean(0)? == Some(true), None)),
        _ => Ok((true, Some(Kept::read(row)?))),
    };
    let mut found = driver.rows_each(&strokes, read).await?.into_iter().flatten();
    let is_claimed = found.next().is_some_and(|(is_claimed, _)| is_claimed);
    match found.next() {
        // A stored answer is final, whoever holds the lock now.
        Some((_, Some(kept))) => Ok(Some(kept.again(once)?)),
        _ if is_claimed => Ok(None),
        _ => Err(Refusal::KeyUnderWay.into()),
    }
}

async fn say<D: Driver>(
    driver: &mut D,
    once: &Once,
    done: Result<Outcome, Refusal>,
) -> Result<Option<String>, Failure> {
    if !done.as_ref().is_ok_and(Outcome::is_large) {
        return Ok((once.says)(done));
    }
    let says = once.says.clone();
    driver.aside(move || says(done)).await
}

async fn store_answer<D: Driver>(
    driver: &mut D,
    context: &Context,
    once: &Once,
    text: &str,
) -> Result<(), Failure> {
    let print = once.prints.first().map_or("", |print| print);
    let binds = vec![
        Bind::Text(&once.scope),
        Bind::Text(print),
        Bind::Moment(driver.now()),
        Bind::Integer(i64::try_from(text.len()).unwrap_or(i64::MAX)),
        Bind::Text(text),
    ];
    let done = driver.end(&[Stroke::new(&context.sql.keys.keep, binds)]).await;
    done.map_err(|stopped| stopped.failure)
}
