//! The lifecycle of an item, as a client drives it, and the number of requests that it may take.

use super::client_row::{ChallengePolicy, ClientRow, LifecycleAction};
use super::driver::{ClientDriver, StepResult};
use super::request_log::LoggedRequest;
use crate::harness::{ANN, Person, Server};

const BEA: &str = r#"{"customer":{"name":"Bea, née Žď","email":"bea@example.com"}}"#;

/// A logged-in client, with its row.
pub struct LoggedInClient<'a> {
    pub driver: &'a mut ClientDriver,
    pub row: &'a ClientRow,
    /// Whether it is the version for which the row was written.
    pub is_tested_version: bool,
}

impl LoggedInClient<'_> {
    /// Takes an item from creation to deletion, with every method, with queries and bodies. `hand` does
    /// what the client cannot, so that the remaining actions can be tested.
    pub fn run_lifecycle(&mut self, hand: &mut ReferenceClient<'_>) {
        self.run_action(LifecycleAction::List, "GET /customers?limit=%32", "");
        let created = self.run_action(LifecycleAction::Create, "POST /customers", ANN);
        self.run_action(LifecycleAction::Query, "POST /customers?limit=%22a%2Fb%22&x=1", ANN);
        let id = match created.status {
            201 => created.json()["customer"]["id"].as_str().unwrap().to_owned(),
            _ => hand.create(),
        };
        let path = format!("/customers/{id}");
        let read = self.run_action(LifecycleAction::Read, &format!("GET {path}"), "");
        if created.status == 201 {
            assert_eq!(read.json(), created.json(), "{}", self.row.name);
        }
        let replaced = self.run_action(LifecycleAction::Replace, &format!("PUT {path}"), BEA);
        if replaced.status == 200 {
            assert_eq!(replaced.json()["customer"]["name"], "Bea, née Žď", "{}", self.row.name);
        }
        self.run_action(LifecycleAction::Children, &format!("GET {path}/orders?limit=5"), "");
        let deleted = self.run_action(LifecycleAction::Delete, &format!("DELETE {path}"), "");
        self.run_action(LifecycleAction::Gone, &format!("GET {path}"), "");
        if deleted.status != 204 {
            hand.delete(&path);
        }
    }

    fn run_action(&mut self, act: LifecycleAction, line: &str, body: &str) -> StepResult {
        let step = self.driver.step(line, body);
        let known = self.row.failing_actions.iter().find(|(failing, _)| *failing == act);
        let status = known.map_or(act.status(), |(_, status)| *status);
        let is_better = !self.is_tested_version && step.status == act.status();
        assert!(step.status == status || is_better, "{}, {act:?}: {step:?}", self.row.name);
        step
    }

    /// Asserts that there were only the challenges that the client's row allows, and successful
    /// requests.
    pub fn assert_first_try(&self, asked: &[LoggedRequest], steps: usize) {
        let challenges = match self.row.challenge_policy {
            ChallengePolicy::Never => 0,
            ChallengePolicy::Once => 1,
            ChallengePolicy::EachTime => steps,
        };
        let name = self.row.name;
        let refused: Vec<_> = asked.iter().filter(|asked| asked.status == 401).collect();
        let are_challenges = refused.iter().all(|asked| asked.problem == "credentials-needed");
        assert!(are_challenges, "{name}: {asked:?}");
        assert!(refused.len() <= challenges, "{name}: {asked:?}");
        assert!(!self.is_tested_version || refused.len() == challenges, "{name}: {asked:?}");
        assert_eq!(asked.len(), steps + refused.len(), "{name}: {asked:?}");
    }
}

/// A reference client that does what a tested client cannot.
pub struct ReferenceClient<'a> {
    pub server: &'a Server,
    pub admin: &'a Person,
}

impl ReferenceClient<'_> {
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
