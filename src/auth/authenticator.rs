//! The entry to authentication, on open servers too.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderValue, header};
use tokio::time::timeout_at;

use super::fair_queue::HashPriority;
use super::hasher::{Hasher, WrongPassword};
use super::key::RequestFingerprintKey;
use super::key_source::Keyring;
use super::logins::Logins;
use super::request::{
    AuthError, AuthRequest, CallerStatus, Denial, Identification, IdentifiedCaller,
};
use super::signing::Signer;
use super::webhook_secret::{self, WebhookSecret};
use super::{basic_login, digest_login, logout, parameters, password};
use crate::clock;
use crate::fault::OrBug;
use crate::model::{AuthScheme, Model};
use crate::permit::{Caller, Rights};
use crate::plan::WritePlan;
use crate::problem::{self, Problem, ProblemKind};
use crate::store::{StoreError, StoreWorker};
use crate::value::{Moment, Value};

/// Opens the secrets of webhooks.
#[derive(Debug, Clone)]
pub struct WebhookSecretOpener {
    signer: Option<Arc<Signer>>,
}

impl WebhookSecretOpener {
    /// The secrets that sign at this time, the current one first. `None`: there is no key that opens them.
    pub fn open(
        &self,
        stored: &str,
        previous_expires: Option<Moment>,
        now: Moment,
    ) -> Option<Vec<WebhookSecret>> {
        let keyring = &self.signer.as_ref()?.keyring;
        let opened = webhook_secret::open_stored(&keyring.keys(), stored).or_else(|_| {
            // The key may have been rotated.
            webhook_secret::open_stored(&keyring.reload_if_changed(), stored)
        });
        let mut secrets = opened.ok()?;
        if previous_expires.is_none_or(|expires| expires <= now) {
            secrets.truncate(1);
        }
        Some(secrets)
    }
}

/// The state of authentication, shared by all threads.
#[derive(Debug)]
pub struct Authenticator {
    model: Arc<Model>,
    /// The caller of requests without credentials; with `--open` one with all rights.
    anonymous: Caller,
    /// `None`: nothing can be signed or sealed, which happens with `--open` only.
    signer: Option<Arc<Signer>>,
    hasher: Arc<Hasher>,
    /// `None` with `--open`.
    logins: Option<Logins>,
}

impl Authenticator {
    /// A server that requires authentication. `None`: the keys cannot sign.
    pub fn required(model: &Arc<Model>, keys: Keyring) -> io::Result<Option<Self>> {
        let Some(signer) = Signer::new(model, keys).map(Arc::new) else { return Ok(None) };
        let hasher = Arc::new(Hasher::start()?);
        let logins = Logins::new(model, Arc::clone(&signer), Arc::clone(&hasher))?;
        let rights = Rights::of_roles(model, ["anyone"].into_iter());
        Ok(Some(Self {
            model: Arc::clone(model),
            anonymous: Caller::anonymous(Arc::new(rights)),
            signer: Some(signer),
            hasher,
            logins: Some(logins),
        }))
    }

    /// A server without authentication (`--open`). With keys, new passwords work for Digest too.
    pub fn open(model: &Arc<Model>, keys: Option<Keyring>) -> io::Result<Self> {
        Ok(Self {
            model: Arc::clone(model),
            anonymous: Caller::open(model),
            signer: keys.and_then(|keys| Signer::new(model, keys)).map(Arc::new),
            hasher: Arc::new(Hasher::start()?),
            logins: None,
        })
    }

    /// Whether the server runs with `--open`.
    pub fn is_open(&self) -> bool {
        self.logins.is_none()
    }

    /// The caller of a request without credentials.
    pub fn anonymous(&self) -> IdentifiedCaller {
        IdentifiedCaller::anonymous(self.anonymous.clone())
    }

    /// Step 4 of the order of checks. A caller without credentials has the role `anyone`, which may have
    /// grants or not.
    pub async fn identify(
        &self,
        request: &AuthRequest<'_>,
        body: Option<&[u8]>,
    ) -> Result<Identification, AuthError> {
        crate::fault::point("identify");
        let mut sent = request.parts.headers.get_all(header::AUTHORIZATION).iter();
        let (Some(logins), Some(credentials)) = (&self.logins, sent.next()) else {
            return Ok(Identification::Known(self.anonymous()));
        };
        let identified = match self.scheme(credentials, request) {
            _ if sent.next().is_some() => {
                Err(Denial::Malformed("expected one Authorization header, got several"))
            }
            Some((AuthScheme::Basic, rest)) => {
                basic_login::authenticate(logins, request, rest).await
            }
            Some((AuthScheme::Digest, rest)) => {
                digest_login::authenticate(logins, request, rest, body).await
            }
            None => Err(Denial::WRONG),
        };
        match identified {
            Ok(identification) => Ok(identification),
            Err(denial) => Err(Box::pin(logins.deny(request, denial)).await),
        }
    }

    /// The scheme of the credentials, if it is offered, and the text after its name.
    fn scheme<'c>(
        &self,
        credentials: &'c HeaderValue,
        request: &AuthRequest<'_>,
    ) -> Option<(AuthScheme, &'c [u8])> {
        let offered = &self.model.realm(request.realm).schemes;
        let is_offered = |scheme: &AuthScheme| {
            offered.contains(scheme) && (request.is_private || *scheme != AuthScheme::Basic)
        };
        parameters::split_scheme(credentials.as_bytes()).filter(|(scheme, _)| is_offered(scheme))
    }

    /// Always a 401, the status that makes a browser forget its credentials.
    pub async fn log_out(&self, request: &AuthRequest<'_>) -> AuthError {
        logout::log_out(self.logins.as_ref(), self.model.realm(request.realm), request).await
    }

    /// A 401 of this kind, with the challenges of the realm.
    pub async fn unauthorized(
        &self,
        request: &AuthRequest<'_>,
        kind: &'static ProblemKind,
    ) -> AuthError {
        let logins = self.logins.as_ref().or_bug("an open server asks nobody for credentials");
        logins.unauthorized(request, kind).await
    }

    /// Checks whether the user of an identified caller has changed.
    pub async fn caller_status(
        &self,
        store: &StoreWorker,
        known: &IdentifiedCaller,
    ) -> Result<CallerStatus, StoreError> {
        match &self.logins {
            Some(logins) => logins.caller_status(store, known).await,
            None => Ok(CallerStatus::Unchanged),
        }
    }

    /// Reads whether users have changed, so that `caller_status` is then valid for this moment.
    pub async fn renew_lease(&self, store: &StoreWorker) -> Result<(), StoreError> {
        match &self.logins {
            Some(logins) => logins.users.renew_lease(store).await,
            None => Ok(()),
        }
    }

    /// Invalidates the cached users, after this server has changed some.
    pub fn invalidate_users(&self) {
        if let Some(logins) = &self.logins {
            logins.users.invalidate();
        }
    }

    /// Replaces each clear-text password by its record: neither the store nor its queue ever holds a password
    /// in clear. A request with many users ends at its deadline, with no record made for the rest.
    pub async fn hash_passwords(
        &self,
        write: &mut WritePlan,
        deadline: Instant,
    ) -> Result<(), Problem> {
        for (name, secret) in write.secrets(&self.model) {
            let Value::ClearText(password) = &*secret else { continue };
            if clock::now() >= deadline {
                return Err(Problem::new(&problem::TIMED_OUT));
            }
            let (name, password) = (name.to_owned(), password.reveal().to_owned());
            let model = Arc::clone(&self.model);
            // A rotation may be in progress: what this write seals must be sealed with the new key.
            let keys = self.signer.as_ref().map(|signer| signer.keyring.reload_if_changed());
            let make = move || {
                (
                    password::make_record(&model, keys.as_deref(), &name, &password),
                    WrongPassword::No,
                )
            };
            let made = self.hasher.run(HashPriority::Authenticated, make);
            let made = timeout_at(deadline.into(), made).await;
            let made = made.map_err(|_| Problem::new(&problem::TIMED_OUT))?;
            let made = made.map_err(|_| Problem::new(&problem::BUSY))?;
            let record =
                made.map_err(|unfit| Problem::new(&problem::UNAVAILABLE).cause(unfit.to_string()))?;
            *secret = Value::text(&record.to_string());
        }
        Ok(())
    }

    /// Replaces each clear-text secret of a webhook by its sealed text, and makes those that the client leaves to the
    /// server. Returns whether there was one.
    pub fn seal_webhook_secrets(&self, write: &mut WritePlan) -> Result<bool, Problem> {
        let mut is_sealed = false;
        for value in write.webhook_secrets(&self.model) {
            let Value::ClearText(clear) = &*value else { continue };
            let signer =
                self.signer.as_ref().ok_or_else(|| Problem::new(&problem::NO_SERVER_KEY))?;
            // A rotation may be in progress: what this write seals must be sealed with the new key.
            let keys = signer.keyring.reload_if_changed();
            let secret = match clear.is_to_generate() {
                true => WebhookSecret::random(),
                false => WebhookSecret::parse(clear.reveal()),
            };
            let sealed = secret.and_then(|secret| secret.seal(&keys)).ok_or_else(|| {
                Problem::new(&problem::UNAVAILABLE).cause("the system has no randomness")
            })?;
            *value = Value::text(&sealed);
            is_sealed = true;
        }
        Ok(is_sealed)
    }

    /// The current secret in the stored text of a webhook.
    pub fn open_webhook_secret(&self, stored: &str) -> Option<WebhookSecret> {
        let keys = self.signer.as_ref()?.keyring.keys();
        webhook_secret::open_stored(&keys, stored).ok()?.into_iter().next()
    }

    /// Opens the secrets of webhooks for their signatures.
    pub fn webhook_secret_opener(&self) -> WebhookSecretOpener {
        WebhookSecretOpener { signer: self.signer.clone() }
    }

    /// Seals a response that has a secret in it, for its retries.
    pub fn seal_response(&self, text: &str) -> Option<String> {
        webhook_secret::seal_response(&self.signer.as_ref()?.keyring.keys(), text)
    }

    pub fn open_response(&self, sealed: &str) -> Option<String> {
        webhook_secret::open_response(&self.signer.as_ref()?.keyring.reload_if_changed(), sealed)
    }

    pub fn has_server_key(&self) -> bool {
        self.signer.is_some()
    }

    /// The keys for the MACs of request fingerprints: new ones use the first, all are compared. `None` without
    /// a server key. Reloads the keys, because another server may use a new one already.
    pub fn request_fingerprint_keys(&self) -> Option<Vec<RequestFingerprintKey>> {
        let signer = self.signer.as_ref()?;
        Some(signer.keyring.reload_if_changed().request_fingerprint_keys())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::{self, PathIds, RequestVerb, ResourcePath, Route, RouteTarget};
    use crate::model;
    use crate::plan::{ChangeAuthor, Plan, make};

    /// A thousand passwords take longer to hash than a request may take.
    #[tokio::test]
    async fn hash_passwords_at_the_deadline_is_timed_out() {
        let text = "title = \"T\"\n[resources.thing.fields]\nname = { type = \"text\" }\n";
        let model = Arc::new(model::read("m.toml", text).unwrap());
        let ids = PathIds::default();
        let target = RouteTarget::Collection(ResourcePath::nested(model.users, ids));
        let body = br#"{"user":{"name":"ann","password":"secret a"}}"#;
        let route = Route { verb: RequestVerb::Post, target };
        let intent = intent::read(&model, route, (None, &intent::AllReadable), body).unwrap();
        let author = || ChangeAuthor::without_user("-", "-");
        let Ok(Plan::Write(mut write)) = make(&model, intent, &Caller::open(&model), author) else {
            panic!("a POST is a write");
        };
        let auth = Authenticator::open(&model, None).unwrap();
        let refused = auth.hash_passwords(&mut write, clock::now()).await.unwrap_err();
        assert_eq!(refused.kind(), &problem::TIMED_OUT);
        assert!(write.has_clear_text(&model));
        let later = clock::now() + std::time::Duration::from_secs(600);
        auth.hash_passwords(&mut write, later).await.unwrap();
        assert!(!write.has_clear_text(&model));
    }
}
