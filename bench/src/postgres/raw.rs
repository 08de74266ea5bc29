//! A raw PostgreSQL client that repeats one statement: the upper limit for any server on this database.
//!
//! It has as many connections and threads as our server, and sends the same statements, each prepared
//! once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::BytesMut;
use tokio::runtime::{Builder, LocalOptions};
use tokio_postgres::types::{IsNull, ToSql, Type};
use tokio_postgres::{Client, NoTls, Statement};

use super::CLIENT_TIME;
use crate::Result;

/// As `database_connections_max` is by default.
const CONNECTIONS: usize = 20;

const IDS: &str = "SELECT id::text FROM customers LIMIT 10000";
const SELECT: &str = r#"SELECT t0."id", t0."created_at", t0."updated_at", t0."version", t0."name", t0."email" FROM "customers" t0 WHERE t0."id" = ($1::text)::uuid"#;
const INSERT: &str = r#"WITH written AS (INSERT INTO "customers" ("id", "created_at", "updated_at", "version", "name", "email") VALUES ($1, $2, $3, $4, $5, $6)) INSERT INTO nouns_changes (sequence, time, resource, id, parent_id, subject, kind, actor, request_id, changed, before, after) VALUES (nouns_next_change($18), $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)"#;

/// Rows of one batched INSERT: about as many as our server coalesces under a load of 32 connections.
const BATCH_ROWS: usize = 8;
const INSERT_BATCH: &str = r#"WITH given AS (SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::bigint[], $5::text[], $6::text[], $7::timestamptz[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[]) WITH ORDINALITY AS given (c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17, at)), written AS (INSERT INTO "customers" ("id", "created_at", "updated_at", "version", "name", "email") SELECT c1, c2, c3, c4, c5, c6 FROM given) INSERT INTO nouns_changes (sequence, time, resource, id, parent_id, subject, kind, actor, request_id, changed, before, after) SELECT nouns_next_change(at = 1), c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17 FROM given"#;

/// A value in PostgreSQL's binary format, such as a UUID or a timestamp.
#[derive(Debug)]
struct Binary<const N: usize>([u8; N]);

impl<const N: usize> ToSql for Binary<N> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

/// The statement to repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawStatement {
    Select,
    Insert,
    /// A batch of rows in one statement; each row counts.
    InsertBatch,
}

impl RawStatement {
    pub fn name(self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::Insert => "insert",
            Self::InsertBatch => "insert-all",
        }
    }

    fn parse(word: &str) -> Result<Self> {
        let all = [Self::Select, Self::Insert, Self::InsertBatch];
        Ok(all.into_iter().find(|kind| kind.name() == word).ok_or("no such statement")?)
    }

    fn sql(self) -> &'static str {
        match self {
            Self::Select => SELECT,
            Self::Insert => INSERT,
            Self::InsertBatch => INSERT_BATCH,
        }
    }
}

/// Prints the number of statements, and the nanoseconds of CPU that they took.
pub fn run(word: &str, address: &str) -> Result<()> {
    let kind = RawStatement::parse(word)?;
    let threads = std::thread::available_parallelism()?.get();
    let count = AtomicU64::new(0);
    let before = cpu_nanos()?;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| run_worker(kind, address, CONNECTIONS / threads, &count)))
            .collect();
        workers.into_iter().all(|worker| worker.join().is_ok_and(|done| done.is_ok()))
    })
    .then_some(())
    .ok_or("a thread failed")?;
    println!("{} {}", count.load(Ordering::Relaxed), cpu_nanos()? - before);
    Ok(())
}

/// CPU time of this process: user and system, in ticks of 10 ms.
fn cpu_nanos() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text.rsplit_once(')').ok_or("no stat")?.1.split_whitespace().collect();
    let ticks = |at: usize| -> Result<u64> { Ok(fields.get(at).ok_or("no field")?.parse()?) };
    Ok((ticks(11)? + ticks(12)?) * 10_000_000)
}

fn run_worker(
    kind: RawStatement,
    address: &str,
    connections: usize,
    count: &AtomicU64,
) -> std::result::Result<(), String> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let runtime = runtime.map_err(|error| error.to_string())?;
    let failed = |error: tokio_postgres::Error| error.to_string();
    runtime.block_on(async {
        let until = Instant::now() + CLIENT_TIME;
        let mut loops = Vec::new();
        for _ in 0..connections {
            let (client, connection) =
                tokio_postgres::connect(address, NoTls).await.map_err(failed)?;
            tokio::task::spawn_local(connection);
            loops.push(tokio::task::spawn_local(repeat_statement(kind, client, until)));
        }
        for one in loops {
            let done = one.await.map_err(|error| error.to_string())?.map_err(failed)?;
            count.fetch_add(done, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// A range of numbers that no other connection and no other run uses.
fn first_number() -> u128 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
    let connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
    (now.map_or(0, |now| now.as_micros()) << 64) | (u128::from(connection) << 40)
}

async fn repeat_statement(
    kind: RawStatement,
    client: Client,
    until: Instant,
) -> std::result::Result<u64, tokio_postgres::Error> {
    let rows = client.query(IDS, &[]).await?;
    let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let statement = client.prepare(kind.sql()).await?;
    let mut count = 0;
    let mut number = first_number();
    while Instant::now() < until {
        match kind {
            RawStatement::Select => {
                let id = ids.get(usize::try_from(count).unwrap_or(0) * 7_919 % ids.len().max(1));
                client.query(&statement, &[&id.map_or("", String::as_str)]).await?;
                count += 1;
            }
            RawStatement::Insert => {
                number += 1;
                insert(&client, &statement, number).await?;
                count += 1;
            }
            RawStatement::InsertBatch => {
                let numbers: Vec<u128> =
                    (1..=BATCH_ROWS as u128).map(|more| number + more).collect();
                number += BATCH_ROWS as u128;
                insert_batch(&client, &statement, &numbers).await?;
                count += BATCH_ROWS as u64;
            }
        }
    }
    Ok(count)
}

const ID: &str = "01a1de71-54a8-7358-b055-3164ad414678";
const SUBJECT: &str = "/customers/01a1de71-54a8-7358-b055-3164ad414678";
const AFTER: &str = r#"{"id":"01a1de71-54a8-7358-b055-3164ad414678","name":"Ann","email":"ann@example.com","created_at":"2026-11-15T09:02:11.624566Z","updated_at":"2026-11-15T09:02:11.624566Z","version":1}"#;
const NONE: Option<&str> = None;

fn timestamp() -> Binary<8> {
    Binary(800_000_000_000_000_i64.to_be_bytes())
}

async fn insert(
    client: &Client,
    statement: &Statement,
    number: u128,
) -> std::result::Result<u64, tokio_postgres::Error> {
    let (key, time) = (Binary(number.to_be_bytes()), timestamp());
    let item: [&(dyn ToSql + Sync); 6] = [&key, &time, &time, &1_i64, &"Ann", &"ann@example.com"];
    let entry: [&(dyn ToSql + Sync); 12] = [
        &time,
        &"customer",
        &ID,
        &NONE,
        &SUBJECT,
        &"created",
        &"open",
        &"r",
        &NONE,
        &NONE,
        &AFTER,
        &true,
    ];
    client.execute(statement, &[&item[..], &entry[..]].concat()).await
}

async fn insert_batch(
    client: &Client,
    statement: &Statement,
    numbers: &[u128],
) -> std::result::Result<u64, tokio_postgres::Error> {
    let texts = |text: &'static str| vec![text; numbers.len()];
    let keys: Vec<_> = numbers.iter().map(|number| Binary(number.to_be_bytes())).collect();
    let times: Vec<_> = numbers.iter().map(|_| timestamp()).collect();
    let (versions, none) = (vec![1_i64; numbers.len()], vec![NONE; numbers.len()]);
    let (name, email) = (texts("Ann"), texts("ann@example.com"));
    let item: [&(dyn ToSql + Sync); 6] = [&keys, &times, &times, &versions, &name, &email];
    let (resource, id, subject) = (texts("customer"), texts(ID), texts(SUBJECT));
    let (kind, actor, request, after) = (texts("created"), texts("open"), texts("r"), texts(AFTER));
    let entry: [&(dyn ToSql + Sync); 11] =
        [&times, &resource, &id, &none, &subject, &kind, &actor, &request, &none, &none, &after];
    client.execute(statement, &[&item[..], &entry[..]].concat()).await
}
