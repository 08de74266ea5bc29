//! List queries: filters, sort order, pagination and field selection.
//!
//! The names in a query are checked against the model here; stored data is not needed. The id, which breaks
//! ties, has the direction of the last sort key, so that the reverse order is exactly the same list
//! backwards, and one index serves both.

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::attribute::{Attribute, SortKey, UnusableName, VisibleResource, no_such_message};
use super::cursor::{self, CursorPosition, ListHash};
use super::filter::Filter;
use super::filter_tree::{self, FilterReader, FilterScope, FilterUse};
use super::preconditions::Preconditions;
use super::query::{QueryParameter, bad_query};
use super::relations::{ReadableResources, Relation, hidden_fields};
use super::target::ResourcePath;
use crate::fault::{self, OrBug};
use crate::formats::ItemMember;
use crate::json;
use crate::model::derivation::DERIVED_VERSION;
use crate::model::settings::ServerLimits;
use crate::model::{Model, Resource};
use crate::problem::{self, Problem};
use crate::value::{Id, IdKind, Item, truncate_for_message};

const EMPTY_NAME_MESSAGE: &str = "expected names with commas between them, got an empty one";

/// The characters to percent-encode: all but the unreserved ones, `:` and `@`, which have no special meaning
/// in a query or in a `Link` header.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'@');

/// A page of a collection, as a query selects it.
#[derive(Debug, Clone, PartialEq)]
pub struct ListQuery {
    pub limit: usize,
    /// Whether the client sent a limit; a streaming response has none otherwise.
    pub has_explicit_limit: bool,
    pub after: Option<CursorPosition>,
    /// Combined by AND.
    pub filters: Vec<Filter>,
    /// Never contains the id, which always comes last as the tie-breaker.
    pub sort: Vec<SortKey>,
    pub is_id_descending: bool,
    /// The members to show of each item; `None`: all.
    pub selected_members: Option<Vec<ItemMember>>,
    pub is_counted: bool,
    /// The related items to show with each item.
    pub expand: Vec<Expansion>,
    /// A hash of path, query and page size, part of the entity tag.
    pub query_hash: u32,
    /// The same query as that of a URL, if it was sent as a body.
    pub url_form: Option<Box<str>>,
    /// The client's preconditions.
    pub preconditions: Preconditions,
    /// The parts of the query that are the same for every page.
    link: PageLink,
}

impl ListQuery {
    /// A page of items sorted by id, from the first one or after another one.
    pub fn by_id(limit: usize, after: Option<Id>) -> Self {
        Self {
            limit,
            has_explicit_limit: true,
            after: after.map(|id| CursorPosition { id, values: Vec::new() }),
            filters: Vec::new(),
            sort: Vec::new(),
            is_id_descending: false,
            selected_members: None,
            is_counted: false,
            expand: Vec::new(),
            query_hash: 0,
            url_form: None,
            preconditions: Preconditions::default(),
            link: PageLink::default(),
        }
    }

    /// The first page of a list without a query.
    pub(super) fn first_page(limits: &ServerLimits) -> Self {
        Self { has_explicit_limit: false, ..Self::by_id(limits.page_items_default, None) }
    }

    /// Whether it is the whole collection, sorted by id.
    pub fn is_whole_by_id(&self) -> bool {
        self.filters.is_empty() && self.sort.is_empty() && !self.is_id_descending
    }

    /// Whether other items decide which ones the list has.
    pub fn filters_by_related(&self) -> bool {
        self.filters.iter().any(Filter::reads_related)
    }

    /// Whether a sort key is inside an object, which is stored as text.
    pub fn sorts_inside_objects(&self) -> bool {
        let is_inside = |key: &SortKey| matches!(&key.attribute, Attribute::Field(_, inner) if !inner.is_empty());
        self.sort.iter().any(is_inside)
    }

    /// The position directly after an item.
    pub fn position_after(&self, resource: &Resource, item: &Item) -> CursorPosition {
        let values = self.sort.iter().map(|key| key.attribute.sort_value(resource, item)).collect();
        CursorPosition { id: item.id, values }
    }

    /// The cursor of the page after an item, and the URL of that page. `path` is that of the collection.
    pub fn next_page(&self, path: &str, resource: &Resource, last: &Item) -> (String, String) {
        let cursor =
            cursor::encode(&self.position_after(resource, last), self.list_hash(path, resource));
        let address = self.link.page_url(path, self.limit, &cursor);
        (cursor, address)
    }

    /// Adds related items to each item. `value` is that of the parameter.
    pub(super) fn expand(&mut self, expand: Vec<Expansion>, value: &str) {
        self.expand = expand;
        self.link_expand(value);
    }

    /// Adds related items to the address of the next page.
    pub(super) fn link_expand(&mut self, value: &str) {
        self.link.add("expand", value);
    }

    /// The parameters that select members and related items, as part of a query.
    pub fn shown_parameters(&self) -> &str {
        self.link.query.trim_end_matches('&')
    }

    /// Equal for lists with the same filters and the same selected members.
    pub fn selection_key(&self) -> (Option<String>, Option<&[ItemMember]>) {
        (self.link.canonical_query(), self.selected_members.as_deref())
    }

    /// The hash that binds a cursor to this list.
    pub fn list_hash(&self, path: &str, resource: &Resource) -> ListHash {
        let mut query = self.link.canonical_query();
        // A position among sort keys is none among texts, or among the keys of another version.
        if self.sort.iter().any(|key| key.attribute.has_sort_key(resource)) {
            query.get_or_insert_default().push_str(&format!("#{DERIVED_VERSION}"));
        }
        cursor::hash_list(path, query)
    }
}

/// The names that the parameters of a list may use.
#[derive(Clone, Copy)]
pub(super) struct ListRules<'a> {
    pub readable: &'a dyn ReadableResources,
    /// The parameters that are no filters.
    pub controls: &'static [&'static str],
    pub used_for: FilterUse,
}

/// Reads the parameters of a list query, apart from `expand`.
pub(super) fn read_parameters(
    model: &Model,
    address: &ResourcePath,
    ListRules { readable, controls, used_for }: ListRules<'_>,
    parameters: Vec<QueryParameter<'_>>,
) -> Result<ListQuery, Problem> {
    let (resource, form) = (model.resource(address.resource), address.form);
    let hidden = hidden_fields(readable, address.resource);
    let known = VisibleResource { resource, hidden, form };
    let limits = &model.server.limits;
    let mut list = ListQuery::first_page(limits);
    let mut cursor = None;
    let mut seen = Vec::new();
    let scope = FilterScope { model, readable, used_for };
    let mut filters = FilterReader::new(known, scope, controls);
    for (name, value) in parameters {
        let Some(control) = controls.iter().find(|control| **control == name) else {
            let filter = filters.read_parameter(&name, &value).map_err(bad_query)?;
            list.add_filter(filter, (model, resource), (&name, &value));
            continue;
        };
        if seen.contains(&control) {
            return Err(bad_query(format!("{control}: given twice")));
        }
        seen.push(control);
        match *control {
            "limit" => {
                list.limit = read_limit(&value, limits.page_items_max)?;
                list.has_explicit_limit = true;
            }
            "cursor" => cursor = Some(value),
            "sort" => list.read_sort(known, &value, limits.sort_keys_max).map_err(bad_query)?,
            "fields" => list.read_fields(known, &value).map_err(bad_query)?,
            "count" => list.read_count(&value).map_err(bad_query)?,
            _ => fault::bug("all control parameters are listed here"),
        }
    }
    list.open_cursor(model, address, cursor.as_deref())?;
    Ok(list)
}

/// The members of a single item that the parameter `fields` selects.
pub(super) fn read_selection(
    model: &Model,
    address: &ResourcePath,
    (fields, hidden): (&str, &[usize]),
) -> Result<ListQuery, Problem> {
    let (resource, form) = (model.resource(address.resource), address.form);
    let known = VisibleResource { resource, hidden, form };
    let mut list = ListQuery::by_id(1, None);
    list.read_fields(known, fields).map_err(bad_query)?;
    list.query_hash =
        hash_selection(list.selected_members.as_deref().or_bug("`read_fields` sets it"));
    Ok(list)
}

/// A hash of a selection of members, independent of their order; never zero.
fn hash_selection(chosen: &[ItemMember]) -> u32 {
    let number = |member: &ItemMember| match member {
        ItemMember::Parent => 1,
        ItemMember::CreatedAt => 2,
        ItemMember::UpdatedAt => 3,
        ItemMember::Version => 4,
        ItemMember::Field(at) => 5 + *at as u64,
    };
    // The finalizer of SplitMix64, so that the sums of two selections are not equal by design.
    let spread = |number: u64| {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let sum = chosen.iter().map(number).map(spread).fold(0x5eed_u64, u64::wrapping_add);
    let [a, b, c, d, ..] = sum.to_be_bytes();
    u32::from_be_bytes([a, b, c, d]).max(1)
}

/// A relation that a response follows.
#[derive(Debug, Clone, PartialEq)]
pub struct Expansion {
    pub relation: Relation,
    /// The filters, the order, the limit and the members of children; of other relations, all members.
    pub list: ListQuery,
    pub inner: Vec<Expansion>,
}

/// A hash of the query for the entity tag. Another spelling of the same query is another hash, which costs
/// the client one full response. The default page size depends on the settings, so the limit is hashed too.
/// FNV-1a, since it is the same at every server and only the client that got a tag compares it.
pub(super) fn hash_query(
    model: &Model,
    address: &ResourcePath,
    query: Option<&str>,
    limit: usize,
) -> u32 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut mix = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    mix(model.resource(address.resource).label.as_bytes());
    for id in address.ids.iter().flat_map(|ids| ids.ancestors.iter().chain(&ids.item)) {
        match id {
            Id::Uuid(uuid) => mix(uuid.as_bytes()),
            Id::Integer(number) => mix(&number.to_be_bytes()),
        }
    }
    mix(&limit.to_be_bytes());
    mix(query.unwrap_or("").as_bytes());
    let [a, b, c, d, e, f, g, h] = hash.to_be_bytes();
    u32::from_be_bytes([a, b, c, d]) ^ u32::from_be_bytes([e, f, g, h])
}

impl ListQuery {
    /// Once the list that the cursor must belong to is known.
    pub(super) fn open_cursor(
        &mut self,
        model: &Model,
        address: &ResourcePath,
        cursor: Option<&str>,
    ) -> Result<(), Problem> {
        let Some(cursor) = cursor else { return Ok(()) };
        let resource = model.resource(address.resource);
        let opened = address.collection_path(model).and_then(|path| {
            cursor::decode(cursor, self.list_hash(&path, resource), resource, &self.sort)
        });
        self.after = Some(opened.ok_or_else(|| Problem::new(&problem::BAD_CURSOR))?);
        Ok(())
    }

    /// Sets the form that the query has in a URL, for a list that was sent as a body with this cursor.
    pub(super) fn set_url_form(
        &mut self,
        model: &Model,
        address: &ResourcePath,
        cursor: Option<&str>,
    ) {
        let mut query = self.link.query.clone();
        if self.has_explicit_limit {
            let _ = write!(query, "limit={}&", self.limit);
        }
        if let Some(cursor) = cursor {
            let _ = write!(query, "cursor={cursor}&");
        }
        query.pop();
        self.query_hash = hash_query(model, address, Some(&query), self.limit);
        self.url_form = Some(query.into());
    }

    /// Adds a filter that is this parameter in a URL.
    pub(super) fn add_filter(
        &mut self,
        filter: Filter,
        (model, resource): (&Model, &Resource),
        (name, value): (&str, &str),
    ) {
        let (meant_name, meant_value) = filter_tree::as_parameter(&filter, (model, resource));
        self.link.add_filter((name, value), encode_pair(&meant_name, &meant_value));
        self.filters.push(filter);
    }

    pub(super) fn read_sort(
        &mut self,
        known: VisibleResource<'_>,
        value: &str,
        keys_max: usize,
    ) -> Result<(), String> {
        let mut keys: Vec<SortKey> = Vec::new();
        for text in value.split(',') {
            let (name, is_descending) = match text.strip_prefix('-') {
                Some(name) => (name, true),
                None => (text, false),
            };
            if name.is_empty() {
                return Err(format!("sort: {EMPTY_NAME_MESSAGE}"));
            }
            let aspect = known.find(name).map_err(|unusable| match unusable {
                UnusableName::Declared(why) => {
                    format!("sort: {}: {why}", truncate_for_message(name))
                }
                UnusableName::Unknown => {
                    format!("sort: {}", known.unknown_name_message(name, "field"))
                }
            })?;
            if keys.iter().any(|key| key.attribute == aspect) {
                return Err(format!("sort: {name}: given twice"));
            }
            if keys.len() == keys_max {
                return Err(format!("sort: expected at most {keys_max} keys, got more"));
            }
            keys.push(SortKey { attribute: aspect, is_descending });
        }
        // The id is unique: keys after it never decide.
        let id = keys.iter().position(|key| key.attribute == Attribute::Id);
        let last = id.and_then(|at| keys.get(at)).or(keys.last());
        self.is_id_descending = last.is_some_and(|key| key.is_descending);
        keys.truncate(id.unwrap_or(keys.len()));
        // A UUIDv7 begins with the creation time, so sorting by id already sorts by `created_at`.
        let is_in_id = |key: &SortKey| {
            key.attribute == Attribute::CreatedAt && key.is_descending == self.is_id_descending
        };
        if known.resource.id == IdKind::Uuid && keys.last().is_some_and(is_in_id) {
            keys.pop();
        }
        self.sort = keys;
        self.link.add_sort(value);
        Ok(())
    }

    pub(super) fn read_fields(
        &mut self,
        known: VisibleResource<'_>,
        value: &str,
    ) -> Result<(), String> {
        let own = [
            ("created_at", ItemMember::CreatedAt),
            ("updated_at", ItemMember::UpdatedAt),
            ("version", ItemMember::Version),
        ];
        let parent = known.resource.parent_key.as_deref().map(|key| (key, ItemMember::Parent));
        let fields = known.fields().map(|(at, field)| (&*field.name, ItemMember::Field(at)));
        let members: Vec<(&str, ItemMember)> =
            parent.into_iter().chain(fields).chain(own).collect();
        let (mut chosen, mut seen) = (Vec::new(), Vec::new());
        for name in value.split(',') {
            if name.is_empty() {
                return Err(format!("fields: {EMPTY_NAME_MESSAGE}"));
            }
            let member = members.iter().find(|(known, _)| *known == name);
            if member.is_none() && name != "id" {
                let names = members.iter().map(|(name, _)| *name).chain(["id"]);
                return Err(format!("fields: {}", no_such_message(name, "field", names)));
            }
            if seen.contains(&name) {
                return Err(format!("fields: {name}: given twice"));
            }
            seen.push(name);
            chosen.extend(member.map(|(_, member)| *member));
        }
        self.selected_members = Some(chosen);
        self.link.add("fields", value);
        Ok(())
    }

    pub(super) fn read_count(&mut self, value: &str) -> Result<(), String> {
        if value != "exact" {
            return Err(format!("count: expected exact, got {}", json::quote_for_message(value)));
        }
        self.is_counted = true;
        self.link.add("count", value);
        Ok(())
    }
}

pub(super) fn read_limit(text: &str, limit_max: usize) -> Result<usize, Problem> {
    let limit = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    limit.filter(|limit| (1..=limit_max).contains(limit)).ok_or_else(|| {
        bad_query(format!(
            r#"limit: expected a whole number from 1 to {limit_max}, got {}"#,
            json::quote_for_message(text)
        ))
    })
}

/// The parameters of a list query, encoded again: the URL of the next page, and the canonical query that a
/// cursor is bound to. Empty for a list without a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PageLink {
    /// Each parameter ends with `&`.
    query: String,
    /// Filters in canonical spelling.
    filters: Vec<String>,
    sort: Option<String>,
}

impl PageLink {
    fn add(&mut self, name: &str, value: &str) {
        let _ = write!(self.query, "{}&", encode_pair(name, value));
    }

    /// `meant` is the filter in canonical spelling.
    fn add_filter(&mut self, (parameter, value): (&str, &str), meant: String) {
        self.add(parameter, value);
        self.filters.push(meant);
    }

    fn add_sort(&mut self, value: &str) {
        self.add("sort", value);
        self.sort = Some(encode_pair("sort", value));
    }

    fn page_url(&self, path: &str, limit: usize, cursor: &str) -> String {
        // A cursor is base64url: nothing in it needs escaping.
        format!("{path}?{}limit={limit}&cursor={cursor}", self.query)
    }

    /// The filters and the order as one canonical text, regardless of the order of the filters; `None` for
    /// the whole list by id.
    fn canonical_query(&self) -> Option<String> {
        if self.filters.is_empty() && self.sort.is_none() {
            return None;
        }
        let mut all: Vec<&str> = self.filters.iter().map(String::as_str).collect();
        all.sort_unstable();
        all.extend(self.sort.as_deref());
        Some(all.join("&"))
    }
}

/// A parameter as part of a query.
pub fn encode_pair(name: &str, value: &str) -> String {
    format!("{}={}", utf8_percent_encode(name, ESCAPED), utf8_percent_encode(value, ESCAPED))
}

#[cfg(test)]
mod tests;
