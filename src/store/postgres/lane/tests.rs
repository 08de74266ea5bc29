//! The pipelined connection against a private PostgreSQL. The tests pass in the current time.

use tokio::runtime::{Builder, LocalOptions};

use super::*;
use crate::clock;
use crate::store::postgres::Worker;
use crate::store::postgres::cluster::Cluster;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The process id of the connection's backend.
async fn process(way: &Way) -> i32 {
    way.connection().unwrap().client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
}

async fn ways(pool: &Arc<Pool>, count: usize, now: Instant) -> Vec<Way> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(pool.way(now, clock::now() + PATIENCE).await.unwrap());
    }
    all
}

async fn way(pool: &Arc<Pool>, now: Instant) -> Way {
    ways(pool, 1, now).await.remove(0)
}

#[test]
fn pipelined_reads_against_postgres() {
    let cluster = Cluster::start();
    cluster.restart("fast");
    let stores =
        [4, 1].map(|max| cluster.open(&format!("limits.database_connections_max = {max}")));
    let [worker, small] = [0, 1].map(|at: usize| Worker::new(&stores[at], 1));
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        so_many_and_no_more(&worker.0.pool).await;
        not_when_it_has_come_to_a_stop(&worker.0.pool).await;
        those_who_wait_together_are_told(&worker.0.pool).await;
        what_was_left_is_stopped_and_closed(&cluster, &worker.0.pool).await;
        it_makes_room_for_others(&worker.0.pool).await;
        what_had_trouble_is_closed(&worker.0.pool).await;
        // With one connection there is no pipelining, because none would be left for writes.
        let alone = way(&small.0.pool, clock::now()).await;
        assert!(matches!(alone, Way::Alone(_)));
    });
    for store in stores {
        store.close();
    }
}

async fn so_many_and_no_more(pool: &Arc<Pool>) {
    let now = clock::now();
    let full = ways(pool, READS_MAX, now).await;
    let first = process(&full[0]).await;
    for way in &full {
        assert!(matches!(way, Way::Shared(_)));
        assert_eq!(process(way).await, first);
    }
    let other = way(pool, now).await;
    assert!(matches!(other, Way::Alone(_)));
    assert_ne!(process(&other).await, first);
    // All are in flight before the first is answered.
    let asked = full.iter().map(process);
    assert_eq!(futures_util::future::join_all(asked).await, [first; READS_MAX]);
    // With the last read the connection returns to the pool, from which it is leased again.
    other.keep();
    full.into_iter().for_each(Way::keep);
    assert_eq!(pool.lane().strong_count(), 0);
    let again = way(pool, now).await;
    assert_eq!(process(&again).await, first);
    again.keep();
}

async fn not_when_it_has_come_to_a_stop(pool: &Arc<Pool>) {
    let now = clock::now();
    let stays = way(pool, now).await;
    let second = way(pool, now + STOPPED / 2).await;
    assert_eq!(process(&second).await, process(&stays).await);
    let late = way(pool, now + STOPPED).await;
    assert!(matches!(late, Way::Alone(_)));
    late.keep();
    // The stall ends with the next answer, and the time counts from when a joining read noticed it.
    second.keep();
    let third = way(pool, now + STOPPED * 10).await;
    assert!(matches!(third, Way::Shared(_)));
    let fourth = way(pool, now + STOPPED * 11).await;
    assert!(matches!(fourth, Way::Alone(_)));
    for way in [stays, third, fourth] {
        way.keep();
    }
}

async fn those_who_wait_together_are_told(pool: &Arc<Pool>) {
    let now = clock::now();
    let late = now + PATIENCE;
    let [first, second] = <[Way; 2]>::try_from(ways(pool, 2, now).await).ok().unwrap();
    assert_eq!([&first, &second].map(Way::is_only_one), [false, false]);
    assert_eq!(second.wait_until(late), now + TOGETHER_MAX);
    assert_eq!(second.wait_until(now), now);
    // Half of the time is left to read on another connection.
    let short = pool.way(now, now + TOGETHER_MAX).await.unwrap();
    assert_eq!(short.wait_until(late), now + TOGETHER_MAX / 2);
    short.keep();
    first.keep();
    assert!(second.is_only_one());
    second.keep();
    let [first, second] = <[Way; 2]>::try_from(ways(pool, 2, now).await).ok().unwrap();
    // The statement of the first read may be what blocks the second.
    first.leave();
    assert!(!second.is_only_one());
    second.leave();
    all_places(pool).await;
    let alone = Way::Alone(pool.lease(Purpose::Read, clock::now() + PATIENCE).await.unwrap());
    assert_eq!(alone.wait_until(late), late);
    alone.keep();
}

async fn what_was_left_is_stopped_and_closed(cluster: &Cluster, pool: &Arc<Pool>) {
    let now = clock::now();
    let [ahead, behind] = <[Way; 2]>::try_from(ways(pool, 2, now).await).ok().unwrap();
    let first = process(&ahead).await;
    for way in [&ahead, &behind] {
        // Sent, and its answer not awaited.
        let slow = way.connection().unwrap().client.batch_execute("SELECT pg_sleep(600)");
        assert!(timeout(Duration::from_millis(1), slow).await.is_err());
    }
    behind.leave();
    // No read joins, however recent the last answer is.
    let other = way(pool, now).await;
    assert!(matches!(other, Way::Alone(_)));
    assert_ne!(process(&other).await, first);
    other.keep();
    // As if the read had panicked.
    drop(ahead);
    // The pipeline keeps its pool slot until all its statements are cancelled.
    assert_eq!(pool.places.available_permits(), 3);
    all_places(pool).await;
    let gone = async {
        let look = format!("SELECT pid FROM pg_stat_activity WHERE pid = {first}");
        while !cluster.sql(&look).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
}

/// A request that waits for a pool slot gets the pipeline's, however many reads would like to join.
async fn it_makes_room_for_others(pool: &Arc<Pool>) {
    let now = clock::now();
    let shared = way(pool, now).await;
    let lease = || pool.lease(Purpose::Read, clock::now() + PATIENCE);
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(lease().await.unwrap());
    }
    let mut waits = pin!(lease());
    assert!(timeout(Duration::from_millis(1), waits.as_mut()).await.is_err());
    let mut comes = pin!(pool.way(now, clock::now() + PATIENCE));
    assert!(timeout(Duration::from_millis(1), comes.as_mut()).await.is_err());
    shared.keep();
    let waited = timeout(PATIENCE, waits).await.unwrap().unwrap();
    waited.keep();
    timeout(PATIENCE, comes).await.unwrap().unwrap().keep();
    others.into_iter().for_each(Lease::keep);
}

async fn all_places(pool: &Arc<Pool>) {
    let all = async {
        while pool.places.available_permits() < 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, all).await.unwrap();
}

async fn what_had_trouble_is_closed(pool: &Arc<Pool>) {
    let now = clock::now();
    let [one, other] = <[Way; 2]>::try_from(ways(pool, 2, now).await).ok().unwrap();
    let first = process(&one).await;
    one.give_up();
    let alone = way(pool, now).await;
    assert!(matches!(alone, Way::Alone(_)));
    alone.keep();
    other.keep();
    let next = way(pool, now).await;
    assert_ne!(process(&next).await, first);
    next.keep();
}
