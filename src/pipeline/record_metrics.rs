//! The Prometheus scrape: the counters, and the gauges that are read from other modules.
//!
//! A scrape bypasses admission control, and does not fail when the store does: metrics matter most when a
//! server is in trouble.

use super::App;
use crate::metrics::ScrapeGauges;

/// The metrics in the Prometheus text format.
pub(super) async fn scrape(app: &App) -> String {
    let positions = app.store.change_log_bounds().await;
    let shared = &app.shared;
    shared.metrics.render(&ScrapeGauges {
        in_flight: shared.admission.in_flight(),
        waiting: shared.admission.waiting(),
        reserved_bytes: shared.admission.reserved_bytes(),
        connection_bytes: shared.admission.connection_bytes(),
        streams: shared.admission.streams.count(),
        log_lines_dropped: shared.log.dropped_lines(),
        positions,
    })
}
