//! Third-party HTTP clients, and how they log in.
//!
//! A client is a file in `tests/clients/` that does what it is told (`driver.rs` says how), and a row
//! of `rows.rs` for each scheme it has, with what it does by itself. `docs/explanation/tested-clients.md`
//! shows the rows.

mod balancer;
mod driver;
mod client_row;
mod lifecycle;
mod one_server;
mod test_server;
mod replicas;
mod rows;
mod table;
mod request_log;
