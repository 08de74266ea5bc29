//! The page of the change log.

use askama::Template;

use super::change_entry::ChangeEntry;
use super::curl::{self, CodeBox};
use super::filters::Chip;
use super::frame::{Frame, to_html};
use super::query_link::QueryLink;
use super::related::PageSource;
use super::source::{elements, member, text_of};
use super::time_element::{TimeElement, date_words};
use crate::intent::CHANGES_PARAMETERS;
use crate::json::Json;

/// The filters that the page has forms for, with an example each.
const FILTERS: [(&str, &str); 4] =
    [("subject", "/customers/…"), ("resource", "customer"), ("kind", "updated"), ("actor", "ada")];

#[derive(Template)]
#[template(path = "changes.html")]
struct ChangeLogPage<'a> {
    frame: Frame<'a>,
    path: &'a str,
    is_newest_first: bool,
    /// New entries belong to this page only if it shows the newest.
    live: Option<LiveLog>,
    chips: Vec<Chip>,
    filters: Vec<LogFilterForm>,
    /// The address of the same entries in the other order.
    other_order: String,
    shown: usize,
    days: Vec<Day<'a>>,
    next: Option<String>,
    commands: Vec<CodeBox>,
}

/// The addresses of the event stream and of the newest entries.
struct LiveLog {
    stream: String,
    first: String,
}

struct LogFilterForm {
    name: &'static str,
    example: &'static str,
    kept: Vec<(String, String)>,
}

struct Day<'a> {
    date: &'a str,
    words: String,
    entries: Vec<ChangeEntry<'a>>,
}

pub fn render(page: &PageSource<'_>) -> String {
    let (context, parameters) = (page.context, page.context.parameters());
    let here = || QueryLink::new(context.path, &parameters);
    let changes = elements(member(page.json, "changes"));
    let about =
        |name: &str| member(page.json, "page").and_then(|about| text_of(member(about, name)));
    let is_newest_first = parameters.contains(&("sort".to_owned(), "-sequence".to_owned()));
    let without = ["limit", "cursor", "sort", "wait"];
    let stream = without.iter().fold(here(), |link, name| link.without(name));
    let stream = stream.with("since", about("position").unwrap_or("0")).address();
    let is_live = match is_newest_first {
        true => !parameters.iter().any(|(name, _)| name == "cursor"),
        false => about("next").is_none(),
    };
    let first = || here().without("cursor").with("sort", "-sequence").address();
    let rest = here().without("cursor");
    let form = |(name, example)| {
        let kept = rest.clone().without(name).parameters().to_vec();
        LogFilterForm { name, example, kept }
    };
    let limit = about("limit").unwrap_or_default();
    to_html(&ChangeLogPage {
        frame: Frame::new(context, "Changes").narrow().end("changes"),
        path: context.path,
        is_newest_first,
        commands: commands(page, &here().address(), &stream),
        live: is_live.then(|| LiveLog { stream, first: first() }),
        chips: chips(context.path, &parameters),
        filters: FILTERS.into_iter().map(form).collect(),
        other_order: match is_newest_first {
            true => rest.clone().without("sort").address(),
            false => rest.clone().with("sort", "-sequence").address(),
        },
        shown: changes.len(),
        days: days(page, changes),
        next: about("next").map(|next| here().with("limit", limit).with("cursor", next).address()),
    })
}

fn chips(path: &str, parameters: &[(String, String)]) -> Vec<Chip> {
    let is_filter = |name: &str| {
        let name = name.split(':').next().unwrap_or_default();
        let known = CHANGES_PARAMETERS.iter().find(|(known, _)| *known == name);
        name == "subject" || known.is_some_and(|(_, operators)| !operators.is_empty())
    };
    let filters = parameters.iter().enumerate().filter(|(_, (name, _))| is_filter(name));
    filters.map(|(at, _)| Chip::new(path, parameters, at)).collect()
}

/// The entries by the day of their times.
fn days<'a>(page: &PageSource<'a>, changes: &'a [Json<'a>]) -> Vec<Day<'a>> {
    let mut days: Vec<Day<'_>> = Vec::new();
    for change in changes {
        let moment = text_of(member(change, "time")).unwrap_or_default();
        let date = moment.get(..10).unwrap_or_default();
        let entry = ChangeEntry::new(page, change, TimeElement::time_of_day(moment));
        match days.last_mut() {
            Some(day) if day.date == date => day.entries.push(entry),
            _ => {
                let words = date_words(date).unwrap_or_default();
                days.push(Day { date, words, entries: vec![entry] });
            }
        }
    }
    days
}

fn commands(page: &PageSource<'_>, here: &str, stream: &str) -> Vec<CodeBox> {
    let (context, curl) = (page.context, curl::command(page.context));
    let read = format!("{curl} {}", curl::url(context, here));
    let url = curl::url(context, stream);
    let follow = format!("{curl} -N -H 'Accept: text/event-stream' {url}");
    let comment = "follow it; a client that is cut off continues where it was";
    vec![
        CodeBox::new("", read, "the line that reads this page"),
        CodeBox::new(comment, follow, "the line that follows the changes"),
    ]
}
