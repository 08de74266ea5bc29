//! The page of `/`: the resources, the last changes, and three command lines to begin with.

use askama::Template;

use super::change_entry::{ChangeEntry, entries};
use super::curl::{self, CodeBox, create_line};
use super::frame::{Frame, to_html};
use super::navigation::top_level;
use super::related::{PageSource, recent_changes_address};
use super::source::{heading, member, text_of};
use crate::formats::json::path_template;
use crate::intent::{format_flat_path, format_path};
use crate::model::Resource;

const FIELDS_SHOWN: usize = 4;

#[derive(Template)]
#[template(path = "home.html")]
struct HomePage<'a> {
    frame: Frame<'a>,
    user: Option<&'a str>,
    is_open: bool,
    cards: Vec<Card>,
    recent: Option<RecentChanges<'a>>,
    commands: Vec<CodeBox>,
}

/// A resource.
struct Card {
    address: String,
    title: String,
    path: String,
    fields: String,
    more_fields: usize,
    children: Vec<CardChild>,
}

/// A kind of items inside those of a resource.
struct CardChild {
    plural: String,
    /// The address of its flat collection, if the caller may read it.
    address: Option<String>,
}

/// The last changes, for callers who may read them.
struct RecentChanges<'a> {
    /// The address of the whole log.
    all: String,
    entries: Vec<ChangeEntry<'a>>,
    is_read: bool,
    has_more: bool,
}

pub fn render(page: &PageSource<'_>) -> String {
    let (context, caller) = (page.context, page.viewer.caller);
    let known = top_level(context.model, page.viewer);
    to_html(&HomePage {
        frame: Frame::new(context, &context.model.title).narrow(),
        user: caller.user_name(),
        is_open: caller.is_open(),
        cards: known.iter().map(|resource| card(page, resource)).collect(),
        recent: recent_changes(page),
        commands: commands(page, &known),
    })
}

fn card(page: &PageSource<'_>, resource: &Resource) -> Card {
    let model = page.context.model;
    let names: Vec<&str> =
        page.viewer.readable_fields(resource).map(|(_, field)| &*field.name).collect();
    let children = resource.children.iter().filter(|child| page.viewer.knows(**child));
    let children = children.map(|child| {
        let (child, can_read) = (model.resource(*child), page.viewer.can_read(*child));
        let address = format_flat_path(model, child, None).filter(|_| can_read);
        CardChild { plural: child.plural.to_string(), address }
    });
    Card {
        address: format_path(model, resource.index, &[], None),
        title: heading(&resource.plural),
        path: path_template(model, resource),
        fields: names.get(..FIELDS_SHOWN.min(names.len())).unwrap_or_default().join(", "),
        more_fields: names.len().saturating_sub(FIELDS_SHOWN),
        children: children.collect(),
    }
}

fn recent_changes<'a>(page: &PageSource<'a>) -> Option<RecentChanges<'a>> {
    let reply = page.related.reply(&recent_changes_address(page.viewer)?);
    let about = reply.and_then(|json| member(json, "page"));
    Some(RecentChanges {
        all: format!("{}/-/changes?sort=-sequence", page.context.base_path()),
        entries: reply.map(|json| entries(page, json)).unwrap_or_default(),
        is_read: reply.is_some(),
        has_more: about.and_then(|about| text_of(member(about, "next"))).is_some(),
    })
}

/// Three command lines, as far as the caller may use them.
fn commands(page: &PageSource<'_>, known: &[&Resource]) -> Vec<CodeBox> {
    let (context, curl) = (page.context, curl::command(page.context));
    let mut all = Vec::new();
    if let Some(first) = known.first() {
        let path = format_path(context.model, first.index, &[], None);
        if page.viewer.can_read(first.index) {
            let line = format!("{curl} {}", curl::url(context, &format!("{path}?limit=3")));
            let comment = format!("the first {}", first.plural);
            all.push(CodeBox::new(&comment, line, "the line that reads"));
        }
        if let Some(line) = create_line(page, first, &path) {
            all.push(CodeBox::new("a new one", line, "the line that creates"));
        }
    }
    if page.viewer.caller.rights().can_read_changes() {
        let url = curl::url(context, &format!("{}/-/changes", context.base_path()));
        let line = format!("{curl} -N -H 'Accept: text/event-stream' {url}");
        let comment = "each change, as it happens";
        all.push(CodeBox::new(comment, line, "the line that follows changes"));
    }
    all
}
