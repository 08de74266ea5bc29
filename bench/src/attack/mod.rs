//! Hostile clients: one implementation of each attack, and its runner.
//!
//! Each connection of an attack connects, does its harm and records how it ended; then the next begins,
//! until the time is over. The caller decides which ends are right.
//! All connections share one rate limit, so that an attack is as strong as a peer on a network, not as
//! strong as a program that shares the machine with its victim.

mod connection_floods;
mod frames;
mod http1;
mod http2;
mod logins;
mod oversized;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::time::{sleep, sleep_until, timeout_at};

pub use oversized::{CASES, OversizedRequest};

/// How an attacker's connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionEnd {
    /// Closed after a response with this status.
    Status(u16),
    /// HTTP/2: closed with this error code.
    GoAway(u32),
    /// Closed without a response.
    Closed,
    Reset,
    /// The connection was refused.
    Refused,
    /// The attacker disconnected, as planned.
    Disconnected,
    /// Still open when the time was over.
    StillOpen,
}

impl ConnectionEnd {
    /// The end that an error on the connection stands for.
    fn from_error(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Reset,
        }
    }
}

impl fmt::Display for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::GoAway(code) => write!(f, "GOAWAY {code}"),
            Self::Closed => f.write_str("closed"),
            Self::Reset => f.write_str("reset"),
            Self::Refused => f.write_str("refused"),
            Self::Disconnected => f.write_str("left"),
            Self::StillOpen => f.write_str("still open"),
        }
    }
}

/// The strength of an attack.
#[derive(Debug, Clone, Copy)]
pub struct AttackStrength {
    /// Concurrent connections.
    pub connections: usize,
    /// Of all connections together: bytes, frames, requests or connections, depending on the attack.
    pub actions_per_second: u32,
    pub time: Duration,
    /// The attack continues until each of these has occurred, but not longer than `LONGEST`.
    pub awaited_ends: &'static [ConnectionEnd],
}

/// The longest attack whose awaited ends do not occur.
const LONGEST: Duration = Duration::from_secs(60);

type AttackFuture = Pin<Box<dyn Future<Output = io::Result<ConnectionEnd>>>>;

/// One kind of attack.
#[derive(Debug, Clone, Copy)]
pub struct Attack {
    pub name: &'static str,
    /// The unit that the rate counts.
    pub action: &'static str,
    /// The strength in the benchmark, against the default limits.
    pub force: AttackStrength,
    life: fn(Rc<AttackConnection>) -> AttackFuture,
}

/// The result of an attack.
#[derive(Debug, Default, Clone)]
pub struct AttackResult {
    pub actions: u64,
    /// For each kind of end: how often it occurred, and the shortest and the longest time until it.
    pub ends: BTreeMap<ConnectionEnd, (u64, Duration, Duration)>,
    /// How often each status was returned, where the attack counts them.
    pub statuses: BTreeMap<u16, u64>,
}

impl AttackResult {
    pub fn count(&self, end: ConnectionEnd) -> u64 {
        self.ends.get(&end).map_or(0, |(count, _, _)| *count)
    }

    fn add(&mut self, end: ConnectionEnd, after: Duration) {
        let entry = self.ends.entry(end).or_insert((0, after, after));
        *entry = (entry.0 + 1, entry.1.min(after), entry.2.max(after));
    }
}

impl fmt::Display for AttackResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (end, (count, least, most)) in &self.ends {
            let comma = if first { "" } else { ", " };
            first = false;
            let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
            write!(f, "{comma}{count} {end} after {least:.1} to {most:.1} s")?;
        }
        for (status, count) in &self.statuses {
            write!(f, ", {count} answers of {status}")?;
        }
        Ok(())
    }
}

/// State that all connections of one attack share.
#[derive(Debug)]
struct AttackState {
    address: SocketAddr,
    began: Instant,
    /// When the attack is over; later while an awaited end has not occurred.
    until: Cell<Instant>,
    awaited_ends: &'static [ConnectionEnd],
    /// Interval between two actions.
    interval: Duration,
    /// When the next action is due.
    next: Cell<Instant>,
    /// When the next connection may be opened or closed.
    next_connection: Cell<Instant>,
    actions: Cell<u64>,
    connections: Cell<u64>,
    statuses: RefCell<BTreeMap<u16, u64>>,
}

impl AttackState {
    /// Whether the attack goes on; prolongs it while an awaited end has not occurred.
    fn continues(&self, result: &AttackResult) -> bool {
        const STEP: Duration = Duration::from_millis(50);
        let now = Instant::now();
        let is_awaited = |end: &ConnectionEnd| result.count(*end) == 0;
        if now >= self.until.get()
            && now < self.began + LONGEST
            && self.awaited_ends.iter().any(is_awaited)
        {
            self.until.set(now + STEP);
        }
        now < self.until.get()
    }

    /// Limits the rate at which connections are opened and closed to that of a peer on a network: each
    /// costs this machine as much on the attacker's side as on the server's.
    async fn wait_for_connection_turn(&self) {
        const EVERY: Duration = Duration::from_micros(250);
        let now = Instant::now();
        let due = self.next_connection.get().max(now);
        self.next_connection.set(due + EVERY);
        if due > now {
            sleep_until(due.into()).await;
        }
    }
}

/// The context of one attacking connection.
#[derive(Debug)]
struct AttackConnection {
    state: Rc<AttackState>,
    /// When it connected.
    connected_at: Cell<Instant>,
}

impl AttackConnection {
    async fn connect(&self) -> io::Result<TcpStream> {
        self.connect_with(None).await
    }

    /// Connects with a receive window of this size, where one is given.
    async fn connect_with(&self, window_bytes: Option<u32>) -> io::Result<TcpStream> {
        let address = self.state.address;
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        if let Some(bytes) = window_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        self.state.wait_for_connection_turn().await;
        self.connected_at.set(Instant::now());
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Waits until this many more actions are due. Missed actions are not made up for.
    async fn wait_for_actions(&self, actions: u32) {
        let campaign = &self.state;
        let now = Instant::now();
        let due = campaign.next.get().max(now);
        campaign.next.set(due + campaign.interval * actions);
        if due > now {
            sleep_until(due.into()).await;
        }
        campaign.actions.set(campaign.actions.get() + u64::from(actions));
    }

    fn count_answer(&self, status: u16) {
        *self.state.statuses.borrow_mut().entry(status).or_default() += 1;
    }

    /// A different number for every call.
    fn next_number(&self) -> u64 {
        let lives = &self.state.connections;
        lives.set(lives.get() + 1);
        lives.get()
    }
}

/// Attacks a server, on this thread, until the time is over.
pub fn run(
    attack: &Attack,
    address: SocketAddr,
    force: AttackStrength,
) -> io::Result<AttackResult> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let now = Instant::now();
    let campaign = Rc::new(AttackState {
        address,
        began: now,
        until: Cell::new(now + force.time),
        awaited_ends: force.awaited_ends,
        interval: Duration::from_secs(1) / force.actions_per_second.max(1),
        next: Cell::new(now),
        next_connection: Cell::new(now),
        actions: Cell::new(0),
        connections: Cell::new(0),
        statuses: RefCell::default(),
    });
    let ends = Rc::new(RefCell::new(AttackResult::default()));
    let life = attack.life;
    runtime.block_on(async {
        let tasks: Vec<_> = (0..force.connections)
            .map(|_| {
                tokio::task::spawn_local(run_connections(
                    life,
                    Rc::clone(&campaign),
                    Rc::clone(&ends),
                ))
            })
            .collect();
        for task in tasks {
            task.await?;
        }
        Ok::<(), io::Error>(())
    })?;
    let mut tally = ends.take();
    tally.actions = campaign.actions.get();
    tally.statuses = campaign.statuses.take();
    Ok(tally)
}

/// Runs one connection after the other.
async fn run_connections(
    life: fn(Rc<AttackConnection>) -> AttackFuture,
    campaign: Rc<AttackState>,
    ends: Rc<RefCell<AttackResult>>,
) {
    /// Backoff, so that a server that refuses every connection is not called in a tight loop.
    const PAUSE: Duration = Duration::from_millis(20);
    loop {
        if !campaign.continues(&ends.borrow()) {
            return;
        }
        let connected_at = Cell::new(Instant::now());
        let front = Rc::new(AttackConnection { state: Rc::clone(&campaign), connected_at });
        let mut life = life(Rc::clone(&front));
        let end = loop {
            match timeout_at(campaign.until.get().into(), &mut life).await {
                Ok(Ok(end)) => break end,
                Ok(Err(error)) if is_local(&error) => break ConnectionEnd::Refused,
                Ok(Err(error)) => break ConnectionEnd::from_error(&error),
                Err(_) if campaign.continues(&ends.borrow()) => {}
                Err(_) => break ConnectionEnd::StillOpen,
            }
        };
        ends.borrow_mut().add(end, front.connected_at.get().elapsed());
        if end == ConnectionEnd::StillOpen {
            campaign.wait_for_connection_turn().await;
        }
        if !matches!(end, ConnectionEnd::Disconnected | ConnectionEnd::StillOpen) {
            sleep(PAUSE).await;
        }
    }
}

/// Whether the error occurred while connecting.
fn is_local(error: &io::Error) -> bool {
    // EMFILE and EADDRNOTAVAIL are the attacker's own limits.
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::AddrNotAvailable)
        || error.raw_os_error() == Some(24)
}

/// Sends everything, or never returns: the reader of the connection notices its end.
async fn send_or_wait(write: &mut (impl AsyncWriteExt + Unpin), bytes: &[u8]) {
    if write.write_all(bytes).await.is_err() {
        std::future::pending::<()>().await;
    }
}

macro_rules! attacks {
    ($(#[$about:meta])* $all:ident: $($name:literal, $action:literal: $connections:literal at $rate:literal for $seconds:literal => $life:path;)*) => {
        $(#[$about])*
        pub static $all: &[Attack] = &[$(Attack {
            name: $name,
            action: $action,
            force: AttackStrength {
                connections: $connections,
                actions_per_second: $rate,
                time: Duration::from_secs($seconds),
                awaited_ends: &[],
            },
            life: |front| Box::pin($life(front)),
        },)*];
    };
}

attacks! {
    /// Every attack on a server without authentication, with the strength of the benchmark.
    ALL:
    "slow heads", "bytes": 2_000 at 20_000 for 14 => http1::slow_heads;
    "large heads without an end", "heads": 9_000 at 1_000 for 14 => http1::large_heads;
    "slow bodies", "bytes": 2_000 at 20_000 for 34 => http1::slow_bodies;
    "slow bodies behind large heads", "bytes": 9_000 at 20_000 for 34 => http1::slow_bodies_behind_large_heads;
    "large bodies that stall", "bodies": 1_000 at 100 for 34 => http1::stalled_bodies;
    "answers never read", "requests": 500 at 20 for 34 => http1::never_reading;
    "answers read byte by byte", "requests": 500 at 20 for 34 => http1::slow_readers;
    "pipelining without reading", "requests": 100 at 20_000 for 34 => http1::pipelining;
    "oversized requests", "requests": 20 at 25 for 12 => oversized::requests;
    "connections without a word", "connections": 9_000 at 3_000 for 14 => connection_floods::silent;
    "connections half closed", "connections": 200 at 3_000 for 8 => connection_floods::half_closed;
    "11,000 connections", "connections": 11_000 at 4_000 for 12 => connection_floods::crowd;
    "connections opened and closed", "connections": 50 at 3_000 for 8 => connection_floods::churn;
    "clients that leave in the middle", "requests": 50 at 2_000 for 8 => connection_floods::early_disconnects;
    "HTTP/2 rapid reset", "resets": 10 at 20_000 for 8 => http2::rapid_reset;
    "HTTP/2 reset after a moment", "resets": 10 at 2_000 for 8 => http2::late_reset;
    "HTTP/2 CONTINUATION", "frames": 10 at 50_000 for 8 => http2::continuation;
    "HTTP/2 empty DATA", "frames": 10 at 50_000 for 8 => http2::empty_data;
    "HTTP/2 DATA of one byte", "frames": 10 at 50_000 for 8 => http2::one_byte_data;
    "HTTP/2 PING", "frames": 10 at 50_000 for 8 => http2::pings;
    "HTTP/2 SETTINGS", "frames": 10 at 50_000 for 8 => http2::settings;
    "HTTP/2 WINDOW_UPDATE", "frames": 10 at 50_000 for 8 => http2::window_updates;
    "HTTP/2 PRIORITY and unknown frames", "frames": 10 at 50_000 for 8 => http2::ignored_frames;
    "HTTP/2 windows of zero", "streams": 20 at 20 for 34 => http2::zero_window;
    "HTTP/2 windows opened byte by byte", "streams": 20 at 20 for 34 => http2::window_drip;
    "HTTP/2 streams left open", "streams": 200 at 5_000 for 34 => http2::open_streams;
    "HTTP/2 header tables", "requests": 10 at 500 for 8 => http2::header_bomb;
    "HTTP/2 heads without an end", "connections": 1_000 at 1_000 for 14 => http2::unfinished_head;
}

attacks! {
    /// Wrong passwords, for a server with authentication. The server's responses set the rate.
    LOGINS:
    "wrong passwords by Basic, one name", "requests": 200 at 1_000_000 for 60 => logins::basic_one_name;
    "wrong passwords by Basic, 10,000 names", "requests": 200 at 1_000_000 for 60 => logins::basic_many_names;
    "wrong passwords by Digest, one name", "requests": 200 at 1_000_000 for 60 => logins::digest_one_name;
    "wrong passwords by Digest, 10,000 names", "requests": 200 at 1_000_000 for 60 => logins::digest_many_names;
}

attacks! {
    /// Harmless requests, for comparison.
    HARMLESS:
    "health checks", "requests": 200 at 1_000 for 10 => logins::health_checks;
}

/// The attack with this name.
pub fn find_attack(name: &str) -> Option<&'static Attack> {
    ALL.iter().chain(LOGINS).chain(HARMLESS).find(|attack| attack.name == name)
}
