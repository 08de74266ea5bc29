//! Creates that come at the same time, written by one statement.
//!
//! A plain create (`plain`) goes at once while few of its resource are under way. Those who come then wait
//! until these have ended, and go together: one way to the database and back, one commit and one sync for
//! all of them. So the more come, the less each of them costs. After these the next one does not go at once
//! either: its thread first looks who else has come.
//! The one surprising thing: when the database refuses the statement, all of it is undone, and each goes
//! alone, and finds out for itself what is wrong.

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

/// How many statements of one resource are under way before others wait for them.
const UNDER_WAY_MAX: u32 = 4;
/// Where they take no longer than this, others wait for all of them: it is the work that takes the time, and
/// that grows less. Where they take longer, it is the disk or the network, which serve several at once.
const QUICK: Duration = Duration::from_millis(1);
/// Nobody waits longer than this for those who went before: something else may hold them up.
const WAIT_MAX: Duration = Duration::from_millis(2);
/// A thread looks once at all its connections, and then answers what it found there.
const YIELDS: usize = 2;
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
    /// How many the last statement had.
    last: AtomicUsize,
    next: Mutex<Weak<Group>>,
}

/// Leave to go.
pub(super) struct Turn<'a> {
    line: &'a Line,
    began: Instant,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Turn<'_> {
    /// The statement of so many was done: what is refused or fails says nothing of how long one takes.
    pub(super) fn done(&self, members: usize) {
        self.line.note(self.began.elapsed());
        self.line.last.store(members, Ordering::Relaxed);
    }
}

/// Those who wait, until they go.
#[derive(Debug)]
struct Group {
    members: Mutex<Option<Vec<Member>>>,
    /// The time of the first; nobody else has less.
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
        // The client may have left.
        let _ = self.told.send(Told::Done(done));
    }

    fn send_alone(self) {
        let _ = self.told.send(Told::Alone(self.write));
    }
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
        Self {
            under_way,
            least: AtomicU64::new(0),
            last: AtomicUsize::new(0),
            next: Mutex::default(),
        }
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

    /// Leave to go at once, if there is any, nobody came before, and it seems that nobody comes.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        if self.last.load(Ordering::Relaxed) > 1
            || self.next().upgrade().is_some_and(|group| group.members().is_some())
        {
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
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Where a write may meet others with which it can go. Not one that has little time left: what it waits
    /// for would be waited for by all.
    pub(super) fn line(&self, write: &Write, bytes: usize, until: Instant) -> Option<&Line> {
        // The type of an array is known from a statement that was prepared.
        let is_shared = self.pooling == Pooling::Session && bytes <= BYTES_MAX;
        if !is_shared || !is_plain(&self.context.model, write) {
            return None;
        }
        let whole = self.context.model.server.limits.request_seconds_max;
        let has_time = clock::now() + Duration::from_secs(whole.into()) / 2 <= until;
        has_time.then(|| self.lines.of(write.collection.resource)).flatten()
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
        // Those whose requests have come in already come too.
        for _ in 0..YIELDS {
            tokio::task::yield_now().await;
        }
        let mut members = Vec::new();
        let work = async |driver: &mut PostgresDriver<'_>| {
            // Not before there is a connection: until then others may come.
            // Whose rights need a second look goes alone, and looks.
            let (due, others) = group.close().into_iter().partition(|member| is_due(&member.write));
            members = others;
            Vec::into_iter(due).for_each(Member::send_alone);
            self.create_all(driver, &members).await
        };
        let done = self.attempt(Stage::None, group.until, work).await;
        // There was no connection for them.
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
            // A panic is that of one.
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

/// The same values by column. The last of a row says whether it is the first, which its place tells.
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
        // Nothing was done, and each can try.
        Attempt::Again(_) => return members.into_iter().for_each(Member::send_alone),
        Attempt::Done(Err(error)) => error,
    };
    let now = clock::now();
    for member in members {
        match &error {
            StoreError::OutcomeUnknown(cause) => {
                member.tell(Err(StoreError::OutcomeUnknown(cause.clone())));
            }
            // It is the database's, and no row's.
            StoreError::Unavailable(cause) => {
                member.tell(Err(StoreError::Unavailable(cause.clone())));
            }
            // Some came when the others had waited for long.
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
