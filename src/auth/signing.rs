//! Signing of nonces, and the challenges that carry them.

use std::sync::{Arc, PoisonError, RwLock};

use super::challenge::Challenges;
use super::key::{Keyring, Keys};
use super::nonce::{Nonces, Random};
use crate::clock;
use crate::model::Model;

/// What was derived from the keys at one time.
#[derive(Debug)]
pub(super) struct Signing {
    keys: Arc<Keys>,
    pub(super) nonces: Nonces,
    /// By realm.
    pub(super) opaques: Vec<Vec<Box<str>>>,
    challenges: Vec<Challenges>,
}

impl Signing {
    fn new(model: &Model, keys: Arc<Keys>) -> Option<Self> {
        let nonces = Nonces::new(&keys.nonce_keys())?;
        let opaques: Vec<_> =
            model.realms.iter().map(|realm| nonces.opaques(&realm.name)).collect();
        let challenges = model.realms.iter().zip(&opaques).map(|(realm, opaques)| {
            Challenges::new(realm, opaques.first().map_or("", |opaque| opaque))
        });
        let challenges = challenges.collect();
        Some(Self { keys, nonces, opaques, challenges })
    }

    pub(super) fn nonce(&self, epoch: u64) -> String {
        let mut random = Random::default();
        // A repeated nonce is refused as used; nothing worse can come of it.
        let _ = getrandom::fill(&mut random);
        self.nonces.issue(epoch, clock::moment().seconds(), random)
    }

    pub(super) fn challenges(&self, realm: usize) -> Option<&Challenges> {
        self.challenges.get(realm)
    }
}

/// The keys of a server, and what is derived from them: both change when the keys are rotated.
#[derive(Debug)]
pub(super) struct Signer {
    model: Arc<Model>,
    pub(super) ring: Keyring,
    now: RwLock<Arc<Signing>>,
}

impl Signer {
    /// `None` without a key that can sign.
    pub(super) fn new(model: &Arc<Model>, ring: Keyring) -> Option<Self> {
        let now = RwLock::new(Arc::new(Signing::new(model, ring.keys())?));
        Some(Self { model: Arc::clone(model), ring, now })
    }

    pub(super) fn now(&self) -> Arc<Signing> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reloads the keys, after an unknown one has signed or sealed something. Whether they have changed.
    pub(super) fn look_again(&self) -> bool {
        self.look_for(|_| false)
    }

    /// The same, but accepts unrelated keys that `fits` confirms.
    pub(super) fn look_for(&self, fits: impl Fn(&Keys) -> bool) -> bool {
        let keys = self.ring.look_for(fits);
        if Arc::ptr_eq(&keys, &self.now().keys) {
            return false;
        }
        let Some(signing) = Signing::new(&self.model, keys) else { return false };
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(signing);
        true
    }
}
