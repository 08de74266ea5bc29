//! The metric families: the handle, the name, the kind and the help of each, declared once.
//!
//! `docs/reference/metrics.md` shows the same list. Label values with `if is_used` are left out until they are
//! counted, and so are numbers that are not available at the moment. A group that this server does not have is
//! without samples.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use super::instruments::{BatchHistogram, Counter, Gauge, TimeHistogram};
use super::text::{PrometheusText, Sample};

macro_rules! families {
    ($($(#[$about:meta])* struct $group:ident {
        $($name:literal $kind:ident $help:literal:
            $($handle:ident $type:ty $([$label:literal $value:literal $(if $is_shown:ident)?])?),*;)*
    })*) => {
        $($(#[$about])*
        #[derive(Debug, Default)]
        pub struct $group {
            $($(#[doc = $help] pub $handle: $type,)*)*
        }

        impl $group {
            pub fn write(group: Option<&Self>, text: &mut PrometheusText) {
                $(text.family($name, stringify!($kind), $help);
                if let Some(group) = group {
                    $(if true $($(&& group.$handle.$is_shown())?)? {
                        group.$handle.write(text, &[$(($label, $value))?]);
                    })*
                })*
            }
        })*
    };
}

families! {
    /// Numbers that other modules keep, at the moment of a scrape. Those of the change log are missing when the
    /// store does not answer.
    struct ScrapeGauges {
        "nouns_requests_in_flight" gauge "Requests in flight in the store": in_flight usize;
        "nouns_requests_queued" gauge "Requests queued for admission to the store": waiting usize;
        "nouns_buffered_bytes" gauge "Bytes of request bodies, large responses and events in memory": reserved_bytes usize;
        "nouns_connection_bytes" gauge
            "Bytes of connections, request headers and small responses in memory": connection_bytes usize;
        "nouns_streams_in_flight" gauge "Streaming responses in flight": streams usize;
        "nouns_log_lines_dropped_total" counter
            "Log lines dropped because they could not be written fast enough": log_lines_dropped u64;
        "nouns_changes_newest_sequence" gauge
            "Sequence number of the newest change log entry": newest_change Option<i64>;
        "nouns_changes_oldest_sequence" gauge
            "Sequence number of the oldest change log entry": oldest_change Option<i64>;
    }

    /// Connections, TLS handshakes and streams.
    struct ServerMetrics {
        "nouns_streams_ended_total" counter
            "Streaming responses that ended: sent completely (whole), client disconnected (left), aborted by a limit \
             or a failure (cut)":
            streams_completed Counter ["end" "whole" if is_used],
            streams_abandoned Counter ["end" "left" if is_used],
            streams_aborted Counter ["end" "cut" if is_used];
        "nouns_exports_in_flight" gauge
            "Exports in flight, each with a snapshot and a thread or a database connection": exports Gauge;
        "nouns_connections_open" gauge "Open connections": connections_open Gauge;
        "nouns_connections_accepted_total" counter "Connections accepted": connections_accepted Counter;
        "nouns_connections_refused_total" counter
            "Connections refused because connections_max was reached": connections_refused Counter;
        "nouns_connections_aborted_total" counter
            "Connections aborted: response not read (unread), streaming response revoked and not read (revoked), too \
             many open HTTP/2 streams (streams), too many HTTP/2 frames without a request (frames), TLS handshake \
             timed out (handshake)":
            aborted_unread Counter ["reason" "unread" if is_used],
            cut_revoked Counter ["reason" "revoked" if is_used],
            aborted_open_streams Counter ["reason" "streams" if is_used],
            aborted_frame_flood Counter ["reason" "frames" if is_used],
            aborted_slow_handshake Counter ["reason" "handshake" if is_used];
        "nouns_http2_streams_refused_total" counter
            "HTTP/2 streams refused because there were too many": streams_refused Counter;
        "nouns_tls_handshakes_total" counter
            "TLS handshakes: complete (full), session resumption (resumed), failed (failed), client spoke HTTP without \
             TLS (plain)":
            handshakes_full Counter ["result" "full" if is_used],
            handshakes_resumed Counter ["result" "resumed" if is_used],
            handshakes_failed Counter ["result" "failed" if is_used],
            handshakes_plain_http Counter ["result" "plain" if is_used];
        "nouns_tls_certificate_expiry_timestamp_seconds" gauge
            "Expiry of the TLS certificate, in seconds since 1970": certificate_expiry OnceLock<Gauge>;
    }

    /// The change log and the stored items.
    struct StoreMetrics {
        "nouns_changes_swept_total" counter
            "Change log entries that this server has removed after changes_keep": changes_swept Counter;
        "nouns_damaged_items_total" counter
            "Reads of items with an invalid stored value; the log names them": damaged_items Arc<Counter>;
    }

    /// The change feed and its event streams.
    struct FeedMetrics {
        "nouns_event_streams" gauge
            "Event streams in flight, with the requests that wait for changes": streams Gauge;
        "nouns_events_sent_total" counter "Events sent in event streams": events_sent Counter;
        "nouns_event_stream_bytes_total" counter "Bytes sent in event streams": stream_bytes Counter;
        "nouns_feed_views" gauge "Distinct subscriptions of event streams": views Gauge;
        "nouns_feed_position" gauge
            "Change log number up to which the feed has handed out changes": position Gauge;
        "nouns_feed_delay_seconds" histogram
            "Time from a change to the moment when its events can be sent": delay TimeHistogram;
        "nouns_feed_polls_total" counter
            "Reads of the change log by the feed: of new entries for all streams (tail), of older ones for streams \
             that are behind (catch_up), of related items that decide who sees a change (related)":
            tail_reads Counter ["kind" "tail"],
            catch_up_reads Counter ["kind" "catch_up"],
            fact_reads Counter ["kind" "related"];
        "nouns_feed_failed_polls_total" counter
            "Reads of the change log by the feed that failed and are repeated; the log has the cause":
            failed_reads Counter;
    }

    /// Webhooks, as this server sends them.
    struct WebhookMetrics {
        "nouns_webhook_deliveries_created_total" counter
            "Deliveries made from changes: one for each event and webhook": created Counter;
        "nouns_webhook_attempts_total" counter
            "Attempts to deliver an event: accepted (delivered), failed and tried again later (retried), failed for \
             the last time (dead), not sent because the claim had expired (released)":
            delivered Counter ["result" "delivered"],
            retried Counter ["result" "retried"],
            dead Counter ["result" "dead"],
            released Counter ["result" "released"];
        "nouns_webhook_attempt_seconds" histogram "Time of an attempt": attempt_time TimeHistogram;
        "nouns_webhook_attempts_in_flight" gauge "Attempts in flight": in_flight Gauge;
        "nouns_webhook_deliveries_pending" gauge
            "Pending deliveries of all webhooks, at most 10,000 for each": pending Gauge;
        "nouns_webhook_lag_seconds" gauge "Age of the oldest pending delivery": lag Gauge;
        "nouns_webhook_gaps_total" counter
            "Times that changes were removed from the change log before a webhook got them": gaps Counter;
        "nouns_webhook_panics_total" counter "Panics while sending webhooks": panics Counter;
    }

    /// Metrics of a backend with one writer thread.
    struct WriterMetrics {
        "nouns_sqlite_writes_queued" gauge "Writes queued for the writer thread": waiting Gauge;
        "nouns_sqlite_commit_group_requests" histogram
            "Requests in one commit (group commit)": group_requests BatchHistogram;
        "nouns_sqlite_commit_seconds" histogram "Time of a commit, including fsync": commit TimeHistogram;
        "nouns_sqlite_checkpoint_seconds" histogram
            "Time of a checkpoint of the write-ahead log": checkpoint TimeHistogram;
        "nouns_sqlite_wal_pages" gauge "Pages in the write-ahead log": wal_pages Gauge;
        "nouns_sqlite_wal_resets_total" counter
            "Times that long reads were paused to reset the write-ahead log, by outcome":
            wal_resets Counter ["outcome" "done"],
            wal_resets_given_up Counter ["outcome" "given_up"];
        "nouns_sqlite_writes_stopped" gauge
            "1 if writes have stopped after a storage failure": stopped Arc<AtomicBool>;
    }

    /// Metrics of a backend with a connection pool.
    struct PoolMetrics {
        "nouns_pool_connections_open" gauge "Open database connections": open Gauge;
        "nouns_pool_connections_idle" gauge "Idle database connections": idle Gauge;
        "nouns_pool_connections_opened_total" counter "Database connections opened": opened Counter;
        "nouns_pool_connections_failed_total" counter "Database connections that ended by failure": lost Counter;
        "nouns_pool_requests_queued" gauge "Requests queued for a database connection": waiting Gauge;
        "nouns_pool_wait_seconds" histogram
            "Time that requests waited for a database connection": wait TimeHistogram;
        "nouns_pool_batch_requests" histogram
            "Creates in one INSERT statement (insert batching)": insert_batch_requests BatchHistogram;
    }

    /// The conventional process metrics of Prometheus clients. Numbers that the system does not offer are missing.
    struct ProcessGauges {
        "process_cpu_seconds_total" counter "CPU time used, in seconds": cpu_seconds f64;
        "process_resident_memory_bytes" gauge "Resident memory": resident_bytes Option<u64>;
        "process_virtual_memory_bytes" gauge "Virtual memory": virtual_bytes Option<u64>;
        "process_open_fds" gauge "Open file descriptors": open_files Option<u64>;
        "process_max_fds" gauge "Limit of open file descriptors": open_files_max Option<u64>;
        "process_start_time_seconds" gauge "Start of the server, in seconds since 1970": start_seconds f64;
    }
}

impl ServerMetrics {
    pub fn set_certificate_expiry(&self, seconds: u64) {
        let gauge = self.certificate_expiry.get_or_init(Gauge::default);
        gauge.set(usize::try_from(seconds).unwrap_or(usize::MAX));
    }
}
