//! The statements about kept answers, in the table `nouns_keys`.

use super::Dialect;

/// So much goes in one step of the sweep, and one answer more: a list of new items has a long one.
const SWEEP_BYTES_MAX: usize = 8 << 20;

#[derive(Debug)]
pub(in crate::store) struct Keys {
    /// Mark and answer. 1: scope, 2: the time before which an answer counts no more.
    pub(in crate::store) find: String,
    /// In place of one that counts no more. 1: scope, 2: mark, 3: time, 4: bytes, 5: answer.
    pub(in crate::store) keep: String,
    /// 1: the time before which answers go, 2: how many at most.
    pub(in crate::store) sweep: String,
}

impl Keys {
    pub(super) fn new(dialect: &Dialect) -> Self {
        let p = dialect.placeholder;
        Self {
            find: format!(
                "SELECT fingerprint, answer FROM nouns_keys WHERE scope = {p}1 AND time > {p}2"
            ),
            keep: format!(
                "INSERT INTO nouns_keys (scope, fingerprint, time, bytes, answer) \
                 VALUES ({p}1, {p}2, {p}3, {p}4, {p}5) ON CONFLICT (scope) DO UPDATE SET \
                 fingerprint = excluded.fingerprint, time = excluded.time, bytes = excluded.bytes, \
                 answer = excluded.answer"
            ),
            // The time is looked at twice: a key may be used anew while the sweep waits for its row.
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
    pub(super) fn texts(&self) -> [String; 3] {
        [self.find.clone(), self.keep.clone(), self.sweep.clone()]
    }
}
