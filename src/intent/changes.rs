//! The query of `/-/changes`: which entries of the change log a request selects, and which page of them.

use std::fmt::Write as _;
use std::time::Duration;

use super::attribute::no_such_parameter_message;
use super::cursor::{self, ListHash};
use super::filter_value::{add_plus_hint, check_text, split_values};
use super::list::{encode_pair, read_limit};
use super::logged_change::{ItemPath, LoggedChange};
use super::query::{bad_query, split_query};
use super::watch::StartPosition;
use crate::json::quote_for_message;
use crate::model::{Model, nearest};
use crate::problem::{self, Problem};
use crate::value::{EventKind, Moment, truncate_for_message};

/// The filters of `/-/changes`, combined by AND; `None` selects all, an empty list of values nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogFilter {
    /// The names of resources in the log (`Resource::label`).
    pub resources: Option<Vec<Box<str>>>,
    pub subject: Option<ItemPath>,
    /// As the reader sees them.
    pub kinds: Option<Vec<EventKind>>,
    pub actors: Option<Vec<Box<str>>>,
    /// The first and the last moment, both included.
    pub from: Option<Moment>,
    pub until: Option<Moment>,
}

impl LogFilter {
    /// Whether a change is selected. Its kind depends on the reader: `selects_kind`.
    pub fn selects(&self, logged: &LoggedChange) -> bool {
        let change = &logged.change;
        let is_among = |all: &Option<Vec<Box<str>>>, one: &str| {
            all.as_ref().is_none_or(|all| all.iter().any(|known| **known == *one))
        };
        is_among(&self.resources, &change.resource)
            && is_among(&self.actors, &change.actor)
            && self.subject.as_ref().is_none_or(|path| logged.path.as_ref() == Some(path))
            && self.from.is_none_or(|from| change.time >= from)
            && self.until.is_none_or(|until| change.time <= until)
    }

    pub fn selects_kind(&self, kind: EventKind) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
    }
}

/// A page of the change log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangesQuery {
    pub filter: LogFilter,
    /// Only entries after this number; 0 is everything that is kept.
    pub since: Option<i64>,
    /// From the cursor: the last entry that earlier pages have examined.
    pub after: Option<i64>,
    pub is_descending: bool,
    pub limit: usize,
    /// How long the response may wait for a change, if there is none (long polling).
    pub wait: Option<Duration>,
    /// The path, and the parameters that are the same for every page, each followed by `&`.
    path: String,
    link: String,
    /// The parameters that a cursor is bound to.
    bound: Vec<String>,
}

/// An event stream of the change log, as the client asks for it.
#[derive(Debug)]
pub struct LogWatchQuery {
    pub filter: LogFilter,
    pub start: StartPosition,
}

/// The longest wait of a long poll. Proxies often end a request after a minute without a response.
pub const WAIT_SECONDS_MAX: u64 = 60;

const VALUE_OPERATORS: &[&str] = &["eq", "in"];

/// The parameters, with the operators that each of them takes after a colon.
pub const CHANGES_PARAMETERS: [(&str, &[&str]); 10] = [
    ("since", &[]),
    ("limit", &[]),
    ("cursor", &[]),
    ("sort", &[]),
    ("wait", &[]),
    ("resource", VALUE_OPERATORS),
    ("subject", &[]),
    ("kind", VALUE_OPERATORS),
    ("actor", VALUE_OPERATORS),
    ("time", &["gt", "gte", "lt", "lte"]),
];

impl ChangesQuery {
    /// The cursor of the page after an entry, and the URL of that page.
    pub fn next_page(&self, sequence: i64) -> (String, String) {
        let cursor = cursor::encode_sequence(sequence, self.list_hash());
        let url = format!("{}?{}limit={}&cursor={cursor}", self.path, self.link, self.limit);
        (cursor, url)
    }

    fn list_hash(&self) -> ListHash {
        let mut bound = self.bound.clone();
        bound.sort_unstable();
        cursor::hash_list(&self.path, Some(bound.join("&")))
    }
}

pub(super) fn read(model: &Model, query: Option<&str>) -> Result<ChangesQuery, Problem> {
    let limits = &model.server.limits;
    let base_path = model.server.base_path.as_deref().unwrap_or("");
    let mut changes = ChangesQuery {
        filter: LogFilter::default(),
        since: None,
        after: None,
        is_descending: false,
        limit: limits.page_items_default,
        wait: None,
        path: format!("{base_path}/-/changes"),
        link: String::new(),
        bound: Vec::new(),
    };
    let (mut cursor, mut seen) = (None, Vec::new());
    for (parameter, value) in split_query(query)? {
        let (name, operator) = parameter.rsplit_once(':').unwrap_or((&parameter, "eq"));
        let meant = format!("{name}:{operator}");
        if seen.contains(&meant) {
            let parameter = truncate_for_message(&parameter);
            return Err(bad_query(format!("{parameter}: given twice")));
        }
        match &*parameter {
            "limit" => changes.limit = read_limit(&value, limits.page_items_max)?,
            "cursor" => cursor = Some(value),
            // The pages of a list are the same, however long a client waits for them.
            "wait" => changes.wait = Some(read_wait(&value).map_err(bad_query)?),
            _ => {
                changes.read_parameter(model, (&parameter, operator), &value).map_err(bad_query)?;
                let _ = write!(changes.link, "{}&", encode_pair(&parameter, &value));
                changes.bound.push(encode_pair(&meant, &value));
            }
        }
        seen.push(meant);
    }
    if changes.wait.is_some() {
        changes.check_growing("wait").map_err(bad_query)?;
    }
    // The list that the cursor must belong to is known only now.
    if let Some(cursor) = cursor {
        let after = cursor::decode_sequence(&cursor, changes.list_hash());
        changes.after = Some(after.ok_or_else(|| Problem::new(&problem::BAD_CURSOR))?);
    }
    Ok(changes)
}

/// Reads the query of an event stream of the log: as of a list, but without pages and without an end.
pub(super) fn read_watch(
    model: &Model,
    query: Option<&str>,
    last_event_id: Option<i64>,
) -> Result<LogWatchQuery, Problem> {
    for (parameter, _) in split_query(query)? {
        match &*parameter {
            "limit" | "cursor" | "sort" | "wait" => {
                let detail = format!("{parameter}: an event stream has no pages and no order");
                return Err(bad_query(detail));
            }
            "snapshot" => {
                let detail = "snapshot: expected a list of items, got the change log";
                return Err(bad_query(detail.to_owned()));
            }
            _ => {}
        }
    }
    let changes = read(model, query)?;
    changes.check_growing("an event stream").map_err(bad_query)?;
    let start = StartPosition::of_changes(last_event_id, changes.since);
    Ok(LogWatchQuery { filter: changes.filter, start })
}

impl ChangesQuery {
    /// Refuses a query to which new changes can add nothing, for a client that waits for them.
    fn check_growing(&self, what: &str) -> Result<(), String> {
        if self.is_descending {
            return Err(format!("sort: expected sequence with {what}, got -sequence"));
        }
        match self.filter.until {
            Some(_) => Err(format!("time: expected no end of the range with {what}")),
            None => Ok(()),
        }
    }

    /// The same query, from an entry on that was examined already.
    pub fn continued_after(&self, sequence: i64) -> Self {
        Self { after: self.after.max(Some(sequence)), ..self.clone() }
    }

    fn read_parameter(
        &mut self,
        model: &Model,
        (parameter, operator): (&str, &str),
        value: &str,
    ) -> Result<(), String> {
        let name = parameter.rsplit_once(':').map_or(parameter, |(name, _)| name);
        let wrong = |detail: String| format!("{}: {detail}", truncate_for_message(parameter));
        let known = CHANGES_PARAMETERS.iter().find(|(known, _)| *known == name);
        let check_operator = || match known.map_or(&[][..], |(_, operators)| operators) {
            known if known.contains(&operator) => Ok(()),
            known => Err(wrong(unknown_operator_message(operator, known))),
        };
        let values_max = model.server.limits.filter_values_max;
        let values = || match operator {
            "in" => split_values(value, values_max).map_err(wrong),
            _ => Ok(vec![value.to_owned()]),
        };
        match name {
            "since" if parameter == name => self.since = Some(read_sequence(value).map_err(wrong)?),
            "sort" if parameter == name => {
                self.is_descending = match value {
                    "sequence" => false,
                    "-sequence" => true,
                    _ => {
                        let got = quote_for_message(value);
                        return Err(wrong(format!("expected sequence or -sequence, got {got}")));
                    }
                }
            }
            "subject" if parameter == name => {
                self.filter.subject = Some(read_subject(model, value).map_err(wrong)?);
            }
            "resource" => {
                check_operator()?;
                let known = |value: String| find_label(model, &value).map_err(wrong);
                let values = values()?.into_iter().map(known).collect::<Result<_, _>>()?;
                intersect(&mut self.filter.resources, values);
            }
            "kind" => {
                check_operator()?;
                let known = |value: String| find_kind(&value).map_err(wrong);
                let values = values()?.into_iter().map(known).collect::<Result<_, _>>()?;
                intersect(&mut self.filter.kinds, values);
            }
            "actor" => {
                check_operator()?;
                let known = |value: String| match check_text(&value) {
                    Ok(text) => Ok(text.into()),
                    Err(detail) => Err(wrong(detail)),
                };
                let values = values()?.into_iter().map(known).collect::<Result<_, _>>()?;
                intersect(&mut self.filter.actors, values);
            }
            "time" => {
                check_operator()?;
                self.add_time_bound(operator, read_time(value).map_err(wrong)?);
            }
            _ => {
                let known = CHANGES_PARAMETERS.map(|(known, _)| known);
                return Err(no_such_parameter_message(parameter, &known));
            }
        }
        Ok(())
    }

    fn add_time_bound(&mut self, operator: &str, time: Moment) {
        // Times are whole microseconds, so that an open bound is the next closed one.
        let moved = |by: i64| Moment::from_micros(time.micros() + by).unwrap_or(time);
        let LogFilter { from, until, .. } = &mut self.filter;
        let raise = |bound: Moment| Some(from.map_or(bound, |known| known.max(bound)));
        let lower = |bound: Moment| Some(until.map_or(bound, |known| known.min(bound)));
        match operator {
            "gt" => *from = raise(moved(1)),
            "gte" => *from = raise(time),
            "lt" => *until = lower(moved(-1)),
            _ => *until = lower(time),
        }
    }
}

/// Adds a condition on the same values: `resource` and `resource:in` must both hold.
fn intersect<T: PartialEq>(known: &mut Option<Vec<T>>, values: Vec<T>) {
    *known = Some(match known.take() {
        None => values,
        Some(mut known) => {
            known.retain(|value| values.contains(value));
            known
        }
    });
}

fn unknown_operator_message(operator: &str, known: &[&str]) -> String {
    let near = nearest(operator, known.iter().copied());
    let near = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
    format!("no such operator here (there are {}){near}", known.join(", "))
}

fn read_sequence(text: &str) -> Result<i64, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| {
        format!("expected the number of a change, or 0, got {}", quote_for_message(text))
    })
}

fn read_wait(text: &str) -> Result<Duration, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = is_number.then(|| text.parse().ok()).flatten();
    let seconds = seconds.filter(|seconds| *seconds <= WAIT_SECONDS_MAX);
    seconds.map(Duration::from_secs).ok_or_else(|| {
        let got = quote_for_message(text);
        format!("wait: expected a number of seconds up to {WAIT_SECONDS_MAX}, got {got}")
    })
}

pub(super) fn read_time(text: &str) -> Result<Moment, String> {
    Moment::parse(text).ok_or_else(|| {
        let expected = "expected a timestamp such as \"2026-11-15T02:28:14Z\"";
        add_plus_hint(text, format!("{expected}, got {}", quote_for_message(text)))
    })
}

/// The path of an item, with the deployment's prefix or without.
fn read_subject(model: &Model, path: &str) -> Result<ItemPath, String> {
    let base_path = model.server.base_path.as_deref().unwrap_or("");
    let unprefixed = path.strip_prefix(base_path);
    let found = unprefixed.and_then(|path| ItemPath::parse_unprefixed(model, path));
    let found = found.or_else(|| ItemPath::parse_unprefixed(model, path));
    found.ok_or_else(|| format!("expected the path of an item, got {}", quote_for_message(path)))
}

fn find_label(model: &Model, name: &str) -> Result<Box<str>, String> {
    let mut labels = model.usable().map(|resource| &resource.label);
    labels.clone().find(|label| ***label == *name).cloned().ok_or_else(|| {
        let near = nearest(name, labels.by_ref().map(|label| &**label));
        let near = near.map_or_else(String::new, |near| {
            format!("; did you mean {}?", quote_for_message(near))
        });
        format!("expected the name of a resource, got {}{near}", quote_for_message(name))
    })
}

fn find_kind(name: &str) -> Result<EventKind, String> {
    EventKind::ALL.into_iter().find(|kind| kind.as_str() == name).ok_or_else(|| {
        let known = EventKind::ALL.map(EventKind::as_str).join(", ");
        format!("expected one of {known}, got {}", quote_for_message(name))
    })
}
