//! The `renamed_from` key of resources and fields.

use super::toml_tree::TomlTable;

/// `siblings` are the names of all fields of the resource or the object, or of all resources; `earlier` are the
/// former names that stand before this one.
pub fn read<'a>(
    table: &TomlTable<'_>,
    siblings: &[&str],
    mut earlier: impl Iterator<Item = &'a str>,
) -> Option<Box<str>> {
    let former = table.text("renamed_from")?;
    let name = former.value;
    if siblings.contains(&name) {
        let help = "a former name is not in the model any more: take this out, or the declaration of that name";
        former.refuse_with_help(format!("`{name}` is declared too, so it was not renamed"), help);
    } else if earlier.any(|other| other == name) {
        former.refuse(format!("`renamed_from = \"{name}\"` stands here twice"));
    }
    Some(name.into())
}
