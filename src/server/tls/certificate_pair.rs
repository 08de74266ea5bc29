//! The certificate and its key: two files, read and checked as one.
//!
//! Each error says how to fix it, and reading changes nothing. Only the server's own certificate is checked
//! for expiry. A chain may hold an expired one that no client needs any more.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerConfig};
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};

use super::certificate::{self, CertificateInfo, format_to_seconds};
use crate::value::Moment;

/// The maximum size of a file, far larger than any certificate with its chain.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The paths of the pair.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A pair that can be served.
#[derive(Debug)]
pub(super) struct CertificatePair {
    pub(super) config: Arc<ServerConfig>,
    pub(super) info: CertificateInfo,
}

/// Why a pair cannot be used, and how to fix it.
#[derive(Debug)]
pub struct CertificateError(String);

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CertificateError {}

const CERTIFICATE: &str = "--tls-cert";
const KEY: &str = "--tls-key";

/// Reads both files, and checks that they match and are valid now.
pub(super) fn read(
    files: &CertificateFiles,
    now: Moment,
) -> Result<CertificatePair, CertificateError> {
    let chain = read_chain(&files.certificate)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let key = read_key(&files.key, &provider)?;
    let (place, key_place) = (files.certificate.display(), files.key.display());
    let info = chain.first().and_then(|own| certificate::read(own));
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // A kind of key that cannot derive its public key.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
        Err(rustls::Error::InconsistentKeys(_)) => {
            return Err(CertificateError(format!(
                "the key in {key_place} does not belong to the certificate in {place}; name the key that \
                 the certificate was made for, and let the server's own certificate come first in its file"
            )));
        }
        Err(error) => return Err(unusable(&files.certificate, &error)),
    }
    let info = info.ok_or_else(|| unusable(&files.certificate, &"its times cannot be read"))?;
    check_validity(&files.certificate, info, now)?;
    let config = server_config(provider, certified)
        .map_err(|error| CertificateError(format!("TLS cannot be used ({error})")))?;
    Ok(CertificatePair { config: Arc::new(config), info })
}

fn unusable(file: &Path, cause: &dyn fmt::Display) -> CertificateError {
    let place = file.display();
    CertificateError(format!(
        "{CERTIFICATE}: the certificate in {place} cannot be used ({cause}); ask for a new one where this \
         one came from, or make a self-signed one with: nouns cert"
    ))
}

fn check_validity(file: &Path, info: CertificateInfo, now: Moment) -> Result<(), CertificateError> {
    let place = file.display();
    if now > info.not_after {
        return Err(CertificateError(format!(
            "{CERTIFICATE}: the certificate in {place} expired at {}; renew it where it came from, or make \
             a self-signed one with: nouns cert",
            format_to_seconds(info.not_after)
        )));
    }
    if now < info.not_before {
        return Err(CertificateError(format!(
            "{CERTIFICATE}: the certificate in {place} is valid only from {} on, and it is {} here; set \
             the clock of this machine right, or use another certificate until then",
            format_to_seconds(info.not_before),
            format_to_seconds(now)
        )));
    }
    Ok(())
}

/// The TLS configuration. Sessions are resumed by stateless tickets, so that a client that never returns
/// leaves no state at the server. There is no early data (0-RTT).
fn server_config(
    provider: Arc<CryptoProvider>,
    certified: CertifiedKey,
) -> Result<ServerConfig, rustls::Error> {
    let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    Ok(config)
}

fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let bytes = read_limited(file, CERTIFICATE, "the certificate")?;
    let place = file.display();
    let labels = pem_labels(&bytes);
    if labels.is_empty() {
        return Err(CertificateError(format!(
            "{CERTIFICATE}: {place} is not PEM: expected a line -----BEGIN CERTIFICATE-----, got none; \
             write a certificate in DER as PEM with: openssl x509 -inform der -in {place} -out cert.pem"
        )));
    }
    let found = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| {
        CertificateError(format!("{CERTIFICATE}: {place} is damaged ({error}); copy it once more"))
    })?;
    if found.is_empty() {
        return Err(CertificateError(format!(
            "{CERTIFICATE}: there is no certificate in {place}, got {}; name the file with the \
             certificate and its chain, and the one with the key by {KEY}",
            labels.join(", ")
        )));
    }
    Ok(found)
}

fn read_key(
    file: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<dyn SigningKey>, CertificateError> {
    let bytes = read_limited(file, KEY, "the key")?;
    let place = file.display();
    let labels = pem_labels(&bytes);
    if labels.is_empty() {
        return Err(CertificateError(format!(
            "{KEY}: {place} is not PEM: expected a line -----BEGIN PRIVATE KEY-----, got none; write a key \
             in DER as PEM with: openssl pkey -inform der -in {place} -out key.pem"
        )));
    }
    // RFC 7468 §11, and RFC 1421 §4.6.1.1 for the older form.
    let is_old_and_sealed = || bytes.windows(21).any(|text| text == b"Proc-Type: 4,ENCRYPTE");
    if labels.iter().any(|label| label == "ENCRYPTED PRIVATE KEY") || is_old_and_sealed() {
        return Err(CertificateError(format!(
            "{KEY}: the key in {place} has a passphrase, which nobody could type at every start; write it \
             without one, for this user alone to read, with: \
             (umask 077; openssl pkey -in {place} -out key.pem)"
        )));
    }
    let key = match PrivateKeyDer::pem_slice_iter(&bytes).next() {
        Some(Ok(key)) => key,
        Some(Err(error)) => {
            return Err(CertificateError(format!(
                "{KEY}: {place} is damaged ({error}); copy it once more"
            )));
        }
        None => {
            return Err(CertificateError(format!(
                "{KEY}: there is no private key in {place}, got {}; name the file with the key (PKCS#8, \
                 PKCS#1 or SEC1), and the one with the certificate by {CERTIFICATE}",
                labels.join(", ")
            )));
        }
    };
    provider.key_provider.load_private_key(key).map_err(|error| {
        CertificateError(format!(
            "{KEY}: the key in {place} cannot be used ({error}); expected ECDSA with P-256, P-384 or P-521, \
             RSA of 2048 to 8192 bits, or Ed25519"
        ))
    })
}

fn read_limited(file: &Path, flag: &str, what: &str) -> Result<Vec<u8>, CertificateError> {
    let place = file.display();
    let read = || -> io::Result<Vec<u8>> {
        let opened = File::open(file)?;
        let found = opened.metadata()?;
        if !found.is_file() {
            let kind = if found.is_dir() { "a folder" } else { "no file" };
            return Err(io::Error::other(format!("it is {kind}")));
        }
        let mut bytes = Vec::new();
        opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        Ok(bytes)
    };
    read().map_err(|error| {
        CertificateError(match error.kind() {
            io::ErrorKind::NotFound => format!(
                "{flag}: there is no file {place}; name the file with {what}, or create a self-signed pair with: \
                 nouns cert"
            ),
            io::ErrorKind::PermissionDenied => format!(
                "{flag}: cannot read {place} ({error}); let the user that runs the server read it"
            ),
            _ => format!("{flag}: cannot read {place} ({error}); expected a file in PEM with {what}"),
        })
    })
}

/// The labels in a PEM file.
fn pem_labels(bytes: &[u8]) -> Vec<String> {
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let labels = lines.filter_map(|line| line.strip_prefix(b"-----BEGIN ")?.strip_suffix(b"-----"));
    labels.map(|label| String::from_utf8_lossy(label).into_owned()).collect()
}
