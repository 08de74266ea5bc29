//! The page of an item: its fields, its children, its history, and the requests that do the same.

use super::cell::{badge, full, time};
use super::change_entry::Difference;
use super::collection::{TableParts, table};
use super::columns::{self, item_label, label_field};
use super::curl::{self, CodeBox};
use super::form::{FormPurpose, edit_section, form_fields, has_single_control};
use super::frame::{Frame, to_html};
use super::html::{Html, copy_button, live_marker};
use super::json_view::JsonView;
use super::page::Page;
use super::query_link::QueryLink;
use super::related::{
    CHILDREN_SHOWN, PageSource, child_collections, child_list_address, history_address,
    is_of_the_past,
};
use super::source::{elements, heading, id_of, member, text_of};
use crate::intent::{ResourcePath, format_path};
use crate::json::Json;
use crate::model::{Field, GrantVerb, OnDelete, Resource, StateMachine};
use crate::openapi::{self, WritableFields};

pub fn render(page: &PageSource<'_>, path: &ResourcePath) -> String {
    let (context, model) = (page.context, page.context.model);
    let resource = model.resource(path.resource);
    let missing = Json::Null;
    let item = member(page.json, &resource.name).unwrap_or(&missing);
    let label = item_label(label_field(page.viewer, resource), item);
    // An item as it was is not followed.
    let is_past = is_of_the_past(&context.parameters());
    let is_live = !is_past && !resource.is_server_made;
    let live = match is_live {
        true => Html::of(" data-live=\"{}\" data-news=\"changed, show\"", &[&context.path]),
        false => Html::new(),
    };
    // Writes need the whole item as it is now, with its version.
    let is_current = !is_past && !context.parameters().iter().any(|(name, _)| name == "fields");
    let version = text_of(member(item, "version")).unwrap_or_default();
    let line = if is_current { patch_line(page, resource, version) } else { None };
    let form = match is_current {
        true => edit_section(page, resource, (item, &label), line.as_deref().unwrap_or_default()),
        false => Html::new(),
    };
    let removal = if is_current { removal(page, path, (item, &label)) } else { None };
    let mut main = Html::of(
        "{}<div class=\"view\"{}>\n<div class=\"head\"><div class=\"title\"><h1>{}</h1><p class=\"sub\"><span class=\"copy\"><code>{}</code>{}</span></p></div>\n<div class=\"actions\">",
        &[&form, &live, &label, &id_of(item), &copy_button("the id")],
    );
    if is_live {
        main.push(&live_marker());
    }
    if !form.is_empty() {
        main.add("<a class=\"button\" href=\"#edit\" data-key=\"e\"><svg class=\"icon\" aria-hidden=\"true\"><use href=\"#i-edit\"/></svg> Edit</a>", &[]);
    }
    if removal.is_some() {
        main.add("<button class=\"button danger needs-script\" type=\"button\" data-do=\"open\" data-dialog=\"#delete\"><svg class=\"icon\" aria-hidden=\"true\"><use href=\"#i-trash\"/></svg> Delete</button>", &[]);
    }
    main.add("</div></div>\n", &[]);
    if is_past {
        main.add("<p class=\"note\">This is the item as it was. <a href=\"{}\">The item as it is now</a></p>\n", &[&context.path]);
    }
    main.add("<div class=\"two\">\n<div class=\"stack\">\n", &[]);
    main.push(&fields(page, (resource, item), is_current, !form.is_empty()));
    if !is_past {
        for (child, address) in child_collections(page.viewer, path) {
            main.push(&children(page, (child, &address), &label));
        }
        main.push(&history(page, path, item, is_current));
    }
    main.add("</div>\n", &[]);
    main.push(&aside(page, resource, item, line.as_deref()));
    main.add("</div>\n</div>\n", &[]);
    let frame = Frame::at(page, &label, path, true).end(&label);
    to_html(&Page { frame, main, dialogs: removal.unwrap_or_default() })
}

fn fields(
    page: &PageSource<'_>,
    (resource, item): (&Resource, &Json<'_>),
    is_current: bool,
    has_form: bool,
) -> Html {
    let mut html = Html::of(
        "<section aria-labelledby=\"s-fields\"><h2 class=\"unseen\" id=\"s-fields\">Fields</h2>\n<dl class=\"fields\">\n",
        &[],
    );
    let selected = page.context.parameters();
    let selected = selected.iter().find(|(name, _)| name == "fields").map(|(_, names)| names);
    let is_selected = |field: &Field| {
        selected.is_none_or(|names| names.split(',').any(|name| name == &*field.name))
    };
    let editable = form_fields(page, resource, FormPurpose::Edit(item)).unwrap_or_default();
    for (at, field) in page.viewer.readable_fields(resource).filter(|(_, one)| is_selected(one)) {
        let value = member(item, &field.name);
        let shown = match (&field.rules.states, value) {
            (Some(machine), Some(Json::Text(state))) => {
                let moves = match is_current {
                    true => moves(page, (resource, at, field), (machine, state), item),
                    false => Html::new(),
                };
                let badge = badge(Some(machine), state);
                Html::of("<span class=\"moves\">{}{}</span>", &[&badge, &moves])
            }
            _ => full(page, field, value),
        };
        html.add("<div><dt>{}</dt><dd>{}</dd>", &[&field.name, &shown]);
        if has_form && editable.iter().any(|one| one.name == field.name) {
            let action = match has_single_control(field) {
                true => Html::of(" data-do=\"inline\" data-field=\"{}\"", &[&field.name]),
                false => Html::new(),
            };
            html.add("<dd class=\"do\"><a class=\"button quiet small square pencil\" href=\"#edit-{}\"{} aria-label=\"Edit {}\"><svg class=\"icon\" aria-hidden=\"true\"><use href=\"#i-edit\"/></svg></a></dd>", &[&field.name, &action, &field.name]);
        }
        html.add("</div>\n", &[]);
    }
    html.add("</dl></section>\n", &[]);
    html
}

/// A button for each state that may follow, if the caller may set it.
fn moves(
    page: &PageSource<'_>,
    (resource, at, field): (&Resource, usize, &Field),
    (machine, state): (&StateMachine, &str),
    item: &Json<'_>,
) -> Html {
    let mut html = Html::new();
    let Some(access) = page.viewer.access(resource.index, GrantVerb::Patch) else { return html };
    if access.hidden.contains(&at) || access.readonly.contains(&at) || field.server_set {
        return html;
    }
    let version = text_of(member(item, "version")).unwrap_or_default();
    let short = columns::short_id(id_of(item));
    for next in machine.successors(state) {
        let words = format!("Move {} {} to {next}", resource.name, short.trim_start_matches('…'));
        html.add(
            "<button class=\"button small needs-script\" type=\"button\" data-do=\"move\" data-to=\"{}\" data-wrap=\"{}\" data-field=\"{}\" data-state=\"{}\" data-version=\"{}\" aria-label=\"{}\">→ {}</button>",
            &[&page.context.path, &resource.name, &field.name, next, &version, &words, next],
        );
    }
    html
}

/// The dialog that confirms a delete and names the items that are deleted too; `None` if the caller may not delete.
fn removal(
    page: &PageSource<'_>,
    path: &ResourcePath,
    (item, label): (&Json<'_>, &str),
) -> Option<Html> {
    let model = page.context.model;
    let resource = model.resource(path.resource);
    page.viewer.access(path.resource, GrantVerb::Delete)?;
    let mut along = String::new();
    for (child, address) in child_collections(page.viewer, path) {
        let reply = page.related.reply(&child_list_address(page.viewer, child, &address));
        let count = reply.map(|reply| elements(member(reply, &child.plural)).len());
        let (name, plural) = (&child.name, &child.plural);
        let number = match count {
            Some(0) => continue,
            Some(1) => format!("1 {name}"),
            Some(count) if count < CHILDREN_SHOWN => format!("{count} {plural}"),
            _ => plural.to_string(),
        };
        along.push_str(&match child.on_delete {
            OnDelete::Restrict => {
                format!("It has {number}, and cannot be deleted before them. ")
            }
            OnDelete::Cascade | OnDelete::Sweep => {
                let verb = if count == Some(1) { "is" } else { "are" };
                format!("Its {number} {verb} deleted with it. ")
            }
        });
    }
    let ids = path.ids.as_ref().map_or(&[][..], |ids| &ids.ancestors);
    let collection = format_path(model, path.resource, ids, None);
    let version = text_of(member(item, "version")).unwrap_or_default();
    Some(Html::of(
        "<dialog id=\"delete\" aria-labelledby=\"delete-title\"><div class=\"body\"><h2 id=\"delete-title\">Delete {}?</h2><p>{}This cannot be undone.</p></div><form class=\"buttons\" method=\"dialog\"><button class=\"button\" autofocus>Keep it</button><button class=\"button danger solid\" type=\"button\" data-do=\"remove\" data-to=\"{}\" data-version=\"{}\" data-after=\"{}\">Delete {}</button></form></dialog>\n",
        &[&label, &along, &page.context.path, &version, &collection, &resource.name],
    ))
}

/// The newest items of a collection below the item.
fn children(page: &PageSource<'_>, (child, path): (&Resource, &str), label: &str) -> Html {
    let id = format!("children-{}", child.plural);
    let mut html = Html::of(
        "<section aria-labelledby=\"{}\"><div class=\"section-head\"><h2 id=\"{}\">{}</h2></div>\n",
        &[&id, &id, &heading(&child.plural)],
    );
    if !page.viewer.can_read(child.index) {
        html.add("<p class=\"muted\">Your roles do not show these.</p></section>\n", &[]);
        return html;
    }
    let reply = page.related.reply(&child_list_address(page.viewer, child, path));
    let items = elements(reply.and_then(|reply| member(reply, &child.plural)));
    if items.is_empty() && reply.is_some() {
        html.add("<div class=\"empty\"><p>No {} yet.</p></div>\n", &[&child.plural]);
    } else if !items.is_empty() {
        let columns = columns::choose(page.viewer, child, None);
        let caption = format!("{} of {label}, newest first", heading(&child.plural));
        let parts = TableParts { columns: &columns, caption: &caption, sort: None };
        html.push(&table(page, (child, path), items, parts));
    }
    let words = match items.len() < CHILDREN_SHOWN {
        true => format!("{} of {label}", heading(&child.plural)),
        false => format!("All {} of {label}", child.plural),
    };
    html.add("<p class=\"pager\"><a href=\"{}\">{}</a></p></section>\n", &[&path, &words]);
    html
}

/// The last changes of the item, with their differences.
fn history(page: &PageSource<'_>, path: &ResourcePath, item: &Json<'_>, is_current: bool) -> Html {
    let Some(address) = history_address(page.viewer, path) else { return Html::new() };
    let Some(reply) = page.related.reply(&address) else { return Html::new() };
    let mut html = Html::of(
        "<section aria-labelledby=\"s-history\"><div class=\"section-head\"><h2 id=\"s-history\">History</h2></div>\n<ol class=\"log\">\n",
        &[],
    );
    let resource = page.context.model.resource(path.resource);
    let current = text_of(member(item, "version")).unwrap_or_default();
    let editable = form_fields(page, resource, FormPurpose::Edit(item)).unwrap_or_default();
    let names = editable.iter().filter(|field| !field.secret).map(|field| &*field.name);
    let names: Vec<&str> = names.collect();
    for change in elements(member(reply, "changes")) {
        let text = |name: &str| text_of(member(change, name)).unwrap_or_default();
        let values = [member(change, "after"), member(change, "before")];
        let version = values.into_iter().flatten().find_map(|one| text_of(member(one, "version")));
        let difference = Difference::of(change);
        let touched = difference.as_ref().map(Difference::short_summary).unwrap_or_default();
        let table = difference.as_ref().map(Html::from_template).unwrap_or_default();
        let may_restore = is_current && !names.is_empty();
        let restore = match version.filter(|version| may_restore && *version != current) {
            Some(version) => Html::of(
                "<p><button class=\"button small needs-script\" type=\"button\" data-do=\"restore\" data-to=\"{}\" data-wrap=\"{}\" data-fields=\"{}\" data-past=\"{}\" data-version=\"{}\">Restore version {}</button></p>",
                &[
                    &page.context.path,
                    &resource.name,
                    &names.join(","),
                    &version,
                    &current,
                    &version,
                ],
            ),
            None => Html::new(),
        };
        let version = version.map(|version| format!("version {version}")).unwrap_or_default();
        html.add(
            "<li><details class=\"entry\"><summary><span class=\"badge kind {}\">{}</span><span class=\"what\">{} by <b>{}</b> <span class=\"muted\">{}</span></span>{}</summary>{}{}</details></li>\n",
            &[&text("kind"), &text("kind"), &touched, &text("actor"), &version, &time(text("time")), &table, &restore],
        );
    }
    let whole = address.replace("&limit=10", "");
    html.add(
        "</ol>\n<p class=\"pager\"><a href=\"{}\">Whole history</a></p></section>\n",
        &[&whole],
    );
    html
}

fn aside(
    page: &PageSource<'_>,
    resource: &Resource,
    item: &Json<'_>,
    patch_line: Option<&str>,
) -> Html {
    let (context, curl) = (page.context, curl::command(page.context));
    let text = |name: &str| text_of(member(item, name)).unwrap_or_default();
    let mut html = Html::of(
        "<aside class=\"aside stack\" aria-label=\"About this {}\"><section><h2>About</h2><dl class=\"about\">",
        &[&resource.name],
    );
    if !text("version").is_empty() {
        html.add("<dt>version</dt><dd class=\"num\">{}</dd>", &[&text("version")]);
    }
    for name in ["created_at", "updated_at"] {
        if !text(name).is_empty() {
            html.add("<dt>{}</dt><dd>{}</dd>", &[&name, &time(text(name))]);
        }
    }
    let verbs = [
        ("GET", GrantVerb::Get),
        ("PUT", GrantVerb::Put),
        ("PATCH", GrantVerb::Patch),
        ("DELETE", GrantVerb::Delete),
    ];
    let may = verbs.iter().filter(|(name, verb)| {
        let is_offered = !resource.is_server_made || *name != "PUT";
        is_offered && page.viewer.access(resource.index, *verb).is_some()
    });
    let may: Vec<&str> = may.map(|(name, _)| *name).collect();
    html.add(
        "<dt>you may</dt><dd><span class=\"method\">{}</span></dd></dl></section>\n<section><h2>curl for this page</h2>\n",
        &[&may.join(" ")],
    );
    let here = QueryLink::new(context.path, &context.parameters()).address();
    let line = format!("{curl} {}", curl::url(context, &here));
    html.push(&Html::from_template(&CodeBox::new("", line, "the line that reads this page")));
    if let Some(line) = patch_line {
        html.push(&Html::from_template(&CodeBox::new(
            "",
            line.to_owned(),
            "the line that changes it",
        )));
    }
    html.add(
        "</section>\n<section><h2>JSON</h2><div class=\"code-box\"><pre tabindex=\"0\" role=\"group\" aria-label=\"this {} as JSON\">{}</pre>{}</div></section>\n</aside>\n",
        &[&resource.name, &Html::from_template(&JsonView::of(page.json)), &copy_button("the JSON")],
    );
    html
}

/// The command that changes one field of the item, if the caller may do that.
fn patch_line(page: &PageSource<'_>, resource: &Resource, version: &str) -> Option<String> {
    let access = page.viewer.access(resource.index, GrantVerb::Patch)?;
    let patch = openapi::patch_text(resource, &WritableFields { access, unseen: &[] })?;
    let body = curl::quote(&format!("{{\"{}\":{patch}}}", resource.name));
    let (context, curl) = (page.context, curl::command(page.context));
    let url = curl::url(context, context.path);
    let condition = curl::quote(&format!("If-Match: \"{version}\""));
    Some(format!("{curl} -X PATCH {url} -H {condition} --json {body}"))
}
