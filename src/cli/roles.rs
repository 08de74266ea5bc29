//! Roles of users that the model does not declare, as after a role was renamed: they grant nothing.

use crate::json::{self, Json};
use crate::model::Model;
use crate::model::builtin::ADMIN;
use crate::store::RoleGroup;

/// The maximum number of names shown; the rest are counted.
const SHOWN_MAX: usize = 10;

/// The undeclared roles of all users, for a warning to the operator.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RoleReview {
    pub has_admin: bool,
    /// Undeclared roles, without duplicates.
    undeclared: Vec<String>,
    /// How many users have one, and the first name of each combination of roles.
    pub users: i64,
    examples: Vec<String>,
}

impl RoleReview {
    pub fn new(model: &Model, groups: &[RoleGroup]) -> Self {
        let mut review = Self::default();
        for group in groups {
            let roles = parse_names(&group.roles);
            review.has_admin |= !group.is_disabled && roles.iter().any(|role| role == ADMIN);
            let unknown = undeclared(model, roles);
            if !unknown.is_empty() {
                review.users += group.count;
                review.examples.push(group.example.clone());
                review.undeclared.extend(unknown);
            }
        }
        review.undeclared.sort();
        review.undeclared.dedup();
        review
    }

    /// The undeclared roles, if there are any.
    pub fn undeclared(&self) -> Option<String> {
        (!self.undeclared.is_empty()).then(|| join_limited(&self.undeclared))
    }

    /// Some of the users who have undeclared roles.
    pub fn examples(&self) -> String {
        join_limited(&self.examples)
    }
}

/// The names in a list of roles, as JSON text.
pub fn parse_names(roles: &str) -> Vec<String> {
    let Ok(Json::List(roles)) = json::parse(roles.as_bytes(), 2) else { return Vec::new() };
    let name = |role: &Json<'_>| match role {
        Json::Text(role) => Some(role.to_string()),
        _ => None,
    };
    roles.iter().filter_map(name).collect()
}

/// The roles that the model does not declare.
pub fn undeclared(model: &Model, roles: Vec<String>) -> Vec<String> {
    let is_known =
        |role: &str| role == ADMIN || model.roles.iter().any(|declared| &*declared.name == role);
    roles.into_iter().filter(|role| !is_known(role)).collect()
}

fn join_limited(names: &[String]) -> String {
    let more = names.len().saturating_sub(SHOWN_MAX);
    let shown = names.iter().take(SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_review_names_a_bounded_number_of_undeclared_roles() {
        let text = "title = \"T\"\n[resources.thing]\n[roles.clerk]\nthing = [\"get\"]\n";
        let model = crate::model::read("t.toml", text).unwrap();
        let group = |roles: &str, is_disabled, example: &str| RoleGroup {
            roles: roles.to_owned(),
            is_disabled,
            count: 2,
            example: example.to_owned(),
        };
        let good = [group("[\"clerk\"]", false, "ann"), group("[\"admin\"]", false, "bob")];
        let review = RoleReview::new(&model, &good);
        assert_eq!((review.has_admin, review.undeclared()), (true, None));
        let dead = [group("[\"boss\",\"clerk\"]", false, "ann"), group("[\"admin\"]", true, "bob")];
        let review = RoleReview::new(&model, &dead);
        assert_eq!((review.has_admin, review.undeclared().as_deref()), (false, Some("boss")));
        assert_eq!((review.users, review.examples().as_str()), (2, "ann"));
        let many: Vec<_> =
            (10..30).map(|number| group(&format!("[\"r{number}\"]"), false, "x")).collect();
        let review = RoleReview::new(&model, &many);
        assert_eq!(
            review.undeclared().as_deref(),
            Some("r10, r11, r12, r13, r14, r15, r16, r17, r18, r19 and 10 more")
        );
    }
}
