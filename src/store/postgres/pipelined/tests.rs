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
    on.client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
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
        abandoned_connection_is_drained_and_closed(&cluster, &worker.reads).await;
        shared_connection_is_left_to_waiting_requests(&worker.reads).await;
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
    assert_eq!(shared.shared_deadline(now, now + TEST_TIMEOUT), Some(now + SHARED_WAIT_MAX));
    // Half of the time is left to read on another connection.
    let soon = now + SHARED_WAIT_MAX;
    assert_eq!(shared.shared_deadline(now, soon), Some(now + SHARED_WAIT_MAX / 2));
    shared.complete();
    let lease = reads.pool.lease(LeasePurpose::Read, clock::now() + TEST_TIMEOUT).await.unwrap();
    let alone = ReadConnection::Exclusive(lease);
    assert_eq!(alone.shared_deadline(now, soon), None);
    alone.complete();
}

async fn failed_read_retires_the_shared_connection(reads: &PipelinedReads) {
    let [one, other] = lease_two(reads).await;
    let first = backend_pid(&one).await;
    one.mark_broken();
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

async fn abandoned_connection_is_drained_and_closed(cluster: &TestCluster, reads: &PipelinedReads) {
    let [ahead, behind] = lease_two(reads).await;
    let first = backend_pid(&ahead).await;
    for on in [&ahead, &behind] {
        // The statement is sent, and its answer is not awaited.
        let slow = on.client.batch_execute("SELECT pg_sleep(600)");
        assert!(timeout(Duration::from_millis(1), slow).await.is_err());
    }
    behind.abandon();
    let other = lease_one(reads).await;
    assert_ne!(backend_pid(&other).await, first);
    other.complete();
    ahead.complete();
    // It keeps its pool slot until all its statements are cancelled.
    assert_eq!(reads.pool.slots.available_permits(), 3);
    wait_for_all_slots(reads).await;
    let gone = async {
        let look = format!("SELECT pid FROM pg_stat_activity WHERE pid = {first}");
        while !cluster.sql(&look).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TEST_TIMEOUT, gone).await.unwrap();
}

/// A request that waits for a pool slot gets that of the shared connection, even if many reads would like to
/// join.
async fn shared_connection_is_left_to_waiting_requests(reads: &PipelinedReads) {
    let shared = lease_one(reads).await;
    let lease = || reads.pool.lease(LeasePurpose::Read, clock::now() + TEST_TIMEOUT);
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(lease().await.unwrap());
    }
    let mut waits = pin!(lease());
    assert!(timeout(Duration::from_millis(1), waits.as_mut()).await.is_err());
    let mut comes = pin!(reads.lease_for_read(clock::now() + TEST_TIMEOUT));
    assert!(timeout(Duration::from_millis(1), comes.as_mut()).await.is_err());
    shared.complete();
    let waited = timeout(TEST_TIMEOUT, waits).await.unwrap().unwrap();
    waited.return_to_pool();
    timeout(TEST_TIMEOUT, comes).await.unwrap().unwrap().complete();
    others.into_iter().for_each(ConnectionLease::return_to_pool);
}

async fn wait_for_all_slots(reads: &PipelinedReads) {
    let all = async {
        while reads.pool.slots.available_permits() < 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, all).await.unwrap();
}
