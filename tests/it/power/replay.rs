//! The replay of a trace with every kind of power cut, and the judgement of each resulting state.
//!
//! `durability::judge` defines a sound database; here each state is created, opened as a restart would
//! open it, and compared with what had been answered at that point of the trace.
//! Equal states are opened once. A hash identifies a state and its contents, which are then compared
//! with each list of responses that they must agree with.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::thread;

use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use super::disk::{FileShape, PowerCutState, SimulatedDisk, Survivors};
use super::restart::check_restart;
use super::run::RecordedRun;
use super::sectors::hash;
use super::state_folder::StateFolder;
use super::strace::{TraceStep, TracedCall};
use crate::durability::judge::{DatabaseContents, judge};
use crate::durability::seeded_random::SeededRandom;

/// The share of possible states that is tested.
#[derive(Debug, Clone, Copy)]
pub struct ReplayEffort {
    pub seed: u64,
    /// Random choices of calls, and of sectors, at each point.
    pub choices: usize,
    /// Before each sync, this many times all unsynced calls but one.
    pub left_out_max: usize,
    /// One of this many states is judged.
    pub one_of: usize,
    /// On one of this many sound states a server is started; on none, when it is zero.
    pub served_one_of: u64,
    pub threads: usize,
}

#[derive(Debug, Default, Clone)]
pub struct ReplayFigures {
    /// Points of the trace at which the power was cut.
    pub points: usize,
    /// All states; each is judged.
    pub states: usize,
    /// States with different files: each of these is opened.
    pub distinct: usize,
    /// Different contents of the database, by their hashes.
    pub contents: HashSet<u64>,
    /// States in which answered writes are missing, and the most of them in one state.
    pub with_losses: usize,
    pub lost_most: usize,
    /// States with any other fault.
    pub damaged: usize,
    /// States on which a server was started.
    pub served: usize,
    /// The first fault of each kind.
    pub examples: Vec<String>,
}

impl std::fmt::Display for ReplayFigures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { points, states, distinct, with_losses, lost_most, damaged, served, .. } = self;
        let contents = self.contents.len();
        write!(
            f,
            "power cut at {points} points; {states} states judged, {distinct} of them different, with \
             {contents} contents; a server started on {served}; {with_losses} states have lost answered \
             writes (at most {lost_most}), {damaged} are damaged"
        )
    }
}

impl ReplayFigures {
    /// Adds those of another run.
    pub fn sum(&mut self, other: Self) {
        let (points, states) = (self.points + other.points, self.states + other.states);
        self.add(other);
        (self.points, self.states) = (points, states);
    }

    /// Adds those of another thread, which has seen the same points and states.
    fn add(&mut self, other: Self) {
        self.points = other.points;
        self.states = other.states;
        self.distinct += other.distinct;
        self.contents.extend(other.contents);
        self.with_losses += other.with_losses;
        self.lost_most = self.lost_most.max(other.lost_most);
        self.damaged += other.damaged;
        self.served += other.served;
        self.examples.extend(other.examples);
    }
}

/// Replays the steps of a run, from which some syncs may have been removed.
pub fn replay(run: &RecordedRun, steps: &[TraceStep], effort: ReplayEffort) -> ReplayFigures {
    let mut figures = ReplayFigures::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..effort.threads)
            .map(|own| scope.spawn(move || ReplayThread::new(run, effort, own).replay_steps(steps)))
            .collect();
        for worker in workers {
            figures.add(worker.join().unwrap());
        }
    });
    figures
}

/// One thread's part: it replays the whole trace, and judges the states whose hash belongs to it.
struct ReplayThread<'a> {
    run: &'a RecordedRun,
    effort: ReplayEffort,
    thread_number: usize,
    disk: SimulatedDisk,
    folder: StateFolder,
    /// The result for a state, by its hash: the hash of its content, or the reason why there is none.
    opened: HashMap<u64, Result<u64, String>>,
    /// The contents that were read last.
    contents: VecDeque<(u64, DatabaseContents)>,
    /// The shapes of the files already served, and whether the database has tables.
    shapes: HashSet<(bool, FileShape)>,
    /// Contents that agreed with the responses up to here, or the faults.
    verdicts: HashMap<(u64, usize), Vec<String>>,
    /// The last call that had begun.
    last: usize,
    figures: ReplayFigures,
}

/// The maximum number of contents in memory.
const CONTENTS_IN_MEMORY_MAX: usize = 12;

impl<'a> ReplayThread<'a> {
    fn new(run: &'a RecordedRun, effort: ReplayEffort, own: usize) -> Self {
        Self {
            run,
            effort,
            thread_number: own,
            disk: SimulatedDisk::new(run.before.clone()),
            folder: StateFolder::new(),
            opened: HashMap::new(),
            contents: VecDeque::new(),
            shapes: HashSet::new(),
            verdicts: HashMap::new(),
            last: 0,
            figures: ReplayFigures::default(),
        }
    }

    fn replay_steps(mut self, steps: &[TraceStep]) -> ReplayFigures {
        for (index, step) in steps.iter().enumerate() {
            // Every thread makes the same random choices.
            let mut chance = SeededRandom::new(self.effort.seed ^ (index as u64) << 24);
            if let TraceStep::End(call) = step {
                self.cut_without_one_call(index, &self.run.log.calls[*call], &mut chance);
            }
            if let TraceStep::Begin(call) = step {
                self.last = *call;
            }
            if self.disk.apply_step(*step, &self.run.log.calls) {
                self.cut_at_step(index, &mut chance);
            }
        }
        self.figures
    }

    /// A sync has not ended yet, and one call of those it is to make durable has not reached the disk.
    fn cut_without_one_call(&mut self, index: usize, what: &TracedCall, chance: &mut SeededRandom) {
        let mut calls = self.disk.unsynced(what);
        while calls.len() > self.effort.left_out_max {
            calls.swap_remove(chance.below(calls.len()));
        }
        for call in calls {
            self.judge_cut(index, Survivors::AllBut(call), chance);
        }
    }

    fn cut_at_step(&mut self, index: usize, chance: &mut SeededRandom) {
        self.figures.points += 1;
        self.judge_cut(index, Survivors::Synced, chance);
        self.judge_cut(index, Survivors::All, chance);
        for _ in 0..self.effort.choices {
            self.judge_cut(index, Survivors::Calls, chance);
            self.judge_cut(index, Survivors::Sectors, chance);
        }
    }

    fn judge_cut(&mut self, index: usize, survives: Survivors, chance: &mut SeededRandom) {
        let is_chosen = chance.below(self.effort.one_of) == 0;
        if !is_chosen {
            return;
        }
        self.figures.states += 1;
        let state = self.disk.power_cut(survives, &mut SeededRandom::new(chance.next()));
        if state.hash as usize % self.effort.threads != self.thread_number {
            return;
        }
        let is_new = !self.opened.contains_key(&state.hash);
        let mut faults = self.state_faults(&state);
        if is_new && faults.is_empty() && self.is_served(&state) {
            self.figures.served += 1;
            let (_, found) = &self.contents[0];
            let of = format!("step {index}, {survives:?}");
            faults = check_restart(&self.disk.files(&state), found, &of);
        }
        let lost = faults.iter().filter(|fault| fault.starts_with("lost: ")).count();
        let (had_losses, had_damage) = (self.figures.with_losses, self.figures.damaged);
        self.figures.lost_most = self.figures.lost_most.max(lost);
        self.figures.with_losses += usize::from(lost > 0);
        self.figures.damaged += usize::from(lost < faults.len());
        let is_first = (had_losses == 0 && lost > 0) || (had_damage == 0 && lost < faults.len());
        if is_first {
            let shown: Vec<_> =
                faults.iter().take(5).map(|fault| format!("{fault:.300}")).collect();
            let (all, shown) = (faults.len(), shown.join("\n  "));
            self.figures.examples.push(format!(
                "cut after step {index}, {survives:?}: {all} faults, among them\n  {shown}"
            ));
        }
    }

    /// Whether a server is to be started on a new sound state: at random, or because there was none yet
    /// with these files.
    fn is_served(&mut self, state: &PowerCutState) -> bool {
        let shape = (self.contents[0].0 == EMPTY, state.shape());
        self.effort.served_one_of > 0
            && (self.shapes.insert(shape) || state.hash.is_multiple_of(self.effort.served_one_of))
    }

    /// All faults of a state, given the responses so far.
    fn state_faults(&mut self, state: &PowerCutState) -> Vec<String> {
        let content = match self.opened.get(&state.hash) {
            Some(known) => known.clone(),
            None => {
                self.figures.distinct += 1;
                let content = self.open_state(state);
                self.opened.insert(state.hash, content.clone());
                content
            }
        };
        let content = match content {
            Ok(content) => content,
            Err(fault) => return vec![fault],
        };
        self.figures.contents.insert(content);
        let found = match self.contents.iter().position(|(known, _)| *known == content) {
            Some(place) => self.contents.remove(place).unwrap().1,
            None if content == EMPTY => DatabaseContents::default(),
            None => {
                self.write_state(state);
                DatabaseContents::read(self.folder.path()).unwrap()
            }
        };
        let answered = self.run.answered_count(self.last);
        let verdict = self.verdicts.entry((content, answered));
        let faults =
            verdict.or_insert_with(|| judge(&self.run.ledger_at(self.last), &found).faults).clone();
        self.contents.push_front((content, found));
        self.contents.truncate(CONTENTS_IN_MEMORY_MAX);
        faults
    }

    /// Creates the state, opens it as a restart would, and returns a hash of all that it holds.
    fn open_state(&mut self, state: &PowerCutState) -> Result<u64, String> {
        self.write_state(state);
        content_hash(&self.folder.path().join("nouns.db")).map_err(|error| error.to_string())?
    }

    fn write_state(&mut self, state: &PowerCutState) {
        let files = self.disk.files(state);
        // SQLite rolls back a journal, and removes it.
        let has_journal = files.contains_key("nouns.db-journal");
        self.folder.write_state(files);
        if has_journal {
            self.folder.mark_changed();
        }
    }
}

/// The content of a database without tables, or of none.
const EMPTY: u64 = 0;

/// A hash of all rows of all tables, or the errors of SQLite's own checks.
fn content_hash(path: &Path) -> rusqlite::Result<Result<u64, String>> {
    if !path.exists() {
        return Ok(Ok(EMPTY));
    }
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // The state must not be changed.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    for pragma in ["integrity_check", "foreign_key_check"] {
        let mut statement = connection.prepare(&format!("PRAGMA {pragma}"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let line = format!("{:?}", row.get_ref(0)?);
            if pragma != "integrity_check" || row.get_ref(0)? != ValueRef::Text(b"ok") {
                return Ok(Err(format!("{pragma}: {line}")));
            }
        }
    }
    let tables = "SELECT count(*) FROM sqlite_master";
    if connection.query_row(tables, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(Ok(EMPTY));
    }
    let mut bytes = Vec::new();
    for table in ["nouns_changes", "customers", "orders"] {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table}"))?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                match row.get_ref(column)? {
                    ValueRef::Text(text) => bytes.extend_from_slice(text),
                    other => bytes.extend(format!("{other:?}").into_bytes()),
                }
                // Occurs in no text.
                bytes.push(0xFF);
            }
        }
    }
    Ok(Ok(hash(&[&bytes])))
}
