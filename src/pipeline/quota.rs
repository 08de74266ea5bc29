//! How often a caller may ask: where their roles are limited, each request counts, and every answer says
//! how many are left (draft-ietf-httpapi-ratelimit-headers).
//!
//! Users are counted by their name, callers without one by their address. Each server counts for itself.
//! The one surprising thing: who has to prove first who they are is not counted for that, or else a few
//! strangers behind one address could keep everybody there from logging in.

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

/// Counts a request, if its caller is limited.
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

/// Says what is left, if the caller is limited.
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

/// Who comes back after so many does not come too early.
fn whole_seconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX)
}
