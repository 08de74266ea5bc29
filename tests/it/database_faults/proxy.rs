//! A fault-injecting proxy between a server and PostgreSQL, which forwards every message until a fault
//! is planted.
//!
//! It parses the boundaries and the kinds of messages, not their contents.
//! The one surprising thing: messages are counted from the moment a fault is planted, over all
//! connections, so that a fault fires once, on whichever connection reaches it first.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::harness::wait_until;

const ASKS_FOR_TLS: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// An active connection is never silent for this long.
const REST: Duration = Duration::from_millis(300);

/// The sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Server,
    Database,
}

/// The fault of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It is closed, as when the other process ends.
    Cut,
    /// It is reset, as by a firewall or a restarted machine.
    Reset,
    /// It is closed, and so is every new one.
    Away,
    /// Nothing is forwarded any more, and nothing is closed.
    Hole,
    /// Everything is forwarded, later.
    Delay(Duration),
}

/// The position in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Before,
    Middle,
    After,
}

/// A fault at the message with this number, from 1 on, of those that a side sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub side: Side,
    pub number: usize,
    pub place: Place,
    pub way: Way,
}

/// How new connections are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Open,
    Shut,
    /// They are accepted, and nothing is ever sent.
    Silent,
}

#[derive(Debug)]
struct State {
    door: Door,
    fault: Option<Fault>,
    /// The kinds of the messages since recording began, in the order in which they passed.
    seen: Vec<(Side, char)>,
    connections: usize,
    accepted: usize,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    state: Mutex<State>,
}

/// Runs until dropped.
#[derive(Debug)]
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    /// Incremented to end all connections; dropped with the proxy, which ends it.
    round: Option<watch::Sender<u64>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Proxy {
    pub fn start(target: SocketAddr) -> Self {
        let state =
            State { door: Door::Open, fault: None, seen: Vec::new(), connections: 0, accepted: 0 };
        let shared = Arc::new(Shared { target, state: Mutex::new(state) });
        let (round, rounds) = watch::channel(0);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let kept = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(listener, &kept, rounds));
        });
        Self { address, shared, round: Some(round), thread: Some(thread) }
    }

    /// Starts counting, and plants this fault.
    pub fn plant(&self, fault: Fault) {
        let mut state = self.shared.state();
        state.seen.clear();
        state.fault = Some(fault);
    }

    /// Starts recording, without a fault.
    pub fn watch(&self) {
        self.shared.state().seen.clear();
    }

    /// The messages since `plant_fault` or `record_messages`.
    pub fn seen(&self) -> Vec<(Side, char)> {
        self.shared.state().seen.clone()
    }

    /// Whether the planted fault has not fired yet.
    pub fn is_planted(&self) -> bool {
        self.shared.state().fault.is_some()
    }

    /// The number of accepted connections.
    pub fn accepted(&self) -> usize {
        self.shared.state().accepted
    }

    /// New connections are closed at once.
    pub fn shut(&self) {
        self.shared.state().door = Door::Shut;
    }

    /// New connections are accepted and get no response.
    pub fn silence(&self) {
        self.shared.state().door = Door::Silent;
    }

    /// Clears the fault; connections that are broken stay so.
    pub fn relent(&self) {
        let mut state = self.shared.state();
        state.door = Door::Open;
        state.fault = None;
    }

    /// Waits until the server has done its own work after the start, over a connection of its own: its
    /// messages would be counted with those of a request.
    pub fn rest(&self) {
        let mut last = (0, Instant::now());
        wait_until("the server rests", || {
            let (count, is_there) = {
                let state = self.shared.state();
                (state.seen.len(), state.accepted >= 2)
            };
            if count != last.0 {
                last = (count, Instant::now());
            }
            (is_there && last.1.elapsed() >= REST).then_some(())
        });
    }

    /// Closes all connections, and waits until the server has noticed. Connections that it opens
    /// meanwhile, to check the database, are closed too.
    pub fn end_all(&self) {
        wait_until("all connections are closed", || {
            self.round.as_ref().unwrap().send_modify(|round| *round += 1);
            (self.shared.state().connections == 0).then_some(())
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.round.take();
        drop(self.thread.take().unwrap().join());
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) {
        let mut state = self.state();
        state.connections += 1;
        state.accepted += 1;
    }

    /// The fault of a message that passes, if it has one.
    fn pass(&self, side: Side, kind: char) -> Option<(Place, Way)> {
        let mut state = self.state();
        state.seen.push((side, kind));
        let count = state.seen.iter().filter(|(sent_by, _)| *sent_by == side).count();
        let fault = state.fault.filter(|fault| (fault.side, fault.number) == (side, count))?;
        state.fault = None;
        if fault.way == Way::Away {
            state.door = Door::Shut;
        }
        Some((fault.place, fault.way))
    }
}

async fn serve(
    listener: std::net::TcpListener,
    shared: &Arc<Shared>,
    rounds: watch::Receiver<u64>,
) {
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let mut ended = rounds.clone();
    loop {
        let client = tokio::select! {
            accepted = listener.accept() => accepted.unwrap().0,
            // The sender is dropped with the proxy.
            changed = ended.changed() => if changed.is_err() { return } else { continue },
        };
        shared.count();
        let mut round = rounds.clone();
        round.mark_unchanged();
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            connection(client, &shared, round).await;
            shared.state().connections -= 1;
        });
    }
}

async fn connection(client: TcpStream, shared: &Shared, mut round: watch::Receiver<u64>) {
    let door = shared.state().door;
    let connected = match door {
        Door::Open => TcpStream::connect(shared.target).await.ok(),
        Door::Shut => None,
        Door::Silent => {
            drop(round.changed().await);
            None
        }
    };
    let Some(database) = connected else { return reset(&client) };
    client.set_nodelay(true).unwrap();
    database.set_nodelay(true).unwrap();
    // The first message of a server has no kind.
    let mut ends = [End::new(client, Side::Server, 0), End::new(database, Side::Database, 1)];
    loop {
        let [server, database] = &mut ends;
        let (from, is_open) = tokio::select! {
            is_open = server.read() => (0, is_open),
            is_open = database.read() => (1, is_open),
            _ = round.changed() => return close(ends).await,
        };
        let next = if is_open { forward(&mut ends, from, shared).await } else { Next::Close };
        match next {
            Next::Go => {}
            Next::Close => return close(ends).await,
            Next::Reset => return ends.iter().for_each(|end| reset(&end.stream)),
            Next::Wait => {
                drop(round.changed().await);
                return close(ends).await;
            }
        }
    }
}

/// What follows a message.
enum Next {
    Go,
    Close,
    Reset,
    Wait,
}

/// Closes both ends, and waits until the server has noticed.
async fn close([mut server, database]: [End; 2]) {
    drop(database);
    drop(server.stream.shutdown().await);
    while server.read().await {}
}

/// One end of a connection, with the bytes received there and not yet forwarded.
struct End {
    stream: TcpStream,
    side: Side,
    bytes: Vec<u8>,
    /// Bytes before the length of a message: its kind, if it has one.
    kind_bytes: usize,
    /// The next one is a byte without a length: the reply to the TLS request.
    is_byte: bool,
}

impl End {
    fn new(stream: TcpStream, side: Side, kind_bytes: usize) -> Self {
        Self { stream, side, bytes: Vec::new(), kind_bytes, is_byte: false }
    }

    /// False at the end of the connection.
    async fn read(&mut self) -> bool {
        self.stream.read_buf(&mut self.bytes).await.is_ok_and(|count| count > 0)
    }

    /// The first complete message, and its kind.
    fn take(&mut self) -> Option<(char, Vec<u8>)> {
        if self.is_byte && !self.bytes.is_empty() {
            self.is_byte = false;
            return Some(('-', self.bytes.drain(..1).collect()));
        }
        let length = self.bytes.get(self.kind_bytes..self.kind_bytes + 4)?;
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize + self.kind_bytes;
        let kind = if self.kind_bytes == 1 { char::from(self.bytes[0]) } else { '-' };
        if self.bytes.len() < length {
            return None;
        }
        let message: Vec<u8> = self.bytes.drain(..length).collect();
        // After the TLS request the startup message still follows.
        if message != ASKS_FOR_TLS {
            self.kind_bytes = 1;
        }
        Some((kind, message))
    }
}

/// Forwards the bytes received from one end.
async fn forward(ends: &mut [End; 2], from: usize, shared: &Shared) -> Next {
    while let Some((kind, message)) = ends[from].take() {
        ends[1 - from].is_byte |= message == ASKS_FOR_TLS;
        let fault = shared.pass(ends[from].side, kind);
        let to = &mut ends[1 - from].stream;
        let first = match fault {
            Some((Place::Before, _)) => 0,
            Some((Place::Middle, _)) => message.len() / 2,
            Some((Place::After, _)) | None => message.len(),
        };
        let is_sent = to.write_all(&message[..first]).await.is_ok();
        match fault.map(|(_, way)| way) {
            None if is_sent => {}
            None | Some(Way::Cut | Way::Away) => return Next::Close,
            Some(Way::Reset) => return Next::Reset,
            Some(Way::Hole) => return Next::Wait,
            Some(Way::Delay(pause)) => {
                tokio::time::sleep(pause).await;
                if to.write_all(&message[first..]).await.is_err() {
                    return Next::Close;
                }
            }
        }
    }
    Next::Go
}

/// Makes the next close of this stream a reset.
fn reset(stream: &TcpStream) {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}
