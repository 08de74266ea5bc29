//! The pipelined connection against a private PostgreSQL. The tests pass in the current time.

use tokio::runtime::{Builder, LocalOptions};

use super::*;
use crate::clock;
use crate::store::postgres::connect::tests::cluster::TestCluster;
use crate::store::postgres::worker::PostgresWorker;

/// Long enough for a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The process id of the connection's backend.
async fn backend_pid(way: &ReadConnection) -> i32 {
    way.connection().unwrap().client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
}

async fn lease_many(reads: &PipelinedReads, count: usize, now: Instant) -> Vec<ReadConnection> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(reads.lease_for_read(now, clock::now() + TEST_TIMEOUT).await.unwrap());
    }
    all
}

async fn lease_one(reads: &PipelinedReads, now: Instant) -> ReadConnection {
    lease_many(reads, 1, now).await.remove(0)
}

#[test]
fn pipelined_reads_are_limited_drained_and_closed() {
    let cluster = TestCluster::start();
    cluster.restart("fast");
    let stores =
        [4, 1].map(|max| cluster.open(&format!("limits.database_connections_max = {max}")));
    let [worker, small] = [0, 1].map(|at: usize| PostgresWorker::new(&stores[at], 1));
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        pipeline_depth_is_limited(&worker.reads).await;
        stalled_pipeline_cannot_be_joined(&worker.reads).await;
        shared_wait_is_limited(&worker.reads).await;
        abandoned_pipeline_is_drained_and_closed(&cluster, &worker.reads).await;
        pipeline_yields_its_slot_to_waiters(&worker.reads).await;
        broken_pipeline_is_closed(&worker.reads).await;
        // With one connection there is no pipelining, because none would be left for writes.
        let alone = lease_one(&small.reads, clock::now()).await;
        assert!(matches!(alone, ReadConnection::Exclusive(_)));
    });
    for store in stores {
        store.close();
    }
}

async fn pipeline_depth_is_limited(reads: &PipelinedReads) {
    let now = clock::now();
    let full = lease_many(reads, PIPELINE_DEPTH_MAX, now).await;
    let first = backend_pid(&full[0]).await;
    for way in &full {
        assert!(matches!(way, ReadConnection::Pipelined(_)));
        assert_eq!(backend_pid(way).await, first);
    }
    let other = lease_one(reads, now).await;
    assert!(matches!(other, ReadConnection::Exclusive(_)));
    assert_ne!(backend_pid(&other).await, first);
    // All are in flight before the first is answered.
    let asked = full.iter().map(backend_pid);
    assert_eq!(futures_util::future::join_all(asked).await, [first; PIPELINE_DEPTH_MAX]);
    // With the last read the connection returns to the pool, from which it is leased again.
    other.complete();
    full.into_iter().for_each(ReadConnection::complete);
    assert_eq!(reads.pipelined().strong_count(), 0);
    let again = lease_one(reads, now).await;
    assert_eq!(backend_pid(&again).await, first);
    again.complete();
}

async fn stalled_pipeline_cannot_be_joined(reads: &PipelinedReads) {
    let now = clock::now();
    let stays = lease_one(reads, now).await;
    let second = lease_one(reads, now + STALL_TIMEOUT / 2).await;
    assert_eq!(backend_pid(&second).await, backend_pid(&stays).await);
    let late = lease_one(reads, now + STALL_TIMEOUT).await;
    assert!(matches!(late, ReadConnection::Exclusive(_)));
    late.complete();
    // The stall ends with the next answer, and the time counts from when a joining read noticed it.
    second.complete();
    let third = lease_one(reads, now + STALL_TIMEOUT * 10).await;
    assert!(matches!(third, ReadConnection::Pipelined(_)));
    let fourth = lease_one(reads, now + STALL_TIMEOUT * 11).await;
    assert!(matches!(fourth, ReadConnection::Exclusive(_)));
    for way in [stays, third, fourth] {
        way.complete();
    }
}

async fn shared_wait_is_limited(reads: &PipelinedReads) {
    let now = clock::now();
    let late = now + TEST_TIMEOUT;
    let [first, second] =
        <[ReadConnection; 2]>::try_from(lease_many(reads, 2, now).await).ok().unwrap();
    assert_eq!([&first, &second].map(ReadConnection::is_sole_read), [false, false]);
    assert_eq!(second.answer_deadline(late), now + SHARED_WAIT_MAX);
    assert_eq!(second.answer_deadline(now), now);
    // Half of the time is left to read on another connection.
    let short = reads.lease_for_read(now, now + SHARED_WAIT_MAX).await.unwrap();
    assert_eq!(short.answer_deadline(late), now + SHARED_WAIT_MAX / 2);
    short.complete();
    first.complete();
    assert!(second.is_sole_read());
    second.complete();
    let [first, second] =
        <[ReadConnection; 2]>::try_from(lease_many(reads, 2, now).await).ok().unwrap();
    // The statement of the first read may block the second.
    first.abandon();
    assert!(!second.is_sole_read());
    second.abandon();
    wait_for_all_slots(reads).await;
    let alone = ReadConnection::Exclusive(
        reads.pool.lease(LeasePurpose::Read, clock::now() + TEST_TIMEOUT).await.unwrap(),
    );
    assert_eq!(alone.answer_deadline(late), late);
    alone.complete();
}

async fn abandoned_pipeline_is_drained_and_closed(cluster: &TestCluster, reads: &PipelinedReads) {
    let now = clock::now();
    let [ahead, behind] =
        <[ReadConnection; 2]>::try_from(lease_many(reads, 2, now).await).ok().unwrap();
    let first = backend_pid(&ahead).await;
    for way in [&ahead, &behind] {
        // The statement is sent, and its answer is not awaited.
        let slow = way.connection().unwrap().client.batch_execute("SELECT pg_sleep(600)");
        assert!(timeout(Duration::from_millis(1), slow).await.is_err());
    }
    behind.abandon();
    // No read joins, however recent the last answer is.
    let other = lease_one(reads, now).await;
    assert!(matches!(other, ReadConnection::Exclusive(_)));
    assert_ne!(backend_pid(&other).await, first);
    other.complete();
    // As if the read had panicked.
    drop(ahead);
    // The pipeline keeps its pool slot until all its statements are cancelled.
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

/// A request that waits for a pool slot gets that of the pipeline, even if many reads would like to join.
async fn pipeline_yields_its_slot_to_waiters(reads: &PipelinedReads) {
    let now = clock::now();
    let shared = lease_one(reads, now).await;
    let lease = || reads.pool.lease(LeasePurpose::Read, clock::now() + TEST_TIMEOUT);
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(lease().await.unwrap());
    }
    let mut waits = pin!(lease());
    assert!(timeout(Duration::from_millis(1), waits.as_mut()).await.is_err());
    let mut comes = pin!(reads.lease_for_read(now, clock::now() + TEST_TIMEOUT));
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

async fn broken_pipeline_is_closed(reads: &PipelinedReads) {
    let now = clock::now();
    let [one, other] =
        <[ReadConnection; 2]>::try_from(lease_many(reads, 2, now).await).ok().unwrap();
    let first = backend_pid(&one).await;
    one.mark_broken();
    let alone = lease_one(reads, now).await;
    assert!(matches!(alone, ReadConnection::Exclusive(_)));
    alone.complete();
    other.complete();
    let next = lease_one(reads, now).await;
    assert_ne!(backend_pid(&next).await, first);
    next.complete();
}
