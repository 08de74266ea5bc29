//! Items in the change log: parsing the stored text of a change, and writing what a caller may see of it.
//!
//! An entry may be older than the model. A field that the entry does not have has its default, as the column of a
//! new field has. A value that its field cannot have today stays JSON text (`Value::Json`), which is shown as it
//! was, and which no row filter and no list filter that reads the field accepts: they fail closed.

use std::borrow::Cow;

use super::format::{ItemMember, ItemView};
use crate::json::{self, Json, write_list, write_text};
use crate::model::types::{canonicalize, value_from_json};
use crate::model::{Model, Resource};
use crate::value::{Id, IdKind, Item, Moment, Value};

/// Stored text is never deeper: bodies have at most 32 levels, and defaults in a model file 128.
const DEPTH_MAX: usize = 256;

/// The values of a change that a caller may see.
#[derive(Debug, Clone, Copy)]
pub struct LoggedView<'a> {
    /// `None`: the model does not declare the resource any more.
    pub item: Option<ItemView<'a>>,
    /// Whether members that the model does not declare any more are shown; they have no grants.
    pub shows_undeclared: bool,
}

impl LoggedView<'_> {
    /// Whether a stored text is shown as it is. Another program may have stored control characters, which would break
    /// the lines of NDJSON and of events.
    fn is_whole(&self, text: &str) -> bool {
        let is_item_whole = self.item.is_none_or(|view| {
            view.hidden.is_empty()
                && view.selected_members.is_none()
                && !view.resource.fields.iter().any(|field| field.secret)
        });
        is_item_whole && self.shows_undeclared && !text.bytes().any(|byte| byte < 0x20)
    }

    fn is_shown(&self, name: &str) -> bool {
        let Some(view) = self.item else { return self.shows_undeclared };
        if name == "id" {
            return true;
        }
        match find_member(view.resource, name) {
            Some(member) => view.is_shown(member),
            None => self.shows_undeclared && view.selected_members.is_none(),
        }
    }

    /// Whether the name of a changed field is shown: that of a secret is, unlike its value.
    fn is_name_shown(&self, name: &str) -> bool {
        let secret = self.item.and_then(|view| {
            let (at, field) = view.resource.field(name)?;
            let is_selected =
                view.selected_members.is_none_or(|chosen| chosen.contains(&ItemMember::Field(at)));
            field.secret.then_some(is_selected && !view.hidden.contains(&at))
        });
        secret.unwrap_or_else(|| self.is_shown(name))
    }
}

/// The declared member with this name; `None` for the id and for unknown names.
fn find_member(resource: &Resource, name: &str) -> Option<ItemMember> {
    match name {
        "created_at" => return Some(ItemMember::CreatedAt),
        "updated_at" => return Some(ItemMember::UpdatedAt),
        "version" => return Some(ItemMember::Version),
        _ => {}
    }
    if resource.parent_key.as_deref() == Some(name) {
        return Some(ItemMember::Parent);
    }
    resource.field(name).map(|(at, _)| ItemMember::Field(at))
}

/// Parses the text that `json::item_text` wrote. Secrets, which are not in the text, are null. `None`: not the text
/// of an item.
pub fn parse(model: &Model, resource: &Resource, text: &str) -> Option<Item> {
    let Json::Object(members) = json::parse(text.as_bytes(), DEPTH_MAX).ok()? else { return None };
    let member = |name: &str| {
        members.iter().find(|(known, _)| **known == *name).map_or(&Json::Null, |(_, json)| json)
    };
    let moment = |name: &str| match member(name) {
        Json::Text(text) => Moment::parse(text),
        _ => None,
    };
    let parent = match (&resource.parent_key, resource.parent) {
        (Some(key), Some(parent)) => Some(parse_id(model.resource(parent).id, member(key))?),
        _ => None,
    };
    let values = resource.fields.iter().map(|field| {
        match members.iter().find(|(known, _)| **known == *field.name) {
            _ if field.secret => Value::Null,
            None => field.default.clone().map_or(Value::Null, canonicalize),
            Some((_, json)) => match value_from_json(field, json) {
                Some(value) => canonicalize(value),
                None => Value::Json(json::to_text(json).into()),
            },
        }
    });
    let Json::Number(version) = member("version") else { return None };
    Some(Item {
        id: parse_id(resource.id, member("id"))?,
        parent,
        created_at: moment("created_at")?,
        updated_at: moment("updated_at")?,
        version: json::parse_integer(version)?,
        values: values.collect(),
    })
}

fn parse_id(kind: IdKind, json: &Json<'_>) -> Option<Id> {
    match (kind, json) {
        (IdKind::Uuid, Json::Text(text)) => IdKind::Uuid.parse(text),
        (IdKind::Integer, Json::Number(text)) => IdKind::Integer.parse(text),
        _ => None,
    }
}

/// Writes the visible members of a stored `before` or `after`, in their stored order; numbers keep their text.
pub fn write_visible(out: &mut Vec<u8>, view: LoggedView<'_>, text: &str) {
    if view.is_whole(text) {
        return out.extend_from_slice(text.as_bytes());
    }
    match json::parse(text.as_bytes(), DEPTH_MAX) {
        Ok(Json::Object(mut members)) => {
            members.retain(|(name, _)| view.is_shown(name));
            json::write(out, &Json::Object(members));
        }
        _ => out.extend_from_slice(b"null"),
    }
}

/// Writes the visible names of a stored `changed`.
pub fn write_visible_names(out: &mut Vec<u8>, view: LoggedView<'_>, text: &str) {
    if view.is_whole(text) {
        return out.extend_from_slice(text.as_bytes());
    }
    match json::parse(text.as_bytes(), DEPTH_MAX) {
        Ok(Json::List(names)) => {
            let shown = names.iter().filter_map(|name| match name {
                Json::Text(name) => Some(name),
                _ => None,
            });
            let shown = shown.filter(|name| view.is_name_shown(name));
            write_list(out, shown, |out, name: &Cow<'_, str>| write_text(out, name));
        }
        _ => out.extend_from_slice(b"null"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::formats::json::item_text;
    use crate::model::{self, ResourceIndex};
    use crate::value::Decimal;

    const MODEL: &str = r#"
title = "Shop"
[resources.shelf]
plural = "shelves"
id = "integer"
[resources.shelf.fields]
name = { type = "text" }
[resources.thing]
parent = "shelf"
[resources.thing.fields]
name = { type = "text" }
stock = { type = "integer" }
price = { type = "decimal" }
weight = { type = "number" }
is_new = { type = "boolean" }
day = { type = "date" }
sold_at = { type = "timestamp", nullable = true }
serial = { type = "uuid" }
beside = { type = "ref", to = "thing" }
shelf_before = { type = "ref", to = "shelf" }
tags = { type = "list", of = { type = "text" } }
place = { type = "object", fields = { city = { type = "text" }, rent = { type = "decimal" } } }
extra = { type = "json" }
marks = { type = "list", of = { type = "text" }, default = ["new"], nullable = true }
"#;

    fn thing() -> Item {
        let uuid = "01890a5d-ac96-774b-bcce-b302099a8057";
        let at = Moment::parse("2026-11-17T03:20:01.000123Z").unwrap();
        let values = vec![
            Value::text("a \"quoted\"\n text"),
            Value::Integer(-9_007_199_254_740_991),
            Value::Decimal(Decimal { units: -5, scale: 2 }),
            Value::Number(1e300),
            Value::Boolean(true),
            Value::text("2026-11-17"),
            Value::Null,
            Value::text(uuid),
            Value::text(uuid),
            Value::Integer(3),
            Value::Json(r#"["a","b"]"#.into()),
            Value::Json(r#"{"city":"Ulm","rent":"1.50"}"#.into()),
            Value::Json(r#"{"z":[1.50,null],"a":"é"}"#.into()),
            Value::Json("[]".into()),
        ];
        let id = Id::Uuid(uuid.parse().unwrap());
        let parent = Some(Id::Integer(7));
        Item { id, parent, created_at: at, updated_at: at, version: 3, values }
    }

    fn shop() -> Model {
        model::read("m.toml", MODEL).unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn logged_item_parse_is_the_inverse_of_item_text() {
        let model = shop();
        let resource = model.resource(ResourceIndex(1));
        let mut item = thing();
        assert_eq!(parse(&model, resource, &item_text(resource, &item)), Some(item.clone()));
        item.values.fill(Value::Null);
        assert_eq!(parse(&model, resource, &item_text(resource, &item)), Some(item));
    }

    #[test]
    fn logged_item_parse_of_an_older_model_has_defaults_and_values_as_they_were() {
        let model = shop();
        let resource = model.resource(ResourceIndex(1));
        let text = |members: &str| {
            format!(
                r#"{{"id":"01890a5d-ac96-774b-bcce-b302099a8057","shelf_id":7,{members}"created_at":"2026-11-17T03:20:01Z","updated_at":"2026-11-17T03:20:01Z","version":3}}"#
            )
        };
        let item = parse(&model, resource, &text(r#""gone":1,"price":"1.5","#)).unwrap();
        assert_eq!(item.values[2], Value::Decimal(Decimal { units: 150, scale: 2 }));
        assert_eq!(item.values[13], Value::Json(r#"["new"]"#.into()));
        assert_eq!(item.values.iter().filter(|value| value.is_null()).count(), 12);
        for (name, at, old) in [
            ("stock", 1, r#""7""#),
            ("price", 2, r#""1.505""#),
            ("tags", 10, r#"["a",1]"#),
            ("tags", 10, "{}"),
        ] {
            let item = parse(&model, resource, &text(&format!(r#""{name}":{old},"#))).unwrap();
            assert_eq!(item.values[at], Value::Json(old.into()));
            assert_eq!(item.values.iter().filter(|value| value.is_null()).count(), 12, "{old}");
        }
        for bad in ["", "[]", "null", "{}", r#"{"id":7}"#, &text("").replace("7,", "\"7\",")] {
            assert_eq!(parse(&model, resource, bad), None, "{bad}");
        }
    }

    #[test]
    fn logged_item_write_shows_only_visible_members() {
        let model = shop();
        let resource = model.resource(ResourceIndex(1));
        let text = r#"{"id":"x","shelf_id":7,"name":"a","gone":[1.50],"stock":1.0,"created_at":"t","updated_at":"t","version":3}"#;
        let view = |hidden, selected_members| ItemView {
            hidden,
            selected_members,
            ..ItemView::all_fields(resource)
        };
        let selected = [ItemMember::Field(1), ItemMember::Version];
        let mut shown = String::new();
        for (item, shows_undeclared) in [
            (Some(view(&[], None)), true),
            (Some(view(&[], None)), false),
            (Some(view(&[0], None)), true),
            (Some(view(&[0, 1], None)), false),
            (Some(view(&[0], Some(&selected))), true),
            (None, true),
            (None, false),
        ] {
            let view = LoggedView { item, shows_undeclared };
            let mut out = Vec::new();
            write_visible(&mut out, view, text);
            out.push(b' ');
            write_visible_names(&mut out, view, r#"["name","gone","stock"]"#);
            shown.push_str(&String::from_utf8(out).unwrap());
            shown.push('\n');
        }
        expect![[r#"
            {"id":"x","shelf_id":7,"name":"a","gone":[1.50],"stock":1.0,"created_at":"t","updated_at":"t","version":3} ["name","gone","stock"]
            {"id":"x","shelf_id":7,"name":"a","stock":1.0,"created_at":"t","updated_at":"t","version":3} ["name","stock"]
            {"id":"x","shelf_id":7,"gone":[1.50],"stock":1.0,"created_at":"t","updated_at":"t","version":3} ["gone","stock"]
            {"id":"x","shelf_id":7,"created_at":"t","updated_at":"t","version":3} []
            {"id":"x","stock":1.0,"version":3} ["stock"]
            {"id":"x","shelf_id":7,"name":"a","gone":[1.50],"stock":1.0,"created_at":"t","updated_at":"t","version":3} ["name","gone","stock"]
            {} []
        "#]]
        .assert_eq(&shown);
        let mut out = Vec::new();
        write_visible(&mut out, LoggedView { item: None, shows_undeclared: false }, "{");
        assert_eq!(out, b"null");
    }

    /// A field that is a secret today may be in the text of an entry from before.
    #[test]
    fn logged_item_write_never_shows_a_secret() {
        let model = shop();
        let users = model.resource(model.users);
        let item = Some(ItemView::all_fields(users));
        let mut out = Vec::new();
        let view = LoggedView { item, shows_undeclared: true };
        write_visible(&mut out, view, r#"{"id":"x","name":"ann","password":"hash"}"#);
        write_visible_names(&mut out, view, r#"["name","password"]"#);
        let expected = r#"{"id":"x","name":"ann"}["name","password"]"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        // A hidden secret has no name either.
        let hidden = [model::builtin::PASSWORD];
        let item = Some(ItemView { hidden: &hidden, ..ItemView::all_fields(users) });
        let mut out = Vec::new();
        let view = LoggedView { item, shows_undeclared: true };
        write_visible_names(&mut out, view, r#"["name","password"]"#);
        assert_eq!(out, br#"["name"]"#);
    }

    /// One line of text stays one line, whoever has written it.
    #[test]
    fn logged_item_write_has_no_control_characters() {
        let view = LoggedView { item: None, shows_undeclared: true };
        let mut out = Vec::new();
        write_visible(&mut out, view, "{\n\t\"a\": 1.50}");
        write_visible_names(&mut out, view, "[\r\"a\"]");
        write_visible(&mut out, view, "{\"a\":\n");
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"a":1.50}["a"]null"#);
    }
}
