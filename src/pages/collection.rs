//! The page of a collection: filters, a table, and links to further pages and downloads.

use super::cell::{cell, time};
use super::columns::{self, Column, item_label, label_field};
use super::curl::{self, CodeBox, create_line};
use super::filters;
use super::form;
use super::frame::{Frame, to_html};
use super::html::{Html, live_marker};
use super::page::Page;
use super::query_link::QueryLink;
use super::related::{PageSource, ancestors};
use super::source::{elements, heading, id_of, member, text_of};
use crate::intent::{CONTROL_PARAMETERS, ResourcePath, VisibleResource};
use crate::json::Json;
use crate::model::{GrantVerb, Resource};

/// More columns scroll on their own.
const COLUMNS_WITHOUT_SCROLL: usize = 8;
/// The page sizes that a page offers, as far as the settings allow them.
const PAGE_SIZES: [usize; 3] = [50, 200, 500];

/// Rows that the script reads again in one request.
const LIVE_ROWS_MAX: usize = 50;

pub fn render(page: &PageSource<'_>, path: &ResourcePath) -> String {
    let (context, model) = (page.context, page.context.model);
    let resource = model.resource(path.resource);
    let title = heading(&resource.plural);
    let parameters = context.parameters();
    let items = elements(member(page.json, &resource.plural));
    let live = live_attributes(page, resource, &parameters);
    let create = create_line(page, resource, context.path).unwrap_or_default();
    let form = form::create_section(page, (resource, context.path), &create);
    let mut main = Html::of(
        "{}<div class=\"view\"{}>\n<div class=\"head\"><div class=\"title\"><h1>{}</h1>{}</div>\n<div class=\"actions\">{}</div></div>\n",
        &[&form, &live, &title, &owner(page, path), &actions(resource, &live, !form.is_empty())],
    );
    main.push(&filters::bar(page, resource, &parameters));
    if items.is_empty() {
        main.push(&empty_state(page, resource, &parameters));
    } else {
        let selected = parameters.iter().find(|(name, _)| name == "fields");
        let columns = columns::choose(page.viewer, resource, selected.map(|(_, names)| &**names));
        let caption = format!("{title}, page of {}", items.len());
        let sort = Some(&*parameters).filter(|_| !context.has_long_query());
        let parts = TableParts { columns: &columns, caption: &caption, sort };
        let table = table(page, (resource, context.path), items, parts);
        let is_wide = columns.len() > COLUMNS_WITHOUT_SCROLL;
        match is_wide {
            true => main.add("<div class=\"scroll\" tabindex=\"0\">{}</div>\n", &[&table]),
            false => main.push(&table),
        }
    }
    main.push(&pager(page, &parameters, items.len()));
    main.push(&commands(page, resource));
    main.add("</div>\n", &[]);
    to_html(&Page { frame: Frame::at(page, &title, path, false), main, dialogs: Html::new() })
}

/// The item that a nested collection belongs to.
fn owner(page: &PageSource<'_>, path: &ResourcePath) -> Html {
    match ancestors(page.context.model, path).last() {
        Some((_, item)) => Html::of(
            "<p class=\"sub\">of <a href=\"{}\">{}</a></p>",
            &[item, &page.related.label(item)],
        ),
        None => Html::new(),
    }
}

/// The address of the event stream of the list, for callers who can follow it.
fn live_attributes(
    page: &PageSource<'_>,
    resource: &Resource,
    parameters: &[(String, String)],
) -> Html {
    if resource.is_server_made {
        return Html::new();
    }
    let path = page.context.path;
    let link = |without: &[&str]| {
        without.iter().fold(QueryLink::new(path, parameters), |link, name| link.without(name))
    };
    let mut stream = link(&CONTROL_PARAMETERS);
    if let Some(position) = page.data.position {
        stream = stream.with("since", &position.to_string());
    }
    let rows = link(&["limit", "cursor", "sort", "count"]).address();
    let limits = &page.context.model.server.limits;
    let batch = LIVE_ROWS_MAX.min(limits.filter_values_max).min(limits.page_items_max);
    Html::of(
        " data-live=\"{}\" data-rows=\"{}\" data-batch=\"{}\" data-first=\"{}\"",
        &[&stream.address(), &rows, &batch, &link(&["cursor"]).address()],
    )
}

fn actions(resource: &Resource, live: &Html, has_form: bool) -> Html {
    let mut html = Html::new();
    if !live.is_empty() {
        html.push(&live_marker());
    }
    if has_form {
        html.add(
            "<a class=\"button primary\" href=\"#new\" data-key=\"n\"><svg class=\"icon\" aria-hidden=\"true\"><use href=\"#i-plus\"/></svg> New {}</a>",
            &[&resource.name.replace('_', " ")],
        );
    }
    html
}

/// The contents of a table.
#[derive(Clone, Copy)]
pub struct TableParts<'a> {
    pub columns: &'a [Column<'a>],
    pub caption: &'a str,
    /// The parameters of the list, where the headings are links that sort it.
    pub sort: Option<&'a [(String, String)]>,
}

/// A table of items.
pub fn table(
    page: &PageSource<'_>,
    (resource, path): (&Resource, &str),
    items: &[Json<'_>],
    TableParts { columns, caption, sort }: TableParts<'_>,
) -> Html {
    let classes = column_classes(columns);
    let mut html = Html::of(
        "<table class=\"table\">\n<caption class=\"unseen\">{}</caption>\n<thead><tr>",
        &[&caption],
    );
    for (column, class) in columns.iter().zip(&classes) {
        html.push(&head_cell(page, (resource, path), (column, class), sort));
    }
    html.add("</tr></thead>\n<tbody>\n", &[]);
    for item in items {
        html.push(&row(page, (resource, path), item, (columns, &classes)));
    }
    html.add("</tbody>\n</table>\n", &[]);
    html
}

/// Classes by which the stylesheet lays out a row: on a phone it has two lines.
fn column_classes(columns: &[Column<'_>]) -> Vec<&'static str> {
    let is_wide = |column: &Column<'_>| matches!(column, Column::Field(field) if columns::is_wide_text(field));
    let is_number =
        |column: &Column<'_>| matches!(column, Column::Field(field) if columns::is_number(field));
    let (mut has_side, mut has_second, mut has_time) = (false, false, false);
    let others = columns.iter().skip(1).map(|column| match column {
        Column::Time(_) if !has_time => {
            has_time = true;
            "side-cell low"
        }
        column if is_wide(column) && !has_second => {
            has_second = true;
            "text"
        }
        column if is_wide(column) => "text more",
        column if !has_side => {
            has_side = true;
            if is_number(column) { "side-cell num" } else { "side-cell" }
        }
        column if is_number(column) => "num more",
        _ => "more",
    });
    let first = if matches!(columns.first(), Some(Column::Id)) { "id name" } else { "name" };
    [first].into_iter().chain(others).collect()
}

fn head_cell(
    page: &PageSource<'_>,
    (resource, path): (&Resource, &str),
    (column, class): (&Column<'_>, &'static str),
    sort: Option<&[(String, String)]>,
) -> Html {
    let name = column.name();
    let known = VisibleResource { resource, hidden: page.viewer.hidden(resource.index) };
    let head = class.trim_start_matches("side-cell").trim_start_matches(" low").trim_start();
    let Some(parameters) = sort.filter(|_| known.find(name).is_ok()) else {
        return Html::of("<th scope=\"col\" class=\"{}\">{}</th>", &[&head, &name]);
    };
    let sorted = parameters.iter().find(|(name, _)| name == "sort").map(|(_, value)| &**value);
    let link = QueryLink::new(path, parameters).without("cursor");
    // Ascending at first, then descending, then as before.
    let descending = format!("-{name}");
    let (order, next) = match sorted {
        Some(key) if key == name => ("ascending", link.with("sort", &descending)),
        Some(key) if key == descending => ("descending", link.without("sort")),
        _ => ("", link.with("sort", name)),
    };
    let order = match order {
        "" => Html::new(),
        order => Html::of(" aria-sort=\"{}\"", &[&order]),
    };
    Html::of(
        "<th scope=\"col\" class=\"{}\"{}><a href=\"{}\">{}</a></th>",
        &[&head, &order, &next.address(), &name],
    )
}

fn row(
    page: &PageSource<'_>,
    (resource, path): (&Resource, &str),
    item: &Json<'_>,
    (columns, classes): (&[Column<'_>], &[&'static str]),
) -> Html {
    let id = id_of(item);
    let mut html = Html::of("<tr id=\"row-{}\">", &[&id]);
    for (at, (column, class)) in columns.iter().zip(classes).enumerate() {
        let value = member(item, column.name());
        let content = match column {
            _ if at == 0 => {
                let label = match column {
                    Column::Id => None,
                    _ => label_field(page.viewer, resource),
                };
                let text = item_label(label, item);
                let is_id = text == columns::short_id(id);
                let text = match is_id {
                    true => Html::of("<code>{}</code>", &[&text]),
                    false => Html::of("{}", &[&text]),
                };
                Html::of("<a href=\"{}\">{}</a>", &[&format!("{path}/{id}"), &text])
            }
            Column::Field(field) => cell(page, field, value),
            Column::Time(_) => time(text_of(value).unwrap_or_default()),
            Column::Id | Column::Parent(_) => {
                let id = text_of(value).unwrap_or_default();
                Html::of("<code title=\"{}\">{}</code>", &[&id, &columns::short_id(id)])
            }
            Column::Version => Html::of("{}", &[&text_of(value).unwrap_or_default()]),
        };
        html.add("<td class=\"{}\">{}</td>", &[class, &content]);
    }
    html.add("</tr>\n", &[]);
    html
}

/// Nothing yet, nothing that matches, or nothing that the caller may see.
fn empty_state(
    page: &PageSource<'_>,
    resource: &Resource,
    parameters: &[(String, String)],
) -> Html {
    let is_filter = |(name, _): &&(String, String)| !CONTROL_PARAMETERS.contains(&&**name);
    let filters = parameters.iter().filter(is_filter).count();
    let mut html = Html::of("<div class=\"empty\"><p>", &[]);
    if filters > 0 {
        let noun = if filters == 1 { "this filter" } else { "these filters" };
        let plural = if filters == 1 { String::new() } else { format!(" {filters}") };
        let noun = noun.replace("these", &format!("these{plural}"));
        let all = page.context.path;
        html.add("No {} matches {}. <a href=\"{}\">Clear all</a>", &[&resource.name, &noun, &all]);
    } else if parameters.iter().any(|(name, _)| name == "cursor") {
        html.add("There are no further {}.", &[&resource.plural]);
    } else if page.viewer.may_miss_rows(resource.index) {
        html.add("There are no {} that your roles show.", &[&resource.plural]);
    } else if page.viewer.access(resource.index, GrantVerb::Post).is_some()
        && !resource.is_server_made
    {
        html.add(
            "No {} yet. <a href=\"#new\">Create the first one</a>, or send a POST to <code>{}</code>.",
            &[&resource.plural, &page.context.path],
        );
    } else {
        html.add("No {} yet.", &[&resource.plural]);
    }
    html.add("</p></div>\n", &[]);
    html
}

fn pager(page: &PageSource<'_>, parameters: &[(String, String)], shown: usize) -> Html {
    let path = page.context.path;
    let link = || QueryLink::new(path, parameters);
    let about = member(page.json, "page");
    let limit = about.and_then(|page| text_of(member(page, "limit"))).unwrap_or_default();
    let mut html = Html::of(
        "<nav class=\"pager\" aria-label=\"Pages\"><span>{} on this page</span>",
        &[&shown],
    );
    match about.and_then(|page| text_of(member(page, "total"))) {
        Some(total) => html.add("<span>{} in all</span>", &[&total]),
        None if shown > 0 => {
            html.add("<a href=\"{}\">Count all</a>", &[&link().with("count", "exact").address()]);
        }
        None => {}
    }
    let sizes_max = page.context.model.server.limits.page_items_max;
    let sizes: Vec<String> =
        PAGE_SIZES.iter().filter(|size| **size <= sizes_max).map(ToString::to_string).collect();
    if shown > 0 && sizes.len() > 1 {
        html.add("<span class=\"muted\">Rows: ", &[]);
        for (at, size) in sizes.iter().enumerate() {
            html.add(if at == 0 { "" } else { " · " }, &[]);
            if size == limit {
                html.add("<b aria-current=\"true\">{}</b>", &[size]);
            } else {
                let to = link().without("cursor").with("limit", size).address();
                html.add("<a href=\"{}\" aria-label=\"{} rows a page\">{}</a>", &[&to, size, size]);
            }
        }
        html.add("</span>", &[]);
    }
    html.add("<span class=\"actions\">", &[]);
    if parameters.iter().any(|(name, _)| name == "cursor") {
        html.add(
            "<a class=\"button\" href=\"{}\"><svg class=\"icon\" aria-hidden=\"true\"><use href=\"#i-first\"/></svg> First page</a>",
            &[&link().without("cursor").address()],
        );
    }
    if let Some(next) = about.and_then(|page| text_of(member(page, "next"))) {
        let to = link().with("limit", limit).with("cursor", next).address();
        html.add(
            "<a class=\"button\" href=\"{}\" rel=\"next\">Next page <svg class=\"icon\" aria-hidden=\"true\"><use href=\"#i-next\"/></svg></a>",
            &[&to],
        );
    }
    html.add("</span></nav>\n", &[]);
    html
}

/// The requests of this page as command lines, and the downloads.
fn commands(page: &PageSource<'_>, resource: &Resource) -> Html {
    let (context, curl) = (page.context, curl::command(page.context));
    let parameters = context.parameters();
    let here = QueryLink::new(context.path, &parameters);
    let whole = here.clone().without("limit").without("cursor").without("count").address();
    let file = format!("{}.csv", resource.plural);
    let mut html = Html::of(
        "<details class=\"api\"><summary><b>curl for this page</b> <code>GET {}</code></summary><div>\n",
        &[&context.path],
    );
    let line = format!("{curl} {}", curl::url(context, &here.address()));
    html.push(&Html::from_template(&CodeBox::new("", line, "the line that reads this page")));
    let url = curl::url(context, &whole);
    let line = format!("{curl} -H 'Accept: text/csv' {url} -o {}", curl::quote(&file));
    html.push(&Html::from_template(&CodeBox::new(
        "all of it as CSV, not a page",
        line,
        "the line that exports",
    )));
    if let Some(line) = create_line(page, resource, context.path) {
        html.push(&Html::from_template(&CodeBox::new("a new one", line, "the line that creates")));
    }
    for (name, accept) in [("CSV", "text/csv"), ("NDJSON", "application/x-ndjson")] {
        let file = format!("{}.{}", resource.plural, name.to_lowercase());
        html.add(
            "<button class=\"button needs-script\" type=\"button\" data-do=\"download\" data-from=\"{}\" data-accept=\"{}\" data-file=\"{}\">Download all as {}</button> ",
            &[&whole, &accept, &file, &name],
        );
    }
    html.push(&upload(page, resource));
    html.add("</div></details>\n", &[]);
    html
}

/// The upload of a file with new items, for callers who may create them.
fn upload(page: &PageSource<'_>, resource: &Resource) -> Html {
    let may_create = page.viewer.access(resource.index, GrantVerb::Post).is_some();
    if !may_create || resource.is_server_made {
        return Html::new();
    }
    Html::of(
        "<form class=\"upload needs-script\" data-upload=\"{}\" data-plural=\"{}\" method=\"dialog\"><label for=\"upload\">New {} from a CSV or NDJSON file, all or none</label><input class=\"control\" type=\"file\" id=\"upload\" accept=\".csv,.ndjson,text/csv,application/x-ndjson\" required><button class=\"button\">Upload</button></form>\n",
        &[&page.context.path, &resource.plural, &resource.plural],
    )
}
