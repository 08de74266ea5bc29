//! The page of each kind of target.

use super::frame::Frame;
use super::related::{PageSource, Related};
use super::source::{PageContext, PageData, parse};
use super::{change_log, collection, home, item, problem};
use crate::intent::RouteTarget;
use crate::openapi::Viewer;
use crate::problem::ProblemKind;

/// The page of a target.
pub fn render(context: &PageContext<'_>, target: &RouteTarget, data: &PageData) -> String {
    let Some(caller) = context.caller else { return Frame::bare(context).finish() };
    let viewer = Viewer::new(context.model, caller);
    let json = parse(&data.json);
    let related = Related::parse(&viewer, data);
    let page = PageSource { context, viewer: &viewer, json: &json, data, related: &related };
    match target {
        RouteTarget::Collection(path) => collection::render(&page, path),
        RouteTarget::Item(path) => item::render(&page, path),
        RouteTarget::Changes => change_log::render(&page),
        RouteTarget::ProblemPage(kind) => problem::render_explanation(&page, kind),
        _ => home::render(&page),
    }
}

/// The page of a problem, from its JSON.
pub fn render_problem(context: &PageContext<'_>, kind: &ProblemKind, json: &[u8]) -> String {
    problem::render(context, kind, &parse(json))
}
