//! Rate limits per caller: where a role has a limit, each request counts, and every response states how many
//! requests are left (draft-ietf-httpapi-ratelimit-headers).
//!
//! Users are counted by name, anonymous callers by address. Each server counts separately. A request that is
//! answered with a challenge does not count; otherwise a few anonymous clients behind one address could keep
//! all users there from logging in.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::context::{RateUse, RequestContext, RequestFacts};
use crate::admission::CallerKey;
use crate::fault::OrBug;
use crate::model::settings::RateLimit;
use crate::permit::Caller;
use crate::problem::{self, Problem};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Counts a request, if its caller is rate-limited.
pub(super) fn count_request(
    request: &RequestContext<'_>,
    caller: &Caller,
    facts: &mut RequestFacts,
) -> Result<(), Problem> {
    let Some(limit) = &caller.rights().rate_limit else { return Ok(()) };
    let whose = CallerKey::new(caller.user_name(), request.sender.address);
    let often = (limit.requests, limit.window());
    let counters = &request.app.shared.admission.rate_counters;
    let passed = counters.count((&limit.role, whose), often, request.now);
    let (Ok(window) | Err(window)) = passed;
    facts.rate = Some(RateUse { limit: limit.clone(), window });
    passed.map(drop).map_err(|seen| {
        let RateLimit { role, requests, seconds } = limit;
        let detail = format!("{role}: expected at most {requests} requests in {seconds} s");
        let problem = Problem::new(&problem::TOO_MANY_REQUESTS).detail(detail);
        problem.header(header::RETRY_AFTER, seconds_rounded_up(seen.remaining).into())
    })
}

/// Adds the `RateLimit` headers, if the caller is rate-limited.
pub(super) fn add_headers(facts: &RequestFacts, headers: &mut HeaderMap) {
    let Some(RateUse { limit, window }) = &facts.rate else { return };
    let RateLimit { role, requests, seconds } = limit;
    let policy = format!("\"{role}\";q={requests};w={seconds}");
    let unused = requests.saturating_sub(window.count);
    let now = format!("\"{role}\";r={unused};t={}", seconds_rounded_up(window.remaining));
    for (name, text) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, now)] {
        let value = HeaderValue::try_from(text);
        headers.insert(name, value.or_bug("the name of a role has no control characters"));
    }
}

/// Rounds up, so that a client that waits this long does not retry too early.
fn seconds_rounded_up(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX)
}
