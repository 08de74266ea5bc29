//! Replies about the change log: `/-/changes`.

use http::header::LINK;
use http::{HeaderName, HeaderValue, StatusCode};

use super::failure::CHANGES_OLDEST;
use super::parts::{Reply, formatted_reply, insert_header};
use crate::formats::change::{ChangeView, ChangesView};
use crate::formats::{self, Format};
use crate::model::Model;
use crate::plan::{ChangesPage, ChangesRead, VisibleChange};

/// The number up to which a response is complete.
const CHANGES_POSITION: HeaderName = HeaderName::from_static("changes-position");

/// A page of the change log.
pub fn changes_page(
    model: &Model,
    read: &ChangesRead,
    page: &ChangesPage,
    format: &Format,
) -> Reply {
    let onward = page.next.map(|sequence| read.query.next_page(sequence));
    let view = ChangesView {
        changes: page.changes.iter().map(|change| change_view(model, read, change)).collect(),
        limit: read.query.limit,
        next: onward.as_ref().map(|(cursor, _)| cursor.as_str()),
        oldest: page.oldest,
        position: page.position,
    };
    let mut body = Vec::with_capacity(256 + 512 * page.changes.len());
    formats::write_changes(&mut body, format, &view);
    let mut reply = formatted_reply(StatusCode::OK, format, body);
    insert_header(&mut reply, CHANGES_OLDEST, page.oldest.map(HeaderValue::from));
    reply.headers.insert(CHANGES_POSITION, HeaderValue::from(page.position));
    if let Some((_, address)) = onward {
        let link = format!("<{address}>; rel=\"next\"");
        insert_header(&mut reply, LINK, HeaderValue::try_from(link).ok());
    }
    reply
}

fn change_view<'a>(
    model: &'a Model,
    read: &'a ChangesRead,
    visible: &'a VisibleChange,
) -> ChangeView<'a> {
    let resource = visible.logged.resource.map(|index| model.resource(index));
    ChangeView {
        change: &visible.logged.change,
        kind: visible.kind.as_str(),
        values: read.scope.view(resource),
        shows_before: visible.shows_before,
        base_path: model.server.base_path.as_deref().unwrap_or(""),
    }
}
