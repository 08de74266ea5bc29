//! Test case reduction: leaves out requests as long as the servers still differ.
//!
//! Each attempt has two new servers with empty databases.
//! The difference need not be the same in the end; any is a bug.

use std::time::{Duration, Instant};

use super::pair::{BackendPair, ResponseDifference};
use super::request_template::RequestTemplate;
use crate::harness::Setup;

/// The time limit of the reduction. The test of a planted difference expects a short sequence on a slow machine too.
const SHRINK_TIME_MAX: Duration = Duration::from_secs(600);

/// Sends a sequence to a new pair. Returns the difference, and everything sent.
fn replay(asks: &[RequestTemplate], setups: &[Setup; 2]) -> Option<(ResponseDifference, String)> {
    let mut pair = BackendPair::new(setups);
    let found = asks.iter().find_map(|ask| pair.send_to_both(ask).err());
    let found = found.or_else(|| pair.compare_logs().err())?;
    Some((found, pair.sent().to_owned()))
}

/// The shortest sequence that was found, as HTTP text, with the two responses to its last request.
pub fn shrink(mut asks: Vec<RequestTemplate>, setups: &[Setup; 2]) -> Option<(usize, String)> {
    let began = Instant::now();
    let (mut found, mut sent) = replay(&asks, setups)?;
    asks.truncate(found.requests);
    let mut length = asks.len().div_ceil(2);
    loop {
        let mut start = 0;
        while start < asks.len() && began.elapsed() < SHRINK_TIME_MAX {
            let end = (start + length).min(asks.len());
            let fewer = [&asks[..start], &asks[end..]].concat();
            match replay(&fewer, setups) {
                Some((difference, text)) => {
                    (asks, found, sent) = (fewer, difference, text);
                    asks.truncate(found.requests);
                }
                None => start = end,
            }
        }
        if length == 1 || began.elapsed() >= SHRINK_TIME_MAX {
            break;
        }
        length = length.div_ceil(2);
    }
    let [one, other] = &found.answers;
    let (one, other) = (differing_part(one, other), differing_part(other, one));
    Some((asks.len(), format!("{sent}--- one side\n{one}\n--- the other side\n{other}")))
}

/// A short response completely; of a long one, such as a change log, the lines that the other does not
/// have.
fn differing_part(text: &str, other: &str) -> String {
    if text.lines().count() < 40 {
        return text.to_owned();
    }
    let lines = text.lines().zip(other.lines().chain(std::iter::repeat("")));
    lines
        .filter(|(line, other)| line != other)
        .take(10)
        .map(|(line, _)| format!("{line}\n"))
        .collect()
}
