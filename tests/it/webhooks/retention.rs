//! Bounds of the delivery queue in number and time: pending deliveries of a webhook, deliveries that have ended, and
//! changes that a webhook has not read yet.

use super::hooks::{Hook, HookServer};
use super::receiver::{Receiver, ReceiverAction};
use super::session::days_ago;
use crate::harness::{Backend, Folder, Setup, run_sql, wait_until};

/// The engine of a server with this fault reads nothing and sends nothing.
const NO_ENGINE: &str = "webhooks:1-";

/// Waits until the database has a position for each webhook, and the time of a first sweep. Then stops the server.
fn stop_when_settled(server: HookServer, webhooks: usize) -> (Folder, String) {
    wait_until("the positions are stored, and a sweep has run", || {
        let positions = server.sql("SELECT count(*) FROM nouns_webhook_positions");
        let marks =
            "SELECT count(*) FROM nouns_system WHERE name IN ('delivered_clock', 'dead_clock')";
        let is_settled =
            positions.trim() == webhooks.to_string() && server.sql(marks).trim() == "2";
        is_settled.then_some(())
    });
    let HookServer { server, login } = server;
    (server.stop(), login)
}

/// Inserts deliveries with the numbers -1 to -`count`, which ended this many days ago or, if pending, are due in 2100.
fn insert_deliveries(
    (backend, folder): (Backend, &Folder),
    hook: &Hook,
    (from, count): (u32, u32),
    (status, days): (&str, u32),
) {
    let id = match backend {
        Backend::Sqlite => "printf('01890a5d-ac96-774b-bcce-%012d', i)",
        Backend::Postgres => "('01890a5d-ac96-774b-bcce-' || lpad(i::text, 12, '0'))::uuid",
    };
    let webhook = hook.path.rsplit('/').next().unwrap();
    let time = days_ago(backend, days);
    let due = if status == "pending" { "'2100-01-01T00:00:00.000000Z'" } else { "NULL" };
    let last = from + count - 1;
    let numbers = format!(
        "WITH RECURSIVE n (i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {last})"
    );
    run_sql(
        backend,
        folder.path(),
        &format!(
            "{numbers} INSERT INTO nouns_deliveries (id, webhook_id, created_at, updated_at, version, sequence, type, \
             subject, status, attempts) SELECT {id}, '{webhook}', {time}, {time}, 1, -i, 'nouns.customer.created', \
             '/customers/' || i, '{status}', 1 FROM n"
        ),
    );
    run_sql(
        backend,
        folder.path(),
        &format!(
            "{numbers} INSERT INTO nouns_delivery_queue (delivery_id, webhook_id, subject, sequence, body, tries, waiting, \
             due) SELECT {id}, '{webhook}', '/customers/' || i, -i, '{{}}', 1, false, {due} FROM n"
        ),
    );
}

on_every_backend! {
    /// A webhook with 10,000 pending deliveries gets no more, and those that it has missed when it has fewer.
    fn webhook_with_a_full_queue_gets_no_deliveries_until_it_has_room(backend: Backend) {
        let server = HookServer::start(backend);
        let [receiver, other] = [(), ()].map(|()| Receiver::always(ReceiverAction::status(204)));
        let hook = server.create_hook(&receiver, &["customer.created"]);
        let other_hook = server.create_hook(&other, &["customer.created"]);
        let (folder, login) = stop_when_settled(server, 2);
        insert_deliveries((backend, &folder), &hook, (1, 10_000), ("pending", 1));
        let server = HookServer::start_again(backend, folder, login);
        for count in 1..=2 {
            server.create_customer("Ann");
            server.wait_for_deliveries(&other_hook, count, "delivered");
        }
        let webhook = hook.path.rsplit('/').next().unwrap();
        let new = format!("SELECT count(*) FROM nouns_deliveries WHERE sequence > 0 AND webhook_id = '{webhook}'");
        assert_eq!(server.sql(&new).trim(), "0");
        server.sql("UPDATE nouns_delivery_queue SET due = NULL WHERE sequence = -1");
        wait_until("it gets both", || (receiver.requests().len() == 2).then_some(()));
        assert_eq!(server.sql(&new).trim(), "2");
    }

    /// Delivered ones are kept for a day, dead ones for 30 days, pending ones until they have ended.
    fn webhook_deliveries_are_deleted_some_time_after_their_end(backend: Backend) {
        let server = HookServer::start(backend);
        let receiver = Receiver::always(ReceiverAction::status(204));
        let hook = server.create_hook(&receiver, &["order.*"]);
        let (folder, login) = stop_when_settled(server, 1);
        let rows = [("delivered", 2), ("delivered", 0), ("dead", 31), ("dead", 29), ("pending", 40)];
        for (number, row) in (1..).zip(rows) {
            insert_deliveries((backend, &folder), &hook, (number, 1), row);
        }
        let server = HookServer::start_again(backend, folder, login);
        wait_until("two are deleted", || {
            (server.sql("SELECT count(*) FROM nouns_deliveries").trim() == "3").then_some(())
        });
        let kept = server.sql("SELECT sequence FROM nouns_deliveries ORDER BY sequence");
        assert_eq!(kept.split_whitespace().collect::<Vec<_>>(), ["-5", "-4", "-2"]);
        assert_eq!(server.sql("SELECT count(*) FROM nouns_delivery_queue").trim(), "3");
    }

    /// Changes that a webhook has not read are kept three days longer than others. When they are removed then, the
    /// server counts a gap, and the webhook gets the changes after it.
    fn webhook_unread_changes_are_kept_for_three_more_days(backend: Backend) {
        let server = HookServer::start(backend);
        let receiver = Receiver::always(ReceiverAction::status(204));
        let hook = server.create_hook(&receiver, &["customer.*"]);
        let (mut folder, login) = stop_when_settled(server, 1);
        let idle = |folder: Folder| {
            let server = HookServer::start_with(Setup::new(backend).fault(NO_ENGINE), folder);
            HookServer { login: login.clone(), ..server }
        };
        // Nothing reads these changes.
        let server = idle(folder);
        for name in ["Ann", "Bea"] {
            server.create_customer(name);
        }
        folder = server.server.stop();
        let count = "SELECT count(*) FROM nouns_changes";
        // First those that were read are removed, up to the creation of the webhook; then all but the last entry, which
        // is always kept.
        for (number, days, kept) in [(1, 32, "2"), (2, 34, "1")] {
            let time = days_ago(backend, days);
            run_sql(backend, folder.path(), &format!("UPDATE nouns_changes SET time = {time}"));
            // It is deleted after the changes, in the same transaction.
            insert_deliveries((backend, &folder), &hook, (number, 1), ("delivered", 2));
            let server = idle(folder);
            wait_until("a sweep has run", || {
                (server.sql("SELECT count(*) FROM nouns_deliveries").trim() == "0").then_some(())
            });
            assert_eq!(server.sql(count).trim(), kept, "{days} days");
            folder = server.server.stop();
        }
        let server = HookServer::start_again(backend, folder, login.clone());
        // The last entry is sent first: once it is not the last one any more, the sweep of the start may remove it.
        server.wait_for_deliveries(&hook, 1, "delivered");
        server.create_customer("Cid");
        // The removed one has no delivery.
        server.wait_for_deliveries(&hook, 2, "delivered");
        let metrics = server.request("GET /-/metrics", "");
        assert!(metrics.text().lines().any(|line| line == "nouns_webhook_gaps_total 1"), "{metrics:?}");
        let message = "changes were removed from the change log before a webhook got them";
        let log = wait_until("it is logged", || Some(server.server.log()).filter(|log| log.contains(message)));
        assert_eq!(log.matches(message).count(), 1);
    }
}
