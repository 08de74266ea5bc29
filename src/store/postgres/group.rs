//! Insert batching: concurrent creates of one resource are coalesced into one multi-row INSERT.
//!
//! A create that depends on nothing stored is sent at once while few inserts of its resource are in flight.
//! Creates that arrive then wait until those have ended and go as one batch: one round trip, one commit and
//! one sync for all of them. So the cost of a create falls as the load rises. After a batch the next create
//! is not sent at once either: its thread first collects the creates that have arrived meanwhile.
//! The one surprising thing: when the database refuses the statement, it rolls back the whole batch, and
//! each create is retried individually, so that only the wrong one gets the error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::driver::{PostgresDriver, Stage};
use super::pool::LEASE_MAX;
use super::{Attempt, Inner};
use crate::clock;
use crate::fault;
use crate::model::settings::Pooling;
use crate::model::{Model, ResourceIndex};
use crate::plan::{Outcome, Write};
use crate::store::StoreError;
use crate::store::driver::{Bind, Driver, Stroke};
use crate::store::plain::{Creation, is_plain};
use crate::store::transaction::{Halt, is_due};
use crate::value::Id;

/// How many statements of one resource are in flight before creates wait for a batch.
const UNDER_WAY_MAX: u32 = 4;
/// Where statements take no longer than this, a batch waits for all of them: the database's CPU is the
/// limit, and larger batches need less of it. Where they take longer, the disk or the network is the limit,
/// and both serve several statements at once.
const QUICK: Duration = Duration::from_millis(1);
/// How long a batch waits for the statements before it, which may be blocked by something else.
const WAIT_MAX: Duration = Duration::from_millis(2);
/// How often the batch leader yields before it sends: its thread then reads all its sockets once, and the
/// requests found there can join.
const YIELDS: usize = 2;
/// How many creates one batch holds.
const MEMBERS_MAX: usize = 64;
/// A larger create is sent individually, because the rest of a batch would wait for it.
const BYTES_MAX: usize = 16 << 10;

/// The insert batches of one worker thread, by resource.
#[derive(Debug)]
pub(super) struct Lines(Vec<Line>);

/// The insert batches of one resource.
#[derive(Debug)]
pub(super) struct Line {
    under_way: Semaphore,
    /// The shortest recent duration of a statement, in microseconds: concurrent statements slow each other
    /// down, so an average would overestimate.
    least: AtomicU64,
    /// How many rows the last statement had.
    last: AtomicUsize,
    next: Mutex<Weak<Group>>,
}

/// The permission to send a statement.
pub(super) struct Turn<'a> {
    line: &'a Line,
    began: Instant,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Turn<'_> {
    /// Records that a statement with this many rows succeeded. A refused or failed one says nothing about
    /// the usual duration.
    pub(super) fn done(&self, members: usize) {
        self.line.note(self.began.elapsed());
        self.line.last.store(members, Ordering::Relaxed);
    }
}

/// The creates of one statement, collected until it is sent.
#[derive(Debug)]
struct Group {
    members: Mutex<Option<Vec<Member>>>,
    /// The deadline of the first create; all others have a later one.
    until: Instant,
}

#[derive(Debug)]
struct Member {
    write: Box<Write>,
    since: Instant,
    told: Sender<Told>,
}

impl Member {
    fn tell(self, done: Result<Outcome, StoreError>) {
        // The receiver is gone if the client disconnected.
        let _ = self.told.send(Told::Done(done));
    }

    fn send_alone(self) {
        let _ = self.told.send(Told::Alone(self.write));
    }
}

/// How a create in a batch ended.
#[derive(Debug)]
pub(super) enum Told {
    Done(Result<Outcome, StoreError>),
    /// The batch was rolled back, or this create was never sent.
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
        Self {
            under_way,
            least: AtomicU64::new(0),
            last: AtomicUsize::new(0),
            next: Mutex::default(),
        }
    }

    /// Updates the shortest duration, which decays over ten to twenty statements.
    fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        // No other thread has this queue, so load and store need not be one operation.
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

    /// The permission to send at once, if few statements are in flight, no batch is being collected, and
    /// the last statement had one row.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        if self.last.load(Ordering::Relaxed) > 1
            || self.next().upgrade().is_some_and(|group| group.members().is_some())
        {
            return None;
        }
        let permit = self.under_way.try_acquire_many(self.permits()).ok()?;
        Some(Turn { line: self, began: clock::now(), _permit: Some(permit) })
    }

    /// Waits for the permission, but sends without it after `FLUSH_WAIT_MAX`.
    async fn next_turn(&self) -> Turn<'_> {
        let permit = timeout(WAIT_MAX, self.under_way.acquire_many(self.permits())).await;
        Turn { line: self, began: clock::now(), _permit: permit.ok().and_then(Result::ok) }
    }
}

impl Group {
    fn members(&self) -> MutexGuard<'_, Option<Vec<Member>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a create, unless the batch is full or closed.
    fn add(&self, member: Member) -> Result<(), Member> {
        match &mut *self.members() {
            Some(members) if members.len() < MEMBERS_MAX => {
                members.push(member);
                Ok(())
            }
            _ => Err(member),
        }
    }

    /// Closes the batch: no create can join it from here on.
    fn close(&self) -> Vec<Member> {
        self.members().take().unwrap_or_default()
    }
}

impl Inner {
    /// The batch queue for a write, if it can be batched. A write with little time left is not: the batch
    /// has the deadline of its first member, so its waits would be cut short for all.
    pub(super) fn line(&self, write: &Write, bytes: usize, until: Instant) -> Option<&Line> {
        // The multi-row statement needs the parameter types, which only a prepared statement knows.
        let is_shared = self.pooling == Pooling::Session && bytes <= BYTES_MAX;
        if !is_shared || !is_plain(&self.context.model, write) {
            return None;
        }
        let whole = self.context.model.server.limits.request_seconds_max;
        let has_time = clock::now() + Duration::from_secs(whole.into()) / 2 <= until;
        has_time.then(|| self.lines.of(write.collection.resource)).flatten()
    }

    /// Joins the batch that is being collected, or starts one, and waits for the result.
    pub(super) async fn go_together(
        self: &Arc<Self>,
        line: &Line,
        write: Box<Write>,
        until: Instant,
    ) -> Told {
        match self.join(line, write, until).await {
            Ok(told) => told,
            // The leader's task is gone, so the outcome is unknown.
            Err(_) => Told::Done(Err(StoreError::OutcomeUnknown("a group was lost".to_owned()))),
        }
    }

    fn join(self: &Arc<Self>, line: &Line, write: Box<Write>, until: Instant) -> Receiver<Told> {
        let resource = write.collection.resource;
        let (told, answer) = channel();
        let mut member = Member { write, since: clock::now(), told };
        let mut next = line.next();
        if let Some(group) = next.upgrade() {
            if until < group.until {
                member.send_alone();
                return answer;
            }
            match group.add(member) {
                Ok(()) => return answer,
                Err(back) => member = back,
            }
        }
        let group = Arc::new(Group { members: Mutex::new(Some(vec![member])), until });
        *next = Arc::downgrade(&group);
        drop(next);
        tokio::task::spawn_local(Arc::clone(self).lead(group, resource));
        answer
    }

    async fn lead(self: Arc<Self>, group: Arc<Group>, resource: ResourceIndex) {
        let Some(line) = self.lines.of(resource) else { return };
        let turn = line.next_turn().await;
        // Creates whose requests have already arrived join too.
        for _ in 0..YIELDS {
            tokio::task::yield_now().await;
        }
        let mut members = Vec::new();
        let work = async |driver: &mut PostgresDriver<'_>| {
            // The batch is closed only when there is a connection: until then creates can join.
            // A create whose permissions have to be checked again runs individually.
            let (due, others) = group.close().into_iter().partition(|member| is_due(&member.write));
            members = others;
            Vec::into_iter(due).for_each(Member::send_alone);
            self.create_all(driver, &members).await
        };
        let done = self.attempt(Stage::None, group.until, work).await;
        // Without a connection the batch was never closed.
        members.append(&mut group.close());
        if matches!(done, Attempt::Done(Ok(_))) {
            turn.done(members.len());
            self.pool.wrote(members.len());
        }
        tell(members, done);
    }

    async fn create_all<'a>(
        &'a self,
        driver: &mut PostgresDriver<'_>,
        members: &'a [Member],
    ) -> Result<Vec<Result<Outcome, StoreError>>, Halt<Box<Write>>> {
        let Some(first) = members.first() else { return Ok(Vec::new()) };
        let context = &*self.context;
        let resource = context.model.resource(first.write.collection.resource);
        let now = driver.now();
        let ids = driver.allocate(resource, members.len(), now).await?;
        let decide = |(member, id): (&'a Member, Id)| {
            // A panic fails one create, not the batch.
            let decide = || Creation::decide(context, &member.write, (id, now));
            catch_unwind(AssertUnwindSafe(decide))
                .unwrap_or_else(|panic| Err(StoreError::broken(fault::words(&*panic))))
        };
        let created: Vec<_> = members.iter().zip(ids).map(decide).collect();
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

/// Transposes rows to columns. A row's last parameter says whether it is the first row, which the multi-row
/// statement knows by itself.
fn columns<'a>(strokes: &[Stroke<'a>]) -> Vec<Vec<Bind<'a>>> {
    let count = strokes.first().map_or(0, |stroke| stroke.binds.len().saturating_sub(1));
    let column = |at| strokes.iter().filter_map(|stroke| stroke.binds.get(at)).copied().collect();
    (0..count).map(column).collect()
}

fn tell(members: Vec<Member>, done: Attempt<Vec<Result<Outcome, StoreError>>>) {
    let error = match done {
        Attempt::Done(Ok(outcomes)) => {
            let told = members.into_iter().zip(outcomes);
            return told.for_each(|(member, outcome)| member.tell(outcome));
        }
        // The batch was rolled back, so each create can be retried.
        Attempt::Again(_) => return members.into_iter().for_each(Member::send_alone),
        Attempt::Done(Err(error)) => error,
    };
    let now = clock::now();
    for member in members {
        match &error {
            StoreError::OutcomeUnknown(cause) => {
                member.tell(Err(StoreError::OutcomeUnknown(cause.clone())));
            }
            // The database as a whole failed, so a retry would fail too.
            StoreError::Unavailable(cause) => {
                member.tell(Err(StoreError::Unavailable(cause.clone())));
            }
            // A create that joined late has not waited long enough to give up.
            StoreError::Busy if now >= member.since + LEASE_MAX / 2 => {
                member.tell(Err(StoreError::Busy));
            }
            StoreError::Busy
            | StoreError::TimedOut
            | StoreError::RightsChanged
            | StoreError::Refused(_)
            | StoreError::Broken(_) => member.send_alone(),
        }
    }
}

#[cfg(test)]
mod tests;
