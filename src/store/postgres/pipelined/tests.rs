//! The shared connection of pipelined reads, against a private PostgreSQL.

use tokio::runtime::{Builder, LocalOptions};
use tokio::time::timeout;

use super::*;
use crate::clock;
use crate::store::postgres::connect::tests::cluster::TestCluster;
use crate::store::postgres::worker::PostgresWorker;

/// Long enough for a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The process id of the connection's backend.
async fn backend_pid(on: &ReadConnection) -> i32 {
    on.connection().unwrap().client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
}

async fn lease_many(reads: &PipelinedReads, count: usize) -> Vec<ReadConnection> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(reads.lease_for_read(clock::now() + TEST_TIMEOUT).await.unwrap());
    }
    all
}

async fn lease_one(reads: &PipelinedReads) -> ReadConnection {
    lease_many(reads, 1).await.remove(0)
}

async fn lease_two(reads: &PipelinedReads) -> [ReadConnection; 2] {
    <[ReadConnection; 2]>::try_from(lease_many(reads, 2).await).ok().unwrap()
}

#[test]
fn pipelined_reads_are_limited_and_their_connection_is_retired() {
    let cluster = TestCluster::start();
    cluster.restart("fast");
    let stores =
        [4, 1].map(|max| cluster.open(&format!("limits.database_connections_max = {max}")));
    let [worker, small] = [0, 1].map(|at: usize| PostgresWorker::new(&stores[at], 1));
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        pipeline_depth_is_limited(&worker.reads).await;
        shared_wait_is_limited(&worker.reads).await;
        failed_read_retires_the_shared_connection(&worker.reads).await;
        abandoned_connection_is_closed_by_the_statement_timeout(&cluster, &worker.reads).await;
        // With one connection there is no pipelining, because none would be left for writes.
        let alone = lease_one(&small.reads).await;
        assert!(matches!(alone, ReadConnection::Exclusive(_)));
    });
    for store in stores {
        store.close();
    }
}

async fn pipeline_depth_is_limited(reads: &PipelinedReads) {
    let full = lease_many(reads, PIPELINE_DEPTH_MAX).await;
    let first = backend_pid(&full[0]).await;
    for on in &full {
        assert!(matches!(on, ReadConnection::Shared(_)));
        assert_eq!(backend_pid(on).await, first);
    }
    // One more read gets another connection, which the next read shares.
    let [other, next] = lease_two(reads).await;
    let second = backend_pid(&other).await;
    assert_ne!(second, first);
    assert_eq!(backend_pid(&next).await, second);
    // All are in flight before the first is answered.
    let asked = full.iter().map(backend_pid);
    assert_eq!(futures_util::future::join_all(asked).await, [first; PIPELINE_DEPTH_MAX]);
    // With the last read a connection returns to the pool, from which it is leased again.
    [other, next].into_iter().chain(full).for_each(ReadConnection::complete);
    assert_eq!(reads.shared().strong_count(), 0);
    assert_eq!(reads.pool.slots.available_permits(), 4);
    let again = lease_one(reads).await;
    assert!([first, second].contains(&backend_pid(&again).await));
    again.complete();
}

async fn shared_wait_is_limited(reads: &PipelinedReads) {
    let (shared, now) = (lease_one(reads).await, clock::now());
    assert_eq!(shared.answer_deadline(now, now + TEST_TIMEOUT), now + SHARED_WAIT_MAX);
    // Half of the time is left to read on another connection.
    let soon = now + SHARED_WAIT_MAX;
    assert_eq!(shared.answer_deadline(now, soon), now + SHARED_WAIT_MAX / 2);
    shared.complete();
    let lease = reads.pool.lease(LeasePurpose::Read, clock::now() + TEST_TIMEOUT).await.unwrap();
    let alone = ReadConnection::Exclusive(lease);
    assert_eq!(alone.answer_deadline(now, soon), soon);
    alone.complete();
}

async fn failed_read_retires_the_shared_connection(reads: &PipelinedReads) {
    let [one, other] = lease_two(reads).await;
    let first = backend_pid(&one).await;
    one.retire();
    let next = lease_one(reads).await;
    assert_ne!(backend_pid(&next).await, first);
    // The reads that are on it complete there.
    assert_eq!(backend_pid(&other).await, first);
    other.complete();
    next.complete();
    let later = lease_one(reads).await;
    assert_ne!(backend_pid(&later).await, first);
    later.complete();
}

/// The statements that were sent are not cancelled: the connection ends when they have ended, and until then
/// it does not use up a slot of the pool.
async fn abandoned_connection_is_closed_by_the_statement_timeout(
    cluster: &TestCluster,
    reads: &PipelinedReads,
) {
    let [ahead, behind] = lease_two(reads).await;
    let first = backend_pid(&ahead).await;
    for on in [&ahead, &behind] {
        // The statement is sent, and its answer is not awaited.
        let client = &on.connection().unwrap().client;
        let slow = client.batch_execute("SET statement_timeout = '2s'; SELECT pg_sleep(600)");
        assert!(timeout(Duration::from_millis(1), slow).await.is_err());
    }
    behind.abandon();
    let other = lease_one(reads).await;
    assert_ne!(backend_pid(&other).await, first);
    other.complete();
    ahead.abandon();
    assert_eq!(reads.pool.slots.available_permits(), 4);
    let gone = async {
        let look = format!("SELECT pid FROM pg_stat_activity WHERE pid = {first}");
        while !cluster.sql(&look).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TEST_TIMEOUT, gone).await.unwrap();
}
