//! The page of each kind of target.

use super::related::{PageSource, Related};
use super::source::{PageContext, PageData, parse};
use super::{change_log, collection, home, item, problem, reference};
use crate::fault::OrBug as _;
use crate::intent::RouteTarget;
use crate::problem::ProblemKind;

/// The page of a target.
pub fn render(context: &PageContext<'_>, target: &RouteTarget, data: &PageData) -> String {
    let viewer = context.viewer.or_bug("the caller of a target is identified");
    let json = parse(&data.json);
    let related = Related::parse(viewer, data);
    let page = PageSource { context, viewer, json: &json, data, related: &related };
    match target {
        RouteTarget::Collection(path) => collection::render(&page, path),
        RouteTarget::Item(path) => item::render(&page, path),
        RouteTarget::Changes => change_log::render(&page),
        RouteTarget::Docs(resource) => reference::render(&page, *resource),
        RouteTarget::ProblemPage(kind) => problem::render_explanation(&page, kind),
        _ => home::render(&page),
    }
}

/// The page of a problem, from its JSON.
pub fn render_problem(context: &PageContext<'_>, kind: &ProblemKind, json: &[u8]) -> String {
    problem::render(context, kind, &parse(json))
}
