//! CSV output (RFC 4180) of a collection, for spreadsheets and bulk tools.
//!
//! Only for collections; a single item is JSON. The header line has the names of the members, in the same
//! order as in JSON; values of type list, object and json are their JSON text. A missing value is an empty
//! cell, and an empty text is `""`, so that a parser can tell them apart. Values are written
//! unchanged, even those that a spreadsheet would evaluate as a formula, so that an import restores them.

use http::HeaderValue;

use super::accept::MediaType;
use super::change::{ChangeValue, ChangeView, ChangesView};
use super::format::{Format, ItemMember, ItemView, StreamWriter, write_stream};
use crate::fault::bug;
use crate::json::{write_integer, write_value};
use crate::value::{Id, Item, Moment, Value};

pub static FORMAT: Format = Format {
    media: MediaType { essence: "text/csv", parameters: &[("header", "present")] },
    content_type: HeaderValue::from_static("text/csv; charset=utf-8; header=present"),
    item: |out, view, item| write_stream(&LINES, out, view, std::slice::from_ref(item)),
    items: |out, view, items| write_stream(&LINES, out, view, items),
    page: |out, view, page, _| write_stream(&LINES, out, view, &page.items),
    stream_writer: Some(&LINES),
};

static LINES: StreamWriter =
    StreamWriter { has_related: false, head: write_head, line: write_line };

/// RFC 4180 §2.1.
const LINE_END: &[u8] = b"\r\n";

/// The header line: the names of the members of `write_line`. They are `[a-z0-9_]` and need no quotes.
fn write_head(out: &mut Vec<u8>, view: ItemView<'_>) {
    let resource = view.resource;
    out.extend_from_slice(b"id");
    let parent = resource.parent_key.as_deref().filter(|_| view.is_shown(ItemMember::Parent));
    let fields = resource.fields.iter().enumerate();
    let fields = fields.filter(|(at, _)| view.is_shown(ItemMember::Field(*at)));
    let own = [
        (ItemMember::CreatedAt, "created_at"),
        (ItemMember::UpdatedAt, "updated_at"),
        (ItemMember::Version, "version"),
    ];
    let own = own.into_iter().filter(|(member, _)| view.is_shown(*member)).map(|(_, name)| name);
    for name in parent.into_iter().chain(fields.map(|(_, field)| &*field.name)).chain(own) {
        out.push(b',');
        out.extend_from_slice(name.as_bytes());
    }
    out.extend_from_slice(LINE_END);
}

fn write_line(out: &mut Vec<u8>, view: ItemView<'_>, item: &Item) {
    let resource = view.resource;
    write_id(out, item.id);
    if resource.parent_key.is_some() && view.is_shown(ItemMember::Parent) {
        out.push(b',');
        if let Some(id) = item.parent {
            write_id(out, id);
        }
    }
    for (at, value) in item.values.iter().enumerate() {
        if view.is_shown(ItemMember::Field(at)) {
            out.push(b',');
            match value {
                Value::ClearText(secret) if view.shows_secrets => {
                    write_text(out, secret.reveal().as_bytes());
                }
                value => write_cell(out, value),
            }
        }
    }
    for (member, moment) in
        [(ItemMember::CreatedAt, item.created_at), (ItemMember::UpdatedAt, item.updated_at)]
    {
        if view.is_shown(member) {
            out.push(b',');
            out.extend_from_slice(&Moment::canonical_text(moment));
        }
    }
    if view.is_shown(ItemMember::Version) {
        out.push(b',');
        write_integer(out, item.version);
    }
    out.extend_from_slice(LINE_END);
}

/// The change log: `changed`, `before` and `after` are JSON texts.
pub fn write_changes(out: &mut Vec<u8>, page: &ChangesView<'_>) {
    out.extend_from_slice(
        b"sequence,resource,id,subject,kind,time,actor,request_id,changed,before,after",
    );
    out.extend_from_slice(LINE_END);
    for view in &page.changes {
        write_change(out, view);
    }
}

fn write_change(out: &mut Vec<u8>, view: &ChangeView<'_>) {
    let change = view.change;
    write_integer(out, change.sequence);
    let subject = view.subject();
    let time = change.time.to_string();
    for text in [&change.resource, &change.id, &subject, view.kind, &time] {
        out.push(b',');
        write_text(out, text.as_bytes());
    }
    for text in [&change.actor, &change.request_id] {
        out.push(b',');
        write_text(out, text.as_bytes());
    }
    for (_, value) in ChangeValue::ALL {
        let mut json = Vec::new();
        out.push(b',');
        if view.write_value(&mut json, value) {
            write_text(out, &json);
        }
    }
    out.extend_from_slice(LINE_END);
}

fn write_id(out: &mut Vec<u8>, id: Id) {
    id.with_text(|text| out.extend_from_slice(text.as_bytes()));
}

fn write_cell(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => {}
        Value::Text(text) | Value::Json(text) => write_text(out, text.as_bytes()),
        Value::Moment(moment) => out.extend_from_slice(&moment.canonical_text()),
        Value::Decimal(decimal) => out.extend_from_slice(decimal.to_string().as_bytes()),
        Value::Boolean(_) | Value::Integer(_) | Value::Number(_) => write_value(out, value),
        Value::List(_) | Value::Object(_) | Value::ClearText(_) => {
            bug("a value that is not stored")
        }
    }
}

/// RFC 4180 §2.5 to §2.7: quotes only where needed, and a quote inside is doubled.
fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    let needs_quotes =
        text.is_empty() || text.iter().any(|byte| matches!(byte, b'"' | b',' | b'\r' | b'\n'));
    if !needs_quotes {
        return out.extend_from_slice(text);
    }
    out.push(b'"');
    for (number, part) in text.split(|byte| *byte == b'"').enumerate() {
        if number > 0 {
            out.extend_from_slice(b"\"\"");
        }
        out.extend_from_slice(part);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(value: &Value) -> String {
        let mut out = Vec::new();
        write_cell(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn csv_quotes_cells_only_where_needed() {
        let text = |text: &str| field(&Value::text(text));
        for plain in ["Ann", " a b ", "=1+1", "+1", "@x", "a'b", "#", "ä;\t"] {
            assert_eq!(text(plain), plain);
        }
        assert_eq!(text(""), r#""""#);
        assert_eq!(text("a,b"), r#""a,b""#);
        assert_eq!(text("a\rb"), "\"a\rb\"");
        assert_eq!(text("a\nb"), "\"a\nb\"");
        assert_eq!(text(r#"say "no""#), r#""say ""no""""#);
        assert_eq!(field(&Value::Null), "");
        assert_eq!(field(&Value::Json(r#"["a","b"]"#.into())), r#""[""a"",""b""]""#);
        assert_eq!(field(&Value::Json("[1]".into())), "[1]");
        assert_eq!(field(&Value::Json("[1,null]".into())), r#""[1,null]""#);
        assert_eq!(field(&Value::Boolean(true)), "true");
        assert_eq!(field(&Value::Number(0.5)), "0.5");
        assert_eq!(field(&Value::Decimal(crate::value::Decimal { units: -5, scale: 2 })), "-0.05");
    }

    proptest! {
        /// Parsed by the csv crate.
        #[test]
        fn csv_arbitrary_text_round_trips(texts in proptest::collection::vec(any::<String>(), 1..5)) {
            let mut out = b"1".to_vec();
            for text in &texts {
                out.push(b',');
                write_text(&mut out, text.as_bytes());
            }
            out.extend_from_slice(LINE_END);
            let mut reader =
                ::csv::ReaderBuilder::new().has_headers(false).from_reader(out.as_slice());
            let records: Vec<::csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(records.len(), 1);
            let read: Vec<&str> = records[0].iter().skip(1).collect();
            prop_assert_eq!(read, texts);
        }
    }
}
