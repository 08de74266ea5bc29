//! Guesses of a password, by Basic and by Digest, each compared and counted in one step.
//!
//! `login` decides which response the client gets, and when. The one surprising thing: a check may refuse a
//! correct password without comparing it, because too many failures came before.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::basic::Pair;
use super::digest::{self, Proof};
use super::hasher::Wrong;
use super::memory::Memory;
use super::throttle::Throttle;
use super::users::User;
use super::{Auth, Request, Stop, password};
use crate::clock;
use crate::model::Algorithm;
use crate::store;

/// A Basic password, to be checked on the hasher's thread.
pub(super) struct BasicGuess {
    pub(super) trace: [u8; 32],
    /// The user of this name.
    pub(super) user: Option<Arc<User>>,
    pub(super) pair: Pair,
    pub(super) address: IpAddr,
    pub(super) memory: Arc<Memory>,
    pub(super) throttle: Arc<Throttle>,
}

/// The result of a check.
pub(super) enum Verdict {
    Right,
    /// The failure is counted.
    Wrong,
    /// Nothing was compared: too many failures came before.
    Throttled(Duration),
}

impl BasicGuess {
    /// There is one hasher thread, so no other check runs between this one's look at the throttle and its
    /// count: concurrent guesses get no more comparisons than sequential ones.
    pub(super) fn judge(self) -> (Verdict, Wrong) {
        let Self { trace, user, pair, address, memory, throttle } = self;
        let now = clock::now();
        // A client with many connections sends the same credentials on all of them before the first is
        // answered.
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
            // Digest failures have reached the limit meanwhile.
            Err(time) => (Verdict::Throttled(time), wrong),
        }
    }
}

/// The credentials of a request by Digest, read and found to be meant for it.
pub(super) struct Claimant<'a> {
    pub(super) proof: Proof<'a>,
    pub(super) algorithm: Algorithm,
    /// Of the body, where the proof covers it.
    pub(super) body_hash: Option<digest::Hash>,
}

impl Auth {
    /// The user whom a proof is of. What is in memory is asked first, and what is stored decides.
    ///
    /// Nothing is awaited between a comparison and its count, so of guesses that are sent at once no more
    /// are told apart from a right password than of those that come one after another. A wrong guess at a
    /// user in memory is therefore counted before the user is read, and taken back if the password has
    /// changed meanwhile and it is right after all.
    pub(super) async fn verified(
        &self,
        store: &store::Worker,
        request: &Request<'_>,
        (name, is_proved): (&str, bool),
        claimant: &Claimant<'_>,
    ) -> Result<Arc<User>, Stop> {
        let mut counted = None;
        if let Some(user) = self.users.recall(store, name, request.now).await? {
            if let Some(user) = self.proved_user(request, claimant, Some(user)) {
                return self.let_in(request, (name, is_proved), user).await;
            }
            let failure = self.throttle.count_failure(name, request.address, clock::now());
            if let Err(time) = failure
                && !is_proved
            {
                return Err(self.shut_out(request, time).await.into());
            }
            counted = Some(failure);
        }
        let read = self.users.read(store, name, request.now).await?;
        match (self.proved_user(request, claimant, read), counted) {
            (Some(user), None) => self.let_in(request, (name, is_proved), user).await,
            (Some(user), Some(failure)) => {
                if failure.is_ok() {
                    self.throttle.take_back(name, request.address, clock::now());
                }
                Ok(user)
            }
            (None, counted) => {
                let count = || self.throttle.count_failure(name, request.address, clock::now());
                Err(match counted.unwrap_or_else(count) {
                    Ok(()) => self.fail(store, request).await,
                    Err(time) => self.shut_out(request, time).await.into(),
                })
            }
        }
    }

    /// The user, if the proof is theirs. It takes as long for nobody as for somebody.
    fn proved_user(
        &self,
        request: &Request<'_>,
        Claimant { proof, algorithm, body_hash }: &Claimant<'_>,
        user: Option<Arc<User>>,
    ) -> Option<Arc<User>> {
        let ha1 = user.as_ref().and_then(|user| user.ha1(request.realm, *algorithm));
        let nobody = self.memory.nobody(*algorithm);
        let method = request.parts.method.as_str();
        let is_right = proof.verify(ha1.unwrap_or(nobody), method, body_hash.as_ref());
        let is_known = ha1.is_some() && is_right;
        user.filter(|user| is_known && !user.is_disabled)
    }

    /// Others may have failed while the user was read, and then a right guess is one too many.
    async fn let_in(
        &self,
        request: &Request<'_>,
        (name, is_proved): (&str, bool),
        user: Arc<User>,
    ) -> Result<Arc<User>, Stop> {
        if !is_proved {
            self.refuse_shut(name, request).await?;
        }
        Ok(user)
    }
}
