//! Binding of the listening sockets.
//!
//! It accepts no connections. A name such as `localhost` may resolve to several addresses, and all of them
//! are bound, with one port; otherwise it would depend on the client whether it can connect.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

use socket2::SockRef;
use tokio::net::TcpSocket;
use tokio::runtime;

/// The backlog of each socket. The standard library asks for 128, which a burst of clients fills; the
/// system lowers this to its own limit.
const BACKLOG: u32 = 4096;

/// The kernel's send buffer for data that it cannot send yet (`TCP_NOTSENT_LOWAT`). The rest stays in the
/// process, where it is counted: a client that does not read would otherwise fill megabytes of kernel
/// memory, which all connections share.
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// The sockets of one address to listen on.
#[derive(Debug)]
pub struct Listener {
    pub(super) sockets: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    pub(super) kind: ListenerKind,
}

/// The protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerKind {
    /// HTTP.
    Plain,
    /// HTTPS.
    Tls,
    /// HTTP that redirects every request to HTTPS.
    Redirect,
}

impl Listener {
    /// Every bound address, the one to display first; with the port that was picked for port 0.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// Why an address cannot be bound, and how to fix it.
#[derive(Debug)]
pub struct BindError {
    address: String,
    reason: String,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on {}: {}", self.address, self.reason)
    }
}

impl std::error::Error for BindError {}

/// Binds all addresses or none.
pub fn bind(addresses: &[String], kind: ListenerKind) -> Result<Vec<Listener>, BindError> {
    addresses
        .iter()
        .map(|address| {
            bind_one(address, kind).map_err(|reason| BindError { address: address.clone(), reason })
        })
        .collect()
}

fn bind_one(address: &str, kind: ListenerKind) -> Result<Listener, String> {
    let mut listener = Listener { sockets: Vec::new(), addresses: Vec::new(), kind };
    let mut unavailable = None;
    for mut candidate in resolve(address)? {
        if let (0, Some(first)) = (candidate.port(), listener.addresses.first()) {
            candidate.set_port(first.port());
        }
        match listen(candidate) {
            Ok((taken, socket)) => {
                listener.addresses.push(taken);
                listener.sockets.push(socket);
            }
            // A machine without IPv6 still resolves names to it.
            Err(error) if is_unavailable(&error) => unavailable = Some(error),
            Err(error) => return Err(explain_bind_error(&error)),
        }
    }
    match unavailable {
        Some(error) if listener.sockets.is_empty() => Err(explain_bind_error(&error)),
        _ => Ok(listener),
    }
}

fn listen(address: SocketAddr) -> io::Result<(SocketAddr, TcpListener)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // After a restart, connections of the previous server may still be closing on this port.
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it.
    SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    socket.bind(address)?;
    // Listening registers with a runtime; this one ends before the socket is handed over.
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    let listener = socket.listen(BACKLOG)?;
    Ok((listener.local_addr()?, listener.into_std()?))
}

fn resolve(address: &str) -> Result<Vec<SocketAddr>, String> {
    const FORM: &str = "expected ADDRESS:PORT, such as 127.0.0.1:8080, [::1]:8080 or localhost:0";
    let Some((host, port)) = address.rsplit_once(':') else {
        return Err(format!("{FORM}; the port is missing"));
    };
    if port.parse::<u16>().is_err() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("{FORM}, got the port \"{port}\""));
    }
    if host.is_empty() || (host.contains(':') && !host.starts_with('[')) {
        return Err(format!("{FORM}, got the address \"{host}\""));
    }
    let mut found: Vec<SocketAddr> = match address.to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(error) => {
            return Err(format!("the name \"{host}\" does not resolve to an address ({error})"));
        }
    };
    // IPv4 first: that is the one to display.
    found.sort_by_key(SocketAddr::is_ipv6);
    found.dedup();
    if found.is_empty() { Err(format!("the name \"{host}\" has no address")) } else { Ok(found) }
}

fn is_unavailable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        // `ErrorKind` has no variant for EAFNOSUPPORT.
        || error.raw_os_error() == Some(97)
}

fn explain_bind_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "the port is taken; stop the program that has it, or choose another port, as in --port 8081 (0 picks a free one)".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "no permission; ports below 1024 are for the system, choose a higher one such as 8080".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(address: &str) -> String {
        bind(&[address.to_owned()], ListenerKind::Plain)
            .map_or_else(|error| error.to_string(), |_| "fine".to_owned())
    }

    #[test]
    fn bind_port_0_picks_a_port_and_a_taken_port_is_refused() {
        let first = bind(&["127.0.0.1:0".to_owned()], ListenerKind::Plain).unwrap();
        let taken = first[0].addresses()[0];
        assert_ne!(taken.port(), 0);
        let expected = format!(
            "cannot listen on {taken}: the port is taken; stop the program that has it, or choose another port, as in --port 8081 (0 picks a free one)"
        );
        assert_eq!(message(&taken.to_string()), expected);
    }

    #[test]
    fn bind_name_takes_all_its_addresses_with_one_port() {
        let listeners = bind(&["localhost:0".to_owned()], ListenerKind::Plain).unwrap();
        let addresses = listeners[0].addresses();
        assert!(addresses.iter().all(|a| a.ip().is_loopback() && a.port() == addresses[0].port()));
        assert_eq!(addresses.len(), listeners[0].sockets.len());
    }

    #[test]
    fn bind_invalid_addresses_are_explained() {
        for (address, part) in [
            ("8080", "the port is missing"),
            (":8080", "got the address \"\""),
            ("127.0.0.1", "the port is missing"),
            ("127.0.0.1:", "got the port \"\""),
            ("127.0.0.1:http", "got the port \"http\""),
            ("127.0.0.1:65536", "got the port \"65536\""),
            ("127.0.0.1:+80", "got the port \"+80\""),
            ("::1:8080", "got the address \"::1\""),
            ("192.0.2.1:0", "this machine does not have that address"),
            ("no.such.name.invalid:0", "does not resolve"),
        ] {
            let message = message(address);
            assert!(message.starts_with(&format!("cannot listen on {address}: ")), "{message}");
            assert!(message.contains(part), "{message}");
        }
    }
}
