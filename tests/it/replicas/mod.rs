//! Several servers on one database.
//!
//! What one server does is for the other tests to show.
//! The one surprising thing: a test that also runs on SQLite has one server there, since a file has no
//! more.

mod checker;
mod load;
mod models;
mod one_item;
mod stored;

use crate::harness::{Backend, Folder, Server, Setup};

const REPLICAS: usize = 3;

/// As many servers as a backend can have on one database.
fn servers(backend: Backend, model: &str) -> Vec<Server> {
    match backend {
        Backend::Sqlite => vec![Setup::new(backend).model(model).start()],
        Backend::Postgres => {
            let first = Setup::new(backend).model(model).start();
            let address = first.database();
            let others = (1..REPLICAS)
                .map(|_| Setup::replica(address.clone()).model(model).start_in(Folder::new()));
            // The first one last: the database goes with it.
            let mut servers: Vec<_> = others.collect();
            servers.push(first);
            servers
        }
    }
}
