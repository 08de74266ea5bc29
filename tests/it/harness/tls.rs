//! Certificates for tests, and the client side of TLS.
//!
//! It uses the same libraries as the server; other tests use `openssl`, `curl` and the like for a
//! second opinion.
//! An end without `close_notify` is an error here, so that every test that reads to the end of a
//! connection tests the TLS closure as well.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    date_time_ymd,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const DAY: i64 = 86_400;

/// A certificate for `localhost` and 127.0.0.1 and its key, as PEM.
#[derive(Debug, Clone)]
pub struct CertificatePair {
    pub certificate: String,
    pub key: String,
    /// The issuer's certificate; itself, unless it was `issued`.
    pub authority: String,
}

impl CertificatePair {
    pub fn new() -> Self {
        Self::valid(-DAY, 90 * DAY)
    }

    /// Valid between these times, in seconds from now.
    pub fn valid(from: i64, to: i64) -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::new(["localhost".into(), "127.0.0.1".into()]).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let at = |seconds: i64| {
            let moved = now.as_secs().checked_add_signed(seconds).unwrap();
            date_time_ymd(1970, 1, 1) + Duration::from_secs(moved)
        };
        (params.not_before, params.not_after) = (at(from), at(to));
        let certificate = params.self_signed(&key).unwrap();
        let certificate = certificate.pem();
        Self { authority: certificate.clone(), certificate, key: key.serialize_pem() }
    }

    /// Issued by a CA, as most certificates are.
    pub fn issued_by_ca() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Authority of the tests");
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::new(["localhost".into(), "127.0.0.1".into()]).unwrap();
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        Self { certificate, key: key.serialize_pem(), authority }
    }

    /// Writes both files into a folder, each atomically.
    pub fn write(&self, folder: &Path) {
        for (name, text) in [("cert.pem", &self.certificate), ("key.pem", &self.key)] {
            let new = folder.join(format!("{name}.new"));
            fs::write(&new, text).unwrap();
            fs::rename(new, folder.join(name)).unwrap();
        }
    }

    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()
    }

    /// A client that trusts this certificate alone, and resumes sessions.
    pub fn trusting_client(&self) -> Arc<ClientConfig> {
        trusting_client(&[self])
    }
}

/// A client that trusts these certificates.
pub fn trusting_client(pairs: &[&CertificatePair]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for pair in pairs {
        roots.add(CertificateDer::from_pem_slice(pair.authority.as_bytes()).unwrap()).unwrap();
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// One connection, encrypted or not.
#[derive(Debug)]
pub(super) enum ClientStream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl ClientStream {
    pub(super) fn encrypted(socket: TcpStream, config: Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(config, name).unwrap();
        Self::Tls(Box::new(StreamOwned::new(session, socket)))
    }

    /// Half-closes the connection.
    pub(super) fn finish_writing(&mut self) {
        match self {
            Self::Plain(socket) => drop(socket.shutdown(Shutdown::Write)),
            Self::Tls(stream) => {
                stream.conn.send_close_notify();
                drop(stream.flush());
            }
        }
    }

    /// The server's certificate, once the handshake has ended.
    pub(super) fn certificate(&self) -> Option<CertificateDer<'static>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => Some(stream.conn.peer_certificates()?.first()?.clone()),
        }
    }
}

impl Read for ClientStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for ClientStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
