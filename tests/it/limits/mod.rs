//! Every configurable limit, at the limit and beyond it, with small settings.
//!
//! Limits that cannot be set are tested with their features.
//! The one surprising thing: for a timeout, "at" says that nothing is cancelled earlier; how much later
//! depends on the machine.

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
    ("body_bytes_max", "limits/sizes.rs", "the_body_of_one_item"),
    ("bulk_bytes_max", "limits/sizes.rs", "the_body_of_a_list_of_new_items"),
    ("target_bytes_max", "limits/sizes.rs", "path_and_query"),
    ("headers_bytes_max", "limits/sizes.rs", "all_header_lines"),
    ("headers_max", "limits/sizes.rs", "the_number_of_header_lines"),
    ("handshake_seconds_max", "tls/handshakes.rs", "a_handshake_must_end_in_time"),
    ("header_seconds_max", "connections.rs", "a_head_must_arrive_in_time"),
    ("body_seconds_max", "connections.rs", "a_body_must_arrive_in_time"),
    ("request_seconds_max", "operate/locked.rs", "a_write_that_waits_too_long_is_given_up"),
    ("send_seconds_max", "limits/times.rs", "an_answer_that_is_not_read"),
    ("idle_seconds_max", "connections.rs", "an_idle_connection_is_closed"),
    ("statement_seconds_max", "limits/times.rs", "a_read_that_takes_too_long"),
    ("connections_max", "connections.rs", "too_many_connections_are_told_so"),
    ("memory_bytes_max", "limits/memory.rs", "memory_bytes_max_refuses_what_does_not_fit"),
    ("requests_max", "operate/locked.rs", "the_gate_is_full"),
    ("database_connections_max", "limits/numbers.rs", "connections_to_postgres"),
    ("page_items_default", "limits/numbers.rs", "items_of_a_page"),
    ("page_items_max", "limits/numbers.rs", "items_of_a_page"),
    ("bulk_items_max", "limits/numbers.rs", "new_items_in_one_request"),
    ("cascade_items_max", "limits/numbers.rs", "items_that_go_with_another"),
    ("failed_logins_max", "limits/numbers.rs", "failed_logins"),
    ("filter_terms_max", "surface/queries.rs", "limits_of_a_query"),
    ("filter_values_max", "surface/queries.rs", "limits_of_a_query"),
    ("sort_keys_max", "surface/queries.rs", "limits_of_a_query"),
    ("streams_max", "exports/limits.rs", "so_many_in_all"),
    ("streams_per_caller_max", "exports/limits.rs", "so_many_for_one_caller"),
    ("stream_seconds_max", "exports/limits.rs", "a_client_that_takes_too_long_is_cut"),
    ("stream_idle_seconds_max", "exports/limits.rs", "a_client_that_does_not_read_is_cut"),
    ("exports_max", "exports/limits.rs", "so_many_in_all"),
    (
        "export_wal_bytes_max",
        "exports/disconnects.rs",
        "export_being_read_may_let_the_wal_grow_further",
    ),
    ("idempotency_key_seconds", "retries/limits.rs", "idempotency_stored_response_expires"),
    ("idempotency_wait_seconds_max", "retries/limits.rs", "idempotency_wait_limit_exceeded_is_409"),
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
