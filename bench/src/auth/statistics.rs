//! The Mann-Whitney U test: whether two sets of times come from the same distribution.
//!
//! It compares ranks, so that a few responses that the scheduler delayed weigh no more than others.

/// The U statistic of the first set, in standard deviations from its expected value, and the two-sided
/// probability of so large a deviation by chance.
#[derive(Debug, Clone, Copy)]
pub struct RankTest {
    pub z: f64,
    pub p: f64,
}

/// Uses the normal approximation, which is good for more than twenty values in each set, and the
/// correction for ties.
pub fn mann_whitney(first: &[f64], second: &[f64]) -> RankTest {
    let mut all: Vec<(f64, bool)> = first.iter().map(|value| (*value, true)).collect();
    all.extend(second.iter().map(|value| (*value, false)));
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut rank_sum, mut ties, mut before) = (0.0, 0.0, 0.0);
    for equal in all.chunk_by(|one, other| one.0 == other.0) {
        let count = equal.len() as f64;
        // Equal values share the mean of their ranks.
        let rank = before + (count + 1.0) / 2.0;
        rank_sum += rank * equal.iter().filter(|(_, is_first)| *is_first).count() as f64;
        ties += count.powi(3) - count;
        before += count;
    }
    let (n, m) = (first.len() as f64, second.len() as f64);
    let u = rank_sum - n * (n + 1.0) / 2.0;
    let total = n + m;
    let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    let z = if variance > 0.0 { (u - n * m / 2.0) / variance.sqrt() } else { 0.0 };
    RankTest { z, p: two_sided(z) }
}

/// The probability that a normal variable deviates at least this far from its mean, by the rational
/// approximation 7.1.26 of Abramowitz and Stegun, with an error of at most 1.5e-7.
fn two_sided(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let factors = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let polynomial = factors.iter().fold(0.0, |sum, factor| sum * t + factor) * t;
    polynomial * (-x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(seen: f64, expected: f64, off_max: f64) {
        assert!((seen - expected).abs() < off_max, "{seen}, expected {expected}");
    }

    #[test]
    fn two_sided_probability_matches_known_values() {
        for (z, p) in [(0.0, 1.0), (1.0, 0.317_310_5), (1.96, 0.049_995_8), (3.290_53, 0.001)] {
            assert_close(two_sided(z), p, 1e-6);
            assert_close(two_sided(-z), p, 1e-6);
        }
    }

    #[test]
    fn mann_whitney_equal_sets_do_not_differ() {
        let set: Vec<f64> = (0..100).map(f64::from).collect();
        let rank = mann_whitney(&set, &set);
        assert_close(rank.z, 0.0, 1e-9);
        assert_close(rank.p, 1.0, 1e-6);
        assert_close(mann_whitney(&[1.0; 50], &[1.0; 50]).p, 1.0, 1e-6);
    }

    /// 1 to 5 beside 6 to 10: U is 0, its mean 12.5, its variance 5 * 5 * 11 / 12.
    #[test]
    fn mann_whitney_separate_sets_differ() {
        let rank = mann_whitney(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]);
        assert_close(rank.z, -12.5 / (275.0_f64 / 12.0).sqrt(), 1e-9);
        // With a tie across: ranks 1, 2.5 beside 2.5, 4; the variance is 4 / 12 * (5 - 6 / 12).
        let rank = mann_whitney(&[1.0, 2.0], &[2.0, 3.0]);
        assert_close(rank.z, -1.5 / 1.5_f64.sqrt(), 1e-9);
    }

    #[test]
    fn mann_whitney_small_shift_in_2000_samples_is_significant() {
        let set: Vec<f64> = (0..2000).map(|n| f64::from(n * 7919 % 2003)).collect();
        let shifted: Vec<f64> = set.iter().map(|value| value + 150.0).collect();
        assert!(mann_whitney(&set, &shifted).p < 0.001);
    }
}
