//! Row filters that depend on other items: paths over parents and refs, lists, memberships.

mod members;
mod mistakes;
mod paths;
mod random;
mod references;
mod user_fields;

use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Person, Server, Setup};

/// A server with some users, and a connection to it.
pub struct RowRules {
    pub server: Server,
    client: Client,
    logins: Vec<(String, String)>,
}

impl RowRules {
    /// Users are names with a role each.
    pub fn start(backend: Backend, model: &str, users: &[(&str, &str)]) -> Self {
        let server = Setup::new(backend).model(model).with_authentication().start();
        let mut logins = vec![("admin".to_owned(), server.admin().basic())];
        for (name, role) in users {
            let person = Person::new(name, "a word for each");
            server.add_user(&person, &[role]);
            logins.push(((*name).to_owned(), person.basic()));
        }
        Self { client: server.client(), server, logins }
    }

    pub fn login(&self, user: &str) -> String {
        let found = self.logins.iter().find(|(name, _)| name == user);
        found.unwrap_or_else(|| panic!("{user}")).1.clone()
    }

    pub fn request(&mut self, user: &str, line: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let login = self.login(user);
        self.client.request(line, &[("Authorization", &login)], body)
    }

    /// Creates an item as admin; returns its path.
    pub fn create(&mut self, path: &str, body: &Value) -> String {
        let made = self.request("admin", &format!("POST {path}"), body);
        assert_eq!(made.status, 201, "{path} {body}: {made:?}");
        made.header("Location").unwrap().to_owned()
    }

    /// Creates several items, and expects a status.
    pub fn post_many(&mut self, user: &str, path: &str, body: &Value, status: u16) {
        let answer = self.request(user, &format!("POST {path}"), body);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }

    pub fn status(&mut self, user: &str, line: &str, body: &Value) -> u16 {
        self.request(user, line, body).status
    }

    /// The values of a field in a list, sorted.
    pub fn list(&mut self, user: &str, path: &str, field: &str) -> Vec<String> {
        let answer = self.request(user, &format!("GET {path}"), &Value::Null);
        assert_eq!(answer.status, 200, "{path} as {user}: {answer:?}");
        let page = answer.json();
        let (_, items) =
            page.as_object().unwrap().iter().find(|(name, _)| *name != "page").unwrap();
        let mut found: Vec<String> =
            items.as_array().unwrap().iter().map(|item| text(&item[field])).collect();
        found.sort();
        found
    }

    /// The kinds and ids of the changes that a user sees, of all that the log has.
    pub fn changes(&mut self, user: &str, resource: &str) -> Vec<(String, String)> {
        let answer = self.request(user, "GET /-/changes?since=0&limit=500", &Value::Null);
        assert_eq!(answer.status, 200, "{answer:?}");
        let changes = answer.json()["changes"].as_array().unwrap().clone();
        let changes = changes.into_iter().filter(|change| change["resource"] == resource);
        changes.map(|change| (text(&change["kind"]), text(&change["id"]))).collect()
    }
}

pub fn id(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

pub fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A reference to the item at a path.
pub fn reference(path: &str) -> Value {
    let id = id(path);
    id.parse::<i64>().map_or_else(|_| json!(id), |number| json!(number))
}
