//! Tests of the document against the tables that requests are routed and parsed with: a path, a method or a
//! query parameter that only one of them has is a fault.

mod query_parameters;

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Method;
use serde_json::Value;

use super::*;
use crate::formats::PatchForm;
use crate::intent::{self, RequestVerb, Route, RouteTarget, RouteTemplate, route_templates};
use crate::model::{self, Model};
use crate::permit::{self, AccessScope, Caller, Rights};
use crate::problem;

const UUID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

const MODELS: [&str; 3] = [
    include_str!("../../examples/store/nouns.toml"),
    include_str!("../../examples/library/nouns.toml"),
    include_str!("../../tests/it/models/strange.toml"),
];

fn models() -> Vec<Model> {
    let read =
        |text: &&str| model::read("m.toml", text).unwrap_or_else(|errors| panic!("{errors}"));
    MODELS.iter().map(read).collect()
}

/// A caller for each role, one with all rights, one without a role, and one of an open server.
fn callers(model: &Model) -> Vec<(String, Caller)> {
    let user = |roles: &[&str]| {
        let rights = Rights::of_roles(model, roles.iter().copied());
        Caller::user("ann".into(), Arc::new(rights))
    };
    let mut all = vec![
        ("admin".to_owned(), user(&["admin"])),
        ("nobody".to_owned(), user(&[])),
        ("open".to_owned(), Caller::open(model)),
    ];
    all.extend(model.roles.iter().map(|role| (role.name.to_string(), user(&[&role.name]))));
    all
}

fn read_document(model: &Model, caller: &Caller) -> Value {
    serde_json::from_slice(&document(model, caller)).unwrap()
}

/// The template with a value for each parameter, the first of a choice.
fn concrete_path(model: &Model, template: &RouteTemplate<'_>) -> String {
    concrete_path_with(model, template, 0)
}

/// The template with each value of its choice.
fn concrete_paths(model: &Model, template: &RouteTemplate<'_>) -> Vec<String> {
    let values = template.choice.as_ref().map_or(1, |(_, values)| values.len());
    (0..values).map(|at| concrete_path_with(model, template, at)).collect()
}

fn concrete_path_with(model: &Model, template: &RouteTemplate<'_>, choice: usize) -> String {
    let mut path = model.server.base_path.clone().unwrap_or_default();
    for segment in template.path.split('/').skip(1) {
        path.push('/');
        match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            None => path.push_str(segment),
            Some(name) => match &template.choice {
                Some((known, values)) if *known == name => {
                    let encoded = percent_encoding::utf8_percent_encode(
                        values[choice],
                        percent_encoding::NON_ALPHANUMERIC,
                    );
                    path.push_str(&encoded.to_string());
                }
                _ => {
                    let name = name.strip_suffix("_id").unwrap();
                    let resource = model.resources.iter().find(|resource| *resource.name == *name);
                    let is_uuid = resource.unwrap().id == crate::value::IdKind::Uuid;
                    path.push_str(if is_uuid { UUID } else { "1" });
                }
            },
        }
    }
    path
}

/// A target without its ids.
fn form(target: &RouteTarget) -> String {
    match target {
        RouteTarget::Collection(path) => format!("collection {:?}", path.resource),
        RouteTarget::Item(path) => format!("item {:?}", path.resource),
        RouteTarget::ProblemPage(_) => "problem".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn route_templates_lead_to_their_targets() {
    for model in models() {
        let templates = route_templates(&model);
        let paths: BTreeSet<&str> = templates.iter().map(|template| &*template.path).collect();
        assert_eq!(paths.len(), templates.len(), "each path once");
        for template in &templates {
            let path = concrete_path(&model, template);
            for (method, verb) in template.verbs {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                let route = intent::route(&model, &method, &path, None)
                    .unwrap_or_else(|_| panic!("{method} {path}"));
                assert_eq!(route.verb, *verb, "{method} {path}");
                assert_eq!(form(&route.target), form(&template.target), "{path}");
            }
        }
    }
}

/// The operations of the document are the routes that the request checks admit, for every caller.
#[test]
fn document_operations_equal_the_admitted_routes() {
    for model in models() {
        for (name, caller) in callers(&model) {
            let scope = AccessScope::new(&caller, model::GrantVerb::Get);
            let mut expected = BTreeSet::new();
            for template in route_templates(&model) {
                let methods = ["GET", "QUERY", "POST", "PUT", "PATCH", "DELETE"];
                let paths = concrete_paths(&model, &template);
                let requests = paths.iter().flat_map(|path| methods.map(|method| (path, method)));
                for (path, method) in requests {
                    let parsed = Method::from_bytes(method.as_bytes()).unwrap();
                    let Ok(route) = intent::route(&model, &parsed, path, None) else { continue };
                    let is_reachable = route
                        .resource()
                        .is_none_or(|resource| scope.can_read_ancestors(&model, resource));
                    if is_reachable && permit::check(&caller, &route).is_ok() {
                        expected.insert(format!("{method} {}", template.path));
                    }
                }
            }
            let document = read_document(&model, &caller);
            let mut described = BTreeSet::new();
            for (path, item) in document["paths"].as_object().unwrap() {
                for method in item.as_object().unwrap().keys() {
                    let method = if method == "x-query-method" { "query" } else { method };
                    described.insert(format!("{} {path}", method.to_uppercase()));
                }
            }
            assert_eq!(described, expected, "{} as {name}", model.title);
        }
    }
}

/// A component, or the node itself if it is no reference.
fn resolve(document: &Value, node: &Value) -> Value {
    match node["$ref"].as_str() {
        Some(reference) => document.pointer(&reference[1..]).unwrap().clone(),
        None => node.clone(),
    }
}

fn operations(document: &Value) -> Vec<Value> {
    let paths = document["paths"].as_object().unwrap().values();
    let items = paths.flat_map(|item| item.as_object().unwrap());
    items.filter(|(method, _)| !method.starts_with("x-")).map(|(_, one)| one.clone()).collect()
}

/// The names of the query parameters of an operation.
fn query_parameters(document: &Value, operation: &Value) -> BTreeSet<String> {
    let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
    let parameters = parameters.iter().map(|parameter| resolve(document, parameter));
    let in_query = parameters.filter(|parameter| parameter["in"] == "query");
    in_query.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect()
}

/// Methods that write take no query at all.
#[test]
fn writes_take_no_query_parameters() {
    let verbs = [
        RequestVerb::Post,
        RequestVerb::Put,
        RequestVerb::Patch(PatchForm::MergePatch),
        RequestVerb::Delete,
    ];
    for model in models() {
        let document = read_document(&model, &Caller::open(&model));
        for template in route_templates(&model) {
            for (method, verb) in template.verbs.iter().filter(|(_, verb)| verbs.contains(verb)) {
                let operation = &document["paths"][&template.path][method.to_lowercase()];
                assert_eq!(
                    query_parameters(&document, operation).len(),
                    0,
                    "{verb:?} {}",
                    template.path
                );
            }
        }
    }
}

fn check_references(document: &Value, node: &Value, used: &mut BTreeSet<String>) {
    match node {
        Value::Object(members) => {
            if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
                used.insert(reference.to_owned());
            }
            members.values().for_each(|inner| check_references(document, inner, used));
        }
        Value::Array(list) => list.iter().for_each(|inner| check_references(document, inner, used)),
        _ => {}
    }
}

#[test]
fn document_references_resolve_and_operation_ids_are_unique() {
    for model in models() {
        for (name, caller) in callers(&model) {
            let document = read_document(&model, &caller);
            let mut used = BTreeSet::new();
            check_references(&document, &document, &mut used);
            for kind in ["parameters", "headers", "responses"] {
                let Some(known) = document["components"][kind].as_object() else { continue };
                for component in known.keys() {
                    let reference = format!("#/components/{kind}/{component}");
                    assert!(used.contains(&reference), "{name}: {reference} is not used");
                }
            }
            let mut ids = BTreeSet::new();
            let queries = document["paths"].as_object().unwrap().values();
            let queries = queries.filter_map(|item| item.get("x-query-method").cloned());
            for operation in operations(&document).into_iter().chain(queries) {
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id.to_owned()), "{name}: {id} twice");
            }
        }
    }
}

/// The example of a filter in the body of QUERY is read.
#[test]
fn document_query_body_equals_the_parser() {
    let model = models().remove(0);
    let caller = Caller::open(&model);
    let document = read_document(&model, &caller);
    let body = &document["paths"]["/customers"]["x-query-method"]["requestBody"]["content"];
    let schema = resolve(&document, &body["application/json"]["schema"]);
    let filter = resolve(&document, &schema["properties"]["filter"]);
    let query = serde_json::json!({ "filter": filter["examples"][0] }).to_string();
    let method = Method::from_bytes(b"QUERY").unwrap();
    let route = intent::route(&model, &method, "/customers", None).unwrap();
    let read = intent::read(&model, route, (None, &caller), query.as_bytes());
    assert!(read.is_ok(), "{query}");
}

/// The names of a model's resources are not mistaken for the server's own.
#[test]
fn document_of_a_resource_named_server_keeps_the_names_apart() {
    let text = "title = \"T\"\n[resources.server.fields]\nas_of = { type = \"text\", max_length = 9, filter = true }\n\
        user = { type = \"object\", fields = { name = { type = \"boolean\", filter = true } } }\n\
        [resources.server_user.fields]\nlabel = { type = \"text\", max_length = 9 }\n";
    let model = model::read("m.toml", text).unwrap_or_else(|errors| panic!("{errors}"));
    let document = read_document(&model, &Caller::open(&model));
    let mut ids = BTreeSet::new();
    for operation in operations(&document) {
        assert!(ids.insert(operation["operationId"].to_string()), "{operation}");
    }
    let parameter = |path: &str, name: &str| {
        let parameters = document["paths"][path]["get"]["parameters"].as_array().unwrap();
        let mut parameters = parameters.iter().map(|parameter| resolve(&document, parameter));
        parameters.find(|parameter| parameter["name"] == name).unwrap()["schema"].clone()
    };
    assert_eq!(parameter("/servers/{server_id}", "as_of")["format"], "date-time");
    assert_eq!(parameter("/servers", "as_of")["format"], Value::Null);
    assert_eq!(parameter("/servers", "user.name")["type"], "boolean");
    assert_eq!(parameter("/-/users", "name")["type"], "string");
}

/// Generators of clients name classes after schemas, and number those without a name.
#[test]
fn document_bodies_have_named_schemas() {
    let mut bodies = 0;
    for model in models() {
        let document = read_document(&model, &Caller::open(&model));
        for operation in operations(&document) {
            let id = &operation["operationId"];
            let responses = operation["responses"].as_object().unwrap().values();
            let responses = responses.map(|response| resolve(&document, response));
            let all = responses.chain([operation["requestBody"].clone()]);
            for content in all.filter_map(|body| body["content"].as_object().cloned()) {
                let json = content.into_iter().filter(|(essence, _)| essence.ends_with("/json"));
                for (_, media) in json {
                    let schema = &media["schema"];
                    let is_any = *schema == serde_json::json!({ "type": "object" });
                    assert!(schema["$ref"].is_string() || is_any, "{id}: {schema}");
                    bodies += 1;
                }
            }
        }
    }
    assert!(bodies > 100, "{bodies}");
}

/// The same caller gets the same bytes, and a role's document is a function of its rights alone.
#[test]
fn document_is_the_same_each_time() {
    for model in models() {
        for (_, caller) in callers(&model) {
            assert_eq!(document(&model, &caller), document(&model, &caller));
        }
    }
}

/// Nothing of what a role may not see is in its document or in its schemas.
#[test]
fn document_of_a_role_names_nothing_hidden() {
    let model = model::read("m.toml", MODELS[2]).unwrap_or_else(|errors| panic!("{errors}"));
    let callers = callers(&model);
    let (_, keeper) = callers.iter().find(|(name, _)| name == "keeper").unwrap();
    let mut texts = vec![document(&model, keeper)];
    for resource in model.declared().filter(|resource| *resource.name != *"archive") {
        texts.push(resource_schema(&model, keeper, resource.index));
    }
    for text in texts {
        let text = String::from_utf8(text).unwrap();
        for hidden in [
            "secret",
            "price",
            "owner",
            "labels",
            "amount",
            "\"total\":{\"type\":[",
            "$user",
            ">= 0",
            "'used'",
        ] {
            assert!(!text.contains(hidden), "{hidden}");
        }
    }
    let (_, nobody) = callers.iter().find(|(name, _)| name == "nobody").unwrap();
    let text = String::from_utf8(document(&model, nobody)).unwrap();
    for unknown in ["houses", "room", "Räume"] {
        assert!(!text.contains(unknown), "{unknown}");
    }
}

/// Every problem is described for some operation, apart from those of other methods and paths.
#[test]
fn document_has_every_problem() {
    let mut texts = String::new();
    for model in models() {
        for (_, caller) in callers(&model) {
            texts.push_str(&read_document(&model, &caller)["components"]["responses"].to_string());
        }
    }
    let others =
        [&problem::UNKNOWN_METHOD, &problem::METHOD_NOT_ALLOWED, &problem::TOO_MANY_REQUESTS];
    for kind in problem::ALL.iter().filter(|kind| !others.contains(kind)) {
        assert!(texts.contains(&format!("`{}`", kind.slug)), "{}", kind.slug);
    }
}

/// A limited field is described as such, and no example sends it.
#[test]
fn document_says_which_fields_are_limited() {
    let text = r#"
title = "Reports"
[resources.report.fields]
owner = { type = "text", required = true }
text  = { type = "text", required = true }
note  = { type = "text", default = "-" }
[roles.author]
report = { verbs = ["get", "put", "patch"], where = "owner = $user" }
[roles.lead]
report = { verbs = ["get", "put", "patch"], where = "owner != $user", readonly = ["text", "note"] }
[roles.clerk]
report = ["post"]
[roles.guest]
report = { verbs = ["post"], where = "owner = 'guest'", readonly = ["note"] }
[roles.press]
report = { verbs = ["post"], where = "owner = 'press'" }
"#;
    let model = model::read("m.toml", text).unwrap_or_else(|errors| panic!("{errors}"));
    let schemas = |roles: &[&str]| {
        let rights = Rights::of_roles(&model, roles.iter().copied());
        let caller = Caller::user("ann".into(), Arc::new(rights));
        read_document(&model, &caller)["components"]["schemas"].clone()
    };
    let of_both = schemas(&["author", "lead"]);
    let about = |schema: &Value, field: &str| schema["properties"][field]["description"].clone();
    let kept = "Can be changed in some items only; PUT without it keeps its value.";
    let replace = &of_both["report.replace"];
    assert_eq!([about(replace, "text"), about(replace, "note")], [kept, kept]);
    assert_eq!(about(replace, "owner"), Value::Null);
    assert_eq!(about(&of_both["report.patch"], "note"), "Can be changed in some items only.");
    assert_eq!(replace["required"], serde_json::json!(["owner"]));
    assert_eq!(replace["examples"], serde_json::json!([{"owner": "owner"}]));
    assert_eq!(about(&schemas(&["author"])["report.replace"], "text"), Value::Null);

    let create = &schemas(&["guest", "press"])["report.create"];
    assert_eq!(about(create, "note"), "Can be set in some items only.");
    assert_eq!(create["examples"], serde_json::json!([{"owner": "owner", "text": "text"}]));
    assert_eq!(about(&schemas(&["guest", "clerk"])["report.create"], "note"), Value::Null);
}
