//! One attempt to deliver an event: signs it, sends it, and records the result.
//!
//! The lease of the claim bounds everything: nothing is sent when it may end before the answer, because another server
//! may send the same delivery then.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::client::{
    NO_SECRET, ReceiverAnswer, SendDeadline, SendError, SendLimits, WebhookClient,
};
use super::definition::WebhookDefinition;
use super::schedule::{parse_retry_after, retry_delay};
use super::signature::SignedRequest;
use crate::auth::WebhookSecretOpener;
use crate::clock;
use crate::log::{Level, Logger};
use crate::metrics::WebhookMetrics;
use crate::model::Model;
use crate::model::types::find_url_fault;
use crate::plan::{
    AttemptFailure, AttemptResult, ChangeAuthor, ClaimedDelivery, CompletedAttempt,
    DeliveryOutcome, DeliveryTask, RequestRefusal, WritePlan,
};
use crate::store::{StoreError, StoreWorker, WriteOptions};
use crate::value::Id;
use crate::wire::RequestId;

/// The duration of one attempt, from the resolution of the name to the last byte of the answer.
pub const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// How long a claimed delivery belongs to this server.
pub const LEASE: Duration = Duration::from_secs(60);
/// The pause before a result is recorded again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The pause before a delivery is tried again whose secret cannot be opened.
const NO_SECRET_PAUSE: Duration = Duration::from_secs(60);
/// The maximum length of a stored error.
const ERROR_CHARS_MAX: usize = 200;
/// The timeout of the write that disables a webhook.
const DISABLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The status by which a receiver says that it wants no more events.
const GONE: u16 = 410;

/// What all attempts share.
#[derive(Debug)]
pub struct AttemptContext {
    pub model: Arc<Model>,
    pub store: StoreWorker,
    pub client: WebhookClient,
    pub secrets: WebhookSecretOpener,
    pub metrics: Arc<WebhookMetrics>,
    pub log: Logger,
}

/// The claim of a delivery.
#[derive(Debug, Clone)]
pub struct Lease {
    pub token: Box<str>,
    /// When the claim was requested; the lease began later.
    pub began: Instant,
    send_until: SendDeadline,
}

impl Lease {
    /// A claim that is about to be requested.
    pub fn new(token: Box<str>) -> Self {
        let send_until = SendDeadline::after(LEASE.saturating_sub(ATTEMPT_MAX));
        Self { token, began: clock::now(), send_until }
    }

    fn has_ended(&self) -> bool {
        clock::now() >= self.began + LEASE
    }
}

/// The end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptReport {
    pub has_failed: bool,
    /// Whether the delivery is no longer pending.
    pub is_final: bool,
    /// Whether the webhook was disabled.
    pub is_disabled: bool,
}

/// Sends a claimed delivery, and records the result.
pub async fn attempt(
    context: Rc<AttemptContext>,
    webhook: Rc<WebhookDefinition>,
    delivery: ClaimedDelivery,
    lease: Lease,
) -> AttemptReport {
    let (began, metrics) = (clock::now(), Arc::clone(&context.metrics));
    let request = DeliveryRequest { id: delivery.id, body: delivery.body.clone().into() };
    // In a separate task, so that a panic is a failed attempt.
    let sent = spawn_local(send(Rc::clone(&context), Rc::clone(&webhook), request, lease.clone()));
    let answer = sent.await.unwrap_or_else(|_| {
        metrics.panics.add(1);
        Err(SendError::Setup("an internal error of the server, which has logged it".to_owned()))
    });
    let (context, webhook, lease) = (&*context, &*webhook, &lease);
    metrics.attempt_time.observe_time(clock::now().saturating_duration_since(began));
    let is_gone = matches!(&answer, Ok(ReceiverAnswer { status: GONE, .. }));
    let random = getrandom::u64().unwrap_or_else(|_| clock::unix_millis());
    let result = judge_answer(answer, delivery.tries, random);
    match &result {
        AttemptResult::Delivered { .. } => metrics.delivered.add(1),
        AttemptResult::Failed(AttemptFailure { retry_after: Some(_), .. }) => {
            metrics.retried.add(1);
        }
        AttemptResult::Failed(AttemptFailure { retry_after: None, .. }) => metrics.dead.add(1),
        AttemptResult::Released | AttemptResult::Postponed { .. } => metrics.released.add(1),
    }
    let report = AttemptReport {
        has_failed: !matches!(result, AttemptResult::Delivered { .. }),
        is_final: match &result {
            AttemptResult::Delivered { .. } => true,
            AttemptResult::Failed(failure) => failure.retry_after.is_none(),
            AttemptResult::Released | AttemptResult::Postponed { .. } => false,
        },
        is_disabled: is_gone,
    };
    // First: deliveries of a webhook that is disabled are not claimed.
    if is_gone {
        disable(context, webhook).await;
    }
    record(context, webhook, (delivery, result), lease).await;
    report
}

/// What is sent of a delivery.
struct DeliveryRequest {
    id: Id,
    body: Bytes,
}

async fn send(
    context: Rc<AttemptContext>,
    webhook: Rc<WebhookDefinition>,
    request: DeliveryRequest,
    lease: Lease,
) -> Result<ReceiverAnswer, SendError> {
    crate::fault::point("attempt");
    // The settings may have changed since it was stored.
    if find_url_fault(&webhook.url, context.model.server.allows_private_webhooks()).is_some() {
        return Err(SendError::InvalidUrl);
    }
    let now = clock::moment();
    let expires = webhook.previous_secret_expires;
    let secrets = context.secrets.open(&webhook.sealed_secrets, expires, now);
    let Some(secrets) = secrets.filter(|secrets| !secrets.is_empty()) else {
        return Err(SendError::NoSecret);
    };
    let request = SignedRequest::new(&secrets, request.id.text(), now.seconds(), request.body);
    let limits = SendLimits { attempt_max: ATTEMPT_MAX, send_until: lease.send_until };
    context.client.send(&webhook.url, &request, limits).await
}

/// What an answer means for the delivery. `random` is any number.
fn judge_answer(
    answer: Result<ReceiverAnswer, SendError>,
    tries: i64,
    random: u64,
) -> AttemptResult {
    let (status, error, asked) = match answer {
        Ok(answer) if answer.is_success() => {
            return AttemptResult::Delivered { status: answer.status };
        }
        Err(SendError::TooLate) => return AttemptResult::Released,
        Err(SendError::NoSecret) => {
            return AttemptResult::Postponed { error: NO_SECRET, pause: NO_SECRET_PAUSE };
        }
        Ok(answer) => {
            let error = match answer.status {
                300..=399 => "the receiver redirects, which is not followed",
                GONE => "the receiver wants no more events (410), and the webhook was disabled",
                _ => "the receiver did not accept the event",
            };
            let asked = answer.retry_after.filter(|_| matches!(answer.status, 429 | 503));
            let asked = asked.and_then(|text| parse_retry_after(&text, clock::system_time()));
            (Some(answer.status), error.to_owned(), asked)
        }
        Err(error) => (None, error.to_string(), None),
    };
    let error = error.chars().filter(|c| !c.is_control()).take(ERROR_CHARS_MAX).collect();
    AttemptResult::Failed(AttemptFailure {
        status,
        error,
        retry_after: retry_delay(tries, random, asked),
    })
}

/// Records a result, and tries again until the lease ends: then another server sends the delivery once more.
async fn record(
    context: &AttemptContext,
    webhook: &WebhookDefinition,
    (delivery, result): (ClaimedDelivery, AttemptResult),
    lease: &Lease,
) {
    loop {
        let completed = CompletedAttempt {
            webhook: webhook.id,
            delivery: delivery.id,
            subject: delivery.subject.clone(),
            token: lease.token.clone(),
            result: result.clone(),
        };
        let error = match context.store.deliver(DeliveryTask::Complete(completed)).await {
            Ok(DeliveryOutcome::Superseded) => {
                let message =
                    "the lease of a webhook delivery had ended before its result was recorded";
                let id = delivery.id.text();
                return context.log.event(Level::Warning, message, &[("delivery", &id)]);
            }
            Ok(_) => return,
            Err(error) => error,
        };
        if lease.has_ended() {
            let message =
                "the result of a webhook delivery could not be recorded; it is sent again";
            let id = delivery.id.text();
            let fields: &[(&str, &dyn std::fmt::Display)] = &[("delivery", &id), ("cause", &error)];
            return context.log.event(Level::Error, message, fields);
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Disables a webhook as a client would, so that the change log has it. A webhook that has been changed meanwhile
/// stays as it is: the answer was not about that.
async fn disable(context: &AttemptContext, webhook: &WebhookDefinition) {
    let author = ChangeAuthor::without_user("webhooks", RequestId::new().as_str());
    let reason = "the receiver answered 410 Gone";
    let write =
        WritePlan::disable_webhook(&context.model, (webhook.id, webhook.version), reason, author);
    let options = WriteOptions::with_deadline(clock::now() + DISABLE_TIMEOUT);
    let id = webhook.id.text();
    match context.store.write(Box::new(write), options).await {
        Ok(_) => {
            let message = "a webhook was disabled: its receiver answered 410";
            context.log.event(Level::Warning, message, &[("webhook", &id)]);
        }
        Err(StoreError::Refused(
            RequestRefusal::Missing | RequestRefusal::PreconditionFailed(_),
        )) => {}
        Err(error) => {
            let message = "a webhook could not be disabled";
            context.log.event(Level::Error, message, &[("webhook", &id), ("cause", &error)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, retry_after: Option<&str>) -> Result<ReceiverAnswer, SendError> {
        let retry_after = retry_after.map(str::to_owned);
        Ok(ReceiverAnswer { status, body: b"secret words".to_vec(), retry_after })
    }

    fn failure(answer: Result<ReceiverAnswer, SendError>, tries: i64) -> AttemptFailure {
        match judge_answer(answer, tries, 250) {
            AttemptResult::Failed(failure) => failure,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answer_2xx_is_delivered_and_all_others_are_tried_again() {
        for status in [200, 202, 204, 299] {
            let result = judge_answer(answer(status, None), 0, 0);
            assert_eq!(result, AttemptResult::Delivered { status });
        }
        for status in [199, 300, 301, 304, 400, 401, 404, 410, 429, 500, 503] {
            let failure = failure(answer(status, None), 0);
            assert_eq!(failure.status, Some(status));
            assert_eq!(failure.retry_after, Some(Duration::from_secs(5)));
            assert!(!failure.error.contains("secret"), "{failure:?}");
        }
        assert_eq!(failure(answer(500, None), 13).retry_after, None);
        assert_eq!(judge_answer(Err(SendError::TooLate), 0, 0), AttemptResult::Released);
        // Not after the last try either: the receiver has not got it once.
        let postponed = judge_answer(Err(SendError::NoSecret), 13, 0);
        assert!(matches!(postponed, AttemptResult::Postponed { .. }), "{postponed:?}");
    }

    #[test]
    fn answer_with_retry_after_counts_for_429_and_503_alone() {
        for (status, seconds) in [(429, 60), (503, 60), (500, 5), (404, 5)] {
            let failure = failure(answer(status, Some("60")), 0);
            assert_eq!(failure.retry_after, Some(Duration::from_secs(seconds)), "{status}");
        }
    }

    #[test]
    fn answer_error_is_short_and_printable() {
        let failure = failure(Err(SendError::Tls("a\n\u{1b}[31m".repeat(200))), 0);
        assert_eq!(failure.status, None);
        assert!(failure.error.chars().count() <= ERROR_CHARS_MAX);
        assert!(!failure.error.contains(char::is_control));
    }
}
