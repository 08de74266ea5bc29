//! Secrets on their way through a plan: found, to be replaced by what may be stored.
//!
//! A secret that was sent is a `Value::Clear`, which no store takes; whoever has to make something
//! else of it finds it here.

use super::{Action, Draft, Values, Write};
use crate::model::own::{NAME, PASSWORD};
use crate::model::{Model, Resource};
use crate::value::Value;

impl Write {
    /// Of each draft of a user in which a password was sent: the user's name, and the password, which
    /// is `Value::Clear` until it is replaced.
    pub fn secrets(&mut self, model: &Model) -> impl Iterator<Item = (&str, &mut Value)> {
        let is_users = self.collection.resource == model.users;
        let drafts = drafts_mut(&mut self.action).iter_mut().filter(move |_| is_users);
        drafts.filter_map(|draft| match &mut draft.values {
            Values::Complete(values) => {
                let [name, password] = values.get_disjoint_mut([NAME, PASSWORD]).ok()?;
                pair(name, password)
            }
            Values::Partial(values) => {
                let [name, password] = values.get_disjoint_mut([NAME, PASSWORD]).ok()?;
                pair(name.as_mut()?, password.as_mut()?)
            }
        })
    }

    /// Whether a secret is still as it was sent.
    pub fn has_clear(&self, model: &Model) -> bool {
        let resource: &Resource = model.resource(self.collection.resource);
        if !resource.fields.iter().any(|field| field.secret) {
            return false;
        }
        let is_clear = |value: &Value| matches!(value, Value::Clear(_));
        drafts(&self.action).iter().any(|draft| match &draft.values {
            Values::Complete(values) => values.iter().any(is_clear),
            Values::Partial(values) => values.iter().flatten().any(is_clear),
        })
    }
}

fn pair<'a>(name: &'a mut Value, password: &'a mut Value) -> Option<(&'a str, &'a mut Value)> {
    match name {
        Value::Text(name) => Some((name, password)),
        _ => None,
    }
}

fn drafts_mut(action: &mut Action) -> &mut [Draft] {
    match action {
        Action::Create { drafts, .. } => drafts,
        Action::Replace { draft, .. } => std::slice::from_mut(draft),
        Action::Remove { .. } => &mut [],
    }
}

fn drafts(action: &Action) -> &[Draft] {
    match action {
        Action::Create { drafts, .. } => drafts,
        Action::Replace { draft, .. } => std::slice::from_ref(draft),
        Action::Remove { .. } => &[],
    }
}
