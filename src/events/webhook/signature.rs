//! Signatures of Standard Webhooks: HMAC-SHA-256 over the id, the timestamp and the body.
//!
//! The headers are the same for every attempt of a delivery but for the timestamp, which receivers compare with
//! their own clock, usually within five minutes.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::auth::webhook_secret::WebhookSecret;

/// The structured mode of CloudEvents.
const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";
const USER_AGENT: &str = concat!("nouns/", env!("CARGO_PKG_VERSION"));

/// One request to a receiver, without its URL.
#[derive(Debug)]
pub struct SignedRequest {
    id: String,
    timestamp: i64,
    signature: String,
    pub body: Bytes,
}

impl SignedRequest {
    /// Signs with every secret: during a rotation the receiver may know only one of them. `timestamp` is in
    /// seconds since 1970.
    pub fn new(secrets: &[WebhookSecret], id: String, timestamp: i64, body: Bytes) -> Self {
        let signatures: Vec<_> =
            secrets.iter().map(|secret| sign(secret, &id, timestamp, &body)).collect();
        Self { signature: signatures.join(" "), id, timestamp, body }
    }

    /// The headers that do not depend on the receiver.
    pub fn headers(&self) -> [(&'static str, String); 5] {
        [
            ("content-type", CONTENT_TYPE.to_owned()),
            ("user-agent", USER_AGENT.to_owned()),
            ("webhook-id", self.id.clone()),
            ("webhook-timestamp", self.timestamp.to_string()),
            ("webhook-signature", self.signature.clone()),
        ]
    }
}

fn sign(secret: &WebhookSecret, id: &str, timestamp: i64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.bytes());
    let mut signed = hmac::Context::with_key(&key);
    signed.update(format!("{id}.{timestamp}.").as_bytes());
    signed.update(body);
    format!("v1,{}", STANDARD.encode(signed.sign()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The secret and the message of the tests in the published libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIMESTAMP: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn signature(secrets: &[WebhookSecret]) -> String {
        SignedRequest::new(secrets, ID.to_owned(), TIMESTAMP, Bytes::from_static(BODY)).signature
    }

    #[test]
    fn signature_equals_the_published_vector() {
        assert_eq!(signature(&[WebhookSecret::parse(SECRET).unwrap()]), SIGNATURE);
    }

    #[test]
    fn signature_during_a_rotation_has_one_for_each_secret() {
        let new = WebhookSecret::parse(&format!("whsec_{}", STANDARD.encode([7; 32]))).unwrap();
        let both = signature(&[new, WebhookSecret::parse(SECRET).unwrap()]);
        let (first, second) = both.split_once(' ').unwrap();
        assert!(first.starts_with("v1,") && first != SIGNATURE);
        assert_eq!(second, SIGNATURE);
    }

    #[test]
    fn signature_covers_id_timestamp_and_body() {
        let secret = WebhookSecret::parse(SECRET).unwrap();
        for (id, timestamp, body) in [
            ("msg_p5jXN8AQM9LWM0D4loKWxJel", TIMESTAMP, BODY),
            (ID, TIMESTAMP + 1, BODY),
            (ID, TIMESTAMP, br#"{"test": 2432232315}"#),
        ] {
            assert_ne!(sign(&secret, id, timestamp, body), SIGNATURE);
        }
    }
}
