//! Streaming exports: a whole collection is sent as it is read, in a line format, when the client names no
//! limit.
//!
//! Everything that can be refused is refused before the first byte; after that the response is either
//! complete or truncated. Admission control admits the start of an export, which holds no slot while it
//! streams.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderValue, header};

use super::context::{App, RequestContext};
use super::identity;
use super::streaming::{REVOKED_CAUSE, StreamRights};
use crate::admission::{CallerKey, StreamLimit, StreamPermit};
use crate::formats::{Format, StreamWriter};
use crate::intent::{ListQuery, RouteError};
use crate::log::StageTimes;
use crate::plan::Collection;
use crate::problem::{self, Problem};
use crate::reply::{self, BodyChunks, BodyStream, Reply, ResponseBody, StreamAborted};
use crate::store::{Consumer, ExportBody, ExportRequest, StoreError};

/// The line format to stream a list in, or `None` if the client asked for a page.
pub(super) fn streamed_format(format: &Format, list: &ListQuery) -> Option<&'static StreamWriter> {
    format.stream_writer.filter(|_| !list.has_explicit_limit)
}

/// Step 9, where it depends on the format: line formats have no place for a count.
pub(super) fn check_format(format: &Format, list: Option<&Arc<ListQuery>>) -> Result<(), Problem> {
    match list {
        Some(list) if list.is_counted && format.stream_writer.is_some() => {
            let essence = format.media.essence;
            let detail = format!(
                "count: expected application/json, which has a place for it, got {essence}"
            );
            Err(Problem::new(&problem::BAD_QUERY).detail(detail))
        }
        _ => Ok(()),
    }
}

/// Holds an admission permit until the export has begun; from then on the limit of exports counts.
async fn begin_export(
    app: &App,
    deadline: Instant,
    export: ExportRequest,
) -> Result<ExportBody, StoreError> {
    let _permit = app.shared.admission.admit(deadline).await?;
    app.store.export(export).await
}

/// Starts the export; returns when the first chunk has arrived.
pub(super) async fn start_export(
    app: &App,
    asked: &RequestContext<'_>,
    (collection, list): (Collection, Arc<ListQuery>),
    (format, lines): (&'static Format, &'static StreamWriter),
    stages: &mut StageTimes,
) -> Result<Reply, RouteError> {
    let shared = &app.shared;
    let permit = acquire_stream(app, asked)?;
    let (about, asked_for) = (collection.clone(), list.clone());
    let mut head = Vec::new();
    (lines.head)(&mut head, reply::view(&shared.model, &about, Some(&list)));
    let (model, known) = (Arc::clone(&shared.model), (collection.clone(), list.clone()));
    let write = move |out: &mut Vec<u8>, item: &_| {
        (lines.line)(out, reply::view(&model, &known.0, Some(&known.1)), item);
    };
    let export = ExportRequest { collection, list, head, write: Box::new(write) };
    let begun = begin_export(app, asked.deadline, export).await;
    stages.mark("store");
    identity::require_unchanged_rights(app, asked, stages.now()).await?;
    let rights = match &begun {
        Ok(ExportBody::Streaming(_, fetcher)) => {
            StreamRights::new(asked.latest_identified(), fetcher.canceller())
        }
        Ok(ExportBody::Complete(_)) | Err(_) => None,
    };
    if let Some(rights) = &rights {
        let _ = asked.stream_rights.set(Arc::clone(rights));
    }
    let asked = (Some(&about), Some(&*asked_for));
    let failed = |error| shared.replies.failure(&shared.model, asked, format, error);
    let content = match begun.map_err(failed)? {
        ExportBody::Complete(bytes) => ResponseBody::Whole(bytes),
        ExportBody::Streaming(first, fetcher) => {
            let first = Some(first);
            ResponseBody::Stream(BodyStream::new(ExportStream {
                first,
                fetcher,
                rights,
                _permit: permit,
            }))
        }
    };
    Ok(shared.replies.export(&shared.model, (&about, &asked_for.preconditions), format, content)?)
}

fn acquire_stream(app: &App, asked: &RequestContext<'_>) -> Result<StreamPermit, Problem> {
    let user_name = asked.identified.get().and_then(|known| known.caller.user_name());
    let whose = CallerKey::new(user_name, asked.sender.address);
    app.shared.admission.streams.acquire(whose).map_err(|full| match full {
        StreamLimit::Total => {
            Problem::new(&problem::BUSY).detail("too many concurrent streaming responses")
        }
        StreamLimit::PerCaller => {
            let seconds = HeaderValue::from_static("1");
            Problem::new(&problem::TOO_MANY_STREAMS).header(header::RETRY_AFTER, seconds)
        }
    })
}

/// An export as a response body.
struct ExportStream {
    first: Option<Bytes>,
    fetcher: Consumer,
    rights: Option<Arc<StreamRights>>,
    _permit: StreamPermit,
}

impl BodyChunks for ExportStream {
    fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamAborted>>> {
        if self.rights.as_ref().is_some_and(|rights| rights.is_revoked()) {
            return Poll::Ready(Some(Err(StreamAborted(REVOKED_CAUSE.to_owned()))));
        }
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.fetcher.poll(context).map_err(|error| StreamAborted(error.to_string())),
        }
    }
}
