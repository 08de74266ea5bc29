//! Replies to outcomes and to failures of the store.
//!
//! The tag of an item is `"<version>-<f>"`, where `f` is the hash of the representation: equal tags, equal
//! bytes. The tag of a list is weak: it is made from the list's position in the change log, which tells whether
//! anything was changed, and not from the bytes. Only under row-level security is it made from the bytes,
//! because the position would reveal when a row changes that the caller cannot see. Write verbs are granted
//! separately from GET, so a caller may change items that they cannot read; the response to such a write has no
//! body and no tag.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_LOCATION, ETAG, Entry, HeaderMap, LAST_MODIFIED, LINK, LOCATION,
};
use http::{HeaderValue, StatusCode};
use sha2::{Digest as _, Sha256};

use super::document::DOCUMENT_FORM;
use super::failure::failure;
use super::history::{HistoryLinks, member_names};
use super::parts::{
    Reply, body_number, empty_reply, entity_tag, event_stream, formatted_reply, http_date,
    insert_header, not_modified,
};
use super::related_views::related_views;
use super::{deprecation, slow_query_hint};
use crate::fault::{OrBug as _, bug};
use crate::formats::coding::CodingChoice;
use crate::formats::{self, Format, ItemView, RelatedView};
use crate::intent::preconditions::{PreconditionResult, Preconditions, Validators};
use crate::intent::{ListQuery, format_path};
use crate::model::Model;
use crate::model::builtin::DECLARED;
use crate::permit::FactReader;
use crate::plan::{Collection, ExpandedPage, Outcome, Plan, ReadPlan, RequestRefusal};
use crate::problem::Problem;
use crate::store::StoreError;
use crate::value::{Id, Item, Page, hash_u32};

/// The context of a response: the collection, the query and the format.
#[derive(Debug, Clone, Copy)]
pub struct ResponseContext<'a> {
    pub model: &'a Model,
    pub collection: &'a Collection,
    pub list: Option<&'a ListQuery>,
    pub conditions: &'a Preconditions,
    pub format: &'a Format,
}

impl<'a> ResponseContext<'a> {
    fn view(&self) -> ItemView<'a> {
        view(self.model, self.collection, self.list)
    }

    fn related<'e: 'a>(&self, expanded: &'e ExpandedPage) -> Vec<RelatedView<'a>> {
        let expand = self.list.map_or(&[][..], |list| &list.expand);
        related_views((self.model, &self.collection.scope), expand, &expanded.related)
    }

    /// The path of an item under its ancestors.
    fn item_path(&self, id: Id) -> String {
        format_path(self.model, self.collection.resource, &self.collection.ancestors, Some(id))
    }

    /// The part of a tag that depends on the selection of members.
    fn selection_hash(&self) -> u32 {
        self.list.map_or(0, |list| list.query_hash)
    }
}

/// A resource as GET shows it to the caller, restricted to the members that a list selects.
pub fn view<'a>(
    model: &'a Model,
    collection: &'a Collection,
    list: Option<&'a ListQuery>,
) -> ItemView<'a> {
    let hidden = &collection.scope.read_access(collection.resource).hidden;
    let chosen = list.and_then(|list| list.selected_members.as_deref());
    let resource = ItemView::all_fields(model.resource(collection.resource));
    ItemView { hidden, selected_members: chosen, ..resource }
}

/// The parts that the replies of one model have in common.
#[derive(Debug)]
pub struct ReplyBuilder {
    /// For each format, a short hash of it, the model and the last migration: an item's representation depends on them.
    form_hashes: Vec<(&'static str, u32)>,
    /// For each resource: whether a response about it may involve something deprecated.
    may_be_deprecated: Vec<bool>,
    history: HistoryLinks,
}

impl ReplyBuilder {
    /// `stamp`: the stamp of the last migration of the database, empty before the first.
    pub fn new(model: &Model, stamp: &str) -> Self {
        let form = |format: &&Format| {
            let essence = format.media.essence;
            let mut hash = Sha256::new().chain_update(&model.shape).chain_update(essence);
            hash.update(stamp);
            for field in model.resource(model.users).fields.iter().skip(DECLARED) {
                hash.update(field.name.as_bytes());
            }
            (essence, hash_u32(hash))
        };
        Self {
            form_hashes: formats::ALL.iter().map(form).collect(),
            may_be_deprecated: deprecation::flags_by_resource(model),
            history: HistoryLinks::new(model),
        }
    }

    /// The hash of a representation. `mark` stands for what changes its bytes: hidden fields, for example.
    fn form_hash(&self, format: &Format, mark: u32) -> u32 {
        let mut hashes = self.form_hashes.iter();
        let found = hashes.find(|(essence, _)| *essence == format.media.essence);
        found.or_bug("every format has a hash").1 ^ mark
    }

    fn etag(&self, about: &ResponseContext<'_>, version: i64) -> HeaderValue {
        let mark = about.collection.hidden_fields_hash() ^ about.selection_hash();
        entity_tag("", version, &[self.form_hash(about.format, mark)])
    }

    /// The conditions of a request, for a response in some format and coding. The tag of a list is weak, so
    /// that it is the same in every coding.
    pub fn conditions(
        &self,
        headers: &HeaderMap,
        plan: &Plan,
        format: &Format,
        coding: Option<CodingChoice>,
    ) -> Preconditions {
        let hash = |mark: u32| {
            let hidden = plan.collection().map_or(0, Collection::hidden_fields_hash);
            self.form_hash(format, mark ^ hidden)
        };
        Preconditions::read(headers, || match (plan, plan.list()) {
            (Plan::Read(ReadPlan::Page(..) | ReadPlan::Expanded(_)), Some(list)) => {
                format!("{:08x}{:08x}", hash(0), list.query_hash)
            }
            (Plan::Static(_), _) => DOCUMENT_FORM.to_owned(),
            (_, list) => {
                let coding = coding.map_or(0, CodingChoice::tag_number);
                format!("{:08x}", hash(list.map_or(0, |list| list.query_hash) ^ coding))
            }
        })
    }

    /// Maps an error of the store to a problem. A failed precondition gets the current validators.
    pub fn failure(&self, about: &ResponseContext<'_>, error: StoreError) -> Problem {
        let (model, collection) = (about.model, about.collection);
        let now = match error {
            StoreError::Refused(RequestRefusal::PreconditionFailed(now)) => now,
            _ => None,
        };
        let is_slow = matches!(error, StoreError::TimedOut);
        let problem = failure(model, Some(collection), error);
        if let Some(list) = about.list.filter(|_| is_slow) {
            return slow_query_hint::add_hint(model, collection, list, problem);
        }
        let Some(now) = now else { return problem };
        let problem = problem.header(ETAG, self.etag(about, now.version));
        match http_date(now.updated_seconds) {
            Some(date) => problem.header(LAST_MODIFIED, date),
            None => problem,
        }
    }

    /// The failure of a condition.
    fn unmet(&self, about: &ResponseContext<'_>, now: Option<Validators>) -> Problem {
        self.failure(about, StoreError::Refused(RequestRefusal::PreconditionFailed(now)))
    }

    /// Builds the reply to an outcome. The conditions of a write were evaluated in its transaction.
    pub fn outcome(
        &self,
        about: &ResponseContext<'_>,
        outcome: &Outcome,
    ) -> Result<Reply, Problem> {
        crate::fault::point("reply");
        let mut reply = match outcome {
            Outcome::Page(page) => {
                self.page_or_not_modified(about, page.position, &|| page_reply(about, &[], page))?
            }
            Outcome::ExpandedPage(expanded) => {
                let related = about.related(expanded);
                let write = || page_reply(about, &related, &expanded.page);
                self.page_or_not_modified(about, expanded.page.position, &write)?
            }
            Outcome::ExpandedItem(id, expanded) => self.expanded_item(about, *id, expanded)?,
            Outcome::Item(item) | Outcome::PastItem(item) => {
                let now = Validators::of_item(item);
                let is_past = matches!(outcome, Outcome::PastItem(_));
                let mut reply = match about.conditions.evaluate(Some(now), true) {
                    PreconditionResult::Holds => self.success(about, outcome),
                    PreconditionResult::NotModified => {
                        let mut reply = not_modified(Some(self.etag(about, now.version)));
                        insert_header(&mut reply, LAST_MODIFIED, http_date(now.updated_seconds));
                        reply
                    }
                    // The validators of a past state are not those that a retry needs.
                    PreconditionResult::Fails => {
                        return Err(self.unmet(about, Some(now).filter(|_| !is_past)));
                    }
                };
                if is_past {
                    let selection = about.list.and_then(|list| list.selected_members.as_deref());
                    let place = (about.model, about.collection);
                    self.history.add_memento(&mut reply, place, selection, item);
                }
                if about.collection.is_flat() {
                    add_canonical(&mut reply, about, item.id);
                }
                reply
            }
            Outcome::Unreadable(outcome) => return Ok(self.without_item(about, outcome)),
            _ if !is_readable(about, outcome) => return Ok(self.without_item(about, outcome)),
            _ => self.success(about, outcome),
        };
        self.add_deprecation(&mut reply, about, Some(outcome.items()));
        Ok(reply)
    }

    /// The reply to a write whose item a GET by the same caller would not show.
    fn without_item(&self, about: &ResponseContext<'_>, outcome: &Outcome) -> Reply {
        let mut reply = write_only(about, outcome);
        self.add_deprecation(&mut reply, about, Some(&[]));
        reply
    }

    /// Builds the reply that streams a whole collection. It has no validators.
    pub fn export<B: From<Bytes>>(
        &self,
        about: &ResponseContext<'_>,
        body: B,
    ) -> Result<Reply<B>, Problem> {
        match about.conditions.evaluate(None, true) {
            PreconditionResult::Holds => {}
            PreconditionResult::NotModified => return Ok(not_modified(None).map(B::from)),
            PreconditionResult::Fails => return Err(self.unmet(about, None)),
        }
        let reply = formatted_reply(StatusCode::OK, about.format, Vec::new());
        let mut reply = with_url_form(reply, about);
        self.add_deprecation(&mut reply, about, None);
        Ok(reply.map(|_| body))
    }

    /// Builds the reply that streams the events of a collection or an item.
    pub fn event_stream<B>(&self, about: &ResponseContext<'_>, body: B) -> Reply<B> {
        let mut reply = event_stream(Bytes::new());
        self.add_deprecation(&mut reply, about, None);
        reply.map(|_| body)
    }

    /// `items` is `None` for a stream.
    fn add_deprecation(
        &self,
        reply: &mut Reply,
        about: &ResponseContext<'_>,
        items: Option<&[Item]>,
    ) {
        if self.may_be_deprecated.get(about.collection.resource.0) == Some(&true) {
            deprecation::add_headers(
                &mut reply.headers,
                about.model,
                about.collection,
                about.view(),
                items,
            );
        }
    }

    fn success(&self, about: &ResponseContext<'_>, outcome: &Outcome) -> Reply {
        let (format, view) = (about.format, about.view().with_secrets_of(outcome.items()));
        let mut body = Vec::with_capacity(512);
        let (status, item) = match outcome {
            Outcome::Item(item) | Outcome::PastItem(item) => (StatusCode::OK, item),
            Outcome::Updated(item) | Outcome::Patched(item) => (StatusCode::OK, item),
            Outcome::Created(item) => (StatusCode::CREATED, item),
            Outcome::CreatedMany(items) => {
                (format.items)(&mut body, view, items);
                let mut reply = formatted_reply(StatusCode::CREATED, format, body);
                forbid_storage_of_secrets(&mut reply, view);
                return reply;
            }
            Outcome::Removed => return empty_reply(StatusCode::NO_CONTENT),
            Outcome::Page(_)
            | Outcome::ExpandedItem(..)
            | Outcome::ExpandedPage(_)
            | Outcome::Located(..)
            | Outcome::Ready
            | Outcome::ChangeLogBounds(_)
            | Outcome::Changes(_)
            | Outcome::ChangeBatch(_)
            | Outcome::LogMarks(_)
            | Outcome::RelatedFacts(_)
            | Outcome::User(_)
            | Outcome::Stamp(_)
            | Outcome::ModelInForce(_)
            | Outcome::WebhookQueues(_)
            | Outcome::WebhookProgress(_)
            | Outcome::WebhookStart(_)
            | Outcome::Delivery(_)
            | Outcome::Unreadable(_)
            | Outcome::Idempotent(_) => bug("this outcome is not about a collection"),
        };
        (format.item)(&mut body, view, item);
        let mut reply = formatted_reply(status, format, body);
        forbid_storage_of_secrets(&mut reply, view);
        if let Outcome::Created(_) = outcome {
            insert_location(&mut reply, about, item.id);
        }
        // RFC 9110 §9.3.4: no ETag after PUT, since the data was not stored as it was sent.
        if !matches!(outcome, Outcome::Updated(_)) {
            reply.headers.insert(ETAG, self.etag(about, item.version));
        }
        if let Outcome::Item(_) | Outcome::PastItem(_) = outcome {
            insert_header(&mut reply, LAST_MODIFIED, http_date(item.updated_at.seconds()));
        }
        if let Outcome::Item(_) = outcome {
            self.history.add_link(&mut reply, about.model, about.collection, item.id);
        }
        reply
    }

    /// An item with related items, or 304 or 412. Its tag is that of a list: other items change it too.
    fn expanded_item(
        &self,
        about: &ResponseContext<'_>,
        id: Id,
        expanded: &ExpandedPage,
    ) -> Result<Reply, Problem> {
        let (related, item) = (about.related(expanded), expanded.page.items.first());
        let view = ItemView { related: &related, ..about.view() };
        let write = || {
            let mut body = Vec::with_capacity(512);
            if let Some(item) = item {
                (about.format.item)(&mut body, view, item);
            }
            formatted_reply(StatusCode::OK, about.format, body)
        };
        let mut reply = self.page_or_not_modified(about, expanded.page.position, &write)?;
        if reply.status == StatusCode::OK {
            self.history.add_link(&mut reply, about.model, about.collection, id);
        }
        if about.collection.is_flat() {
            add_canonical(&mut reply, about, id);
        }
        Ok(reply)
    }

    /// A page, or 304 if the client has it, or 412 if its condition fails. `position` is that in the change log.
    fn page_or_not_modified(
        &self,
        about: &ResponseContext<'_>,
        position: Option<i64>,
        write: &dyn Fn() -> Reply,
    ) -> Result<Reply, Problem> {
        // A page that the client has was not read from the store, so it is not serialized either.
        let (number, written) = match position {
            Some(position) => (position, None),
            None => {
                let reply = write();
                (body_number(&reply.body), Some(reply))
            }
        };
        let form = self.form_hash(about.format, about.collection.hidden_fields_hash());
        let tag = entity_tag("W/", number, &[form, about.selection_hash()]);
        match about.conditions.evaluate_for_list(Some(number)) {
            PreconditionResult::Holds => {
                let mut reply = written.unwrap_or_else(write);
                reply.headers.insert(ETAG, tag);
                Ok(reply)
            }
            PreconditionResult::NotModified => Ok(with_url_form(not_modified(Some(tag)), about)),
            PreconditionResult::Fails => Err(self.unmet(about, None).header(ETAG, tag)),
        }
    }
}

/// RFC 9111 §5.2.2.5: no cache may store a response that shows a secret.
fn forbid_storage_of_secrets(reply: &mut Reply, view: ItemView<'_>) {
    if view.shows_secrets {
        reply.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

fn insert_location(reply: &mut Reply, about: &ResponseContext<'_>, id: Id) {
    insert_header(reply, LOCATION, HeaderValue::try_from(about.item_path(id)).ok());
}

/// RFC 6596: the path of an item under its ancestors is the preferred one. RFC 9110 §8.7: the body is that of a GET there.
fn add_canonical(reply: &mut Reply, about: &ResponseContext<'_>, id: Id) {
    let path = about.item_path(id);
    let link = HeaderValue::try_from(format!("<{path}>; rel=\"canonical\""));
    reply.headers.append(LINK, link.or_bug("a path is valid in a header"));
    // That of an item as it was is there already.
    let selection = about.list.and_then(|list| list.selected_members.as_deref());
    let mut location = path;
    if let Some(list) = about.list.filter(|list| !list.expand.is_empty()) {
        let _infallible = write!(location, "?{}", list.shown_parameters());
    } else if let Some(names) =
        selection.map(|selected| member_names(about.view().resource, selected))
    {
        let _infallible = write!(location, "?fields={names}");
    }
    if let (Entry::Vacant(entry), Ok(location)) =
        (reply.headers.entry(CONTENT_LOCATION), HeaderValue::try_from(location))
    {
        entry.insert(location);
    }
}

fn page_reply(about: &ResponseContext<'_>, related: &[RelatedView<'_>], page: &Page) -> Reply {
    let view = ItemView { related, ..about.view() };
    let last = page.items.last().filter(|_| page.next.is_some());
    let onward = last.zip(about.list).map(|(last, list)| {
        list.next_page(&about.collection.path(about.model), view.resource, last)
    });
    let cursor = onward.as_ref().map(|(cursor, _)| cursor.as_str());
    let mut body = Vec::with_capacity(256 + 256 * page.items.len());
    (about.format.page)(&mut body, view, page, cursor);
    let mut reply = formatted_reply(StatusCode::OK, about.format, body);
    // A query that was sent as a body may be too long for a URL.
    let bytes_max = about.model.server.limits.target_bytes_max;
    if let Some((_, address)) = onward.filter(|(_, address)| address.len() <= bytes_max) {
        let link = format!("<{address}>; rel=\"next\"");
        insert_header(&mut reply, LINK, HeaderValue::try_from(link).ok());
    }
    with_url_form(reply, about)
}

/// RFC 10008 §2.4: where a GET has the same result as a QUERY.
fn with_url_form(mut reply: Reply, about: &ResponseContext<'_>) -> Reply {
    let Some(query) = about.list.and_then(|list| list.url_form.as_deref()) else { return reply };
    let path = about.collection.path(about.model);
    let address = if query.is_empty() { path } else { format!("{path}?{query}") };
    if address.len() <= about.model.server.limits.target_bytes_max {
        insert_header(&mut reply, CONTENT_LOCATION, HeaderValue::try_from(address).ok());
    }
    reply
}

/// The response to a write whose item a GET by the same caller would not show: status and `Location` only.
fn write_only(about: &ResponseContext<'_>, outcome: &Outcome) -> Reply {
    match outcome {
        Outcome::Created(item) => {
            let mut reply = empty_reply(StatusCode::CREATED);
            insert_location(&mut reply, about, item.id);
            reply
        }
        Outcome::CreatedMany(_) => empty_reply(StatusCode::CREATED),
        _ => empty_reply(StatusCode::NO_CONTENT),
    }
}

/// Whether the caller may read all items that a write has changed. Where other items decide that, the store has found
/// out, or the write was allowed by the same row filters.
fn is_readable(about: &ResponseContext<'_>, outcome: &Outcome) -> bool {
    let (resource, scope) = (about.view().resource, &about.collection.scope);
    let no_facts = FactReader::without_facts(about.model);
    let mut items = outcome.items().iter();
    scope.read_access(resource.index).reads_related()
        || items.all(|item| scope.can_read_item(resource, item, &no_facts))
}
