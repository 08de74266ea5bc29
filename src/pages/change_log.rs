//! The page of the change log, and entries of it on other pages.

use super::cell::{date_words, plain_text, time, time_of_day};
use super::columns::{item_label, label_field, short_id};
use super::curl::{self, code_box};
use super::filters::chip;
use super::frame::{Frame, live_marker};
use super::html::Html;
use super::json_view::cut;
use super::query_link::QueryLink;
use super::related::PageSource;
use super::source::{elements, member, text_of};
use crate::intent::CHANGES_PARAMETERS;
use crate::json::Json;
use crate::model::Resource;

/// A difference shows no more of a value.
const VALUE_CHARS_MAX: usize = 1_000;
/// A difference shows no more fields.
const FIELDS_MAX: usize = 50;
const SERVER_MEMBERS: [&str; 4] = ["id", "created_at", "updated_at", "version"];

pub fn render(page: &PageSource<'_>) -> String {
    let (context, parameters) = (page.context, page.context.parameters());
    let path = context.path;
    let changes = elements(member(page.json, "changes"));
    let about = member(page.json, "page");
    let position = about.and_then(|page| text_of(member(page, "position")));
    let is_newest_first = parameters.contains(&("sort".to_owned(), "-sequence".to_owned()));
    let without = ["limit", "cursor", "sort", "wait"];
    let stream =
        without.iter().fold(QueryLink::new(path, &parameters), |link, name| link.without(name));
    let stream = stream.with("since", position.unwrap_or("0")).address();
    let first = QueryLink::new(path, &parameters).without("cursor").with("sort", "-sequence");
    let order = if is_newest_first { "newest first" } else { "oldest first" };
    // New entries belong to this page only if it shows the newest.
    let is_live = match is_newest_first {
        true => !parameters.iter().any(|(name, _)| name == "cursor"),
        false => about.and_then(|page| text_of(member(page, "next"))).is_none(),
    };
    let (live, buttons) = match is_live {
        true => (
            Html::of(" data-live=\"{}\" data-first=\"{}\"", &[&stream, &first.address()]),
            Html::of(
                "{}<button class=\"button needs-script\" type=\"button\" data-do=\"pause\" aria-pressed=\"false\"><svg class=\"icon\" aria-hidden=\"true\"><use href=\"#i-pause\"/></svg> Pause</button>",
                &[&live_marker()],
            ),
        ),
        false => (Html::new(), Html::new()),
    };
    let mut main = Html::of(
        "<div class=\"view\"{}>\n<div class=\"head\"><div class=\"title\"><h1>Changes</h1><p class=\"sub\">Every write, {}.</p></div>\n<div class=\"actions\">{}</div></div>\n",
        &[&live, &order, &buttons],
    );
    main.push(&filter_bar(page, &parameters, is_newest_first));
    if changes.is_empty() {
        main.add("<div class=\"empty\"><p>There are no changes here.</p></div>\n", &[]);
    }
    let mut day = "";
    for change in changes {
        let moment = text_of(member(change, "time")).unwrap_or_default();
        let date = moment.get(..10).unwrap_or_default();
        if date != day {
            main.add(if day.is_empty() { "" } else { "</ol>\n" }, &[]);
            let words = date_words(date).unwrap_or_default();
            main.add("<h2 class=\"day\">{}</h2>\n<ol class=\"log\">\n", &[&words]);
            day = date;
        }
        main.push(&line(page, change, &time_of_day(moment)));
    }
    main.add(if day.is_empty() { "" } else { "</ol>\n" }, &[]);
    main.push(&pager(path, &parameters, (about, changes.len()), is_newest_first));
    main.push(&commands(page, &stream));
    main.add("</div>\n", &[]);
    Frame::new(context, "Changes").narrow().crumb(None, "changes").main(main).finish()
}

fn filter_bar(
    page: &PageSource<'_>,
    parameters: &[(String, String)],
    is_newest_first: bool,
) -> Html {
    let path = page.context.path;
    let is_filter = |name: &str| {
        let name = name.split(':').next().unwrap_or_default();
        let known = CHANGES_PARAMETERS.iter().find(|(known, _)| *known == name);
        name == "subject" || known.is_some_and(|(_, operators)| !operators.is_empty())
    };
    let mut html = Html::of("<div class=\"bar\" role=\"group\" aria-label=\"Filters\">\n", &[]);
    for (at, (name, value)) in parameters.iter().enumerate() {
        if is_filter(name) {
            let (field, operator) = name.rsplit_once(':').unwrap_or((name, "eq"));
            let words = if operator == "in" { "is one of" } else { operator };
            let words = if operator == "eq" { "is" } else { words };
            let without = QueryLink::new(path, parameters).without_index(at).without("cursor");
            html.push(&chip((field, words, value), &without.address()));
        }
    }
    html.add("<details class=\"menu\"><summary class=\"button\"><svg class=\"icon\" aria-hidden=\"true\"><use href=\"#i-plus\"/></svg> Filter</summary><div class=\"sheet\">\n", &[]);
    let rest = QueryLink::new(path, parameters).without("cursor");
    for (name, example) in [
        ("subject", "/customers/…"),
        ("resource", "customer"),
        ("kind", "updated"),
        ("actor", "ada"),
    ] {
        let id = format!("f-{name}");
        html.add("<form method=\"get\"><label for=\"{}\">{}</label><span class=\"muted\">is</span><input class=\"control\" id=\"{}\" name=\"{}\" placeholder=\"{}\" required autocomplete=\"off\"><button class=\"button\">Add</button>", &[&id, &name, &id, &name, &example]);
        for (other, value) in rest.clone().without(name).parameters() {
            html.add("<input type=\"hidden\" name=\"{}\" value=\"{}\">", &[other, value]);
        }
        html.add("</form>\n", &[]);
    }
    html.add("</div></details>\n", &[]);
    let (other, words) = match is_newest_first {
        true => (rest.without("sort"), "Oldest first"),
        false => (rest.with("sort", "-sequence"), "Newest first"),
    };
    html.add(
        "<a class=\"button quiet small\" href=\"{}\">{}</a>\n</div>\n",
        &[&other.address(), &words],
    );
    html
}

fn pager(
    path: &str,
    parameters: &[(String, String)],
    (about, shown): (Option<&Json<'_>>, usize),
    is_newest_first: bool,
) -> Html {
    let mut html = Html::of(
        "<nav class=\"pager\" aria-label=\"Pages\"><span>{} on this page</span><span class=\"actions\">",
        &[&shown],
    );
    if let Some(next) = about.and_then(|page| text_of(member(page, "next"))) {
        let limit = about.and_then(|page| text_of(member(page, "limit"))).unwrap_or_default();
        let to = QueryLink::new(path, parameters).with("limit", limit).with("cursor", next);
        let words = if is_newest_first { "Older" } else { "Newer" };
        html.add(
            "<a class=\"button\" href=\"{}\" rel=\"next\">{} <svg class=\"icon\" aria-hidden=\"true\"><use href=\"#i-next\"/></svg></a>",
            &[&to.address(), &words],
        );
    }
    html.add("</span></nav>\n", &[]);
    html
}

fn commands(page: &PageSource<'_>, stream: &str) -> Html {
    let (context, curl) = (page.context, curl::command(page.context));
    let here = QueryLink::new(context.path, &context.parameters()).address();
    let mut html = Html::of(
        "<details class=\"api\"><summary><b>curl for this page</b> <code>GET {}</code></summary><div>\n",
        &[&context.path],
    );
    let line = format!("{curl} {}", curl::url(context, &here));
    html.push(&code_box("", &line, "the line that reads this page"));
    let url = curl::url(context, stream);
    let line = format!("{curl} -N -H 'Accept: text/event-stream' {url}");
    let comment = "follow it; a client that is cut off continues where it was";
    html.push(&code_box(comment, &line, "the line that follows the changes"));
    html.add("</div></details>\n", &[]);
    html
}

/// The changes of a reply, one line each.
pub fn entries(page: &PageSource<'_>, json: &Json<'_>) -> Html {
    let mut html = Html::new();
    for change in elements(member(json, "changes")) {
        let moment = time(text_of(member(change, "time")).unwrap_or_default());
        html.push(&line(page, change, &moment));
    }
    html
}

/// The resource of a change, if the model declares it.
fn resource_of<'a>(page: &PageSource<'a>, change: &Json<'_>) -> Option<&'a Resource> {
    let label = text_of(member(change, "resource"))?;
    page.context.model.resources.iter().find(|resource| *resource.label == *label)
}

fn line(page: &PageSource<'_>, change: &Json<'_>, moment: &Html) -> Html {
    let text = |name: &str| text_of(member(change, name)).unwrap_or_default();
    let kind = text("kind");
    let resource = resource_of(page, change);
    let field = resource.and_then(|resource| label_field(page.viewer, resource));
    let values = [member(change, "after"), member(change, "before")];
    let values = values.into_iter().flatten().find(|values| **values != Json::Null);
    let label = values.map_or_else(|| short_id(text("id")), |values| item_label(field, values));
    let subject = match kind {
        "deleted" | "left" => Html::of("<b>{}</b>", &[&label]),
        _ => Html::of("<a href=\"{}\">{}</a>", &[&text("subject"), &label]),
    };
    let mut html = Html::of(
        "<li class=\"line\"><span class=\"badge kind {}\">{}</span><span class=\"what\">{} <span class=\"muted\">{} by {}</span></span>{}",
        &[&kind, &kind, &subject, &text("resource"), &text("actor"), moment],
    );
    if let Some((names, table)) = difference(change) {
        let names = cut(&names, 80);
        html.add("<details><summary>{}</summary>{}</details>", &[&names, &table]);
    }
    html.add("</li>\n", &[]);
    html
}

/// The names of the fields that a change touches, and a table with their values before and after.
pub fn difference(change: &Json<'_>) -> Option<(String, Html)> {
    let [before, after] = ["before", "after"].map(|name| member(change, name));
    let is_shown = |values: Option<&Json<'_>>| matches!(values, Some(Json::Object(_)));
    if !is_shown(before) && !is_shown(after) {
        return None;
    }
    let mut names: Vec<&str> = Vec::new();
    for values in [before, after].into_iter().flatten() {
        let Json::Object(members) = values else { continue };
        for (name, _) in members {
            if !SERVER_MEMBERS.contains(&&**name) && !names.contains(&&**name) {
                names.push(name);
            }
        }
    }
    let value = |values: Option<&'_ Json<'_>>, name: &str| {
        let text = values.and_then(|values| member(values, name)).and_then(plain_text);
        text.map(|text| cut(&text, VALUE_CHARS_MAX))
    };
    names.retain(|name| value(before, name) != value(after, name));
    let is_update = is_shown(before) && is_shown(after);
    let summary = match (is_update, names.is_empty()) {
        (true, true) => "no visible field".to_owned(),
        (true, false) => names.join(", "),
        (false, _) => "all fields".to_owned(),
    };
    let mut html = Html::of(
        "<table class=\"diff\"><colgroup><col class=\"key\"><col><col></colgroup><thead><tr><th scope=\"col\">field</th><th scope=\"col\">before</th><th scope=\"col\">after</th></tr></thead><tbody>",
        &[],
    );
    for name in names.iter().take(FIELDS_MAX) {
        html.add("<tr><th scope=\"row\">{}</th>", &[name]);
        match value(before, name) {
            Some(text) => html.add("<td><del>{}</del></td>", &[&text]),
            None => html.add("<td><span class=\"muted\">no value</span></td>", &[]),
        }
        match value(after, name) {
            Some(text) => html.add("<td><ins>{}</ins></td></tr>", &[&text]),
            None => html.add("<td><span class=\"muted\">no value</span></td></tr>", &[]),
        }
    }
    html.add("</tbody></table>", &[]);
    Some((summary, html))
}
