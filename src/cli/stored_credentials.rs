//! The startup check of stored Digest credentials against the realms of the model.
//!
//! HA1 covers the name of its realm, so renaming or removing a realm makes the credentials stored for it
//! unusable. The check changes nothing: it warns with the number of users and the ways to fix it.

use std::collections::BTreeSet;

use super::accounts::{self, user_page};
use super::report::CommandError;
use crate::auth::password::PasswordRecord;
use crate::log::{Level, Logger};
use crate::model::Model;
use crate::store::AdminStore;

/// Warns if users have no usable Digest credentials for a realm that offers Digest now, and have credentials
/// that the model does not use. The check cannot know whether the realm was renamed or is new, so the warning
/// names both remedies.
pub fn warn_unusable(
    admin_store: &mut AdminStore,
    model: &Model,
    log: &Logger,
) -> Result<(), CommandError> {
    let (mut count, mut lacking, mut unused) = (0_u64, BTreeSet::new(), BTreeSet::new());
    let mut after = None;
    loop {
        let (users, next) = user_page(admin_store, model, after)?;
        for user in &users {
            // A damaged record is reported when its user logs in.
            let Some(record) = PasswordRecord::parse(accounts::password_record(user)) else {
                continue;
            };
            let Some(mut mismatch) = record.digest_mismatch(model) else { continue };
            count += 1;
            lacking.append(&mut mismatch.lacking);
            unused.append(&mut mismatch.unused);
        }
        match next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let Some(first) = unused.first() else { return Ok(()) };
    let help = format!(
        "if a realm was renamed or has other algorithms now, declare it as it was, such as [realms.{first:?}]; \
         or let each of them log in once by Basic where it is offered, or set their passwords: nouns user passwd NAME"
    );
    let joined = |realms: &BTreeSet<String>| {
        realms.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    };
    log.event(
        Level::Warning,
        "users cannot log in by Digest in some realms: their stored credentials are for realms or algorithms that \
         the model does not offer",
        &[
            ("users", &count),
            ("realms", &joined(&lacking)),
            ("stored_for", &joined(&unused)),
            ("help", &help),
        ],
    );
    Ok(())
}
