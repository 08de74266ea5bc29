//! Rate limits per caller: where a role has a limit, each request counts, and every response states the
//! rest (draft-ietf-httpapi-ratelimit-headers).
//!
//! Users are counted by name, anonymous callers by address. Each server counts for itself. The one
//! surprising thing: a request that is answered with a challenge does not count, or else a few strangers
//! behind one address could keep everybody there from logging in.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{App, Asked};
use crate::gate::Whose;
use crate::model::settings::RateLimit;
use crate::permit::Caller;
use crate::problem::{self, Problem};
use crate::windows::Seen;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Counts a request, if its caller is rate-limited.
pub(super) fn count(app: &App, asked: &Asked<'_>, caller: &Caller) -> Result<(), Problem> {
    let Some(limit) = &caller.rights().rate_limit else { return Ok(()) };
    let whose = Whose::new(caller.user_name(), asked.sender.address);
    let often = (limit.requests, limit.span());
    let passed = app.shared.gate.rates.count((&limit.role, whose), often, asked.now);
    let (Ok(seen) | Err(seen)) = passed;
    asked.counted.set(Some(seen));
    passed.map(drop).map_err(|seen| {
        let RateLimit { role, requests, seconds } = limit;
        let detail = format!("{role}: expected at most {requests} requests in {seconds} s");
        let problem = Problem::new(&problem::TOO_MANY_REQUESTS).detail(detail);
        problem.header(header::RETRY_AFTER, whole_seconds(seen.left).into())
    })
}

/// Adds the `RateLimit` headers, if the caller is rate-limited.
pub(super) fn tell(asked: &Asked<'_>, headers: &mut HeaderMap) {
    let Some(Seen { count, left }) = asked.counted.get() else { return };
    let known = asked.known.get();
    let Some(limit) = known.and_then(|known| known.caller.rights().rate_limit.as_ref()) else {
        return;
    };
    let RateLimit { role, requests, seconds } = limit;
    let policy = format!("\"{role}\";q={requests};w={seconds}");
    let unused = requests.saturating_sub(count);
    let now = format!("\"{role}\";r={unused};t={}", whole_seconds(left));
    for (name, text) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, now)] {
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(name, value);
        }
    }
}

/// Rounds up, so that a client that waits this long does not come too early.
fn whole_seconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX)
}
