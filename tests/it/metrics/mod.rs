//! `/-/metrics`: the counts match the requests, and Prometheus can parse the text.
//!
//! A request is counted before its response is sent, so a client that has the response finds it
//! counted; tests only wait for what happens outside requests.

mod prometheus_parser;
mod numbers;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use prometheus_parser::Scrape;

use crate::harness::{ANN, Answer, Backend, Client, Server, Setup};

/// The `Accept` header of Prometheus 3.
const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

fn scrape(client: &mut Client) -> Scrape {
    let answer = client.request("GET /-/metrics", &[("Accept", PROMETHEUS)], "");
    assert_eq!(answer.status, 200, "{answer:?}");
    Scrape::read(answer.text())
}

type RequestCounts = BTreeMap<(String, String, String), u64>;

fn requests(scrape: &Scrape) -> RequestCounts {
    let samples = &scrape.family("nouns_requests_total").samples;
    let counts = samples.iter().map(|sample| {
        let label = |name: &str| sample.labels[name].clone();
        assert_eq!(sample.labels.len(), 3, "{sample:?}");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let count = sample.value as u64;
        assert!(count > 0, "only what was counted is written: {sample:?}");
        ((label("resource"), label("verb"), label("status")), count)
    });
    counts.collect()
}

/// The growth of the counts from one scrape to a second, the first scrape included.
fn count_growth(before: &Scrape, after: &Scrape) -> Vec<(String, u64)> {
    let before = requests(before);
    let counts = requests(after).into_iter().map(|(key, count)| {
        let (resource, verb, status) = &key;
        (format!("{resource} {verb} {status}"), count - before.get(&key).copied().unwrap_or(0))
    });
    counts.filter(|(_, count)| *count > 0).collect()
}

fn expected_counts(counts: &[(&str, u64)]) -> Vec<(String, u64)> {
    let mut counts: Vec<_> = counts.iter().map(|(key, n)| ((*key).to_owned(), *n)).collect();
    counts.sort();
    counts
}

on_every_backend! {
    fn metrics_count_each_request_by_resource_verb_and_status(server: Server) {
        let mut client = server.client();
        let ann = server.create("/customers", ANN);
        let orders = format!("{ann}/orders");
        let before = scrape(&mut client);
        let sent = [
            ("GET /customers", "", 200), ("GET /customers?limit=0", "", 400), ("HEAD /customers", "", 200),
            ("POST /customers", ANN, 201), ("POST /customers", ANN, 201), ("POST /customers", "{", 400), ("POST /customers", r#"{"customer":{}}"#, 422),
            (&format!("GET {ann}"), "", 200), (&format!("PUT {ann}"), ANN, 200), ("GET /customers/none", "", 404), ("OPTIONS /customers", "", 204),
            (&format!("GET {orders}"), "", 200), (&format!("POST {orders}"), "{}", 400), (&format!("DELETE {orders}/none"), "", 404),
            // Requests without a resource, or refused before it is known.
            ("GET /", "", 200), ("GET /-/health", "", 200), ("GET /-/ready", "", 200), ("GET /-/problems/taken", "", 200), ("GET /nothing", "", 404),
            ("OPTIONS *", "", 204), ("PATCH /customers", "", 405), ("GET /customers/", "", 308), ("BREW /customers", "", 501), ("get /customers", "", 501),
            (&format!("DELETE {ann}"), "", 204), (&format!("DELETE {ann}"), "", 404),
        ];
        for (line, body, status) in sent {
            assert_eq!(client.request(line, &[], body).status, status, "{line}");
        }
        assert_eq!(client.request("GET /customers", &[("Accept", "image/png")], "").status, 406);
        assert_eq!(count_growth(&before, &scrape(&mut client)), expected_counts(&[
            ("customer GET 200", 2), ("customer GET 400", 1), ("customer GET 404", 1), ("customer GET 406", 1), ("customer HEAD 200", 1),
            ("customer POST 201", 2), ("customer POST 400", 1), ("customer POST 422", 1), ("customer PUT 200", 1), ("customer OPTIONS 204", 1),
            ("customer DELETE 204", 1), ("customer DELETE 404", 1),
            ("order GET 200", 1), ("order POST 400", 1), ("order DELETE 404", 1),
            // The first scrape, and the server's own paths.
            ("- GET 200", 5), ("- GET 404", 1), ("- GET 308", 1), ("- OPTIONS 204", 1), ("- PATCH 405", 1), ("- other 501", 2),
        ]));
    }

    /// The counts of all threads are added up.
    fn metrics_count_concurrent_clients(server: Server) {
        let ann = server.create("/customers", ANN);
        let mut client = server.client();
        let before = scrape(&mut client);
        let (address, line) = (server.address, format!("GET {ann}"));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut client = Client::connect(address);
                    for _ in 0..50 {
                        assert_eq!(client.request(&line, &[], "").status, 200);
                    }
                });
            }
        });
        assert_eq!(count_growth(&before, &scrape(&mut client)), expected_counts(&[("customer GET 200", 400), ("- GET 200", 1)]));
    }

    /// Whatever a client sends, the names and values of labels come from the model and a short list.
    fn metrics_labels_are_bounded_under_hostile_requests(server: Server) {
        let ann = server.create("/customers", ANN);
        let id = ann.rsplit('/').next().unwrap().to_owned();
        let mut answers: Vec<Answer> = Vec::new();
        let long = "x".repeat(3000);
        let lines = [
            format!("GET {ann}"), format!("GET /customers/{long}"), format!("GET /{long}"), format!("{} /customers", "Q".repeat(200)),
            "GET /customers/%22%7D%0A%23".to_owned(), "GET /%22,resource=%22evil".to_owned(), "GET /customers\"evil".to_owned(),
            "GET /customers?secret=hunter2".to_owned(), "GET /-/metrics/evil".to_owned(), "GET /-/metrics?evil=1".to_owned(),
            "GET /customers/1/evil".to_owned(), "OPTIONS /evil".to_owned(), "EVIL /evil".to_owned(), "CONNECT evil:80".to_owned(),
        ];
        for line in &lines {
            let evil = [("X-Evil", "evil"), ("User-Agent", "evil"), ("X-Request-Id", "evil"), ("Authorization", "Basic hunter2")];
            answers.push(server.request(line, &evil, ""));
        }
        answers.push(server.send("evil\r\n\r\n"));
        answers.push(server.request("GET /customers", &[("Host", "evil.example")], ""));
        let text = server.get("/-/metrics").text().to_owned();
        let ids = answers.iter().map(|answer| answer.header("X-Request-Id").unwrap());
        for word in ids.chain([id.as_str(), "evil", "hunter2", "xxx", "QQQ", "example", "127.0.0.1", "ann", "Ann"]) {
            assert!(!text.contains(word), "{word} in {text}");
        }
        let scrape = Scrape::read(&text);
        let values = |label: &str| -> BTreeSet<&str> {
            let samples = scrape.families.iter().flat_map(|family| &family.samples);
            samples.filter_map(|sample| sample.labels.get(label)).map(String::as_str).collect()
        };
        assert_eq!(values("resource"), BTreeSet::from(["-", "customer"]));
        assert_eq!(values("verb"), BTreeSet::from(["GET", "OPTIONS", "POST", "other"]));
        assert!(values("status").iter().all(|status| status.parse::<u16>().is_ok()), "{:?}", values("status"));
        assert!(values("stage").iter().all(|stage| ["head", "body", "plan", "store", "reply"].contains(stage)), "{:?}", values("stage"));
    }

    fn metrics_path_content_type_and_methods(server: Server) {
        let answer = server.get("/-/metrics");
        assert_eq!(answer.header("Content-Type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        assert_eq!((answer.header("Cache-Control"), answer.header("Vary")), (Some("private, no-cache"), Some("Accept, Accept-Encoding")));
        assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
        for (accept, status) in [
            (PROMETHEUS, 200), ("*/*", 200), ("text/plain", 200), ("text/plain; charset=utf-8", 200), ("text/html,*/*;q=0.8", 200),
            ("application/json", 406), ("application/openmetrics-text", 406), ("text/plain;version=1.0.0", 406), ("text/plain;q=0", 406),
        ] {
            assert_eq!(server.request("GET /-/metrics", &[("Accept", accept)], "").status, status, "{accept}");
        }
        let head = server.request("HEAD /-/metrics", &[], "");
        assert_eq!((head.status, head.header("Content-Type")), (200, answer.header("Content-Type")));
        let options = server.request("OPTIONS /-/metrics", &[], "");
        assert_eq!((options.status, options.header("Allow")), (204, Some("GET, HEAD, OPTIONS")));
        assert_eq!(server.post("/-/metrics", "").problem(), "method-not-allowed");
        assert_eq!(server.get("/-/metrics?name=x").problem(), "bad-query");
        assert_eq!(server.get("/-/metrics/").status, 308);
    }

    /// A panic that loses even the log line counts as one request and one 500.
    fn metrics_count_a_request_that_panics(backend: Backend) {
        let server = Setup::new(backend).fault("line:2").start();
        let mut client = server.client();
        let before = scrape(&mut client);
        assert_eq!(server.get("/customers").status, 500);
        let counted = count_growth(&before, &scrape(&mut client));
        assert_eq!(counted, expected_counts(&[("- GET 200", 1), ("- other 500", 1)]));
    }
}

/// The table in the document lists exactly the server's metrics.
#[test]
fn metrics_document_lists_every_metric() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/metrics.md");
    let document = fs::read_to_string(document).unwrap();
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    let shown: Vec<Vec<&str>> =
        rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect();
    let server = Server::on(Backend::Sqlite);
    server.create("/customers", ANN);
    let scrape = scrape(&mut server.client());
    let printed = scrape
        .families
        .iter()
        .map(|family| format!("| `{}` | {} | {} |", family.name, family.kind, family.help));
    let in_document = shown.iter().map(|row| format!("| {} | {} | {} |", row[0], row[1], row[3]));
    let lines = |rows: &mut dyn Iterator<Item = String>| rows.collect::<Vec<_>>().join("\n");
    assert_eq!(lines(&mut { in_document }), lines(&mut { printed }));
    for (row, family) in shown.iter().zip(&scrape.families) {
        let labels: BTreeSet<_> = row[2].split(", ").filter(|label| !label.is_empty()).collect();
        for sample in &family.samples {
            let names = sample.labels.keys().filter(|name| *name != "le");
            let names: BTreeSet<_> = names.map(|name| format!("`{name}`")).collect();
            assert_eq!(
                names.iter().map(String::as_str).collect::<BTreeSet<_>>(),
                labels,
                "{sample:?}"
            );
        }
    }
}
