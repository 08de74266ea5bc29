//! One connection, from its first byte to its last, over any kind of stream.
//!
//! It finds out which protocol the client speaks, and `http1` or `http2` serves it.

use std::rc::Rc;

use tokio::io::AsyncReadExt;

use super::bind::ListenerKind;
use super::http2_frames::PREFACE;
use super::requests::{ConnectionContext, RequestService};
use super::watchdog::{ConnectionEvent, ConnectionWatchdog, until_aborted};
use super::watched_stream::{ByteStream, WatchedStream};
use super::{http1, http2};
use crate::wire::PeerConnection;

/// The facts about a connection that are known when HTTP begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionInfo {
    pub(super) way: PeerConnection,
    pub(super) listener_kind: ListenerKind,
    pub(super) protocol: Protocol,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
    /// HTTP/1, unless it begins with the preface of HTTP/2 and that is offered.
    Undetermined,
}

/// Serves a stream until it ends.
pub(super) async fn serve<S>(
    stream: S,
    info: ConnectionInfo,
    shared: Rc<ConnectionContext>,
    watch: Rc<ConnectionWatchdog>,
) where
    S: ByteStream,
{
    let mut stream = WatchedStream::new(stream, Rc::clone(&watch));
    let is_http2 = match info.protocol {
        Protocol::Http2 => true,
        Protocol::Undetermined if shared.http2_prior_knowledge => {
            match until_aborted(&watch, begins_with_preface(&mut stream)).await {
                Ok(is_http2) => is_http2,
                Err(_) => return,
            }
        }
        Protocol::Http1 | Protocol::Undetermined => false,
    };
    let ConnectionInfo { way, listener_kind, .. } = info;
    let service =
        RequestService { shared: Rc::clone(&shared), watch: Rc::clone(&watch), way, listener_kind };
    if is_http2 {
        watch.on(ConnectionEvent::Http2);
        // Boxed, so that other connections do not take up its memory.
        Box::pin(http2::serve(stream, service)).await;
    } else {
        http1::serve(stream, service).await;
    }
}

/// Whether the client begins with the HTTP/2 preface. The bytes are put back.
async fn begins_with_preface<S: ByteStream>(stream: &mut WatchedStream<S>) -> bool {
    let mut seen = Vec::with_capacity(PREFACE.len());
    while seen.len() < PREFACE.len() && PREFACE.starts_with(&seen) {
        let mut more = [0; PREFACE.len()];
        let wanted = PREFACE.len() - seen.len();
        match stream.read(more.split_at_mut(wanted).0).await {
            Ok(count @ 1..) => seen.extend_from_slice(more.split_at(count).0),
            Ok(0) | Err(_) => break,
        }
    }
    let found = seen == PREFACE;
    stream.unread(&seen);
    found
}
