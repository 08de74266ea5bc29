//! Claims of two servers at a PostgreSQL of the test's own, which is stopped as by a crash.

use std::sync::LazyLock;

use futures_util::future::join_all;

use super::*;
use crate::log::{Log, Style};
use crate::metrics::Metrics;
use crate::model;
use crate::store::postgres::cluster::Cluster;
use crate::store::postgres::{Address, Environment, Shared};

static LOG: LazyLock<Log> = LazyLock::new(|| Log::start_to(Style::Json, std::io::sink()).unwrap());

fn open(cluster: &Cluster, settings: &str) -> Arc<Shared> {
    let text = format!(
        "title = \"T\"\n[server]\n{settings}\n[resources.thing.fields]\nname = {{ type = \"text\" }}\n"
    );
    let model = Arc::new(model::read("claims.toml", &text).unwrap());
    let address = format!("postgres://nouns@127.0.0.1:{}/postgres", cluster.port);
    let address = Arc::new(Address::parse(&address, &Environment::default()).unwrap());
    crate::store::postgres::open(&address, &model, (&LOG, &Metrics::new(&model)), false).unwrap()
}

fn now() -> i64 {
    clock::moment().seconds()
}

async fn all(workers: &[&Worker], claims: impl Iterator<Item = Claim>) -> Vec<Claimed> {
    let mut turns = workers.iter().cycle();
    let made: Vec<_> = claims.map(|claim| (turns.next().unwrap(), claim)).collect();
    let made = made.iter().map(|(worker, claim)| worker.claim(claim));
    join_all(made).await.into_iter().map(Result::unwrap).collect()
}

#[test]
fn servers_share_what_was_used() {
    let cluster = Cluster::start();
    cluster.restart("fast");
    let stores = [
        open(&cluster, ""),
        open(&cluster, ""),
        open(&cluster, "database_pooling = \"transaction\""),
    ];
    let [one, other, pooled] = [0, 1, 2].map(|at: usize| Worker::new(&stores[at], 1));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let workers = [&one, &other, &pooled];
        let epoch = one.epoch().await.unwrap();
        assert_eq!(other.epoch().await.unwrap(), epoch);
        let of = |nonce: u128, count: u32| Claim { epoch, nonce, count, issued: now() };

        // Together, in any order, from any server: each count once.
        let counts = || (1..=64).rev().map(|count| of(1, count));
        assert_eq!(all(&workers, counts()).await, [Claimed::First; 64]);
        assert_eq!(all(&workers, counts()).await, [Claimed::Again; 64]);
        // The same count at the same time, at two servers and twice at one.
        for count in 1..=50 {
            let claims = std::iter::repeat_n(of(2, count), 4);
            let claimed = all(&[&one, &other], claims).await;
            let is_first = |claimed: &&Claimed| **claimed == Claimed::First;
            assert_eq!(claimed.iter().filter(is_first).count(), 1, "{claimed:?}");
            assert!(claimed.iter().all(|claimed| *claimed != Claimed::Stale));
        }

        // Another epoch, too old, and from a clock that is wrong.
        let stale = [
            Claim { epoch: epoch ^ 1, ..of(3, 1) },
            Claim { issued: now() - age_max() - 60, ..of(3, 1) },
            Claim { issued: now() + SKEW_SECONDS + 60, ..of(3, 1) },
            Claim { issued: i64::MIN, ..of(3, 1) },
        ];
        assert_eq!(all(&workers, stale.into_iter()).await, [Claimed::Stale; 4]);
        let largest = Claim { nonce: u128::MAX, count: u32::MAX, ..of(3, 1) };
        assert_eq!(one.claim(&largest).await.unwrap(), Claimed::First);

        sweeps(&cluster, &one, &of(4, 1)).await;
        survives_what_survives(&cluster, &workers, &of(5, 1)).await;
    });
    for store in stores {
        store.close();
    }
}

/// What is old goes, by whole tables; what may still be claimed stays.
async fn sweeps(cluster: &Cluster, worker: &Worker, live: &Claim) {
    assert_eq!(worker.claim(live).await.unwrap(), Claimed::First);
    cluster.sql("INSERT INTO nouns_claims SELECT bucket, gen_random_uuid(), 1 FROM generate_series(0, 7) bucket");
    let tables = "SELECT count(DISTINCT bucket) FROM nouns_claims";
    // The store's own sweep may be under way, and one goes at a time.
    for _ in 0..1_000 {
        sweep_once(worker).await;
        if cluster.sql(tables) != BUCKETS.to_string() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_ne!(cluster.sql(tables), BUCKETS.to_string());
    assert_eq!(worker.claim(live).await.unwrap(), Claimed::Again);
    // The floor does not go back with a clock that does.
    let floor = "SELECT floor FROM nouns_epoch";
    cluster.sql(&format!("UPDATE nouns_epoch SET floor = {}", live.issued + 10));
    sweep_once(worker).await;
    assert_eq!(cluster.sql(floor), (live.issued + 10).to_string());
    assert_eq!(worker.claim(live).await.unwrap(), Claimed::Stale);
    cluster.sql("UPDATE nouns_epoch SET floor = 0");
}

async fn sweep_once(worker: &Worker) {
    let inner = &worker.0;
    let mut lease = inner.pool.lease(Purpose::Read, clock::now() + GRACE).await.unwrap();
    let connection = lease.connection().unwrap();
    let mut driver = PostgresDriver::new(connection, &inner.ids, inner.pooling, Stage::Due);
    sweep(&mut driver, Duration::from_secs(10)).await.unwrap();
    lease.keep();
}

/// A lost connection costs nothing, a restart nothing, a crash every nonce from before.
async fn survives_what_survives(cluster: &Cluster, workers: &[&Worker; 3], first: &Claim) {
    let count = |count: u32| Claim { count, ..*first };
    assert_eq!(all(workers, (1..=3).map(count)).await, [Claimed::First; 3]);
    cluster.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'nouns'",
    );
    assert_eq!(all(workers, (4..=6).map(count)).await, [Claimed::First; 3]);
    cluster.restart("fast");
    assert_eq!(all(workers, (7..=9).map(count)).await, [Claimed::First; 3]);
    assert_eq!(all(workers, (1..=9).map(count)).await, [Claimed::Again; 9]);
    cluster.restart("immediate");
    // All of them still remember the epoch from before.
    for worker in workers {
        assert_eq!(worker.epoch().await.unwrap(), first.epoch);
    }
    assert_eq!(all(workers, (1..=9).map(count)).await, [Claimed::Stale; 9]);
    let epoch = workers[0].epoch().await.unwrap();
    assert_ne!(epoch, first.epoch);
    for worker in workers {
        assert_eq!(worker.epoch().await.unwrap(), epoch);
    }
    assert_eq!(all(workers, (1..=9).map(count)).await, [Claimed::Stale; 9]);
    let count = |count: u32| Claim { epoch, count, ..*first };
    assert_eq!(all(workers, (1..=9).map(count)).await, [Claimed::First; 9]);
    assert_eq!(all(workers, (1..=9).map(count)).await, [Claimed::Again; 9]);
}

/// `Again` after an answer that was lost may be our own work: it is not told.
#[test]
fn a_lost_answer_is_not_guessed() {
    assert_eq!(judge(true, true, true), Some(Claimed::First));
    assert_eq!(judge(true, false, true), None);
    assert_eq!(judge(true, false, false), Some(Claimed::Again));
    assert_eq!(judge(false, false, true), Some(Claimed::Stale));
}

#[test]
fn tables_that_may_be_emptied() {
    let span = |seconds| free(1_000_000, 1_000_000 + seconds);
    assert_eq!(span(0).len(), 7);
    assert!(!span(700).is_empty());
    assert!(span(BUCKET_SECONDS * BUCKETS).is_empty());
    assert!(span(i64::MAX / 2).is_empty());
    assert!(free(i64::MIN, i64::MAX).is_empty());
    // Never one that a claim could be in.
    for second in 1_000_000..1_000_700 {
        let bucket = second / BUCKET_SECONDS % BUCKETS;
        assert!(!span(700).contains(&bucket), "{second}");
    }
}
