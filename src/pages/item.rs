//! The page of an item: its fields, its children, its history, and the requests that do the same.

use askama::Template;

use super::change_entry::ValueDifference;
use super::columns::{self, item_label, label_field};
use super::curl::{self, CodeBox};
use super::form::{Form, FormPurpose, form_fields, has_single_control};
use super::frame::{Frame, to_html};
use super::item_children::{ChildList, Removal, child_lists};
use super::json_view::JsonView;
use super::query_link::QueryLink;
use super::related::{PageSource, history_address, requests_past_version};
use super::source::{elements, id_of, member, text_of};
use super::time_element::TimeElement;
use super::value::ShownValue;
use crate::intent::ResourcePath;
use crate::json::Json;
use crate::model::{Field, GrantVerb, Resource};
use crate::openapi::{self, WritableFields};

#[derive(Template)]
#[template(path = "item.html")]
struct ItemPage<'a> {
    frame: Frame<'a>,
    path: &'a str,
    /// The name of the resource.
    name: &'a str,
    id: &'a str,
    id_end: String,
    label: String,
    version: &'a str,
    is_past: bool,
    /// The address of the event stream, unless the item is not followed.
    live: Option<String>,
    form: Option<Form<'a>>,
    removal: Option<Removal>,
    fields: Vec<ItemField<'a>>,
    children: Vec<ChildList<'a>>,
    history: Option<History<'a>>,
    /// The members that are times, by their names.
    times: Vec<(&'static str, TimeElement)>,
    /// The methods that the caller may use.
    methods: String,
    commands: Vec<CodeBox>,
    json: JsonView,
}

struct ItemField<'a> {
    name: &'a str,
    value: ShownValue,
    /// The states that may follow, of a state.
    moves: Option<Vec<&'a str>>,
    is_editable: bool,
    is_edited_in_place: bool,
}

/// The last changes of the item, with their differences.
struct History<'a> {
    entries: Vec<HistoryEntry<'a>>,
    /// The names of the fields that are restored with a version.
    fields: String,
    /// The address of the whole history.
    whole: String,
}

struct HistoryEntry<'a> {
    kind: &'a str,
    actor: &'a str,
    version: Option<&'a str>,
    /// The version, if the caller may restore it.
    restored_version: Option<&'a str>,
    time: TimeElement,
    difference: Option<ValueDifference>,
}

/// The item, and how far the caller may use it.
struct ItemSource<'a> {
    resource: &'a Resource,
    item: &'a Json<'a>,
    /// Writes need the whole item as it is now, with its version.
    is_current: bool,
    /// The fields that a form of the caller has.
    editable: Vec<&'a Field>,
}

impl<'a> ItemSource<'a> {
    fn text(&self, name: &str) -> &'a str {
        text_of(member(self.item, name)).unwrap_or_default()
    }
}

pub fn render(page: &PageSource<'_>, path: &ResourcePath) -> String {
    let context = page.context;
    let resource = context.model.resource(path.resource);
    let item = member(page.json, &resource.name).unwrap_or(&Json::Null);
    let label = item_label(label_field(page.viewer, resource), item);
    let parameters = context.parameters();
    // An item as it was is not followed.
    let is_past = requests_past_version(&parameters);
    let is_plain = !parameters.iter().any(|(name, _)| name == "fields" || name == "expand");
    let is_current = !is_past && is_plain;
    let editable = form_fields(page, resource, FormPurpose::Edit(item)).unwrap_or_default();
    let source = ItemSource { resource, item, is_current, editable };
    let version = source.text("version");
    let line = if is_current { patch_line(page, resource, version) } else { None };
    let form = match is_current {
        true => Form::edit(page, resource, (item, &label), line.clone()),
        false => None,
    };
    let times = ["created_at", "updated_at"].into_iter();
    let times = times.filter(|name| !source.text(name).is_empty());
    to_html(&ItemPage {
        frame: Frame::at(page, &label, path, true).end(&label),
        path: context.path,
        name: &resource.name,
        id: id_of(item),
        id_end: columns::short_id(id_of(item)).trim_start_matches('…').to_owned(),
        version,
        is_past,
        live: (!is_past && !resource.is_server_made)
            .then(|| page.stream_address(QueryLink::new(context.path, &[]))),
        fields: fields(page, &source, form.is_some()),
        form,
        removal: if is_current { Removal::new(page, path) } else { None },
        children: if is_past { Vec::new() } else { child_lists(page, path, &label) },
        history: if is_past { None } else { history(page, path, &source) },
        times: times.map(|name| (name, TimeElement::time(source.text(name)))).collect(),
        methods: methods(page, resource),
        commands: commands(page, line),
        json: JsonView::of(page.json),
        label,
    })
}

fn fields<'a>(
    page: &PageSource<'a>,
    source: &ItemSource<'a>,
    has_form: bool,
) -> Vec<ItemField<'a>> {
    let selected = page.context.parameters();
    let selected = selected.iter().find(|(name, _)| name == "fields").map(|(_, names)| names);
    let is_selected = |field: &Field| {
        selected.is_none_or(|names| names.split(',').any(|name| name == &*field.name))
    };
    let is_editable = |field: &Field| source.editable.iter().any(|one| one.name == field.name);
    let all = page.viewer.readable_fields(source.resource);
    all.filter(|(_, field)| is_selected(field))
        .map(|(at, field)| {
            let value = member(source.item, &field.name);
            let (value, moves) = match (&field.rules.states, value) {
                (Some(machine), Some(Json::Text(state))) => {
                    let access = page.viewer.access(source.resource.index, GrantVerb::Patch);
                    let access = access.filter(|_| may_move(page, source, (at, field)));
                    let moves = access.map_or_else(Vec::new, |access| {
                        access.allowed_successors(machine, state).collect()
                    });
                    (ShownValue::state(Some(machine), state), Some(moves))
                }
                _ => (ShownValue::full(page, field, value), None),
            };
            ItemField {
                name: &field.name,
                value,
                moves,
                is_editable: has_form && is_editable(field),
                is_edited_in_place: has_single_control(field),
            }
        })
        .collect()
}

/// Whether the caller may set a state.
fn may_move(page: &PageSource<'_>, source: &ItemSource<'_>, (at, field): (usize, &Field)) -> bool {
    let access = page.viewer.access(source.resource.index, GrantVerb::Patch);
    let is_writable =
        access.is_some_and(|access| !access.hidden.contains(&at) && !access.readonly.contains(&at));
    source.is_current && is_writable && !field.server_set
}

fn history<'a>(
    page: &PageSource<'a>,
    path: &ResourcePath,
    source: &ItemSource<'a>,
) -> Option<History<'a>> {
    let address = history_address(page.viewer, path)?;
    let reply = page.related.reply(&address)?;
    let current = source.text("version");
    let access = page.viewer.access(source.resource.index, GrantVerb::Patch);
    // One field that is read-only in this item would refuse the whole request.
    let is_restored = |field: &&&Field| {
        let at = source.resource.field(&field.name).map(|(at, _)| at);
        let is_writable =
            access.zip(at).is_some_and(|(access, at)| !access.readonly_or_limited.contains(&at));
        !field.secret && is_writable
    };
    let names: Vec<&str> =
        source.editable.iter().filter(is_restored).map(|field| &*field.name).collect();
    let may_restore = source.is_current && !names.is_empty();
    let entry = |change: &'a Json<'a>| {
        let text = |name: &str| text_of(member(change, name)).unwrap_or_default();
        let values = [member(change, "after"), member(change, "before")];
        let version = values.into_iter().flatten().find_map(|one| text_of(member(one, "version")));
        HistoryEntry {
            kind: text("kind"),
            actor: text("actor"),
            version,
            restored_version: version.filter(|version| may_restore && *version != current),
            time: TimeElement::time(text("time")),
            difference: ValueDifference::of(change),
        }
    };
    Some(History {
        entries: elements(member(reply, "changes")).iter().map(entry).collect(),
        fields: names.join(","),
        whole: address.replace("&limit=10", ""),
    })
}

fn methods(page: &PageSource<'_>, resource: &Resource) -> String {
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
    may.map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
}

fn commands(page: &PageSource<'_>, patch_line: Option<String>) -> Vec<CodeBox> {
    let (context, curl) = (page.context, curl::command(page.context));
    let here = QueryLink::new(context.path, &context.parameters()).address();
    let line = format!("{curl} {}", curl::url(context, &here));
    let read = CodeBox::new("", line, "the line that reads this page");
    let patch = patch_line.map(|line| CodeBox::new("", line, "the line that changes it"));
    [read].into_iter().chain(patch).collect()
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
