//! sd_notify: tells the service manager that the server serves, and that it stops.
//!
//! systemd names a socket in `NOTIFY_SOCKET` for units with `Type=notify`. A message is one datagram, which nobody
//! answers.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::log::{Level, Logger};

pub(super) const READY: &str = "READY=1\nSTATUS=serving";
pub(super) const STOPPING: &str = "STOPPING=1\nSTATUS=finishing requests in flight";

/// The service manager that has started this process, if it wants to be told.
#[derive(Debug, Clone, Default)]
pub struct ServiceManager {
    /// A path, or an abstract name that begins with a zero byte.
    socket: Option<OsString>,
}

impl ServiceManager {
    /// By the value of `NOTIFY_SOCKET`, in which `@` stands for the zero byte of an abstract name.
    pub fn new(socket: Option<OsString>) -> Self {
        let to_address = |name: OsString| match name.as_bytes().split_first() {
            Some((b'@', rest)) => OsString::from_vec([b"\0", rest].concat()),
            _ => name,
        };
        Self { socket: socket.map(to_address) }
    }

    /// Without an answer there is nothing to wait for; a failure is logged.
    pub(super) fn notify(&self, message: &str, log: &Logger) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = send(socket, message) {
            let failed = "cannot notify the service manager";
            log.event(Level::Warning, failed, &[("cause", &error)]);
        }
    }
}

fn send(socket: &OsStr, message: &str) -> io::Result<()> {
    let address = SockAddr::unix(socket)?;
    Socket::new(Domain::UNIX, Type::DGRAM, None)?.send_to(message.as_bytes(), &address).map(drop)
}
