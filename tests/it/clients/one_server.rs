//! Every client at one server, over HTTP and over HTTPS.
//!
//! "At the first try" is counted in the server's log: one challenge, then the requests themselves.

use super::driver::Driver;
use super::kind::{Act, Asks, Fate, Kind, Offered, PEOPLE};
use super::life::{ANN, Client, Hand};
use super::place::Place;
use super::rows::ALL;
use super::watch::Watch;
use crate::harness::{Backend, Person, Setup, sql};

/// Tests all rows of a program, with and without TLS and with every set of schemes.
pub fn every_row_of(program: &str, backend: Backend) {
    let rows: Vec<&Kind> = ALL.iter().filter(|kind| kind.program == program).collect();
    let mut driver = Driver::start(rows[0].file);
    for offered in [Offered::Both, Offered::Digest, Offered::Basic] {
        let rows = rows.iter().filter(|kind| kind.offered == offered);
        for is_tls in [false, true] {
            let rows: Vec<_> =
                rows.clone().filter(|kind| is_tls || !kind.is_tls_only).copied().collect();
            if !rows.is_empty() {
                visit(&Place::start(backend, offered, is_tls), &mut driver, &rows);
            }
        }
    }
}

fn visit(place: &Place, driver: &mut Driver, rows: &[&Kind]) {
    let people = PEOPLE.map(|(name, password)| Person::new(name, password));
    for person in &people {
        place.server.add_user(person, &["clerk"]);
    }
    for kind in rows {
        driver.log_in(kind, &place.base, &place.admin);
        let version = driver.version();
        let is_seen = version.starts_with(kind.seen);
        println!("{} {version} at {}", kind.name, place.base);
        let mut visitor = Visitor { place, client: Client { driver, kind, is_seen } };
        visitor.lives();
        visitor.outlives_its_nonce();
        visitor.has_a_wrong_password();
        // These would be half of all logins: so over HTTP on the one backend, over HTTPS on the other.
        let is_their_turn =
            place.base.starts_with("https") == (place.server.backend() == Backend::Postgres);
        for (person, fate) in
            people.iter().zip(kind.letters).filter(|_| is_their_turn || kind.is_tls_only)
        {
            visitor.logs_in(person, fate);
        }
    }
}

struct Visitor<'a> {
    place: &'a Place,
    client: Client<'a>,
}

impl Visitor<'_> {
    fn log_in(&mut self, person: &Person) {
        self.client.driver.log_in(self.client.kind, &self.place.base, person);
    }

    fn customers(&self) -> usize {
        let (backend, folder) = (self.place.server.backend(), self.place.server.folder());
        sql(backend, folder, "SELECT count(*) FROM customers").trim().parse().unwrap()
    }

    fn lives(&mut self) {
        let mut watch = Watch::new(std::slice::from_ref(&self.place.server));
        self.client.live(&mut Hand { server: &self.place.server, admin: &self.place.admin });
        let asked = watch.take();
        if self.client.kind.is_whole() {
            self.client.assert_first_try(&asked, Act::ALL.len());
            let badly = asked.iter().filter(|asked| asked.problem == "bad-query").count();
            assert_eq!(badly, 1, "{}: {asked:?}", self.client.kind.name);
        }
        assert_eq!(self.customers(), 0, "{}", self.client.kind.name);
    }

    /// The client logs in again by itself when its nonce expires.
    fn outlives_its_nonce(&mut self) {
        let kind = self.client.kind;
        if !kind.is_whole() {
            return;
        }
        self.log_in(&self.place.admin);
        let first = self.client.driver.step("GET /customers", "");
        assert_eq!(first.status, 200, "{}: {first:?}", kind.name);
        self.place.wait_five_minutes();
        let mut watch = Watch::new(std::slice::from_ref(&self.place.server));
        let later = self.client.driver.step("POST /customers", ANN);
        assert_eq!(later.status, 201, "{}: {later:?}", kind.name);
        let asked = watch.take();
        self.place.set_back();
        let refused = asked.iter().filter(|asked| asked.status == 401);
        let problems: Vec<_> = refused.map(|asked| &*asked.problem).collect();
        let wanted: &[&str] = match (kind.asks, kind.is_digest()) {
            (Asks::Never, _) | (Asks::Once, false) => &[],
            (Asks::Once, true) => &["stale-nonce"],
            (Asks::EachTime, _) => &["credentials-needed"],
        };
        assert_eq!(problems, wanted, "{}: {asked:?}", kind.name);
        assert_eq!(self.customers(), 1, "{}", kind.name);
        sql(self.place.server.backend(), self.place.server.folder(), "DELETE FROM customers");
    }

    /// The client gives up by itself, and nothing is changed.
    fn has_a_wrong_password(&mut self) {
        let kind = self.client.kind;
        // One user each, so that the failures do not add up to a lockout.
        let name = format!("clerk-{}", kind.scheme.replace(' ', "-"));
        self.place.server.add_user(&Person::new(&name, "the right password"), &["clerk"]);
        let mut watch = Watch::new(std::slice::from_ref(&self.place.server));
        self.log_in(&Person::new(&name, "a wrong password"));
        let step = self.client.driver.step("GET /customers", "");
        let asked = watch.take();
        let what = format!("{}: {step:?}, {asked:?}", kind.name);
        let refusals = asked.iter().filter(|asked| asked.status == 401).count();
        if self.client.is_seen {
            assert_eq!((step.status, refusals), (kind.told, kind.refusals), "{what}");
        }
        assert!((1..=kind.refusals).contains(&refusals), "{what}");
        assert!(asked.iter().all(|asked| matches!(asked.status, 400 | 401)), "{what}");
        assert!(asked.iter().any(|asked| asked.problem == "credentials-wrong"), "{what}");
    }

    /// Names and passwords of any script. Where they fail, the row says how.
    fn logs_in(&mut self, person: &Person, fate: Fate) {
        let mut watch = Watch::new(std::slice::from_ref(&self.place.server));
        self.log_in(person);
        let step = self.client.driver.step("GET /customers", "");
        let asked = watch.take();
        let what = format!("{}, {}: {step:?}, {asked:?}", self.client.kind.name, person.name);
        let seen = match step.status {
            200 => Fate::Works,
            401 => Fate::Refused,
            0 => Fate::Unsent,
            _ => panic!("{what}"),
        };
        if seen == Fate::Works {
            self.client.assert_first_try(&asked, 1);
        } else {
            assert!(asked.iter().all(|asked| asked.status == 401), "{what}");
        }
        let is_better = !self.client.is_seen && seen == Fate::Works;
        assert!(seen == fate || is_better, "expected {fate:?}, {what}");
    }
}

/// One test for each program and backend.
macro_rules! programs {
    ($($program:ident)*) => {
        $(on_every_backend! {
            fn $program(backend: Backend) {
                every_row_of(stringify!($program), backend);
            }
        })*

        #[test]
        fn every_program_is_tested() {
            let tested = [$(stringify!($program)),*];
            for kind in ALL {
                assert!(tested.contains(&kind.program), "{}", kind.name);
            }
        }
    };
}

programs! {
    curl wget wget2 requests httpx aiohttp urllib httplib2 httpie node_fetch digest_fetch npm_urllib
    axios_digest_auth java lwp chromium firefox
}

/// Regression: wget 1.21 crashes on a header line of 256 bytes or more, see `docs/reference/clients.md`.
/// A realm of eight characters is the longest that fits into its challenges.
#[test]
fn wget_realm_of_eight_characters_with_both_schemes_logs_in() {
    let kind = ALL.iter().find(|kind| kind.scheme == "wget either").unwrap();
    let model = include_str!("../../../examples/store/nouns.toml");
    let model = model.replace("realms.store", "realms.eightlet");
    let model = model.replace("realm = \"store\"", "realm = \"eightlet\"");
    let server = Setup::new(Backend::Sqlite).model(&model).closed().start();
    let challenged = server.get("/customers");
    let lines = challenged.all("WWW-Authenticate");
    assert_eq!((lines.len(), lines[0].len()), (2, 255), "{lines:?}");
    let mut driver = Driver::start(kind.file);
    driver.log_in(kind, &format!("http://{}", server.address), &server.admin());
    let step = driver.step("POST /customers", ANN);
    assert_eq!(step.status, 201, "{step:?}");
}
