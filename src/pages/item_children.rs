//! The child collections of an item: tables of their newest items, and the dialog that says which children a delete
//! removes.

use super::columns;
use super::related::{CHILDREN_SHOWN, PageSource, child_collections, child_list_address};
use super::source::{elements, heading, member};
use super::table::{Table, TableSource};
use crate::intent::{PathForm, ResourcePath, format_path};
use crate::model::{GrantVerb, OnDelete};

/// The newest items of a collection below the item.
pub struct ChildList<'a> {
    pub path: String,
    pub plural: &'a str,
    pub title: String,
    pub noun: String,
    /// Whether the page of the collection has a form for a new item.
    pub may_create: bool,
    pub is_readable: bool,
    pub is_empty: bool,
    pub has_more: bool,
    pub table: Option<Table<'a>>,
}

pub fn child_lists<'a>(
    page: &PageSource<'a>,
    path: &ResourcePath,
    label: &str,
) -> Vec<ChildList<'a>> {
    let mut lists = Vec::new();
    for (child, path) in child_collections(page.viewer, path) {
        let is_readable = page.viewer.can_read(child.index);
        let reply = page.related.reply(&child_list_address(page.viewer, child, &path));
        let reply = reply.filter(|_| is_readable);
        let items = elements(reply.and_then(|reply| member(reply, &child.plural)));
        let title = heading(&child.plural);
        let table = (!items.is_empty()).then(|| {
            let columns = columns::choose(page.viewer, (child, PathForm::Nested), None);
            let source = TableSource {
                resource: child,
                form: PathForm::Nested,
                path: &path,
                items,
                columns: &columns,
                sort: None,
            };
            Table::new(page, source, format!("{title} of {label}, newest first"))
        });
        let may_post = page.viewer.access(child.index, GrantVerb::Post).is_some();
        lists.push(ChildList {
            plural: &child.plural,
            noun: child.name.replace('_', " "),
            may_create: may_post && is_readable && !child.is_server_made,
            is_readable,
            is_empty: items.is_empty() && reply.is_some(),
            has_more: items.len() >= CHILDREN_SHOWN,
            table,
            title,
            path,
        });
    }
    lists
}

/// The dialog that confirms a delete and names the items that are deleted too.
pub struct Removal {
    /// The address of the collection. The script opens it after the delete.
    pub collection: String,
    pub children: Vec<RemovedChildren>,
}

pub struct RemovedChildren {
    /// A number and a noun.
    pub number: String,
    pub is_one: bool,
    /// Whether they prevent the delete.
    pub is_kept: bool,
}

impl Removal {
    /// `None` if the caller may not delete.
    pub fn new(page: &PageSource<'_>, path: &ResourcePath) -> Option<Self> {
        page.viewer.access(path.resource, GrantVerb::Delete)?;
        let mut children = Vec::new();
        for (child, address) in child_collections(page.viewer, path) {
            let reply = page.related.reply(&child_list_address(page.viewer, child, &address));
            let count = reply.map(|reply| elements(member(reply, &child.plural)).len());
            let number = match count {
                Some(0) => continue,
                Some(1) => format!("1 {}", child.name),
                Some(count) if count < CHILDREN_SHOWN => format!("{count} {}", child.plural),
                _ => child.plural.to_string(),
            };
            let is_kept = matches!(child.on_delete, OnDelete::Restrict);
            children.push(RemovedChildren { number, is_one: count == Some(1), is_kept });
        }
        let ids = path.ids.as_ref().map_or(&[][..], |ids| &ids.ancestors);
        Some(Self {
            collection: format_path(page.context.model, path.resource, ids, None),
            children,
        })
    }
}
