//! A fair queue for the hasher: round robin over client addresses, so that an address with a thousand
//! requests delays only itself.
//!
//! Pure: the time is an argument. The one surprising thing: a full queue still accepts a newcomer, by
//! evicting the last job of the address with the most jobs, as long as that address has more than the
//! newcomer's would.

use std::collections::VecDeque;
use std::mem;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::{Full, Who};
use crate::windows::network;

/// The maximum number of waiting jobs, and as many again of authenticated callers.
const WAITING_MAX: usize = 64;
/// The pause after a wrong password, as a multiple of its hash's time.
const REST: u32 = 3;

#[derive(Debug)]
pub(super) struct Line<J> {
    proved: VecDeque<J>,
    /// Each address with its waiting jobs, none of them empty; the front is next.
    ring: VecDeque<(IpAddr, VecDeque<J>)>,
    rests_until: Option<Instant>,
    is_closed: bool,
}

/// What the thread should do now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<J> {
    Work(J),
    /// The queue is empty.
    Nothing,
    /// Jobs wait, but the pause lasts this long.
    Rest(Duration),
    End,
}

impl<J> Line<J> {
    pub(super) fn new() -> Self {
        Self { proved: VecDeque::new(), ring: VecDeque::new(), rests_until: None, is_closed: false }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.proved.len() + self.unproved()
    }

    fn unproved(&self) -> usize {
        self.ring.iter().map(|(_, jobs)| jobs.len()).sum()
    }

    pub(super) fn join(&mut self, who: Who, job: J) -> Result<(), Full> {
        if self.is_closed {
            return Err(Full);
        }
        let Who::Unproved(address) = who else {
            if self.proved.len() >= WAITING_MAX {
                return Err(Full);
            }
            self.proved.push_back(job);
            return Ok(());
        };
        let address = network(address);
        if self.unproved() >= WAITING_MAX {
            self.make_room(address)?;
        }
        match self.ring.iter_mut().find(|(its_address, _)| *its_address == address) {
            Some((_, jobs)) => jobs.push_back(job),
            None => self.ring.push_back((address, VecDeque::from([job]))),
        }
        Ok(())
    }

    /// Evicts the last job of the address with the most, if that is more than this one would have.
    fn make_room(&mut self, address: IpAddr) -> Result<(), Full> {
        let own = self.ring.iter().find(|(its_address, _)| *its_address == address);
        let own = own.map_or(0, |(_, jobs)| jobs.len());
        let most = self.ring.iter_mut().max_by_key(|(_, jobs)| jobs.len());
        match most {
            Some((_, jobs)) if jobs.len() > own + 1 => {
                jobs.pop_back();
                Ok(())
            }
            _ => Err(Full),
        }
    }

    pub(super) fn next(&mut self, now: Instant) -> Next<J> {
        if self.is_closed {
            return Next::End;
        }
        if let Some(job) = self.proved.pop_front() {
            return Next::Work(job);
        }
        if self.ring.is_empty() {
            return Next::Nothing;
        }
        if let Some(until) = self.rests_until.filter(|until| *until > now) {
            return Next::Rest(until.saturating_duration_since(now));
        }
        let Some((address, mut jobs)) = self.ring.pop_front() else { return Next::Nothing };
        let Some(job) = jobs.pop_front() else { return Next::Nothing };
        if !jobs.is_empty() {
            self.ring.push_back((address, jobs));
        }
        Next::Work(job)
    }

    /// A wrong password took this long: the next unauthenticated job waits.
    pub(super) fn rest(&mut self, began: Instant, ended: Instant) {
        let took = ended.saturating_duration_since(began);
        self.rests_until = Some(ended + took * REST);
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
        mem::take(&mut self.proved);
        mem::take(&mut self.ring);
    }
}

#[cfg(test)]
mod tests;
