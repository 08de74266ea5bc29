//! Names in the change log: entries of before a migration get the names of the new model, so that the history of an
//! item goes on. Values stay as they were.

use crate::json::{self, Json};
use crate::model::Resource;
use crate::store::driver::{Driver, Then};
use crate::store::error::StatementError;
use crate::store::migration::pair::ChangedResource;
use crate::store::migration::scan::BATCH_ROWS;
use crate::store::sql::migration;
use crate::store::statement::{Bind, Columns, Statement};

/// Deeper than any stored value.
const DEPTH_MAX: usize = 256;

pub async fn rename<D: Driver>(
    driver: &mut D,
    changed: &[ChangedResource<'_>],
) -> Result<(), StatementError> {
    let pairs = || changed.iter().filter_map(|one| Some((one.before, one.after?)));
    for (before, after) in pairs() {
        let members = renamed_members(before, after);
        if !members.is_empty() {
            rename_members(driver, &before.label, &members).await?;
        }
    }
    // No two resources have the same name, but one may take the name of another: all leave their names first.
    let segment = |plural: &str| format!("/{plural}/");
    let temporary = |name: &str| migration::temporary_table(name);
    let plurals = || pairs().filter(|(before, after)| before.plural != after.plural);
    for (before, _) in plurals() {
        let names = (segment(&before.plural), segment(&temporary(&before.plural)));
        replace(driver, &migration::rename_in_subjects(D::DIALECT), (&names.0, &names.1)).await?;
    }
    for (before, after) in plurals() {
        let names = (segment(&temporary(&before.plural)), segment(&after.plural));
        replace(driver, &migration::rename_in_subjects(D::DIALECT), (&names.0, &names.1)).await?;
    }
    let labels = || pairs().filter(|(before, after)| before.label != after.label);
    for (before, _) in labels() {
        let to = temporary(&before.label);
        replace(driver, &migration::rename_in_log(D::DIALECT), (&to, &before.label)).await?;
    }
    for (before, after) in labels() {
        let from = temporary(&before.label);
        replace(driver, &migration::rename_in_log(D::DIALECT), (&after.label, &from)).await?;
    }
    Ok(())
}

async fn replace<D: Driver>(
    driver: &mut D,
    sql: &str,
    (first, second): (&str, &str),
) -> Result<(), StatementError> {
    driver.execute(sql, &[Bind::Text(first), Bind::Text(second)]).await.map(drop)
}

/// The members with another name: fields, and the id of the parent.
fn renamed_members<'r>(before: &'r Resource, after: &'r Resource) -> Vec<(&'r str, &'r str)> {
    let fields = after.fields.iter().filter_map(|field| {
        let (_, former) = field.find_former(&before.fields)?;
        Some((&*former.name, &*field.name))
    });
    let parent = before.parent_key.as_deref().zip(after.parent_key.as_deref());
    fields.chain(parent).filter(|(from, to)| from != to).collect()
}

async fn rename_members<D: Driver>(
    driver: &mut D,
    label: &str,
    names: &[(&str, &str)],
) -> Result<(), StatementError> {
    let (select, update) = (
        migration::select_log_batch(BATCH_ROWS, D::DIALECT),
        migration::update_log_entry(D::DIALECT),
    );
    let read = |row: &dyn Columns| {
        let texts = [row.optional_text(1)?, row.optional_text(2)?, row.optional_text(3)?];
        Ok((row.required_integer(0)?, texts))
    };
    let mut last = 0;
    loop {
        let binds = [Bind::Text(label), Bind::Integer(last)];
        let mut entries = driver.query(&select, &binds, read).await?;
        let Some((end, _)) = entries.last() else { return Ok(()) };
        last = *end;
        for (_, texts) in &mut entries {
            for text in texts.iter_mut().flatten() {
                *text = with_new_names(text, names);
            }
        }
        let mut statements = Vec::with_capacity(entries.len());
        for (sequence, texts) in &entries {
            let [changed, before, after] =
                texts.each_ref().map(|text| Bind::optional_text(text.as_deref()));
            let binds = vec![Bind::Integer(*sequence), changed, before, after];
            statements.push(Statement::new(&*update, binds));
        }
        driver.execute_all(&statements, Then::Continue).await?;
    }
}

/// The members of an object, or the elements of a list, with their new names. A damaged text stays as it is.
fn with_new_names(text: &str, names: &[(&str, &str)]) -> String {
    let new_name = |name: &str| names.iter().find(|(from, _)| *from == name).map(|(_, to)| *to);
    match json::parse(text.as_bytes(), DEPTH_MAX) {
        Ok(Json::Object(members)) => {
            // A member that was removed from the model earlier, and whose name another one has now.
            let is_replaced =
                |name: &str| new_name(name).is_none() && names.iter().any(|(_, to)| *to == name);
            let members = members.into_iter().filter(|(name, _)| !is_replaced(name));
            let members = members.map(|(name, json)| match new_name(&name) {
                Some(to) => (to.to_owned().into(), json),
                None => (name, json),
            });
            json::to_text(&Json::Object(members.collect()))
        }
        Ok(Json::List(elements)) => {
            let elements = elements.into_iter().map(|element| match &element {
                Json::Text(name) => {
                    new_name(name).map_or(element.clone(), |to| Json::Text(to.to_owned().into()))
                }
                _ => element,
            });
            json::to_text(&Json::List(elements.collect()))
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_names_of_members_and_lists_change_and_values_stay() {
        let names = [("name", "title"), ("a", "b")];
        let cases = [
            (
                r#"{"id":1,"name":"name","x":{"name":1.50}}"#,
                r#"{"id":1,"title":"name","x":{"name":1.50}}"#,
            ),
            (r#"["a","c"]"#, r#"["b","c"]"#),
            ("not json", "not json"),
        ];
        for (before, after) in cases {
            assert_eq!(with_new_names(before, &names), after);
        }
    }
}
