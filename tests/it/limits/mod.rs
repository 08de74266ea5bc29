//! Every configurable limit, at the limit and beyond it, with small settings.
//!
//! Limits that cannot be set are tested with their features.
//! For a timeout, "at" says that nothing is cancelled earlier; how much later depends on the machine.

mod memory;
mod numbers;
mod rates;
mod sizes;
mod times;

use std::fs;
use std::path::Path;

use crate::harness::{Backend, Folder, Server, Setup, run_nouns};

/// Each limit, and the test that reaches and exceeds it: a file of `tests/it` and its function.
const ROWS: &[(&str, &str, &str)] = &[
    ("body_bytes_max", "limits/sizes.rs", "body_bytes_limit"),
    ("bulk_bytes_max", "limits/sizes.rs", "bulk_bytes_limit"),
    ("target_bytes_max", "limits/sizes.rs", "target_bytes_limit"),
    ("headers_bytes_max", "limits/sizes.rs", "headers_bytes_limit"),
    ("headers_max", "limits/sizes.rs", "headers_count_limit"),
    ("handshake_seconds_max", "tls/handshakes.rs", "handshake_timeout_closes_the_connection"),
    ("header_seconds_max", "connections.rs", "head_timeout_is_408_or_a_silent_close"),
    ("body_seconds_max", "connections.rs", "body_timeout_is_408"),
    ("request_seconds_max", "operate/locked.rs", "write_queued_beyond_its_deadline_is_dropped"),
    (
        "send_seconds_max",
        "limits/times.rs",
        "sending_timeout_disconnects_a_client_that_does_not_read",
    ),
    ("idle_seconds_max", "connections.rs", "idle_timeout_closes_the_connection"),
    ("statement_seconds_max", "limits/times.rs", "statement_timeout_cancels_a_slow_read"),
    ("connections_max", "connections.rs", "connection_limit_exceeded_is_503"),
    ("memory_bytes_max", "limits/memory.rs", "memory_bytes_max_refuses_what_does_not_fit"),
    ("requests_max", "operate/locked.rs", "admission_limit_reached_sheds_load"),
    ("database_connections_max", "limits/numbers.rs", "database_connections_limit"),
    ("page_items_default", "limits/numbers.rs", "page_items_limit_and_default"),
    ("page_items_max", "limits/numbers.rs", "page_items_limit_and_default"),
    ("bulk_items_max", "limits/numbers.rs", "bulk_items_limit"),
    ("references_max", "limits/numbers.rs", "references_limit"),
    ("cascade_items_max", "limits/numbers.rs", "cascade_items_limit"),
    ("failed_logins_max", "limits/numbers.rs", "failed_logins_limit"),
    ("filter_terms_max", "surface/queries.rs", "query_limits_of_terms_values_and_sort_keys"),
    ("filter_values_max", "surface/queries.rs", "query_limits_of_terms_values_and_sort_keys"),
    ("sort_keys_max", "surface/queries.rs", "query_limits_of_terms_values_and_sort_keys"),
    ("streams_max", "exports/limits.rs", "export_limit_in_total_refuses_further_exports"),
    (
        "streams_per_caller_max",
        "exports/limits.rs",
        "export_limit_per_caller_refuses_further_exports",
    ),
    ("stream_seconds_max", "exports/limits.rs", "export_is_cut_when_it_takes_too_long"),
    ("stream_idle_seconds_max", "exports/limits.rs", "export_is_cut_when_the_client_does_not_read"),
    (
        "heartbeat_seconds",
        "feed/stream.rs",
        "stream_heartbeat_moves_the_position_and_sends_no_event",
    ),
    ("exports_max", "exports/limits.rs", "export_limit_in_total_refuses_further_exports"),
    (
        "export_wal_bytes_max",
        "exports/disconnects.rs",
        "export_being_read_may_let_the_wal_grow_further",
    ),
    ("idempotency_key_seconds", "retries/limits.rs", "idempotency_stored_response_expires"),
    ("idempotency_wait_seconds_max", "retries/limits.rs", "idempotency_wait_limit_exceeded_is_409"),
    ("webhooks_max", "webhooks/resources.rs", "webhooks_max_holds_for_concurrent_requests"),
];

/// A server of customers, with these lines in `[server.limits]`.
fn start_limited(backend: Backend, limits: &str) -> Server {
    setup(backend, limits).start()
}

fn setup(backend: Backend, limits: &str) -> Setup {
    let model = format!(
        "title = \"Narrow\"\n[server.limits]\n{limits}\n[resources.customer]\nid = \"integer\"\n\
         [resources.customer.fields]\ntext = {{ type = \"text\" }}\n\
         about = {{ type = \"ref\", to = \"customer\", on_delete = \"cascade\" }}\n"
    );
    Setup::new(backend).model(&model)
}

/// A new limit is not complete before it has its row here and its name in the document.
#[test]
fn limits_all_have_a_test_and_documentation() {
    let folder = Folder::new();
    let schema = run_nouns(folder.path(), &["check", "--schema"]);
    let schema: serde_json::Value = serde_json::from_str(&schema.stdout).unwrap();
    let limits = schema["$defs"]["limits"]["properties"].as_object().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("docs/reference/settings.md")).unwrap();
    for name in limits.keys() {
        assert!(ROWS.iter().any(|(limit, _, _)| limit == name), "{name} has no test");
        assert!(
            document.contains(&format!("`{name}`")),
            "{name} is not in docs/reference/settings.md"
        );
    }
    for (limit, file, test) in ROWS {
        assert!(limits.contains_key(*limit), "there is no limit {limit}");
        let text = fs::read_to_string(root.join("tests/it").join(file)).unwrap();
        assert!(text.contains(&format!("fn {test}(")), "{limit}: no {test} in {file}");
    }
}
