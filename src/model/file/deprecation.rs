//! The `deprecated` key of resources and fields.

use super::keys;
use super::toml_tree::{TomlEntry, TomlTable};
use crate::model::field::Deprecated;
use crate::model::types::is_date;

/// `siblings` are the names of all fields of the resource, or of all resources.
pub fn read(
    table: &TomlTable<'_>,
    what: &str,
    name: &str,
    siblings: &[&str],
) -> Option<Deprecated> {
    let entry = table.find("deprecated")?;
    let table = table.table("deprecated")?;
    table.check(&keys::DEPRECATED);
    if table.find("since").is_none() {
        let help = "say from which day: since = \"2026-11-01\"";
        entry.key.refuse_with_help("`deprecated` needs `since`", help);
    }
    let since = table.find("since").and_then(read_date);
    let sunset = table.find("sunset").and_then(|entry| Some((entry, read_date(entry)?)));
    if let (Some(since), Some((entry, sunset))) = (&since, &sunset)
        && sunset < since
    {
        entry.refuse(format!("`sunset` is before `since`, which is {since}"));
    }
    let use_instead = table.text("use");
    match &use_instead {
        Some(text) if text.value == name => {
            text.refuse(format!("`{name}` cannot be used instead of itself"));
        }
        Some(text) => {
            let others = siblings.iter().copied().filter(|sibling| *sibling != name);
            text.find(what, others);
        }
        None => {}
    }
    Some(Deprecated {
        since: since?,
        sunset: sunset.map(|(_, day)| day),
        use_instead: use_instead.map(|text| text.value.into()),
    })
}

/// A date, as a text or as a TOML date.
fn read_date(entry: &TomlEntry<'_>) -> Option<Box<str>> {
    let day = match (entry.node.get_ref().as_datetime(), entry.node.get_ref().as_str()) {
        (Some(date), _) => date.to_string(),
        (None, Some(text)) => text.to_owned(),
        (None, None) => {
            entry.refuse_type("a text in quotes");
            return None;
        }
    };
    if !is_date(&day) {
        let key = entry.key.value;
        entry.refuse(format!("`{key}` expected a day such as \"2026-11-01\", got {day:?}"));
        return None;
    }
    Some(day.into())
}
