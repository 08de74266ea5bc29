//! CloudEvents 1.0 in JSON (the structured form): a change of an item as an event.
//!
//! The caller decides what the reader of the event may see; this file only writes it. `time` is the time of the
//! change, and `sequence` is padded, because the extension of this name requires a text that sorts.

use super::format::ItemView;
use super::json::write_item;
use crate::json::{ObjectWriter, write_moment, write_text};
use crate::value::{Change, Item};

/// A change as one reader sees it.
#[derive(Debug, Clone, Copy)]
pub struct EventView<'a> {
    /// The URI of the server: the origin and the base path.
    pub source: &'a str,
    /// Precedes the path of the item.
    pub base_path: &'a str,
    /// `created`, `updated`, `deleted` or `left`.
    pub kind: &'a str,
    /// Whether the reader may know who made the change, and with which request.
    pub shows_author: bool,
    pub data: EventData<'a>,
}

/// The data of an event: JSON texts.
#[derive(Debug, Clone, Copy)]
pub enum EventData<'a> {
    /// The id alone, of an item that the reader may no longer see.
    Id,
    Values {
        changed: Option<&'a str>,
        before: Option<&'a str>,
        after: Option<&'a str>,
    },
}

/// Writes the event of a change.
pub fn write_cloud_event(out: &mut Vec<u8>, view: EventView<'_>, change: &Change) {
    let mut object = ObjectWriter::open(out);
    object.text("specversion", "1.0");
    write_number_text(object.name("id"), change.sequence, 1);
    object.text("source", view.source);
    object.text("type", &event_type(&change.resource, view.kind));
    object.text("subject", &[view.base_path, &change.subject].concat());
    write_moment(object.name("time"), change.time);
    object.text("datacontenttype", "application/json");
    write_number_text(object.name("sequence"), change.sequence, 19);
    if view.shows_author {
        object.text("actor", &change.actor);
        // The name of an extension has no underscore.
        object.text("requestid", &change.request_id);
    }
    let mut data = object.object("data");
    match view.data {
        EventData::Id => write_log_id(data.name("id"), &change.id),
        EventData::Values { changed, before, after } => {
            data.json("changed", changed.unwrap_or("null"));
            data.json("before", before.unwrap_or("null"));
            data.json("after", after.unwrap_or("null"));
        }
    }
    data.close();
    object.close();
}

/// The type of an event, by the name of the resource in the change log.
pub fn event_type(resource: &str, kind: &str) -> String {
    ["nouns.", resource.strip_prefix("-/").unwrap_or(resource), ".", kind].concat()
}

/// Writes the event of an item as it is, for a snapshot. Its id names the version, because no change has made it.
pub fn write_item_event(
    out: &mut Vec<u8>,
    (source, subject): (&str, &str),
    view: ItemView<'_>,
    item: &Item,
) {
    let mut object = ObjectWriter::open(out);
    object.text("specversion", "1.0");
    object.text("id", &format!("{subject}@{}", item.version));
    object.text("source", source);
    object.text("type", &["nouns.", &view.resource.name, ".item"].concat());
    object.text("subject", subject);
    write_moment(object.name("time"), item.updated_at);
    object.text("datacontenttype", "application/json");
    let mut data = object.object("data");
    write_item(data.name("after"), view, item);
    data.close();
    object.close();
}

/// The id of a change log entry as JSON: an integer id is the only id that consists of digits alone.
pub fn write_log_id(out: &mut Vec<u8>, id: &str) {
    match id.bytes().all(|byte| byte.is_ascii_digit()) {
        true => out.extend_from_slice(id.as_bytes()),
        false => write_text(out, id),
    }
}

fn write_number_text(out: &mut Vec<u8>, number: i64, digits_min: usize) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(number);
    out.push(b'"');
    out.extend(std::iter::repeat_n(b'0', digits_min.saturating_sub(digits.len())));
    out.extend_from_slice(digits.as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::value::Moment;

    fn check(shows_author: bool, kind: &str, data: EventData<'_>, expected: &Expect) {
        let change = Change {
            sequence: 4_712,
            time: Moment::from_micros(1_795_000_000_000_123).unwrap(),
            resource: "order".to_owned(),
            id: "7".to_owned(),
            subject: "/customers/3/orders/7".to_owned(),
            kind: "updated".to_owned(),
            actor: "ann".to_owned(),
            request_id: "r1".to_owned(),
            changed: None,
            before: None,
            after: None,
        };
        let view = EventView { source: "/v1", base_path: "/v1", kind, shows_author, data };
        let mut out = Vec::new();
        write_cloud_event(&mut out, view, &change);
        expected.assert_eq(str::from_utf8(&out).unwrap());
    }

    #[test]
    fn cloud_event_has_the_required_attributes_and_a_sequence_that_sorts() {
        let data = EventData::Values {
            changed: Some(r#"["status"]"#),
            before: None,
            after: Some(r#"{"id":7}"#),
        };
        check(
            false,
            "updated",
            data,
            &expect![[
                r#"{"specversion":"1.0","id":"4712","source":"/v1","type":"nouns.order.updated","subject":"/v1/customers/3/orders/7","time":"2026-11-18T11:06:40.000123Z","datacontenttype":"application/json","sequence":"0000000000000004712","data":{"changed":["status"],"before":null,"after":{"id":7}}}"#
            ]],
        );
    }

    #[test]
    fn cloud_event_of_an_item_that_left_has_its_id_alone() {
        check(
            true,
            "left",
            EventData::Id,
            &expect![[
                r#"{"specversion":"1.0","id":"4712","source":"/v1","type":"nouns.order.left","subject":"/v1/customers/3/orders/7","time":"2026-11-18T11:06:40.000123Z","datacontenttype":"application/json","sequence":"0000000000000004712","actor":"ann","requestid":"r1","data":{"id":7}}"#
            ]],
        );
    }
}
