//! Webhooks: the resources `/-/webhooks` and their deliveries, `nouns webhook test`, and the addresses to which nothing
//! is sent.
//!
//! The receivers are scripted servers in the test (`receiver`); their signatures are checked with a second
//! implementation of Standard Webhooks, here and by the published libraries.

mod deliveries;
pub(crate) mod hooks;
mod model_changes;
mod name_resolution;
mod published_libraries;
pub mod receiver;
mod refused_addresses;
mod replicas;
mod resources;
mod retention;
mod secrets;
mod sending;
mod session;
mod test_command;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use receiver::ReceivedRequest;

/// Fails unless one of the request's signatures is that of the secret.
pub(crate) fn verify_signature(request: &ReceivedRequest, secret: &str) {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let header = |name: &str| request.header(name).unwrap_or_else(|| panic!("{name}: {request:?}"));
    let signed =
        format!("{}.{}.{}", header("webhook-id"), header("webhook-timestamp"), request.body);
    let expected = format!("v1,{}", STANDARD.encode(hmac::sign(&key, signed.as_bytes())));
    let signatures: Vec<_> = header("webhook-signature").split(' ').collect();
    assert!(signatures.contains(&&*expected), "{signatures:?}, expected {expected}");
}
