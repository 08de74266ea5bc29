//! Mapping of the store's refusals and failures to problems.
//!
//! Pure. The cause goes to the log only.

use http::{HeaderName, HeaderValue, header};

use crate::model::{Model, ResourceIndex};
use crate::plan::{Collection, HistoryRefusal, RelatedLimits, RequestRefusal};
use crate::problem::{self, ExtensionValue, Problem};
use crate::store::{InternalError, StoreError};

/// The number of the oldest change that is kept.
pub const CHANGES_OLDEST: HeaderName = HeaderName::from_static("changes-oldest");

/// Maps an error of the store to a problem for the client.
pub fn failure(model: &Model, about: Option<&Collection>, error: StoreError) -> Problem {
    match error {
        StoreError::Refused(refusal) => refusal_problem(model, about, refusal),
        StoreError::Busy => Problem::new(&problem::BUSY),
        StoreError::TimedOut => Problem::new(&problem::TIMED_OUT),
        StoreError::RightsChanged => {
            let detail = "your roles changed while the request waited: send it again";
            Problem::new(&problem::BUSY).detail(detail)
        }
        StoreError::Unavailable(cause) => Problem::new(&problem::UNAVAILABLE).cause(cause),
        StoreError::OutcomeUnknown(cause) => Problem::new(&problem::OUTCOME_UNKNOWN).cause(cause),
        StoreError::Broken(InternalError(cause)) => Problem::new(&problem::INTERNAL).cause(cause),
    }
}

fn refusal_problem(model: &Model, about: Option<&Collection>, refusal: RequestRefusal) -> Problem {
    let name = about.map_or("item", |about| &model.resource(about.resource).name);
    match refusal {
        RequestRefusal::Missing => Problem::new(&problem::NOT_FOUND),
        RequestRefusal::PreconditionRequired => Problem::new(&problem::PRECONDITION_REQUIRED)
            .detail(format!("expected If-Match with the ETag of the {name}")),
        RequestRefusal::PreconditionFailed(Some(now)) => {
            Problem::new(&problem::PRECONDITION_FAILED)
                .detail(format!("the {name} has version {} now", now.version))
        }
        RequestRefusal::PreconditionFailed(None) => Problem::new(&problem::PRECONDITION_FAILED),
        RequestRefusal::Patch(detail) => Problem::new(&problem::PATCH_FAILED).detail(detail),
        RequestRefusal::Invalid(faults) => Problem::new(&problem::INVALID_FIELDS).faults(faults),
        RequestRefusal::ReadOnly(faults) => Problem::new(&problem::READ_ONLY_FIELD).faults(faults),
        // Without faults where every field of them is hidden from the caller.
        RequestRefusal::OutsideRowFilter(faults) => {
            Problem::new(&problem::OUTSIDE_GRANT).faults(faults)
        }
        RequestRefusal::NotUnique(faults) => Problem::new(&problem::TAKEN).faults(faults),
        RequestRefusal::Referenced(by) => {
            let is_seen = |by: &ResourceIndex| about.is_none_or(|about| about.scope.can_read(*by));
            let by = by.filter(is_seen).map_or("items", |by| &*model.resource(by).plural);
            Problem::new(&problem::REFERENCED)
                .detail(format!("there are {by} that belong or refer to this {name}"))
        }
        RequestRefusal::LastAdmin => Problem::new(&problem::LAST_ADMIN),
        RequestRefusal::TooManyReferences { references_max } => too_many_references(references_max),
        RequestRefusal::TooManyDependents { dependents_max } => {
            too_many_dependents(name, dependents_max)
        }
        RequestRefusal::TooManyWebhooks { webhooks_max } => too_many_webhooks(webhooks_max),
        RequestRefusal::TooManyRelated(limits) => too_many_related(limits),
        RequestRefusal::PositionGone { oldest } => {
            let oldest = oldest.unwrap_or(0);
            Problem::new(&problem::POSITION_GONE)
                .detail(format!("the oldest change that is kept is {oldest}"))
                .header(CHANGES_OLDEST, HeaderValue::from(oldest))
        }
        RequestRefusal::PositionNotReached { reached } => {
            Problem::new(&problem::POSITION_NOT_REACHED)
                .detail(format!("expected a position up to {reached}, got a larger one"))
        }
        RequestRefusal::History(refusal) => history_problem(name, refusal),
        RequestRefusal::IdempotencyKeyReused => Problem::new(&problem::IDEMPOTENCY_KEY_USED),
        RequestRefusal::IdempotencyKeyInFlight => Problem::new(&problem::REQUEST_UNDER_WAY)
            .header(header::RETRY_AFTER, HeaderValue::from_static("1")),
        RequestRefusal::HiddenTransition { to } => Problem::new(&problem::TRANSITION_NOT_ALLOWED)
            .detail(format!("the {name} cannot become {to} now")),
        RequestRefusal::TransitionNotGranted { from, to, allowed } => {
            let texts = allowed.iter().map(ToString::to_string).collect();
            Problem::new(&problem::TRANSITION_NOT_GRANTED)
                .detail(format!("the {name} is {from}, and your roles do not let it become {to}"))
                .member("state", ExtensionValue::Text(from.into()))
                .member("allowed", ExtensionValue::Texts(texts))
        }
        RequestRefusal::Transition { from, to, allowed } => {
            let texts = allowed.iter().map(ToString::to_string).collect();
            let detail = match &from {
                Some(from) => format!("the {name} is {from} and cannot become {to}"),
                None => format!("a new {name} cannot be {to}"),
            };
            let problem = Problem::new(&problem::TRANSITION_NOT_ALLOWED).detail(detail);
            let problem = match from {
                Some(from) => problem.member("state", ExtensionValue::Text(from.into())),
                None => problem,
            };
            problem.member("allowed", ExtensionValue::Texts(texts))
        }
    }
}

fn too_many_references(references_max: usize) -> Problem {
    let detail = format!(
        "expected references to at most {references_max} different items (references_max), got more"
    );
    Problem::new(&problem::TOO_LARGE).detail(detail)
}

fn too_many_dependents(name: &str, dependents_max: usize) -> Problem {
    Problem::new(&problem::TOO_MANY_CHILDREN)
        .detail(format!("more than {dependents_max} items would go with this {name}"))
}

fn too_many_webhooks(webhooks_max: usize) -> Problem {
    Problem::new(&problem::TOO_MANY_WEBHOOKS)
        .detail(format!("expected at most {webhooks_max} webhooks (webhooks_max)"))
}

fn too_many_related(RelatedLimits { items_max, bytes_max }: RelatedLimits) -> Problem {
    Problem::new(&problem::BAD_QUERY).detail(format!(
        "expand: expected at most {items_max} related items of at most {} MiB together, got more; ask for less with \
         limit, or with limit in parentheses after the children",
        bytes_max >> 20
    ))
}

/// Why an item cannot be shown as it was.
fn history_problem(name: &str, refusal: HistoryRefusal) -> Problem {
    match refusal {
        HistoryRefusal::NoValues => Problem::new(&problem::NO_HISTORY),
        HistoryRefusal::NoSuchVersion { latest } => Problem::new(&problem::NO_SUCH_VERSION)
            .detail(format!("the last version of the {name} is {latest}")),
        HistoryRefusal::NotYetCreated { created_at } => Problem::new(&problem::NO_SUCH_VERSION)
            .detail(format!("the {name} was created later, at {created_at}")),
        HistoryRefusal::AlreadyDeleted { deleted_at } => Problem::new(&problem::NO_SUCH_VERSION)
            .detail(format!("the {name} was deleted before, at {deleted_at}")),
        HistoryRefusal::Swept { oldest, since } => Problem::new(&problem::VERSION_GONE)
            .detail(format!("the oldest version that is kept is {oldest}, of {since}")),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::model;

    /// The problem for each way in which the store can fail; the cause is for the log.
    #[test]
    fn store_errors_map_to_problems() {
        let cause = || "a cause".to_owned();
        let errors = [
            StoreError::Refused(RequestRefusal::Missing),
            StoreError::Refused(RequestRefusal::NotUnique(Vec::new())),
            StoreError::Busy,
            StoreError::TimedOut,
            StoreError::RightsChanged,
            StoreError::Unavailable(cause()),
            StoreError::OutcomeUnknown(cause()),
            StoreError::Broken(InternalError(cause())),
        ];
        let model =
            model::read("nouns.toml", include_str!("../../examples/store/nouns.toml")).unwrap();
        let shown = errors.map(|error| {
            let problem = failure(&model, None, error);
            let (kind, cause) = (problem.kind(), &problem.parts().cause);
            format!("{} {} {cause:?}\n", kind.status.as_u16(), kind.slug)
        });
        expect![[r#"
            404 not-found None
            409 taken None
            503 busy None
            503 timed-out None
            503 busy None
            503 unavailable Some("a cause")
            503 outcome-unknown Some("a cause")
            500 internal Some("a cause")
        "#]]
        .assert_eq(&shown.concat());
    }
}
