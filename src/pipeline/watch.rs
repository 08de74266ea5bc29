//! The start of an event stream.
//!
//! Everything that can be refused is refused before the first byte. The start holds an admission permit like any
//! read; the stream itself holds a stream permit only.

use std::sync::{Arc, OnceLock};

use http::Method;

use super::context::{App, RequestContext, RequestFacts, SharedState};
use super::export::{begin_export, too_many_streams};
use super::identity::{self, ChangedRights};
use super::streaming::{ResponseBody, StreamChunks, StreamingResponse};
use crate::admission::{CallerKey, StreamLimit, StreamPermit};
use crate::events::{EventStream, SnapshotSource, StreamStart, Subscription, write_snapshot_item};
use crate::fault::OrBug;
use crate::formats::event_stream;
use crate::intent::preconditions::Preconditions;
use crate::intent::{self, ItemPath, ListQuery, RouteError, StartPosition};
use crate::log::StageTimes;
use crate::model::{ChangeLogDetail, Model, Resource};
use crate::permit::change_visibility::{ChangeScope, ChangeTarget};
use crate::plan::{
    Collection, LogMarks, Outcome, ReadPlan, RequestRefusal, WatchPlan, WatchTarget,
};
use crate::problem::{self, Problem};
use crate::reply::{self, Reply, ResponseContext};
use crate::store::{ExportBody, ExportEncoder, ExportRequest, StoreError};
use crate::value::{Id, Item};

/// Starts an event stream.
pub(super) async fn start(
    request: &RequestContext<'_>,
    plan: WatchPlan,
    facts: &mut RequestFacts,
    stages: &mut StageTimes,
) -> Result<Reply<ResponseBody>, RouteError> {
    let caller = CallerKey::new(facts.user_name(), request.sender.address);
    let permit = acquire_stream(request, &caller).await?;
    let opening = StreamOpening { caller, permit, start: plan.start };
    match plan.target {
        WatchTarget::Items { collection, item, list } => {
            opening.follow_items(request, (collection, item, list), facts, stages).await
        }
        WatchTarget::Log(scope) => opening.follow_log(request, scope, facts, stages).await,
    }
}

/// A stream that is not open yet.
struct StreamOpening {
    caller: CallerKey,
    permit: StreamPermit,
    start: StartPosition,
}

impl StreamOpening {
    /// Follows a collection, or one item of it.
    async fn follow_items(
        self,
        request: &RequestContext<'_>,
        (mut collection, item, list): (Collection, Option<Id>, Arc<ListQuery>),
        facts: &mut RequestFacts,
        stages: &mut StageTimes,
    ) -> Result<Reply<ResponseBody>, RouteError> {
        let SharedState { model, replies, .. } = &*request.app.shared;
        check_observable(model, &collection, !list.filters.is_empty())?;
        let found = read_marks(request, ReadPlan::WatchStart(collection.clone(), item)).await;
        let marks = found.map(|(ancestors, marks)| {
            if let Some(ancestors) = ancestors {
                collection = collection.under(ancestors);
            }
            marks
        });
        let conditions = Preconditions::default();
        let about = ResponseContext {
            model,
            collection: &collection,
            list: Some(&list),
            conditions: &conditions,
            format: &event_stream::FORMAT,
        };
        let start = match marks.and_then(|marks| Ok((find_start(self.start, marks)?, marks))) {
            Ok((Some(position), _)) => Ok(StreamStart::After(position)),
            // Nothing would read the items.
            Ok((None, marks)) if request.parts.method == Method::HEAD => {
                Ok(StreamStart::After(marks.low_watermark))
            }
            Ok((None, _)) => {
                begin_snapshot(request, &collection, &list).await.map(StreamStart::Snapshot)
            }
            Err(error) => Err(error),
        };
        stages.mark("store");
        identity::confirm_rights(request, facts, stages.last_mark(), ChangedRights::Refuse).await?;
        let start = start.map_err(|error| replies.failure(&about, error))?;
        let (resource, ancestors) = (collection.resource, collection.ancestors.clone());
        let target = match item {
            Some(id) => {
                let path = ItemPath { resource, ancestors, id };
                ChangeTarget::Item(path, Some(list.clone()))
            }
            None if collection.is_flat() => ChangeTarget::Resource(resource, list.clone()),
            None => ChangeTarget::Collection(resource, ancestors, list.clone()),
        };
        let scope = ChangeScope { access: collection.scope.clone(), target };
        let stream = self.open(request, scope, start, facts);
        Ok(replies.event_stream(&about, stream))
    }

    /// Follows the change log.
    async fn follow_log(
        self,
        request: &RequestContext<'_>,
        scope: ChangeScope,
        facts: &mut RequestFacts,
        stages: &mut StageTimes,
    ) -> Result<Reply<ResponseBody>, RouteError> {
        let marks = read_marks(request, ReadPlan::LogMarks).await;
        let position = marks.and_then(|(_, marks)| find_start(self.start, marks));
        stages.mark("store");
        identity::confirm_rights(request, facts, stages.last_mark(), ChangedRights::Refuse).await?;
        let position = position.map_err(|error| request.store_problem(error))?;
        let position = position.or_bug("a stream of the log has no snapshot");
        let stream = self.open(request, scope, StreamStart::After(position), facts);
        Ok(reply::event_stream(stream))
    }

    fn open(
        self,
        request: &RequestContext<'_>,
        scope: ChangeScope,
        start: StreamStart,
        facts: &mut RequestFacts,
    ) -> ResponseBody {
        let SharedState { model, feed, .. } = &*request.app.shared;
        let events = EventStream::open(feed, Subscription::new(model, scope), self.caller, start);
        let known = &facts.identity().known;
        let stream = StreamingResponse::new(known, StreamChunks::Events(events), self.permit);
        ResponseBody::Stream(Box::new(stream))
    }
}

/// A stream permit. At the limit of a caller, the server first finds out which of its clients have gone: a page
/// that is loaded again leaves streams behind that nobody reads.
pub(super) async fn acquire_stream(
    request: &RequestContext<'_>,
    caller: &CallerKey,
) -> Result<StreamPermit, Problem> {
    let SharedState { admission, feed, .. } = &*request.app.shared;
    let acquired = match admission.streams.acquire(caller.clone()) {
        Err(StreamLimit::PerCaller) => {
            feed.probe(caller).await;
            admission.streams.acquire(caller.clone())
        }
        acquired => acquired,
    };
    acquired.map_err(too_many_streams)
}

/// The marks of the log, and the ancestors of an item with a flat path.
async fn read_marks(
    request: &RequestContext<'_>,
    read: ReadPlan,
) -> Result<(Option<Vec<Id>>, LogMarks), StoreError> {
    let App { shared, store, .. } = request.app;
    let permit = shared.admission.admit(request.deadline).await?;
    match store.read_in(Some(permit), read).await?.into_located() {
        (ancestors, Outcome::LogMarks(marks)) => Ok((ancestors, marks)),
        _ => Err(StoreError::internal("the start of an event stream had another outcome")),
    }
}

/// Refuses a stream whose events cannot be evaluated, because the log does not have the values.
fn check_observable(
    model: &Model,
    collection: &Collection,
    has_filters: bool,
) -> Result<(), Problem> {
    let resource = model.resource(collection.resource);
    if resource.is_server_made {
        let detail =
            format!("the changes that the server makes to {} are not logged", resource.plural);
        return Err(Problem::new(&problem::NOT_OBSERVABLE).detail(detail));
    }
    if has_filters && resource.changes == ChangeLogDetail::Ids {
        let detail = format!("the change log has no values of {}, so no filter", resource.plural);
        return Err(Problem::new(&problem::BAD_QUERY).detail(detail));
    }
    let is_filtered =
        |level: &Resource| !collection.scope.read_access(level.index).row_filters.is_empty();
    let is_hidden = |level: &Resource| is_filtered(level) && level.changes == ChangeLogDetail::Ids;
    match model.lineage(resource.index).into_iter().any(is_hidden) {
        true => Err(Problem::new(&problem::NOT_OBSERVABLE)),
        false => Ok(()),
    }
}

/// The position after which the stream begins; `None`: with a snapshot.
fn find_start(start: StartPosition, marks: LogMarks) -> Result<Option<i64>, StoreError> {
    match start {
        StartPosition::Now => Ok(Some(marks.low_watermark)),
        StartPosition::Oldest => Ok(Some(marks.swept)),
        StartPosition::After(after) => check_position(after, marks).map(Some),
        // A browser does not see why a request is refused, so a position that cannot be resumed at is not refused.
        StartPosition::Snapshot { resume } => {
            Ok(resume.and_then(|after| check_position(after, marks).ok()))
        }
    }
}

/// Begins to read all items of a list, with their position in the log. Returns when the first ones have arrived.
async fn begin_snapshot(
    request: &RequestContext<'_>,
    collection: &Collection,
    list: &Arc<ListQuery>,
) -> Result<SnapshotSource, StoreError> {
    let SharedState { model, feed, .. } = &*request.app.shared;
    let (model, source) = (Arc::clone(model), Arc::clone(feed.source()));
    let shown = (collection.clone(), Arc::clone(list));
    let write = move |out: &mut Vec<u8>, item: &Item, ancestors: &[Id]| {
        let (collection, list) = &shown;
        let subject = intent::format_path(&model, collection.resource, ancestors, Some(item.id));
        let view = reply::view(&model, collection, Some(list));
        write_snapshot_item(out, (&source, &subject), view, item);
    };
    let start = Arc::new(OnceLock::new());
    let export = ExportRequest {
        collection: collection.clone(),
        list: Arc::clone(list),
        head: Vec::new(),
        write: ExportEncoder::LocatedItem(Box::new(write)),
        start: Some(Arc::clone(&start)),
    };
    Ok(match begin_export(request, export).await? {
        ExportBody::Complete(first) => SnapshotSource { first, rest: None, start },
        ExportBody::Streaming(first, rest) => SnapshotSource { first, rest: Some(rest), start },
    })
}

/// The position after which a stream begins that the client wants to begin after `after`.
fn check_position(after: i64, marks: LogMarks) -> Result<i64, StoreError> {
    let LogMarks { reached, swept, oldest, .. } = marks;
    match after {
        after if after > reached => {
            Err(StoreError::Refused(RequestRefusal::PositionNotReached { reached }))
        }
        after if after < swept => Err(StoreError::Refused(RequestRefusal::PositionGone { oldest })),
        after => Ok(after),
    }
}
