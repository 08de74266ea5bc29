//! Password checks for Basic and Digest: each guess is compared and counted in one step.
//!
//! `login` decides which response the client gets, and when. A check may refuse a correct password without
//! comparing it, because too many failures came before.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::account::UserAccount;
use super::authenticator::Authenticator;
use super::basic::BasicCredentials;
use super::credential_cache::CredentialCache;
use super::digest::{self, DigestCredentials};
use super::hasher::WrongPassword;
use super::password;
use super::request::{AuthError, AuthRequest};
use super::throttle::LoginThrottle;
use crate::clock;
use crate::model::Algorithm;
use crate::store;

/// A Basic password, to be checked on the hasher's thread.
pub(super) struct PasswordCheck {
    pub(super) credentials_mac: [u8; 32],
    /// The user of this name.
    pub(super) user: Option<Arc<UserAccount>>,
    pub(super) credentials: BasicCredentials,
    pub(super) address: IpAddr,
    pub(super) cache: Arc<CredentialCache>,
    pub(super) throttle: Arc<LoginThrottle>,
}

/// The result of a check.
pub(super) enum PasswordVerdict {
    Correct,
    /// The failure is counted.
    Wrong,
    /// Nothing was compared: too many failures came before.
    Throttled(Duration),
}

impl PasswordCheck {
    /// There is one hasher thread, so no other check runs between this one's read of the throttle and its
    /// count: concurrent guesses get no more comparisons than sequential ones.
    pub(super) fn run(self) -> (PasswordVerdict, WrongPassword) {
        let Self {
            credentials_mac: trace,
            user,
            credentials: pair,
            address,
            cache: memory,
            throttle,
        } = self;
        let now = clock::now();
        // A client with many connections sends the same credentials on all of them before the first is
        // answered.
        if let (Some(user), Some(known)) = (&user, memory.find_login(&trace, now))
            && known.is_same_login(user)
        {
            return (PasswordVerdict::Correct, WrongPassword::No);
        }
        if let Some(time) = throttle.locked_out_for(&pair.name, address, now) {
            return (PasswordVerdict::Throttled(time), WrongPassword::No);
        }
        let is_right = password::verify(user.as_ref().map(|user| &user.record), &pair.password);
        if is_right && user.is_some_and(|user| !user.is_disabled) {
            // Digest failures may have reached the limit during the hash.
            return match throttle.locked_out_for(&pair.name, address, clock::now()) {
                None => (PasswordVerdict::Correct, WrongPassword::No),
                Some(time) => (PasswordVerdict::Throttled(time), WrongPassword::No),
            };
        }
        let wrong = if is_right { WrongPassword::No } else { WrongPassword::Yes };
        match throttle.count_failure(&pair.name, address, clock::now()) {
            Ok(()) => (PasswordVerdict::Wrong, wrong),
            // Digest failures have reached the limit meanwhile.
            Err(time) => (PasswordVerdict::Throttled(time), wrong),
        }
    }
}

/// The Digest credentials of a request, parsed and checked to belong to it.
pub(super) struct DigestAttempt<'a> {
    pub(super) proof: DigestCredentials<'a>,
    pub(super) algorithm: Algorithm,
    /// The hash of the body, if the proof covers the body.
    pub(super) body_hash: Option<digest::HexDigest>,
}

impl Authenticator {
    /// The user whom a proof authenticates. The cache is checked first; the stored user decides.
    ///
    /// Nothing is awaited between a comparison and its count, so concurrent guesses get no more comparisons
    /// than sequential ones. A wrong guess at a cached user is therefore counted before the user is read, and
    /// uncounted if the password has changed in the meantime and the guess is correct.
    pub(super) async fn find_verified_user(
        &self,
        store: &store::StoreWorker,
        request: &AuthRequest<'_>,
        (name, is_proved): (&str, bool),
        claimant: &DigestAttempt<'_>,
    ) -> Result<Arc<UserAccount>, AuthError> {
        let mut counted = None;
        if let Some(user) = self.users.cached_or_reread(store, name, request.now).await? {
            if let Some(user) = self.proved_user(request, claimant, Some(user)) {
                return self.let_in(request, (name, is_proved), user).await;
            }
            let failure = self.throttle.count_failure(name, request.address, clock::now());
            if let Err(time) = failure
                && !is_proved
            {
                return Err(self.locked_out(request, time).await.into());
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
                    Ok(()) => self.delayed_failure(store, request).await,
                    Err(time) => self.locked_out(request, time).await.into(),
                })
            }
        }
    }

    /// The user, if the proof is theirs. Takes equally long if there is no such user.
    fn proved_user(
        &self,
        request: &AuthRequest<'_>,
        DigestAttempt { proof, algorithm, body_hash }: &DigestAttempt<'_>,
        user: Option<Arc<UserAccount>>,
    ) -> Option<Arc<UserAccount>> {
        let ha1 = user.as_ref().and_then(|user| user.ha1(request.realm, *algorithm));
        let nobody = self.credential_cache.dummy_ha1(*algorithm);
        let method = request.parts.method.as_str();
        let is_right = proof.verify(ha1.unwrap_or(nobody), method, body_hash.as_ref());
        let is_known = ha1.is_some() && is_right;
        user.filter(|user| is_known && !user.is_disabled)
    }

    /// Other guesses may have failed while the user was read; at the limit even a correct guess is refused.
    async fn let_in(
        &self,
        request: &AuthRequest<'_>,
        (name, is_proved): (&str, bool),
        user: Arc<UserAccount>,
    ) -> Result<Arc<UserAccount>, AuthError> {
        if !is_proved {
            self.check_lockout(name, request).await?;
        }
        Ok(user)
    }
}
