//! Deliveries: from a change to a signed request, to receivers that accept, refuse, stall, die and return.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::hooks::{HookServer, event, sequences_by_subject};
use super::receiver::{ReceivedRequest, Receiver, ReceiverAction};
use super::verify_signature;
use crate::harness::{Backend, Folder, Setup, run_sql, wait_until};

fn accept() -> ReceiverAction {
    ReceiverAction::status(204)
}

on_every_backend! {
    fn webhook_sends_each_change_once_signed_and_in_order(backend: Backend) {
        let server = HookServer::start(backend);
        let receiver = Receiver::always(accept());
        let early = server.create_customer("early");
        let hook = server.create_hook(&receiver, &["customer.*"]);
        let [ann, bea] = ["Ann", "Bea"].map(|name| server.create_customer(name));
        server.rename(&ann, 3);
        server.rename(&early, 1);
        server.request("POST /orders", json!({"order": {"total": 1}}).to_string());
        assert_eq!(server.request(&format!("DELETE {bea}"), "").status, 204);

        let deliveries = server.wait_for_deliveries(&hook, 7, "delivered");
        let requests = receiver.requests();
        assert_eq!(requests.len(), 7);
        for request in &requests {
            verify_signature(request, &hook.secret);
            assert_eq!(request.header("content-type"), Some("application/cloudevents+json; charset=utf-8"));
        }
        let kinds = |subject: &str| -> Vec<String> {
            let events = requests.iter().map(event).filter(|event| event["subject"] == subject);
            events.map(|event| event["type"].as_str().unwrap().to_owned()).collect()
        };
        let [created, updated, deleted] =
            ["created", "updated", "deleted"].map(|kind| format!("nouns.customer.{kind}"));
        assert_eq!(kinds(&ann), [&*created, &*updated, &*updated, &*updated]);
        assert_eq!(kinds(&bea), [&*created, &*deleted]);
        assert_eq!(kinds(&early), [&*updated]);
        for (_, sequences) in sequences_by_subject(&requests) {
            assert!(sequences.is_sorted(), "{sequences:?}");
        }
        // The id of a request is that of its delivery, and an event says nothing about its author.
        let ids: HashSet<_> = requests.iter().map(|one| one.header("webhook-id").unwrap()).collect();
        let known: HashSet<_> = deliveries.iter().map(|one| one["id"].as_str().unwrap()).collect();
        assert_eq!(ids, known);
        assert!(requests.iter().all(|one| !one.body.contains("admin")));
        for delivery in &deliveries {
            assert_eq!((&delivery["attempts"], &delivery["response_status"]), (&json!(1), &json!(204)));
        }
    }

    fn webhook_filter_sends_what_matches_and_what_has_left(backend: Backend) {
        let server = HookServer::start(backend);
        let receiver = Receiver::always(accept());
        let hook = server.create(&json!({
            "url": receiver.url(), "events": ["customer.*"], "filter": "status=paid",
        }));
        let ann = server.create_customer("Ann");
        for status in ["paid", "open", "open2"] {
            server.patch(&ann, &json!({"customer": {"status": status}}));
        }
        server.wait_for_deliveries(&hook, 2, "delivered");
        let kinds: Vec<_> = receiver.requests().iter().map(|one| event(one)["type"].clone()).collect();
        assert_eq!(kinds, ["nouns.customer.updated", "nouns.customer.left"]);
    }

    /// The receiver refuses each event some times, and redirects in between: nothing is lost, and the events of an
    /// item stay in order.
    fn webhook_failed_deliveries_are_tried_again_in_order(backend: Backend) {
        let server = HookServer::start(backend);
        let elsewhere = Receiver::always(accept());
        let redirect = format!(
            "HTTP/1.1 307 X\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
            elsewhere.url()
        );
        let receiver = Receiver::start(move |number, _| match number % 4 {
            0 => ReceiverAction::status(500),
            1 => ReceiverAction::Send(redirect.clone().into()),
            2 => ReceiverAction::Reset,
            _ => accept(),
        });
        let hook = server.create_hook(&receiver, &["customer.*"]);
        let [ann, bea] = ["Ann", "Bea"].map(|name| server.create_customer(name));
        server.rename(&ann, 2);
        server.rename(&bea, 2);
        wait_until("all events are delivered", || {
            server.make_due();
            let all = server.deliveries(&hook);
            (all.len() == 6 && all.iter().all(|one| one["status"] == "delivered")).then_some(())
        });
        let requests = receiver.requests();
        let mut accepted = Vec::new();
        for (number, request) in requests.iter().enumerate() {
            verify_signature(request, &hook.secret);
            if number % 4 == 3 {
                accepted.push(request.clone());
            }
        }
        let by_subject = sequences_by_subject(&accepted);
        for customer in [&ann, &bea] {
            let sequences = by_subject.get(customer).unwrap();
            assert_eq!(sequences.len(), 3, "{sequences:?}");
            assert!(sequences.is_sorted(), "{sequences:?}");
        }
        // No event of an item is sent before the one before it was accepted.
        for (_, sequences) in sequences_by_subject(&requests) {
            assert!(sequences.is_sorted(), "{sequences:?}");
        }
        assert_eq!(elsewhere.connections(), 0);
        let attempts: i64 = server.deliveries(&hook).iter().map(|one| one["attempts"].as_i64().unwrap()).sum();
        assert_eq!(attempts, i64::try_from(requests.len()).unwrap());
    }

    /// One receiver never answers; the events of another one do not wait for it.
    fn webhook_stalled_receiver_delays_no_other(backend: Backend) {
        let server = HookServer::start(backend);
        let stalled = Receiver::always(ReceiverAction::SendAndStall(Vec::new()));
        let prompt = Receiver::always(accept());
        let slow_hook = server.create_hook(&stalled, &["*"]);
        let hook = server.create_hook(&prompt, &["*"]);
        let customers: Vec<_> = (0..12).map(|number| server.create_customer(&number.to_string())).collect();
        wait_until("the stalled receiver has a request", || (stalled.connections() > 0).then_some(()));
        server.wait_for_deliveries(&hook, customers.len(), "delivered");
        // An attempt that has timed out makes room for another one. The connections are counted first, so that each one
        // beyond the four has an attempt that has ended.
        let connections = stalled.connections();
        let all = server.deliveries(&slow_hook);
        let ended: u64 = all.iter().map(|one| one["attempts"].as_u64().unwrap()).sum();
        assert!(connections <= 4 + usize::try_from(ended).unwrap(), "{connections} connections, {ended} ended");
        let failed = wait_until("an attempt has timed out", || {
            let all = server.deliveries(&slow_hook);
            all.into_iter().find(|one| one["attempts"] != 0)
        });
        assert_eq!(failed["status"], "pending");
        assert_eq!(failed["error"], "there was no whole answer in time");
        assert_eq!(failed["response_status"], json!(null));
    }

    /// 410 disables the webhook, which the change log shows; what was pending is sent when it is enabled again, and
    /// what happened meanwhile is not.
    fn webhook_gone_receiver_disables_it_until_it_is_enabled(backend: Backend) {
        let server = HookServer::start(backend);
        let is_back = Arc::new(AtomicBool::new(false));
        let receiver = Receiver::start({
            let is_back = Arc::clone(&is_back);
            move |_, _| if is_back.load(Ordering::Relaxed) { accept() } else { ReceiverAction::status(410) }
        });
        let hook = server.create_hook(&receiver, &["customer.*"]);
        let ann = server.create_customer("Ann");
        let disabled = wait_until("the webhook is disabled", || {
            let webhook = server.get(&hook.path)["webhook"].clone();
            (webhook["enabled"] == false).then_some(webhook)
        });
        assert_eq!(disabled["disabled_reason"], "the receiver answered 410 Gone");
        let log = server.get(&format!("/-/changes?subject={}&kind=updated", hook.path));
        assert_eq!(log["changes"][0]["actor"], "webhooks");
        assert!(!log.to_string().contains("whsec_"), "{log}");

        server.create_customer("meanwhile");
        is_back.store(true, Ordering::Relaxed);
        server.patch(&hook.path, &json!({"webhook": {"enabled": true}}));
        let bea = server.create_customer("Bea");
        wait_until("both events are delivered", || {
            server.make_due();
            let all = server.deliveries(&hook);
            (all.len() == 2 && all.iter().all(|one| one["status"] == "delivered")).then_some(())
        });
        let subjects: HashSet<_> = receiver.requests().iter().map(|one| event(one)["subject"].as_str().unwrap().to_owned()).collect();
        assert_eq!(subjects, HashSet::from([ann, bea]));
    }

    /// After the last attempt a delivery is dead, and the next one of the item is sent. It can be sent again.
    fn webhook_dead_letter_is_kept_and_sent_again(backend: Backend) {
        let server = HookServer::start(backend);
        let is_back = Arc::new(AtomicBool::new(false));
        let receiver = Receiver::start({
            let is_back = Arc::clone(&is_back);
            move |_, _| if is_back.load(Ordering::Relaxed) { accept() } else { ReceiverAction::status(500) }
        });
        let hook = server.create_hook(&receiver, &["customer.*"]);
        let ann = server.create_customer("Ann");
        wait_until("the first attempt has failed", || {
            let all = server.deliveries(&hook);
            (all.len() == 1 && all[0]["attempts"] != 0).then_some(())
        });
        server.rename(&ann, 1);
        server.sql("UPDATE nouns_delivery_queue SET tries = 13 WHERE due IS NOT NULL");
        server.make_due();
        let dead = wait_until("the first delivery is dead", || {
            let all = server.deliveries(&hook);
            all.into_iter().find(|one| one["status"] == "dead")
        });
        assert_eq!(dead["error"], "the receiver did not accept the event");
        assert_eq!((&dead["response_status"], &dead["next_attempt"]), (&json!(500), &json!(null)));
        assert_eq!(dead["type"], "nouns.customer.created");
        is_back.store(true, Ordering::Relaxed);
        wait_until("the second one is delivered", || {
            server.make_due();
            let all = server.deliveries(&hook);
            all.into_iter().find(|one| one["status"] == "delivered")
        });

        let path = format!("{}/deliveries/{}", hook.path, dead["id"].as_str().unwrap());
        server.patch(&path, &json!({"delivery": {"status": "pending"}}));
        server.wait_for_deliveries(&hook, 2, "delivered");
        let requests = receiver.requests();
        let last = requests.last().unwrap();
        assert_eq!(last.header("webhook-id"), dead["id"].as_str());
        verify_signature(last, &hook.secret);
    }

    /// The deletion of a delivery makes the next one of its item due, in the same transaction.
    fn webhook_deleted_delivery_does_not_block_the_next_one(backend: Backend) {
        let server = HookServer::start(backend);
        let receiver = Receiver::start(|_, request| match event(request)["type"] == "nouns.customer.created" {
            true => ReceiverAction::status(500),
            false => accept(),
        });
        let hook = server.create_hook(&receiver, &["customer.*"]);
        let ann = server.create_customer("Ann");
        server.rename(&ann, 2);
        let first = wait_until("the first attempt has failed, and the others wait", || {
            let all = server.deliveries(&hook);
            let first = all.iter().find(|one| one["attempts"] != 0)?.clone();
            (all.len() == 3).then_some(first)
        });
        let waiting = || server.sql("SELECT count(*) FROM nouns_delivery_queue WHERE waiting").trim().to_owned();
        assert_eq!(waiting(), "2");
        let path = format!("{}/deliveries/{}", hook.path, first["id"].as_str().unwrap());
        assert_eq!(server.request(&format!("DELETE {path}"), "").status, 204);
        assert_ne!(waiting(), "2");
        server.wait_for_deliveries(&hook, 2, "delivered");
        let requests = receiver.requests();
        let is_update = |one: &&ReceivedRequest| event(one)["type"] == "nouns.customer.updated";
        let updates: Vec<_> = requests.iter().filter(is_update).cloned().collect();
        let by_subject = sequences_by_subject(&updates);
        assert!(by_subject.get(&ann).unwrap().is_sorted(), "{by_subject:?}");
    }

    /// A panic is a failed attempt.
    fn webhook_attempt_that_panics_is_tried_again(backend: Backend) {
        let setup = Setup::new(backend).fault("attempt:1");
        let server = HookServer::start_with(setup, Folder::new());
        let receiver = Receiver::always(accept());
        let hook = server.create_hook(&receiver, &["customer.*"]);
        server.create_customer("Ann");
        let failed = wait_until("the first attempt has failed", || {
            server.deliveries(&hook).into_iter().find(|one| one["attempts"] == 1)
        });
        assert_eq!(failed["status"], "pending");
        assert!(!failed["error"].as_str().unwrap().contains("planted"), "{failed}");
        wait_until("it is delivered", || {
            server.make_due();
            server.deliveries(&hook).into_iter().find(|one| one["status"] == "delivered")
        });
        receiver.only_request();
    }

    /// Attempts in flight do not keep the server from ending, and are repeated by the next one.
    fn webhook_attempt_in_flight_at_a_shutdown_is_sent_again(backend: Backend) {
        let server = HookServer::start(backend);
        let receiver = Receiver::start(|number, _| match number {
            0 => ReceiverAction::SendAndStall(Vec::new()),
            _ => accept(),
        });
        let hook = server.create_hook(&receiver, &["customer.*"]);
        server.create_customer("Ann");
        wait_until("a request is in flight", || (!receiver.requests().is_empty()).then_some(()));
        let HookServer { server: running, login } = server;
        let folder = running.stop();
        let server = HookServer::start_again(backend, folder, login);
        // On PostgreSQL the lease has to end.
        wait_until("it is delivered", || {
            server.sql("UPDATE nouns_delivery_queue SET due = '2020-01-01T00:00:00.000000Z' WHERE due IS NOT NULL");
            server.deliveries(&hook).into_iter().find(|one| one["status"] == "delivered")
        });
    }

    fn webhook_rotated_secret_signs_together_with_the_former_one(backend: Backend) {
        let server = HookServer::start(backend);
        let receiver = Receiver::always(accept());
        let hook = server.create_hook(&receiver, &["customer.*"]);
        let answer = server.patch(&hook.path, &json!({"webhook": {"secret": null}}));
        let new = answer.json()["webhook"]["secret"].as_str().unwrap().to_owned();
        server.create_customer("Ann");
        server.wait_for_deliveries(&hook, 1, "delivered");
        let request = receiver.only_request();
        assert_ne!(new, hook.secret);
        verify_signature(&request, &new);
        verify_signature(&request, &hook.secret);
        // After the overlap the former one is not used any more.
        server.sql("UPDATE nouns_webhooks SET version = version + 1, previous_secret_expires = '2020-01-01T00:00:00.000000Z'");
        wait_until("one secret signs", || {
            server.create_customer("Bea");
            let requests = receiver.requests();
            let last = requests.last().unwrap();
            (last.header("webhook-signature").unwrap().split(' ').count() == 1).then(|| verify_signature(last, &new))
        });
    }

    /// Killed in the middle of everything, again and again: nothing is lost, and each item stays in order.
    fn webhook_deliveries_survive_kills_of_the_server(backend: Backend) {
        let mut server = HookServer::start(backend);
        let receiver = Receiver::always(accept());
        let hook = server.create_hook(&receiver, &["customer.*"]);
        let mut customers = Vec::new();
        for round in 0..3 {
            for number in 0..5 {
                let customer = server.create_customer(&format!("{round} {number}"));
                server.rename(&customer, 2);
                customers.push(customer);
            }
            let HookServer { server: running, login } = server;
            let folder = running.kill();
            // As if its leases had ended.
            let ended = "UPDATE nouns_delivery_queue SET due = '2020-01-01T00:00:00.000000Z', claim_token = NULL \
                         WHERE claim_token IS NOT NULL";
            run_sql(backend, folder.path(), ended);
            server = HookServer::start_again(backend, folder, login);
        }
        server.wait_for_deliveries(&hook, customers.len() * 3, "delivered");
        let by_subject = sequences_by_subject(&receiver.requests());
        for customer in &customers {
            let sequences = by_subject.get(customer).unwrap();
            let distinct: HashSet<_> = sequences.iter().collect();
            assert_eq!(distinct.len(), 3, "{customer}: {sequences:?}");
            assert!(sequences.is_sorted(), "{customer}: {sequences:?}");
        }
    }
}
