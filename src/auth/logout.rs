//! Logging out: how a browser is made to forget.
//!
//! HTTP has no word for it. But a browser drops the credentials it has for a realm when they are
//! answered with 401, and when that 401 has no challenge it knows, it has nothing to ask its user
//! for and shows the answer. So credentials are answered with a scheme that nobody knows. Without
//! credentials the usual challenge comes first: a browser that has some for the realm, from a path
//! that is not above this one, then sends them without a word.
//! The one surprising thing: nothing is verified. What is forgotten is forgotten, right or wrong, and
//! a wrong password here costs nobody anything.

use http::{HeaderName, HeaderValue, header};

use super::{Auth, Request, Stop, digest, parameters};
use crate::model::Scheme;
use crate::problem::{self, Problem};
use crate::store;

/// What the browser has kept of the pages from before would be shown to whoever goes back to them.
const CLEAR_SITE_DATA: (HeaderName, HeaderValue) =
    (HeaderName::from_static("clear-site-data"), HeaderValue::from_static("\"cache\""));

/// The query of the address that a browser ends at. The page that it comes from is put aside only when
/// the next one is shown, so that it takes one more answer to clear that one away; and an address that
/// asks for nothing can be loaded again.
const DONE: &str = "done";
const REFRESH: (HeaderName, HeaderValue) =
    (HeaderName::from_static("refresh"), HeaderValue::from_static("0; url=?done"));

impl Auth {
    /// Always a 401: it is what makes a browser forget.
    pub async fn log_out(&self, store: &store::Worker, request: &Request<'_>) -> Stop {
        let is_done = request.parts.uri.query() == Some(DONE);
        let mut sent = request.parts.headers.get_all(header::AUTHORIZATION).iter().peekable();
        let stop = if sent.peek().is_none() && !is_done && !self.is_open {
            self.refuse(store, request, &problem::LOGGED_OUT).await
        } else {
            sent.for_each(|credentials| self.forget_login(credentials.as_bytes()));
            let realm = self.model.realms.get(request.realm).map_or("", |realm| &*realm.name);
            let line = HeaderValue::try_from(format!("Logout realm=\"{realm}\"").into_bytes());
            let line = line.unwrap_or(HeaderValue::from_static("Logout"));
            Problem::new(&problem::LOGGED_OUT).header(header::WWW_AUTHENTICATE, line).into()
        };
        let more = [Some(CLEAR_SITE_DATA), (!is_done).then_some(REFRESH)];
        match stop {
            Stop::Store(error) => Stop::Store(error),
            Stop::Problem(problem) => more
                .into_iter()
                .flatten()
                .fold(problem, |problem, (name, value)| problem.header(name, value))
                .into(),
        }
    }

    /// What is in memory of a login goes with it.
    fn forget_login(&self, credentials: &[u8]) {
        match parameters::split(credentials) {
            None => {}
            Some((Scheme::Basic, rest)) => self.memory.forget(&self.memory.trace(rest)),
            Some((Scheme::Digest, rest)) => {
                let Ok(proof) = digest::read(rest) else { return };
                if let digest::User::Name(name) = &proof.user {
                    self.memory.disprove(&proof.nonce, name);
                }
            }
        }
    }
}
