//! Replay protection with several servers on a private PostgreSQL, which is stopped as by a crash.

use std::time::Duration;

use futures_util::future::join_all;

use super::*;
use crate::store::postgres::connect::tests::cluster::TestCluster;
use crate::store::postgres::replay_protection::tables::{BUCKETS, sweep_tables};
use crate::store::postgres::worker::PostgresWorker;

fn now_seconds() -> i64 {
    clock::moment().seconds()
}

async fn claim_all_in_turn(
    workers: &[&Arc<NonceClaims>],
    claims: impl Iterator<Item = NonceClaim>,
) -> Vec<NonceClaimResult> {
    let mut turns = workers.iter().cycle();
    let made: Vec<_> = claims.map(|claim| (turns.next().unwrap(), claim)).collect();
    let made = made.iter().map(|(worker, claim)| worker.claim(claim));
    join_all(made).await.into_iter().map(Result::unwrap).collect()
}

#[test]
fn replay_protection_against_postgres() {
    let cluster = TestCluster::start();
    cluster.restart("fast");
    let stores =
        [cluster.open(""), cluster.open(""), cluster.open("database_pooling = \"transaction\"")];
    let [one, other, pooled] =
        [0, 1, 2].map(|at: usize| PostgresWorker::new(&stores[at], 1).claims);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let workers = [&one, &other, &pooled];
        let epoch = one.epoch().await.unwrap();
        assert_eq!(other.epoch().await.unwrap(), epoch);
        let issued = now_seconds();
        let of = |nonce: u128, count: u32| NonceClaim { epoch, nonce, count, issued };

        // Concurrently, in any order, from any server: each count is accepted once.
        let counts = || (1..=64).rev().map(|count| of(1, count));
        assert_eq!(claim_all_in_turn(&workers, counts()).await, [NonceClaimResult::First; 64]);
        assert_eq!(claim_all_in_turn(&workers, counts()).await, [NonceClaimResult::Replay; 64]);
        // The same count at the same time, at two servers and twice at each.
        for count in 1..=50 {
            let claims = std::iter::repeat_n(of(2, count), 4);
            let claimed = claim_all_in_turn(&[&one, &other], claims).await;
            let is_first = |claimed: &&NonceClaimResult| **claimed == NonceClaimResult::First;
            // A server that wins several in a row leases the rest, which are stale at the other one.
            assert_eq!(claimed.iter().filter(is_first).count(), 1, "{claimed:?}");
        }

        // Another epoch, too old, and from a clock that is wrong.
        let stale = [
            NonceClaim { epoch: epoch ^ 1, ..of(3, 1) },
            NonceClaim { issued: now_seconds() - nonce_age_seconds_max() - 60, ..of(3, 1) },
            NonceClaim { issued: now_seconds() + CLOCK_SKEW_SECONDS + 60, ..of(3, 1) },
            NonceClaim { issued: i64::MIN, ..of(3, 1) },
        ];
        assert_eq!(
            claim_all_in_turn(&workers, stale.into_iter()).await,
            [NonceClaimResult::Stale; 4]
        );
        let largest = NonceClaim { nonce: u128::MAX, count: u32::MAX, ..of(3, 1) };
        assert_eq!(one.claim(&largest).await.unwrap(), NonceClaimResult::First);

        leased_counts_are_stale_at_other_servers(&workers, epoch).await;
        moving_clients_claim_no_count_twice(&workers, epoch).await;
        sweep_removes_only_expired_claims(&cluster, &one, &of(4, 1)).await;
        claims_from_the_future_end_the_epoch(&cluster, &one).await;
        let epoch = one.epoch().await.unwrap();
        let of =
            |nonce: u128, count: u32| NonceClaim { epoch, nonce, count, issued: now_seconds() };
        floor_ahead_of_the_clock_ends_the_epoch(&cluster, &one, &of(5, 1)).await;
        copied_epoch_is_replaced(&cluster, &one).await;
        restart_invalidates_nonces_and_reconnect_does_not(&cluster, &workers).await;
    });
    for store in stores {
        store.close();
    }
}

/// The sweep removes expired claims by whole tables, and keeps those of nonces that may still be used.
async fn sweep_removes_only_expired_claims(
    cluster: &TestCluster,
    worker: &Arc<NonceClaims>,
    live: &NonceClaim,
) {
    assert_eq!(worker.claim(live).await.unwrap(), NonceClaimResult::First);
    for bucket in 0..BUCKETS {
        cluster
            .sql(&format!("INSERT INTO nouns_used_{bucket} VALUES ('00000000-0000-4000-8000-000000000000', 0, 1, -1)"));
    }
    let is_full = |bucket| cluster.sql(&format!("SELECT count(*) FROM nouns_used_{bucket}")) != "0";
    let full = || (0..BUCKETS).filter(|bucket| is_full(*bucket)).count();
    // The store's own sweep may be running, and only one runs at a time.
    for _ in 0..1_000 {
        sweep_once(worker).await;
        if full() < 8 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_ne!(full(), 8);
    assert_eq!(worker.claim(live).await.unwrap(), NonceClaimResult::Replay);
}

/// Claims from a clock that was ahead may be deleted only with their epoch: their nonces will be valid later.
async fn claims_from_the_future_end_the_epoch(cluster: &TestCluster, worker: &Arc<NonceClaims>) {
    let epoch = worker.epoch().await.unwrap();
    let future = format!("{:08x}-0000-4000-8000-000000000000", now_seconds() + 86_400);
    for bucket in 0..BUCKETS {
        cluster.sql(&format!("INSERT INTO nouns_used_{bucket} VALUES ('{future}', 0, 1, -1)"));
    }
    sweep_until_new_epoch(cluster, worker, epoch).await;
    for bucket in 0..BUCKETS {
        assert_eq!(cluster.sql(&format!("SELECT count(*) FROM nouns_used_{bucket}")), "0");
    }
    let claim = NonceClaim { epoch, nonce: 4_000, count: 1, issued: now_seconds() };
    assert_eq!(worker.claim(&claim).await.unwrap(), NonceClaimResult::Stale);
    assert_ne!(worker.epoch().await.unwrap(), epoch);
}

/// As if the database's clock had been a day ahead when the floor was raised, or as if it had been set back
/// so far that nonces from a server whose clock is slightly behind are below the floor.
async fn floor_ahead_of_the_clock_ends_the_epoch(
    cluster: &TestCluster,
    worker: &Arc<NonceClaims>,
    first: &NonceClaim,
) {
    let mut claim = *first;
    // The second floor leaves a minute in which the claims are made.
    for (round, floor) in [86_400, 60 - CLOCK_SKEW_SECONDS].into_iter().enumerate() {
        assert_eq!(worker.claim(&claim).await.unwrap(), NonceClaimResult::First);
        cluster.sql(&format!(
            "UPDATE nouns_epoch SET floor = extract(epoch FROM now()) + {floor}, written_by = pg_current_xact_id()"
        ));
        // The first time the sweep notices it, the second time the claim itself.
        if round == 0 {
            sweep_until_new_epoch(cluster, worker, claim.epoch).await;
        }
        for _ in 0..2 {
            assert_eq!(worker.claim(&claim).await.unwrap(), NonceClaimResult::Stale);
        }
        claim.epoch = worker.epoch().await.unwrap();
        assert_ne!(claim.epoch, first.epoch);
        // The row of the same nonce in the former epoch still exists.
        claim.nonce += 1;
    }
    // A floor that leaves room for every nonce stays, and is not lowered.
    claim.issued = now_seconds();
    let floor = claim.issued - 2 * CLOCK_SKEW_SECONDS;
    cluster
        .sql(&format!("UPDATE nouns_epoch SET floor = {floor}, written_by = pg_current_xact_id()"));
    sweep_once(worker).await;
    assert_eq!(cluster.sql("SELECT floor FROM nouns_epoch"), floor.to_string());
    assert_eq!(worker.claim(&claim).await.unwrap(), NonceClaimResult::First);
    let old = NonceClaim { issued: floor - 1, nonce: claim.nonce + 1, ..claim };
    assert_eq!(worker.claim(&old).await.unwrap(), NonceClaimResult::Stale);
}

/// The store's own sweep may be running, and only one runs at a time.
async fn sweep_until_new_epoch(cluster: &TestCluster, worker: &Arc<NonceClaims>, former: u64) {
    let former = former.cast_signed().to_string();
    for _ in 0..1_000 {
        sweep_once(worker).await;
        if cluster.sql("SELECT epoch FROM nouns_epoch") != former {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no sweep began a new epoch");
}

/// If the epoch's row was inserted again (as a data-only restore does), it counts as a copy, which may lack
/// claims; the server starts a new epoch.
async fn copied_epoch_is_replaced(cluster: &TestCluster, worker: &Arc<NonceClaims>) {
    let epoch = worker.epoch().await.unwrap();
    let claim = NonceClaim { epoch, nonce: 77, count: 1, issued: now_seconds() };
    cluster.sql(
        "CREATE TABLE copied AS SELECT * FROM nouns_epoch; DELETE FROM nouns_epoch; \
         INSERT INTO nouns_epoch SELECT * FROM copied; DROP TABLE copied",
    );
    assert_eq!(worker.epoch().await.unwrap(), epoch, "it is still remembered");
    assert_eq!(worker.claim(&claim).await.unwrap(), NonceClaimResult::Stale);
    let epoch = worker.epoch().await.unwrap();
    assert_ne!(epoch, claim.epoch);
    assert_eq!(
        worker.claim(&NonceClaim { epoch, ..claim }).await.unwrap(),
        NonceClaimResult::First
    );
    // From another database, and from a server that was started at another time.
    for copied in ["database = 1", "started = started - interval '1 second'"] {
        let epoch = worker.epoch().await.unwrap();
        cluster.sql(&format!("UPDATE nouns_epoch SET {copied}, written_by = pg_current_xact_id()"));
        let claim = NonceClaim { epoch, count: 2, ..claim };
        assert_eq!(worker.claim(&claim).await.unwrap(), NonceClaimResult::Stale, "{copied}");
        assert_ne!(worker.epoch().await.unwrap(), epoch, "{copied}");
    }
}

async fn sweep_once(worker: &Arc<NonceClaims>) {
    let inner = &worker.state;
    let lease = inner.pool.lease(LeasePurpose::Read, clock::now() + NETWORK_GRACE).await.unwrap();
    let mut driver = PostgresDriver::new(&lease, TransactionStage::BeginPending);
    let epoch = getrandom::u64().unwrap();
    sweep_tables(&mut driver, Duration::from_secs(10), epoch).await.unwrap();
    lease.return_to_pool();
}

/// A lost connection invalidates no nonce; a restart or a crash of PostgreSQL invalidates all of them.
async fn restart_invalidates_nonces_and_reconnect_does_not(
    cluster: &TestCluster,
    workers: &[&Arc<NonceClaims>; 3],
) {
    let mut epoch = workers[0].epoch().await.unwrap();
    let issued = now_seconds();
    let of = |epoch: u64| move |count: u32| NonceClaim { epoch, nonce: 5_000, count, issued };
    // A claim corrects a server that still remembers another epoch.
    let _ = claim_all_in_turn(workers, (90..93).map(of(epoch))).await;
    assert_eq!(
        claim_all_in_turn(workers, (1..=3).map(of(epoch))).await,
        [NonceClaimResult::First; 3]
    );
    end_connections(cluster).await;
    assert_eq!(
        claim_all_in_turn(workers, (4..=6).map(of(epoch))).await,
        [NonceClaimResult::First; 3]
    );
    for mode in ["fast", "immediate"] {
        cluster.restart(mode);
        assert_eq!(
            claim_all_in_turn(workers, (1..=9).map(of(epoch))).await,
            [NonceClaimResult::Stale; 9],
            "{mode}"
        );
        let former = std::mem::replace(&mut epoch, workers[0].epoch().await.unwrap());
        assert_ne!(epoch, former);
        for worker in workers {
            assert_eq!(worker.epoch().await.unwrap(), epoch);
        }
        assert_eq!(
            claim_all_in_turn(workers, (1..=9).map(of(former))).await,
            [NonceClaimResult::Stale; 9]
        );
        let fresh = |count: u32| NonceClaim { nonce: u128::from(epoch), ..of(epoch)(count) };
        assert_eq!(
            claim_all_in_turn(workers, (1..=9).map(fresh)).await,
            [NonceClaimResult::First; 9]
        );
        assert_eq!(
            claim_all_in_turn(workers, (1..=9).map(fresh)).await,
            [NonceClaimResult::Replay; 9]
        );
    }
}

/// Ends all connections of the servers, and waits until PostgreSQL has closed them.
async fn end_connections(cluster: &TestCluster) {
    let ours = "SELECT coalesce(string_agg(pid::text, ','), '0') FROM pg_stat_activity \
                WHERE application_name = 'nouns'";
    let ours = cluster.sql(ours);
    let those = format!("FROM pg_stat_activity WHERE pid IN ({ours})");
    cluster.sql(&format!("SELECT count(pg_terminate_backend(pid)) {those}"));
    for _ in 0..1_000 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if cluster.sql(&format!("SELECT count(*) {those}")) == "0" {
            return;
        }
    }
    panic!("connections that were ended are still there");
}

/// A count found used after a lost answer may be our own attempt, so it is not reported as a replay.
#[test]
fn claim_after_lost_answer_is_unknown() {
    let told = |claimed| Some(ClaimAttemptResult::Decided(claimed));
    assert_eq!(rejection_reason(true, Some(0b101), 0b100, true), Some(ClaimAttemptResult::Unknown));
    assert_eq!(rejection_reason(true, Some(-1), 0b100, true), Some(ClaimAttemptResult::Unknown));
    assert_eq!(rejection_reason(true, Some(0b101), 0b100, false), told(NonceClaimResult::Replay));
    assert_eq!(rejection_reason(true, Some(-1), 0b100, false), told(NonceClaimResult::Stale));
    assert_eq!(rejection_reason(true, Some(0b101), 0b010, true), None);
    assert_eq!(rejection_reason(true, None, 1, false), told(NonceClaimResult::Stale));
    for kept in [None, Some(0b101), Some(-1)] {
        assert_eq!(rejection_reason(false, kept, 0b100, true), told(NonceClaimResult::Stale));
    }
}

/// A nonce that only one server sees is soon claimed there without a round trip, and still once only. At
/// other servers the leased counts are stale, also when the server that has leased them is gone.
async fn leased_counts_are_stale_at_other_servers(workers: &[&Arc<NonceClaims>; 3], epoch: u64) {
    let [one, other, pooled] = workers;
    let issued = now_seconds();
    let of = |nonce: u128, count: u32| NonceClaim { epoch, nonce, count, issued };
    let mut here = 0;
    for count in 1..=200 {
        let claim = of(10, count);
        here += usize::from(one.can_claim_nonce_locally(&claim));
        assert_eq!(one.claim(&claim).await.unwrap(), NonceClaimResult::First, "{count}");
        assert!(!other.can_claim_nonce_locally(&claim));
        if count % 7 == 0 {
            assert_eq!(one.claim(&claim).await.unwrap(), NonceClaimResult::Replay, "{count}");
        }
    }
    // All but the first nine, and the first of each block.
    assert_eq!(here, 200 - 9 - 3);

    // Used and unused counts, of the last block and of those that are used up.
    let leased = [200, 201, 252, 1, 63, 100].map(|count| of(10, count));
    assert_eq!(
        claim_all_in_turn(&[other, pooled], leased.into_iter()).await,
        [NonceClaimResult::Stale; 6]
    );
    // The server that has leased them still accepts them.
    assert_eq!(one.claim(&of(10, 200)).await.unwrap(), NonceClaimResult::Replay);
    assert_eq!(one.claim(&of(10, 201)).await.unwrap(), NonceClaimResult::First);
    // Nobody has leased the next block: its counts are claimed at any server, and stay used.
    for count in 253..=300 {
        let turn = workers[count as usize % 3];
        assert_eq!(turn.claim(&of(10, count)).await.unwrap(), NonceClaimResult::First, "{count}");
        assert_eq!(other.claim(&of(10, count)).await.unwrap(), NonceClaimResult::Replay, "{count}");
    }
}

/// Clients that stay with a server for a while and then move to another one, with concurrent requests and
/// repeated counts: each count is accepted once, or is stale wherever it was sent.
async fn moving_clients_claim_no_count_twice(workers: &[&Arc<NonceClaims>; 3], epoch: u64) {
    let issued = now_seconds();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let (mut here, mut stale) = (0, 0);
    for nonce in 100..108 {
        let (mut count, mut server) = (1, 0);
        let mut results = HashMap::<u32, Vec<NonceClaimResult>>::new();
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
                let claim = NonceClaim { epoch, nonce, count: asked, issued };
                here += usize::from(workers[at].can_claim_nonce_locally(&claim));
                claims.push((workers[at], claim));
                count += u32::from(asked == count);
            }
            let made = claims.iter().map(|(worker, claim)| worker.claim(claim));
            for (claimed, (_, claim)) in join_all(made).await.into_iter().zip(&claims) {
                results.entry(claim.count).or_default().push(claimed.unwrap());
            }
        }
        for (count, results) in results {
            let firsts =
                results.iter().filter(|result| **result == NonceClaimResult::First).count();
            let is_stale = results.iter().all(|result| *result == NonceClaimResult::Stale);
            assert!(firsts == 1 || is_stale, "{nonce} {count}: {results:?}");
            stale += usize::from(is_stale);
        }
    }
    assert!(here > 100, "{here} were claimed without a round trip");
    assert!(stale > 0, "no client moved away from a lease");
}
