//! `nouns serve --demo`: the built-in store with customers and orders, in a temporary folder.
//!
//! The data is created by the same path as requests: intents, plans and the change log.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use http::Method;

use super::accounts;
use super::report::{CommandError, command_error};
use crate::intent::{self, RouteError};
use crate::model::Model;
use crate::permit::Caller;
use crate::plan::{self, Outcome, Plan};
use crate::problem::Problem;
use crate::store::{AdminStore, Database};
use crate::value::{Id, Item};

const CUSTOMERS: usize = 160;

const FIRST_NAMES: [&str; 16] = [
    "Ann", "Bao", "Carla", "Dmitri", "Esra", "Farid", "Grace", "Hiro", "Ines", "Jonas", "Kamala",
    "Liam", "Maya", "Noor", "Olga", "Pedro",
];
const LAST_NAMES: [&str; 17] = [
    "Lindqvist",
    "Nguyen",
    "Rossi",
    "Petrov",
    "Demir",
    "Haddad",
    "Okafor",
    "Tanaka",
    "Costa",
    "Weber",
    "Rao",
    "Byrne",
    "Levi",
    "Jansen",
    "Kowalska",
    "Silva",
    "Moreau",
];
/// A product and its price in cents.
const PRODUCTS: [(&str, u32); 13] = [
    ("Desk lamp", 3_900),
    ("Notebook, ruled", 650),
    ("Fountain pen", 2_450),
    ("Ink, blue-black", 980),
    ("Pencil case", 1_290),
    ("Office chair", 18_900),
    ("Standing desk", 42_500),
    ("Monitor arm", 7_900),
    ("Desk mat", 2_200),
    ("Paper, 500 sheets", 790),
    ("Bookend, pair", 1_850),
    ("Wall calendar", 1_490),
    ("Stapler", 1_120),
];
const NOTES: [&str; 5] = [
    "Leave it with the neighbour",
    "Gift wrap, without the invoice",
    "Call before delivery",
    "Deliver after 17:00",
    "Second entrance, third floor",
];
/// The states that an order goes through after it was placed.
const PROGRESS: [&[&str]; 7] = [
    &["paid", "shipped", "delivered"],
    &["paid", "shipped"],
    &[],
    &["paid"],
    &["cancelled"],
    &["paid", "shipped", "delivered"],
    &[],
];

/// The temporary folder, which is deleted at the end.
#[derive(Debug)]
pub struct DemoFolder(PathBuf);

impl DemoFolder {
    /// Creates a folder that only this user can open.
    pub fn create() -> Result<Self, CommandError> {
        let process = std::process::id();
        for attempt in 0..100 {
            let path = std::env::temp_dir().join(format!("nouns-demo-{process}-{attempt}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let path = path.display();
                    return Err(command_error(format!("cannot create the folder {path}: {error}")));
                }
            }
        }
        Err(command_error("cannot create a temporary folder: all names are taken"))
    }

    pub fn database(&self) -> String {
        format!("sqlite:{}", self.0.join("nouns.db").display())
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        // Nothing can be done about a folder that cannot be deleted.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Creates the customers and orders.
pub fn fill(database: &Database, model: &Arc<Model>) -> Result<(), CommandError> {
    let mut filler = DemoFiller { store: AdminStore::open(database, model)?, model };
    let customers = filler.create("/customers", &customer_bodies())?;
    let mut orders = 0;
    for (index, customer) in customers.iter().enumerate() {
        // Some customers have not ordered yet.
        let count = [2, 0, 1, 3, 1, 0, 2].get(index % 7).copied().unwrap_or(0);
        if count == 0 {
            continue;
        }
        let path = format!("/customers/{}/orders", customer.id.text());
        let created = filler.create(&path, &order_bodies(orders, count))?;
        for order in &created {
            filler.advance(&path, order.id, PROGRESS.get(orders % PROGRESS.len()).copied())?;
            orders += 1;
        }
    }
    Ok(())
}

struct DemoFiller<'a> {
    store: AdminStore,
    model: &'a Model,
}

impl DemoFiller<'_> {
    fn create(&mut self, path: &str, body: &str) -> Result<Vec<Item>, CommandError> {
        match self.send(&Method::POST, path, body)? {
            Outcome::CreatedMany(items) => Ok(items),
            _ => Err(failed("a create had another outcome")),
        }
    }

    /// Moves an order from state to state.
    fn advance(
        &mut self,
        collection: &str,
        id: Id,
        states: Option<&[&str]>,
    ) -> Result<(), CommandError> {
        let path = format!("{collection}/{}", id.text());
        for state in states.unwrap_or_default() {
            let body = format!(r#"{{"order":{{"status":"{state}"}}}}"#);
            self.send(&Method::PATCH, &path, &body)?;
        }
        Ok(())
    }

    /// Runs one request without HTTP.
    fn send(&mut self, method: &Method, path: &str, body: &str) -> Result<Outcome, CommandError> {
        let refused = |problem: Problem| failed(problem.kind().slug);
        let route = intent::route(self.model, method, path, None).map_err(|error| match error {
            RouteError::Problem(problem) => refused(problem),
            RouteError::Redirect(_) => failed("the path is redirected"),
        })?;
        let intent = intent::read(self.model, route, (None, &intent::AllReadable), body.as_bytes())
            .map_err(refused)?;
        let plan = plan::make(
            self.model,
            intent,
            &Caller::open(self.model),
            accounts::command_line_author,
        );
        match plan.map_err(refused)? {
            Plan::Write(write) => Ok(self.store.write(&write)?),
            _ => Err(failed("the data does not fit the built-in store")),
        }
    }
}

fn failed(cause: impl std::fmt::Display) -> CommandError {
    command_error(format!("cannot create the demo data: {cause}"))
}

/// The body that creates all customers.
fn customer_bodies() -> String {
    let mut body = String::from(r#"{"customers":["#);
    for index in 0..CUSTOMERS {
        // The lengths of the lists have no common divisor, so that no name comes twice.
        let first = pick(&FIRST_NAMES, index);
        let last = pick(&LAST_NAMES, index);
        let (lower_first, lower_last) = (first.to_lowercase(), last.to_lowercase());
        let _ = write!(
            body,
            r#"{}{{"name":"{first} {last}","email":"{lower_first}.{lower_last}@example.com"}}"#,
            separator(index),
        );
    }
    body.push_str("]}");
    body
}

/// The body that creates some orders of one customer. `from` is the number of the first.
fn order_bodies(from: usize, count: usize) -> String {
    let mut body = String::from(r#"{"orders":["#);
    for order in from..from + count {
        let _ = write!(body, r#"{}{{"items":["#, separator(order - from));
        for line in 0..=(order % 3) {
            let (product, price) = pick(&PRODUCTS, order * 5 + line * 4);
            let quantity = 1 + (order + line) % 4;
            let _ = write!(
                body,
                r#"{}{{"product":"{product}","quantity":{quantity},"unit_price":{price}}}"#,
                separator(line),
            );
        }
        body.push(']');
        if order % 4 == 1 {
            let _ = write!(body, r#","note":"{}""#, pick(&NOTES, order / 4));
        }
        body.push('}');
    }
    body.push_str("]}");
    body
}

fn pick<T: Copy + Default, const N: usize>(list: &[T; N], index: usize) -> T {
    list.get(index % N).copied().unwrap_or_default()
}

fn separator(index: usize) -> &'static str {
    if index == 0 { "" } else { "," }
}
