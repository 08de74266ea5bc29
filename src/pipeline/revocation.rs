//! Streaming responses that end when the rights of their caller change.
//!
//! Nobody asks a stream who it is for, and a client that stands still makes nothing happen at all. So the
//! sweep of each worker thread looks after them: one read tells whether any user has changed.
//! The one surprising thing: what is cut here is only the source. A connection whose client does not read
//! is ended by the sweep, which sees that the stream was revoked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{App, Asked};
use crate::auth::{Known, Standing};
use crate::store::Stopper;

/// For the log.
pub(super) const CAUSE: &str = "the rights of the caller have changed";

/// The rights that a streaming response was permitted by.
#[derive(Debug)]
pub struct StreamRights {
    known: Known,
    source: Stopper,
    is_revoked: AtomicBool,
}

impl StreamRights {
    /// None: nobody can take anything from this caller.
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

/// Ends those streams whose callers have not the rights any more that they began with.
pub async fn end_revoked(app: &App, streams: Vec<Arc<StreamRights>>) {
    let (auth, store) = (&app.shared.auth, &app.store);
    // What cannot be read now is asked for again by the next sweep.
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
