//! PostgreSQL backend: any number of server processes serve one database and share nothing else.
//!
//! Each worker thread has its own connection pool (`pool`), so a request never changes threads. A write is
//! retried while no response was sent to the client and the transaction certainly did not commit; where the
//! outcome is unknown, the client gets `OutcomeUnknown`. A maintenance thread opens the database at startup
//! and then sweeps the change log (`maintenance`); it also tells other servers that the log has grown
//! (`notifications`).

pub mod admin;
pub mod attempt;
pub mod catalogue;
pub mod commit_wait;
pub mod connect;
pub mod connection_url;
pub mod database_clock;
pub mod database_move;
pub mod detach_on_drop;
pub mod driver;
pub mod error_class;
pub mod export;
pub mod health;
pub mod index_build;
pub mod insert_batch;
pub mod maintenance;
pub mod migrate;
pub mod notifications;
pub mod open;
pub mod outgoing_statement;
pub mod pipelined;
pub mod pool;
pub mod primary;
pub mod replay_protection;
pub mod server_registry;
pub mod tls;
pub mod values;
pub mod worker;
