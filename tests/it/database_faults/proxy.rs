//! A fault-injecting proxy between a server and PostgreSQL, which forwards every message until a fault
//! is planted.
//!
//! It parses the boundaries and the kinds of messages, not their contents.
//! Messages are counted from the moment a fault is planted, over all connections, so that a fault
//! fires once, on whichever connection reaches it first; or on one connection alone, since background work of the
//! server has messages too.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::harness::wait_until;

const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// An active connection is never silent for this long.
const QUIET_PERIOD: Duration = Duration::from_millis(300);

/// The sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageSender {
    Server,
    Database,
}

/// The fault of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// It is closed, as when the other process ends.
    Close,
    /// It is reset, as by a firewall or a restarted machine.
    Reset,
    /// All connections are closed, and so is every new one.
    Outage,
    /// Nothing is forwarded any more, and nothing is closed.
    Blackhole,
    /// Everything is forwarded, later.
    Delay(Duration),
}

/// The position in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessagePosition {
    Before,
    Middle,
    After,
}

/// A fault at the message with this number, from 1 on, of those that a side sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub side: MessageSender,
    pub number: usize,
    pub position: MessagePosition,
    pub kind: FaultKind,
}

/// How new connections are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AcceptMode {
    Open,
    Refuse,
    /// They are accepted, and nothing is ever sent.
    Silent,
}

/// The number of a connection, in the order in which they were accepted.
pub type ConnectionNumber = usize;

#[derive(Debug)]
struct RecordedMessage {
    connection: ConnectionNumber,
    side: MessageSender,
    kind: char,
}

#[derive(Debug, Clone, Copy)]
struct PlantedFault {
    fault: Fault,
    /// The only connection whose messages count; without one, those of all connections do.
    connection: Option<ConnectionNumber>,
}

impl PlantedFault {
    fn counts(&self, message: &RecordedMessage) -> bool {
        self.fault.side == message.side
            && self.connection.is_none_or(|connection| connection == message.connection)
    }
}

#[derive(Debug)]
struct ProxyState {
    accept_mode: AcceptMode,
    fault: Option<PlantedFault>,
    /// The messages since recording began, in the order in which they passed.
    recorded: Vec<RecordedMessage>,
    connections: usize,
    accepted: usize,
}

#[derive(Debug)]
struct SharedProxyState {
    target: SocketAddr,
    state: Mutex<ProxyState>,
    /// Incremented at an outage, which ends all connections.
    outages: watch::Sender<u64>,
}

/// Runs until dropped.
#[derive(Debug)]
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<SharedProxyState>,
    /// Incremented to end all connections; dropped with the proxy, which ends it.
    round: Option<watch::Sender<u64>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Proxy {
    pub fn start(target: SocketAddr) -> Self {
        let state = ProxyState {
            accept_mode: AcceptMode::Open,
            fault: None,
            recorded: Vec::new(),
            connections: 0,
            accepted: 0,
        };
        let (state, outages) = (Mutex::new(state), watch::Sender::default());
        let shared = Arc::new(SharedProxyState { target, state, outages });
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
    pub fn plant_fault(&self, fault: Fault) {
        self.plant_fault_on(None, fault);
    }

    /// As `plant_fault`; with a connection, only its messages count.
    pub fn plant_fault_on(&self, connection: Option<ConnectionNumber>, fault: Fault) {
        let mut state = self.shared.state();
        state.recorded.clear();
        state.fault = Some(PlantedFault { fault, connection });
    }

    /// Starts recording, without a fault.
    pub fn record_messages(&self) {
        self.shared.state().recorded.clear();
    }

    /// The messages since `plant_fault` or `record_messages`.
    pub fn recorded_messages(&self) -> Vec<(MessageSender, char)> {
        self.messages_on(None)
    }

    /// The messages since then, of one connection or of all.
    pub fn messages_on(&self, connection: Option<ConnectionNumber>) -> Vec<(MessageSender, char)> {
        let state = self.shared.state();
        let is_meant = |message: &&RecordedMessage| {
            connection.is_none_or(|connection| connection == message.connection)
        };
        let meant = state.recorded.iter().filter(is_meant);
        meant.map(|message| (message.side, message.kind)).collect()
    }

    /// The connection of all recorded messages; `None` if there are several, or no messages.
    pub fn sole_connection(&self) -> Option<ConnectionNumber> {
        let state = self.shared.state();
        let first = state.recorded.first()?.connection;
        state.recorded.iter().all(|message| message.connection == first).then_some(first)
    }

    /// Whether the planted fault has not fired yet.
    pub fn is_planted(&self) -> bool {
        self.shared.state().fault.is_some()
    }

    /// The number of accepted connections.
    pub fn accepted_connections(&self) -> usize {
        self.shared.state().accepted
    }

    /// New connections are closed at once.
    pub fn refuse_connections(&self) {
        self.shared.state().accept_mode = AcceptMode::Refuse;
    }

    /// New connections are accepted and get no response.
    pub fn accept_silently(&self) {
        self.shared.state().accept_mode = AcceptMode::Silent;
    }

    /// Clears the fault; connections that are broken stay so.
    pub fn clear_fault(&self) {
        let mut state = self.shared.state();
        state.accept_mode = AcceptMode::Open;
        state.fault = None;
    }

    /// Waits until the server has done its own work after the start, over a connection of its own: its
    /// messages would be counted with those of a request.
    pub fn wait_until_quiet(&self) {
        let mut last = (0, Instant::now());
        wait_until("the server rests", || {
            let (count, is_there) = {
                let state = self.shared.state();
                (state.recorded.len(), state.accepted >= 2)
            };
            if count != last.0 {
                last = (count, Instant::now());
            }
            (is_there && last.1.elapsed() >= QUIET_PERIOD).then_some(())
        });
    }

    /// Closes all connections, and waits until the server has noticed. Connections that it opens
    /// meanwhile, to check the database, are closed too.
    pub fn close_all(&self) {
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

impl SharedProxyState {
    fn state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register_connection(&self) -> ConnectionNumber {
        let mut state = self.state();
        state.connections += 1;
        state.accepted += 1;
        state.accepted
    }

    /// The fault of a message that passes, if it has one.
    fn fault_for_message(&self, message: RecordedMessage) -> Option<(MessagePosition, FaultKind)> {
        let mut state = self.state();
        state.recorded.push(message);
        // Without a fault there may be thousands of messages, and nothing to count them for.
        let planted = state.fault?;
        let last = state.recorded.last()?;
        let count = state.recorded.iter().filter(|message| planted.counts(message)).count();
        if !planted.counts(last) || planted.fault.number != count {
            return None;
        }
        let fault = planted.fault;
        state.fault = None;
        if fault.kind == FaultKind::Outage {
            state.accept_mode = AcceptMode::Refuse;
            // Any other connection could serve the retry of a read.
            self.outages.send_modify(|outages| *outages += 1);
        }
        Some((fault.position, fault.kind))
    }
}

async fn serve(
    listener: std::net::TcpListener,
    shared: &Arc<SharedProxyState>,
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
        let connection = shared.register_connection();
        let mut round = rounds.clone();
        round.mark_unchanged();
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            forward_connection((client, connection), &shared, round).await;
            shared.state().connections -= 1;
        });
    }
}

async fn forward_connection(
    (client, connection): (TcpStream, ConnectionNumber),
    shared: &SharedProxyState,
    mut round: watch::Receiver<u64>,
) {
    let accept_mode = shared.state().accept_mode;
    let connected = match accept_mode {
        AcceptMode::Open => TcpStream::connect(shared.target).await.ok(),
        AcceptMode::Refuse => None,
        AcceptMode::Silent => {
            drop(round.changed().await);
            None
        }
    };
    let Some(database) = connected else { return reset_on_close(&client) };
    let mut outages = shared.outages.subscribe();
    client.set_nodelay(true).unwrap();
    database.set_nodelay(true).unwrap();
    // The first message of a server has no kind.
    let mut ends = [
        ProxyEnd::new(client, MessageSender::Server, 0),
        ProxyEnd::new(database, MessageSender::Database, 1),
    ];
    loop {
        let [server, database] = &mut ends;
        let (from, is_open) = tokio::select! {
            // Nothing passes after an outage, not even bytes that have arrived.
            biased;
            _ = round.changed() => return close(ends).await,
            _ = outages.changed() => return close(ends).await,
            is_open = server.read() => (0, is_open),
            is_open = database.read() => (1, is_open),
        };
        let next = if is_open {
            forward(&mut ends, (connection, from), shared).await
        } else {
            AfterMessage::Close
        };
        match next {
            AfterMessage::Continue => {}
            AfterMessage::Close => return close(ends).await,
            AfterMessage::Reset => return ends.iter().for_each(|end| reset_on_close(&end.stream)),
            AfterMessage::Wait => {
                drop(round.changed().await);
                return close(ends).await;
            }
        }
    }
}

/// What follows a message.
enum AfterMessage {
    Continue,
    Close,
    Reset,
    Wait,
}

/// Closes both ends, and waits until the server has noticed.
async fn close([mut server, database]: [ProxyEnd; 2]) {
    drop(database);
    drop(server.stream.shutdown().await);
    while server.read().await {}
}

/// One end of a connection, with the bytes received there and not yet forwarded.
struct ProxyEnd {
    stream: TcpStream,
    side: MessageSender,
    bytes: Vec<u8>,
    /// Bytes before the length of a message: its kind, if it has one.
    kind_bytes: usize,
    /// The next one is a byte without a length: the reply to the TLS request.
    is_byte: bool,
}

impl ProxyEnd {
    fn new(stream: TcpStream, side: MessageSender, kind_bytes: usize) -> Self {
        Self { stream, side, bytes: Vec::new(), kind_bytes, is_byte: false }
    }

    /// False at the end of the connection.
    async fn read(&mut self) -> bool {
        self.stream.read_buf(&mut self.bytes).await.is_ok_and(|count| count > 0)
    }

    /// The first complete message, and its kind.
    fn take_message(&mut self) -> Option<(char, Vec<u8>)> {
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
        if message != TLS_REQUEST {
            self.kind_bytes = 1;
        }
        Some((kind, message))
    }
}

/// Forwards the bytes received from one end of a connection.
async fn forward(
    ends: &mut [ProxyEnd; 2],
    (connection, from): (ConnectionNumber, usize),
    shared: &SharedProxyState,
) -> AfterMessage {
    while let Some((kind, message)) = ends[from].take_message() {
        ends[1 - from].is_byte |= message == TLS_REQUEST;
        let fault =
            shared.fault_for_message(RecordedMessage { connection, side: ends[from].side, kind });
        let to = &mut ends[1 - from].stream;
        let first = match fault {
            Some((MessagePosition::Before, _)) => 0,
            Some((MessagePosition::Middle, _)) => message.len() / 2,
            Some((MessagePosition::After, _)) | None => message.len(),
        };
        let is_sent = to.write_all(&message[..first]).await.is_ok();
        match fault.map(|(_, way)| way) {
            None if is_sent => {}
            None | Some(FaultKind::Close | FaultKind::Outage) => return AfterMessage::Close,
            Some(FaultKind::Reset) => return AfterMessage::Reset,
            Some(FaultKind::Blackhole) => return AfterMessage::Wait,
            Some(FaultKind::Delay(pause)) => {
                tokio::time::sleep(pause).await;
                if to.write_all(&message[first..]).await.is_err() {
                    return AfterMessage::Close;
                }
            }
        }
    }
    AfterMessage::Continue
}

/// Makes the next close of this stream a reset.
fn reset_on_close(stream: &TcpStream) {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}
