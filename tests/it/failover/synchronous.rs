//! A primary that is killed under load, and a synchronous standby that takes over.

use std::collections::HashSet;
use std::sync::Mutex;
use std::thread;

use serde_json::json;

use super::address_of;
use super::workload::{CLIENTS, EndOnDrop, MODEL, Workload, follow};
use crate::harness::{Folder, OwnPostgres, Server, Setup, wait_until};
use crate::webhooks::receiver::{Receiver, ReceiverAction};

const DATABASE: &str = "shop";
/// The requests of each client before the failover and after it.
const REQUESTS_EACH: usize = 40;

/// Two servers with one key, on the database at an address.
fn start_replicas(address: &str) -> [Server; 2] {
    let setup = Setup::replica(address.to_owned()).model(MODEL).with_authentication();
    let first = setup.clone().start();
    let second = setup.key_file(first.key_file()).start_in(Folder::new());
    [first, second]
}

fn create_webhook(server: &Server, authorization: &str, receiver: &Receiver) {
    let hook = json!({"webhook": {"url": receiver.url(), "events": ["beat.*"]}}).to_string();
    let answer = server.request("POST /-/webhooks", &[("Authorization", authorization)], hook);
    assert_eq!(answer.status, 201, "{answer:?}");
}

#[test]
fn primary_killed_under_load_loses_and_repeats_no_write() {
    let primary = OwnPostgres::start();
    primary.sql("postgres", &format!("CREATE DATABASE {DATABASE}"));
    let standby = primary.start_synchronous_standby();
    let servers = start_replicas(&address_of(&[&primary, &standby], DATABASE));
    let authorization = servers[0].admin().basic();
    let receiver = Receiver::always(ReceiverAction::status(204));
    create_webhook(&servers[0], &authorization, &receiver);

    let addresses = servers.iter().map(|server| server.address).collect();
    let load = Workload::new(addresses, authorization);
    let last = Mutex::new(None);
    let (events, reconnects, promoted_at) = thread::scope(|scope| {
        let load = &load;
        let _end = EndOnDrop(load);
        let reader = scope.spawn(|| follow(load, &last));
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || load.run_client(number))).collect();
        load.wait_for_progress("before the failover", REQUESTS_EACH);
        primary.kill();
        standby.promote();
        load.set_available();
        let promoted_at = standby.sql("postgres", "SELECT clock_timestamp()").trim().to_owned();
        load.wait_for_progress("after the failover", REQUESTS_EACH);
        load.end();
        clients.into_iter().for_each(|client| client.join().unwrap());
        let newest = "SELECT max(sequence) FROM nouns_changes WHERE resource IN ('note', 'beat')";
        *last.lock().unwrap() = Some(standby.sql(DATABASE, newest).trim().parse().unwrap());
        let (events, reconnects) = reader.join().unwrap();
        (events, reconnects, promoted_at)
    });
    let totals = load.into_totals();
    println!("failover: {totals}");
    assert!(totals.retries > 0, "nothing was disturbed");
    let log = totals.assert_stored_once(&standby, DATABASE);
    let sequences: Vec<_> = log.iter().map(|(sequence, ..)| *sequence).collect();
    assert_eq!(events, sequences, "the stream has every change once and in order");
    assert_eq!(reconnects, 0, "the stream was not cut");

    // What the servers do by themselves goes on too.
    let beats = log.iter().filter(|(_, _, subject)| subject.starts_with("/beats/")).count();
    wait_until("the webhook has every event", || {
        let requests = receiver.requests();
        let ids: HashSet<_> =
            requests.iter().map(|request| request.header("webhook-id").unwrap()).collect();
        (ids.len() >= beats).then_some(())
    });
    wait_until("the servers listen to the new primary", || {
        let listening = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' OR query LIKE '%pg_notify(%'";
        (standby.sql(DATABASE, listening).trim() != "0").then_some(())
    });
    let renewed = format!("SELECT count(*) FROM nouns_servers WHERE seen > '{promoted_at}'");
    wait_until("both servers have renewed their registration", || {
        (standby.sql(DATABASE, &renewed).trim() == "2").then_some(())
    });
}
