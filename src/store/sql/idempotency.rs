//! The statements of the idempotency keys and their stored responses, in the table `nouns_keys`.

use crate::store::sql::dialect::Dialect;

/// The bytes that one batch of the sweep deletes, plus one response: the response to a bulk create is long.
const SWEEP_BYTES_MAX: usize = 8 << 20;

/// The key in `nouns_system` of the last sweep of the idempotency keys; a second time in its value says since
/// when the clock is doubted.
pub const IDEMPOTENCY_CLOCK: &str = "keys_clock";

/// The time of the newest stored response.
pub const NEWEST_IDEMPOTENCY_KEY: &str = "SELECT max(time) FROM nouns_keys";

#[derive(Debug)]
pub struct IdempotencyStatements {
    /// Fingerprint and response. 1: scope, 2: the time before which a response has expired. While the clock
    /// is doubted, no response expires.
    pub find: String,
    /// Stores a response, or replaces an expired one. 1: scope, 2: fingerprint, 3: time, 4: bytes, 5: text.
    pub store: String,
    /// Whether keys have expired. 1: the cutoff time, 2: how many keys a batch examines.
    pub due: String,
    /// Deletes expired keys. 1: the cutoff time, 2: how many at most.
    pub sweep: String,
}

impl IdempotencyStatements {
    pub fn new(dialect: &Dialect) -> Self {
        let p = dialect.placeholder;
        Self {
            find: format!(
                "SELECT fingerprint, answer FROM nouns_keys WHERE scope = {p}1 AND (time > {p}2 \
                 OR EXISTS (SELECT 1 FROM nouns_system WHERE name = '{IDEMPOTENCY_CLOCK}' AND value LIKE '% %'))"
            ),
            due: format!(
                "SELECT 1 FROM (SELECT time FROM nouns_keys ORDER BY time, scope LIMIT {p}2) AS oldest \
                 WHERE time <= {p}1 LIMIT 1"
            ),
            store: format!(
                "INSERT INTO nouns_keys (scope, fingerprint, time, bytes, answer) \
                 VALUES ({p}1, {p}2, {p}3, {p}4, {p}5) ON CONFLICT (scope) DO UPDATE SET \
                 fingerprint = excluded.fingerprint, time = excluded.time, bytes = excluded.bytes, \
                 answer = excluded.answer"
            ),
            // The time is checked twice: a key may be reused while the sweep waits for its row.
            sweep: format!(
                "DELETE FROM nouns_keys WHERE time <= {p}1 AND scope IN (SELECT scope FROM \
                 (SELECT scope, bytes, sum(bytes) OVER (ORDER BY time, scope) AS total FROM \
                 (SELECT scope, time, bytes FROM nouns_keys WHERE time <= {p}1 \
                 ORDER BY time, scope LIMIT {p}2) AS oldest) AS counted \
                 WHERE total - bytes < {SWEEP_BYTES_MAX})"
            ),
        }
    }

    #[cfg(any(fuzzing, test))]
    pub fn all_texts(&self) -> [String; 4] {
        [self.find.clone(), self.store.clone(), self.due.clone(), self.sweep.clone()]
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::store::sql::dialect::SQLITE;

    /// The number of rows deleted by each batch, for `rows` expired responses of `bytes` bytes each.
    fn steps(rows: usize, bytes: i64) -> Vec<usize> {
        let connection = Connection::open_in_memory().unwrap();
        for table in SQLITE.idempotency_tables {
            connection.execute(table, []).unwrap();
        }
        for row in 0..rows {
            let row = (format!("{row}"), format!("2020-01-01T00:00:0{}Z", row % 3), bytes);
            let insert = "INSERT INTO nouns_keys VALUES (?1, 'x', ?2, ?3, 'x')";
            connection.execute(insert, row).unwrap();
        }
        let young = "INSERT INTO nouns_keys VALUES ('young', 'x', '2020-01-02T00:00:00Z', 1, 'x')";
        connection.execute(young, []).unwrap();
        let sweep = IdempotencyStatements::new(&SQLITE).sweep;
        let step = || connection.execute(&sweep, ("2020-01-01T23:00:00Z", 1_000)).unwrap();
        let steps = std::iter::repeat_with(step).take_while(|count| *count > 0).collect();
        let left = connection.query_row("SELECT scope FROM nouns_keys", [], |row| row.get(0));
        assert_eq!(left, Ok("young".to_owned()));
        steps
    }

    #[test]
    fn sweep_batch_of_idempotency_keys_is_bounded_in_rows_and_bytes() {
        assert!(steps(0, 1).is_empty());
        assert_eq!(steps(2_500, 100), [1_000, 1_000, 500]);
        assert_eq!(steps(5, 3 << 20), [3, 2]);
        assert_eq!(steps(2, 100 << 20), [1, 1]);
    }
}
