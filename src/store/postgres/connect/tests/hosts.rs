//! Several hosts, and several addresses of one: some of them accept connections and never answer.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::store::postgres::connect::tests::cluster::TestCluster;

/// Counts the connections that it accepts, and answers none.
fn start_silent_server(address: impl Into<SocketAddr>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(address.into()).unwrap();
    let (place, accepted) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&accepted);
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            counter.fetch_add(1, Ordering::Relaxed);
            open.push(stream);
        }
    });
    (place, accepted)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

/// A host that drops packets would delay every connection by its share of the time.
#[test]
fn host_that_took_writes_last_is_tried_first() {
    let cluster = TestCluster::start();
    cluster.serve(None);
    let (silent, accepted) = start_silent_server((Ipv4Addr::LOCALHOST, 0));
    let url = format!(
        "postgres://nouns@{silent},127.0.0.1:{}/postgres?connect_timeout=10&sslmode=disable",
        cluster.port
    );
    let (url, primary) = (parse_url(&url), PrimaryState::default());
    run(async {
        for _ in 0..5 {
            let connected = url.connect(&SESSION, &primary, clock::now() + TEST_TIMEOUT).await;
            assert!(connected.is_ok());
        }
    });
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
    assert_eq!(primary.last_address().host, 1);
}

/// As after a failover of a name: one of its addresses is that of a host which is gone.
#[test]
fn each_address_of_a_host_has_its_share_of_the_time() {
    let cluster = TestCluster::start();
    cluster.serve(None);
    let gone = Ipv4Addr::new(127, 0, 0, 2);
    let (_, accepted) = start_silent_server((gone, cluster.port));
    let url = format!("postgres://nouns@db.example:{}/postgres?sslmode=disable", cluster.port);
    let (url, primary) = (parse_url(&url), PrimaryState::default());
    let connector = PostgresTlsConnector::new(&url.tls).unwrap();
    let attempt = ConnectAttempt {
        address: &url,
        target: &url.targets[0],
        session: &SESSION,
        connector: &connector,
        primary: &primary,
    };
    let addresses = [gone, Ipv4Addr::LOCALHOST].map(|address| Some(address.into()));
    let deadline = clock::now() + Duration::from_secs(20);
    assert!(run(attempt.run_at(&addresses, deadline)).is_ok());
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
}

#[test]
fn host_name_without_an_address_is_a_transient_error() {
    let outcome =
        outcome_line(connect_and_query("postgres://nouns@no.such.host.invalid", &SESSION, ""));
    let start =
        "TRANSIENT cannot reach PostgreSQL at no.such.host.invalid:5432 (failed to lookup address";
    assert!(outcome.starts_with(start), "{outcome}");
}
