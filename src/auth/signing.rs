//! Signing of nonces, and the challenges that carry them.

use std::sync::{Arc, PoisonError, RwLock};

use super::challenge::Challenges;
use super::key::KeySet;
use super::key_source::Keyring;
use super::nonce::{Nonce, NonceError, NonceRandom, Nonces};
use crate::clock;
use crate::fault::OrBug;
use crate::model::{Model, Realm, RealmIndex};
use crate::store::StoreError;

/// The state derived from one version of the keys.
#[derive(Debug)]
pub(super) struct SigningState {
    keys: Arc<KeySet>,
    pub(super) nonces: Nonces,
    /// In the order of the model's realms.
    realms: Vec<RealmSigning>,
}

/// The constant parts of the challenges of one realm.
#[derive(Debug)]
pub(super) struct RealmSigning {
    /// The `opaque` under each key, that of the signing key first.
    pub(super) opaques: Vec<Box<str>>,
    pub(super) challenges: Challenges,
}

impl SigningState {
    fn new(model: &Model, keys: Arc<KeySet>) -> Option<Self> {
        let nonces = Nonces::new(&keys.nonce_keys())?;
        let realm = |realm: &Realm| {
            let opaques = nonces.opaques(&realm.name);
            let current = opaques.first().or_bug("there is an opaque for each key");
            RealmSigning { challenges: Challenges::new(realm, current), opaques }
        };
        Some(Self { realms: model.realms.iter().map(realm).collect(), keys, nonces })
    }

    pub(super) fn realm(&self, index: RealmIndex) -> &RealmSigning {
        self.realms.get(index.0).or_bug("there is one for each realm of the model")
    }

    pub(super) fn issue_nonce(&self, epoch: u64) -> Result<String, StoreError> {
        let mut random = NonceRandom::default();
        getrandom::fill(&mut random)
            .map_err(|error| StoreError::Unavailable(format!("no randomness: {error}")))?;
        Ok(self.nonces.issue(epoch, clock::moment().seconds(), random))
    }
}

/// The keys of a server and the state derived from them: both change when the keys are rotated.
#[derive(Debug)]
pub(super) struct Signer {
    model: Arc<Model>,
    pub(super) keyring: Keyring,
    current: RwLock<Arc<SigningState>>,
}

impl Signer {
    /// `None` without a key that can sign.
    pub(super) fn new(model: &Arc<Model>, ring: Keyring) -> Option<Self> {
        let now = RwLock::new(Arc::new(SigningState::new(model, ring.keys())?));
        Some(Self { model: Arc::clone(model), keyring: ring, current: now })
    }

    pub(super) fn current(&self) -> Arc<SigningState> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Verifies a nonce, and returns the keys that verified it. If no loaded key did, the keys are reloaded
    /// once: another server may have signed the nonce with a new key.
    pub(super) fn read_nonce(&self, text: &[u8]) -> (Arc<SigningState>, Result<Nonce, NonceError>) {
        let now = clock::moment().seconds();
        let signing = self.current();
        match signing.nonces.read(text, now) {
            Err(NonceError::Foreign) if self.reload_accepting(|_| false) => {
                let signing = self.current();
                let nonce = signing.nonces.read(text, now);
                (signing, nonce)
            }
            nonce => (signing, nonce),
        }
    }

    /// Reloads the keys, after an unknown key has signed or sealed something; whether they have changed.
    /// Accepts unrelated keys only if `fits` confirms them.
    pub(super) fn reload_accepting(&self, fits: impl Fn(&KeySet) -> bool) -> bool {
        let keys = self.keyring.reload_accepting(fits);
        if Arc::ptr_eq(&keys, &self.current().keys) {
            return false;
        }
        let Some(signing) = SigningState::new(&self.model, keys) else { return false };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(signing);
        true
    }
}
