//! The startup check of stored Digest credentials against the realms of the model.
//!
//! HA1 holds the name of its realm, so a realm that is renamed or removed makes what is stored for it
//! unusable. The check changes nothing: it warns with the number of users and the ways out.

use std::collections::BTreeSet;

use super::Refusal;
use super::accounts::{self, user_page};
use crate::auth::password::Record;
use crate::log::{Level, Log};
use crate::model::Model;
use crate::store::Beside;

/// Warns if users have Digest credentials and yet none for a realm that offers Digest now.
pub(super) fn warn_unusable(beside: &mut Beside, model: &Model, log: &Log) -> Result<(), Refusal> {
    let (mut count, mut realms) = (0_u64, BTreeSet::new());
    let mut after = None;
    loop {
        let (users, next) = user_page(beside, model, after)?;
        for user in &users {
            // What is damaged is told when its user logs in.
            let Some(record) = Record::parse(accounts::record(user)) else { continue };
            let unusable = record.unusable_realms(model);
            count += u64::from(!unusable.is_empty());
            realms.extend(unusable.into_iter().map(str::to_owned));
        }
        match next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let Some(first) = realms.first() else { return Ok(()) };
    let help = format!(
        "declare the realm as it was, such as [realms.{first:?}]; or let each of them log in once by Basic \
         where it is offered, or set their passwords: nouns user passwd NAME"
    );
    let realms = realms.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    log.event(
        Level::Warning,
        "users cannot log in by Digest: their stored credentials are for realms or algorithms that the model \
         does not offer",
        &[("users", &count), ("realms", &realms), ("help", &help)],
    );
    Ok(())
}
