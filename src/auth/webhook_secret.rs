//! The secrets of webhooks, in the form of Standard Webhooks: `whsec_` and 24 to 64 bytes in base64.
//!
//! A webhook stores sealed texts with a space between them: that of its secret and, after a rotation, that of the
//! previous one. They are not bound to their row, because a secret is sealed before its webhook has an id.

use std::fmt;

use super::key::KeySet;
use super::seal::{self, SealContext, SealError};
use crate::model::types::{decode_webhook_secret, encode_webhook_secret};

/// The seal contexts of secrets and of stored responses; neither belongs to a user or a realm.
const SECRET_CONTEXT: SealContext<'_> = SealContext { user: "", realm: "", algorithm: "webhook" };
const RESPONSE_CONTEXT: SealContext<'_> =
    SealContext { user: "", realm: "", algorithm: "response" };

/// The size of a secret that is made here.
const RANDOM_BYTES: usize = 32;

/// A secret in clear text.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(Vec<u8>);

impl WebhookSecret {
    /// `None` if it is not a secret; a message must not contain any part of it.
    pub fn parse(text: &str) -> Option<Self> {
        decode_webhook_secret(text).map(Self)
    }

    /// `None`: the system has no randomness.
    pub fn random() -> Option<Self> {
        let mut bytes = vec![0; RANDOM_BYTES];
        getrandom::fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// The text that the receiver is configured with.
    pub fn clear_text(&self) -> String {
        encode_webhook_secret(&self.0)
    }

    /// `None`: the system has no randomness.
    pub fn seal(&self, keys: &KeySet) -> Option<String> {
        seal::seal(keys, &SECRET_CONTEXT, &self.0)
    }

    fn open(keys: &KeySet, sealed: &str) -> Result<Self, SealError> {
        seal::open(keys, &SECRET_CONTEXT, sealed).map(Self)
    }

    /// The key of the signatures.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("WebhookSecret(…)")
    }
}

/// Opens the secrets in the stored text of a webhook: the current one, then the previous one, if there is one.
pub fn open_stored(keys: &KeySet, stored: &str) -> Result<Vec<WebhookSecret>, SealError> {
    stored.split(' ').map(|sealed| WebhookSecret::open(keys, sealed)).collect()
}

/// The stored text of a webhook after a change of the key.
#[derive(Debug, PartialEq, Eq)]
pub enum ResealedSecrets {
    /// The first key has sealed everything.
    Current,
    Resealed(String),
    /// No key opens the current secret.
    Lost,
}

/// Seals the secrets of a webhook with the first key; a previous one that no key opens is dropped. `None`: the system
/// has no randomness.
pub fn reseal(keys: &KeySet, stored: &str) -> Option<ResealedSecrets> {
    let is_current = |sealed: &str| seal::is_sealed_by_first_key(keys, sealed);
    if stored.is_empty() || stored.split(' ').all(is_current) {
        return Some(ResealedSecrets::Current);
    }
    let mut secrets = stored.split(' ').map(|sealed| WebhookSecret::open(keys, sealed));
    let Some(Ok(current)) = secrets.next() else { return Some(ResealedSecrets::Lost) };
    let secrets = [current].into_iter().chain(secrets.flatten());
    let sealed: Option<Vec<String>> = secrets.map(|secret| secret.seal(keys)).collect();
    Some(ResealedSecrets::Resealed(sealed?.join(" ")))
}

/// Seals a response with a secret in it, which is kept for retries. `None`: the system has no randomness.
pub fn seal_response(keys: &KeySet, text: &str) -> Option<String> {
    seal::seal(keys, &RESPONSE_CONTEXT, text.as_bytes())
}

pub fn open_response(keys: &KeySet, sealed: &str) -> Option<String> {
    let opened = seal::open(keys, &RESPONSE_CONTEXT, sealed).ok()?;
    String::from_utf8(opened).ok()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn webhook_secret_has_a_prefix_and_24_to_64_bytes() {
        let text = |count: usize| format!("whsec_{}", STANDARD.encode(vec![0xfb; count]));
        for count in [24, 32, 64] {
            let secret = WebhookSecret::parse(&text(count)).unwrap();
            assert_eq!((secret.bytes().len(), secret.clear_text()), (count, text(count)));
        }
        for bad in [
            text(23),
            text(65),
            text(32).trim_start_matches("whsec_").to_owned(),
            text(32).replace("whsec_", "WHSEC_"),
            text(32).replace('+', "-"),
            text(32).trim_end_matches('=').to_owned(),
            text(32) + " ",
            String::new(),
        ] {
            assert_eq!(WebhookSecret::parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn webhook_secrets_are_resealed_with_a_new_key() {
        let [old, new] = [1, 2].map(|byte| KeySet::example(&[byte]));
        let both = KeySet::example(&[2, 1]);
        let secrets = [WebhookSecret::random().unwrap(), WebhookSecret::random().unwrap()];
        let sealed = secrets.clone().map(|secret| secret.seal(&old).unwrap()).join(" ");
        assert_eq!(open_stored(&old, &sealed).unwrap(), secrets);
        assert_eq!(reseal(&old, &sealed), Some(ResealedSecrets::Current));
        assert_eq!(reseal(&old, ""), Some(ResealedSecrets::Current));
        assert_eq!(reseal(&new, &sealed), Some(ResealedSecrets::Lost));
        let Some(ResealedSecrets::Resealed(again)) = reseal(&both, &sealed) else { panic!() };
        assert_eq!(open_stored(&new, &again).unwrap(), secrets);
        assert!(open_stored(&old, &again).is_err());
        // The previous one was sealed with a key that is lost.
        let mixed =
            format!("{} {}", secrets[0].seal(&new).unwrap(), secrets[1].seal(&old).unwrap());
        let Some(ResealedSecrets::Resealed(rest)) = reseal(&new, &mixed) else { panic!() };
        assert_eq!(open_stored(&new, &rest).unwrap(), secrets[..1]);
    }

    #[test]
    fn webhook_secret_random_is_new_and_is_not_printed() {
        let secret = WebhookSecret::random().unwrap();
        assert_ne!(secret, WebhookSecret::random().unwrap());
        assert_eq!(WebhookSecret::parse(&secret.clear_text()), Some(secret.clone()));
        assert_eq!(format!("{secret:?}"), "WebhookSecret(…)");
    }
}
