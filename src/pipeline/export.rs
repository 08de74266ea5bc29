//! Streaming exports: a whole collection is sent as it is read, in a line format, when the client names no
//! limit.
//!
//! Everything that can be refused is refused before the first byte; after that the response is either
//! complete or truncated. Admission control admits the start of an export, which holds no slot while it
//! streams.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, header};

use super::{App, Asked, StreamRights, identity, revocation};
use crate::formats::{Format, Lines};
use crate::gate::{Full, Stream, Whose};
use crate::intent::{List, Stop};
use crate::log::Stages;
use crate::plan::Collection;
use crate::problem::{self, Problem};
use crate::reply::{self, Content, Cut, Flow, Pieces, Reply};
use crate::store::{Export, Exported, Fetcher};

/// The line format to stream a list in, or `None` if the client asked for a page.
pub(super) fn lines(format: &Format, list: &List) -> Option<&'static Lines> {
    format.lines.filter(|_| !list.is_limit_said)
}

/// Step 9, where it depends on the format: line formats have no place for a count.
pub(super) fn check(format: &Format, list: Option<&Arc<List>>) -> Result<(), Problem> {
    match list {
        Some(list) if list.is_counted && format.lines.is_some() => {
            let essence = format.media.essence;
            let detail = format!(
                "count: expected application/json, which has a place for it, got {essence}"
            );
            Err(Problem::new(&problem::BAD_QUERY).detail(detail))
        }
        _ => Ok(()),
    }
}

/// Starts the export; returns when the first chunk is there.
pub(super) async fn begin(
    app: &App,
    asked: &Asked<'_>,
    (collection, list): (Collection, Arc<List>),
    (format, lines): (&'static Format, &'static Lines),
    stages: &mut Stages,
) -> Result<Reply, Stop> {
    let shared = &app.shared;
    let place = place(app, asked)?;
    let (about, asked_for) = (collection.clone(), list.clone());
    let mut head = Vec::new();
    (lines.head)(&mut head, reply::view(&shared.model, &about, Some(&list)));
    let (model, known) = (Arc::clone(&shared.model), (collection.clone(), list.clone()));
    let write = move |out: &mut Vec<u8>, item: &_| {
        (lines.line)(out, reply::view(&model, &known.0, Some(&known.1)), item);
    };
    let export = Export { collection, list, head, write: Box::new(write) };
    let begun = shared.gate.pass(asked.until, || app.store.export(export)).await;
    stages.mark("store");
    identity::require_unchanged(app, asked, stages.now()).await?;
    let rights = match &begun {
        Ok(Exported::Begun(_, fetcher)) => StreamRights::new(asked, fetcher.stopper()),
        Ok(Exported::Whole(_)) | Err(_) => None,
    };
    if let Some(rights) = &rights {
        let _ = asked.stream.set(Arc::clone(rights));
    }
    let asked = (Some(&about), Some(&*asked_for));
    let failed = |error| shared.replies.failure(&shared.model, asked, format, error);
    let content = match begun.map_err(failed)? {
        Exported::Whole(bytes) => Content::Whole(bytes),
        Exported::Begun(first, fetcher) => {
            let first = Some(first);
            Content::Flow(Flow::new(Exporting { first, fetcher, rights, _place: place }))
        }
    };
    Ok(shared.replies.export(&shared.model, (&about, &asked_for.conditions), format, content)?)
}

fn place(app: &App, asked: &Asked<'_>) -> Result<Stream, Problem> {
    let user_name = asked.known.get().and_then(|known| known.caller.user_name());
    let whose = Whose::new(user_name, asked.sender.address);
    app.shared.gate.streams.begin(whose).map_err(|full| match full {
        Full::All => Problem::new(&problem::BUSY).detail("too many answers go on at once"),
        Full::Caller => {
            let seconds = HeaderValue::from_static("1");
            Problem::new(&problem::TOO_MANY_STREAMS).header(header::RETRY_AFTER, seconds)
        }
    })
}

/// An export as a response body.
struct Exporting {
    first: Option<Bytes>,
    fetcher: Fetcher,
    rights: Option<Arc<StreamRights>>,
    _place: Stream,
}

impl Pieces for Exporting {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        if self.rights.as_ref().is_some_and(|rights| rights.is_revoked()) {
            return Poll::Ready(Some(Err(Cut(revocation::CAUSE.to_owned()))));
        }
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.fetcher.poll(context).map_err(|error| Cut(error.to_string())),
        }
    }
}
