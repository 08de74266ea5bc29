//! The parameter `expand`: the related items that a response has beside an item, or in place of their ids.
//!
//! `expand=orders,carrier` names relations: the plural of children, the name of the parent, or a field of type `ref` or
//! `refs`.
//! A dot leads to a relation of the related items (`orders.product`), and children may have a list of their own in
//! parentheses: `orders(status=paid;sort=-id;limit=5)`. A relation that the caller cannot read is unknown, like a hidden
//! field, so that a message about it is the same as one about an undeclared name.

use super::attribute::no_such_message;
use super::filter_tree::{CONTROL_PARAMETERS, FilterUse, GROUP_PARAMETERS, plain_controls};
use super::group_text::{split_outside, unescape};
use super::list::{self, Expansion, ListQuery, ListRules, hash_query};
use super::query::{bad_query, split_query};
use super::relations::{ReadableResources, Relation, relations};
use super::target::{PathForm, ResourcePath};
use crate::formats::RelatedMember;
use crate::model::{Model, Resource, ResourceIndex};
use crate::problem::Problem;
use crate::value::truncate_for_message;

/// The largest number of children that a response has of one item.
pub const CHILDREN_MAX: usize = 50;
/// The largest number of paths in a query, and of relations in a path.
pub const PATHS_MAX: usize = 10;
const LEVELS_MAX: usize = 2;
/// The longest value. The addresses of more children repeat parts of it for each item of a page.
const TEXT_BYTES_MAX: usize = 2000;

/// Reads the query of a list.
pub(super) fn read_list(
    model: &Model,
    address: &ResourcePath,
    (query, readable): (Option<&str>, &dyn ReadableResources),
) -> Result<ListQuery, Problem> {
    let resource = model.resource(address.resource);
    let has_relations = query.is_some() && !relations(model, resource, readable).is_empty();
    let (controls, is_expand): (_, &dyn Fn(&str) -> bool) = match has_relations {
        true => (&CONTROL_PARAMETERS[..], &|name| name == "expand"),
        false => (plain_controls(), &|_| false),
    };
    let parameters = split_query(query)?.into_iter();
    let (expand, parameters): (Vec<_>, _) = parameters.partition(|(name, _)| is_expand(name));
    let rules = ListRules { readable, controls, used_for: FilterUse::List };
    let mut list = list::read_parameters(model, address, rules, parameters)?;
    match &*expand {
        [] => {}
        [(_, value)] => list.expand(read(model, address.resource, (value, readable))?, value),
        [_, ..] => return Err(expand_problem("given twice".to_owned())),
    }
    list.query_hash = hash_query(model, address, query, list.limit);
    Ok(list)
}

/// One relation of a path, as it was sent.
struct Segment<'q> {
    text: &'q str,
    name: &'q str,
    /// The text in parentheses.
    options: Option<&'q str>,
}

/// Reads the value of `expand`.
pub(super) fn read(
    model: &Model,
    resource: ResourceIndex,
    (value, readable): (&str, &dyn ReadableResources),
) -> Result<Vec<Expansion>, Problem> {
    if value.len() > TEXT_BYTES_MAX {
        let detail = format!("expected at most {TEXT_BYTES_MAX} bytes, got {}", value.len());
        return Err(expand_problem(detail));
    }
    let resource = model.resource(resource);
    let (mut all, mut second_levels) = (Vec::new(), Vec::new());
    let paths = split_outside(value, ',').map_err(expand_problem)?;
    if paths.len() > PATHS_MAX {
        let detail = format!("expected at most {PATHS_MAX} relations, got {}", paths.len());
        return Err(expand_problem(detail));
    }
    for (at, path) in paths.iter().enumerate() {
        if paths.iter().take(at).any(|before| before == path) {
            return Err(expand_problem(format!("{}: given twice", truncate_for_message(path))));
        }
        let mut levels = Vec::new();
        for text in split_outside(path, '.').map_err(expand_problem)? {
            levels.push(read_segment(text).map_err(expand_problem)?);
        }
        if levels.len() > LEVELS_MAX {
            let detail = format!("expected at most {LEVELS_MAX} levels, got {}", levels.len());
            return Err(expand_problem(detail));
        }
        add_path(&mut all, (model, resource), &levels, readable)?;
        if let [first, second] = &*levels {
            second_levels.push((first.name, second.text));
        }
    }
    // More children are shown with the same related items.
    for one in &mut all {
        let name = one.relation.name(model, resource);
        let inner = second_levels.iter().filter(|(first, _)| *first == name);
        let inner: Vec<&str> = inner.map(|(_, second)| *second).collect();
        if !inner.is_empty() {
            one.list.link_expand(&inner.join(","));
        }
    }
    Ok(all)
}

fn expand_problem(mut detail: String) -> Problem {
    detail.insert_str(0, "expand: ");
    bad_query(detail)
}

/// Adds a path to the tree: `orders,orders.product` follows the orders once.
fn add_path(
    all: &mut Vec<Expansion>,
    (model, resource): (&Model, &Resource),
    levels: &[Segment<'_>],
    readable: &dyn ReadableResources,
) -> Result<(), Problem> {
    let Some((first, rest)) = levels.split_first() else { return Ok(()) };
    let known = relations(model, resource, readable);
    let found = known.iter().find(|one| one.name(model, resource) == first.name);
    let Some(relation) = found.copied() else {
        let names = known.iter().map(|one| one.name(model, resource));
        return Err(expand_problem(no_such_message(first.name, "relation", names)));
    };
    let list = read_options(model, relation, first, readable)?;
    let at = match all.iter().position(|one| one.relation == relation) {
        Some(_) if first.options.is_some() => {
            let name = first.name;
            let detail = format!("{name}: expected the parentheses where it is named first");
            return Err(expand_problem(detail));
        }
        Some(at) => at,
        None => {
            all.push(Expansion { relation, list, inner: Vec::new() });
            all.len() - 1
        }
    };
    match all.get_mut(at) {
        Some(one) => {
            add_path(&mut one.inner, (model, model.resource(relation.target)), rest, readable)
        }
        None => Ok(()),
    }
}

/// The list of a relation's items.
fn read_options(
    model: &Model,
    relation: Relation,
    segment: &Segment<'_>,
    readable: &dyn ReadableResources,
) -> Result<ListQuery, Problem> {
    let name = segment.name;
    let mut parameters = Vec::new();
    let options = segment.options.map_or_else(|| Ok(Vec::new()), |text| split_outside(text, ';'));
    let options = options.map_err(|detail| expand_problem(format!("{name}: {detail}")))?;
    for text in options.into_iter().filter(|text| !text.is_empty()) {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        if matches!(key, "cursor" | "count" | "expand") {
            let detail = format!("{name}: {key}: expected filters, sort, fields or limit");
            return Err(expand_problem(detail));
        }
        // A group has its own escapes.
        let is_group = GROUP_PARAMETERS.contains(&key);
        let value = if is_group { value.to_owned() } else { unescape(value) };
        parameters.push((key.into(), value.into()));
    }
    if segment.options.is_some() && relation.member != RelatedMember::Children {
        let detail = format!("{name}: expected no parentheses, because it is one item");
        return Err(expand_problem(detail));
    }
    let target = relation.target;
    let rules = ListRules { readable, controls: plain_controls(), used_for: FilterUse::List };
    let address = ResourcePath::of_resource(target, PathForm::Nested);
    let mut list =
        list::read_parameters(model, &address, rules, parameters).map_err(|problem| {
            let detail = problem.parts().detail.as_deref().unwrap_or("");
            expand_problem(format!("{name}: {detail}"))
        })?;
    if list.has_explicit_limit && list.limit > CHILDREN_MAX {
        let detail = format!("{name}: limit: expected at most {CHILDREN_MAX}, got {}", list.limit);
        return Err(expand_problem(detail));
    }
    list.limit = list.limit.min(CHILDREN_MAX);
    Ok(list)
}

/// A name, and maybe options in parentheses after it.
fn read_segment(text: &str) -> Result<Segment<'_>, String> {
    let (name, options) = match text.split_once('(') {
        None => (text, None),
        Some((name, rest)) => match rest.strip_suffix(')') {
            Some(options) => (name, Some(options)),
            None => return Err(format!("{}: expected ) at the end", truncate_for_message(name))),
        },
    };
    match name.is_empty() {
        true => Err("expected names with commas between them, got an empty one".to_owned()),
        false => Ok(Segment { text, name, options }),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::model;

    const MODEL: &str = r#"
title = "T"
[resources.product.fields]
name = { type = "text", filter = true }
[resources.customer.fields]
name = { type = "text" }
[resources.order]
parent = "customer"
[resources.order.fields]
status = { type = "text", filter = true }
product = { type = "ref", to = "product" }
secret = { type = "ref", to = "product" }
[resources.line]
parent = "order"
[resources.line.fields]
n = { type = "integer" }
[resources.note]
parent = "customer"
[resources.note.fields]
text = { type = "text" }
"#;

    /// The address of more children has the second level.
    #[test]
    fn expand_of_two_levels_is_part_of_the_address_of_more_children() {
        let model = model::read("expand.toml", MODEL).unwrap();
        let value = r"orders(status=a\;b;limit=5).lines(sort=-id),orders.product";
        let all = read(&model, ResourceIndex(1), (value, &Clerk)).unwrap();
        assert_eq!(
            all[0].list.shown_parameters(),
            "status=a%3Bb&expand=lines%28sort%3D-id%29%2Cproduct"
        );
    }

    #[test]
    fn expand_of_more_than_its_longest_text_is_refused() {
        let model = model::read("expand.toml", MODEL).unwrap();
        let detail = |bytes: usize| {
            let value = format!("orders(status={})", "x".repeat(bytes - "orders(status=)".len()));
            let refused = read(&model, ResourceIndex(1), (&value, &Clerk)).err();
            refused.map(|problem| problem.parts().detail.clone().unwrap())
        };
        assert_eq!(detail(2000), None);
        assert_eq!(detail(2001).as_deref(), Some("expand: expected at most 2000 bytes, got 2001"));
    }

    /// All resources but notes; `secret` of orders is hidden.
    struct Clerk;

    impl ReadableResources for Clerk {
        fn hidden(&self, resource: ResourceIndex) -> Option<&[usize]> {
            match resource.0 {
                2 => Some(&[2]),
                4 => None,
                _ => Some(&[]),
            }
        }
    }

    fn show(model: &Model, resource: &Resource, all: &[Expansion]) -> String {
        let one = |one: &Expansion| {
            let target = model.resource(one.relation.target);
            let inner = show(model, target, &one.inner);
            let inner = if inner.is_empty() { inner } else { format!(" [{inner}]") };
            let list = &one.list;
            let name = one.relation.name(model, resource);
            let kind = if list.is_whole_by_id() { "all" } else { "some" };
            format!("{name} {} {kind}{inner}", list.limit)
        };
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn check(resource: usize, values: &[&str], expected: &Expect) {
        let model = model::read("expand.toml", MODEL).unwrap();
        let mut text = String::new();
        for value in values {
            let index = ResourceIndex(resource);
            let shown = match read(&model, index, (value, &Clerk)) {
                Ok(all) => show(&model, model.resource(index), &all),
                Err(problem) => problem.parts().detail.clone().unwrap_or_default(),
            };
            text.push_str(&format!("{value}: {shown}\n"));
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn expand_finds_children_parents_and_references() {
        check(
            1,
            &[
                "orders",
                "orders.product",
                "orders,orders.product,orders.lines",
                "orders(status=a;sort=-status;limit=5).product",
                r"orders(status=a\;b\))",
            ],
            &expect![[r#"
                orders: orders 50 all
                orders.product: orders 50 all [product 50 all]
                orders,orders.product,orders.lines: orders 50 all [product 50 all, lines 50 all]
                orders(status=a;sort=-status;limit=5).product: orders 5 some [product 50 all]
                orders(status=a\;b\)): orders 50 some
            "#]],
        );
        check(
            2,
            &["customer", "product", "lines", "customer,product"],
            &expect![[r#"
            customer: customer 50 all
            product: product 50 all
            lines: lines 50 all
            customer,product: customer 50 all, product 50 all
        "#]],
        );
    }

    #[test]
    fn expand_of_an_unknown_or_invisible_relation_is_refused() {
        check(
            1,
            &[
                "order",
                "notes",
                "orders.secret",
                "orders.lines.order",
                "",
                "orders,",
                "orders,orders",
                "orders(limit=51)",
                "orders(cursor=a)",
                "orders(stat=a)",
                "orders(",
                "orders(limit=1)x",
            ],
            &expect![[r#"
                order: expand: order: no such relation here; did you mean "orders"?
                notes: expand: notes: no such relation here
                orders.secret: expand: secret: no such relation here
                orders.lines.order: expand: expected at most 2 levels, got 3
                : expand: expected names with commas between them, got an empty one
                orders,: expand: expected names with commas between them, got an empty one
                orders,orders: expand: orders: given twice
                orders(limit=51): expand: orders: limit: expected at most 50, got 51
                orders(cursor=a): expand: orders: cursor: expected filters, sort, fields or limit
                orders(stat=a): expand: orders: stat: no such parameter here (there are limit, cursor, sort, fields, count, any, not, id, created_at, updated_at, status); did you mean "status"?
                orders(: expand: expected a closing ) for each (, with \( and \) for those in a value, got "orders("
                orders(limit=1)x: expand: orders: expected ) at the end
            "#]],
        );
        check(
            2,
            &["customer(limit=1)", "secret", "product."],
            &expect![[r#"
            customer(limit=1): expand: customer: expected no parentheses, because it is one item
            secret: expand: secret: no such relation here
            product.: expand: expected names with commas between them, got an empty one
        "#]],
        );
    }
}
