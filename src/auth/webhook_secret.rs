//! The secrets of webhooks, in the form of Standard Webhooks: `whsec_` and 24 to 64 bytes in base64.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const PREFIX: &str = "whsec_";
const BYTES_MIN: usize = 24;
const BYTES_MAX: usize = 64;
/// The size of a secret that is made here.
const RANDOM_BYTES: usize = 32;

/// A secret in clear text.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(Vec<u8>);

impl WebhookSecret {
    /// `None` if it is not a secret; a message must not contain any part of it.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?;
        (BYTES_MIN..=BYTES_MAX).contains(&bytes.len()).then_some(Self(bytes))
    }

    /// `None`: the system has no randomness.
    pub fn random() -> Option<Self> {
        let mut bytes = vec![0; RANDOM_BYTES];
        getrandom::fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// The text that the receiver is configured with.
    pub fn clear_text(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
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

#[cfg(test)]
mod tests {
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
    fn webhook_secret_random_is_new_and_is_not_printed() {
        let secret = WebhookSecret::random().unwrap();
        assert_ne!(secret, WebhookSecret::random().unwrap());
        assert_eq!(WebhookSecret::parse(&secret.clear_text()), Some(secret.clone()));
        assert_eq!(format!("{secret:?}"), "WebhookSecret(…)");
    }
}
