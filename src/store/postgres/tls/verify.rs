//! Verification of the server's certificate: not at all, its chain, or its chain and host name.
//!
//! Revocation lists are not checked. At every level, the server must prove in the handshake that it has the
//! certificate's key: channel binding ties the password to the certificate, which would be worthless for a
//! certificate that is only shown.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::store::postgres::tls::certificate;

#[derive(Debug)]
pub enum VerificationLevel {
    Unverified,
    Chain(Arc<TrustAnchors>),
    ChainAndName(Arc<TrustAnchors>),
}

#[derive(Debug)]
pub struct CertificateVerifier {
    level: VerificationLevel,
    algorithms: WebPkiSupportedAlgorithms,
}

impl CertificateVerifier {
    pub fn new(asked: VerificationLevel, algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { level: asked, algorithms }
    }

    fn verify_chain(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        trusted: &TrustAnchors,
        now: UnixTime,
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(shown)?;
        let signed = rustls::client::verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &trusted.store,
            between,
            now,
            self.algorithms.all,
        );
        match signed {
            Err(Error::InvalidCertificate(CertificateError::Other(other)))
                if format!("{other:?}").contains(CA_USED_AS_END_ENTITY) =>
            {
                match trusted.certificates.iter().any(|known| known == shown) {
                    true => Ok(()),
                    false => Err(CertificateError::UnknownIssuer.into()),
                }
            }
            signed => signed,
        }
    }
}

/// How rustls names, only as text, a server certificate that is also a CA. A self-signed certificate, the
/// usual way to begin, is one: it is accepted if it is itself among the trust anchors. rustls has checked
/// its validity period before that.
const CA_USED_AS_END_ENTITY: &str = "CaUsedAsEndEntity";

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.level {
            VerificationLevel::Unverified => {}
            VerificationLevel::Chain(trusted) => self.verify_chain(shown, between, trusted, now)?,
            VerificationLevel::ChainAndName(trusted) => {
                self.verify_chain(shown, between, trusted, now)?;
                verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, shown, signature, &self.algorithms)
    }

    /// rustls cannot parse a certificate of version 1, as `openssl x509 -req` makes it by default. Where
    /// the certificate is not verified, its public key is all that is needed.
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match (&self.level, certificate::public_key(shown)) {
            (VerificationLevel::Unverified, Some(key)) => {
                let key = SubjectPublicKeyInfoDer::from(key);
                verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
            }
            _ => verify_tls13_signature(message, shown, signature, &self.algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The trust anchors, also as the certificates themselves.
#[derive(Debug)]
pub struct TrustAnchors {
    pub store: RootCertStore,
    pub certificates: Vec<CertificateDer<'static>>,
}
