//! Webhooks while the model changes: beside a server with a newer model, and after a resource was removed.

use serde_json::json;

use super::hooks::{HookServer, MODEL, event};
use super::receiver::{Receiver, ReceiverAction};
use crate::harness::{Backend, Folder, Setup, wait_until};

/// The engine of a server with this fault fans nothing out and sends nothing.
const NO_ENGINE: &str = "webhooks:1-";

fn newer_model() -> String {
    format!("{MODEL}\n[resources.parcel.fields]\nweight = {{ type = \"integer\" }}\n")
}

/// A model without orders.
fn model_without_orders() -> String {
    let (head, _) = MODEL.split_once("[resources.order.fields]").unwrap();
    head.to_owned()
}

fn start_newer(older: &HookServer, setup: Setup) -> HookServer {
    let setup = setup.model(&newer_model()).key_file(older.server.key_file());
    HookServer { server: setup.start_in(Folder::new()), login: older.login.clone() }
}

fn types(receiver: &Receiver) -> Vec<String> {
    let requests = receiver.requests();
    let mut types: Vec<_> =
        requests.iter().map(|one| event(one)["type"].as_str().unwrap().to_owned()).collect();
    types.sort();
    types
}

/// A rolling upgrade: only the older server fans out, and meets changes and patterns of the newer model. The server with
/// that model has stopped for good.
#[test]
fn webhook_older_server_sends_events_of_a_newer_model_whose_server_has_stopped() {
    let older = HookServer::start(Backend::Postgres);
    older.create_customer("Abe");
    let newer = start_newer(&older, Setup::replica(older.server.database()).fault(NO_ENGINE));
    let [all, named, known] = [(), (), ()].map(|()| Receiver::always(ReceiverAction::status(204)));
    let all_hook = newer.create_hook(&all, &["*"]);
    let named_hook = newer.create_hook(&named, &["parcel.created", "customer.created"]);
    let known_hook = newer.create_hook(&known, &["customer.created"]);
    newer.create_customer("Ann");
    let parcel = newer.request("POST /parcels", json!({"parcel": {"weight": 3}}).to_string());
    assert_eq!(parcel.status, 201, "{parcel:?}");
    newer.create_customer("Bea");
    newer.server.stop();

    older.create_customer("Cid");
    older.wait_for_deliveries(&known_hook, 3, "delivered");
    older.wait_for_deliveries(&all_hook, 4, "delivered");
    older.wait_for_deliveries(&named_hook, 4, "delivered");
    let [customer, parcel] = ["nouns.customer.created", "nouns.parcel.created"];
    assert_eq!(types(&all), [customer, customer, customer, parcel]);
    assert_eq!(types(&named), [customer, customer, customer, parcel]);
    assert_eq!(types(&known), [customer; 3]);
    let parcels: Vec<_> =
        all.requests().iter().map(event).filter(|it| it["type"] == parcel).collect();
    assert_eq!(parcels[0]["data"]["after"]["weight"], 3);
}

/// A newer version of the program has written a model that this one cannot read.
#[test]
fn webhook_of_an_unreadable_model_waits_for_a_newer_server() {
    let older = HookServer::start(Backend::Postgres);
    let newer = start_newer(&older, Setup::replica(older.server.database()).fault(NO_ENGINE));
    let [all, known] = [(), ()].map(|()| Receiver::always(ReceiverAction::status(204)));
    older.sql("UPDATE nouns_system SET value = 'new ' || value WHERE name = 'model'");
    let all_hook = newer.create_hook(&all, &["*"]);
    let known_hook = newer.create_hook(&known, &["customer.created"]);
    newer.create_customer("Ann");
    let parcel = newer.request("POST /parcels", json!({"parcel": {"weight": 3}}).to_string());
    assert_eq!(parcel.status, 201, "{parcel:?}");
    older.wait_for_deliveries(&all_hook, 1, "delivered");
    let waits = "a webhook waits for a server of a newer version";
    wait_until("it waits", || older.server.log().contains(waits).then_some(()));
    // It looks again now and then, and logs nothing more.
    older.create_customer("Bea");
    older.wait_for_deliveries(&known_hook, 2, "delivered");
    assert_eq!(older.deliveries(&all_hook).len(), 1);
    assert_eq!(older.server.log().matches(waits).count(), 1);
    older.sql("UPDATE nouns_system SET value = substr(value, 5) WHERE name = 'model'");
    older.wait_for_deliveries(&all_hook, 3, "delivered");
}

on_every_backend! {
    /// The model in force has no orders: their changes and patterns are passed over, and do not silence others.
    fn webhook_events_of_a_removed_resource_do_not_silence_others(backend: Backend) {
        let setup = Setup::new(backend).fault(NO_ENGINE);
        let server = HookServer::start_with(setup, Folder::new());
        let receiver = Receiver::always(ReceiverAction::status(204));
        let hooks = [
            server.create_hook(&receiver, &["*"]),
            server.create_hook(&receiver, &["order.*", "customer.created"]),
        ];
        let filtered = server.create(&json!({
            "url": receiver.url(), "events": ["order.*"], "filter": "total=1",
        }));
        let order = server.request("POST /orders", json!({"order": {"total": 1}}).to_string());
        let order = order.header("Location").unwrap().to_owned();
        assert_eq!(server.request(&format!("DELETE {order}"), "").status, 204);
        server.create_customer("Ann");

        let HookServer { server: running, login } = server;
        let setup = Setup::new(backend).model(&model_without_orders()).with_authentication();
        let server = HookServer { server: setup.start_in(running.stop()), login };
        server.create_customer("Bea");
        for hook in &hooks {
            server.wait_for_deliveries(hook, 2, "delivered");
        }
        assert_eq!(types(&receiver), ["nouns.customer.created"; 4]);
        assert_eq!(server.deliveries(&filtered).len(), 0);
        let told = "some events of a webhook do not fit the model";
        let log = wait_until("it is logged", || {
            Some(server.server.log()).filter(|log| log.matches(told).count() >= 2)
        });
        assert_eq!(log.matches(told).count(), 2, "{log}");
    }
}
