//! Permissions over HTTP: the same rows, routes and tables as in `src/pipeline/grants/`, which tests
//! them from inside.
//!
//! There is one user, whose roles change from column to column; hashing a password takes time, and a
//! change of roles takes effect at the next request.

mod write_responses;
mod hidden_fields;
mod server_paths;
mod several_roles;

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Person, Server, Setup};

const MODEL: &str = include_str!("../models/grants.toml");
const ROWS: &str = include_str!("../../../src/pipeline/grants/rows.txt");
const ROUTES: &str = include_str!("../../../src/pipeline/grants/routes.txt");
const TABLE: &str = include_str!("../../../src/pipeline/grants/table.txt");
const TOLD: &str = include_str!("../../../src/pipeline/grants/told.txt");
const SEEN: &str = include_str!("../../../src/pipeline/grants/seen.txt");

/// A server with the user ann, and a connection to it.
struct PermissionsFixture {
    client: Client,
    _server: Server,
    admin: String,
    ann: String,
    /// The path of the user ann.
    path: String,
    is_anyone: bool,
}

impl PermissionsFixture {
    fn open(backend: Backend) -> Self {
        Self::with_model(backend, MODEL)
    }

    fn with_model(backend: Backend, model: &str) -> Self {
        let server = Setup::new(backend).model(model).with_authentication().start();
        let ann = Person::new("ann", "one for all roles");
        let path = server.add_user(&ann, &[]);
        let (admin, ann) = (server.admin().basic(), ann.basic());
        Self { client: server.client(), _server: server, admin, ann, path, is_anyone: false }
    }

    /// Gives ann this role, or none; `anyone` sends no credentials.
    fn set_role(&mut self, role: &str) {
        self.is_anyone = role == "anyone";
        let roles = [role];
        self.set_roles(if matches!(role, "none" | "anyone") { &[] } else { &roles });
    }

    fn set_roles(&mut self, roles: &[&str]) {
        let body = json!({"user": {"name": "ann", "roles": roles}}).to_string();
        let line = format!("PUT {}", self.path);
        assert_eq!(self.request_as_admin(&line, &body).status, 200);
    }

    fn request(&mut self, line: &str, body: &str) -> Answer {
        let headers = [("Authorization", self.ann.as_str())];
        let headers = if self.is_anyone { &[] } else { &headers[..] };
        self.client.request(line, headers, body)
    }

    fn request_with(&mut self, line: &str, header: (&str, &str), body: &str) -> Answer {
        let headers = [("Authorization", self.ann.as_str()), header];
        self.client.request(line, &headers, body)
    }

    fn request_as_admin(&mut self, line: &str, body: &str) -> Answer {
        self.client.request(line, &[("Authorization", &self.admin)], body)
    }

    fn create_as_admin(&mut self, line: &str, body: &str) -> String {
        let answer = self.request_as_admin(line, body);
        assert_eq!(answer.status, 201, "{line} {body}: {answer:?}");
        answer.header("Location").unwrap().to_owned()
    }
}

/// Names and paths of the created items.
struct CreatedItems(Vec<(&'static str, String)>);

impl CreatedItems {
    fn make(office: &mut PermissionsFixture, of: &str) -> Self {
        let mut rows = Self(Vec::new());
        for (name, asked) in ROWS.lines().map(|line| line.split_once(' ').unwrap()) {
            let (line, body) = split_line(asked);
            let (line, body) = (rows.with_paths(line), body.replace("OF", of));
            if line.starts_with("POST ") {
                rows.0.push((name, office.create_as_admin(&line, &body)));
            } else {
                assert_eq!(office.request_as_admin(&line, &body).status, 200);
            }
        }
        rows
    }

    fn replace_names(&self, text: &str, pair: impl Fn(&str, &str) -> (String, String)) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, path)| {
            let (from, to) = pair(name, path);
            text.replace(&from, &to)
        })
    }

    /// A request line with the paths in place of the names in braces.
    fn with_paths(&self, line: &str) -> String {
        self.replace_names(line, |name, path| (format!("{{{name}}}"), path.to_owned()))
    }

    /// A body with the ids in place of `{id:NAME}`.
    fn with_ids(&self, body: &str) -> String {
        self.replace_names(body, |name, path| (format!("{{id:{name}}}"), id(path).to_owned()))
    }

    /// Replaces paths and ids by the names.
    fn with_names(&self, text: &str) -> String {
        self.replace_names(text, |name, path| (id(path).to_owned(), format!("{{id:{name}}}")))
    }
}

fn id(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

/// Method and path, and the body, which may be missing.
fn split_line(line: &str) -> (&str, &str) {
    let (asked, body) = line.split_at(line.find(" {\"").unwrap_or(line.len()));
    (asked, body.trim_start())
}

/// The table, derived from the responses.
fn permissions_table(office: &mut PermissionsFixture) -> String {
    let roles: Vec<&str> = TABLE.lines().next().unwrap().split_whitespace().collect();
    let mut lines: Vec<String> = vec![format!("{:<26}", "")];
    lines.extend(ROUTES.lines().map(|line| format!("{:<26}", split_line(line).0)));
    for role in roles {
        let rows = CreatedItems::make(office, role);
        office.set_role(role);
        write!(lines[0], "{role:<9}").unwrap();
        for (number, (line, body)) in ROUTES.lines().map(split_line).enumerate() {
            let answer = office.request(&rows.with_paths(line), &body.replace("ROLE", role));
            write!(lines[number + 1], "{:<9}", answer.status).unwrap();
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A response in the format of `told.txt` and `seen.txt`.
fn format_response(answer: &Answer, rows: &CreatedItems) -> String {
    let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let mut text = format!("  {}", answer.status);
    for name in ["type", "detail", "state", "allowed", "errors"] {
        if body[name] != Value::Null {
            write!(text, " {name}={}", body[name]).unwrap();
        }
    }
    for name in ["deprecation", "link"] {
        if let Some(value) = answer.header(name) {
            write!(text, " {name}: {value}").unwrap();
        }
    }
    if answer.status < 300 {
        strip(&mut body);
        write!(text, " {body}").unwrap();
    }
    rows.with_names(&text)
}

/// Removes what differs from run to run.
fn strip(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for name in ["id", "created_at", "updated_at", "team_id", "project_id", "page"] {
                members.remove(name);
            }
            members.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Sends the requests of a file, as the roles that it names, and records the responses.
fn run_file(office: &mut PermissionsFixture, rows: &CreatedItems, file: &str) -> String {
    let mut text = String::new();
    for line in file.lines() {
        if let Some(role) = line.strip_prefix("- ") {
            office.set_role(role);
            writeln!(text, "{line}").unwrap();
        } else if !line.starts_with(' ') {
            let (asked, body) = split_line(line);
            let answer = office.request(&rows.with_paths(asked), &rows.with_ids(body));
            writeln!(text, "{line}\n{}", format_response(&answer, rows)).unwrap();
        }
    }
    text
}

on_every_backend! {
    fn permissions_of_every_verb_route_and_role_match_the_table(backend: Backend) {
        let mut office = PermissionsFixture::open(backend);
        assert_eq!(permissions_table(&mut office), TABLE);
    }

    /// Two roles combine their rows, and neither extends its fields to the rows of the other.
    fn permissions_of_two_roles_do_not_mix_rows_and_fields(backend: Backend) {
        let mut office = PermissionsFixture::open(backend);
        let rows = CreatedItems::make(&mut office, "x");
        let mut seen = |roles: &[&str]| {
            office.set_roles(roles);
            let teams = office.request("GET /teams", "").json();
            let teams = teams["teams"].as_array().unwrap().clone();
            let shown = teams.iter().filter(|team| team.get("budget").is_some()).count();
            let put = office.request(&rows.with_paths("PUT {mine}"), r#"{"team":{"name":"mine x","lead":"ann","budget":"1.00"}}"#);
            (teams.len(), shown, put.status)
        };
        assert_eq!(seen(&["lead"]), (1, 1, 200), "its own team, with its budget");
        assert_eq!(seen(&["member"]), (2, 0, 403), "both, and no budget");
        assert_eq!(seen(&["lead", "member"]), (2, 0, 200), "the budget of some would be that of all");
        assert_eq!(seen(&["lead", "manager"]), (2, 2, 200));
    }

    /// Rows and fields without permission, in responses and in refusals.
    fn permissions_responses_and_refusals_match_the_files(backend: Backend) {
        let mut office = PermissionsFixture::open(backend);
        let mut rows = CreatedItems::make(&mut office, "x");
        assert_eq!(run_file(&mut office, &rows, SEEN), SEEN);
        let task = rows.with_ids(r#"{"task":{"text":"a","assignee":"ann","label":"{id:private}"}}"#);
        let kept = office.create_as_admin(&rows.with_paths("POST {mine.live}/tasks"), &task);
        rows.0.push(("kept", kept));
        let held = rows.with_ids(r#"{"task":{"text":"held","label":"{id:private}"}}"#);
        office.create_as_admin(&rows.with_paths("POST {theirs.live}/tasks"), &held);
        assert_eq!(run_file(&mut office, &rows, TOLD), TOLD);
    }
}
