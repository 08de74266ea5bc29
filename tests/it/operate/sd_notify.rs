//! What a service manager is told: sd_notify, as systemd sends it a socket.

use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::harness::{Backend, Folder, Process, Setup, TIMEOUT, parse_address};

/// The next message.
fn receive(socket: &UnixDatagram) -> String {
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut message = [0; 1024];
    let length = socket.recv(&mut message).unwrap();
    String::from_utf8(message[..length].to_vec()).unwrap()
}

/// Serves for a service manager, and stops.
fn check_notifications(socket: &UnixDatagram, name: &str) {
    let folder = Folder::new();
    let mut command = Setup::new(Backend::Sqlite).command(&folder);
    let process = Process::spawn(command.env("NOTIFY_SOCKET", name));
    assert_eq!(receive(socket), "READY=1\nSTATUS=serving");
    let address = parse_address(&process.first_line());
    TcpStream::connect(address).expect("it serves when it says so");
    process.signal("TERM");
    assert_eq!(receive(socket), "STOPPING=1\nSTATUS=finishing requests in flight");
    let ended = process.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn service_manager_is_told_of_the_start_and_the_stop() {
    let folder = Folder::new();
    let path = folder.path().join("notify");
    check_notifications(&UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap());
}

/// An abstract name of Linux, which is in no folder.
#[test]
fn service_manager_with_an_abstract_socket_is_told() {
    let name = format!("nouns-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    check_notifications(&UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}"));
}

/// A start that fails is never reported as ready: the end of the process says enough.
#[test]
fn service_manager_is_not_told_of_a_start_that_fails() {
    let folder = Folder::new();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut command =
        Setup::new(Backend::Sqlite).flags(&["--listen", "1.2.3.4:1"]).command(&folder);
    let ended = Process::spawn(command.env("NOTIFY_SOCKET", &path)).end();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(socket.recv(&mut [0; 1]).is_err(), "there is no message");
}

/// A service manager that is gone does not stop the server.
#[test]
fn service_manager_that_is_gone_is_logged() {
    let folder = Folder::new();
    let mut command = Setup::new(Backend::Sqlite).command(&folder);
    let process = Process::spawn(command.env("NOTIFY_SOCKET", "/nowhere/notify"));
    process.first_line();
    process.signal("TERM");
    let ended = process.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines =
        ended.stderr.lines().filter(|line| line.contains("cannot notify the service manager"));
    assert_eq!(lines.count(), 2, "{}", ended.stderr);
}
