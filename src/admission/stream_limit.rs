//! Limits on concurrent streaming responses, in all and per caller.
//!
//! Streams are counted separately from requests: a stream holds no permit of admission control. Anonymous
//! callers are distinguished by address, where an IPv6 /64 is one caller, since it is the smallest network
//! that a client gets.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fault;
use crate::rate_window::network;

/// The identity that limits count by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallerKey {
    User(Box<str>),
    Address(IpAddr),
}

impl CallerKey {
    pub fn new(user_name: Option<&str>, address: IpAddr) -> Self {
        match user_name {
            Some(name) => Self::User(name.into()),
            None => Self::Address(network(address)),
        }
    }
}

/// The limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamLimit {
    Total,
    PerCaller,
}

/// The streams in flight.
#[derive(Debug)]
pub struct StreamLimiter {
    counts: Mutex<StreamCounts>,
    streams_max: usize,
    per_caller_max: usize,
}

#[derive(Debug, Default)]
struct StreamCounts {
    count: usize,
    by_caller: HashMap<CallerKey, usize>,
}

impl StreamLimiter {
    pub(super) fn new(streams_max: usize, per_caller_max: usize) -> Arc<Self> {
        Arc::new(Self { counts: Mutex::default(), streams_max, per_caller_max })
    }

    fn lock_counts(&self) -> MutexGuard<'_, StreamCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self) -> usize {
        self.lock_counts().count
    }

    /// A permit for one more stream, unless a limit is reached.
    pub fn acquire(self: &Arc<Self>, whose: CallerKey) -> Result<StreamPermit, StreamLimit> {
        let mut under_way = self.lock_counts();
        let own = under_way.by_caller.get(&whose).copied().unwrap_or_default();
        if own >= self.per_caller_max {
            return Err(StreamLimit::PerCaller);
        }
        if under_way.count >= self.streams_max {
            return Err(StreamLimit::Total);
        }
        under_way.count += 1;
        under_way.by_caller.insert(whose.clone(), own + 1);
        Ok(StreamPermit { streams: Arc::clone(self), caller: whose })
    }
}

/// A permit, released when the stream ends.
#[derive(Debug)]
pub struct StreamPermit {
    streams: Arc<StreamLimiter>,
    caller: CallerKey,
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut under_way = self.streams.lock_counts();
        let others = under_way.by_caller.get_mut(&self.caller).map(|own| {
            *own = own.saturating_sub(1);
            *own
        });
        let is_counted = others.is_some() && under_way.count > 0;
        // Callers without a stream take up no memory.
        if others == Some(0) {
            under_way.by_caller.remove(&self.caller);
        }
        under_way.count = under_way.count.saturating_sub(1);
        drop(under_way);
        if !is_counted {
            fault::log_bug("`acquire` has counted the stream");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_limited_per_caller_and_in_total_and_released() {
        let streams = StreamLimiter::new(3, 2);
        let whose = |name| CallerKey::new(Some(name), [127, 0, 0, 1].into());
        let ann = [(); 2].map(|()| streams.acquire(whose("ann")).unwrap());
        assert_eq!(streams.acquire(whose("ann")).unwrap_err(), StreamLimit::PerCaller);
        let bob = streams.acquire(whose("bob")).unwrap();
        assert_eq!(streams.acquire(whose("bob")).unwrap_err(), StreamLimit::Total);
        assert_eq!(streams.count(), 3);
        drop(ann);
        let again = streams.acquire(whose("ann")).unwrap();
        drop((bob, again));
        assert_eq!(streams.count(), 0);
        assert!(streams.lock_counts().by_caller.is_empty());
    }

    /// A second panic that leaves `drop` would abort the process.
    #[test]
    fn stream_permit_with_a_wrong_count_is_dropped_during_a_panic() {
        let streams = StreamLimiter::new(3, 2);
        let permit = streams.acquire(CallerKey::User("ann".into())).unwrap();
        *streams.lock_counts() = StreamCounts::default();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _permit = permit;
            panic!("planted");
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"planted"));
        assert_eq!(streams.count(), 0);
    }

    #[test]
    fn caller_key_is_an_ipv6_64_an_ipv4_address_or_a_user_name() {
        let whose = |name, address: &str| CallerKey::new(name, address.parse().unwrap());
        assert_eq!(whose(None, "2001:db8::1"), whose(None, "2001:db8::ffff:0:0:2"));
        assert_ne!(whose(None, "2001:db8::1"), whose(None, "2001:db8:0:1::1"));
        assert_ne!(whose(None, "192.0.2.1"), whose(None, "192.0.2.2"));
        assert_eq!(whose(Some("ann"), "192.0.2.1"), whose(Some("ann"), "192.0.2.2"));
    }
}
