//! Every client logs in at the first try, also where each request goes to another server.
//!
//! "At the first try" is counted in the servers' logs: one challenge, then what was asked for.

use super::balancer::Balancer;
use super::driver::Driver;
use super::{ALL, Asked, Asks, Kind, Letters, Watch};
use crate::harness::{Backend, OwnPostgres, Person, Server, Setup, sql, wait_until};

const ANN: &str = r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#;
const BEA: &str = r#"{"customer":{"name":"Bea, née Žď","email":"bea@example.com"}}"#;

/// How many steps `live` has.
const STEPS: usize = 7;

/// An item from its beginning to its end, with every method, with queries and bodies.
fn live(driver: &mut Driver) {
    driver.expect("GET /customers?limit=1", "", 200);
    let created = driver.expect("POST /customers", ANN, 201).json();
    let path = format!("/customers/{}", created["customer"]["id"].as_str().unwrap());
    let seen = driver.expect(&format!("GET {path}"), "", 200).json();
    assert_eq!(seen, created);
    let changed = driver.expect(&format!("PUT {path}"), BEA, 200).json();
    assert_eq!(changed["customer"]["name"], "Bea, née Žď");
    driver.expect(&format!("GET {path}/orders?limit=5"), "", 200);
    driver.expect(&format!("DELETE {path}"), "", 204);
    driver.expect(&format!("GET {path}"), "", 404);
}

/// Nothing but the challenges that the client asked for, and what it wanted.
fn assert_first_try(kind: &Kind, asked: &[Asked], steps: usize) {
    let challenges = match kind.asks {
        Asks::Never => 0,
        Asks::Once => 1,
        Asks::EachTime => steps,
    };
    let name = kind.name;
    let refused: Vec<_> = asked.iter().filter(|asked| asked.status == 401).collect();
    assert!(refused.iter().all(|asked| asked.problem == "credentials-needed"), "{name}: {asked:?}");
    // A client that asks less often than it used to is no fault.
    assert!(refused.len() <= challenges, "{name}: {asked:?}");
    assert!(kind.asks == Asks::Never || !refused.is_empty(), "{name}: {asked:?}");
    assert_eq!(asked.len(), steps + refused.len(), "{name}: {asked:?}");
}

fn customers(server: &Server) -> usize {
    let count = sql(server.backend(), server.folder(), "SELECT count(*) FROM customers");
    count.trim().parse().unwrap()
}

#[test]
fn one_server() {
    let servers = [Setup::new(Backend::Sqlite).closed().start()];
    let person = servers[0].admin();
    let mut watch = Watch::new(&servers);
    for kind in ALL {
        live(&mut Driver::start(kind, servers[0].address, &person));
        assert_first_try(kind, &watch.take(), STEPS);
    }
    assert_eq!(customers(&servers[0]), 0);
}

#[test]
fn two_replicas_in_turn() {
    replicas_in_turn(2);
}

#[test]
fn three_replicas_in_turn() {
    replicas_in_turn(3);
}

fn replicas_in_turn(count: usize) {
    let first = Setup::new(Backend::Postgres).closed().start();
    let (address, key) = (first.database(), first.key_file());
    let person = first.admin();
    let more = (1..count).map(|_| Setup::replica(address.clone()).key_file(key.clone()).start());
    let mut servers: Vec<Server> = more.collect();
    // The first one last: the database goes with it.
    servers.push(first);
    let balancer = Balancer::start(servers.iter().map(|server| server.address).collect());
    let mut watch = Watch::new(&servers);
    for kind in ALL {
        live(&mut Driver::start(kind, balancer.address, &person));
        let asked = watch.take();
        assert_first_try(kind, &asked, STEPS);
        let at = |index: usize| asked.iter().filter(|asked| asked.server == index).count();
        let share = asked.len() / count;
        let is_even = (0..count).all(|index| (share..=share + 1).contains(&at(index)));
        assert!(is_even, "each request goes to the next one: {asked:?}");
    }
    assert_eq!(customers(servers.last().unwrap()), 0);
}

/// A restart on SQLite makes every nonce stale. Nobody is asked again: the client goes on by itself.
#[test]
fn a_session_outlives_its_nonce() {
    let mut server = Setup::new(Backend::Sqlite).closed().start();
    let person = server.admin();
    let balancer = Balancer::start(vec![server.address]);
    for kind in ALL {
        let name = kind.name;
        let mut driver = Driver::start(kind, balancer.address, &person);
        driver.expect("GET /customers", "", 200);
        let (stored, stale) = (customers(&server), balancer.stale());
        server = server.restart();
        balancer.redirect(vec![server.address]);
        driver.expect("POST /customers", ANN, 201);
        assert_eq!(customers(&server), stored + 1, "{name}");
        let asked = Watch { servers: std::slice::from_ref(&server), read: vec![0] }.take();
        let problems: Vec<_> =
            asked.iter().filter(|asked| asked.status == 401).map(|asked| &*asked.problem).collect();
        match kind.asks {
            Asks::Never => assert!(problems.is_empty(), "{name}: {asked:?}"),
            Asks::Once => assert_eq!(problems, ["stale-nonce"], "{name}: {asked:?}"),
            Asks::EachTime => assert_eq!(problems, ["credentials-needed"], "{name}: {asked:?}"),
        }
        let told = usize::from(kind.asks == Asks::Once);
        assert_eq!(balancer.stale(), stale + told, "{name}: the client is told that it is stale");
    }
}

/// A crash of PostgreSQL makes every nonce stale, at every replica: those that were there before go on,
/// and those that come then get in.
#[test]
fn a_session_outlives_a_crash_of_the_database() {
    let postgres = OwnPostgres::start();
    postgres.sql("postgres", "CREATE DATABASE crash");
    let address = postgres.address_of("crash");
    let one = Setup::replica(address.clone()).closed().start();
    let two = Setup::replica(address).key_file(one.key_file()).start();
    let person = one.admin();
    let servers = [two, one];
    let balancer = Balancer::start(servers.iter().map(|server| server.address).collect());
    let start = |kind| Driver::start(kind, balancer.address, &person);
    let mut drivers: Vec<Driver> = ALL.iter().map(start).collect();
    for driver in &mut drivers {
        driver.expect("GET /customers", "", 200);
    }
    postgres.restart("immediate");
    for server in &servers {
        wait_until("it serves again", || (server.get("/-/ready").status == 200).then_some(()));
    }
    let newcomers = ALL.iter().rev().map(start);
    for driver in newcomers.chain(drivers).collect::<Vec<_>>().iter_mut() {
        driver.expect("POST /customers", ANN, 201);
    }
    let count = postgres.sql("crash", "SELECT count(*) FROM customers");
    assert_eq!(count.trim(), (2 * ALL.len()).to_string());
}

/// Each client gives up by itself, is told 401, and nothing is done.
#[test]
fn a_wrong_password() {
    let servers = [Setup::new(Backend::Sqlite).closed().start()];
    let mut watch = Watch::new(&servers);
    for (index, kind) in ALL.iter().enumerate() {
        // One user each, so that they do not add up to more failures than one name may have.
        let right = Person::new(&format!("clerk-{index}"), "the right password");
        servers[0].add_user(&right, &["clerk"]);
        watch.take();
        let wrong = Person::new(&right.name, "a wrong password");
        let name = kind.name;
        let mut driver = Driver::start(kind, servers[0].address, &wrong);
        driver.expect("POST /customers", ANN, 401);
        let asked = watch.take();
        assert!(asked.iter().all(|asked| asked.status == 401), "{name}: {asked:?}");
        assert!((1..=kind.refusals_max).contains(&asked.len()), "{name}: {asked:?}");
        let is_wrong = |asked: &Asked| asked.problem == "credentials-wrong";
        assert!(is_wrong(asked.last().unwrap()), "{name}: {asked:?}");
        let first = usize::from(kind.asks != Asks::Never);
        assert!(asked.iter().skip(first).all(is_wrong), "{name}: {asked:?}");
    }
    assert_eq!(customers(&servers[0]), 0);
}

/// Names and passwords of any script, by the clients that can send them. What the others make of them
/// is theirs, but nothing is done unless they are told so.
#[test]
fn other_scripts() {
    let servers = [Setup::new(Backend::Sqlite).closed().start()];
    let people = [
        (Letters::Latin1, Person::new("ann", "größer als groß")),
        (Letters::Latin1, Person::new("Jürgen", "größer als groß")),
        (Letters::All, Person::new("平田", "ひらがなのことば")),
    ];
    for (_, person) in &people {
        servers[0].add_user(person, &["clerk"]);
    }
    let mut watch = Watch::new(&servers);
    let mut stored = 0;
    for kind in ALL {
        for (letters, person) in &people {
            let step = Driver::start(kind, servers[0].address, person).step("POST /customers", ANN);
            let asked = watch.take();
            let what = format!("{}, {}: {step:?}, {asked:?}", kind.name, person.name);
            if *letters <= kind.letters {
                assert_eq!(step.status, 201, "{what}");
                assert_first_try(kind, &asked, 1);
            }
            assert!(matches!(step.status, 0 | 201 | 401), "{what}");
            stored += usize::from(step.status == 201);
            assert_eq!(customers(&servers[0]), stored, "{what}");
        }
    }
}
