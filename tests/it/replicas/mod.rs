//! Replicas: several servers on one database.
//!
//! Other tests cover the behaviour of one server.
//! A test that also runs on SQLite has one server there, since a file allows no more.

mod checker;
mod load;
mod models;
mod one_item;
mod postgres_contents;

use crate::harness::{Backend, Folder, Server, Setup};

const REPLICAS: usize = 3;

/// As many servers as a backend allows on one database.
fn start_servers(backend: Backend, model: &str) -> Vec<Server> {
    match backend {
        Backend::Sqlite => vec![Setup::new(backend).model(model).start()],
        Backend::Postgres => {
            let first = Setup::new(backend).model(model).start();
            let address = first.database();
            let others = (1..REPLICAS)
                .map(|_| Setup::replica(address.clone()).model(model).start_in(Folder::new()));
            // The first one is dropped last, since it owns the database.
            let mut servers: Vec<_> = others.collect();
            servers.push(first);
            servers
        }
    }
}
