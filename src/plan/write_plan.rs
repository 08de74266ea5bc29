//! Writes, planned: one transaction as data, and the secrets in it.
//!
//! A secret that was sent is a `Value::ClearText`, which no store accepts; `auth` replaces it before the
//! write. `auth` also implements the check of a user's rights, for a write that waited.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::collection::Collection;
use super::idempotency::IdempotentRequest;
use super::validate::{DraftValues, ItemDraft};
use crate::fault::OrBug;
use crate::intent::Patch;
use crate::intent::preconditions::Preconditions;
use crate::model::builtin::webhook::{DISABLED_REASON, ENABLED, SECRET};
use crate::model::builtin::{NAME, PASSWORD};
use crate::model::expr::UserValues;
use crate::model::{Model, Resource};
use crate::permit::{AccessScope, Caller};
use crate::value::{Id, Item, Value};

const USER_FIELDS: &str = "a user has a name and a password";

/// Why a webhook is disabled whose secret was dropped.
const SECRET_LOST: &str = "the key that sealed its secret is lost: set a new secret";

/// One transaction that may change something.
#[derive(Debug, Clone)]
pub struct WritePlan {
    pub collection: Collection,
    pub action: WriteAction,
    /// The preconditions that the item must meet.
    pub preconditions: Preconditions,
    pub author: ChangeAuthor,
    /// Set for a request with an `Idempotency-Key`.
    pub idempotency: Option<Box<IdempotentRequest>>,
    /// Whether it may remove the last administrator.
    pub can_remove_last_admin: bool,
    /// `None`: the write needs no user's rights, or the rights cannot be revoked.
    pub rights_lease: Option<RightsLease>,
}

impl WritePlan {
    /// An unconditional write without an idempotency key, whose rights are not checked again.
    pub fn new(collection: Collection, action: WriteAction, author: ChangeAuthor) -> Self {
        Self {
            collection,
            action,
            preconditions: Preconditions::default(),
            author,
            idempotency: None,
            can_remove_last_admin: false,
            rights_lease: None,
        }
    }

    /// The write that creates a user. `values` are in the order of the user's fields, with the password
    /// hashed; declared fields may be left out.
    pub fn create_user(model: &Model, mut values: Vec<Value>, by: ChangeAuthor) -> Self {
        values.resize(model.resource(model.users).fields.len(), Value::Null);
        let drafts = vec![user_draft(DraftValues::Complete(values))];
        let action = WriteAction::Create { drafts, count: Cardinality::One };
        Self::new(Collection::users(model), action, by)
    }

    /// The write that changes values of a user, by the indices of their fields, unless the user has changed since that version.
    pub fn change_user(
        model: &Model,
        (id, version): (Id, i64),
        changes: impl IntoIterator<Item = (usize, Value)>,
        by: ChangeAuthor,
    ) -> Self {
        let mut values: Vec<_> = model.resource(model.users).fields.iter().map(|_| None).collect();
        for (at, value) in changes {
            *values.get_mut(at).or_bug("the resource of users has this field") = Some(value);
        }
        let draft = user_draft(DraftValues::Partial(values));
        let action = WriteAction::Replace { id, draft };
        let preconditions = Preconditions::if_version(version);
        Self { preconditions, ..Self::new(Collection::users(model), action, by) }
    }

    /// The write that disables a webhook, unless it has changed since that version.
    pub fn disable_webhook(
        model: &Model,
        (id, version): (Id, i64),
        reason: &str,
        by: ChangeAuthor,
    ) -> Self {
        let fields = &model.resource(model.webhooks).fields;
        let value = |at: usize| match at {
            ENABLED => Some(Value::Boolean(false)),
            DISABLED_REASON => Some(Value::text(reason)),
            _ => None,
        };
        let values = (0..fields.len()).map(value).collect();
        Self::change_webhook(model, (id, version), values, by)
    }

    /// The write that disables a webhook whose secret no key opens, and drops the secret, unless the webhook has
    /// changed since that version.
    pub fn drop_webhook_secret(model: &Model, (id, version): (Id, i64), by: ChangeAuthor) -> Self {
        let fields = &model.resource(model.webhooks).fields;
        let value = |at: usize| match at {
            SECRET => Some(Value::text("")),
            ENABLED => Some(Value::Boolean(false)),
            DISABLED_REASON => Some(Value::text(SECRET_LOST)),
            _ => None,
        };
        let values = (0..fields.len()).map(value).collect();
        Self::change_webhook(model, (id, version), values, by)
    }

    fn change_webhook(
        model: &Model,
        (id, version): (Id, i64),
        values: Vec<Option<Value>>,
        by: ChangeAuthor,
    ) -> Self {
        let values = DraftValues::Partial(values);
        let draft = ItemDraft { root: String::new(), values, references: Vec::new() };
        let collection = Collection::nested(model.webhooks, Vec::new(), AccessScope::default());
        let preconditions = Preconditions::if_version(version);
        Self { preconditions, ..Self::new(collection, WriteAction::Replace { id, draft }, by) }
    }

    /// Whether it is a patch that may hold a secret, and is not yet applied.
    pub fn is_patch_with_secret(&self, model: &Model) -> bool {
        let has_secret = [model.users, model.webhooks].contains(&self.collection.resource);
        has_secret && matches!(self.action, WriteAction::Patch { .. })
    }

    /// For each draft of a user with a password: the user's name, and the password, which is `Value::ClearText`
    /// until it is replaced.
    pub fn secrets(&mut self, model: &Model) -> impl Iterator<Item = (&str, &mut Value)> {
        let is_users = self.collection.resource == model.users;
        let drafts = drafts_mut(&mut self.action).iter_mut().filter(move |_| is_users);
        drafts.filter_map(|draft| match &mut draft.values {
            DraftValues::Complete(values) => {
                let [name, password] =
                    values.get_disjoint_mut([NAME, PASSWORD]).or_bug(USER_FIELDS);
                name_and_password(name, password)
            }
            DraftValues::Partial(values) => {
                let [name, password] =
                    values.get_disjoint_mut([NAME, PASSWORD]).or_bug(USER_FIELDS);
                name_and_password(name.as_mut()?, password.as_mut()?)
            }
        })
    }

    /// The secrets of webhooks that the request sets, which are `Value::ClearText` until they are replaced.
    pub fn webhook_secrets(&mut self, model: &Model) -> impl Iterator<Item = &mut Value> {
        let is_webhooks = self.collection.resource == model.webhooks;
        let drafts = drafts_mut(&mut self.action).iter_mut().filter(move |_| is_webhooks);
        let secrets = drafts.filter_map(|draft| match &mut draft.values {
            DraftValues::Complete(values) => values.get_mut(SECRET),
            DraftValues::Partial(values) => values.get_mut(SECRET)?.as_mut(),
        });
        secrets.filter(|secret| matches!(secret, Value::ClearText(_)))
    }

    /// Whether a secret is still in clear text.
    pub fn has_clear_text(&self, model: &Model) -> bool {
        let resource: &Resource = model.resource(self.collection.resource);
        if !resource.fields.iter().any(|field| field.secret) {
            return false;
        }
        drafts(&self.action).iter().any(ItemDraft::has_clear_text)
    }
}

/// The author of a change, as the change log records it.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeAuthor {
    pub actor: Box<str>,
    pub request_id: Box<str>,
    /// The name of the user; `None` for a caller without one, and for the server itself.
    pub user: Option<Box<str>>,
    /// The values of the declared fields of the user.
    pub user_fields: Arc<[Value]>,
}

impl ChangeAuthor {
    pub fn of_caller(caller: &Caller, request_id: &str) -> Self {
        Self {
            user: caller.user_name().map(Into::into),
            user_fields: Arc::clone(caller.user_fields()),
            ..Self::without_user(caller.name(), request_id)
        }
    }

    /// A caller without a user, or the server itself.
    pub fn without_user(actor: &str, request_id: &str) -> Self {
        let (actor, request_id) = (actor.into(), request_id.into());
        Self { actor, request_id, user: None, user_fields: Arc::default() }
    }

    /// What defaults are made from.
    pub fn user_values(&self) -> UserValues<'_> {
        UserValues { name: self.user.as_deref(), fields: &self.user_fields }
    }
}

#[derive(Debug, Clone)]
pub enum WriteAction {
    Create {
        drafts: Vec<ItemDraft>,
        count: Cardinality,
    },
    Replace {
        id: Id,
        draft: ItemDraft,
    },
    /// The store turns it into a `Replace` once the item is known.
    Patch {
        id: Id,
        patch: Patch,
    },
    Remove {
        id: Id,
        dependents_max: usize,
    },
}

/// Whether the client sent one item or a list; the response has the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cardinality {
    One,
    Many,
}

/// An authenticated user whose rights a write uses.
pub trait RightsHolder: fmt::Debug + Send + Sync {
    fn name(&self) -> &str;

    /// Whether the stored user of this name is still the same user, with the same password, roles and declared fields,
    /// and not disabled.
    fn is_still_valid(&self, stored: Option<&Item>) -> bool;
}

/// The user whose rights permitted a write, and until when these rights need not be checked again.
#[derive(Debug, Clone)]
pub struct RightsLease {
    pub user: Arc<dyn RightsHolder>,
    pub valid_until: Instant,
}

fn user_draft(values: DraftValues) -> ItemDraft {
    ItemDraft { root: "/user".to_owned(), values, references: Vec::new() }
}

fn name_and_password<'a>(
    name: &'a mut Value,
    password: &'a mut Value,
) -> Option<(&'a str, &'a mut Value)> {
    match name {
        Value::Text(name) => Some((name, password)),
        _ => None,
    }
}

fn drafts_mut(action: &mut WriteAction) -> &mut [ItemDraft] {
    match action {
        WriteAction::Create { drafts, .. } => drafts,
        WriteAction::Replace { draft, .. } => std::slice::from_mut(draft),
        WriteAction::Patch { .. } | WriteAction::Remove { .. } => &mut [],
    }
}

fn drafts(action: &WriteAction) -> &[ItemDraft] {
    match action {
        WriteAction::Create { drafts, .. } => drafts,
        WriteAction::Replace { draft, .. } => std::slice::from_ref(draft),
        WriteAction::Patch { .. } | WriteAction::Remove { .. } => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::{self, PathIds, RequestVerb, ResourcePath, Route, RouteTarget};
    use crate::model;
    use crate::plan::{ChangeAuthor, Plan, make};
    use crate::value::{Id, IdKind};

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    fn planned(model: &Model, item: Option<Id>, body: &str) -> WritePlan {
        let ids = PathIds { ancestors: Vec::new(), item };
        let address = ResourcePath::nested(model.users, ids);
        let (verb, place) = match item {
            None => (RequestVerb::Post, RouteTarget::Collection(address)),
            Some(_) => (RequestVerb::Put, RouteTarget::Item(address)),
        };
        let intent = intent::read(
            model,
            Route { verb, target: place },
            (None, &intent::AllReadable),
            body.as_bytes(),
        )
        .unwrap();
        match make(model, intent, &Caller::open(model), || ChangeAuthor::without_user("-", "-"))
            .unwrap()
        {
            Plan::Write(write) => *write,
            other => panic!("{other:?}"),
        }
    }

    /// Every secret is found with its user's name, no `Debug` output shows it, and none is left when all are
    /// replaced.
    #[track_caller]
    fn check(item: Option<Id>, body: &str, expected: &[(&str, &str)]) {
        let text = "title = \"T\"\n[resources.thing.fields]\nname = { type = \"text\" }\n";
        let model = model::read("t.toml", text).unwrap();
        let mut write = planned(&model, item, body);
        assert!(!format!("{write:?}").contains("secret "), "{write:?}");
        assert_eq!(write.has_clear_text(&model), !expected.is_empty());
        let mut found = Vec::new();
        for (name, secret) in write.secrets(&model) {
            let Value::ClearText(clear) = &*secret else { panic!("{secret:?}") };
            found.push((name.to_owned(), clear.reveal().to_owned()));
            *secret = Value::text("concealed");
        }
        let found: Vec<_> = found.iter().map(|(name, clear)| (&**name, &**clear)).collect();
        assert_eq!(found, expected);
        assert!(!write.has_clear_text(&model));
        assert_eq!(write.secrets(&model).count(), expected.len());
    }

    #[test]
    fn secrets_are_found_with_their_user_and_replaced() {
        let id = IdKind::Uuid.parse(ID);
        check(None, r#"{"user":{"name":"ann","password":"secret a"}}"#, &[("ann", "secret a")]);
        check(
            None,
            r#"{"users":[{"name":"ann","password":"secret a"},{"password":"secret b","name":"bea"}]}"#,
            &[("ann", "secret a"), ("bea", "secret b")],
        );
        check(id, r#"{"user":{"name":"ann","password":"secret a"}}"#, &[("ann", "secret a")]);
        check(id, r#"{"user":{"name":"ann"}}"#, &[]);
    }

    #[test]
    #[should_panic(expected = "the resource of users has this field")]
    fn change_of_a_user_field_that_does_not_exist_panics() {
        let text = "title = \"T\"\n[resources.thing.fields]\nname = { type = \"text\" }\n";
        let model = model::read("t.toml", text).unwrap();
        let by = ChangeAuthor::without_user("-", "-");
        let _ = WritePlan::change_user(&model, (Id::Integer(1), 1), [(99, Value::Null)], by);
    }
}
