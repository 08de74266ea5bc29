//! The connector of the webhook client: resolves a host once, and connects to addresses that were checked.
//!
//! Nothing resolves the name a second time, so a name server that changes its answer (DNS rebinding) gains
//! nothing. TLS is a layer above, with the name of the URL.
//!
//! `getaddrinfo` cannot be cancelled: a call that hangs keeps its thread and its permits, so that a name server
//! that does not answer takes a few threads and not one more for each attempt. The attempt itself does not wait for
//! the call. One name has a few permits at most, so that the others can be resolved meanwhile.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::model::types::AddressPolicy;

/// The time for one of several addresses, so that one that does not answer leaves time for the next.
const ADDRESS_SECONDS_MAX: Duration = Duration::from_secs(3);
/// How many addresses of a host are tried.
const ADDRESSES_TRIED_MAX: usize = 8;
/// How many names are resolved at the same time.
const RESOLUTIONS_MAX: usize = 8;
/// The same of one name.
const RESOLUTIONS_OF_NAME_MAX: usize = 2;
/// The time for one resolution, with the wait for its permits.
const RESOLUTION_SECONDS_MAX: Duration = Duration::from_secs(5);

/// Why there is no connection. The texts name no address, so that they are of no use to a port scanner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiverConnectError {
    /// The host has no address.
    Unresolved,
    /// The name server does not answer.
    ResolutionTimedOut,
    /// One of the addresses is not allowed.
    AddressRefused,
    /// No address accepts the connection.
    Unreachable,
}

impl fmt::Display for ReceiverConnectError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Unresolved => "the name of the host cannot be resolved",
            Self::ResolutionTimedOut => "the name of the host was not resolved in time",
            Self::AddressRefused => "the address of the host is not a public one",
            Self::Unreachable => "the host does not accept connections",
        })
    }
}

/// Finds the addresses of a host.
pub trait Resolver {
    fn resolve(
        &self,
        host: &str,
        port: u16,
    ) -> impl Future<Output = Result<Vec<SocketAddr>, ReceiverConnectError>>;
}

/// The resolver of the system.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    permits: Arc<Semaphore>,
    /// The permits of each name that is being resolved.
    name_permits: Arc<Mutex<HashMap<Box<str>, Arc<Semaphore>>>>,
}

impl SystemResolver {
    pub fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(RESOLUTIONS_MAX)), name_permits: Arc::default() }
    }

    fn permits_of(&self, host: &str) -> Arc<Semaphore> {
        let mut names = self.name_permits.lock().unwrap_or_else(PoisonError::into_inner);
        // Resolutions that wait or run have a reference.
        names.retain(|_, permits| Arc::strong_count(permits) > 1);
        let new = || Arc::new(Semaphore::new(RESOLUTIONS_OF_NAME_MAX));
        Arc::clone(names.entry(host.into()).or_insert_with(new))
    }

    /// `None`: the name cannot be resolved.
    async fn look_up(&self, host: &str, port: u16) -> Option<Vec<SocketAddr>> {
        // First that of the name: one that hangs must not keep what others could use.
        let of_name = self.permits_of(host).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.permits).acquire_owned().await.ok()?;
        let host = host.to_owned();
        let resolution = spawn_blocking(move || {
            let resolved = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            drop((of_name, of_all));
            resolved
        });
        resolution.await.ok()?.ok()
    }
}

impl Resolver for SystemResolver {
    async fn resolve(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, ReceiverConnectError> {
        // Addresses in their usual spelling wait for no name server. `getaddrinfo` also reads other spellings,
        // such as 2130706433 or 0x7f.1.
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        match timeout(RESOLUTION_SECONDS_MAX, self.look_up(host, port)).await {
            Ok(addresses) => addresses.ok_or(ReceiverConnectError::Unresolved),
            Err(_) => Err(ReceiverConnectError::ResolutionTimedOut),
        }
    }
}

/// Connects to a host that the policy allows. `host` is without the brackets of an IPv6 address.
pub async fn connect(
    policy: AddressPolicy,
    resolver: &impl Resolver,
    (host, port): (&str, u16),
) -> Result<TcpStream, ReceiverConnectError> {
    let addresses = resolver.resolve(host, port).await?;
    if addresses.is_empty() {
        return Err(ReceiverConnectError::Unresolved);
    }
    // One refused address is enough: a name of both kinds has no honest use.
    if !addresses.iter().all(|address| policy.allows(address.ip())) {
        return Err(ReceiverConnectError::AddressRefused);
    }
    for address in addresses.into_iter().take(ADDRESSES_TRIED_MAX) {
        if let Ok(Ok(stream)) = timeout(ADDRESS_SECONDS_MAX, TcpStream::connect(address)).await {
            // A request is one write; waiting for more would only delay it.
            let _ = stream.set_nodelay(true);
            return Ok(stream);
        }
    }
    Err(ReceiverConnectError::Unreachable)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::TcpListener;

    use tokio::net::TcpSocket;

    use super::*;

    /// Answers each resolution with the next list; the last one for ever.
    struct ScriptedResolver {
        answers: Vec<Vec<SocketAddr>>,
        calls: Cell<usize>,
    }

    impl ScriptedResolver {
        fn new(answers: Vec<Vec<SocketAddr>>) -> Self {
            Self { answers, calls: Cell::new(0) }
        }
    }

    impl Resolver for ScriptedResolver {
        async fn resolve(&self, _: &str, _: u16) -> Result<Vec<SocketAddr>, ReceiverConnectError> {
            let call = self.calls.replace(self.calls.get() + 1);
            let answer = self.answers.get(call).or(self.answers.last()).cloned();
            answer.ok_or(ReceiverConnectError::Unresolved)
        }
    }

    fn listen() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    fn connect_with(
        policy: AddressPolicy,
        resolver: &impl Resolver,
    ) -> Result<SocketAddr, ReceiverConnectError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(connect(policy, resolver, ("hook.example", 443)))?;
        Ok(stream.peer_addr().unwrap())
    }

    /// A name server that changes its answer: the address that was checked is the one that is connected to.
    #[test]
    fn connector_resolves_once_and_connects_as_checked() {
        let ((_kept, checked), (other, later)) = (listen(), listen());
        let resolver = ScriptedResolver::new(vec![vec![checked], vec![later]]);
        let connected = connect_with(AddressPolicy::AllowPrivate, &resolver);
        assert_eq!((connected, resolver.calls.get()), (Ok(checked), 1));
        assert!(other.accept().is_err(), "the second answer was used");
    }

    /// The same with the policy of servers: a public address first, which nothing here can reach, and loopback
    /// for every later resolution.
    #[test]
    fn connector_rebound_name_never_reaches_loopback() {
        let (inside, loopback) = listen();
        let public = SocketAddr::from(([93, 184, 216, 34], 9));
        let resolver = ScriptedResolver::new(vec![vec![public], vec![loopback]]);
        let connected = connect_with(AddressPolicy::PublicOnly, &resolver);
        assert_eq!(resolver.calls.get(), 1);
        assert_ne!(connected, Ok(loopback));
        assert!(inside.accept().is_err(), "a connection came to loopback");
        // Once it is the first answer, it is refused.
        let connected = connect_with(AddressPolicy::PublicOnly, &resolver);
        assert_eq!(connected, Err(ReceiverConnectError::AddressRefused));
        assert!(inside.accept().is_err());
    }

    #[test]
    fn connector_refuses_a_host_with_one_private_address() {
        let (inside, loopback) = listen();
        let public = SocketAddr::from(([93, 184, 216, 34], 9));
        for addresses in [vec![public, loopback], vec![loopback, public], vec![loopback]] {
            let resolver = ScriptedResolver::new(vec![addresses]);
            let connected = connect_with(AddressPolicy::PublicOnly, &resolver);
            assert_eq!(connected, Err(ReceiverConnectError::AddressRefused));
        }
        let connected =
            connect_with(AddressPolicy::PublicOnly, &ScriptedResolver::new(vec![vec![]]));
        assert_eq!(connected, Err(ReceiverConnectError::Unresolved));
        assert!(inside.accept().is_err());
    }

    #[test]
    fn connector_tries_eight_addresses() {
        // The socket is bound and does not listen: connections are refused, and no other process gets the port.
        let reserved = TcpSocket::new_v4().unwrap();
        reserved.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let closed = reserved.local_addr().unwrap();
        let (_kept, open) = listen();
        for (before, expected) in [(7, Ok(open)), (8, Err(ReceiverConnectError::Unreachable))] {
            let mut addresses = vec![closed; before];
            addresses.push(open);
            let resolver = ScriptedResolver::new(vec![addresses]);
            assert_eq!(connect_with(AddressPolicy::AllowPrivate, &resolver), expected);
        }
    }
}
