//! The API reference: `/-/docs` and `/-/docs/:resource`, from the OpenAPI document of the same reply.

use std::collections::{HashMap, HashSet};

use askama::Template;

use super::curl::{self, CodeBox};
use super::frame::{Frame, to_html};
use super::openapi_reader::{Document, SchemaField, json_words};
use super::related::PageSource;
use super::source::{elements, heading, member, members, text_of};
use crate::json::Json;
use crate::model::ResourceIndex;

#[derive(Template)]
#[template(path = "reference.html")]
struct ReferencePage<'a> {
    frame: Frame<'a>,
    title: String,
    about: &'a str,
    /// The resources, on the first page.
    resources: Vec<ContentsLink<'a>>,
    /// The JSON Schema of the resource.
    schema: Option<String>,
    fields: Vec<FieldRow>,
    operations: Vec<Operation<'a>>,
    /// The problems that every operation on the page can return.
    common: Vec<ResponseRow<'a>>,
    /// The address of an explanation of a problem, up to its name.
    problems: String,
    document: String,
}

struct ContentsLink<'a> {
    address: String,
    text: String,
    about: &'a str,
}

struct FieldRow {
    name: String,
    words: String,
    note: &'static str,
    about: String,
}

struct Operation<'a> {
    id: &'a str,
    method: String,
    path: &'a str,
    summary: &'a str,
    about: &'a str,
    command: CodeBox,
    parameters: Vec<ParameterRow<'a>>,
    filters: Vec<FilterRow<'a>>,
    bodies: Vec<&'a str>,
    responses: Vec<ResponseRow<'a>>,
}

struct ParameterRow<'a> {
    name: &'a str,
    place: &'a str,
    is_required: bool,
    words: String,
    about: &'a str,
}

/// The filters of one field.
struct FilterRow<'a> {
    field: &'a str,
    operators: Vec<&'a str>,
}

#[derive(Clone)]
struct ResponseRow<'a> {
    status: &'a str,
    /// Of a success; a problem has its names instead.
    about: &'a str,
    types: Vec<&'a str>,
    problems: Vec<(&'a str, &'a str)>,
}

impl ResponseRow<'_> {
    fn is_empty(&self) -> bool {
        self.about.is_empty() && self.problems.is_empty()
    }
}

pub fn render(page: &PageSource<'_>, resource: Option<ResourceIndex>) -> String {
    let (context, document) = (page.context, Document(page.json));
    let (model, base_path) = (context.model, context.base_path());
    let mut operations = operations(page, document);
    let common = extract_common_problems(&mut operations);
    let docs = format!("{base_path}/-/docs");
    let resource = resource.map(|index| model.resource(index));
    let tags = elements(document.find(&["tags"])).iter();
    let about_tag = |tag| text_of(member(tag, "description")).unwrap_or_default();
    let about = match resource {
        Some(_) => tags.clone().next().map(about_tag).unwrap_or_default(),
        None => text_of(document.find(&["info", "description"])).unwrap_or_default(),
    };
    // The first page has the tags of all resources that the caller knows, in this order.
    let known = model.resources.iter().filter(|one| page.viewer.knows(one.index));
    let links = known.zip(tags).map(|(one, tag)| ContentsLink {
        address: format!("{docs}/{}", one.label),
        text: heading(&one.plural),
        about: about_tag(tag),
    });
    let resources = if resource.is_some() { Vec::new() } else { links.collect() };
    let title = match resource {
        Some(resource) => heading(&resource.plural),
        None => "API reference".to_owned(),
    };
    let frame = Frame::new(context, &title);
    let frame = match resource {
        Some(_) => frame.crumb(&docs, "API reference"),
        None => frame,
    };
    to_html(&ReferencePage {
        frame: frame.end(&title),
        about,
        resources,
        schema: resource.map(|resource| format!("{base_path}/-/schemas/{}", resource.label)),
        fields: if resource.is_some() { fields(document) } else { Vec::new() },
        operations,
        common,
        problems: format!("{base_path}/-/problems/"),
        document: format!("{base_path}/-/openapi.json"),
        title,
    })
}

/// The operations with their paths and methods.
fn all_operations<'a>(
    document: Document<'a>,
) -> impl Iterator<Item = (&'a str, &'a str, &'a Json<'a>)> {
    let paths = members(document.find(&["paths"]));
    paths.flat_map(|(path, item)| {
        let operations = members(Some(item)).filter(|(method, _)| !method.starts_with("x-"));
        operations.map(move |(method, operation)| (path, method, operation))
    })
}

/// The fields of the items: those that the caller reads, and those that it may only send. Defaults are those of a body.
fn fields(document: Document<'_>) -> Vec<FieldRow> {
    let (mut read, mut sent) = (None, None);
    for (_, method, operation) in all_operations(document) {
        let ok = document.find_in(operation, &["responses", "200", "content"]);
        let body = document.find_in(operation, &["requestBody", "content"]);
        match method {
            // The list comes first, and has its items in an array.
            "get" => read = document.item_schema(ok).filter(|one| member(one, "items").is_none()),
            _ if sent.is_none() => sent = document.item_schema(body),
            _ => {}
        }
    }
    let list = |schema: Option<_>| schema.map(|one| document.fields(one)).unwrap_or_default();
    let (shown, sent) = (list(read), list(sent));
    let names: HashSet<&str> = shown.iter().map(|field| &*field.path).collect();
    let only_sent = sent.iter().filter(|field| !names.contains(&*field.path));
    let by_path: HashMap<&str, &SchemaField<'_>> =
        sent.iter().map(|field| (&*field.path, field)).collect();
    let rows = shown.iter().chain(only_sent).map(|field| {
        let sent = by_path.get(&*field.path);
        let is = |name| document.schema_member(field.schema, name) == Some(&Json::Boolean(true));
        let mut words = document.schema_words(field.schema);
        let default = sent.and_then(|sent| document.schema_member(sent.schema, "default"));
        if let Some(default) = default.filter(|_| names.contains(&*field.path)) {
            words.push_str(&format!(", default {}", json_words(default)));
        }
        FieldRow {
            name: field.path.clone(),
            words,
            note: match () {
                () if is("readOnly") => "read-only",
                () if is("writeOnly") => "write-only",
                () if sent.is_some_and(|sent| sent.is_required) => "required",
                () => "",
            },
            about: document
                .schema_member(field.schema, "description")
                .map(json_words)
                .unwrap_or_default(),
        }
    });
    rows.collect()
}

fn operations<'a>(page: &PageSource<'a>, document: Document<'a>) -> Vec<Operation<'a>> {
    let all = all_operations(document).map(|(path, method, operation)| {
        let text = |name: &str| text_of(member(operation, name)).unwrap_or_default();
        let parameters = elements(member(operation, "parameters")).iter();
        let parameters: Vec<&Json<'_>> = parameters.map(|one| document.resolve(one)).collect();
        let (filters, parameters) = split_filters(&parameters);
        let parameters = parameters.into_iter().map(|one| parameter(document, one));
        let parameters: Vec<ParameterRow<'_>> = parameters.collect();
        let content = document.find_in(operation, &["requestBody", "content"]);
        Operation {
            id: text("operationId"),
            method: method.to_uppercase(),
            path,
            summary: text("summary"),
            about: text("description"),
            command: curl_command(page, (method, path), &parameters, content),
            parameters,
            filters,
            bodies: members(content).map(|(name, _)| name).collect(),
            responses: responses(document, operation),
        }
    });
    all.collect()
}

fn parameter<'a>(document: Document<'a>, json: &'a Json<'a>) -> ParameterRow<'a> {
    let text = |name: &str| text_of(member(json, name)).unwrap_or_default();
    ParameterRow {
        name: text("name"),
        place: text("in"),
        is_required: member(json, "required") == Some(&Json::Boolean(true)),
        words: member(json, "schema").map(|one| document.schema_words(one)).unwrap_or_default(),
        about: text("description"),
    }
}

/// The parameters that filter, by their fields, and the others. A filter has an operator after a colon; without
/// one it compares for equality.
fn split_filters<'a>(parameters: &[&'a Json<'a>]) -> (Vec<FilterRow<'a>>, Vec<&'a Json<'a>>) {
    let name = |one: &'a Json<'a>| text_of(member(one, "name")).unwrap_or_default();
    let mut filters: Vec<FilterRow<'_>> = Vec::new();
    for (field, operator) in parameters.iter().filter_map(|one| name(one).split_once(':')) {
        match filters.iter_mut().find(|row| row.field == field) {
            Some(row) => row.operators.push(operator),
            None => filters.push(FilterRow { field, operators: vec![operator] }),
        }
    }
    let mut others = Vec::new();
    for one in parameters.iter().copied().filter(|one| !name(one).contains(':')) {
        match filters.iter_mut().find(|row| row.field == name(one)) {
            // A field that is named like another parameter has `eq` among its operators.
            Some(row) if !row.operators.contains(&"eq") => row.operators.insert(0, "eq"),
            _ => others.push(one),
        }
    }
    (filters, others)
}

fn responses<'a>(document: Document<'a>, operation: &'a Json<'a>) -> Vec<ResponseRow<'a>> {
    let all = members(member(operation, "responses")).map(|(status, response)| {
        let response = document.resolve(response);
        let content = member(response, "content");
        let examples = document
            .find_in(response, &["content", "application/problem+json", "examples"])
            .map(|examples| members(Some(examples)));
        let title = |example| document.find_in(example, &["value", "title"]);
        let problems: Vec<(&str, &str)> = examples
            .into_iter()
            .flatten()
            .map(|(slug, example)| (slug, text_of(title(example)).unwrap_or_default()))
            .collect();
        let is_problem = !problems.is_empty();
        ResponseRow {
            status,
            about: match is_problem {
                true => "",
                false => text_of(member(response, "description")).unwrap_or_default(),
            },
            types: match is_problem {
                true => Vec::new(),
                false => members(content).map(|(name, _)| name).collect(),
            },
            problems,
        }
    });
    all.collect()
}

/// Whether one of these responses is this problem.
fn has_problem(rows: &[ResponseRow<'_>], status: &str, slug: &str) -> bool {
    let mut rows = rows.iter().filter(|row| row.status == status);
    rows.any(|row| row.problems.iter().any(|(known, _)| *known == slug))
}

/// Removes the problems that all operations have, and returns them.
fn extract_common_problems<'a>(operations: &mut [Operation<'a>]) -> Vec<ResponseRow<'a>> {
    let [first, _, ..] = &*operations else { return Vec::new() };
    let mut common = first.responses.clone();
    for row in &mut common {
        row.problems.retain(|(slug, _)| {
            operations.iter().all(|one| has_problem(&one.responses, row.status, slug))
        });
    }
    common.retain(|row| !row.problems.is_empty());
    for operation in operations {
        for row in &mut operation.responses {
            row.problems.retain(|(slug, _)| !has_problem(&common, row.status, slug));
        }
        operation.responses.retain(|row| !row.is_empty());
    }
    common
}

/// The request as a command line, with names in capitals in place of ids and of the values of required headers.
fn curl_command(
    page: &PageSource<'_>,
    (method, path): (&str, &str),
    parameters: &[ParameterRow<'_>],
    content: Option<&Json<'_>>,
) -> CodeBox {
    let context = page.context;
    let mut address = context.base_path().to_owned();
    for (at, part) in path.split(['{', '}']).enumerate() {
        match at % 2 {
            0 => address.push_str(part),
            _ => address.push_str(&part.to_uppercase()),
        }
    }
    let mut line = curl::command(context);
    if !matches!(method, "get" | "post") {
        line.push_str(&format!(" -X {}", method.to_uppercase()));
    }
    line.push_str(&format!(" {}", curl::url(context, &address)));
    for one in parameters.iter().filter(|one| one.place == "header" && one.is_required) {
        let value = if one.name == "If-Match" { "\"VERSION\"" } else { "VALUE" };
        line.push_str(&format!(" -H {}", curl::quote(&format!("{}: {value}", one.name))));
    }
    let json = content.and_then(|content| member(content, "application/json"));
    if let Some(example) = json.and_then(|json| member(json, "example")) {
        let body = crate::json::to_text(example);
        line.push_str(&format!(" --json {}", curl::quote(&body)));
    }
    CodeBox::new("", line, "the command")
}
