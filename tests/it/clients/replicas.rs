//! Every client behind a balancer that sends each request to another replica, and across a crash of
//! PostgreSQL.

use super::balancer::Balancer;
use super::client_row::{ClientRow, LifecycleAction, OfferedSchemes};
use super::driver::ClientDriver;
use super::lifecycle::{LoggedInClient, ReferenceClient};
use super::request_log::RequestLog;
use super::rows::ALL;
use super::test_server;
use crate::harness::{ANN, Backend, OwnPostgres, Server, Setup, run_sql, wait_until};

/// Tests all rows of a program: at two servers in turn, and at three.
fn every_row_of(program: &str) {
    let rows = ALL.iter().filter(|kind| kind.program == program && kind.supports_everything());
    let rows: Vec<&ClientRow> = rows.filter(|kind| !kind.is_tls_only).collect();
    let mut driver = ClientDriver::start(rows[0].file);
    for offered in [OfferedSchemes::Both, OfferedSchemes::Digest, OfferedSchemes::Basic] {
        let rows: Vec<_> = rows.iter().filter(|kind| kind.offered == offered).copied().collect();
        if !rows.is_empty() {
            test_rows_behind_balancer(&mut driver, offered, &rows);
        }
    }
}

fn test_rows_behind_balancer(
    driver: &mut ClientDriver,
    offered: OfferedSchemes,
    rows: &[&ClientRow],
) {
    let first = test_server::with_schemes(Setup::new(Backend::Postgres), offered).start();
    let (address, key) = (first.database(), first.key_file());
    let admin = first.admin();
    let replica = || {
        test_server::with_schemes(Setup::replica(address.clone()), offered)
            .key_file(key.clone())
            .start()
    };
    // The first one is dropped last, since it owns the database.
    let servers = [replica(), replica(), first];
    for count in [2, 3] {
        let some = &servers[servers.len() - count..];
        let balancer = Balancer::start(some.iter().map(|server| server.address).collect());
        let base = format!("http://{}", balancer.address);
        let mut watch = RequestLog::new(some);
        for kind in rows {
            driver.log_in(kind, &base, &admin);
            let is_seen = driver.version().starts_with(kind.tested_version);
            let mut client = LoggedInClient { driver, row: kind, is_tested_version: is_seen };
            client.run_lifecycle(&mut ReferenceClient { server: &servers[2], admin: &admin });
            let asked = watch.new_requests();
            client.assert_first_try(&asked, LifecycleAction::ALL.len());
            let at = |index: usize| asked.iter().filter(|asked| asked.server == index).count();
            // A browser also requests its page.
            let least = asked.len() / count - 1;
            assert!((0..count).all(|index| at(index) >= least), "{}: {asked:?}", kind.name);
        }
    }
    let count = run_sql(Backend::Postgres, servers[2].folder(), "SELECT count(*) FROM customers");
    assert_eq!(count.trim(), "0");
}

macro_rules! programs {
    ($($program:ident)*) => {
        $(#[test]
        fn $program() {
            every_row_of(stringify!($program));
        })*

        #[test]
        fn every_program_is_tested() {
            let tested = [$(stringify!($program)),*];
            for kind in ALL.iter().filter(|kind| kind.supports_everything()) {
                assert!(tested.contains(&kind.program), "{}", kind.name);
            }
        }
    };
}

programs! {
    curl wget requests httpx aiohttp urllib httplib2 httpie node_fetch digest_fetch npm_urllib java lwp
    chromium firefox
}

/// A crash of PostgreSQL makes every nonce stale, at every replica: existing sessions log in again, and
/// new ones log in as usual.
#[test]
fn session_survives_a_crash_of_postgres() {
    let postgres = OwnPostgres::start();
    postgres.sql("postgres", "CREATE DATABASE crash");
    let address = postgres.database_url("crash");
    let one = Setup::replica(address.clone()).with_authentication().start();
    let two = Setup::replica(address).key_file(one.key_file()).start();
    let admin = one.admin();
    let servers: [Server; 2] = [two, one];
    let balancer = Balancer::start(servers.iter().map(|server| server.address).collect());
    let base = format!("http://{}", balancer.address);
    // Clients that keep a nonce, except browsers, which are many programs each.
    let rows = ALL
        .iter()
        .filter(|kind| kind.offered == OfferedSchemes::Both && kind.supports_everything());
    let rows: Vec<&ClientRow> = rows
        .filter(|kind| kind.is_digest() && !kind.is_tls_only && kind.file != "browser.mjs")
        .collect();
    let start = |kind: &&ClientRow| {
        let mut driver = ClientDriver::start(kind.file);
        driver.log_in(kind, &base, &admin);
        driver
    };
    let mut drivers: Vec<ClientDriver> = rows.iter().map(start).collect();
    for (driver, kind) in drivers.iter_mut().zip(&rows) {
        let step = driver.step("GET /customers", "");
        assert_eq!(step.status, 200, "{}: {step:?}", kind.name);
    }
    postgres.restart("immediate");
    for server in &servers {
        wait_until("it serves again", || (server.get("/-/ready").status == 200).then_some(()));
    }
    for (driver, kind) in drivers.iter_mut().zip(&rows) {
        for _ in ["who was there before", "who comes then"] {
            let step = driver.step("POST /customers", ANN);
            assert_eq!(step.status, 201, "{}: {step:?}", kind.name);
            driver.log_in(kind, &base, &admin);
        }
    }
    let count = postgres.sql("crash", "SELECT count(*) FROM customers");
    assert_eq!(count.trim(), (2 * rows.len()).to_string());
}
