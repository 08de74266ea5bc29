//! Limits of counts: exactly that many, and one more.

use std::thread;

use serde_json::json;

use super::{setup, start_limited};
use crate::harness::{Backend, Client, ForeignLock, Person, run_sql, wait_until};

on_every_backend! {
    fn page_items_limit_and_default(backend: Backend) {
        let server = start_limited(backend, "page_items_default = 2\npage_items_max = 3");
        assert_eq!(server.post("/customers", json!({"customers": vec![json!({}); 5]}).to_string()).status, 201);
        let count = |path: &str| server.get(path).json()["customers"].as_array().unwrap().len();
        assert_eq!(count("/customers"), 2);
        assert_eq!(count("/customers?limit=3"), 3);
        let answer = server.get("/customers?limit=4");
        assert_eq!((answer.status, answer.problem().as_str()), (400, "bad-query"));
        assert_eq!(answer.json()["detail"], "limit: expected a whole number from 1 to 3, got \"4\"");
    }

    fn bulk_items_limit(backend: Backend) {
        let server = start_limited(backend, "bulk_items_max = 3");
        let create = |count: usize| server.post("/customers", json!({"customers": vec![json!({}); count]}).to_string());
        assert_eq!(create(3).status, 201);
        let answer = create(4);
        assert_eq!((answer.status, answer.problem().as_str()), (413, "too-large"));
        assert_eq!(server.get("/customers").json()["customers"].as_array().unwrap().len(), 3);
    }

    /// References to one item count once, and those that an update leaves as they are do not count.
    fn references_limit(backend: Backend) {
        let server = start_limited(backend, "references_max = 3");
        assert_eq!(server.post("/customers", json!({"customers": vec![json!({}); 4]}).to_string()).status, 201);
        let create = |ids: &[u64]| {
            let items: Vec<_> = ids.iter().map(|id| json!({"about": id})).collect();
            server.post("/customers", json!({"customers": items}).to_string())
        };
        assert_eq!(create(&[1, 2, 3, 3, 2, 1]).status, 201);
        let answer = create(&[1, 2, 3, 4]);
        assert_eq!((answer.status, answer.problem().as_str()), (413, "too-large"));
        assert_eq!(answer.json()["detail"], "expected references to at most 3 different items (references_max), got more");
        assert_eq!(server.get("/customers?limit=100").json()["customers"].as_array().unwrap().len(), 10);
    }

    /// The deleted item itself does not count.
    fn cascade_items_limit(backend: Backend) {
        let server = start_limited(backend, "cascade_items_max = 3");
        for count in [3, 4] {
            let path = server.create("/customers", r#"{"customer":{}}"#);
            let id: u64 = path.rsplit('/').next().unwrap().parse().unwrap();
            let about = vec![json!({"about": id}); count];
            assert_eq!(server.post("/customers", json!({"customers": about}).to_string()).status, 201);
            let answer = server.delete(&path);
            match count {
                3 => assert_eq!(answer.status, 204, "{answer:?}"),
                _ => assert_eq!((answer.status, answer.problem().as_str()), (409, "too-many-children")),
            }
        }
        assert_eq!(run_sql(backend, server.folder(), "SELECT count(*) FROM customers").trim(), "5");
    }

    /// By Digest, which hashes quickly: all of it has to happen within a minute.
    fn failed_logins_limit(backend: Backend) {
        let server = setup(backend, "failed_logins_max = 3").with_authentication().start();
        let ann = Person::new("ann", "the right one, and long");
        server.add_user(&ann, &[]);
        let mut wrong = Person::new("ann", "the wrong one, and long").log_in(&server, "/");
        let answers: Vec<u16> = (0..4).map(|_| wrong.request(&server, "GET /", "").status).collect();
        assert_eq!(answers, [401, 401, 401, 429]);
        let shut = server.request("GET /", &[("Authorization", &ann.basic())], "");
        assert_eq!((shut.status, shut.problem().as_str()), (429, "too-many-logins"));
    }
}

/// The server uses all of them and opens no more, and refuses a request that finds none.
#[test]
fn database_connections_limit() {
    // The server's threads share them, and each thread reserves one for reads.
    let threads = thread::available_parallelism().unwrap().get();
    let most = 3 * threads;
    let limits = format!(
        "database_connections_max = {most}\nrequest_seconds_max = 60\nstatement_seconds_max = 50"
    );
    let server = start_limited(Backend::Postgres, &limits);
    let lock = ForeignLock::hold(&server);
    let address = server.address;
    let writes: Vec<_> = (0..8 * most)
        .map(|_| {
            thread::spawn(move || {
                Client::connect(address).request("POST /customers", &[], r#"{"customer":{}}"#)
            })
        })
        .collect();
    wait_until("one is told that there is none", || {
        writes.iter().any(thread::JoinHandle::is_finished).then_some(())
    });
    let all = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    let open: usize = run_sql(Backend::Postgres, server.folder(), all).trim().parse().unwrap();
    // One more is the lock's, and one that of the sweeping thread.
    assert!(open <= most + 2, "{open} of {most}");
    drop(lock);
    let mut statuses: Vec<u16> =
        writes.into_iter().map(|write| write.join().unwrap().status).collect();
    statuses.sort_unstable();
    statuses.dedup();
    assert_eq!(statuses, [201, 503]);
}
