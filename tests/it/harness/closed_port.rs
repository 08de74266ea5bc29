//! A port on which no program listens.

use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

/// Refuses connections, and is reserved until it is dropped: the socket is bound to it, and does not listen.
#[derive(Debug)]
pub struct ClosedPort {
    pub address: SocketAddr,
    _socket: Socket,
}

impl ClosedPort {
    pub fn reserve() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        Self { address: socket.local_addr().unwrap().as_socket().unwrap(), _socket: socket }
    }
}
