//! Webhooks: signed requests to the receivers of events, by the rules of Standard Webhooks.
//!
//! A receiver is whatever the URL of a webhook leads to, and its administrator may be an attacker of the
//! network that this server is in (SSRF). So the connector resolves the host once, checks every address, and
//! connects to these addresses alone; redirects are not followed, and no proxy of the environment is used.

mod attempt;
mod client;
mod connector;
mod definition;
mod dispatcher;
mod engine;
mod engine_state;
mod fan_out;
mod schedule;
mod signature;
mod stored;

pub use client::{ReceiverAnswer, SendError, is_address_refused, printable_answer};
pub use engine::{WebhookContext, WebhookEngine};
pub use signature::SignedRequest;

use std::time::Duration;

use crate::clock;
use crate::model::types::AddressPolicy;
use attempt::ATTEMPT_MAX;
use client::{SendDeadline, SendLimits, WebhookClient};

/// Sends one request and waits for the answer, for commands: the caller has no runtime. Returns the duration
/// as well.
pub fn send_once(
    policy: AddressPolicy,
    url: &str,
    request: &SignedRequest,
) -> (Result<ReceiverAnswer, SendError>, Duration) {
    let began = clock::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answer = match runtime {
        Err(error) => Err(SendError::Setup(error.to_string())),
        Ok(runtime) => {
            let send_until = SendDeadline::after(ATTEMPT_MAX);
            let limits = SendLimits { attempt_max: ATTEMPT_MAX, send_until };
            let answer = runtime
                .block_on(async { WebhookClient::new(policy).send(url, request, limits).await });
            // A resolution that still runs is not waited for.
            runtime.shutdown_background();
            answer
        }
    };
    (answer, clock::now().saturating_duration_since(began))
}
