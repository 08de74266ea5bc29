//! JSON Schema of resources: an item as it is read, and the bodies that create, replace and patch one.
//!
//! The schemas differ, because the server sets some members, and because a caller may read a field that it may
//! not write, or the other way round.

use super::examples;
use super::field_schema::{
    FieldSchemas, SchemaPurpose, deprecation_sentence, id_schema, push_sentence,
};
use super::related::with_related;
use super::tree::JsonNode;
use super::viewer::{Viewer, WritableFields};
use crate::model::{Field, GrantVerb, Model, Resource, UniqueScope};
use crate::value::IdKind;

/// The schemas of one resource, as one caller sees them.
#[derive(Debug, Clone, Copy)]
pub struct ResourceSchemas<'v, 'a> {
    pub viewer: &'v Viewer<'a>,
    pub resource: &'a Resource,
}

impl<'v, 'a> ResourceSchemas<'v, 'a> {
    /// The beginning of the names of its schemas. Names of resources have no dot.
    pub fn component(&self) -> String {
        component(self.resource)
    }

    /// A writing verb's fields, if it is granted.
    pub fn writable(&self, verb: GrantVerb) -> Option<WritableFields<'v>> {
        let viewer: &'v Viewer<'a> = self.viewer;
        let access = viewer.access(self.resource.index, verb)?;
        Some(WritableFields { access, unseen: viewer.hidden(self.resource.index) })
    }

    /// Its schemas, with the names of their components.
    pub fn all(&self) -> Vec<(String, JsonNode)> {
        let name = self.component();
        let mut all = Vec::new();
        if !self.viewer.knows(self.resource.index) {
            return all;
        }
        if self.viewer.can_read(self.resource.index) {
            all.push((name.clone(), self.item()));
            all.push((format!("{name}.selection"), self.selection()));
        }
        let bodies = [
            ("create", GrantVerb::Post, SchemaPurpose::Create),
            ("replace", GrantVerb::Put, SchemaPurpose::Replace),
            ("patch", GrantVerb::Patch, SchemaPurpose::Patch),
        ];
        for (suffix, verb, purpose) in bodies {
            // Clients neither create nor replace items that the server makes.
            let is_offered = !self.resource.is_server_made || purpose == SchemaPurpose::Patch;
            if let Some(writable) = self.writable(verb).filter(|_| is_offered) {
                all.push((format!("{name}.{suffix}"), self.body(purpose, writable)));
            }
        }
        all
    }

    /// An item as GET shows it.
    pub fn item(&self) -> JsonNode {
        let resource = self.resource;
        let fields = self.viewer.readable_fields(resource);
        let always = fields
            .filter(|(_, field)| field.required || field.nullable || field.rules.states.is_some());
        let always = always.map(|(_, field)| &*field.name);
        let required = ["id"]
            .into_iter()
            .chain(resource.parent_key.as_deref())
            .chain(always)
            .chain(["created_at", "updated_at", "version"]);
        object! { "type": "object" }
            .with_some("description", self.description())
            .with_some("deprecated", resource.deprecated.as_ref().map(|_| true))
            .with("required", JsonNode::texts(required))
            .with("properties", self.read_properties().with_all(self.shown_secrets()))
            .with_some("examples", self.read_example().map(|example| vec![example]))
    }

    /// The members of an item that `fields` selects.
    fn selection(&self) -> JsonNode {
        object! {
            "type": "object",
            "description":
                "The members that `fields` selects, and `id`; without `fields`, the whole item.",
            "required": JsonNode::texts(["id"]),
            "properties": with_related(self.viewer, self.resource, self.read_properties()),
        }
    }

    /// Secrets that the server generates: only the response to the request that asks for one shows it.
    fn shown_secrets(&self) -> JsonNode {
        let mut secrets = JsonNode::empty_object();
        let fields = self.resource.fields.iter().filter(|field| field.secret && field.nullable);
        for field in fields {
            let about = "Only in the response to the request that sets it.";
            let schema = object! { "type": "string", "readOnly": true, "description": about };
            secrets.add(field.name.to_string(), schema);
        }
        secrets
    }

    fn description(&self) -> Option<String> {
        let resource = self.resource;
        let mut about = String::new();
        if let Some(deprecated) = &resource.deprecated {
            about = deprecation_sentence(deprecated, self.viewer.successor(deprecated));
        }
        let hidden = self.viewer.hidden(resource.index);
        for rule in resource.unique.iter().filter(|rule| rule.fields.len() > 1) {
            if rule.fields.iter().any(|at| hidden.contains(at)) {
                continue;
            }
            let names: Vec<String> = rule
                .fields
                .iter()
                .filter_map(|at| resource.fields.get(*at))
                .map(|field| format!("`{}`", field.name))
                .collect();
            let scope = match rule.scope {
                UniqueScope::Resource => "",
                UniqueScope::Parent => " within the parent",
            };
            push_sentence(&mut about, &format!("{} together are unique{scope}.", names.join(", ")));
        }
        for check in &resource.checks {
            if check.that.field_paths().iter().any(|(at, _)| hidden.contains(at)) {
                continue;
            }
            let text = format!("`{}` must hold ({}).", check.that.text, check.message);
            push_sentence(&mut about, &text);
        }
        (!about.is_empty()).then_some(about)
    }

    fn read_properties(&self) -> JsonNode {
        let resource = self.resource;
        let hidden = self.viewer.hidden(resource.index);
        let schemas =
            FieldSchemas { viewer: self.viewer, resource, purpose: SchemaPurpose::Read, hidden };
        let mut properties = JsonNode::empty_object();
        for (name, schema) in self.leading_members() {
            properties.add(name, schema);
        }
        for (at, field) in self.viewer.readable_fields(resource) {
            let schema = schemas.field(at, field);
            let is_fixed = is_set_by_server(field) || self.is_readonly(at);
            properties.add(
                field.name.to_string(),
                if is_fixed { schema.with("readOnly", true) } else { schema },
            );
        }
        properties.with_all(trailing_members())
    }

    /// Whether the caller's writing verbs all leave the field alone.
    fn is_readonly(&self, at: usize) -> bool {
        let verbs = [GrantVerb::Post, GrantVerb::Put, GrantVerb::Patch];
        let mut granted = verbs
            .into_iter()
            .filter_map(|verb| self.viewer.access(self.resource.index, verb))
            .peekable();
        granted.peek().is_some() && granted.all(|access| access.readonly.contains(&at))
    }

    fn leading_members(&self) -> Vec<(String, JsonNode)> {
        let mut members =
            vec![("id".to_owned(), id_schema(self.resource.id).with("readOnly", true))];
        if let (Some(key), Some(kind)) = (&self.resource.parent_key, self.parent_id()) {
            members.push((key.to_string(), id_schema(kind).with("readOnly", true)));
        }
        members
    }

    pub fn parent_id(&self) -> Option<IdKind> {
        parent_id(self.viewer.model, self.resource)
    }

    /// The body of a write, without its wrapper.
    pub fn body(&self, purpose: SchemaPurpose, writable: WritableFields<'_>) -> JsonNode {
        let resource = self.resource;
        let access = writable.access;
        let schemas =
            FieldSchemas { viewer: self.viewer, resource, purpose, hidden: &access.hidden };
        let mut properties = JsonNode::empty_object();
        let is_create = purpose == SchemaPurpose::Create;
        if !is_create {
            for (name, schema) in self.leading_members() {
                let about = "Must be that of the path.";
                properties.add(name, schema.with("description", about));
            }
        }
        let visible = resource.fields.iter().enumerate();
        for (at, field) in visible.filter(|(at, _)| !access.hidden.contains(at)) {
            let is_fixed = is_set_by_server(field) || access.readonly.contains(&at);
            if is_fixed && is_create {
                continue;
            }
            let default = field.default.as_ref().filter(|value| {
                purpose != SchemaPurpose::Patch && field.rules.states.is_none() && !value.is_null()
            });
            let schema = schemas
                .field(at, field)
                .with_some(
                    "default",
                    default.filter(|_| !is_fixed && (is_create || !writable.is_limited(at))),
                )
                .with_some("readOnly", is_fixed.then_some(true))
                .with_some("writeOnly", field.secret.then_some(true));
            properties.add(field.name.to_string(), schema);
        }
        if !is_create {
            properties = properties.with_all(trailing_members());
        }
        let required = self.required(purpose, writable);
        object! { "type": "object" }
            .with_some("required", Some(required).filter(|required| !required.is_empty()))
            .with("properties", properties)
            .with("additionalProperties", false)
            .with_some("examples", self.body_example(purpose, writable).map(|body| vec![body]))
    }

    fn required(&self, purpose: SchemaPurpose, writable: WritableFields<'_>) -> JsonNode {
        let is_needed = |at: usize, field: &Field| match purpose {
            SchemaPurpose::Read | SchemaPurpose::Patch => false,
            SchemaPurpose::Create => field.required && field.default_from.is_none(),
            SchemaPurpose::Replace => {
                let may_stay = field.secret || field.default_from.is_some();
                let may_stay = may_stay || writable.is_limited(at) || writable.unseen.contains(&at);
                field.required && !may_stay
            }
        };
        let fields = writable.fields(self.resource);
        let fields = fields.filter(|(at, field)| is_needed(*at, field));
        JsonNode::texts(fields.map(|(_, field)| &*field.name))
    }

    /// An item as GET shows it.
    pub fn read_example(&self) -> Option<JsonNode> {
        let fields = self.viewer.readable_fields(self.resource);
        let shown: Vec<usize> = fields.map(|(at, _)| at).collect();
        examples::read_item(self.resource, self.parent_id(), &shown)
    }

    /// The body of a write, without its wrapper.
    pub fn body_example(
        &self,
        purpose: SchemaPurpose,
        writable: WritableFields<'_>,
    ) -> Option<JsonNode> {
        match purpose {
            SchemaPurpose::Read => self.read_example(),
            SchemaPurpose::Create | SchemaPurpose::Replace => {
                examples::written_item(self.resource, &writable)
            }
            SchemaPurpose::Patch => {
                let (name, value) = examples::patched_field(self.resource, &writable)?;
                Some(JsonNode::empty_object().with(name.to_owned(), value))
            }
        }
    }
}

fn is_set_by_server(field: &Field) -> bool {
    field.is_made_by_server() || field.server_set
}

/// The beginning of the names of a resource's components. A model may declare its own `user`, and a `server`,
/// whose fields must not be mistaken for the server's own parameters. Names of resources have no hyphen.
pub fn component(resource: &Resource) -> String {
    match &*resource.name {
        name if resource.is_builtin => format!("server.{name}"),
        "server" => "server-resource".to_owned(),
        name => name.to_owned(),
    }
}

/// The kind of id of the parent.
fn parent_id(model: &Model, resource: &Resource) -> Option<IdKind> {
    resource.parent.map(|parent| model.resource(parent).id)
}

fn trailing_members() -> JsonNode {
    let time = || object! { "type": "string", "format": "date-time", "readOnly": true };
    object! {
        "created_at": time(),
        "updated_at": time(),
        "version": object! {
            "type": "integer", "format": "int64", "readOnly": true
        },
    }
}

/// A reference to a schema of the document.
pub fn schema_reference(name: &str) -> JsonNode {
    object! { "$ref": format!("#/components/schemas/{name}") }
}
