//! Every limit that can be set, at the limit and past it, with settings small enough to be met.
//!
//! What is a limit and no setting is tested where it belongs.
//! The one surprising thing: of a limit of time, "at" says that nothing is cut earlier; how much later
//! depends on the machine.

mod memory;
mod numbers;
mod rates;
mod sizes;
mod times;

use std::fs;
use std::path::Path;

use crate::harness::{Backend, Folder, Server, Setup, run};

/// Each limit, and the test that goes up to it and past it: a file of `tests/it` and its function.
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
    ("sending_seconds_max", "limits/times.rs", "an_answer_that_is_not_read"),
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
        "export_log_bytes_max",
        "exports/leaving.rs",
        "a_client_that_reads_may_make_the_log_grow_further",
    ),
    ("idempotency_key_seconds", "retries/limits.rs", "an_answer_counts_no_more_when_it_is_old"),
    (
        "idempotency_wait_seconds_max",
        "retries/limits.rs",
        "whoever_waits_too_long_is_told_to_come_back",
    ),
];

/// A server of customers, with these lines in `[server.limits]`.
fn limited(backend: Backend, limits: &str) -> Server {
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

/// A new limit is not done before it has its row here and its name in the document.
#[test]
fn every_limit_has_its_test_and_its_line() {
    let folder = Folder::new();
    let schema = run(folder.path(), &["check", "--schema"]);
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
