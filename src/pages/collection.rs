//! The page of a collection: filters, a table, and links to further pages and downloads.

use askama::Template;

use super::columns;
use super::curl::{self, CodeBox, create_line};
use super::filters::FilterBar;
use super::form::Form;
use super::frame::{Frame, to_html};
use super::json_view::JsonView;
use super::query_link::QueryLink;
use super::related::{PageSource, ancestors};
use super::source::{elements, heading, member, text_of};
use super::table::{Table, TableSource};
use crate::intent::{CONTROL_PARAMETERS, PathForm, ResourcePath};
use crate::model::{GrantVerb, Resource};

/// More columns scroll on their own.
const COLUMNS_WITHOUT_SCROLL: usize = 8;
/// The page sizes that a page offers, as far as the settings allow them.
const PAGE_SIZES: [usize; 3] = [50, 200, 500];
/// Rows that the script reads again in one request.
const LIVE_ROWS_MAX: usize = 50;

#[derive(Template)]
#[template(path = "collection.html")]
struct CollectionPage<'a> {
    frame: Frame<'a>,
    path: &'a str,
    name: &'a str,
    plural: &'a str,
    /// The name in words.
    noun: String,
    title: String,
    form: Option<Form<'a>>,
    live: Option<LiveList>,
    owner: Option<Owner>,
    /// The plural of the parents, of a flat collection.
    parents: Option<&'a str>,
    filters: FilterBar,
    /// `None` if there are no items.
    table: Option<Table<'a>>,
    is_wide: bool,
    empty: EmptyList,
    pager: Pager<'a>,
    /// With related items, which the table does not show.
    json: Option<JsonView>,
    commands: Vec<CodeBox>,
    /// The address of the whole list, not a page of it.
    whole: String,
    may_create: bool,
}

/// The item that a nested collection belongs to.
struct Owner {
    address: String,
    label: String,
}

/// The addresses from which the script keeps the list up to date.
struct LiveList {
    stream: String,
    rows: String,
    batch: usize,
    first: String,
}

/// Why there may be no items: nothing yet, nothing that matches, or nothing that the caller may see.
struct EmptyList {
    filters: usize,
    is_end: bool,
    may_miss_rows: bool,
}

struct Pager<'a> {
    shown: usize,
    total: Option<&'a str>,
    count_all: Option<String>,
    sizes: Vec<PageSize>,
    first: Option<String>,
    next: Option<String>,
}

/// A number of rows; the present one has no address.
struct PageSize {
    rows: usize,
    address: Option<String>,
}

pub fn render(page: &PageSource<'_>, path: &ResourcePath) -> String {
    let (context, model) = (page.context, page.context.model);
    let resource = model.resource(path.resource);
    let title = heading(&resource.plural);
    let parameters = context.parameters();
    let has = |name: &str| parameters.iter().any(|(known, _)| known == name);
    let items = elements(member(page.json, &resource.plural));
    let selected = parameters.iter().find(|(name, _)| name == "fields");
    let (form, is_flat) = (path.form, path.form == PathForm::Flat);
    let selected = selected.map(|(_, names)| &**names);
    let columns = columns::choose(page.viewer, (resource, form), selected);
    let sort = Some(&*parameters).filter(|_| !context.has_long_query());
    let source = TableSource { resource, form, path: context.path, items, columns: &columns, sort };
    let caption = format!("{title}, page of {}", items.len());
    let is_filter = |(name, _): &&(String, String)| !CONTROL_PARAMETERS.contains(&&**name);
    let whole = QueryLink::new(context.path, &parameters);
    let whole = whole.without("limit").without("cursor").without("count");
    let whole = whole.without("expand").address();
    to_html(&CollectionPage {
        frame: Frame::at(page, &title, path, false),
        path: context.path,
        name: &resource.name,
        plural: &resource.plural,
        noun: resource.name.replace('_', " "),
        form: if is_flat { None } else { Form::create(page, resource, context.path) },
        live: live_list(page, resource, &parameters),
        owner: ancestors(model, path).pop().map(|(_, address)| {
            let label = page.related.label(&address);
            Owner { address, label }
        }),
        parents: resource.parent.filter(|_| is_flat).map(|parent| &*model.resource(parent).plural),
        filters: FilterBar::new(page, (resource, form), &parameters),
        table: (!items.is_empty()).then(|| Table::new(page, source, caption)),
        is_wide: columns.len() > COLUMNS_WITHOUT_SCROLL,
        empty: EmptyList {
            filters: parameters.iter().filter(is_filter).count(),
            is_end: has("cursor"),
            may_miss_rows: may_miss_rows(page, path),
        },
        pager: pager(page, &parameters, items.len()),
        json: has("expand").then(|| JsonView::of(page.json)),
        commands: commands(page, path, &whole),
        whole,
        may_create: page.viewer.access(resource.index, GrantVerb::Post).is_some()
            && !resource.is_server_made
            && !is_flat,
        title,
    })
}

/// For callers who can follow the list.
fn live_list(
    page: &PageSource<'_>,
    resource: &Resource,
    parameters: &[(String, String)],
) -> Option<LiveList> {
    if resource.is_server_made {
        return None;
    }
    let path = page.context.path;
    let link = |without: &[&str]| {
        without.iter().fold(QueryLink::new(path, parameters), |link, name| link.without(name))
    };
    let limits = &page.context.model.server.limits;
    Some(LiveList {
        stream: page.stream_address(link(&CONTROL_PARAMETERS)),
        rows: link(&["limit", "cursor", "sort", "count"]).address(),
        batch: LIVE_ROWS_MAX.min(limits.filter_values_max).min(limits.page_items_max),
        first: link(&["cursor"]).address(),
    })
}

fn pager<'a>(page: &PageSource<'a>, parameters: &[(String, String)], shown: usize) -> Pager<'a> {
    let link = || QueryLink::new(page.context.path, parameters);
    let about =
        |name: &str| member(page.json, "page").and_then(|about| text_of(member(about, name)));
    let (total, limit) = (about("total"), about("limit").unwrap_or_default());
    let rows_max = page.context.model.server.limits.page_items_max;
    let sizes = PAGE_SIZES.into_iter().filter(|rows| *rows <= rows_max).map(|rows| {
        let text = rows.to_string();
        let address = || link().without("cursor").with("limit", &text).address();
        PageSize { rows, address: (text != limit).then(address) }
    });
    let sizes: Vec<PageSize> = sizes.collect();
    let has_cursor = parameters.iter().any(|(name, _)| name == "cursor");
    Pager {
        shown,
        total,
        count_all: (shown > 0).then(|| link().with("count", "exact").address()),
        sizes: if shown > 0 && sizes.len() > 1 { sizes } else { Vec::new() },
        first: has_cursor.then(|| link().without("cursor").address()),
        next: about("next").map(|next| link().with("limit", limit).with("cursor", next).address()),
    }
}

/// Whether there may be rows that the roles of the caller do not show.
fn may_miss_rows(page: &PageSource<'_>, path: &ResourcePath) -> bool {
    let lineage = page.context.model.lineage(path.resource).into_iter();
    // A parent that is named in the path is shown.
    let mut levels =
        lineage.filter(|level| path.form == PathForm::Flat || level.index == path.resource);
    levels.any(|level| page.viewer.may_miss_rows(level.index))
}

/// The requests of this page as command lines.
fn commands(page: &PageSource<'_>, path: &ResourcePath, whole: &str) -> Vec<CodeBox> {
    let resource = page.context.model.resource(path.resource);
    let (context, curl) = (page.context, curl::command(page.context));
    let here = QueryLink::new(context.path, &context.parameters()).address();
    let read = format!("{curl} {}", curl::url(context, &here));
    let (url, file) = (curl::url(context, whole), format!("{}.csv", resource.plural));
    let export = format!("{curl} -H 'Accept: text/csv' {url} -o {}", curl::quote(&file));
    let create = match path.form {
        PathForm::Nested => create_line(page, resource, context.path),
        PathForm::Flat => None,
    };
    let mut all = vec![
        CodeBox::new("", read, "the line that reads this page"),
        CodeBox::new("all of it as CSV, not a page", export, "the line that exports"),
    ];
    all.extend(create.map(|line| CodeBox::new("a new one", line, "the line that creates")));
    all
}
