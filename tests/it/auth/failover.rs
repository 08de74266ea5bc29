//! Failover to a promoted standby that lacks the last changes of its primary.

use serde_json::json;

use crate::harness::{ANN, OwnPostgres, Person, Server, Setup, wait_until};

fn status(server: &Server, person: &Person) -> u16 {
    server.request("GET /customers", &[("Authorization", &person.basic())], "").status
}

fn post(server: &Server, authorization: &str) -> u16 {
    server.request("POST /customers", &[("Authorization", authorization)], ANN).status
}

#[test]
fn failover_refuses_replays_and_sees_changes_of_users() {
    let primary = OwnPostgres::start();
    primary.sql("postgres", "CREATE DATABASE shop");
    let standby = primary.start_standby();
    let address = format!("postgres://nouns@{},{}/shop", primary.host(), standby.host());
    let server = Setup::replica(address).with_authentication().start();
    let (admin, kim) = (server.admin(), Person::new("kim", "the password of kim"));
    let path = server.add_user(&kim, &["clerk"]);
    let mut session = admin.log_in(&server, "/customers");
    let mut captured = vec![session.answer("POST /customers", ANN.as_bytes())];
    assert_eq!(post(&server, &captured[0]), 201);
    primary.stop_replication(&standby);

    // Changes that the standby will never have, but that the server has seen.
    captured.push(session.answer("POST /customers", ANN.as_bytes()));
    assert_eq!(post(&server, &captured[1]), 201);
    let body = json!({"user": {"name": "kim", "roles": ["clerk", "shopper"]}}).to_string();
    let headers = [("Authorization", &*admin.basic())];
    assert_eq!(server.request(&format!("PUT {path}"), &headers, body).status, 200);
    assert_eq!(status(&server, &kim), 200);
    primary.pg_ctl(&["-m", "immediate", "stop"]);
    standby.promote();

    // One change there, as there was one that was lost.
    standby.sql("shop", "UPDATE nouns_users SET disabled = true WHERE name = 'kim'");
    wait_until("kim is shut out", || (status(&server, &kim) == 401).then_some(()));
    for authorization in &captured {
        assert_eq!(post(&server, authorization), 401);
    }
    let mut session = admin.log_in(&server, "/customers");
    assert_eq!(session.request(&server, "GET /customers", "").status, 200);
    assert_eq!(standby.sql("shop", "SELECT count(*) FROM customers").trim(), "1");
}
