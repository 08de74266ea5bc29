//! A fair queue for the hasher: round robin over client addresses, so that an address with a thousand
//! requests delays only itself.
//!
//! Pure: the time is an argument. A full queue still accepts a newcomer, by evicting the last job of the
//! address with the most jobs, as long as that address has more than the newcomer's would.

use std::collections::VecDeque;
use std::mem;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::fault::OrBug;
use crate::rate_window::network;

/// The maximum number of waiting jobs of unauthenticated clients; as many again of authenticated callers.
const WAITING_MAX: usize = 64;
/// The pause after a wrong password, as a multiple of its hash's time.
const COOLDOWN_FACTOR: u32 = 3;

/// The priority of a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashPriority {
    /// An authenticated caller, such as an admin who sets a password: runs first.
    Authenticated,
    /// A client at this address, not authenticated yet.
    Unauthenticated(IpAddr),
}

/// The queue is full, or the server is shutting down: the client may retry in a second or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HasherBusy;

#[derive(Debug)]
pub(super) struct FairQueue<J> {
    authenticated: VecDeque<J>,
    /// Each address with its waiting jobs, at least one each; the front address is next.
    ring: VecDeque<(IpAddr, VecDeque<J>)>,
    cooldown_until: Option<Instant>,
    is_closed: bool,
}

/// The next action of the hasher thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextJob<J> {
    Run(J),
    /// The queue is empty.
    Idle,
    /// Jobs wait, but the pause lasts this long.
    CoolDown(Duration),
    End,
}

impl<J> FairQueue<J> {
    pub(super) fn new() -> Self {
        Self {
            authenticated: VecDeque::new(),
            ring: VecDeque::new(),
            cooldown_until: None,
            is_closed: false,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.authenticated.len() + self.unauthenticated_len()
    }

    fn unauthenticated_len(&self) -> usize {
        self.ring.iter().map(|(_, jobs)| jobs.len()).sum()
    }

    pub(super) fn enqueue(&mut self, who: HashPriority, job: J) -> Result<(), HasherBusy> {
        if self.is_closed {
            return Err(HasherBusy);
        }
        let HashPriority::Unauthenticated(address) = who else {
            if self.authenticated.len() >= WAITING_MAX {
                return Err(HasherBusy);
            }
            self.authenticated.push_back(job);
            return Ok(());
        };
        let address = network(address);
        if self.unauthenticated_len() >= WAITING_MAX {
            self.evict_from_longest(address)?;
        }
        match self.ring.iter_mut().find(|(its_address, _)| *its_address == address) {
            Some((_, jobs)) => jobs.push_back(job),
            None => self.ring.push_back((address, VecDeque::from([job]))),
        }
        Ok(())
    }

    /// Evicts the last job of the address with the most jobs, if it has more jobs than `address` would have.
    fn evict_from_longest(&mut self, address: IpAddr) -> Result<(), HasherBusy> {
        let own = self.ring.iter().find(|(its_address, _)| *its_address == address);
        let own = own.map_or(0, |(_, jobs)| jobs.len());
        let most = self.ring.iter_mut().max_by_key(|(_, jobs)| jobs.len());
        match most {
            Some((_, jobs)) if jobs.len() > own + 1 => {
                jobs.pop_back();
                Ok(())
            }
            _ => Err(HasherBusy),
        }
    }

    pub(super) fn next(&mut self, now: Instant) -> NextJob<J> {
        if self.is_closed {
            return NextJob::End;
        }
        if let Some(job) = self.authenticated.pop_front() {
            return NextJob::Run(job);
        }
        if self.ring.is_empty() {
            return NextJob::Idle;
        }
        if let Some(until) = self.cooldown_until.filter(|until| *until > now) {
            return NextJob::CoolDown(until.saturating_duration_since(now));
        }
        let (address, mut jobs) = self.ring.pop_front().or_bug("it is not empty");
        let job = jobs.pop_front().or_bug("an address without jobs is removed");
        if !jobs.is_empty() {
            self.ring.push_back((address, jobs));
        }
        NextJob::Run(job)
    }

    /// Starts the pause after a wrong password, during which unauthenticated jobs wait.
    pub(super) fn start_cooldown(&mut self, began: Instant, ended: Instant) {
        let took = ended.saturating_duration_since(began);
        self.cooldown_until = Some(ended + took * COOLDOWN_FACTOR);
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
        mem::take(&mut self.authenticated);
        mem::take(&mut self.ring);
    }
}

#[cfg(test)]
mod tests;
