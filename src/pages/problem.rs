//! The page of a problem, and the page that explains a kind of problem.

use http::Method;

use super::curl::{code_box, copy_button, quote};
use super::frame::Frame;
use super::html::Html;
use super::json_view::json_view;
use super::related::PageSource;
use super::source::{PageContext, elements, member, text_of};
use crate::intent::{
    self, CONTROL_PARAMETERS, ResourcePath, RouteTarget, VisibleResource, format_path,
};
use crate::json::Json;
use crate::openapi::Viewer;
use crate::permit;
use crate::problem::{self, ProblemKind};

pub fn render(context: &PageContext<'_>, kind: &ProblemKind, json: &Json<'_>) -> String {
    let text = |name: &str| text_of(member(json, name)).unwrap_or_default();
    let status = kind.status.as_str();
    let mut main = Html::of(
        "<article class=\"problem\">\n<div class=\"head\"><div class=\"title\"><p class=\"status\">{} {}</p><h1>{}</h1>",
        &[&status, &kind.slug, &kind.title],
    );
    let detail = text("detail");
    if !detail.is_empty() {
        main.add("<p class=\"detail\">{}</p>", &[&detail]);
    }
    main.add("</div></div>\n", &[]);
    main.push(&ways_on(context, kind));
    main.push(&faults(json));
    main.add("<section aria-labelledby=\"p-do\"><h2 id=\"p-do\">What to do</h2><p class=\"long\">{}</p></section>\n", &[&kind.help]);
    main.push(&usable_here(context, kind));
    main.add(
        "<section aria-labelledby=\"p-ask\"><h2 id=\"p-ask\">If you ask for help</h2><p class=\"muted\">The operator finds this request in the log under its id.</p>\
         <p class=\"copy\"><code>{}</code>{}</p></section>\n",
        &[&text("request_id"), &copy_button("the request id")],
    );
    main.add(
        "<details class=\"api\"><summary><b>As JSON</b> <code>application/problem+json</code></summary><div><div class=\"code-box\"><pre tabindex=\"0\" role=\"group\" aria-label=\"the problem as JSON\">{}</pre>{}</div></div></details>\n",
        &[&json_view(json), &copy_button("the problem as JSON")],
    );
    let explanation = format!("{}/-/problems/{}", context.base_path(), kind.slug);
    main.add(
        "<p class=\"pager\"><a href=\"{}\">What this problem means</a></p>\n</article>\n",
        &[&explanation],
    );
    Frame::new(context, kind.title).narrow().crumb(None, status).main(main).finish()
}

/// The target of the path, if the caller may read it.
fn readable_target(context: &PageContext<'_>) -> Option<RouteTarget> {
    let route = intent::route(context.model, &Method::GET, context.path, None).ok()?;
    permit::check(context.caller?, &route).ok()?;
    Some(route.target)
}

fn ways_on(context: &PageContext<'_>, kind: &ProblemKind) -> Html {
    let mut html = Html::of("<div class=\"actions\">", &[]);
    let home = format!("{}/", context.base_path());
    if kind == &problem::LOGGED_OUT {
        html.add("<a class=\"button primary\" href=\"{}\">Log in again</a></div>\n", &[&home]);
        return html;
    }
    let is_shown = |path: &ResourcePath| {
        context
            .caller
            .is_some_and(|caller| Viewer::new(context.model, caller).can_read(path.resource))
    };
    match readable_target(context) {
        Some(RouteTarget::Collection(path)) if context.query.is_some() && is_shown(&path) => {
            let plural = &context.model.resource(path.resource).plural;
            html.add(
                "<a class=\"button primary\" href=\"{}\">All {}</a>",
                &[&context.path, plural],
            );
        }
        Some(RouteTarget::Item(path)) if is_shown(&path) => {
            let plural = &context.model.resource(path.resource).plural;
            let ids = path.ids.map(|ids| ids.ancestors).unwrap_or_default();
            let collection = format_path(context.model, path.resource, &ids, None);
            html.add("<a class=\"button primary\" href=\"{}\">All {}</a>", &[&collection, plural]);
        }
        _ => {}
    }
    html.add("<a class=\"button\" href=\"{}\">Home</a></div>\n", &[&home]);
    html
}

/// The faults of the fields, if there are any.
fn faults(json: &Json<'_>) -> Html {
    let faults = elements(member(json, "errors"));
    if faults.is_empty() {
        return Html::new();
    }
    let mut html = Html::of(
        "<section aria-labelledby=\"p-faults\"><h2 id=\"p-faults\">Faults</h2><dl class=\"fields\">\n",
        &[],
    );
    for fault in faults {
        let text = |name: &str| text_of(member(fault, name)).unwrap_or_default();
        html.add(
            "<div><dt><code>{}</code></dt><dd>{}</dd></div>\n",
            &[&text("pointer"), &text("detail")],
        );
    }
    html.add("</dl></section>\n", &[]);
    html
}

/// The parameters and operators of the path, for a problem of the query.
fn usable_here(context: &PageContext<'_>, kind: &ProblemKind) -> Html {
    if kind != &problem::BAD_QUERY {
        return Html::new();
    }
    let (Some(RouteTarget::Collection(path)), Some(caller)) =
        (readable_target(context), context.caller)
    else {
        return Html::new();
    };
    let viewer = Viewer::new(context.model, caller);
    let resource = context.model.resource(path.resource);
    let known = VisibleResource { resource, hidden: viewer.hidden(path.resource) };
    let mut html = Html::of(
        "<section class=\"try\" aria-labelledby=\"p-what\"><h2 id=\"p-what\">What can be used here</h2><dl class=\"fields\"><div><dt>filters</dt><dd>",
        &[],
    );
    for name in known.names() {
        html.add("<code>{}</code> ", &[&name]);
    }
    html.add("</dd></div><div><dt>operators</dt><dd><code>eq ne gt gte lt lte in prefix contains exists</code></dd></div><div><dt>the page</dt><dd>", &[]);
    for name in CONTROL_PARAMETERS {
        html.add("<code>{}</code> ", &[&name]);
    }
    html.add("</dd></div></dl></section>\n", &[]);
    html
}

/// The page of `/-/problems/:slug`.
pub fn render_explanation(page: &PageSource<'_>, kind: &ProblemKind) -> String {
    let mut main = Html::of(
        "<article class=\"problem\">\n<div class=\"head\"><div class=\"title\"><p class=\"status\">{} {}</p><h1>{}</h1></div></div>\n<p class=\"long\">{}</p>\n",
        &[&kind.status.as_str(), &kind.slug, &kind.title, &kind.help],
    );
    let codes = member(page.json, "problem").and_then(|problem| member(problem, "codes"));
    if let Some(Json::Object(codes)) = codes {
        main.add("<section><h2>Codes of the faults</h2><dl class=\"fields\">\n", &[]);
        for (code, meaning) in codes {
            let meaning = text_of(Some(meaning)).unwrap_or_default();
            main.add("<div><dt><code>{}</code></dt><dd>{}</dd></div>\n", &[&&**code, &meaning]);
        }
        main.add("</dl></section>\n", &[]);
    }
    let url = quote(&format!("{}{}", page.context.origin, page.context.path));
    main.push(&code_box("", &format!("curl {url}"), "the line that reads this page"));
    main.add("</article>\n", &[]);
    Frame::new(page.context, kind.title).narrow().crumb(None, kind.slug).main(main).finish()
}
