//! Failover of PostgreSQL: servers whose address has several hosts find the primary by themselves.
//!
//! `tests/it/replication.rs` has what synchronous replication promises while there is no failover, and
//! `tests/it/auth/failover.rs` what a failover means for logins.

mod former_primary;
mod patroni;
mod patroni_cluster;
mod synchronous;
mod workload;

use crate::harness::OwnPostgres;

/// The address of a database on several hosts.
fn address_of(servers: &[&OwnPostgres], database: &str) -> String {
    let hosts: Vec<_> = servers.iter().map(|server| server.host()).collect();
    format!("postgres://nouns@{}/{database}?target_session_attrs=read-write", hosts.join(","))
}
