//! Fields and field types: one definition each, because each refers to the other.
//!
//! `types` has the field types, as values of [`FieldType`].

use std::sync::Arc;

use regex::Regex;

use super::derivation::{DERIVED_VERSION, Derivation, SORTED_CHARS_MAX};
use super::expr::{Expr, MemberTest};
pub use super::settings::ResourceIndex;
use crate::json::Json;
use crate::problem::FaultCollector;
use crate::value::{IdKind, Value};

/// A field of a resource, or of an object.
#[derive(Debug)]
pub struct Field {
    pub name: Box<str>,
    pub kind: &'static FieldType,
    pub required: bool,
    pub nullable: bool,
    pub filter: bool,
    /// Texts can be matched without regard to case and accents.
    pub is_matched: bool,
    pub order: TextOrder,
    /// The version of its derived texts, if it has some.
    pub derived_version: u64,
    /// Never shown; keeps its value if a PUT leaves it out. Null, where it is nullable, asks the server for a new
    /// value, which the response to that request shows.
    pub secret: bool,
    /// Set by the server: a client may send the stored value back, and no other one.
    pub server_set: bool,
    /// Cannot be changed after creation.
    pub fixed: bool,
    /// Stored, but not declared by the model file: hidden from every caller, and kept.
    pub is_retained: bool,
    pub default: Option<Value>,
    /// The source of the default of a new item, if it is not a constant.
    pub default_from: Option<DefaultSource>,
    pub computed: Option<Expr>,
    /// The user whose name the server keeps in it; a client sends it back, and it is ignored.
    pub audit: Option<AuditedUser>,
    pub rules: FieldRules,
    pub deprecated: Option<Deprecated>,
    /// Its former name: a migration keeps the stored values.
    pub renamed_from: Option<Box<str>>,
    /// The value that a migration gives to existing items without one.
    pub fill: Option<Value>,
}

/// The order of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextOrder {
    /// By code points.
    CodePoints,
    /// By the Unicode Collation Algorithm, with its root collation.
    Unicode,
}

/// The source of a default value that the server makes when an item is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefaultSource {
    /// The time of creation.
    Now,
    /// The name of the user who creates the item.
    User,
    /// A declared field of that user, by its index among them.
    UserField { at: usize, name: Box<str> },
    /// A random UUID.
    Uuid,
}

impl DefaultSource {
    /// Whether callers without a name, or without that field, get no value.
    pub fn is_of_user(&self) -> bool {
        match self {
            Self::User | Self::UserField { .. } => true,
            Self::Now | Self::Uuid => false,
        }
    }
}

/// The user whose name `created_by` or `updated_by` keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditedUser {
    /// Of the request that created the item.
    Creator,
    /// Of the last request that changed the item, or created it.
    LastEditor,
}

impl AuditedUser {
    pub const ALL: [Self; 2] = [Self::Creator, Self::LastEditor];

    /// The name of the field, and of the key of a resource that adds it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Creator => "created_by",
            Self::LastEditor => "updated_by",
        }
    }
}

/// The constraints of a field; those that its type does not allow are never set.
#[derive(Debug, Default)]
pub struct FieldRules {
    /// Of the field's own type, as are `max` and `one_of`.
    pub min: Option<Value>,
    pub max: Option<Value>,
    pub min_length: Option<usize>,
    pub max_length: Option<usize>,
    pub pattern: Option<Regex>,
    pub one_of: Vec<Value>,
    pub min_items: Option<usize>,
    pub max_items: Option<usize>,
    /// Decimal places of a `decimal`.
    pub scale: u8,
    /// The target of a `ref` field.
    pub reference: Option<ReferenceTarget>,
    pub reference_rule: Option<ReferenceRule>,
    pub states: Option<StateMachine>,
    /// The element of a `list`, and of `refs`.
    pub element: Option<Box<Field>>,
    /// The fields of an `object`.
    pub fields: Vec<Field>,
}

/// A field type: its properties, and the function that parses a value. Most have defaults, in
/// `FieldType::new`.
#[derive(Debug)]
pub struct FieldType {
    /// Its name in the model file.
    pub name: &'static str,
    /// One line for editors and documentation.
    pub about: &'static str,
    /// The storage class of its values; for a `ref` see `Field::storage_class`.
    pub class: StorageClass,
    /// The keys it allows in the model file, in addition to those of every field.
    pub keys: &'static [&'static str],
    /// The mandatory ones among its keys.
    pub mandatory_keys: &'static [MandatoryKey],
    /// Why a key is not allowed, if a specific message helps.
    pub key_refusal: fn(&str) -> Option<KeyRefusal>,
    /// The type to use instead inside lists and objects, if only fields of a resource can have this type.
    pub replacement_when_nested: Option<&'static str>,
    /// The type to use instead for a second field, if only one field of a resource can have this type.
    pub replacement_when_repeated: Option<&'static str>,
    /// The key that implies this type for the elements of a list without a `type`.
    pub implying_key: Option<&'static str>,
    /// The sources that its made defaults may have.
    pub default_sources: &'static [DefaultSource],
    /// How an expression accesses a single value; for a type without one.
    pub expression_hint: Option<&'static str>,
    /// Its names in other systems.
    pub synonyms: &'static [&'static str],
    /// Whether its values are texts that can be searched by prefix and substring.
    pub is_searchable_text: bool,
    /// The maximum length of its texts, if the type itself limits it.
    pub chars_max: Option<usize>,
    /// The `format` of its values in JSON Schema.
    pub json_format: Option<&'static str>,
    /// A regular expression (ECMA-262) that all its values match.
    pub json_pattern: Option<&'static str>,
    /// A text that it accepts, for documents.
    pub example: Option<&'static str>,
    /// Parses a value that is not null, and adds the faults of its syntax. `types::read` checks null and the
    /// declared rules for all types.
    pub read: fn(&Field, &Json<'_>, &mut FaultCollector) -> Option<Value>,
    /// Further checks for new values. Stored values are exempt.
    pub refuse_new: fn(&Value) -> Option<String>,
}

impl FieldType {
    pub const fn new(
        name: &'static str,
        about: &'static str,
        class: StorageClass,
        read: fn(&Field, &Json<'_>, &mut FaultCollector) -> Option<Value>,
    ) -> Self {
        Self {
            name,
            about,
            class,
            keys: &[],
            mandatory_keys: &[],
            key_refusal: |_| None,
            replacement_when_nested: None,
            replacement_when_repeated: None,
            implying_key: None,
            default_sources: &[],
            expression_hint: None,
            synonyms: &[],
            is_searchable_text: false,
            chars_max: None,
            json_format: None,
            json_pattern: None,
            example: None,
            read,
            refuse_new: |_| None,
        }
    }
}

/// A mandatory key of a type.
#[derive(Debug)]
pub struct MandatoryKey {
    pub key: &'static str,
    /// The message if it is missing.
    pub missing: &'static str,
    pub help: &'static str,
}

/// The message after the name of a key that is not allowed, and the help.
pub type KeyRefusal = (&'static str, &'static str);

/// The storage class of a value, independent of the database: field types name a class, never a column type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageClass {
    Text,
    Integer,
    Decimal,
    Real,
    Boolean,
    Moment,
    Json,
}

/// The resource that a `ref` field references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReferenceTarget {
    pub resource: ResourceIndex,
    /// The kind of id of that resource.
    pub id: IdKind,
    pub on_delete: OnDelete,
}

/// The `where` of a `ref` field: a condition on the item that it refers to.
#[derive(Debug, Clone)]
pub struct ReferenceRule {
    /// Its source text.
    pub text: Box<str>,
    pub test: Arc<MemberTest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDelete {
    Restrict,
    Cascade,
    /// The reference is removed; a field of type `ref` loses its value, and is optional.
    Clear,
    /// Deleted later, in batches, without entries in the change log; built-in resources only. Until then the items
    /// are invisible, because reads join their parent.
    DeleteLater,
}

/// A declared state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateMachine {
    pub initial: Box<str>,
    /// Each state with its allowed successors, whoever may choose them.
    pub next: Vec<(Box<str>, Vec<Box<str>>)>,
    /// The transitions that only some roles may make.
    pub limits: Vec<TransitionLimit>,
    /// Removed states, each with the state that a migration gives to its items.
    pub moved_to: Vec<(Box<str>, Box<str>)>,
}

/// A transition that only some roles, and admins, may make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransitionLimit {
    pub from: Box<str>,
    pub to: Box<str>,
    pub roles: Vec<Box<str>>,
}

impl StateMachine {
    pub fn successors(&self, from: &str) -> &[Box<str>] {
        self.next.iter().find(|(state, _)| &**state == from).map_or(&[], |(_, next)| next)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deprecated {
    pub since: Box<str>,
    pub sunset: Option<Box<str>>,
    pub use_instead: Option<Box<str>>,
}

impl Field {
    /// A field without rules that nothing requires.
    pub fn new(name: &str, kind: &'static FieldType) -> Self {
        Self {
            name: name.into(),
            kind,
            required: false,
            nullable: false,
            filter: false,
            is_matched: false,
            order: TextOrder::CodePoints,
            derived_version: DERIVED_VERSION,
            secret: false,
            server_set: false,
            fixed: false,
            is_retained: false,
            default: None,
            default_from: None,
            computed: None,
            audit: None,
            rules: FieldRules::default(),
            deprecated: None,
            renamed_from: None,
            fill: None,
        }
    }

    /// Whether the server makes its value on every write, whatever a client sends.
    pub fn is_made_by_server(&self) -> bool {
        self.computed.is_some() || self.audit.is_some()
    }

    /// The texts that are stored beside its own.
    pub fn derivations(&self) -> impl Iterator<Item = Derivation> {
        let (is_matched, order) = (self.is_matched, self.order);
        Derivation::ALL.into_iter().filter(move |derivation| match derivation {
            Derivation::Folded => is_matched,
            Derivation::SortKey => order == TextOrder::Unicode,
        })
    }

    /// Whether its texts are short enough to be sorted as a whole.
    pub fn is_sorted_whole(&self) -> bool {
        let FieldRules { max_length, one_of, states, reference: to, .. } = &self.rules;
        let fits = |chars: usize| chars <= SORTED_CHARS_MAX;
        let has_short = |value: &Value| match value {
            Value::Text(text) => fits(text.chars().count()),
            _ => true,
        };
        let are_states_short =
            |states: &StateMachine| states.next.iter().all(|(state, _)| fits(state.len()));
        self.storage_class() != StorageClass::Text
            || to.is_some()
            || max_length.is_some_and(fits)
            || self.kind.chars_max.is_some_and(fits)
            || (!one_of.is_empty() && one_of.iter().all(has_short))
            || states.as_ref().is_some_and(are_states_short)
    }

    /// The field among those of an older model that this one continues, and its index: by its name, or by its former
    /// name.
    pub fn find_former<'f>(&self, old: &'f [Self]) -> Option<(usize, &'f Self)> {
        let by_name = |name: &str| old.iter().enumerate().find(|(_, one)| *one.name == *name);
        by_name(&self.name).or_else(|| by_name(self.renamed_from.as_deref()?))
    }

    /// The field at the end of a path of names inside this one, which is an object.
    pub fn inner(&self, path: &[Box<str>]) -> Option<&Self> {
        path.iter().try_fold(self, |field, name| {
            field.rules.fields.iter().find(|inner| inner.name == *name)
        })
    }

    /// The target of its references, if it is a field of type `refs`.
    pub fn many_references(&self) -> Option<ReferenceTarget> {
        self.rules.element.as_ref()?.rules.reference
    }

    /// The storage class of its values; a reference has that of the id that it holds.
    pub fn storage_class(&self) -> StorageClass {
        match self.rules.reference {
            Some(ReferenceTarget { id: IdKind::Integer, .. }) => StorageClass::Integer,
            _ => self.kind.class,
        }
    }
}
