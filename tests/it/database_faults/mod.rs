//! Faults of PostgreSQL: outages, slowness, locks, a full disk, and connections lost at any message.
//!
//! A proxy (`proxy`) sits between the server and PostgreSQL; `session` reads what is stored, bypassing
//! it.
//! A test checks whether a change is stored only after every connection of the server is gone from
//! PostgreSQL, since a statement may complete after the server has given up on it.

mod outages;
mod full;
mod insert_batch;
mod idempotency;
mod deadlines;
mod doctor;
mod locks;
mod message_faults;
pub(crate) mod proxy;
mod session;
mod start;
mod tables;
mod unchanged_tables;

use std::net::SocketAddr;

use crate::harness::{Answer, Client, Folder, Postgres, Server, Setup, wait_until};
use proxy::{ConnectionNumber, Proxy};
use session::PostgresSession;

/// Two kinds of ids, children, a reference, and a unique value.
const MODEL: &str = r#"
title = "Faults"
[server]
changes_keep = "forever"
http2_prior_knowledge = true
[server.limits]
LIMITS
[resources.person]
plural = "people"
[resources.person.fields]
name = { type = "text", required = true }
badge = { type = "text", unique = true }
[resources.team]
id = "integer"
[resources.team.fields]
name = { type = "text", required = true }
[resources.task]
parent = "team"
on_delete = "cascade"
[resources.task.fields]
title = { type = "text", required = true }
owner = { type = "ref", to = "person" }
"#;

fn model(limits: &str) -> String {
    MODEL.replace("LIMITS", limits)
}

/// How often a request may exceed short limits because the machine is slow, before the test fails.
const RETRIES_MAX: usize = 20;

/// A server with a proxy between it and its database.
#[derive(Debug)]
struct ProxiedServer {
    client: Client,
    session: PostgresSession,
    server: Server,
    proxy: Proxy,
}

/// Rows of each table, the sum of their versions, entries of the change log.
type StoredCounts = Vec<i64>;

impl ProxiedServer {
    fn start(limits: &str) -> Self {
        Self::start_with(limits, "sslmode=disable")
    }

    /// With parameters in the database URL.
    fn start_with(limits: &str, parameters: &str) -> Self {
        Self::start_model(&model(limits), parameters)
    }

    fn start_model(model: &str, parameters: &str) -> Self {
        let database = Postgres::shared();
        let folder = Folder::new();
        folder.with_database(Postgres::create_database);
        let name = Postgres::database_name(folder.path());
        let proxy = Proxy::start(postgres_address(&database));
        let address = proxied_url(&proxy, &name, parameters);
        let server = Setup::replica(address).model(model).start_in(folder);
        proxy.wait_until_quiet();
        let session = PostgresSession::open(postgres_address(&database), &name);
        Self { client: server.client(), session, server, proxy }
    }

    fn request(&mut self, (line, body): &(String, String)) -> Answer {
        self.client.request(line, &[], body)
    }

    /// Retries a request while it gets 503: with short limits it may time out on a busy machine.
    fn retry_unavailable(&mut self, request: &(String, String)) -> Answer {
        let mut answer = self.request(request);
        for _ in 0..RETRIES_MAX {
            if answer.status == 503 {
                // No statement of the last attempt may complete later.
                self.close_database_connections();
                answer = self.request(request);
            }
        }
        answer
    }

    /// Repeats a request until its messages are the only ones, and returns their connection: the next request uses it
    /// too, and background work of the server has another one.
    fn find_connection(&mut self, request: &(String, String)) -> ConnectionNumber {
        wait_until("the request has the proxy for itself", || {
            self.proxy.record_messages();
            let status = self.request(request).status;
            let connection = self.proxy.sole_connection();
            connection.filter(|_| status != 503)
        })
    }

    fn create(&mut self, path: &str, body: String) -> String {
        let answer = self.retry_unavailable(&(format!("POST {path}"), body));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.header("Location").unwrap().to_owned()
    }

    /// Closes every connection to PostgreSQL, and waits until its backends have ended.
    fn close_database_connections(&mut self) {
        self.proxy.clear_fault();
        let session = &mut self.session;
        // Threads that read the change log connect again at once.
        let closed_at = session.value("SELECT clock_timestamp()");
        self.proxy.close_all();
        wait_until("the closed connections have ended", || {
            let others = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND pid <> pg_backend_pid() AND backend_type = 'client backend' \
                 AND application_name <> 'beside' \
                 AND backend_start < '{closed_at}'"
            );
            (session.value(&others) == "0").then_some(())
        });
    }

    fn counts(&mut self) -> StoredCounts {
        let rows = self.session.rows(
            "SELECT (SELECT count(*) FROM people), (SELECT coalesce(sum(version), 0) FROM people), \
             (SELECT count(*) FROM teams), (SELECT count(*) FROM tasks), \
             (SELECT count(*) FROM nouns_changes)",
        );
        rows[0].iter().map(|text| text.parse().unwrap()).collect()
    }

    /// Asserts that every version of every item and every removal has its entry in the change log.
    fn check_log(&mut self) {
        for (table, resource) in [("people", "person"), ("teams", "team"), ("tasks", "task")] {
            let wrong = self.session.value(&format!(
                "SELECT count(*) FROM (SELECT id, count(*) FILTER (WHERE kind <> 'deleted') AS versions, \
                 count(*) FILTER (WHERE kind = 'deleted') AS ends FROM nouns_changes \
                 WHERE resource = '{resource}' GROUP BY id) AS entries \
                 FULL JOIN {table} ON {table}.id::text = entries.id \
                 WHERE CASE WHEN {table}.id IS NULL THEN ends IS DISTINCT FROM 1 \
                 ELSE versions IS DISTINCT FROM version OR ends <> 0 END"
            ));
            assert_eq!(wrong, "0", "{table} and the change log do not fit together");
        }
    }
}

/// The address of a PostgreSQL server.
pub(crate) fn postgres_address(database: &Postgres) -> SocketAddr {
    let address = database.database_url("");
    address.rsplit_once('@').unwrap().1.trim_end_matches('/').parse().unwrap()
}

pub(crate) fn proxied_url(proxy: &Proxy, name: &str, parameters: &str) -> String {
    format!("postgres://nouns@{}/{name}?{parameters}", proxy.address)
}
