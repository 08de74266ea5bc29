//! Tests of grants on both engines: requests from the route to the reply, with given callers.
//!
//! They leave out the parts of the pipeline that do not depend on the caller: sockets, heads, limits.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use expect_test::{ExpectFile, expect_file};
use http::{HeaderMap, Method};
use serde_json::Value;

use crate::clock;
use crate::formats::accept::Accept;
use crate::formats::json::{FORMAT, ProblemContext};
use crate::intent::preconditions::Preconditions;
use crate::intent::{self, RouteError};
use crate::model::{self, Model};
use crate::permit::{self, AccessDenied, Caller, Rights};
use crate::plan::{self, ChangeAuthor, ChangesRead, Outcome, Plan, ReadPlan};
use crate::problem::Problem;
use crate::reply::{self, Reply, ReplyBuilder, ResponseContext};
use crate::store::{StoreWorker, WriteOptions, test_stores};

const ROLES: &[&str] =
    &["admin", "manager", "lead", "member", "outsider", "clerk", "none", "anyone"];

fn read() -> Arc<Model> {
    let text = include_str!("../../tests/it/models/grants.toml");
    Arc::new(model::read("grants.toml", text).unwrap_or_else(|errors| panic!("{errors}")))
}

/// Every caller is named ann, but for `anyone`, who has no name.
fn caller(model: &Model, role: &str) -> Caller {
    let rights = Arc::new(Rights::of_roles(model, [role].into_iter()));
    if role == "anyone" { Caller::anonymous(rights) } else { Caller::user("ann".into(), rights) }
}

struct GrantsServer<'a> {
    model: &'a Model,
    worker: &'a StoreWorker,
    replies: ReplyBuilder,
}

struct GrantsAnswer {
    status: u16,
    headers: HeaderMap,
    body: Value,
}

impl<'a> GrantsServer<'a> {
    fn new(model: &'a Model, worker: &'a StoreWorker) -> Self {
        Self { model, worker, replies: ReplyBuilder::new(model, "") }
    }

    async fn answer(&self, caller: &Caller, asked: &str, body: &str) -> Result<Reply, RouteError> {
        let Self { model, worker, replies } = self;
        let (method, path) = asked.split_once(' ').unwrap();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let route = intent::route(model, &method, path, None)?;
        permit::check(caller, &route).map_err(AccessDenied::problem)?;
        let by = || ChangeAuthor::of_caller(caller, "r");
        let intent = intent::read(model, route, (None, &intent::AllReadable), body.as_bytes())?;
        let plan = plan::make(model, intent, caller, by)?;
        let (about, list) = (plan.collection().cloned(), plan.list().cloned());
        let done = match plan {
            Plan::Static(saying) => {
                let form = (&FORMAT, &Preconditions::default());
                return Ok(reply::static_reply(model, &saying, form)?);
            }
            Plan::Watch(_) => unreachable!("no test asks for an event stream"),
            Plan::Metrics => return Ok(reply::metrics(String::new())),
            Plan::Read(ReadPlan::Changes(read)) => {
                return self.changes(*read).await;
            }
            Plan::Read(read) => worker.read(read).await,
            Plan::Write(write) => {
                worker
                    .write(
                        write,
                        WriteOptions::with_deadline(clock::now() + Duration::from_secs(60)),
                    )
                    .await
            }
        };
        let outcome = done.map_err(|error| reply::failure(model, about.as_ref(), error))?;
        let Some(collection) = &about else { return Ok(reply::ready()) };
        let (list, conditions) = (list.as_deref(), &Preconditions::default());
        let about = ResponseContext { model, collection, list, conditions, format: &FORMAT };
        Ok(replies.outcome(&about, &outcome)?)
    }

    async fn changes(&self, read: ChangesRead) -> Result<Reply, RouteError> {
        let ChangesRead { scope, query } = read;
        let again = ChangesRead { scope: scope.clone(), query: Arc::clone(&query) };
        let done = self.worker.read(ReadPlan::Changes(Box::new(again))).await;
        let outcome = done.map_err(|error| reply::failure(self.model, None, error))?;
        let Outcome::Changes(page) = outcome else { panic!("{outcome:?}") };
        Ok(reply::changes_page(self.model, &ChangesRead { scope, query }, &page, &FORMAT))
    }

    async fn request(&self, caller: &Caller, asked: &str, body: &str) -> GrantsAnswer {
        let reply = match self.answer(caller, asked, body).await {
            Ok(reply) => reply,
            Err(RouteError::Redirect(to)) => panic!("moved to {to}"),
            Err(RouteError::Problem(problem)) => problem_reply(&problem),
        };
        let body = serde_json::from_slice(&reply.body).unwrap_or(Value::Null);
        GrantsAnswer { status: reply.status.as_u16(), headers: reply.headers, body }
    }

    /// Creates an item as a caller with all rights; returns its path.
    async fn make(&self, path: &str, body: &str) -> String {
        let answer = self.request(&Caller::open(self.model), &format!("POST {path}"), body).await;
        assert_eq!(answer.status, 201, "{path} {body}: {}", answer.body);
        answer.headers["location"].to_str().unwrap().to_owned()
    }
}

fn problem_reply(problem: &Problem) -> Reply {
    let occasion = ProblemContext { base_path: "", path: None, request_id: "r" };
    reply::problem(problem, &Accept::ANYTHING, occasion)
}

/// Two of each resource: one that ann is related to, and one that she is not. The names are those of the
/// routes.
struct GrantsRows(Vec<(&'static str, String)>);

impl GrantsRows {
    async fn make(server: &GrantsServer<'_>, of: &str) -> Self {
        let mut rows = Self(Vec::new());
        for (name, asked) in ROWS.lines().map(|line| line.split_once(' ').unwrap()) {
            let (asked, body) = split_body(asked);
            let (asked, body) = (rows.fill_paths(asked), body.replace("OF", of));
            match asked.strip_prefix("POST ") {
                Some(path) => rows.0.push((name, server.make(path, &body).await)),
                None => {
                    let admin = Caller::open(server.model);
                    assert_eq!(server.request(&admin, &asked, &body).await.status, 200);
                }
            }
        }
        rows
    }

    /// A body with the ids instead of `{id:NAME}`.
    fn fill_ids(&self, body: &str) -> String {
        let fill = |text: String, (name, path): &(&str, String)| {
            text.replace(&format!("{{id:{name}}}"), path.rsplit('/').next().unwrap())
        };
        self.0.iter().fold(body.to_owned(), fill)
    }

    /// A text with the names instead of the ids.
    fn mask_ids(&self, text: String) -> String {
        let name = |text: String, (name, path): &(&str, String)| {
            text.replace(path.rsplit('/').next().unwrap(), &format!("{{id:{name}}}"))
        };
        self.0.iter().fold(text, name)
    }

    /// A route with the paths instead of the names in braces.
    fn fill_paths(&self, route: &str) -> String {
        let fill = |text: String, (name, path): &(&str, String)| {
            text.replace(&format!("{{{name}}}"), path)
        };
        self.0.iter().fold(route.to_owned(), fill)
    }
}

/// The stored items: a name, and the request that creates or changes it. `tests/it/roles/` reads these
/// files too.
const ROWS: &str = include_str!("grants/rows.txt");
/// Every verb on every route; DELETE last, from the bottom up.
const ROUTES: &str = include_str!("grants/routes.txt");

/// Method and path, and the body, which may be missing.
fn split_body(line: &str) -> (&str, &str) {
    let (asked, body) = line.split_at(line.find(" {\"").unwrap_or(line.len()));
    (asked, body.trim_start())
}

#[test]
fn grants_every_verb_route_and_role_gives_the_expected_status() {
    let model = read();
    check_on_each_engine(
        &model,
        "grants_table",
        &async |server| {
            let mut columns = Vec::new();
            for role in ROLES {
                let (caller, rows) = (caller(&model, role), GrantsRows::make(server, role).await);
                let mut column = vec![(*role).to_owned()];
                for (route, body) in ROUTES.lines().map(split_body) {
                    let body = body.replace("ROLE", role);
                    column.push(
                        server
                            .request(&caller, &rows.fill_paths(route), &body)
                            .await
                            .status
                            .to_string(),
                    );
                }
                columns.push(column);
            }
            let names = [""].into_iter().chain(ROUTES.lines().map(|line| split_body(line).0));
            let lines = names.enumerate().map(|(line, route)| {
                let cells = columns.iter().map(|column| format!("{:<9}", column[line]));
                format!("{route:<26}{}\n", cells.collect::<String>().trim_end())
            });
            lines.collect()
        },
        &expect_file!["grants/table.txt"],
    );
}

/// Checks that every engine gives the same transcript.
fn check_on_each_engine(
    model: &Arc<Model>,
    name: &str,
    work: &impl AsyncFn(&GrantsServer<'_>) -> String,
    expected: &ExpectFile,
) {
    let shown = RefCell::new(Vec::new());
    test_stores::on_each_engine(name, model, &async |worker| {
        let text = work(&GrantsServer::new(model, worker)).await;
        shown.borrow_mut().push(text);
    });
    let shown = shown.into_inner();
    assert!(shown.iter().all(|text| *text == shown[0]), "{shown:#?}");
    expected.assert_eq(&shown[0]);
}

/// A request and its response, without ids and times.
async fn transcript(
    server: &GrantsServer<'_>,
    caller: &Caller,
    (asked, body): (&str, &str),
    rows: &GrantsRows,
) -> String {
    let answer = server.request(caller, &rows.fill_paths(asked), &rows.fill_ids(body)).await;
    let mut text = format!("{}\n  {}", format!("{asked} {body}").trim_end(), answer.status);
    let members = ["type", "detail", "state", "allowed", "errors"];
    for name in members.iter().filter(|name| answer.body[**name] != Value::Null) {
        write!(text, " {name}={}", answer.body[*name]).unwrap();
    }
    for name in ["deprecation", "link"] {
        if let Some(value) = answer.headers.get(name) {
            write!(text, " {name}: {}", value.to_str().unwrap()).unwrap();
        }
    }
    if answer.status < 300 {
        let mut body = answer.body;
        strip(&mut body);
        write!(text, " {body}").unwrap();
    }
    rows.mask_ids(text) + "\n"
}

/// Removes the parts that differ from run to run.
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

#[test]
fn grants_reads_show_each_role_its_rows_and_fields() {
    let model = read();
    let asked = [
        "GET /",
        "GET /teams",
        "GET {mine}/projects",
        "GET {mine.live}/tasks",
        "GET /projects",
        "GET /tasks",
        "GET /labels",
    ];
    check_on_each_engine(
        &model,
        "grants_seen",
        &async |server| {
            let rows = GrantsRows::make(server, "x").await;
            let mut text = String::new();
            for role in ["manager", "lead", "member", "clerk", "anyone"] {
                writeln!(text, "- {role}").unwrap();
                for asked in asked {
                    text += &transcript(server, &caller(&model, role), (asked, ""), &rows).await;
                }
            }
            text
        },
        &expect_file!["grants/seen.txt"],
    );
}

#[test]
fn etag_depends_on_the_fields_that_the_caller_sees() {
    let model = read();
    test_stores::on_each_engine("grants_tags", &model, &async |worker| {
        let server = GrantsServer::new(&model, worker);
        let rows = GrantsRows::make(&server, "x").await;
        let tag = async |role: &str, asked: &str| {
            let answer = server.request(&caller(&model, role), &rows.fill_paths(asked), "").await;
            answer.headers["etag"].clone()
        };
        let all = tag("admin", "GET {mine}").await;
        assert_eq!(all, tag("manager", "GET {mine}").await);
        assert_eq!(all, tag("lead", "GET {mine}").await);
        assert_ne!(all, tag("member", "GET {mine}").await);
        assert_eq!(tag("member", "GET {mine}").await, tag("member", "HEAD {mine}").await);
    });
}

const MEMBER: &[(&str, &str)] = &[
    // A hidden field is unknown, also to a client that guesses its name.
    ("PUT {mine.live}", r#"{"project":{"title":"a","code":"x"}}"#),
    ("PUT {mine.live}", r#"{"project":{"title":"a","cost":"x"}}"#),
    ("PUT {mine.live}", r#"{"project":{"title":"a","cod":"x","rat":1,"tittle":"b"}}"#),
    // It keeps its stored value, and so does a read-only field that is left out.
    ("PUT {mine.live}", r#"{"project":{"title":"a","place":{"city":"Rome"}}}"#),
    ("PUT {mine.live}", r#"{"project":{"title":"a","owner":"ann"}}"#),
    ("PUT {mine.live}", r#"{"project":{"title":"a","owner":"eve"}}"#),
    ("PUT {mine.live}", r#"{"project":{"title":"a","owner":null}}"#),
    // A hidden computed field is not named in its fault either.
    ("PUT {mine.live}", r#"{"project":{"title":"a","hours":9007199254740991}}"#),
    // A missing row and an invisible row are the same.
    ("PUT {mine.live.own}", r#"{"task":{"text":"a","assignee":"ann","label":"{id:public}"}}"#),
    ("PUT {mine.live.own}", r#"{"task":{"text":"a","assignee":"ann","label":"{id:private}"}}"#),
    (
        "PUT {mine.live.own}",
        r#"{"task":{"text":"a","assignee":"ann","label":"01890a5d-ac96-774b-bcce-b302099a8057"}}"#,
    ),
    ("PUT {mine.live.own}", r#"{"task":{"text":7,"label":"{id:private}"}}"#),
    ("GET {mine.live.other}", ""),
    ("GET /teams/01890a5d-ac96-774b-bcce-b302099a8057/projects", ""),
    ("GET {mine.draft}/tasks", ""),
    // A stored reference may stay, also where its target is not visible.
    ("GET {kept}", ""),
    ("PUT {kept}", r#"{"task":{"text":"b","assignee":"ann","label":"{id:private}"}}"#),
    ("PUT {kept}", r#"{"task":{"text":7,"label":"{id:private}"}}"#),
    // Outside the caller's own rows.
    ("PUT {mine.live.own}", r#"{"task":{"text":"a","assignee":"bob"}}"#),
    (
        "POST {mine.live}/tasks",
        r#"{"tasks":[{"text":"a","assignee":"ann"},{"text":"b","size":2}]}"#,
    ),
    ("POST {mine.live}/tasks", r#"{"task":{"text":"a","assignee":"bob","size":1}}"#),
    // Of the deprecated fields only the visible ones count.
    ("GET {mine}", ""),
];

const LEAD: &[(&str, &str)] = &[
    ("PUT {mine}", r#"{"team":{"name":"theirs x","lead":"ann"}}"#),
    ("PUT {mine}", r#"{"team":{"lead":"bob"}}"#),
    ("POST {mine}/projects", r#"{"project":{"title":"t","code":"mine draft x"}}"#),
    ("POST {mine}/projects", r#"{"project":{"title":"t","code":"theirs live x"}}"#),
    ("GET {mine}", ""),
];

const CLERK: &[(&str, &str)] = &[
    ("POST {mine}/projects", r#"{"project":{"title":"t","place":{"city":"Rome"}}}"#),
    ("POST {mine}/projects", r#"{"project":{"title":"t","place":{"city":"Paris"}}}"#),
    ("POST /labels", r#"{"label":{"name":"private x","public":false}}"#),
    ("POST /labels", r#"{"label":{"name":"public x","public":false}}"#),
    ("DELETE {private}", ""),
];

/// A hidden field is unknown, an invisible row does not exist, and a refusal reveals nothing else of either.
#[test]
fn grants_refusals_do_not_reveal_hidden_rows_or_fields() {
    let model = read();
    check_on_each_engine(
        &model,
        "grants_told",
        &async |server| {
            let mut rows = GrantsRows::make(server, "x").await;
            let body = r#"{"task":{"text":"a","assignee":"ann","label":"{id:private}"}}"#;
            let kept =
                server.make(&rows.fill_paths("{mine.live}/tasks"), &rows.fill_ids(body)).await;
            rows.0.push(("kept", kept));
            // A reference that blocks a removal, from a resource that the clerk cannot see.
            let body = rows.fill_ids(r#"{"task":{"text":"held","label":"{id:private}"}}"#);
            server.make(&rows.fill_paths("{theirs.live}/tasks"), &body).await;
            let mut text = String::new();
            for (role, asked) in [("member", MEMBER), ("lead", LEAD), ("clerk", CLERK)] {
                writeln!(text, "- {role}").unwrap();
                for asked in asked {
                    text += &transcript(server, &caller(&model, role), *asked, &rows).await;
                }
            }
            // Fields that the member could not send keep their values.
            text += "- admin\n";
            text + &transcript(server, &Caller::open(&model), ("GET {mine.live}", ""), &rows).await
        },
        &expect_file!["grants/told.txt"],
    );
}
