//! Streaming responses that end when the rights of their caller change.
//!
//! No request arrives while a stream runs, and a stalled client triggers no event at all. So the periodic
//! sweep of each worker thread checks the rights: one read tells whether any user has changed. This code
//! cancels only the source of the stream. The sweep itself closes a connection whose client does not read,
//! when it sees that the stream is revoked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{App, RequestContext};
use crate::auth::{CallerStatus, IdentifiedCaller};
use crate::store::ExportCanceller;

/// The cause in the log.
pub(super) const REVOKED_CAUSE: &str = "the rights of the caller have changed";

/// The rights that permitted a streaming response.
#[derive(Debug)]
pub struct StreamRights {
    known: IdentifiedCaller,
    source: ExportCanceller,
    is_revoked: AtomicBool,
}

impl StreamRights {
    /// `None` for an anonymous caller, whose rights cannot be revoked.
    pub(super) fn new(asked: &RequestContext<'_>, source: ExportCanceller) -> Option<Arc<Self>> {
        let known = asked
            .latest_identified()
            .filter(|known| known.caller.is_authenticated())?
            .without_info();
        Some(Arc::new(Self { known, source, is_revoked: AtomicBool::new(false) }))
    }

    /// Whether the stream must not send anything more.
    pub fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Relaxed)
    }

    fn revoke(&self) {
        self.is_revoked.store(true, Ordering::Relaxed);
        self.source.cancel(REVOKED_CAUSE);
    }
}

/// Ends the streams whose callers no longer have the rights that they began with.
pub async fn end_revoked(app: &App, streams: Vec<Arc<StreamRights>>) {
    let (auth, store) = (&app.shared.auth, &app.store);
    // If the read fails, the next sweep retries.
    if auth.renew_lease(store).await.is_err() {
        return;
    }
    for stream in streams {
        match auth.caller_status(store, &stream.known).await {
            Ok(CallerStatus::Unchanged) | Err(_) => {}
            Ok(CallerStatus::Changed(_) | CallerStatus::Gone) => stream.revoke(),
        }
    }
}
