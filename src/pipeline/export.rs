//! Streaming exports: a whole collection is sent as it is read, in a line format, when the client names no
//! limit.
//!
//! Everything that can be refused is refused before the first byte; after that the response is either
//! complete or truncated. Admission control admits the start of an export, which holds no slot while it
//! streams.

use std::sync::Arc;

use http::{HeaderValue, header};

use super::context::{App, RequestContext, RequestFacts, SharedState};
use super::identity::{self, ChangedRights};
use super::streaming::{ResponseBody, StreamChunks, StreamingResponse};
use crate::admission::{CallerKey, StreamLimit, StreamPermit};
use crate::formats::{Format, StreamWriter};
use crate::intent::{ListQuery, RouteError};
use crate::log::StageTimes;
use crate::plan::Collection;
use crate::problem::{self, Problem};
use crate::reply::{self, Reply, ResponseContext};
use crate::store::{ExportBody, ExportEncoder, ExportRequest, StoreError};

/// The line format to stream a list in, or `None` if the client asked for a page.
pub(super) fn streamed_format(format: &Format, list: &ListQuery) -> Option<&'static StreamWriter> {
    format.stream_writer.filter(|_| !list.has_explicit_limit)
}

/// Step 9, where it depends on the format: line formats have no place for a count, and CSV has none for related items.
/// A stream of a whole collection has none either.
pub(super) fn check_format(format: &Format, list: Option<&Arc<ListQuery>>) -> Result<(), Problem> {
    match list {
        Some(list) if list.is_counted && format.stream_writer.is_some() => {
            let essence = format.media.essence;
            let detail = format!(
                "count: expected application/json, which has a place for it, got {essence}"
            );
            Err(Problem::new(&problem::BAD_QUERY).detail(detail))
        }
        Some(list) if !list.expand.is_empty() => match format.stream_writer {
            None => Ok(()),
            Some(lines) if !lines.has_related => {
                let essence = format.media.essence;
                let detail = format!(
                    "expand: expected application/json or application/x-ndjson, got {essence}"
                );
                Err(Problem::new(&problem::BAD_QUERY).detail(detail))
            }
            Some(_) if !list.has_explicit_limit => {
                let detail = "expand: expected limit too, because a whole collection is sent \
                    without related items";
                Err(Problem::new(&problem::BAD_QUERY).detail(detail))
            }
            Some(_) => Ok(()),
        },
        _ => Ok(()),
    }
}

/// A collection to be streamed.
pub(super) struct ExportJob {
    pub(super) collection: Collection,
    pub(super) list: Arc<ListQuery>,
    pub(super) format: &'static Format,
    pub(super) lines: &'static StreamWriter,
}

impl ExportJob {
    /// Starts the export; returns when the first chunk has arrived.
    pub(super) async fn start(
        self,
        request: &RequestContext<'_>,
        facts: &mut RequestFacts,
        stages: &mut StageTimes,
    ) -> Result<Reply<ResponseBody>, RouteError> {
        let Self { collection, list, format, lines } = self;
        let SharedState { model, replies, .. } = &*request.app.shared;
        let permit = acquire_stream(request, facts)?;
        let mut head = Vec::new();
        (lines.head)(&mut head, reply::view(model, &collection, Some(&list)));
        let shown = (Arc::clone(model), collection.clone(), Arc::clone(&list));
        let write = move |out: &mut Vec<u8>, item: &_| {
            let (model, collection, list) = &shown;
            (lines.line)(out, reply::view(model, collection, Some(list)), item);
        };
        let export = ExportRequest {
            collection: collection.clone(),
            list: Arc::clone(&list),
            head,
            write: ExportEncoder::Item(Box::new(write)),
            start: None,
        };
        let begun = begin_export(request, export).await;
        stages.mark("store");
        identity::confirm_rights(request, facts, stages.last_mark(), ChangedRights::Refuse).await?;
        let about = ResponseContext {
            model,
            collection: &collection,
            list: Some(&list),
            conditions: &list.preconditions,
            format,
        };
        let content = match begun.map_err(|error| replies.failure(&about, error))? {
            ExportBody::Complete(bytes) => ResponseBody::Whole(bytes),
            ExportBody::Streaming(first, chunks) => {
                let known = &facts.identity().known;
                let chunks = StreamChunks::Export(Some(first), chunks);
                let stream = StreamingResponse::new(known, chunks, permit);
                ResponseBody::Stream(Box::new(stream))
            }
        };
        Ok(replies.export(&about, content)?)
    }
}

/// Holds an admission permit until the export has begun; from then on the limit of exports counts.
pub(super) async fn begin_export(
    request: &RequestContext<'_>,
    export: ExportRequest,
) -> Result<ExportBody, StoreError> {
    let App { shared, store, .. } = request.app;
    let _permit = shared.admission.admit(request.deadline).await?;
    store.export(export).await
}

fn acquire_stream(
    request: &RequestContext<'_>,
    facts: &RequestFacts,
) -> Result<StreamPermit, Problem> {
    let whose = CallerKey::new(facts.user_name(), request.sender.address);
    request.app.shared.admission.streams.acquire(whose).map_err(too_many_streams)
}

pub(super) fn too_many_streams(full: StreamLimit) -> Problem {
    match full {
        StreamLimit::Total => {
            Problem::new(&problem::BUSY).detail("too many concurrent streaming responses")
        }
        StreamLimit::PerCaller => {
            let seconds = HeaderValue::from_static("1");
            Problem::new(&problem::TOO_MANY_STREAMS).header(header::RETRY_AFTER, seconds)
        }
    }
}
