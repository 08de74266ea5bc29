//! The Prometheus scrape: the counters, and the gauges that are read from other modules.
//!
//! A scrape bypasses admission control, and does not fail when the store does: a server in trouble is the
//! one to look at.

use super::App;
use crate::metrics::Now;

/// The metrics in the Prometheus text format.
pub(super) async fn text(app: &App) -> String {
    let positions = app.store.positions().await;
    let shared = &app.shared;
    shared.metrics.text(&Now {
        under_way: shared.gate.under_way(),
        waiting: shared.gate.waiting(),
        held_bytes: shared.gate.held_bytes(),
        connection_bytes: shared.gate.connection_bytes(),
        flows: shared.gate.streams.count(),
        log_lines_dropped: shared.log.dropped(),
        positions,
    })
}
