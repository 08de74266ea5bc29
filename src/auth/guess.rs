//! Guesses of a password by Basic, compared and counted in one step.
//!
//! Who is told what, and when, is for `login` to say.
//! The one surprising thing: a guess may be refused although its password is right, and then nothing was
//! compared: too many others came before it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::basic::Pair;
use super::hasher::Wrong;
use super::memory::Memory;
use super::password;
use super::throttle::Throttle;
use super::users::User;
use crate::clock;

/// A password by Basic, to be judged on the thread that hashes.
pub(super) struct BasicGuess {
    pub(super) trace: [u8; 32],
    /// Whom the name belongs to.
    pub(super) user: Option<Arc<User>>,
    pub(super) pair: Pair,
    pub(super) address: IpAddr,
    pub(super) memory: Arc<Memory>,
    pub(super) throttle: Arc<Throttle>,
}

/// What came of a guess.
pub(super) enum Verdict {
    Right,
    /// It is counted.
    Wrong,
    /// Nothing was compared: too many were wrong before it.
    Throttled(Duration),
}

impl BasicGuess {
    /// There is one such thread, so no guess comes between this one's look at the throttle and its count:
    /// of guesses sent at once, no more are compared than of those that come one after another.
    pub(super) fn judge(self) -> (Verdict, Wrong) {
        let Self { trace, user, pair, address, memory, throttle } = self;
        let now = clock::now();
        // A client with many connections sends the same on all of them, before the first is answered.
        if let (Some(user), Some(known)) = (&user, memory.recall(&trace, now))
            && known.is(user)
        {
            return (Verdict::Right, Wrong::No);
        }
        if let Some(time) = throttle.is_shut(&pair.name, address, now) {
            return (Verdict::Throttled(time), Wrong::No);
        }
        let is_right = password::verify(user.as_ref().map(|user| &user.record), &pair.password);
        if is_right && user.is_some_and(|user| !user.is_disabled) {
            return (Verdict::Right, Wrong::No);
        }
        let wrong = if is_right { Wrong::No } else { Wrong::Yes };
        match throttle.count_failure(&pair.name, address, clock::now()) {
            Ok(()) => (Verdict::Wrong, wrong),
            // By Digest, meanwhile.
            Err(time) => (Verdict::Throttled(time), wrong),
        }
    }
}
