//! Cascading deletes: children and references that are deleted with an item, up to a limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use expect_test::expect;
use serde_json::json;

use crate::harness::{Backend, Client, Masks, Server, Setup, run_sql};

/// Items that refer to each other, and are deleted with what they refer to.
fn start_with_nodes(backend: Backend, cascade_items_max: usize) -> Server {
    let model = format!(
        "title = \"Nodes\"\n[resources.node]\nid = \"integer\"\n[resources.node.fields]\n\
         next = {{ type = \"ref\", to = \"node\", on_delete = \"cascade\" }}\n\
         [server.limits]\ncascade_items_max = {cascade_items_max}\n"
    );
    Setup::new(backend).model(&model).start()
}

/// Creates this many nodes that all refer to one.
fn create_referrers(server: &Server, to: u64, count: usize) {
    let nodes = vec![json!({ "next": to }); count];
    let answer = server.post("/nodes", json!({ "nodes": nodes }).to_string());
    assert_eq!(answer.status, 201, "{answer:?}");
}

fn count(server: &Server, table: &str) -> String {
    let query = format!("SELECT count(*) FROM {table}");
    run_sql(server.backend(), server.folder(), &query).trim().to_owned()
}

on_every_backend! {
    /// Regression: the item was counted among its own referrers, hid another one, and the response was
    /// 500.
    fn cascade_self_reference_does_not_hide_another_referrer(backend: Backend) {
        let server = start_with_nodes(backend, 1);
        server.create("/nodes", r#"{"node":{}}"#);
        assert_eq!(server.put("/nodes/1", r#"{"node":{"next":1}}"#).status, 200);
        create_referrers(&server, 1, 2);
        let answer = server.delete("/nodes/1");
        assert_eq!((answer.status, answer.problem().as_str()), (409, "too-many-children"));
        assert_eq!(answer.json()["detail"], "more than 1 items would go with this node");
        let stale = server.request("DELETE /nodes/1", &[("If-Match", "\"1\"")], "");
        assert_eq!((stale.status, stale.problem().as_str()), (412, "precondition-failed"), "checked first");
        assert_eq!(count(&server, "nodes"), "3");
        assert_eq!((server.delete("/nodes/3").status, server.delete("/nodes/1").status), (204, 204));
        assert_eq!(count(&server, "nodes"), "0");
    }

    fn cascade_deletes_two_items_that_refer_to_each_other(backend: Backend) {
        let server = start_with_nodes(backend, 10);
        server.create("/nodes", r#"{"node":{}}"#);
        server.create("/nodes", r#"{"node":{"next":1}}"#);
        assert_eq!(server.put("/nodes/1", r#"{"node":{"next":2}}"#).status, 200);
        assert_eq!(server.delete("/nodes/2").status, 204);
        assert_eq!(count(&server, "nodes"), "0");
    }

    /// Regression: the parent was deleted before the requested child, and the foreign key forbade it.
    fn cascade_from_a_child_deletes_its_parent(backend: Backend) {
        let model = r#"
            title = "Favourites"
            [resources.customer]
            id = "integer"
            [resources.customer.fields]
            favourite = { type = "ref", to = "order", on_delete = "cascade" }
            [resources.order]
            id = "integer"
            parent = "customer"
            on_delete = "cascade"
            [resources.order.fields]
            note = { type = "text" }
        "#;
        let server = Setup::new(backend).model(model).start();
        let customer = server.create("/customers", r#"{"customer":{}}"#);
        let order = server.create(&format!("{customer}/orders"), r#"{"order":{"note":"tea"}}"#);
        let other = server.create(&format!("{customer}/orders"), r#"{"order":{"note":"jam"}}"#);
        assert_eq!(server.put(&customer, r#"{"customer":{"favourite":1}}"#).status, 200);
        assert_eq!(server.delete(&order).status, 204);
        for path in [&customer, &order, &other] {
            assert_eq!(server.get(path).status, 404, "{path}");
        }
        let query = "SELECT kind, subject FROM nouns_changes WHERE kind = 'deleted' ORDER BY sequence";
        expect![[r#"
            deleted|/customers/1/orders/2
            deleted|/customers/1/orders/1
            deleted|/customers/1
        "#]].assert_eq(&Masks::default().text(&run_sql(backend, server.folder(), query)));
    }

    fn cascade_at_the_limit_deletes_and_beyond_it_is_refused(backend: Backend) {
        let server = start_with_nodes(backend, 150);
        server.create("/nodes", r#"{"node":{}}"#);
        create_referrers(&server, 1, 151);
        let changes = count(&server, "nouns_changes");
        assert_eq!(server.delete("/nodes/1").problem(), "too-many-children");
        assert_eq!((count(&server, "nodes"), count(&server, "nouns_changes")), ("152".to_owned(), changes));
        assert_eq!(server.delete("/nodes/2").status, 204);
        assert_eq!(server.delete("/nodes/1").status, 204);
        assert_eq!((count(&server, "nodes").as_str(), count(&server, "nouns_changes").as_str()), ("0", "304"));
    }

    /// A delete of more than a hundred items has an exclusive commit: no concurrent write is refused or
    /// lost.
    fn cascade_of_many_items_does_not_affect_concurrent_writes(backend: Backend) {
        let server = start_with_nodes(backend, 1_000);
        for number in 1..=4 {
            server.create("/nodes", r#"{"node":{}}"#);
            assert_eq!(server.get(&format!("/nodes/{number}")).status, 200);
        }
        for to in 1..=4 {
            create_referrers(&server, to, 300);
        }
        let (address, over) = (server.address, AtomicBool::new(false));
        let written = thread::scope(|scope| {
            let write = || {
                let mut client = Client::connect(address);
                let mut written = 0;
                while !over.load(Ordering::Relaxed) || written < 10 {
                    let answer = client.request("POST /nodes", &[], r#"{"node":{}}"#);
                    assert_eq!(answer.status, 201, "{answer:?}");
                    written += 1;
                }
                written
            };
            let writers: Vec<_> = (0..4).map(|_| scope.spawn(write)).collect();
            let remove = |number: usize| Client::connect(address).request(&format!("DELETE /nodes/{number}"), &[], "");
            let removals: Vec<_> = (1..=4).map(|number| scope.spawn(move || remove(number))).collect();
            for removal in removals {
                assert_eq!(removal.join().unwrap().status, 204);
            }
            over.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().unwrap()).sum::<usize>()
        });
        assert_eq!(count(&server, "nodes"), written.to_string());
        assert_eq!(count(&server, "nouns_changes"), (2 * (4 + 4 * 300) + written).to_string());
    }
}
