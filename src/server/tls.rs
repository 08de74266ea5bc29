//! TLS: the certificate that is served, its reload, and the warnings before it expires.
//!
//! `config` has the certificate in use, `handshake` runs handshakes, `certificate_pair` checks the files. The cryptography provider is named
//! there: the process has no default one that another crate could change. A pair that cannot be used prevents
//! the start, but at a reload it only causes a warning, because the pair in use is better than none.

mod certificate;
mod certificate_pair;
mod config;
mod handshake;
mod stream;

pub use self::certificate_pair::CertificateFiles;
pub(super) use self::config::watch_certificate;
pub use self::config::{TlsConfig, is_dns_name};
pub(super) use self::handshake::{HandshakeFailure, HandshakeScheduler, handshake};
