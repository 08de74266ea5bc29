//! Deliveries with several servers on one database: each is claimed by one server, and taken over when that one dies.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

use super::hooks::{HookServer, MODEL, sequences_by_subject};
use super::receiver::{Receiver, ReceiverAction};
use crate::harness::{
    Backend, CertificatePair, FakeClock, Folder, Server, Setup, run_sql, wait_until,
};

/// The first one owns the database, so it is dropped last.
fn start_replicas(count: usize) -> (Vec<HookServer>, HookServer) {
    let first = HookServer::start(Backend::Postgres);
    let replica = |_| start_replica(&first, Setup::replica(first.server.database()));
    ((1..count).map(replica).collect(), first)
}

fn start_replica(first: &HookServer, setup: Setup) -> HookServer {
    let setup = setup.model(MODEL).key_file(first.server.key_file());
    let server = setup.with_authentication().start_in(Folder::new());
    HookServer { server, login: first.login.clone() }
}

/// Ends all leases, as if their minute had passed.
fn end_leases(server: &Server) {
    let sql = "UPDATE nouns_delivery_queue SET due = '2020-01-01T00:00:00Z' WHERE claim_token IS NOT NULL";
    run_sql(Backend::Postgres, server.folder(), sql);
}

#[test]
fn webhook_replicas_send_each_delivery_once() {
    let (others, first) = start_replicas(3);
    let receiver = Receiver::always(ReceiverAction::status(204));
    let hook = first.create_hook(&receiver, &["customer.*"]);
    let servers: Vec<_> = others.iter().chain([&first]).collect();
    let mut customers = Vec::new();
    for round in 0..20 {
        for server in &servers {
            customers.push(server.create_customer(&format!("new {round}")));
        }
    }
    for (number, customer) in customers.iter().enumerate() {
        servers[number % servers.len()].rename(customer, 1);
    }
    let count = 2 * customers.len();
    first.wait_for_deliveries(&hook, count, "delivered");
    let requests = receiver.requests();
    let ids: HashSet<_> = requests.iter().map(|one| one.header("webhook-id").unwrap()).collect();
    assert_eq!((requests.len(), ids.len()), (count, count));
    for (subject, sequences) in sequences_by_subject(&requests) {
        assert!(sequences.len() == 2 && sequences.is_sorted(), "{subject}: {sequences:?}");
    }
}

#[test]
fn webhook_replica_that_is_killed_leaves_its_deliveries_to_the_others() {
    let (others, first) = start_replicas(3);
    let is_open = Arc::new(AtomicBool::new(false));
    let receiver = Receiver::start({
        let is_open = Arc::clone(&is_open);
        move |_, _| match is_open.load(Ordering::Relaxed) {
            true => ReceiverAction::status(204),
            false => ReceiverAction::SendAndStall(Vec::new()),
        }
    });
    let hook = first.create_hook(&receiver, &["customer.*"]);
    let mut customers = Vec::new();
    for server in &others {
        for number in 0..4 {
            let customer = server.create_customer(&format!("new {number}"));
            server.rename(&customer, 2);
            customers.push(customer);
        }
    }
    wait_until("requests are in flight", || (receiver.requests().len() >= 2).then_some(()));
    for other in others {
        other.server.kill();
    }
    is_open.store(true, Ordering::Relaxed);
    end_leases(&first.server);
    wait_until("all events are delivered", || {
        first.make_due();
        let all = first.deliveries(&hook);
        let is_done = all.len() == 3 * customers.len();
        (is_done && all.iter().all(|one| one["status"] == "delivered")).then_some(())
    });
    let by_subject = sequences_by_subject(&receiver.requests());
    for customer in &customers {
        let sequences = by_subject.get(customer).unwrap();
        let distinct: HashSet<_> = sequences.iter().collect();
        assert_eq!(distinct.len(), 3, "{sequences:?}");
        assert!(sequences.is_sorted(), "{sequences:?}");
    }
}

/// A TCP proxy that forwards nothing of its first connection until it is opened.
struct HoldingProxy {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    is_open: Arc<AtomicBool>,
}

impl HoldingProxy {
    fn start(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, is_open) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let proxy = Self { address, connections: Arc::clone(&connections), is_open };
        let is_open = Arc::clone(&proxy.is_open);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let is_held = connections.fetch_add(1, Ordering::SeqCst) == 0;
                let is_open = Arc::clone(&is_open);
                thread::spawn(move || {
                    if is_held {
                        wait_until("the proxy is opened", || {
                            is_open.load(Ordering::SeqCst).then_some(())
                        });
                    }
                    let target = TcpStream::connect(("127.0.0.1", port)).unwrap();
                    let (from, to) = (client.try_clone().unwrap(), target.try_clone().unwrap());
                    thread::spawn(move || forward(from, to));
                    forward(target, client);
                });
            }
        });
        proxy
    }
}

/// An error is an end that has closed.
fn forward(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

/// One server claims a delivery and is stopped (SIGSTOP) while it connects. Another one takes over. When the first one
/// continues, its lease has ended, by its wall clock, and it sends nothing.
#[test]
fn webhook_replica_that_was_stopped_does_not_send_after_its_lease() {
    let pair = CertificatePair::new();
    let trusted = Folder::new();
    pair.write(trusted.path());
    let trust = format!("SSL_CERT_FILE={}", trusted.path().join("cert.pem").display());
    let receiver = Receiver::with_tls("127.0.0.1", &pair);
    let proxy = HoldingProxy::start(receiver.port());

    let clock = FakeClock::new(0);
    let mut prefix = clock.command_prefix();
    prefix.push(trust.clone());
    let stopped =
        HookServer::start_with(Setup::new(Backend::Postgres).run_under(&prefix), Folder::new());
    let url = format!("https://localhost:{}/", proxy.address.port());
    let hook = stopped.create(&json!({"url": url, "events": ["customer.*"]}));
    stopped.create_customer("Ann");
    wait_until("it connects", || (proxy.connections.load(Ordering::SeqCst) == 1).then_some(()));
    stopped.server.pause();
    clock.set(3600);
    let setup = Setup::replica(stopped.server.database()).run_under(&["/usr/bin/env", &trust]);
    let other = start_replica(&stopped, setup);
    end_leases(&stopped.server);
    other.wait_for_deliveries(&hook, 1, "delivered");
    assert_eq!(receiver.requests().len(), 1);

    proxy.is_open.store(true, Ordering::SeqCst);
    stopped.server.resume();
    wait_until("it gives the delivery up", || {
        (stopped.attempts("released") + stopped.attempts("retried") == 1).then_some(())
    });
    assert_eq!(receiver.requests().len(), 1);
    let deliveries = other.deliveries(&hook);
    assert_eq!(
        (&deliveries[0]["status"], &deliveries[0]["attempts"]),
        (&json!("delivered"), &json!(1))
    );
}
