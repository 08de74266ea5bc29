//! The input of authentication, taken from a request, and its result: the caller.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::request::Parts;
use http::{HeaderName, HeaderValue, header};

use super::account::{LEASE, UserAccount};
use super::digest::{self, DigestTarget, Ha1, KeyedCredentials, ScopeMismatch};
use super::parameters::{self, MalformedCredentials};
use crate::fault::OrBug;
use crate::model::{Algorithm, RealmIndex};
use crate::permit::Caller;
use crate::plan::RightsLease;
use crate::problem::{self, Problem, ProblemKind};
use crate::store::{StoreError, StoreWorker};

/// The parts of a request that authentication needs.
#[derive(Debug, Clone, Copy)]
pub struct AuthRequest<'a> {
    pub store: &'a StoreWorker,
    pub parts: &'a Parts,
    pub id: &'a str,
    /// The realm of the requested resource.
    pub realm: RealmIndex,
    /// The client's address.
    pub address: IpAddr,
    /// Whether the connection is encrypted or local: only then Basic is offered.
    pub is_private: bool,
    pub now: Instant,
}

impl<'a> AuthRequest<'a> {
    /// The target that Digest credentials must be for.
    pub(super) fn target(&self) -> DigestTarget<'a> {
        let uri = &self.parts.uri;
        let host = self.parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = uri.authority().map(http::uri::Authority::as_str).or(host).unwrap_or("");
        DigestTarget {
            text: uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str),
            host,
        }
    }
}

/// The result of authentication.
#[derive(Debug)]
pub enum Identification {
    Known(IdentifiedCaller),
    /// The credentials cover the body: call again with it.
    NeedsBody,
}

impl Identification {
    pub(super) fn user(user: &Arc<UserAccount>, info: AuthenticationInfo) -> Self {
        Self::Known(IdentifiedCaller::user(user, info))
    }
}

/// The caller, and the `Authentication-Info` of the response.
#[derive(Debug)]
pub struct IdentifiedCaller {
    pub caller: Caller,
    /// The user at the time of the login; `None` for an anonymous caller.
    pub(super) user: Option<Arc<UserAccount>>,
    pub(super) info: AuthenticationInfo,
}

/// Whether a caller's user has changed since the login.
#[derive(Debug)]
pub enum CallerStatus {
    Unchanged,
    /// The same user with other rights.
    Changed(IdentifiedCaller),
    /// The user is disabled, removed, or has another password.
    Gone,
}

/// The value of `Authentication-Info`.
#[derive(Debug)]
pub(super) enum AuthenticationInfo {
    Absent,
    Ready(HeaderValue),
    /// It covers the response's body too. The last element is the next nonce.
    CoversBody(Box<(Ha1, Algorithm, Option<String>)>),
}

impl AuthenticationInfo {
    /// When it does not depend on the response's body.
    pub(super) fn ready(keyed: &KeyedCredentials<'_>, next: Option<&str>) -> Self {
        match keyed.authentication_info(None, next) {
            None => Self::Absent,
            Some(text) => Self::Ready(info_value(text)),
        }
    }
}

fn info_value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).or_bug("a cnonce that came in a header fits into one")
}

impl IdentifiedCaller {
    pub(super) fn anonymous(caller: Caller) -> Self {
        Self { caller, user: None, info: AuthenticationInfo::Absent }
    }

    pub(super) fn user(user: &Arc<UserAccount>, info: AuthenticationInfo) -> Self {
        let caller = Caller::user(Arc::clone(&user.name), Arc::clone(&user.rights))
            .with_user_fields(Arc::clone(&user.fields));
        Self { caller, user: Some(Arc::clone(user)), info }
    }

    /// The same caller without `Authentication-Info`, for work that outlives the request.
    pub fn without_info(&self) -> Self {
        Self {
            caller: self.caller.clone(),
            user: self.user.clone(),
            info: AuthenticationInfo::Absent,
        }
    }

    /// Takes the rights of the same caller after a change of them; `Authentication-Info` stays.
    pub fn renew(&mut self, renewed: Self) {
        (self.caller, self.user) = (renewed.caller, renewed.user);
    }

    /// The lease for checking the caller's rights again in a write; `checked`: the time of the last check.
    pub fn mandate(&self, checked: Instant) -> Option<RightsLease> {
        let user = Arc::clone(self.user.as_ref()?);
        Some(RightsLease { user, valid_until: checked + LEASE })
    }

    /// The header by which the server authenticates itself to the client, for a response with this body. For
    /// a streaming body, which cannot be covered, there is no `rspauth`, as RFC 7616 §3.5 allows: a proof
    /// that covers less than the client requested, under the same name, could be mistaken for one that covers
    /// all.
    pub fn authentication_info(
        &self,
        parts: &Parts,
        body: Option<&[u8]>,
    ) -> Option<(HeaderName, HeaderValue)> {
        const AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("authentication-info");
        let value = match &self.info {
            AuthenticationInfo::Absent => return None,
            AuthenticationInfo::Ready(value) => value.clone(),
            AuthenticationInfo::CoversBody(proved) => {
                let (ha1, algorithm, next) = &**proved;
                let credentials = parts.headers.get(header::AUTHORIZATION);
                let credentials =
                    credentials.and_then(|it| parameters::split_scheme(it.as_bytes()));
                let proof = credentials.and_then(|(_, rest)| digest::read(rest).ok());
                let proof = proof.or_bug("the credentials were parsed before");
                let keyed = proof.with_ha1(ha1).or_bug("the credentials were verified before");
                let hash = body.map(|body| digest::hash_bytes(*algorithm, body));
                info_value(keyed.authentication_info(hash.as_ref(), next.as_deref())?)
            }
        };
        Some((AUTHENTICATION_INFO, value))
    }
}

/// Why credentials are not accepted. `Logins::deny` makes the response of it, after its delay.
#[derive(Debug)]
pub(super) enum Denial {
    /// 400: not in the grammar of the scheme, or for another request.
    Malformed(&'static str),
    /// 401 immediately: nothing was compared with a password, or only the nonce is wrong.
    Rejected(&'static ProblemKind),
    /// 401 after a delay; the failure is counted.
    WrongPassword,
    /// 429 after a longer delay.
    LockedOut(Duration),
    Store(StoreError),
}

impl Denial {
    pub(super) const WRONG: Self = Self::Rejected(&problem::CREDENTIALS_WRONG);
    pub(super) const STALE: Self = Self::Rejected(&problem::STALE_NONCE);
}

impl From<StoreError> for Denial {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<MalformedCredentials> for Denial {
    fn from(MalformedCredentials(detail): MalformedCredentials) -> Self {
        Self::Malformed(detail)
    }
}

impl From<ScopeMismatch> for Denial {
    fn from(mismatch: ScopeMismatch) -> Self {
        match mismatch {
            ScopeMismatch::Uri => Self::Malformed("uri: expected the target of the request"),
            ScopeMismatch::Realm
            | ScopeMismatch::Opaque
            | ScopeMismatch::Algorithm
            | ScopeMismatch::Qop => Self::WRONG,
        }
    }
}

/// Why a request was not authenticated.
#[derive(Debug)]
pub enum AuthError {
    Problem(Problem),
    Store(StoreError),
}

impl From<Problem> for AuthError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<StoreError> for AuthError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
