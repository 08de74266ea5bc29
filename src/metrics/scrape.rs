//! The Prometheus scrape: every metric family, with its name and help.
//!
//! `docs/reference/metrics.md` shows the same list. Label values without a count are left out, and so are
//! numbers that are not available at the moment.

use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

use super::instruments::HistogramSnapshot;
use super::requests::{OTHER, STAGES, VERBS, by_status};
use super::text::{MetricKind, PrometheusText};
use super::{Metrics, ScrapeGauges, process};

/// The label of requests without a resource; no resource can have this name.
const NO_RESOURCE: &str = "-";

impl Metrics {
    /// All metrics in the Prometheus text format.
    pub fn render(&self, now: &ScrapeGauges) -> String {
        let mut text = PrometheusText::with_capacity(16 << 10);
        text.family("nouns_build_info", MetricKind::Gauge, "Version of the server")
            .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        self.write_requests(&mut text);
        self.write_server(&mut text, now);
        self.write_tls(&mut text);
        self.write_changes(&mut text, now);
        self.write_writer(&mut text);
        self.write_pool(&mut text);
        self.write_process(&mut text);
        text.finish()
    }

    fn write_requests(&self, text: &mut PrometheusText) {
        let shards = self.shards();
        text.family(
            "nouns_requests_total",
            MetricKind::Counter,
            "Requests answered, by resource (- for none), verb and status",
        );
        let names = self.resources.iter().map(|name| &**name).chain([NO_RESOURCE]);
        for (row, resource) in names.enumerate() {
            for (at, verb) in VERBS.into_iter().enumerate() {
                // Refusals before a request exists have no resource and no known verb.
                let is_last = row == self.resources.len() && at == VERBS.len() - 1;
                let refusals = is_last.then_some(&self.server.refusals);
                for (status, count) in by_status(&shards, row, at, refusals) {
                    let status = status.map_or(OTHER.to_owned(), |code| code.to_string());
                    let labels = [("resource", resource), ("verb", verb), ("status", &*status)];
                    text.sample(&labels, count);
                }
            }
        }
        text.family(
            "nouns_request_seconds",
            MetricKind::Histogram,
            "Time from the headers of a request to its response",
        );
        if let Some(seen) = HistogramSnapshot::merge(shards.iter().map(|shard| shard.total())) {
            text.histogram(&[], &seen);
        }
        text.family(
            "nouns_stage_seconds",
            MetricKind::Histogram,
            "Time of requests in each stage of the pipeline",
        );
        for (at, stage) in STAGES.into_iter().enumerate() {
            let seen = HistogramSnapshot::merge(shards.iter().filter_map(|shard| shard.stage(at)));
            if let Some(seen) = seen.filter(|seen| seen.count() > 0) {
                text.histogram(&[("stage", stage)], &seen);
            }
        }
    }

    fn write_server(&self, text: &mut PrometheusText, now: &ScrapeGauges) {
        use MetricKind::{Counter, Gauge};
        let server = &self.server;
        text.family("nouns_requests_in_flight", Gauge, "Requests in flight in the store")
            .sample(&[], now.in_flight);
        text.family("nouns_requests_queued", Gauge, "Requests queued for admission to the store")
            .sample(&[], now.waiting);
        text.family(
            "nouns_buffered_bytes",
            Gauge,
            "Bytes of request bodies and large responses in memory",
        )
        .sample(&[], now.reserved_bytes);
        text.family(
            "nouns_connection_bytes",
            Gauge,
            "Bytes of connections, request headers and small responses in memory",
        )
        .sample(&[], now.connection_bytes);
        self.write_streams(text, now);
        text.family("nouns_connections_open", Gauge, "Open connections")
            .sample(&[], server.connections_open.value());
        text.family("nouns_connections_accepted_total", Counter, "Connections accepted")
            .sample(&[], server.connections_accepted.value());
        text.family(
            "nouns_connections_refused_total",
            Counter,
            "Connections refused because connections_max was reached",
        )
        .sample(&[], server.connections_refused.value());
        text.family(
            "nouns_connections_aborted_total",
            Counter,
            "Connections aborted: response not read (unread), streaming response revoked and not \
             read (revoked), too many open HTTP/2 streams \
             (streams), too many HTTP/2 frames without a request (frames), TLS handshake timed \
             out (handshake)",
        );
        for (reason, count) in [
            ("unread", &server.aborted_unread),
            ("revoked", &server.cut_revoked),
            ("streams", &server.aborted_open_streams),
            ("frames", &server.aborted_frame_flood),
            ("handshake", &server.aborted_slow_handshake),
        ] {
            if count.value() > 0 {
                text.sample(&[("reason", reason)], count.value());
            }
        }
        text.family(
            "nouns_http2_streams_refused_total",
            Counter,
            "HTTP/2 streams refused because there were too many",
        )
        .sample(&[], server.streams_refused.value());
        text.family(
            "nouns_log_lines_dropped_total",
            Counter,
            "Log lines dropped because they could not be written fast enough",
        )
        .sample(&[], now.log_lines_dropped);
    }

    fn write_streams(&self, text: &mut PrometheusText, now: &ScrapeGauges) {
        let server = &self.server;
        let about = "Streaming responses in flight";
        text.family("nouns_streams_in_flight", MetricKind::Gauge, about).sample(&[], now.streams);
        text.family(
            "nouns_streams_ended_total",
            MetricKind::Counter,
            "Streaming responses that ended: sent completely (whole), client disconnected (left), \
             aborted by a limit or a failure (cut)",
        );
        for (end, count) in [
            ("whole", &server.streams_completed),
            ("left", &server.streams_abandoned),
            ("cut", &server.streams_aborted),
        ] {
            if count.value() > 0 {
                text.sample(&[("end", end)], count.value());
            }
        }
        let about = "Exports in flight, each with a snapshot and a thread or a database connection";
        text.family("nouns_exports_in_flight", MetricKind::Gauge, about)
            .sample(&[], self.exports.value());
    }

    fn write_tls(&self, text: &mut PrometheusText) {
        let server = &self.server;
        text.family(
            "nouns_tls_handshakes_total",
            MetricKind::Counter,
            "TLS handshakes: complete (full), session resumption (resumed), failed (failed), \
             client spoke HTTP without TLS (plain)",
        );
        for (result, count) in [
            ("full", &server.handshakes_full),
            ("resumed", &server.handshakes_resumed),
            ("failed", &server.handshakes_failed),
            ("plain", &server.handshakes_plain_http),
        ] {
            if count.value() > 0 {
                text.sample(&[("result", result)], count.value());
            }
        }
        text.family(
            "nouns_tls_certificate_expiry_timestamp_seconds",
            MetricKind::Gauge,
            "Expiry of the TLS certificate, in seconds since 1970",
        )
        .optional(server.certificate_expiry.get().map(|end| end.value()));
    }

    fn write_changes(&self, text: &mut PrometheusText, now: &ScrapeGauges) {
        let positions = now.positions.as_ref();
        text.family(
            "nouns_changes_newest_sequence",
            MetricKind::Gauge,
            "Sequence number of the newest change log entry",
        )
        .optional(positions.and_then(|positions| positions.newest));
        text.family(
            "nouns_changes_oldest_sequence",
            MetricKind::Gauge,
            "Sequence number of the oldest change log entry",
        )
        .optional(positions.and_then(|positions| positions.oldest));
        text.family(
            "nouns_changes_swept_total",
            MetricKind::Counter,
            "Change log entries that this server has removed after changes_keep",
        )
        .sample(&[], self.changes_swept.value());
        text.family(
            "nouns_damaged_items_total",
            MetricKind::Counter,
            "Reads of items with an invalid stored value; the log names them",
        )
        .sample(&[], self.damaged_items.value());
    }

    /// Writes the metrics of SQLite's writer thread.
    fn write_writer(&self, text: &mut PrometheusText) {
        let writer = self.writer.get().map(|writer| &**writer);
        text.family(
            "nouns_sqlite_writes_queued",
            MetricKind::Gauge,
            "Writes queued for the writer thread",
        )
        .optional(writer.map(|writer| writer.waiting.value()));
        text.family(
            "nouns_sqlite_commit_group_requests",
            MetricKind::Histogram,
            "Requests in one commit (group commit)",
        )
        .optional_histogram(writer.map(|writer| &writer.group_requests));
        text.family(
            "nouns_sqlite_commit_seconds",
            MetricKind::Histogram,
            "Time of a commit, including fsync",
        )
        .optional_histogram(writer.map(|writer| &writer.commit));
        text.family(
            "nouns_sqlite_checkpoint_seconds",
            MetricKind::Histogram,
            "Time of a checkpoint of the write-ahead log",
        )
        .optional_histogram(writer.map(|writer| &writer.checkpoint));
        text.family("nouns_sqlite_wal_pages", MetricKind::Gauge, "Pages in the write-ahead log")
            .optional(writer.map(|writer| writer.wal_pages.value()));
        let family = text.family(
            "nouns_sqlite_wal_resets_total",
            MetricKind::Counter,
            "Times that long reads were paused to reset the write-ahead log, by outcome",
        );
        if let Some(writer) = writer {
            family
                .sample(&[("outcome", "done")], writer.wal_resets.value())
                .sample(&[("outcome", "given_up")], writer.wal_resets_given_up.value());
        }
        text.family(
            "nouns_sqlite_writes_stopped",
            MetricKind::Gauge,
            "1 if writes have stopped after a storage failure",
        )
        .optional(writer.map(|writer| u8::from(writer.stopped.load(Ordering::Relaxed))));
    }

    /// Writes the metrics of PostgreSQL's connection pool.
    fn write_pool(&self, text: &mut PrometheusText) {
        let pool = self.pool.get().map(|pool| &**pool);
        text.family("nouns_pool_connections_open", MetricKind::Gauge, "Open database connections")
            .optional(pool.map(|pool| pool.open.value()));
        text.family("nouns_pool_connections_idle", MetricKind::Gauge, "Idle database connections")
            .optional(pool.map(|pool| pool.idle.value()));
        text.family(
            "nouns_pool_connections_opened_total",
            MetricKind::Counter,
            "Database connections opened",
        )
        .optional(pool.map(|pool| pool.opened.value()));
        text.family(
            "nouns_pool_connections_failed_total",
            MetricKind::Counter,
            "Database connections that ended by failure",
        )
        .optional(pool.map(|pool| pool.lost.value()));
        text.family(
            "nouns_pool_requests_queued",
            MetricKind::Gauge,
            "Requests queued for a database connection",
        )
        .optional(pool.map(|pool| pool.waiting.value()));
        text.family(
            "nouns_pool_wait_seconds",
            MetricKind::Histogram,
            "Time that requests waited for a database connection",
        )
        .optional_histogram(pool.map(|pool| &pool.wait));
        text.family(
            "nouns_pool_batch_requests",
            MetricKind::Histogram,
            "Creates in one INSERT statement (insert batching)",
        )
        .optional_histogram(pool.map(|pool| &pool.insert_batch_requests));
    }

    /// The conventional process metrics of Prometheus clients.
    fn write_process(&self, text: &mut PrometheusText) {
        text.family("process_cpu_seconds_total", MetricKind::Counter, "CPU time used, in seconds")
            .sample(&[], process::cpu_seconds());
        let (resident, virtual_) = process::memory_bytes();
        text.family("process_resident_memory_bytes", MetricKind::Gauge, "Resident memory")
            .optional(resident);
        text.family("process_virtual_memory_bytes", MetricKind::Gauge, "Virtual memory")
            .optional(virtual_);
        text.family("process_open_fds", MetricKind::Gauge, "Open file descriptors")
            .optional(process::open_files());
        text.family("process_max_fds", MetricKind::Gauge, "Limit of open file descriptors")
            .optional(process::open_files_max());
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        text.family(
            "process_start_time_seconds",
            MetricKind::Gauge,
            "Start of the server, in seconds since 1970",
        )
        .sample(&[], started.as_secs_f64());
    }
}
