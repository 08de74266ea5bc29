//! Logout: makes a browser forget its credentials.
//!
//! HTTP has no logout. But a browser drops the credentials it has for a realm when the response to them is
//! 401, and when that 401 has no challenge that it knows, it does not prompt its user and shows the response.
//! So a request with credentials gets a 401 with an unknown scheme. A request without credentials gets the
//! usual challenge first: a browser that has credentials for the realm, from a path that is not above this
//! one, then sends them without a prompt. Nothing is verified. The browser forgets correct and wrong
//! credentials alike, and a wrong password here counts as no failure.

use http::{HeaderName, HeaderValue, header};

use super::logins::Logins;
use super::request::{AuthError, AuthRequest};
use super::{digest, parameters};
use crate::fault::OrBug;
use crate::model::{AuthScheme, Realm};
use crate::problem::{self, Problem};

/// Clears the browser's cached pages, which the back button would otherwise show.
const CLEAR_SITE_DATA: (HeaderName, HeaderValue) =
    (HeaderName::from_static("clear-site-data"), HeaderValue::from_static("\"cache\""));

/// The query of the final address. A browser puts the previous page into its back-forward cache only when the
/// next one is shown, so one more response is needed to clear that page; and the final address has no side
/// effect, so that it can be reloaded.
const DONE_QUERY: &str = "done";
const REFRESH: (HeaderName, HeaderValue) =
    (HeaderName::from_static("refresh"), HeaderValue::from_static("0; url=?done"));

/// Always a 401, the status that makes a browser forget its credentials. `logins`: none on an open server.
pub(super) async fn log_out(
    logins: Option<&Logins>,
    realm: &Realm,
    request: &AuthRequest<'_>,
) -> AuthError {
    let is_done = request.parts.uri.query() == Some(DONE_QUERY);
    let mut sent = request.parts.headers.get_all(header::AUTHORIZATION).iter().peekable();
    let stop = match logins {
        Some(logins) if sent.peek().is_none() && !is_done => {
            logins.unauthorized(request, &problem::LOGGED_OUT).await
        }
        logins => {
            if let Some(logins) = logins {
                sent.for_each(|credentials| forget_login(logins, credentials.as_bytes()));
            }
            let line =
                HeaderValue::try_from(format!("Logout realm=\"{}\"", realm.name).into_bytes());
            let line = line.or_bug("the model check refuses names that no header can hold");
            Problem::new(&problem::LOGGED_OUT).header(header::WWW_AUTHENTICATE, line).into()
        }
    };
    let more = [Some(CLEAR_SITE_DATA), (!is_done).then_some(REFRESH)];
    match stop {
        AuthError::Store(error) => AuthError::Store(error),
        AuthError::Problem(problem) => more
            .into_iter()
            .flatten()
            .fold(problem, |problem, (name, value)| problem.header(name, value))
            .into(),
    }
}

/// Removes the login from the credential cache.
fn forget_login(logins: &Logins, credentials: &[u8]) {
    let cache = &logins.credentials;
    match parameters::split_scheme(credentials) {
        None => {}
        Some((AuthScheme::Basic, rest)) => cache.remove_login(&cache.credentials_mac(rest)),
        Some((AuthScheme::Digest, rest)) => {
            let Ok(proof) = digest::read(rest) else { return };
            if let digest::DigestUsername::Name(name) = &proof.user {
                cache.remove_session_nonce(&proof.nonce, name);
            }
        }
    }
}
