//! The checks of a resource: `check = [{ that = "ends > starts", message = "…" }]`.

use super::toml_tree::{TomlEntry, TomlTable, TomlText};
use super::{expression, keys};
use crate::model::expr::{self, Expr, ExprScope};
use crate::model::resource::ItemCheck;

const CHECKS_MAX: usize = 100;
const MESSAGE_CHARS_MAX: usize = 200;
const EXAMPLE: &str = r#"check = [{ that = "ends > starts", message = "ends before it starts" }]"#;

/// Reads the list of checks.
pub fn read(entry: &TomlEntry<'_>, scope: ExprScope<'_>) -> Vec<ItemCheck> {
    let Some(elements) = entry.elements() else {
        entry.refuse_with_help("`check` expected a list of tables", format!("such as {EXAMPLE}"));
        return Vec::new();
    };
    let mut checks: Vec<ItemCheck> = Vec::new();
    for element in elements {
        let Some(check) = read_check(&element, scope) else { continue };
        if checks.iter().any(|other| other.that.text == check.that.text) {
            element.refuse("this check stands here twice");
        }
        checks.push(check);
    }
    if checks.len() > CHECKS_MAX {
        entry.key.refuse(format!("expected at most {CHECKS_MAX} checks, got {}", checks.len()));
    }
    checks
}

fn read_check(element: &TomlEntry<'_>, scope: ExprScope<'_>) -> Option<ItemCheck> {
    let table = element.table()?;
    table.check(&keys::CHECK);
    for key in ["that", "message"].into_iter().filter(|key| table.find(key).is_none()) {
        element.refuse_with_help(format!("a check has no `{key}`"), format!("such as {EXAMPLE}"));
    }
    let message = table.text("message").map(|text| read_message(&text));
    let that = read_expression(&table, scope)?;
    Some(ItemCheck { that, message: message? })
}

fn read_expression(table: &TomlTable<'_>, scope: ExprScope<'_>) -> Option<Expr> {
    let text = table.text("that")?;
    let that = expression::read(&text, expr::parse_check(text.value, scope))?;
    if that.field_paths().is_empty() {
        let help = "name the fields that it is about";
        text.refuse_with_help("the check is the same for every item: it names no field", help);
        return None;
    }
    Some(that)
}

fn read_message(text: &TomlText<'_>) -> Box<str> {
    let count = text.value.chars().count();
    if text.value.trim().is_empty()
        || count > MESSAGE_CHARS_MAX
        || text.value.chars().any(char::is_control)
    {
        text.refuse(format!(
            "`message` expected 1 to {MESSAGE_CHARS_MAX} characters on one line, got {count}"
        ));
    }
    text.value.into()
}
