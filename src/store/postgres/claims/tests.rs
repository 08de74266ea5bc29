//! Claims of two servers at a PostgreSQL of the test's own, which is stopped as by a crash.

use futures_util::future::join_all;

use super::tables::BUCKETS;
use super::*;
use crate::store::postgres::cluster::Cluster;

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
    let stores =
        [cluster.open(""), cluster.open(""), cluster.open("database_pooling = \"transaction\"")];
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

        one_server_alone(&cluster, &workers, epoch).await;
        wherever_they_come(&workers, epoch).await;
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
    for bucket in 0..BUCKETS {
        cluster
            .sql(&format!("INSERT INTO nouns_used_{bucket} VALUES (gen_random_uuid(), 0, 1, -1)"));
    }
    let is_full = |bucket| cluster.sql(&format!("SELECT count(*) FROM nouns_used_{bucket}")) != "0";
    let full = || (0..BUCKETS).filter(|bucket| is_full(*bucket)).count();
    // The store's own sweep may be under way, and one goes at a time.
    for _ in 0..1_000 {
        sweep_once(worker).await;
        if full() < 8 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_ne!(full(), 8);
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
    let lease = inner.pool.lease(Purpose::Read, clock::now() + GRACE).await.unwrap();
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
    let told = |claimed| Some(Found::Told(claimed));
    assert_eq!(found(true, Some(0b101), 0b100, true), Some(Found::Unknown));
    assert_eq!(found(true, Some(-1), 0b100, true), Some(Found::Unknown));
    assert_eq!(found(true, Some(0b101), 0b100, false), told(Claimed::Again));
    assert_eq!(found(true, Some(-1), 0b100, false), Some(Found::Held));
    assert_eq!(found(true, Some(0b101), 0b010, true), None);
    assert_eq!(found(true, None, 1, false), told(Claimed::Stale));
    for kept in [None, Some(0b101), Some(-1)] {
        assert_eq!(found(false, kept, 0b100, true), told(Claimed::Stale));
    }
}

/// A nonce that comes to one server alone is soon claimed there without asking, and still once only.
async fn one_server_alone(cluster: &Cluster, workers: &[&Worker; 3], epoch: u64) {
    let [one, other, pooled] = workers;
    let issued = now();
    let of = |nonce: u128, count: u32| Claim { epoch, nonce, count, issued };
    let mut here = 0;
    for count in 1..=200 {
        let claim = of(10, count);
        here += usize::from(one.can_claim_here(&claim));
        assert_eq!(one.claim(&claim).await.unwrap(), Claimed::First, "{count}");
        assert!(!other.can_claim_here(&claim));
        if count % 7 == 0 {
            assert_eq!(one.claim(&claim).await.unwrap(), Claimed::Again, "{count}");
        }
    }
    // All but the first nine, and the first of each part.
    assert_eq!(here, 200 - 9 - 3);
    nobody_wants_anything(cluster).await;

    // Another server knows what was used there, and uses what was not.
    assert_eq!(other.claim(&of(10, 200)).await.unwrap(), Claimed::Again);
    assert!(!one.can_claim_here(&of(10, 201)), "it was given up");
    for count in 201..=260 {
        let turn = workers[count as usize % 3];
        assert_eq!(turn.claim(&of(10, count)).await.unwrap(), Claimed::First, "{count}");
        assert_eq!(one.claim(&of(10, count)).await.unwrap(), Claimed::Again, "{count}");
    }
    // What was used up is given up too, and nobody may use it.
    let old = [1, 63, 100].map(|count| of(10, count));
    assert_eq!(all(&[pooled], old.into_iter()).await, [Claimed::Again; 3]);
    nobody_wants_anything(cluster).await;

    // One that is gone gives nothing back: what it had is stale, and can be used by nobody.
    for count in 1..=9 {
        assert_eq!(one.claim(&of(11, count)).await.unwrap(), Claimed::First);
    }
    let place = Place { nonce: 11, part: 0 };
    assert!(one.0.claims.ours.give_up(place).is_some());
    let had = [9, 9, 10, 10].map(|count| of(11, count));
    assert_eq!(all(&[one, other], had.into_iter()).await, [Claimed::Stale; 4]);
    assert_eq!(other.claim(&of(11, 64)).await.unwrap(), Claimed::First);
    nobody_wants_anything(cluster).await;
}

/// What was asked for is taken back behind the answer, not before it.
async fn nobody_wants_anything(cluster: &Cluster) {
    for _ in 0..100 {
        if cluster.sql("SELECT count(*) FROM nouns_wanted") == "0" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("somebody still wants something");
}

/// Clients that stay with a server for a while and then go to another one, several requests at a time,
/// each count several times: one of them is the first, always.
async fn wherever_they_come(workers: &[&Worker; 3], epoch: u64) {
    let issued = now();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut here = 0;
    for nonce in 100..108 {
        let (mut count, mut server, mut firsts) = (1, 0, HashMap::<u32, usize>::new());
        while count < 300 {
            if next(20) == 0 {
                server = next(3) as usize;
            }
            // Some counts that are new and some that are not, most of them where the client is.
            let mut claims = Vec::new();
            for _ in 0..=next(4) {
                let again = next(u64::from(count)) as u32;
                let asked = if next(3) == 0 { again.max(1) } else { count };
                let at = if next(30) == 0 { next(3) as usize } else { server };
                let claim = Claim { epoch, nonce, count: asked, issued };
                here += usize::from(workers[at].can_claim_here(&claim));
                claims.push((workers[at], claim));
                count += u32::from(asked == count);
            }
            let made = claims.iter().map(|(worker, claim)| worker.claim(claim));
            for (claimed, (_, claim)) in join_all(made).await.into_iter().zip(&claims) {
                let claimed = claimed.unwrap();
                assert_ne!(claimed, Claimed::Stale, "{claim:?}");
                *firsts.entry(claim.count).or_default() += usize::from(claimed == Claimed::First);
            }
        }
        let wrong: Vec<_> = firsts.iter().filter(|(_, firsts)| **firsts != 1).collect();
        assert!(wrong.is_empty(), "{nonce}: {wrong:?}");
    }
    assert!(here > 100, "{here} were claimed without asking");
}
