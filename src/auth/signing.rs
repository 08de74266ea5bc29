//! Signing of nonces, and the challenges that carry them.

use std::sync::{Arc, PoisonError, RwLock};

use super::challenge::Challenges;
use super::key::KeySet;
use super::key_source::Keyring;
use super::nonce::{NonceRandom, Nonces};
use crate::clock;
use crate::model::Model;

/// The state derived from one version of the keys.
#[derive(Debug)]
pub(super) struct SigningState {
    keys: Arc<KeySet>,
    pub(super) nonces: Nonces,
    /// By realm index.
    pub(super) opaques: Vec<Vec<Box<str>>>,
    challenges: Vec<Challenges>,
}

impl SigningState {
    fn new(model: &Model, keys: Arc<KeySet>) -> Option<Self> {
        let nonces = Nonces::new(&keys.nonce_keys())?;
        let opaques: Vec<_> =
            model.realms.iter().map(|realm| nonces.opaques(&realm.name)).collect();
        let challenges = model.realms.iter().zip(&opaques).map(|(realm, opaques)| {
            Challenges::new(realm, opaques.first().map_or("", |opaque| opaque))
        });
        let challenges = challenges.collect();
        Some(Self { keys, nonces, opaques, challenges })
    }

    pub(super) fn issue_nonce(&self, epoch: u64) -> String {
        let mut random = NonceRandom::default();
        // Without randomness a nonce may repeat; it is then refused as used, which is the only consequence.
        let _ = getrandom::fill(&mut random);
        self.nonces.issue(epoch, clock::moment().seconds(), random)
    }

    pub(super) fn challenges(&self, realm: usize) -> Option<&Challenges> {
        self.challenges.get(realm)
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

    /// Reloads the keys, after an unknown key has signed or sealed something; whether they have changed.
    pub(super) fn reload_if_changed(&self) -> bool {
        self.reload_accepting(|_| false)
    }

    /// As `reload_if_changed`, but also accepts unrelated keys that `fits` confirms.
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
