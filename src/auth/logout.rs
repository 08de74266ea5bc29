//! Logout: makes a browser forget its credentials.
//!
//! HTTP has no logout. But a browser drops the credentials it has for a realm when the response to them is
//! 401, and when that 401 has no challenge that it knows, it does not prompt its user and shows the response.
//! So a request with credentials gets a 401 with an unknown scheme. A request without credentials gets the
//! usual challenge first: a browser that has credentials for the realm, from a path that is not above this
//! one, then sends them without a prompt. Nothing is verified. The browser forgets correct and wrong
//! credentials alike, and a wrong password here counts as no failure.

use http::{HeaderName, HeaderValue, header};

use super::authenticator::Authenticator;
use super::request::{AuthError, AuthRequest};
use super::{digest, parameters};
use crate::model::AuthScheme;
use crate::problem::{self, Problem};
use crate::store;

/// Clears the browser's cached pages, which the back button would otherwise show.
const CLEAR_SITE_DATA: (HeaderName, HeaderValue) =
    (HeaderName::from_static("clear-site-data"), HeaderValue::from_static("\"cache\""));

/// The query of the final address. A browser puts the previous page into its back-forward cache only when the
/// next one is shown, so one more response is needed to clear that page; and the final address has no side
/// effect, so that it can be reloaded.
const DONE_QUERY: &str = "done";
const REFRESH: (HeaderName, HeaderValue) =
    (HeaderName::from_static("refresh"), HeaderValue::from_static("0; url=?done"));

impl Authenticator {
    /// Always a 401, the status that makes a browser forget its credentials.
    pub async fn log_out(
        &self,
        store: &store::StoreWorker,
        request: &AuthRequest<'_>,
    ) -> AuthError {
        let is_done = request.parts.uri.query() == Some(DONE_QUERY);
        let mut sent = request.parts.headers.get_all(header::AUTHORIZATION).iter().peekable();
        let stop = if sent.peek().is_none() && !is_done && !self.is_open {
            self.unauthorized(store, request, &problem::LOGGED_OUT).await
        } else {
            sent.for_each(|credentials| self.forget_login(credentials.as_bytes()));
            let realm = self.model.realms.get(request.realm).map_or("", |realm| &*realm.name);
            let line = HeaderValue::try_from(format!("Logout realm=\"{realm}\"").into_bytes());
            let line = line.unwrap_or(HeaderValue::from_static("Logout"));
            Problem::new(&problem::LOGGED_OUT).header(header::WWW_AUTHENTICATE, line).into()
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
    fn forget_login(&self, credentials: &[u8]) {
        match parameters::split_scheme(credentials) {
            None => {}
            Some((AuthScheme::Basic, rest)) => {
                self.credential_cache.remove_login(&self.credential_cache.credentials_mac(rest));
            }
            Some((AuthScheme::Digest, rest)) => {
                let Ok(proof) = digest::read(rest) else { return };
                if let digest::DigestUsername::Name(name) = &proof.user {
                    self.credential_cache.remove_session_nonce(&proof.nonce, name);
                }
            }
        }
    }
}
