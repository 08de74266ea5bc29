//! What authentication gets of a request, and what it finds out about its caller.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;
use http::{HeaderName, HeaderValue, header};

use super::account::{LEASE, UserAccount};
use super::digest::{self, DigestTarget, Ha1, KeyedCredentials};
use super::parameters;
use crate::model::Algorithm;
use crate::permit::Caller;
use crate::plan::RightsLease;
use crate::problem::Problem;
use crate::store::StoreError;

/// The parts of a request that authentication needs.
#[derive(Debug, Clone, Copy)]
pub struct AuthRequest<'a> {
    pub parts: &'a Parts,
    pub id: &'a str,
    /// The realm of the requested resource, by its index in the model.
    pub realm: usize,
    /// The client's address.
    pub address: IpAddr,
    /// Whether the connection is encrypted or local: only then Basic is offered.
    pub is_private: bool,
    pub now: Instant,
}

/// The result of authentication.
#[derive(Debug)]
pub enum Identification {
    Known(IdentifiedCaller),
    /// The credentials cover the body: call again with it.
    NeedsBody,
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

impl IdentifiedCaller {
    /// The same caller without `Authentication-Info`, for work that outlives the request.
    pub fn without_info(&self) -> Self {
        Self {
            caller: self.caller.clone(),
            user: self.user.clone(),
            info: AuthenticationInfo::Absent,
        }
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
                let credentials = parts.headers.get(header::AUTHORIZATION)?;
                let proof =
                    digest::read(parameters::split_scheme(credentials.as_bytes())?.1).ok()?;
                let hash = body.map(|body| digest::hash_bytes(*algorithm, body));
                let text =
                    proof.with_ha1(ha1)?.authentication_info(hash.as_ref(), next.as_deref())?;
                HeaderValue::try_from(text).ok()?
            }
        };
        Some((AUTHENTICATION_INFO, value))
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

/// `Authentication-Info`, when it does not depend on the response's body.
pub(super) fn ready_authentication_info(
    keyed: &KeyedCredentials<'_>,
    next: Option<&str>,
) -> AuthenticationInfo {
    let text = keyed.authentication_info(None, next);
    text.and_then(|text| HeaderValue::try_from(text).ok())
        .map_or(AuthenticationInfo::Absent, AuthenticationInfo::Ready)
}

pub(super) fn identified(user: &Arc<UserAccount>, info: AuthenticationInfo) -> IdentifiedCaller {
    let caller = Caller::user(Arc::clone(&user.name), Arc::clone(&user.rights));
    IdentifiedCaller { caller, user: Some(Arc::clone(user)), info }
}

pub(super) fn request_target<'a>(request: &AuthRequest<'a>) -> DigestTarget<'a> {
    let uri = &request.parts.uri;
    let host = request.parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = uri.authority().map(http::uri::Authority::as_str).or(host).unwrap_or("");
    DigestTarget { text: uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str), host }
}
