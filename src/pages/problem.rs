//! The page of a problem, and the page that explains a kind of problem.

use askama::Template;
use http::Method;

use super::curl::{CodeBox, quote};
use super::frame::{Frame, to_html};
use super::json_view::JsonView;
use super::related::PageSource;
use super::source::{PageContext, elements, member, members, text_of};
use crate::intent::{self, ResourcePath, RouteTarget, VisibleResource};
use crate::json::Json;
use crate::permit;
use crate::problem::{self, ProblemKind};

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    frame: Frame<'a>,
    kind: &'a ProblemKind,
    detail: &'a str,
    is_logged_out: bool,
    list: Option<ListLink<'a>>,
    faults: Vec<Fault<'a>>,
    /// The attributes that a list can be filtered by, for a problem of the query.
    attributes: Option<Vec<String>>,
    request_id: &'a str,
    json: JsonView,
    explanation: String,
}

/// A list that the caller may read.
struct ListLink<'a> {
    address: String,
    plural: &'a str,
}

struct Fault<'a> {
    pointer: &'a str,
    detail: &'a str,
}

pub fn render(context: &PageContext<'_>, kind: &ProblemKind, json: &Json<'_>) -> String {
    let text = |name: &str| text_of(member(json, name)).unwrap_or_default();
    let target = readable_target(context);
    to_html(&ProblemPage {
        frame: Frame::new(context, kind.title).narrow().end(kind.status.as_str()),
        kind,
        detail: text("detail"),
        is_logged_out: kind == &problem::LOGGED_OUT,
        list: list_link(context, target.as_ref()),
        faults: faults(json),
        attributes: match target {
            Some(RouteTarget::Collection(path)) if kind == &problem::BAD_QUERY => {
                usable_attributes(context, &path)
            }
            _ => None,
        },
        request_id: text("request_id"),
        json: JsonView::of(json),
        explanation: format!("{}/-/problems/{}", context.base_path(), kind.slug),
    })
}

/// The target of the path, if the caller may read it.
fn readable_target(context: &PageContext<'_>) -> Option<RouteTarget> {
    let route = intent::route(context.model, &Method::GET, context.path, None).ok()?;
    permit::check(context.viewer?.caller, &route).ok()?;
    Some(route.target)
}

/// The list without its query, or the list that the item is in.
fn list_link<'a>(context: &PageContext<'a>, target: Option<&RouteTarget>) -> Option<ListLink<'a>> {
    let (path, address) = match target? {
        RouteTarget::Collection(path) if context.query.is_some() => (path, context.path.to_owned()),
        RouteTarget::Item(path) => (path, path.collection_path(context.model)?),
        _ => return None,
    };
    context
        .viewer?
        .can_read(path.resource)
        .then(|| ListLink { address, plural: &context.model.resource(path.resource).plural })
}

/// The faults of the fields.
fn faults<'a>(json: &'a Json<'a>) -> Vec<Fault<'a>> {
    let faults = elements(member(json, "errors")).iter();
    let text = |fault: &'a Json<'a>, name| text_of(member(fault, name)).unwrap_or_default();
    faults
        .map(|fault| Fault { pointer: text(fault, "pointer"), detail: text(fault, "detail") })
        .collect()
}

fn usable_attributes(context: &PageContext<'_>, path: &ResourcePath) -> Option<Vec<String>> {
    let resource = context.model.resource(path.resource);
    let (hidden, form) = (context.viewer?.hidden(path.resource), path.form);
    let known = VisibleResource { resource, hidden, form };
    Some(known.filter_names().collect())
}

/// The page of `/-/problems/:slug`.
#[derive(Template)]
#[template(path = "problem_kind.html")]
struct ProblemKindPage<'a> {
    frame: Frame<'a>,
    kind: &'a ProblemKind,
    codes: Vec<(&'a str, &'a str)>,
    command: CodeBox,
}

pub fn render_explanation(page: &PageSource<'_>, kind: &ProblemKind) -> String {
    let codes = member(page.json, "problem").and_then(|problem| member(problem, "codes"));
    let meaning = |json| text_of(Some(json)).unwrap_or_default();
    let url = quote(&format!("{}{}", page.context.origin, page.context.path));
    to_html(&ProblemKindPage {
        frame: Frame::new(page.context, kind.title).narrow().end(kind.slug),
        kind,
        codes: members(codes).map(|(code, json)| (code, meaning(json))).collect(),
        command: CodeBox::new("", format!("curl {url}"), "the line that reads this page"),
    })
}
