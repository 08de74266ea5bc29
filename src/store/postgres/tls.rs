//! TLS to the database: rustls behind the TLS traits of tokio_postgres.
//!
//! `verify` checks the server's certificate; this module has the configuration and the stream.
//! The files are read for each connection, as libpq does, so that a renewed certificate needs no restart;
//! connections are few, and PostgreSQL issues no session tickets.
//! The crypto provider is named here: the process has no default one that another crate could change.
//! Where the certificate is not verified, a host name that is invalid in TLS is accepted; the handshake then
//! has no SNI.

mod certificate;
mod verify;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use crate::store::postgres::connection_url::address::{
    ClientCertificateFiles, PostgresTls, TlsMode, TrustRoots,
};
use crate::store::postgres::tls::verify::{CertificateVerifier, TrustAnchors, VerificationLevel};

/// Makes the TLS layer of connections. A clone shares the files that were read.
#[derive(Debug, Clone)]
pub struct PostgresTlsConnector {
    config: Arc<ClientConfig>,
    mode: TlsMode,
}

impl PostgresTlsConnector {
    /// Reads the files that the URL names; the error says which of them is wrong, and how.
    pub fn new(tls: &PostgresTls) -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let asked = match tls.mode {
            TlsMode::Disable | TlsMode::Prefer | TlsMode::Require => VerificationLevel::Unverified,
            TlsMode::VerifyCa => VerificationLevel::Chain(load_anchors(tls.roots.as_ref())?),
            TlsMode::VerifyFull => {
                VerificationLevel::ChainAndName(load_anchors(tls.roots.as_ref())?)
            }
        };
        let verifier = CertificateVerifier::new(asked, provider.signature_verification_algorithms);
        let config = ClientConfig::builder_with_provider(Arc::<CryptoProvider>::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be used ({error})"))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match &tls.client {
            None => config.with_no_client_auth(),
            Some(files) => {
                let (chain, key) = read_client_certificate(files)?;
                config.with_client_auth_cert(chain, key).map_err(|error| {
                    let (certificate, key) = (files.certificate.display(), files.key.display());
                    format!("sslcert {certificate} and sslkey {key} do not match ({error})")
                })?
            }
        };
        Ok(Self { config: Arc::new(config), mode: tls.mode })
    }
}

/// The system's trust anchors, loaded once: loading takes tens of milliseconds of a thread that serves
/// requests.
static SYSTEM_ANCHORS: OnceLock<Arc<TrustAnchors>> = OnceLock::new();

fn load_anchors(roots: Option<&TrustRoots>) -> Result<Arc<TrustAnchors>, String> {
    match roots {
        Some(TrustRoots::File(file)) => {
            let found = read_certificates(file, "sslrootcert")?;
            parse_anchors(found, &file.display().to_string()).map(Arc::new)
        }
        Some(TrustRoots::System) | None => match SYSTEM_ANCHORS.get() {
            Some(trusted) => Ok(Arc::clone(trusted)),
            None => {
                let found = rustls_native_certs::load_native_certs().certs;
                let trusted = Arc::new(parse_anchors(found, "the system")?);
                Ok(Arc::clone(SYSTEM_ANCHORS.get_or_init(|| trusted)))
            }
        },
    }
}

fn parse_anchors(
    certificates: Vec<CertificateDer<'static>>,
    place: &str,
) -> Result<TrustAnchors, String> {
    let mut store = RootCertStore::empty();
    // The system's list may have some that rustls cannot parse.
    let (added, _) = store.add_parsable_certificates(certificates.iter().cloned());
    if added == 0 {
        return Err(format!(
            "sslrootcert: no certificate of {place} can be used; on Debian the system's are in the package \
             ca-certificates"
        ));
    }
    Ok(TrustAnchors { store, certificates })
}

fn read_certificates(file: &Path, key: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let place = file.display();
    let found =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if found.is_empty() => {
            Err(format!("{key}: there is no certificate in {place}, which must be a file in PEM"))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(format!("{key}: cannot read {place} ({error})")),
    }
}

fn read_client_certificate(
    files: &ClientCertificateFiles,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let chain = read_certificates(&files.certificate, "sslcert")?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| {
        format!(
            "sslkey: cannot read {} ({error}); a key with a passphrase is not supported",
            files.key.display()
        )
    })?;
    Ok((chain, key))
}

impl MakeTlsConnect<Socket> for PostgresTlsConnector {
    type Stream = PostgresTlsStream;
    type TlsConnect = PostgresTlsHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<PostgresTlsHandshake> {
        let name = match (ServerName::try_from(host.to_owned()), self.mode) {
            (Ok(name), _) => name,
            (Err(error), TlsMode::VerifyFull) => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
            }
            (Err(_), _) => ServerName::IpAddress(IpAddr::V4(Ipv4Addr::UNSPECIFIED).into()),
        };
        Ok(PostgresTlsHandshake { config: Arc::clone(&self.config), name })
    }
}

/// A handshake to be made.
#[derive(Debug)]
pub struct PostgresTlsHandshake {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for PostgresTlsHandshake {
    type Stream = PostgresTlsStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<PostgresTlsStream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        let connector = tokio_rustls::TlsConnector::from(self.config);
        Box::pin(async move { connector.connect(self.name, socket).await.map(PostgresTlsStream) })
    }
}

/// An encrypted connection.
#[derive(Debug)]
pub struct PostgresTlsStream(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for PostgresTlsStream {
    /// SCRAM channel binding: the password's proof covers the certificate, so it is worthless to a man in
    /// the middle with another certificate, even where the certificate is not verified.
    fn channel_binding(&self) -> ChannelBinding {
        let (_, session) = self.0.get_ref();
        let first = session.peer_certificates().and_then(<[_]>::first);
        first
            .and_then(|certificate| certificate::channel_binding_digest(certificate))
            .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl AsyncRead for PostgresTlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for PostgresTlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
