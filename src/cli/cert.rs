//! `nouns cert`: a self-signed certificate and its key, to try HTTPS with; never overwrites.
//!
//! Clients must be configured to trust it; a public server needs a certificate from a certificate authority.
//! The names of this machine are always in the certificate, also when others are given, so that the printed
//! commands work.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};

use super::report::{CommandError, command_error, create_file, print_line};
use crate::clock;
use crate::server::tls::is_dns_name;

const CERTIFICATE_FILE: &str = "nouns-cert.pem";
const KEY_FILE: &str = "nouns-key.pem";
/// The names of this machine.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Browsers refuse a server's certificate that is valid for more than 398 days.
const VALIDITY: Duration = Duration::from_secs(397 * 86_400);
/// The clocks of clients may be slow.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Args)]
#[command(after_help = "\
Writes nouns-cert.pem and nouns-key.pem, which only you can read, and prints how to serve and how to call \
with them. Browsers warn of such a certificate. For a server that others use, take one from a certificate \
authority, such as Let's Encrypt.")]
pub struct CertArgs {
    /// Another name or address of the server, in addition to localhost, 127.0.0.1 and ::1; may be repeated
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,

    /// The folder to write to [default: here]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(flags: &CertArgs) -> Result<ExitCode, CommandError> {
    let mut names: Vec<String> = LOCAL_NAMES.map(str::to_owned).into();
    for name in &flags.name {
        let name = check_name(name)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let folder = flags.out.as_deref().unwrap_or(Path::new(""));
    let (certificate_file, key_file) = (folder.join(CERTIFICATE_FILE), folder.join(KEY_FILE));
    let (certificate, key) = make_self_signed(&names).map_err(|error| {
        command_error(format!("cannot create a certificate for {} ({error})", names.join(", ")))
    })?;
    // Writes both files or none: half a pair is of no use, and would prevent the next attempt.
    refuse_overwriting(&[&certificate_file, &key_file])?;
    write(&key_file, &key, 0o600)?;
    write(&certificate_file, &certificate, 0o644).inspect_err(|_| {
        let _ = fs::remove_file(&key_file);
    })?;
    let (certificate, key) = (shell_quoted(&certificate_file), shell_quoted(&key_file));
    print_line(
        &mut io::stdout(),
        format_args!(
            "wrote {certificate} and {key}, for {}; valid for {} days\n  \
             nouns serve --tls-cert {certificate} --tls-key {key}\n  \
             curl --cacert {certificate} https://localhost:8080/-/health",
            names.join(", "),
            (VALIDITY - CLOCK_SKEW).as_secs() / 86_400,
        ),
    );
    Ok(ExitCode::SUCCESS)
}

fn check_name(name: &str) -> Result<String, CommandError> {
    // Addresses have one spelling in a certificate; names are compared case-insensitively.
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    if is_dns_name(name) {
        return Ok(name.to_ascii_lowercase());
    }
    Err(command_error(format!(
        "--name: expected a host name such as shop.example, or an address such as 192.0.2.1, got \
         \"{name}\"; scheme, port and path are no part of it"
    )))
}

/// The certificate and its key, as PEM.
fn make_self_signed(names: &[String]) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "nouns, self-signed");
    let now = clock::system_time().duration_since(UNIX_EPOCH).unwrap_or_default();
    params.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(CLOCK_SKEW);
    params.not_after = params.not_before + VALIDITY;
    // It is no CA: trusting it does not trust other certificates that its key has signed.
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn refuse_overwriting(files: &[&Path]) -> Result<(), CommandError> {
    match files.iter().find(|file| file.symlink_metadata().is_ok()) {
        None => Ok(()),
        Some(file) => Err(already_exists(file)),
    }
}

fn already_exists(file: &Path) -> CommandError {
    let place = file.display();
    command_error(format!(
        "{place} exists already, and is not overwritten; move it away first, or choose another folder \
         with --out"
    ))
}

fn write(file: &Path, text: &str, mode: u32) -> Result<(), CommandError> {
    create_file(file, text, mode).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => already_exists(file),
        ErrorKind::NotFound => command_error(format!(
            "cannot write {}: there is no such folder; make it first",
            file.display()
        )),
        _ => command_error(format!("cannot write {}: {error}", file.display())),
    })
}

/// A path quoted for a shell.
pub fn shell_quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@%,:=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) && !text.starts_with('-') {
        return text;
    }
    let dash = if text.starts_with('-') { "./" } else { "" };
    format!("'{dash}{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_name_is_a_host_or_an_address_but_no_url() {
        for (name, expected) in [
            ("Shop.Example", "shop.example"),
            ("*.shop.example", "*.shop.example"),
            ("192.0.2.1", "192.0.2.1"),
            ("[2001:DB8::1]", "2001:db8::1"),
            ("0:0:0:0:0:0:0:1", "::1"),
        ] {
            assert_eq!(check_name(name).unwrap(), expected, "{name}");
        }
        for bad in ["", "https://a.example", "a.example:443", "a b", "bücher.example", "a/b"] {
            let CommandError(message) = check_name(bad).unwrap_err();
            assert!(message.contains(&format!("got \"{bad}\"")), "{bad}");
        }
    }

    #[test]
    fn shell_quoting_of_paths() {
        for (path, expected) in [
            ("nouns-cert.pem", "nouns-cert.pem"),
            ("/tmp/a b/c", "'/tmp/a b/c'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("-a", "'./-a'"),
        ] {
            assert_eq!(shell_quoted(Path::new(path)), expected);
        }
    }
}
