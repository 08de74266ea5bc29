//! Authentication and reachability, and the errors about them.

use std::net::TcpListener;

use expect_test::{Expect, expect};
use tokio::net::TcpSocket;

use super::*;
use crate::store::postgres::connect::tests::cluster::TestCluster;

const ENCRYPTED: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

#[test]
fn connect_by_user_and_host() {
    let cluster = TestCluster::start();
    cluster.self_sign("ca", "-newkey ec -pkeyopt ec_paramgen_curve:P-256", "");
    cluster.serve(Some("ca"));
    cluster.sql("CREATE DATABASE latin ENCODING LATIN1 LOCALE 'C' TEMPLATE template0");
    cluster.sql("REVOKE CONNECT ON DATABASE template1 FROM public");
    cluster.sql("ALTER ROLE reader SET default_transaction_read_only = on");
    cluster.sql("ALTER ROLE last CONNECTION LIMIT 0");
    connect_as_each_user(&cluster);
    connect_to_each_host(&cluster);
    silent_host_leaves_time_for_the_next(&cluster);
}

/// Each URL with its outcome. `HERE` is the server, `SOCKET` its socket, and at `GONE` nothing listens.
fn check(cluster: &TestCluster, addresses: &[&str], expected: &Expect) {
    let here = format!("127.0.0.1:{}", cluster.port);
    let socket =
        format!("{}:{}", cluster.folder.to_str().unwrap().replace('/', "%2F"), cluster.port);
    // Bound, so that no other process gets the port, but not listening.
    let taken = TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gone = taken.local_addr().unwrap().to_string();
    let line = |address: &&str| {
        let real = address.replace("HERE", &here).replace("SOCKET", &socket).replace("GONE", &gone);
        let outcome =
            outcome_line(connect_and_query(&format!("postgres://{real}"), &SESSION, ENCRYPTED));
        let outcome = cluster.mask(&outcome.replace(&here, "HERE").replace(&gone, "GONE"));
        // The resolver's message differs between systems.
        let outcome = match outcome.split_once("(failed to lookup") {
            Some((before, rest)) => format!("{before}(…){}", rest.split_once(')').unwrap().1),
            None => outcome,
        };
        format!("{address}\n    {outcome}\n")
    };
    expected.assert_eq(&addresses.iter().map(line).collect::<String>());
}

fn connect_as_each_user(cluster: &TestCluster) {
    check(
        cluster,
        &[
            "nouns@HERE/postgres",
            "encrypted@HERE/postgres",
            "encrypted@HERE/postgres?sslmode=disable",
            "plain@HERE/postgres",
            "plain@HERE/postgres?sslmode=require",
            "stranger@HERE/postgres",
            "nobody@HERE/postgres",
            "scram:right@HERE/postgres",
            "scram:wrong@HERE/postgres",
            "scram@HERE/postgres",
            "md5:wrong@HERE/postgres",
            "md5@HERE/postgres",
            "last@HERE/postgres",
            "reader@HERE/postgres",
            "reader@HERE/postgres?target_session_attrs=any",
        ],
        &expect![[r#"
            nouns@HERE/postgres
                t
            encrypted@HERE/postgres
                t
            encrypted@HERE/postgres?sslmode=disable
                PERMANENT PostgreSQL at HERE does not let us in without encryption (no pg_hba.conf entry for host "127.0.0.1", user "encrypted", database "postgres", no encryption); add sslmode=require to the address, or a line to its pg_hba.conf
            plain@HERE/postgres
                f
            plain@HERE/postgres?sslmode=require
                PERMANENT PostgreSQL at HERE does not let us in (no pg_hba.conf entry for host "127.0.0.1", user "plain", database "postgres", SSL encryption); add a line for this user and host to its pg_hba.conf
            stranger@HERE/postgres
                PERMANENT PostgreSQL at HERE does not let us in (no pg_hba.conf entry for host "127.0.0.1", user "stranger", database "postgres", SSL encryption); add a line for this user and host to its pg_hba.conf
            nobody@HERE/postgres
                PERMANENT PostgreSQL at HERE does not let us in (role "nobody" does not exist); check the user of the address
            scram:right@HERE/postgres
                t
            scram:wrong@HERE/postgres
                PERMANENT PostgreSQL at HERE refuses the password (password authentication failed for user "scram"); set the right one: in NOUNS_DATABASE, PGPASSWORD or a passfile
            scram@HERE/postgres
                PERMANENT PostgreSQL at HERE requires a password; set the right one: in NOUNS_DATABASE, PGPASSWORD or a passfile
            md5:wrong@HERE/postgres
                PERMANENT PostgreSQL at HERE refuses the password (password authentication failed for user "md5"); set the right one: in NOUNS_DATABASE, PGPASSWORD or a passfile
            md5@HERE/postgres
                PERMANENT PostgreSQL at HERE requires a password; set the right one: in NOUNS_DATABASE, PGPASSWORD or a passfile
            last@HERE/postgres
                TRANSIENT PostgreSQL at HERE has no free connection (too many connections for role "last")
            reader@HERE/postgres
                TRANSIENT PostgreSQL at HERE takes no writes; it is a standby, or default_transaction_read_only is on: name the primary too, as in postgres://USER@HOST,HOST/NAME
            reader@HERE/postgres?target_session_attrs=any
                t
        "#]],
    );
}

fn connect_to_each_host(cluster: &TestCluster) {
    check(
        cluster,
        &[
            "nouns@SOCKET/postgres?sslmode=require",
            "nouns@HERE/nowhere",
            "lazy@HERE/template1",
            "nouns@HERE/latin",
            "nouns@GONE/postgres",
            "nouns@GONE,HERE/postgres",
            "nouns@GONE,HERE/nowhere",
            "nouns@%2Fno%2Fwhere:1/postgres",
            "nouns@no..name/postgres",
            "nouns@HERE/postgres?options=-c%20no_such_setting%3D1",
        ],
        &expect![[r#"
            nouns@SOCKET/postgres?sslmode=require
                f
            nouns@HERE/nowhere
                PERMANENT PostgreSQL at HERE has no such database (database "nowhere" does not exist); run: CREATE DATABASE "nowhere", or check the address
            lazy@HERE/template1
                PERMANENT PostgreSQL at HERE does not let this user in (permission denied for database "template1"); run: GRANT CONNECT ON DATABASE "template1" TO "lazy"
            nouns@HERE/latin
                PERMANENT the database "latin" at HERE has the encoding LATIN1, which cannot store all of Unicode; make one with: createdb --encoding=UTF8 --template=template0 NAME
            nouns@GONE/postgres
                TRANSIENT cannot reach PostgreSQL at GONE (connection refused); start it, or check --database
            nouns@GONE,HERE/postgres
                t
            nouns@GONE,HERE/nowhere
                PERMANENT cannot reach PostgreSQL at GONE (connection refused); start it, or check --database; and PostgreSQL at HERE has no such database (database "nowhere" does not exist); run: CREATE DATABASE "nowhere", or check the address
            nouns@%2Fno%2Fwhere:1/postgres
                TRANSIENT cannot reach PostgreSQL at /no/where/.s.PGSQL.1 (there is no such socket); start it, or check --database
            nouns@no..name/postgres
                TRANSIENT cannot reach PostgreSQL at no..name:5432 (…); start it, or check --database
            nouns@HERE/postgres?options=-c%20no_such_setting%3D1
                PERMANENT PostgreSQL at HERE refuses the connection (unrecognized configuration parameter "no_such_setting"); check the address
        "#]],
    );
}

/// A host that accepts connections and never answers leaves time for the next one.
fn silent_host_leaves_time_for_the_next(cluster: &TestCluster) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    let list = format!("postgres://nouns@{silent},127.0.0.1:{}/postgres", cluster.port);
    assert_eq!(
        connect_and_query_within(&list, &SESSION, ENCRYPTED, Duration::from_secs(16)).unwrap(),
        "t"
    );
    let alone = format!("postgres://nouns@{silent}/postgres");
    let told = outcome_line(connect_and_query_within(
        &alone,
        &SESSION,
        ENCRYPTED,
        Duration::from_millis(300),
    ));
    let told = told.replace(&silent, "SILENT");
    let (before, after) = told.split_once("(no answer within ").unwrap();
    let told = format!("{before}(…){}", after.split_once(')').unwrap().1);
    expect!["TRANSIENT cannot reach PostgreSQL at SILENT (…); start it, or check --database"]
        .assert_eq(&told);
}

#[test]
fn connect_timeout_is_split_among_remaining_hosts() {
    let seconds = Duration::from_secs;
    assert_eq!(host_timeout(seconds(12), 3, None), seconds(4));
    assert_eq!(host_timeout(seconds(8), 2, None), seconds(4));
    assert_eq!(host_timeout(seconds(4), 1, None), seconds(4));
    assert_eq!(host_timeout(seconds(12), 3, Some(seconds(9))), seconds(9));
    assert_eq!(host_timeout(seconds(3), 2, Some(seconds(9))), seconds(3));
    assert_eq!(host_timeout(seconds(0), 2, Some(seconds(9))), seconds(0));
}
