//! Cross-origin pages: those of undeclared origins can read and change nothing, those of declared ones
//! can do what their visitor may.

use std::net::SocketAddr;

use serde_json::Value;

use super::chromium::{Chromium, Tab};
use super::cross_origin_attempts::{
    CrossOriginAttempt, DeclaredOriginResult, LOGOUTS, PRELUDE, READS, WRITES,
};
use super::{
    ANN, REALMS, create_ann, foreign_site, logged_count, logged_requests, start_store, stored_data,
    watcher,
};
use crate::harness::{Backend, Server, wait_until};

/// A host for which browsers send fetch metadata, and one for which they do not.
const WITH_FETCH_METADATA: &str = "127.0.0.1";
const WITHOUT_FETCH_METADATA: &str = "shop.test";

on_every_backend! {
    /// The visitor is logged in, and the browser sends its cached credentials.
    fn cors_undeclared_pages_read_and_change_nothing(backend: Backend) {
        let elsewhere = foreign_site::serve();
        let chromium = Chromium::start();
        for (realm, victim, page) in [
            (REALMS[0], WITH_FETCH_METADATA, "evil.example"),
            (REALMS[1], WITH_FETCH_METADATA, "127.0.0.1"),
            (REALMS[1], WITHOUT_FETCH_METADATA, "evil.example"),
            (REALMS[2], WITHOUT_FETCH_METADATA, "evil.shop.test"),
        ] {
            let server = start_store(backend, realm.1, "cors_origins = \"http://app.example:1\"");
            let session = VisitorSession::new(&chromium, &server, (victim, page), elsewhere);
            let logouts = if victim == WITH_FETCH_METADATA { LOGOUTS } else { &[] };
            for attempt in READS.iter().chain(WRITES).chain(logouts) {
                let before = session.state();
                let got = session.run_attempt(attempt);
                session.assert_nothing_leaked(attempt, &got, &before.1);
                if victim == WITH_FETCH_METADATA {
                    session.assert_refused(attempt, before.0);
                }
            }
            // Chromium partitions its credential cache by site, except for top-level windows.
            let is_sent = page != "evil.example";
            assert_eq!(!session.tab.credentials().is_empty(), is_sent, "{victim} {page}");
            session.assert_logged_in();
            session.assert_windows_reveal_nothing(victim == WITH_FETCH_METADATA);
        }
    }

    fn cors_declared_pages_do_what_their_visitor_may(backend: Backend) {
        let elsewhere = foreign_site::serve();
        let chromium = Chromium::start();
        for (realm, victim, page) in [
            (REALMS[0], WITH_FETCH_METADATA, "127.0.0.1"),
            (REALMS[1], WITH_FETCH_METADATA, "127.0.0.1"),
            (REALMS[2], WITHOUT_FETCH_METADATA, "app.shop.test"),
        ] {
            let port = elsewhere.port();
            let declared = format!("cors_origins = [\"https://a.example\", \"http://{page}:{port}\"]");
            let server = start_store(backend, realm.1, &declared);
            let session = VisitorSession::new(&chromium, &server, (victim, page), elsewhere);
            for attempt in READS.iter().chain(WRITES) {
                let before = stored_data(&server);
                let got = session.run_attempt(attempt);
                let what = format!("{} at {victim} from {page}: {got}", attempt.name);
                assert_eq!(stored_data(&server) != before, attempt.declared_result == DeclaredOriginResult::Changes, "{what}");
                if let DeclaredOriginResult::Reads(text) = attempt.declared_result {
                    assert!(got.to_string().contains(text), "{what}");
                }
            }
            session.assert_logged_in();
        }
    }

    /// The page can add credentials that Chromium does not: nobody has to be logged in.
    fn cors_declared_cross_site_page_sends_its_own_credentials(backend: Backend) {
        let elsewhere = foreign_site::serve();
        let chromium = Chromium::start();
        let tab = chromium.tab();
        let (app, evil) = (foreign_site::page(elsewhere, "app.example"), foreign_site::page(elsewhere, "evil.example"));
        let server = start_store(backend, REALMS[1].1, &format!("cors_origins = {:?}", app.trim_end_matches('/')));
        let item = create_ann(&server);
        let credentials = server.admin().basic();
        for victim in [WITH_FETCH_METADATA, WITHOUT_FETCH_METADATA] {
            let base = format!("http://{victim}:{}", server.address.port());
            let ask = |method: &str, path: &str, body: &str| {
                let body = if body.is_empty() { "null" } else { &format!("'{body}'") };
                let type_line = "'Content-Type': 'application/json'";
                tab.run_script(&format!(
                    "fetch('{base}{path}', {{method: '{method}', body: {body}, \
                     headers: {{Authorization: '{credentials}', {type_line}}}}}).then(async answer => \
                     [answer.status, answer.headers.get('Location'), await answer.text()].join(' '), \
                     error => error.name)"
                ))
            };
            let told = |told: Value| told.as_str().unwrap().to_owned();
            tab.navigate(&app, &[]);
            assert!(told(ask("GET", &item, "")).starts_with("200  {\"customer\""));
            let made = told(ask("POST", "/customers", ANN));
            let path = made.split(' ').nth(1).unwrap();
            assert!(made.starts_with("201 /customers/"), "{made}");
            assert!(told(ask("PUT", path, ANN)).starts_with("200 "));
            assert!(told(ask("DELETE", path, "")).starts_with("204 "));
            assert!(told(ask("GET", path, "")).contains("/-/problems/not-found"));
            assert!(told(ask("POST", "/customers", "{}")).contains("/-/problems/bad-wrapper"));
            tab.navigate(&evil, &[]);
            let before = stored_data(&server);
            for (method, path) in [("GET", "/customers"), ("POST", "/customers"), ("PUT", &*item), ("DELETE", &*item)] {
                let body = if matches!(method, "POST" | "PUT") { ANN } else { "" };
                assert_eq!(ask(method, path, body), "TypeError", "{method}");
            }
            assert_eq!(stored_data(&server), before);
        }
    }
}

/// A person who is logged in at the server and then visits a page of another site.
struct VisitorSession<'a> {
    chromium: &'a Chromium,
    tab: Tab<'a>,
    server: &'a Server,
    victim: String,
    page: String,
    item: String,
}

impl<'a> VisitorSession<'a> {
    fn new(
        chromium: &'a Chromium,
        server: &'a Server,
        (victim, page): (&str, &str),
        elsewhere: SocketAddr,
    ) -> Self {
        let item = create_ann(server);
        let victim = format!("http://{victim}:{}", server.address.port());
        let page = foreign_site::page(elsewhere, page);
        let tab = chromium.tab();
        assert_eq!(tab.navigate(&format!("{victim}/customers"), &[&server.admin()]), 1);
        assert!(tab.text().contains("Ann"));
        // The list follows its changes, and a stream is logged when it ends.
        wait_until("the list is live", || tab.text().contains("Live").then_some(()));
        tab.navigate(&page, &[]);
        wait_until("the stream has ended", || {
            let logged = logged_requests(server, 0);
            let is_own = |(what, _, caller): &&(String, u64, String)| {
                what == "GET /customers" && caller == "admin"
            };
            (logged.iter().filter(is_own).count() == 2).then_some(())
        });
        tab.credentials();
        Self { chromium, tab, server, victim, page, item }
    }

    /// The number of logged requests, and all stored data.
    fn state(&self) -> (usize, String) {
        let stored = stored_data(self.server);
        (logged_count(self.server), stored)
    }

    fn run_attempt(&self, attempt: &CrossOriginAttempt) -> Value {
        // The test reads the log late: after this line, all requests before the attempt are in it.
        let watcher = watcher().basic();
        let answer = self.server.request("GET /nothing", &[("Authorization", &watcher)], "");
        let last = answer.header("X-Request-Id").unwrap();
        wait_until("the line is logged", || self.server.log().contains(last).then_some(()));
        let seen = logged_count(self.server);
        let Self { victim, item, .. } = self;
        let script = attempt.script;
        let got = self.tab.run_script(&format!(
            "(() => {{ const V = '{victim}', ITEM = '{item}'; {PRELUDE}; return {script} }})()"
        ));
        if let Some(late) = attempt.late_path {
            wait_until("the request is logged", || {
                logged_requests(self.server, seen)
                    .iter()
                    .find(|(what, ..)| what == late)
                    .map(|_| ())
            });
        }
        got
    }

    fn assert_nothing_leaked(&self, attempt: &CrossOriginAttempt, got: &Value, before: &str) {
        let what = format!("{} at {} from {}: {got}", attempt.name, self.victim, self.page);
        assert_eq!(stored_data(self.server), before, "{what}");
        let nothing = match got {
            Value::Null | Value::Bool(true) => true,
            Value::String(told) => {
                ["refused: TypeError", "refused", "failed", "hidden"].contains(&&**told)
            }
            _ => false,
        };
        assert!(nothing, "{what}");
        for shown in self.chromium.frames(&self.victim) {
            assert!(!shown.contains("customers") && !shown.contains("problems"), "{what} {shown}");
        }
    }

    /// With fetch metadata, the server refuses before it challenges.
    fn assert_refused(&self, attempt: &CrossOriginAttempt, before: usize) {
        for (what, status, caller) in logged_requests(self.server, before) {
            let name = attempt.name;
            let is_own = caller == "watcher";
            let is_refused = matches!(status, 308 | 403 | 404 | 405) && caller == "-";
            let is_question = what.starts_with("OPTIONS ");
            assert!(is_own || is_refused || is_question, "{name}: {what} {status} {caller}");
        }
    }

    /// No dialog was shown, so the browser still has its credentials.
    fn assert_logged_in(&self) {
        assert_eq!(self.tab.navigate(&format!("{}/customers", self.victim), &[]), 0);
        assert!(self.tab.text().contains("page"), "{}", self.tab.text());
        self.tab.navigate(&self.page, &[]);
    }

    /// A page may open a window or navigate its visitor here: the visitor sees it, the page does not.
    fn assert_windows_reveal_nothing(&self, is_told: bool) {
        let Self { tab, victim, .. } = self;
        let seen = logged_count(self.server);
        let came = |what: &str| {
            wait_until("the request is logged", || {
                let mut new = logged_requests(self.server, seen).into_iter();
                new.find(|(request, ..)| request == what)
            })
        };
        tab.run_script(&format!("void (opened = window.open('{victim}/customers'))"));
        // This proves that the browser adds its credentials, whichever page asks.
        let (_, status, caller) = came("GET /customers");
        // It may have the list cached, and then revalidates it.
        assert!(matches!(status, 200 | 304) && caller == "admin", "{status} {caller}");
        let look = "(() => { try { return opened.document.body.innerText } catch (error) { return error.name } })()";
        let kept_apart = if is_told { "opened.closed" } else { look };
        let expected = if is_told { Value::Bool(true) } else { "SecurityError".into() };
        wait_until("the window is out of reach", || {
            (tab.run_script(kept_apart) == expected).then_some(())
        });
        if is_told {
            tab.run_script(&format!("void (opened = window.open('{victim}/-/logout'))"));
            assert_eq!(came("GET /-/logout").1, 403);
            self.assert_logged_in();
        }
    }
}
