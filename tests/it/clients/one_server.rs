//! Every client at one server, over HTTP and over HTTPS.
//!
//! "At the first try" is counted in the server's log: one challenge, then the requests themselves.

use super::client_row::{
    ChallengePolicy, ClientRow, LifecycleAction, LoginResult, OfferedSchemes, PEOPLE,
};
use super::driver::ClientDriver;
use super::lifecycle::{LoggedInClient, ReferenceClient};
use super::request_log::RequestLog;
use super::rows::ALL;
use super::test_server::ClientTestServer;
use crate::harness::{ANN, Backend, Person, Setup, run_sql};

/// Tests all rows of a program, with and without TLS and with every set of schemes.
pub fn every_row_of(program: &str, backend: Backend) {
    let rows: Vec<&ClientRow> = ALL.iter().filter(|kind| kind.program == program).collect();
    let mut driver = ClientDriver::start(rows[0].file);
    for offered in [OfferedSchemes::Both, OfferedSchemes::Digest, OfferedSchemes::Basic] {
        let rows = rows.iter().filter(|kind| kind.offered == offered);
        for is_tls in [false, true] {
            let rows: Vec<_> =
                rows.clone().filter(|kind| is_tls || !kind.is_tls_only).copied().collect();
            if !rows.is_empty() {
                test_rows(&ClientTestServer::start(backend, offered, is_tls), &mut driver, &rows);
            }
        }
    }
}

fn test_rows(place: &ClientTestServer, driver: &mut ClientDriver, rows: &[&ClientRow]) {
    let people = PEOPLE.map(|(name, password)| Person::new(name, password));
    for person in &people {
        place.server.add_user(person, &["clerk"]);
    }
    for kind in rows {
        driver.log_in(kind, &place.base, &place.admin);
        let version = driver.version();
        let is_seen = version.starts_with(kind.tested_version);
        println!("{} {version} at {}", kind.name, place.base);
        let mut visitor = ClientTest {
            server: place,
            client: LoggedInClient { driver, row: kind, is_tested_version: is_seen },
        };
        visitor.check_lifecycle();
        visitor.check_nonce_expiry();
        visitor.check_wrong_password();
        // These would be half of all logins: so over HTTP on the one backend, over HTTPS on the other.
        let is_their_turn =
            place.base.starts_with("https") == (place.server.backend() == Backend::Postgres);
        for (person, expected) in
            people.iter().zip(kind.login_results).filter(|_| is_their_turn || kind.is_tls_only)
        {
            visitor.check_login(person, expected);
        }
    }
}

struct ClientTest<'a> {
    server: &'a ClientTestServer,
    client: LoggedInClient<'a>,
}

impl ClientTest<'_> {
    fn log_in(&mut self, person: &Person) {
        self.client.driver.log_in(self.client.row, &self.server.base, person);
    }

    fn customers(&self) -> usize {
        let (backend, folder) = (self.server.server.backend(), self.server.server.folder());
        run_sql(backend, folder, "SELECT count(*) FROM customers").trim().parse().unwrap()
    }

    fn check_lifecycle(&mut self) {
        let mut watch = RequestLog::new(std::slice::from_ref(&self.server.server));
        self.client.run_lifecycle(&mut ReferenceClient {
            server: &self.server.server,
            admin: &self.server.admin,
        });
        let asked = watch.new_requests();
        if self.client.row.supports_everything() {
            self.client.assert_first_try(&asked, LifecycleAction::ALL.len());
            let badly = asked.iter().filter(|asked| asked.problem == "bad-query").count();
            assert_eq!(badly, 1, "{}: {asked:?}", self.client.row.name);
        }
        assert_eq!(self.customers(), 0, "{}", self.client.row.name);
    }

    /// The client logs in again by itself when its nonce expires.
    fn check_nonce_expiry(&mut self) {
        let kind = self.client.row;
        if !kind.supports_everything() {
            return;
        }
        self.log_in(&self.server.admin);
        let first = self.client.driver.step("GET /customers", "");
        assert_eq!(first.status, 200, "{}: {first:?}", kind.name);
        self.server.wait_five_minutes();
        let mut watch = RequestLog::new(std::slice::from_ref(&self.server.server));
        let later = self.client.driver.step("POST /customers", ANN);
        assert_eq!(later.status, 201, "{}: {later:?}", kind.name);
        let asked = watch.new_requests();
        self.server.reset_clock();
        let refused = asked.iter().filter(|asked| asked.status == 401);
        let problems: Vec<_> = refused.map(|asked| &*asked.problem).collect();
        let wanted: &[&str] = match (kind.challenge_policy, kind.is_digest()) {
            (ChallengePolicy::Never, _) | (ChallengePolicy::Once, false) => &[],
            (ChallengePolicy::Once, true) => &["stale-nonce"],
            (ChallengePolicy::EachTime, _) => &["credentials-needed"],
        };
        assert_eq!(problems, wanted, "{}: {asked:?}", kind.name);
        assert_eq!(self.customers(), 1, "{}", kind.name);
        run_sql(self.server.server.backend(), self.server.server.folder(), "DELETE FROM customers");
    }

    /// The client gives up by itself, and nothing is changed.
    fn check_wrong_password(&mut self) {
        let kind = self.client.row;
        // One user each, so that the failures do not add up to a lockout.
        let name = format!("clerk-{}", kind.scheme.replace(' ', "-"));
        self.server.server.add_user(&Person::new(&name, "the right password"), &["clerk"]);
        let mut watch = RequestLog::new(std::slice::from_ref(&self.server.server));
        self.log_in(&Person::new(&name, "a wrong password"));
        let step = self.client.driver.step("GET /customers", "");
        let asked = watch.new_requests();
        let what = format!("{}: {step:?}, {asked:?}", kind.name);
        let refusals = asked.iter().filter(|asked| asked.status == 401).count();
        if self.client.is_tested_version {
            assert_eq!((step.status, refusals), (kind.reported_status, kind.refusals), "{what}");
        }
        assert!((1..=kind.refusals).contains(&refusals), "{what}");
        assert!(asked.iter().all(|asked| matches!(asked.status, 400 | 401)), "{what}");
        assert!(asked.iter().any(|asked| asked.problem == "credentials-wrong"), "{what}");
    }

    /// Names and passwords of any script. Where they fail, the row says how.
    fn check_login(&mut self, person: &Person, expected: LoginResult) {
        let mut watch = RequestLog::new(std::slice::from_ref(&self.server.server));
        self.log_in(person);
        let step = self.client.driver.step("GET /customers", "");
        let asked = watch.new_requests();
        let what = format!("{}, {}: {step:?}, {asked:?}", self.client.row.name, person.name);
        let seen = match step.status {
            200 => LoginResult::Works,
            401 => LoginResult::Refused,
            0 => LoginResult::NotSent,
            _ => panic!("{what}"),
        };
        if seen == LoginResult::Works {
            self.client.assert_first_try(&asked, 1);
        } else {
            assert!(asked.iter().all(|asked| asked.status == 401), "{what}");
        }
        let is_better = !self.client.is_tested_version && seen == LoginResult::Works;
        assert!(seen == expected || is_better, "expected {expected:?}, {what}");
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
    let server = Setup::new(Backend::Sqlite).model(&model).with_authentication().start();
    let challenged = server.get("/customers");
    let lines = challenged.all("WWW-Authenticate");
    assert_eq!((lines.len(), lines[0].len()), (2, 255), "{lines:?}");
    let mut driver = ClientDriver::start(kind.file);
    driver.log_in(kind, &format!("http://{}", server.address), &server.admin());
    let step = driver.step("POST /customers", ANN);
    assert_eq!(step.status, 201, "{step:?}");
}
