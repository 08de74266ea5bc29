//! JSON output of items, lists, problems and the server's own documents.
//!
//! The members of an item have one order: id, the parent's id, the fields as declared, the timestamps, the
//! version. A field without a value is left out, or `null` where the model declares it nullable.

use http::HeaderValue;

use super::accept::MediaType;
use super::change::{self, ChangeView};
use super::format::{Format, ItemMember, ItemView, RelatedMember, RelatedView};
use crate::json::{
    self, Json, ObjectWriter, into_text, write_id, write_list, write_moment_text, write_text,
    write_value,
};
use crate::model::{Model, Resource, ResourceIndex};
use crate::problem::{self, ExtensionValue, FaultCode, ProblemKind, ProblemParts};
use crate::value::{Change, Id, IdKind, Item, Value};

/// The depth of a list of ids.
const LIST_DEPTH: usize = 2;

pub static FORMAT: Format = Format {
    media: MediaType { essence: "application/json", parameters: &[] },
    content_type: HeaderValue::from_static("application/json"),
    item: |out, view, item| {
        let mut object = ObjectWriter::open(out);
        write_item(object.name(&view.resource.name), view, item);
        object.close();
    },
    items: |out, view, items| {
        let mut object = ObjectWriter::open(out);
        object.list(&view.resource.plural, items, |out, item| write_item(out, view, item));
        object.close();
    },
    page: |out, view, page, next| {
        let mut object = ObjectWriter::open(out);
        object.list(&view.resource.plural, &page.items, |out, item| write_item(out, view, item));
        let mut about = object.object("page");
        about.number("limit", page.limit);
        match next {
            Some(cursor) => about.text("next", cursor),
            None => about.json("next", "null"),
        }
        if let Some(total) = page.total {
            about.number("total", total);
        }
        about.close();
        object.close();
    },
    stream_writer: None,
};

/// The OpenAPI document.
pub static OPENAPI_FORMAT: Format = Format {
    media: MediaType { essence: "application/openapi+json", parameters: &[] },
    content_type: HeaderValue::from_static("application/openapi+json"),
    ..FORMAT
};

/// A JSON Schema.
pub static SCHEMA_FORMAT: Format = Format {
    media: MediaType { essence: "application/schema+json", parameters: &[] },
    content_type: HeaderValue::from_static("application/schema+json"),
    ..FORMAT
};

pub fn write_item(out: &mut Vec<u8>, view: ItemView<'_>, item: &Item) {
    crate::fault::point("format");
    let resource = view.resource;
    let mut object = ObjectWriter::open(out);
    write_id(object.name("id"), item.id);
    if let (Some(key), Some(id)) = (&resource.parent_key, item.parent)
        && view.is_shown(ItemMember::Parent)
    {
        write_id(object.name(key), id);
    }
    for (at, (field, value)) in resource.fields.iter().zip(&item.values).enumerate() {
        let related = view.related.iter().find(|one| one.member == RelatedMember::Field(at));
        let is_shown = related.is_some() || view.is_shown(ItemMember::Field(at));
        if is_shown && (!value.is_null() || field.nullable) {
            let out = object.name(&field.name);
            match value {
                value if related.is_some_and(|one| write_referenced(out, one, value)) => {}
                Value::ClearText(secret) if view.shows_secrets => write_text(out, secret.reveal()),
                value => write_value(out, value),
            }
        }
    }
    let created = item.created_at.canonical_text();
    // Many items are never updated, so the formatted timestamp is reused: 2 % of a list's time.
    let updated = match item.updated_at == item.created_at {
        true => created,
        false => item.updated_at.canonical_text(),
    };
    if view.is_shown(ItemMember::CreatedAt) {
        write_moment_text(object.name("created_at"), &created);
    }
    if view.is_shown(ItemMember::UpdatedAt) {
        write_moment_text(object.name("updated_at"), &updated);
    }
    if view.is_shown(ItemMember::Version) {
        object.number("version", item.version);
    }
    for related in view.related {
        write_related(&mut object, related, item);
    }
    object.close();
}

/// The ids in a value of a field of type `ref` or `refs`. A damaged list has none.
pub fn referenced_ids(value: &Value) -> Vec<Id> {
    let Value::Json(text) = value else { return value.as_id().into_iter().collect() };
    let Ok(Json::List(elements)) = json::parse(text.as_bytes(), LIST_DEPTH) else {
        return Vec::new();
    };
    let ids = elements.iter().filter_map(|element| match element {
        Json::Text(text) => IdKind::Uuid.parse(text),
        Json::Number(text) => IdKind::Integer.parse(text),
        _ => None,
    });
    ids.collect()
}

/// Writes the item that a reference leads to, or the items of a list of references; an item that the client cannot see
/// stays an id. Returns whether anything was written.
fn write_referenced(out: &mut Vec<u8>, related: &RelatedView<'_>, reference: &Value) -> bool {
    if let Value::Json(_) = reference {
        out.push(b'[');
        for (at, id) in referenced_ids(reference).into_iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            match related.items.item(id) {
                Some(item) => write_item(out, related.view(), item),
                None => write_id(out, id),
            }
        }
        out.push(b']');
        return true;
    }
    let Some(item) = reference.as_id().and_then(|id| related.items.item(id)) else { return false };
    write_item(out, related.view(), item);
    true
}

/// Writes related items as members of their own.
fn write_related(object: &mut ObjectWriter<'_>, related: &RelatedView<'_>, item: &Item) {
    match related.member {
        RelatedMember::Field(_) => {}
        RelatedMember::Parent => {
            if let Some(parent) = item.parent.and_then(|id| related.items.item(id)) {
                write_item(object.name(&related.resource.name), related.view(), parent);
            }
        }
        RelatedMember::Children => {
            let group = related.items.group(item.id);
            let items = group.map_or(&[][..], |group| &group.items);
            let plural = &related.resource.plural;
            object.list(plural, items, |out, item| write_item(out, related.view(), item));
            if let Some(next) = group.and_then(|group| group.next.as_deref()) {
                object.text(&format!("{plural}_next"), next);
            }
        }
    }
}

/// The JSON of an item in the change log: without a wrapper.
pub fn item_text(resource: &Resource, item: &Item) -> String {
    let mut out = Vec::with_capacity(256);
    write_item(&mut out, ItemView::all_fields(resource), item);
    into_text(out)
}

/// A list of names, for the change log.
pub fn names_text<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut out = Vec::with_capacity(64);
    write_list(&mut out, names, write_text);
    into_text(out)
}

/// A change of the change log as one NDJSON line, with everything that is stored.
pub fn change_line(out: &mut Vec<u8>, change: &Change) {
    change::write_change(out, &ChangeView::whole(change));
    out.push(b'\n');
}

/// The request that a problem occurred in.
#[derive(Debug, Clone, Copy)]
pub struct ProblemContext<'a> {
    pub base_path: &'a str,
    /// `None` where not even the request line could be parsed.
    pub path: Option<&'a str>,
    pub request_id: &'a str,
}

/// The path of the explanation of a problem, which names its type.
pub fn problem_type(kind: &ProblemKind, base_path: &str) -> String {
    format!("{base_path}/-/problems/{}", kind.slug)
}

/// RFC 9457. A 500 tells the client nothing specific except the request id.
pub fn problem(parts: &ProblemParts, occasion: ProblemContext<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let kind = parts.kind;
    let mut object = ObjectWriter::open(&mut out);
    object.text("type", &problem_type(kind, occasion.base_path));
    object.text("title", kind.title);
    object.number("status", kind.status.as_u16());
    if let Some(detail) = &parts.detail {
        object.text("detail", detail);
    }
    if let Some(path) = occasion.path {
        object.text("instance", path);
    }
    object.text("request_id", occasion.request_id);
    for (name, member) in &parts.members {
        match member {
            ExtensionValue::Text(text) => object.text(name, text),
            ExtensionValue::Texts(texts) => {
                object.list(name, texts, |out, text| write_text(out, text));
            }
        }
    }
    if !parts.faults.is_empty() {
        object.list("errors", &parts.faults, |out, fault| {
            let mut entry = ObjectWriter::open(out);
            entry.text("pointer", &fault.pointer);
            entry.text("code", fault.code.as_str());
            entry.text("detail", &fault.detail);
            entry.close();
        });
    }
    object.close();
    out
}

/// The documentation of a kind of problem: `/-/problems/:slug`.
pub fn problem_documentation(kind: &ProblemKind) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let mut wrapper = ObjectWriter::open(&mut out);
    let mut object = wrapper.object("problem");
    object.text("slug", kind.slug);
    object.number("status", kind.status.as_u16());
    object.text("title", kind.title);
    object.text("help", kind.help);
    if [&problem::INVALID_FIELDS, &problem::TAKEN].contains(&kind) {
        let mut codes = object.object("codes");
        for code in FaultCode::ALL {
            codes.text(code.as_str(), code.meaning());
        }
        codes.close();
    }
    object.close();
    wrapper.close();
    out
}

/// The body of the health checks `/-/health` and `/-/ready`.
pub fn health_status(word: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    object.text("status", word);
    object.close();
    out
}

/// The list of resources that the caller may access: `/`. Paths are URI templates (RFC 6570).
pub fn home(
    model: &Model,
    is_known: impl Fn(ResourceIndex) -> bool,
    can_read: impl Fn(ResourceIndex) -> bool,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let mut object = ObjectWriter::open(&mut out);
    object.text("title", &model.title);
    let known = model.declared().filter(|resource| is_known(resource.index));
    object.list("resources", known, |out, resource| {
        let mut entry = ObjectWriter::open(out);
        entry.text("name", &resource.name);
        entry.text("plural", &resource.plural);
        entry.text("path", &path_template(model, resource));
        if let Some(segment) = resource.flat.as_deref().filter(|_| can_read(resource.index)) {
            let base_path = model.server.base_path.as_deref().unwrap_or("");
            entry.text("flat", &format!("{base_path}/{segment}"));
        }
        entry.close();
    });
    object.close();
    out
}

/// The path of a collection, with names instead of ids.
pub fn path_template(model: &Model, resource: &Resource) -> String {
    let mut path = model.server.base_path.as_deref().unwrap_or("").to_owned();
    for ancestor in model.lineage(resource.index) {
        path.push('/');
        path.push_str(&ancestor.plural);
        if ancestor.index != resource.index {
            path.push_str(&format!("/{{{}_id}}", ancestor.name));
        }
    }
    path
}
