//! Streaming responses that end when the rights of their caller change.
//!
//! No request arrives while a stream runs, and a stalled client triggers no event at all. So the periodic
//! sweep of each worker thread checks the rights: one read tells whether any user has changed. This code
//! cancels only the source of the stream. The sweep itself closes a connection whose client does not read,
//! when it sees that the stream is revoked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::auth::IdentifiedCaller;
use crate::store::ExportControl;

/// The cause in the log.
pub(super) const REVOKED_CAUSE: &str = "the rights of the caller have changed";

/// The rights that permitted a streaming response.
#[derive(Debug)]
pub struct StreamRights {
    pub(super) known: IdentifiedCaller,
    source: Arc<ExportControl>,
    is_revoked: AtomicBool,
}

impl StreamRights {
    /// `None` for an anonymous caller, whose rights cannot be revoked.
    pub(super) fn new(known: &IdentifiedCaller, source: &Arc<ExportControl>) -> Option<Arc<Self>> {
        let is_revoked = AtomicBool::new(false);
        let source = Arc::clone(source);
        let rights = || Self { known: known.without_info(), source, is_revoked };
        known.caller.is_authenticated().then(|| Arc::new(rights()))
    }

    /// Whether the stream must not send anything more.
    pub fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Relaxed)
    }

    pub(super) fn revoke(&self) {
        self.is_revoked.store(true, Ordering::Relaxed);
        self.source.cancel(REVOKED_CAUSE);
    }
}
