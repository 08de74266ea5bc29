//! Session settings, and those that are pinned.

use expect_test::expect;

use super::*;
use crate::store::postgres::connect::tests::cluster::TestCluster;

#[test]
fn session_options_for_startup_message() {
    let pooled = SessionSettings { pooling: Pooling::Transaction, ..SESSION };
    assert_eq!(pooled.startup_options(None), None);
    assert_eq!(pooled.startup_options(Some("-c a=b")).as_deref(), Some("-c a=b"));
    expect![[r#"-c statement_timeout=5000 -c lock_timeout=4000 -c idle_in_transaction_session_timeout=20000 -c TimeZone=UTC -c standard_conforming_strings=on -c client_min_messages=warning -c default_transaction_isolation=read\ committed -c nouns.told=yes"#]].assert_eq(&SESSION.startup_options(None).unwrap());
    let own = SESSION.startup_options(Some("-c search_path=shop -c statement_timeout=0")).unwrap();
    assert!(
        own.starts_with("-c search_path=shop -c statement_timeout=0 -c statement_timeout=5000 "),
        "{own}"
    );
}

#[test]
fn session_settings_are_applied_and_verified() {
    let cluster = TestCluster::start();
    cluster.serve(None);
    cluster.sql("ALTER ROLE lazy SET synchronous_commit = off");
    cluster.sql("ALTER ROLE remote SET synchronous_commit = remote_write");
    cluster.sql("ALTER ROLE lazy SET default_transaction_isolation = 'serializable'");
    cluster.sql("ALTER ROLE lazy SET TimeZone = 'Asia/Kathmandu'");
    cluster.sql("ALTER ROLE lazy SET search_path = 'own'");
    cluster.sql("ALTER ROLE lazy SET client_min_messages = error");
    let address = |user: &str| format!("postgres://{user}@127.0.0.1:{}/postgres", cluster.port);
    let names = [
        "application_name",
        "client_encoding",
        "statement_timeout",
        "lock_timeout",
        "idle_in_transaction_session_timeout",
        "TimeZone",
        "standard_conforming_strings",
        "client_min_messages",
        "transaction_isolation",
        "synchronous_commit",
        "search_path",
    ];
    let settings = names.map(|name| format!("current_setting('{name}')")).join(", ");
    let question = format!("SELECT {settings}");
    let mut told = Vec::new();
    for user in ["nouns", "lazy", "remote"] {
        let answer = connect_and_query(&address(user), &SESSION, &question).unwrap();
        let pairs = names.iter().zip(answer.split('|'));
        told.push(
            pairs.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "),
        );
    }
    expect![[r#"
        application_name=nouns client_encoding=UTF8 statement_timeout=5s lock_timeout=4s idle_in_transaction_session_timeout=20s TimeZone=UTC standard_conforming_strings=on client_min_messages=warning transaction_isolation=read committed synchronous_commit=on search_path="$user", public
        application_name=nouns client_encoding=UTF8 statement_timeout=5s lock_timeout=4s idle_in_transaction_session_timeout=20s TimeZone=UTC standard_conforming_strings=on client_min_messages=warning transaction_isolation=read committed synchronous_commit=on search_path=own
        application_name=nouns client_encoding=UTF8 statement_timeout=5s lock_timeout=4s idle_in_transaction_session_timeout=20s TimeZone=UTC standard_conforming_strings=on client_min_messages=warning transaction_isolation=read committed synchronous_commit=remote_write search_path="$user", public
    "#]].assert_eq(&format!("{}\n", told.join("\n")));

    // Behind a transaction-pooling proxy no setting is made, and an unsafe session is refused.
    let pooled = SessionSettings { pooling: Pooling::Transaction, ..SESSION };
    let commit = "SELECT current_setting('synchronous_commit'), current_setting('TimeZone')";
    let outcome = connect_and_query(&address("nouns"), &pooled, commit).unwrap();
    assert_eq!(outcome, "on|Asia/Kathmandu");
    let outcome = cluster.mask(&outcome_line(connect_and_query(&address("lazy"), &pooled, commit)));
    expect![[r#"PERMANENT synchronous_commit is off at 127.0.0.1:PORT, so an acknowledged write could be lost; run: ALTER ROLE "lazy" SET synchronous_commit = on"#]].assert_eq(&outcome);
    cluster.sql("ALTER ROLE lazy SET synchronous_commit = local");
    let outcome = cluster.mask(&outcome_line(connect_and_query(&address("lazy"), &pooled, commit)));
    expect![[r#"PERMANENT transactions at 127.0.0.1:PORT are serializable, and we rely on read committed; run: ALTER ROLE "lazy" SET default_transaction_isolation = 'read committed'"#]].assert_eq(&outcome);
    reload_keeps_pinned_settings(&cluster, &address("nouns"));
}

/// A reload that turns `synchronous_commit` off for the whole server does not change open sessions.
fn reload_keeps_pinned_settings(cluster: &TestCluster, text: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let deadline = clock::now() + TEST_TIMEOUT;
        let (address, primary) = (parse_url(text), PrimaryState::default());
        let connected = address.connect(&SESSION, &primary, deadline).await;
        let OpenConnection { client, driver, .. } = connected.unwrap();
        let driver = tokio::spawn(driver);
        cluster.sql("ALTER SYSTEM SET synchronous_commit = off");
        cluster.sql("ALTER SYSTEM SET work_mem = '5MB'");
        cluster.sql("SELECT pg_reload_conf()");
        // The session has read the new settings when the second one shows.
        let shows = async |name: &str| {
            let question = format!("SELECT current_setting('{name}')");
            let answer = client.simple_query(&question).await.unwrap();
            let SimpleQueryMessage::Row(row) = &answer[1] else { panic!("{answer:?}") };
            row.get(0).unwrap().to_owned()
        };
        while shows("work_mem").await != "5MB" {
            assert!(clock::now() < deadline, "the reload did not arrive");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(shows("synchronous_commit").await, "on");
        drop(client);
        driver.await.unwrap().unwrap();
    });
}
