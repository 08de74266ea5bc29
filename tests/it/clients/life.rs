//! The lifecycle of an item, as a client drives it, and the number of requests that it may take.

use super::driver::{Driver, Step};
use super::kind::{Act, Asks, Kind};
use super::watch::Asked;
use crate::harness::{Person, Server};

pub const ANN: &str = r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#;
const BEA: &str = r#"{"customer":{"name":"Bea, née Žď","email":"bea@example.com"}}"#;

/// A logged-in client, with its row.
pub struct Client<'a> {
    pub driver: &'a mut Driver,
    pub kind: &'a Kind,
    /// Whether it is the version for which the row was written.
    pub is_seen: bool,
}

impl Client<'_> {
    /// Takes an item from creation to deletion, with every method, with queries and bodies. `hand` does
    /// what the client cannot, so that the remaining actions can be tested.
    pub fn live(&mut self, hand: &mut Hand<'_>) {
        self.act(Act::List, "GET /customers?limit=%32", "");
        let created = self.act(Act::Create, "POST /customers", ANN);
        self.act(Act::Query, "POST /customers?limit=%22a%2Fb%22&x=1", ANN);
        let id = match created.status {
            201 => created.json()["customer"]["id"].as_str().unwrap().to_owned(),
            _ => hand.create(),
        };
        let path = format!("/customers/{id}");
        let read = self.act(Act::Read, &format!("GET {path}"), "");
        if created.status == 201 {
            assert_eq!(read.json(), created.json(), "{}", self.kind.name);
        }
        let replaced = self.act(Act::Replace, &format!("PUT {path}"), BEA);
        if replaced.status == 200 {
            assert_eq!(replaced.json()["customer"]["name"], "Bea, née Žď", "{}", self.kind.name);
        }
        self.act(Act::Children, &format!("GET {path}/orders?limit=5"), "");
        let deleted = self.act(Act::Delete, &format!("DELETE {path}"), "");
        self.act(Act::Gone, &format!("GET {path}"), "");
        if deleted.status != 204 {
            hand.delete(&path);
        }
    }

    fn act(&mut self, act: Act, line: &str, body: &str) -> Step {
        let step = self.driver.step(line, body);
        let known = self.kind.fails.iter().find(|(failing, _)| *failing == act);
        let status = known.map_or(act.status(), |(_, status)| *status);
        let is_better = !self.is_seen && step.status == act.status();
        assert!(step.status == status || is_better, "{}, {act:?}: {step:?}", self.kind.name);
        step
    }

    /// Asserts that there were only the challenges that the client's row allows, and successful
    /// requests.
    pub fn assert_first_try(&self, asked: &[Asked], steps: usize) {
        let challenges = match self.kind.asks {
            Asks::Never => 0,
            Asks::Once => 1,
            Asks::EachTime => steps,
        };
        let name = self.kind.name;
        let refused: Vec<_> = asked.iter().filter(|asked| asked.status == 401).collect();
        let are_challenges = refused.iter().all(|asked| asked.problem == "credentials-needed");
        assert!(are_challenges, "{name}: {asked:?}");
        assert!(refused.len() <= challenges, "{name}: {asked:?}");
        assert!(!self.is_seen || refused.len() == challenges, "{name}: {asked:?}");
        assert_eq!(asked.len(), steps + refused.len(), "{name}: {asked:?}");
    }
}

/// A reference client that does what a tested client cannot.
pub struct Hand<'a> {
    pub server: &'a Server,
    pub admin: &'a Person,
}

impl Hand<'_> {
    fn create(&mut self) -> String {
        let answer = self.send("POST /customers", ANN, 201);
        answer.json()["customer"]["id"].as_str().unwrap().to_owned()
    }

    fn delete(&mut self, path: &str) {
        self.send(&format!("DELETE {path}"), "", 204);
    }

    fn send(&mut self, line: &str, body: &str, status: u16) -> crate::harness::Answer {
        let answer = self.admin.log_in(self.server, "/customers").request(self.server, line, body);
        assert_eq!(answer.status, status, "{line}: {answer:?}");
        answer
    }
}
