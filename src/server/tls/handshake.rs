//! TLS handshakes, up to the point where HTTP begins.
//!
//! `certificate_pair` has the TLS configuration; the watchdog limits the duration of a handshake. Handshakes
//! run at lower priority than requests. One costs as much as dozens of requests, so in each round of the
//! event loop one step of one handshake is computed, after everything else that is ready; and while requests
//! are served, handshakes pause as long as they have computed.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::config::TlsConfig;
use super::stream::TlsByteStream;
use crate::clock;
use crate::fault::OrBug;
use crate::server::watchdog::ConnectionWatchdog;

/// How much of a response rustls may buffer for a client that does not read: two records. The rest stays in
/// buffers that are counted.
const UNSENT_BYTES_MAX: usize = 32 << 10;

/// RFC 8446 §5.1: the content type of a handshake record.
const HANDSHAKE_RECORD_TYPE: u8 = 22;

/// Timers are no finer than this, so shorter pauses are accumulated.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Lets the handshakes of one worker compute one after the other.
#[derive(Debug)]
pub struct HandshakeScheduler {
    permit: Semaphore,
    /// How long handshakes still have to pause.
    owed_pause: Cell<Duration>,
    /// The worker's request count at the last turn.
    requests: Cell<u64>,
}

impl HandshakeScheduler {
    pub fn new() -> Self {
        Self { permit: Semaphore::new(1), owed_pause: Cell::default(), requests: Cell::default() }
    }

    async fn acquire<'a>(&'a self, watch: &'a ConnectionWatchdog) -> HandshakeTurn<'a> {
        let permit = self.permit.acquire().await.or_bug("the semaphore is never closed");
        // Resumes only after everything that is ready has run and the event loop has polled for more.
        yield_now().await;
        if self.owed_pause.get() >= PAUSE_MIN {
            sleep(self.owed_pause.take()).await;
        }
        HandshakeTurn { scheduler: self, watch, began: clock::now(), _permit: permit }
    }
}

struct HandshakeTurn<'a> {
    scheduler: &'a HandshakeScheduler,
    watch: &'a ConnectionWatchdog,
    began: Instant,
    _permit: SemaphorePermit<'a>,
}

impl Drop for HandshakeTurn<'_> {
    fn drop(&mut self) {
        let requests = self.watch.worker_requests();
        let is_alone = self.scheduler.requests.replace(requests) == requests;
        let owed = &self.scheduler.owed_pause;
        owed.set(match is_alone {
            true => Duration::ZERO,
            false => owed.get() + clock::now().duration_since(self.began),
        });
    }
}

/// Why a handshake did not complete.
pub enum HandshakeFailure {
    /// The client disconnected before it sent anything.
    Disconnected,
    /// The client speaks HTTP without TLS.
    PlainHttp(TcpStream),
    Broken(io::Error),
}

/// The stream after the handshake of a client that speaks TLS.
pub async fn handshake(
    stream: TcpStream,
    tls: &TlsConfig,
    turns: &HandshakeScheduler,
    watch: &ConnectionWatchdog,
) -> Result<TlsByteStream, HandshakeFailure> {
    // No state is allocated for clients that send nothing.
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(0) | Err(_) => return Err(HandshakeFailure::Disconnected),
        Ok(_) => {}
    }
    // RFC 9110 §9.1: a method is a token; RFC 9112 §2.2 allows an empty line before it.
    let [first] = first;
    if first != HANDSHAKE_RECORD_TYPE && (first.is_ascii_alphabetic() || b"\r\n".contains(&first)) {
        return Err(HandshakeFailure::PlainHttp(stream));
    }
    let mut accept = TlsAcceptor::from(tls.server_config())
        .accept_with(stream, |session| session.set_buffer_limit(Some(UNSENT_BYTES_MAX)));
    loop {
        watch.set_awaits_handshake_turn(true);
        let turn = turns.acquire(watch).await;
        watch.set_awaits_handshake_turn(false);
        crate::fault::point("handshake");
        let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut accept).poll(cx))).await;
        drop(turn);
        match polled {
            Poll::Ready(done) => return done.map(TlsByteStream).map_err(HandshakeFailure::Broken),
            Poll::Pending => until_woken().await,
        }
    }
}

/// Ends when any event wakes the task.
async fn until_woken() {
    let mut is_woken = false;
    poll_fn(|_| match std::mem::replace(&mut is_woken, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::runtime::{Builder, LocalOptions};
    use tokio::task::spawn_local;

    use super::*;
    use crate::server::watchdog::Exchange;

    fn run(work: impl Future<Output = ()>) {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(work);
    }

    #[test]
    fn handshake_runs_after_all_ready_tasks() {
        run(async {
            let (turns, order) =
                (Rc::new(HandshakeScheduler::new()), Rc::new(RefCell::new(String::new())));
            let watch = ConnectionWatchdog::new(&Rc::default());
            let mut tasks = Vec::new();
            for _ in 0..10 {
                let (turns, order) = (Rc::clone(&turns), Rc::clone(&order));
                let watch = Rc::clone(&watch);
                tasks.push(spawn_local(async move {
                    let _turn = turns.acquire(&watch).await;
                    order.borrow_mut().push('h');
                }));
            }
            // A connection with a request at every poll, until the others are done.
            let (sink, order) = (Rc::clone(&order), order);
            spawn_local(poll_fn(move |context| {
                sink.borrow_mut().push('r');
                context.waker().wake_by_ref();
                Poll::<()>::Pending
            }));
            for task in tasks {
                task.await.unwrap();
            }
            let order = order.borrow();
            assert_eq!(order.matches('h').count(), 10);
            assert!(!order.contains("hh") && order.starts_with('r'), "{order}");
        });
    }

    #[test]
    fn handshakes_pause_only_while_requests_are_served() {
        run(async {
            let (turns, watch) =
                (HandshakeScheduler::new(), ConnectionWatchdog::new(&Rc::default()));
            let compute = async |has_request: bool| {
                let turn = turns.acquire(&watch).await;
                let began = clock::now();
                while began.elapsed() < 3 * PAUSE_MIN {}
                if has_request {
                    drop(Exchange::begin(&watch));
                }
                drop(turn);
                turns.owed_pause.get()
            };
            assert_eq!(compute(false).await, Duration::ZERO);
            assert!(compute(true).await >= 3 * PAUSE_MIN);
            let began = clock::now();
            assert_eq!(compute(false).await, Duration::ZERO, "nobody is served any more");
            assert!(began.elapsed() >= 6 * PAUSE_MIN, "it has rested, and computed");
        });
    }
}
