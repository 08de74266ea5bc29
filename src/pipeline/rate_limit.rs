//! Rate limits per caller: where a role has a limit, each request counts, and every response states how many
//! requests are left (draft-ietf-httpapi-ratelimit-headers).
//!
//! Users are counted by name, anonymous callers by address. Each server counts separately. A request that is
//! answered with a challenge does not count; otherwise a few anonymous clients behind one address could keep
//! all users there from logging in.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::context::{App, RequestContext};
use crate::admission::CallerKey;
use crate::model::settings::RateLimit;
use crate::permit::Caller;
use crate::problem::{self, Problem};
use crate::rate_window::WindowState;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Counts a request, if its caller is rate-limited.
pub(super) fn count_request(
    app: &App,
    asked: &RequestContext<'_>,
    caller: &Caller,
) -> Result<(), Problem> {
    let Some(limit) = &caller.rights().rate_limit else { return Ok(()) };
    let whose = CallerKey::new(caller.user_name(), asked.sender.address);
    let often = (limit.requests, limit.window());
    let passed = app.shared.admission.rate_counters.count((&limit.role, whose), often, asked.now);
    let (Ok(seen) | Err(seen)) = passed;
    asked.rate_window.set(Some(seen));
    passed.map(drop).map_err(|seen| {
        let RateLimit { role, requests, seconds } = limit;
        let detail = format!("{role}: expected at most {requests} requests in {seconds} s");
        let problem = Problem::new(&problem::TOO_MANY_REQUESTS).detail(detail);
        problem.header(header::RETRY_AFTER, seconds_rounded_up(seen.remaining).into())
    })
}

/// Adds the `RateLimit` headers, if the caller is rate-limited.
pub(super) fn add_headers(asked: &RequestContext<'_>, headers: &mut HeaderMap) {
    let Some(WindowState { count, remaining: left }) = asked.rate_window.get() else { return };
    let known = asked.identified.get();
    let Some(limit) = known.and_then(|known| known.caller.rights().rate_limit.as_ref()) else {
        return;
    };
    let RateLimit { role, requests, seconds } = limit;
    let policy = format!("\"{role}\";q={requests};w={seconds}");
    let unused = requests.saturating_sub(count);
    let now = format!("\"{role}\";r={unused};t={}", seconds_rounded_up(left));
    for (name, text) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, now)] {
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(name, value);
        }
    }
}

/// Rounds up, so that a client that waits this long does not retry too early.
fn seconds_rounded_up(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX)
}
