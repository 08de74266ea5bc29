//! The `deprecated` key of resources and fields.

use super::keys;
use super::toml_tree::{TomlEntry, TomlTable, TomlText};
use crate::model::Deprecated;
use crate::model::report::Mistakes;
use crate::model::types::is_date;
use toml::de::DeValue;

/// `siblings` are the other fields of the resource, or the other resources.
pub fn read_deprecated(
    table: &TomlTable<'_>,
    what: &str,
    name: &str,
    siblings: &[&str],
    mistakes: &mut Mistakes,
) -> Option<Deprecated> {
    let entry = table.find("deprecated")?;
    let table = entry.table(mistakes)?;
    table.refuse_unknown_keys(&keys::names(keys::DEPRECATED), "`deprecated`", mistakes);
    if table.find("since").is_none() {
        mistakes.add_with_help(
            entry.key_span.clone(),
            "`deprecated` needs `since`",
            "say from which day: since = \"2026-11-01\"",
        );
    }
    let since = table.find("since").and_then(|entry| read_date(entry, mistakes));
    let sunset = table.find("sunset").and_then(|entry| read_date(entry, mistakes));
    if let (Some(since), Some((sunset, entry))) =
        (&since, sunset.as_ref().zip(table.find("sunset")))
        && sunset < since
    {
        mistakes.add(entry.span(), format!("`sunset` is before `since`, which is {since}"));
    }
    let use_instead = table.text("use", mistakes);
    if let Some(text) = &use_instead {
        check_use(text, what, name, siblings, mistakes);
    }
    Some(Deprecated {
        since: since?,
        sunset,
        use_instead: use_instead.map(|text| text.value.into()),
    })
}

fn check_use(
    text: &TomlText<'_>,
    what: &str,
    name: &str,
    siblings: &[&str],
    mistakes: &mut Mistakes,
) {
    if text.value == name {
        mistakes.add(text.span.clone(), format!("`{name}` cannot be used instead of itself"));
    } else if !siblings.contains(&text.value) {
        let message = format!("there is no {what} `{}`", text.value);
        mistakes.add_unknown(
            text.span.clone(),
            message,
            text.value,
            siblings.iter().copied().filter(|sibling| *sibling != name),
        );
    }
}

/// A date, as a text or as a TOML date.
fn read_date(entry: &TomlEntry<'_>, mistakes: &mut Mistakes) -> Option<Box<str>> {
    let text = match entry.node.get_ref() {
        DeValue::Datetime(date) => date.to_string(),
        _ => entry.text(mistakes)?.value.to_owned(),
    };
    if !is_date(&text) {
        mistakes.add(
            entry.span(),
            format!("`{}` expected a day such as \"2026-11-01\", got {text:?}", entry.key),
        );
        return None;
    }
    Some(text.into())
}
