//! The black-box tests: one binary that starts the real executable and speaks HTTP text to it.
//!
//! Nothing here imports the code under test.
//! Every test that needs data runs once per storage backend (`on_every_backend!`), so a test's full
//! name ends with the backend: `surface::lists::list_empty::sqlite`.

#![expect(
    clippy::disallowed_methods,
    reason = "tests wait by the real clock and read the real environment"
)]

#[cfg(test)]
#[macro_use]
mod harness;
#[cfg(test)]
mod auth;
#[cfg(test)]
mod accounts;
#[cfg(test)]
mod backups;
#[cfg(test)]
mod browsers;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod checks_and_defaults;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod contention;
#[cfg(test)]
mod damaged_values;
#[cfg(test)]
mod database_faults;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod durability;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod expand;
#[cfg(test)]
mod exports;
#[cfg(test)]
mod failover;
#[cfg(test)]
mod feed;
#[cfg(test)]
mod filters;
#[cfg(test)]
mod flat;
#[cfg(test)]
mod framing;
#[cfg(test)]
mod from_database;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod http2;
#[cfg(test)]
mod json_bodies;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod message_ends;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod migrations;
#[cfg(test)]
mod moves;
#[cfg(test)]
mod openapi;
#[cfg(test)]
mod operate;
#[cfg(test)]
mod order;
#[cfg(test)]
mod packaging;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod polling;
#[cfg(test)]
mod pooling;
#[cfg(test)]
mod power;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod redbot;
#[cfg(test)]
mod references;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod replicas;
#[cfg(test)]
mod replication;
#[cfg(test)]
mod retries;
#[cfg(test)]
mod roles;
#[cfg(test)]
mod row_rules;
#[cfg(test)]
mod schema_changes;
#[cfg(test)]
mod spec;
#[cfg(test)]
mod surface;
#[cfg(test)]
mod sweep_clock;
#[cfg(test)]
mod tidy;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod transfer;
#[cfg(test)]
mod twins;
#[cfg(test)]
mod users;
#[cfg(test)]
mod wal_growth;
#[cfg(test)]
mod webhooks;
