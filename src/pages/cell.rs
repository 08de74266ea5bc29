//! Values of fields by their types: short in a table, whole on the page of an item.

use super::columns::{is_number, short_id};
use super::html::{Html, copy_button};
use super::json_view::{JsonView, cut};
use super::related::PageSource;
use super::source::{member, text_of};
use super::time_element::TimeElement;
use crate::json::{self, Json};
use crate::model::{Field, StateMachine};

/// A table shows no more of a text.
const CELL_CHARS_MAX: usize = 200;
/// The page of an item shows no more of a text; the JSON has the whole.
const FULL_CHARS_MAX: usize = 4_000;
const TAGS_SHOWN: usize = 3;
const ELEMENTS_SHOWN: usize = 50;
const OBJECT_VALUES_SHOWN: usize = 2;

/// A value in a table.
pub fn cell(page: &PageSource<'_>, field: &Field, value: Option<&Json<'_>>) -> Html {
    let Some(value) = value.filter(|value| **value != Json::Null) else {
        return Html::of("<span class=\"none\" title=\"no value\">–</span>", &[]);
    };
    match (field.kind.name, value) {
        ("state", Json::Text(state)) => badge(field.rules.states.as_ref(), state),
        ("ref", _) => {
            page.related.reference(page.viewer, field, text_of(Some(value)).unwrap_or(""))
        }
        ("uuid", Json::Text(id)) => {
            Html::of("<code title=\"{}\">{}</code>", &[&&**id, &short_id(id)])
        }
        ("timestamp", Json::Text(text)) => time(text),
        ("date", Json::Text(text)) => date(text),
        ("list", Json::List(list)) => list_cell(list),
        ("object", Json::Object(members)) => {
            let shown = members.iter().filter_map(|(_, value)| plain_text(value));
            let shown: Vec<String> = shown.take(OBJECT_VALUES_SHOWN).collect();
            Html::of("{}", &[&cut(&shown.join(", "), CELL_CHARS_MAX)])
        }
        (_, Json::Text(text)) if text.is_empty() => {
            Html::of("<span class=\"none\">\"\"</span>", &[])
        }
        (_, value) => {
            let text = plain_text(value).unwrap_or_else(|| json::to_text(value));
            Html::of("{}", &[&cut(&text, CELL_CHARS_MAX)])
        }
    }
}

/// A value on the page of an item.
pub fn full(page: &PageSource<'_>, field: &Field, value: Option<&Json<'_>>) -> Html {
    let Some(value) = value.filter(|value| **value != Json::Null) else {
        return Html::of("<span class=\"muted\">no value</span>", &[]);
    };
    match (field.kind.name, value) {
        ("email", Json::Text(text)) => {
            Html::of("<a href=\"mailto:{}\">{}</a>", &[&&**text, &&**text])
        }
        // Only these are links: a `javascript:` address would run.
        ("url", Json::Text(text))
            if ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme)) =>
        {
            Html::of("<a href=\"{}\" rel=\"noreferrer\">{}</a>", &[&&**text, &&**text])
        }
        ("uuid", Json::Text(id)) => {
            let copy = copy_button("the value");
            Html::of("<span class=\"copy\"><code>{}</code>{}</span>", &[&&**id, &copy])
        }
        ("ref", _) => {
            let id = text_of(Some(value)).unwrap_or("");
            let link = page.related.reference(page.viewer, field, id);
            Html::of("{} <code class=\"muted\">{}</code>", &[&link, &short_id(id)])
        }
        ("list", Json::List(list)) => full_list(field, list),
        ("object", value) => object(value),
        ("json", value) => {
            Html::of("<pre class=\"json\">{}</pre>", &[&Html::from_template(&JsonView::of(value))])
        }
        ("text" | "user_name", Json::Text(text)) if !text.is_empty() => {
            let html = Html::of("<p class=\"long\">{}</p>", &[&cut(text, FULL_CHARS_MAX)]);
            match text.chars().nth(FULL_CHARS_MAX) {
                None => html,
                Some(_) => Html::of("{}<p class=\"hint\">The rest is in the JSON.</p>", &[&html]),
            }
        }
        _ => cell(page, field, Some(value)),
    }
}

/// A state. Its colour and shape come from the graph: whether it is the first, and whether another one follows.
pub fn badge(machine: Option<&StateMachine>, state: &str) -> Html {
    let class = match machine {
        Some(machine) if *machine.initial == *state => "first",
        Some(machine) if machine.successors(state).is_empty() => "last",
        _ => "middle",
    };
    Html::of("<span class=\"badge state {}\">{}</span>", &[&class, &state])
}

fn list_cell(list: &[Json<'_>]) -> Html {
    let mut html = Html::new();
    let has_objects = list.iter().any(|one| matches!(one, Json::Object(_) | Json::List(_)));
    if has_objects {
        let first = list.first().map(|one| match one {
            Json::Object(members) => {
                let values = members.iter().filter_map(|(_, value)| plain_text(value));
                values.take(OBJECT_VALUES_SHOWN).collect::<Vec<_>>().join(" · ")
            }
            other => json::to_text(other),
        });
        let count = match list.len() {
            1 => "1 item".to_owned(),
            count => format!("{count} items"),
        };
        html.add("{}: {}", &[&count, &cut(&first.unwrap_or_default(), CELL_CHARS_MAX)]);
        return html;
    }
    if list.is_empty() {
        return Html::of("<span class=\"none\">[]</span>", &[]);
    }
    for text in list.iter().filter_map(plain_text).take(TAGS_SHOWN) {
        html.add("<span class=\"tag\">{}</span>", &[&cut(&text, 40)]);
    }
    if list.len() > TAGS_SHOWN {
        html.add(" +{}", &[&(list.len() - TAGS_SHOWN)]);
    }
    html
}

fn full_list(field: &Field, list: &[Json<'_>]) -> Html {
    let element = field.rules.element.as_deref();
    let fields = element.map_or(&[][..], |element| &element.rules.fields);
    let mut html = Html::new();
    if list.is_empty() {
        return Html::of("<span class=\"muted\">empty list</span>", &[]);
    }
    if fields.is_empty() {
        for one in list.iter().take(ELEMENTS_SHOWN) {
            let text = plain_text(one).unwrap_or_else(|| json::to_text(one));
            html.add("<span class=\"tag\">{}</span>", &[&cut(&text, CELL_CHARS_MAX)]);
        }
    } else {
        html.add("<table class=\"inner\"><thead><tr>", &[]);
        for field in fields {
            let class = if is_number(field) { "num" } else { "" };
            html.add("<th scope=\"col\" class=\"{}\">{}</th>", &[&class, &field.name]);
        }
        html.add("</tr></thead><tbody>", &[]);
        for one in list.iter().take(ELEMENTS_SHOWN) {
            html.add("<tr>", &[]);
            for field in fields {
                let class = if is_number(field) { "num" } else { "" };
                let text = member(one, &field.name).and_then(plain_text);
                let text = text.unwrap_or_else(|| "–".to_owned());
                html.add("<td class=\"{}\">{}</td>", &[&class, &cut(&text, CELL_CHARS_MAX)]);
            }
            html.add("</tr>", &[]);
        }
        html.add("</tbody></table>", &[]);
    }
    if list.len() > ELEMENTS_SHOWN {
        let rest = list.len() - ELEMENTS_SHOWN;
        html.add("<p class=\"hint\">{} more are in the JSON.</p>", &[&rest]);
    }
    html
}

fn object(value: &Json<'_>) -> Html {
    let Json::Object(members) = value else { return Html::from_template(&JsonView::of(value)) };
    let mut html = Html::of("<dl>", &[]);
    for (name, value) in members {
        let text = plain_text(value).unwrap_or_else(|| json::to_text(value));
        html.add("<dt>{}</dt><dd>{}</dd>", &[&&**name, &cut(&text, FULL_CHARS_MAX)]);
    }
    html.add("</dl>", &[]);
    html
}

/// A value in words; none for null. Lists and objects are their JSON.
pub fn plain_text(value: &Json<'_>) -> Option<String> {
    match value {
        Json::Null => None,
        Json::Boolean(true) => Some("yes".to_owned()),
        Json::Boolean(false) => Some("no".to_owned()),
        Json::Number(text) => Some((*text).to_owned()),
        Json::Text(text) => Some(text.to_string()),
        Json::List(_) | Json::Object(_) => Some(json::to_text(value)),
    }
}

fn date(text: &str) -> Html {
    Html::from_template(&TimeElement::date(text))
}

pub fn time(text: &str) -> Html {
    Html::from_template(&TimeElement::time(text))
}
