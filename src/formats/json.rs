//! JSON output of items, lists, problems and the server's own documents.
//!
//! The members of an item have one order: id, the parent's id, the fields as declared, the timestamps, the
//! version. A field without a value is left out, or `null` where the model declares it nullable.

use http::HeaderValue;

use super::accept::MediaType;
use super::{Format, ItemMember, ItemView};
use crate::json::{write_moment, write_text, write_value};
use crate::model::{Model, Resource, ResourceIndex};
use crate::problem::{self, FaultCode, ProblemKind, ProblemParts};
use crate::value::{Change, Id, Item};

pub static FORMAT: Format = Format {
    media: MediaType { essence: "application/json", parameters: &[] },
    content_type: HeaderValue::from_static("application/json"),
    item: |out, view, item| {
        wrap(out, &view.resource.name, |out| write_item(out, view, item));
        out.push(b'}');
    },
    items: |out, view, items| {
        wrap(out, &view.resource.plural, |out| write_items(out, view, items));
        out.push(b'}');
    },
    page: |out, view, page, next| {
        wrap(out, &view.resource.plural, |out| write_items(out, view, &page.items));
        out.extend_from_slice(b",\"page\":{\"limit\":");
        write_integer(out, page.limit);
        out.extend_from_slice(b",\"next\":");
        match next {
            Some(cursor) => write_text(out, cursor),
            None => out.extend_from_slice(b"null"),
        }
        if let Some(total) = page.total {
            out.extend_from_slice(b",\"total\":");
            write_integer(out, total);
        }
        out.extend_from_slice(b"}}");
    },
    stream_writer: None,
};

/// Opens an object with one member; the caller closes it.
fn wrap(out: &mut Vec<u8>, name: &str, content: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'{');
    write_name(out, name);
    content(out);
}

/// Names are `[a-z0-9_]` and need no escaping.
fn write_name(out: &mut Vec<u8>, name: &str) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn write_integer(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn write_id(out: &mut Vec<u8>, id: Id) {
    match id {
        Id::Integer(number) => write_integer(out, number),
        Id::Uuid(uuid) => {
            let mut buffer = uuid::Uuid::encode_buffer();
            out.push(b'"');
            out.extend_from_slice(uuid.hyphenated().encode_lower(&mut buffer).as_bytes());
            out.push(b'"');
        }
    }
}

fn write_items(out: &mut Vec<u8>, view: ItemView<'_>, items: &[Item]) {
    out.push(b'[');
    for (number, item) in items.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        write_item(out, view, item);
    }
    out.push(b']');
}

pub fn write_item(out: &mut Vec<u8>, view: ItemView<'_>, item: &Item) {
    crate::fault::point("format");
    let resource = view.resource;
    out.extend_from_slice(b"{\"id\":");
    write_id(out, item.id);
    if let (Some(key), Some(id)) = (&resource.parent_key, item.parent)
        && view.is_shown(ItemMember::Parent)
    {
        out.push(b',');
        write_name(out, key);
        write_id(out, id);
    }
    for (at, (field, value)) in resource.fields.iter().zip(&item.values).enumerate() {
        if view.is_shown(ItemMember::Field(at)) && (!value.is_null() || field.nullable) {
            out.push(b',');
            write_name(out, &field.name);
            write_value(out, value);
        }
    }
    let created = item.created_at.canonical_text();
    // Many items are never updated, so the formatted timestamp is reused.
    let updated = match item.updated_at == item.created_at {
        true => created,
        false => item.updated_at.canonical_text(),
    };
    if view.is_shown(ItemMember::CreatedAt) {
        out.extend_from_slice(b",\"created_at\":\"");
        out.extend_from_slice(&created);
        out.push(b'"');
    }
    if view.is_shown(ItemMember::UpdatedAt) {
        out.extend_from_slice(b",\"updated_at\":\"");
        out.extend_from_slice(&updated);
        out.push(b'"');
    }
    if view.is_shown(ItemMember::Version) {
        out.extend_from_slice(b",\"version\":");
        write_integer(out, item.version);
    }
    out.push(b'}');
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
    write_list(&mut out, names);
    into_text(out)
}

/// A change of the change log as one NDJSON line.
pub fn change_line(out: &mut Vec<u8>, change: &Change) {
    out.extend_from_slice(b"{\"sequence\":");
    write_integer(out, change.sequence);
    let texts = [("resource", &change.resource), ("id", &change.id), ("subject", &change.subject)];
    let more = [("kind", &change.kind), ("actor", &change.actor)];
    for (name, text) in texts.into_iter().chain(more).chain([("request_id", &change.request_id)]) {
        write_member(out, name);
        // An integer id is the only id that consists of digits alone.
        if name == "id" && text.bytes().all(|byte| byte.is_ascii_digit()) {
            out.extend_from_slice(text.as_bytes());
        } else {
            write_text(out, text);
        }
    }
    write_member(out, "time");
    write_moment(out, change.time);
    let texts =
        [("changed", &change.changed), ("before", &change.before), ("after", &change.after)];
    for (name, json) in texts {
        write_member(out, name);
        out.extend_from_slice(json.as_deref().unwrap_or("null").as_bytes());
    }
    out.extend_from_slice(b"}\n");
}

fn write_member(out: &mut Vec<u8>, name: &str) {
    out.push(b',');
    write_text(out, name);
    out.push(b':');
}

/// Everything written here is UTF-8.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_default()
}

fn write_list<'a>(out: &mut Vec<u8>, texts: impl Iterator<Item = &'a str>) {
    out.push(b'[');
    for (number, text) in texts.enumerate() {
        if number > 0 {
            out.push(b',');
        }
        write_text(out, text);
    }
    out.push(b']');
}

/// Writes the members of an object one by one.
struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
}

impl<'a> ObjectWriter<'a> {
    fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_first: true }
    }

    fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::replace(&mut self.is_first, false) {
            self.out.push(b',');
        }
        write_name(self.out, name);
        self.out
    }

    fn text(&mut self, name: &str, text: &str) {
        write_text(self.name(name), text);
    }

    fn close(self) {
        self.out.push(b'}');
    }
}

/// The request that a problem occurred in.
#[derive(Debug, Clone, Copy)]
pub struct ProblemContext<'a> {
    pub base_path: &'a str,
    /// `None` where not even the request line could be parsed.
    pub path: Option<&'a str>,
    pub request_id: &'a str,
}

/// RFC 9457. A 500 tells the client nothing specific except the request id.
pub fn problem(parts: &ProblemParts, occasion: ProblemContext<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let kind = parts.kind;
    let mut object = ObjectWriter::open(&mut out);
    object.text("type", &format!("{}/-/problems/{}", occasion.base_path, kind.slug));
    object.text("title", kind.title);
    write_integer(object.name("status"), kind.status.as_u16());
    if let Some(detail) = &parts.detail {
        object.text("detail", detail);
    }
    if let Some(path) = occasion.path {
        object.text("instance", path);
    }
    object.text("request_id", occasion.request_id);
    for (name, member) in &parts.members {
        match member {
            problem::ExtensionValue::Text(text) => object.text(name, text),
            problem::ExtensionValue::Texts(texts) => {
                write_list(object.name(name), texts.iter().map(String::as_str));
            }
        }
    }
    if !parts.faults.is_empty() {
        let out = object.name("errors");
        out.push(b'[');
        for (number, fault) in parts.faults.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            let mut entry = ObjectWriter::open(out);
            entry.text("pointer", &fault.pointer);
            entry.text("code", fault.code.as_str());
            entry.text("detail", &fault.detail);
            entry.close();
        }
        out.push(b']');
    }
    object.close();
    out
}

/// The documentation of a kind of problem: `/-/problems/:slug`.
pub fn problem_page(kind: &ProblemKind) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    wrap(&mut out, "problem", |out| {
        let mut object = ObjectWriter::open(out);
        object.text("slug", kind.slug);
        write_integer(object.name("status"), kind.status.as_u16());
        object.text("title", kind.title);
        object.text("help", kind.help);
        if [&problem::INVALID_FIELDS, &problem::TAKEN].contains(&kind) {
            let mut codes = ObjectWriter::open(object.name("codes"));
            for code in FaultCode::ALL {
                codes.text(code.as_str(), code.meaning());
            }
            codes.close();
        }
        object.close();
    });
    out.push(b'}');
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
pub fn home(model: &Model, is_known: impl Fn(ResourceIndex) -> bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let mut object = ObjectWriter::open(&mut out);
    object.text("title", &model.title);
    let out_list = object.name("resources");
    out_list.push(b'[');
    let known = model.declared().filter(|resource| is_known(resource.index));
    for (number, resource) in known.enumerate() {
        if number > 0 {
            out_list.push(b',');
        }
        let mut entry = ObjectWriter::open(out_list);
        entry.text("name", &resource.name);
        entry.text("plural", &resource.plural);
        entry.text("path", &path_template(model, resource));
        entry.close();
    }
    out_list.push(b']');
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
