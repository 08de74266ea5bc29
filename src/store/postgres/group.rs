//! Creates that come at the same time, written by one statement.
//!
//! A plain create (`plain`) goes at once while few of its resource are under way. Those who come then wait
//! until these have ended, and go together: one way to the database and back, one commit and one sync for
//! all of them. So the more come, the less each of them costs.
//! The one surprising thing: when their statement fails, all of it is undone, and each goes alone, and finds
//! out for itself what is wrong.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::driver::{PostgresDriver, Stage};
use super::{Attempt, Inner};
use crate::clock;
use crate::fault;
use crate::model::settings::Pooling;
use crate::model::{Model, ResourceIndex};
use crate::plan::{Outcome, Write};
use crate::store::StoreError;
use crate::store::driver::{Bind, Driver, Stroke};
use crate::store::plain::{Creation, is_plain};
use crate::store::transaction::Halt;

/// How many statements of one resource are under way before others wait for them.
const UNDER_WAY_MAX: u32 = 4;
/// Where they take no longer than this, others wait for all of them: it is the work that takes the time, and
/// that grows less. Where they take longer, it is the disk or the network, which serve several at once.
const QUICK: Duration = Duration::from_millis(1);
/// Nobody waits longer than this for those who went before: something else may hold them up.
const WAIT_MAX: Duration = Duration::from_millis(2);
/// How many go together.
const MEMBERS_MAX: usize = 64;
/// Whoever brings more goes alone: others would wait for it.
const BYTES_MAX: usize = 16 << 10;

/// The plain creates of one worker thread, by resource.
#[derive(Debug)]
pub(super) struct Lines(Vec<Line>);

/// Those of one resource.
#[derive(Debug)]
pub(super) struct Line {
    under_way: Semaphore,
    /// The least that a statement took lately, in microseconds: more of them may take longer for each other.
    least: AtomicU64,
    next: Mutex<Weak<Group>>,
}

/// Leave to go.
pub(super) struct Turn<'a> {
    line: &'a Line,
    began: Instant,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.line.note(self.began.elapsed());
    }
}

/// Those who wait, until they go.
#[derive(Debug)]
struct Group(Mutex<Option<Vec<Member>>>);

#[derive(Debug)]
struct Member {
    write: Box<Write>,
    told: Sender<Told>,
}

/// How it ended for one who went with others.
#[derive(Debug)]
pub(super) enum Told {
    Done(Result<Outcome, StoreError>),
    /// Nothing was done.
    Alone(Box<Write>),
}

impl Lines {
    pub(super) fn new(model: &Model) -> Self {
        Self(model.resources.iter().map(|_| Line::new()).collect())
    }

    fn of(&self, resource: ResourceIndex) -> Option<&Line> {
        self.0.get(resource.0)
    }
}

impl Line {
    fn new() -> Self {
        let under_way = Semaphore::new(UNDER_WAY_MAX as usize);
        Self { under_way, least: AtomicU64::new(0), next: Mutex::default() }
    }

    /// Lately is a matter of ten or twenty statements.
    fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        // One thread has this line.
        let least = self.least.load(Ordering::Relaxed);
        self.least.store(took.min(least + least / 16 + 50), Ordering::Relaxed);
    }

    fn permits(&self) -> u32 {
        let least = Duration::from_micros(self.least.load(Ordering::Relaxed));
        if least <= QUICK { UNDER_WAY_MAX } else { 1 }
    }

    fn next(&self) -> MutexGuard<'_, Weak<Group>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leave to go at once, if there is any, and nobody came before.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        if self.next().upgrade().is_some_and(|group| group.members().is_some()) {
            return None;
        }
        let permit = self.under_way.try_acquire_many(self.permits()).ok()?;
        Some(Turn { line: self, began: clock::now(), _permit: Some(permit) })
    }

    /// Waits for it, but not for long.
    async fn next_turn(&self) -> Turn<'_> {
        let permit = timeout(WAIT_MAX, self.under_way.acquire_many(self.permits())).await;
        Turn { line: self, began: clock::now(), _permit: permit.ok().and_then(Result::ok) }
    }
}

impl Group {
    fn members(&self) -> MutexGuard<'_, Option<Vec<Member>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more, if it has room and is still here.
    fn add(&self, member: Member) -> Result<(), Member> {
        match &mut *self.members() {
            Some(members) if members.len() < MEMBERS_MAX => {
                members.push(member);
                Ok(())
            }
            _ => Err(member),
        }
    }

    /// From here on nobody comes any more.
    fn close(&self) -> Vec<Member> {
        self.members().take().unwrap_or_default()
    }
}

impl Inner {
    /// Where a write may meet others with which it can go.
    pub(super) fn line(&self, write: &Write, bytes: usize) -> Option<&Line> {
        // The type of an array is known from a statement that was prepared.
        let is_shared = self.pooling == Pooling::Session && bytes <= BYTES_MAX;
        let is_shared = is_shared && is_plain(&self.context.model, write);
        is_shared.then(|| self.lines.of(write.collection.resource)).flatten()
    }

    /// Goes with those who wait already, or with those who come until it is their turn.
    pub(super) async fn go_together(
        self: &Arc<Self>,
        line: &Line,
        write: Box<Write>,
        until: Instant,
    ) -> Told {
        match self.join(line, write, until).await {
            Ok(told) => told,
            // Who led them is gone in the middle of it.
            Err(_) => Told::Done(Err(StoreError::OutcomeUnknown("a group was lost".to_owned()))),
        }
    }

    fn join(self: &Arc<Self>, line: &Line, write: Box<Write>, until: Instant) -> Receiver<Told> {
        let resource = write.collection.resource;
        let (told, answer) = channel();
        let mut member = Member { write, told };
        let mut next = line.next();
        if let Some(group) = next.upgrade() {
            match group.add(member) {
                Ok(()) => return answer,
                Err(back) => member = back,
            }
        }
        let group = Arc::new(Group(Mutex::new(Some(vec![member]))));
        *next = Arc::downgrade(&group);
        drop(next);
        tokio::task::spawn_local(Arc::clone(self).lead(group, resource, until));
        answer
    }

    /// The first one's time counts: it has been here for longest.
    async fn lead(self: Arc<Self>, group: Arc<Group>, resource: ResourceIndex, until: Instant) {
        let Some(line) = self.lines.of(resource) else { return };
        let _turn = line.next_turn().await;
        let mut members = Vec::new();
        let work = async |driver: &mut PostgresDriver<'_>| {
            // Not before there is a connection: until then others may come.
            members = group.close();
            self.create_all(driver, &members).await
        };
        let done = self.attempt(Stage::None, until, work).await;
        // There was no connection for them.
        members.append(&mut group.close());
        self.pool.shared_statement(members.len());
        tell(members, done);
    }

    async fn create_all(
        &self,
        driver: &mut PostgresDriver<'_>,
        members: &[Member],
    ) -> Result<Vec<Result<Outcome, StoreError>>, Halt<Box<Write>>> {
        fault::point("transaction");
        let Some(first) = members.first() else { return Ok(Vec::new()) };
        let context = &*self.context;
        let resource = context.model.resource(first.write.collection.resource);
        let now = driver.now();
        let ids = driver.allocate(resource, members.len(), now).await?;
        let given = members.iter().zip(ids);
        let created: Vec<_> =
            given.map(|(one, id)| Creation::decide(context, &one.write, (id, now))).collect();
        let strokes = created.iter().flatten().flat_map(|creation| creation.strokes(context));
        let strokes: Vec<_> = strokes.collect();
        match (&*strokes, &context.sql.table(resource.index).insert_all) {
            ([], _) => {}
            ([_, _, ..], Some(sql)) => driver.run_all(sql, &columns(&strokes)).await?,
            (strokes, _) => driver.finish(strokes).await.map_err(|stopped| stopped.failure)?,
        }
        Ok(created.into_iter().map(|creation| creation?.outcome()).collect())
    }
}

/// The same values by column. The last of a row says whether it is the first, which its place tells.
fn columns<'a>(strokes: &[Stroke<'a>]) -> Vec<Vec<Bind<'a>>> {
    let count = strokes.first().map_or(0, |stroke| stroke.binds.len().saturating_sub(1));
    let column = |at| strokes.iter().filter_map(|stroke| stroke.binds.get(at)).copied().collect();
    (0..count).map(column).collect()
}

fn tell(members: Vec<Member>, done: Attempt<Vec<Result<Outcome, StoreError>>>) {
    match done {
        Attempt::Done(Ok(outcomes)) => {
            for (member, outcome) in members.into_iter().zip(outcomes) {
                let _ = member.told.send(Told::Done(outcome));
            }
        }
        Attempt::Done(Err(StoreError::OutcomeUnknown(cause))) => {
            for member in members {
                let unknown = StoreError::OutcomeUnknown(cause.clone());
                let _ = member.told.send(Told::Done(Err(unknown)));
            }
        }
        // They have waited for a connection already.
        Attempt::Done(Err(StoreError::Busy)) => {
            for member in members {
                let _ = member.told.send(Told::Done(Err(StoreError::Busy)));
            }
        }
        Attempt::Done(Err(_)) | Attempt::Again(_) => {
            for Member { write, told } in members {
                let _ = told.send(Told::Alone(write));
            }
        }
    }
}

#[cfg(test)]
mod tests;
