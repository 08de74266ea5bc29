//! Streaming responses that end when the rights of their caller change.
//!
//! No request arrives while a stream runs, and a stalled client triggers no event at all. So the periodic
//! sweep of each worker thread checks the rights: one read tells whether any user has changed. The one
//! surprising thing: this code cancels only the source of the stream. The sweep itself closes a connection
//! whose client does not read, when it sees that the stream is revoked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{App, Asked};
use crate::auth::{Known, Standing};
use crate::store::Stopper;

/// The cause in the log.
pub(super) const CAUSE: &str = "the rights of the caller have changed";

/// The rights that a streaming response was permitted by.
#[derive(Debug)]
pub struct StreamRights {
    known: Known,
    source: Stopper,
    is_revoked: AtomicBool,
}

impl StreamRights {
    /// `None` for an anonymous caller, whose rights cannot be revoked.
    pub(super) fn new(asked: &Asked<'_>, source: Stopper) -> Option<Arc<Self>> {
        let known = asked.known().filter(|known| known.caller.is_proved())?.without_info();
        Some(Arc::new(Self { known, source, is_revoked: AtomicBool::new(false) }))
    }

    /// Whether nothing more may be sent.
    pub fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Relaxed)
    }

    fn revoke(&self) {
        self.is_revoked.store(true, Ordering::Relaxed);
        self.source.cut(CAUSE);
    }
}

/// Ends the streams whose callers no longer have the rights that they began with.
pub async fn end_revoked(app: &App, streams: Vec<Arc<StreamRights>>) {
    let (auth, store) = (&app.shared.auth, &app.store);
    // If the read fails, the next sweep retries.
    if auth.renew(store).await.is_err() {
        return;
    }
    for stream in streams {
        match auth.standing(store, &stream.known).await {
            Ok(Standing::Same) | Err(_) => {}
            Ok(Standing::Changed(_) | Standing::Gone) => stream.revoke(),
        }
    }
}
