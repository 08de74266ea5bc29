//! Authentication: from the credentials of a request to a caller.
//!
//! `Authenticator::identify` dispatches by the scheme of the credentials; `permit` decides what the caller
//! may do. Each scheme is in separate, pure files (`basic`, `digest`, `nonce`, `challenge`); `basic_login` and
//! `digest_login` combine them with stored users, used nonces and time. Digest with `auth-int` covers the body too, so the caller
//! may be known only after the body was read.

pub mod basic;
mod account;
mod authenticator;
mod basic_login;
mod challenge;
pub mod digest;
mod digest_login;
mod fair_queue;
mod hasher;
pub mod key;
pub mod key_source;
mod lockout;
mod logins;
mod logout;
mod credential_cache;
mod nonce;
pub mod parameters;
pub mod password;
mod request;
mod seal;
mod signing;
mod stamp_lease;
pub mod credential_text;
mod user_cache;
mod userhash;
pub mod webhook_secret;

pub use account::LEASE;
pub use authenticator::{Authenticator, WebhookSecretOpener};
pub use request::{AuthError, AuthRequest, CallerStatus, Identification, IdentifiedCaller};
