//! Authentication by Basic (RFC 7617): the scheme combined with stored users, caches and the hasher.
//!
//! A login that the credential cache knows costs no hash. Any other costs the same whether its user exists or
//! not: one read, one hash.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::account::UserAccount;
use super::basic::{self, BasicCredentials};
use super::credential_cache::{CachedLogin, CredentialCache};
use super::fair_queue::{HashPriority, HasherBusy};
use super::hasher::WrongPassword;
use super::lockout::Lockout;
use super::logins::Logins;
use super::password;
use super::request::{AuthRequest, AuthenticationInfo, Denial, Identification};
use crate::clock;
use crate::model::builtin::PASSWORD;
use crate::plan::{ChangeAuthor, WritePlan};
use crate::store::WriteOptions;
use crate::value::Value;

/// How long a login waits to store the Digest credentials that it derives from a password.
const COMPLETE_TIMEOUT: Duration = Duration::from_secs(5);
/// When a client may retry that found the queue of the hasher full.
const BUSY_RETRY: Duration = Duration::from_secs(1);

/// Verifies Basic credentials.
pub(super) async fn authenticate(
    logins: &Logins,
    request: &AuthRequest<'_>,
    credentials: &[u8],
) -> Result<Identification, Denial> {
    let AuthRequest { store, now, .. } = *request;
    let mac = logins.credentials.credentials_mac(credentials);
    if let Some(known) = logins.credentials.find_login(&mac, now)
        && let Some(user) = logins.users.find(store, &known.user.name, now).await?.user
        && known.user.is_same_login(&user)
    {
        logins.credentials.cache_login(mac, known, now);
        return Ok(Identification::user(&user, AuthenticationInfo::Absent));
    }
    let pair = basic::read(credentials).ok_or(Denial::WRONG)?;
    logins.check_lockout(request, &pair.name)?;
    Box::pin(check_password(logins, request, mac, pair)).await
}

async fn check_password(
    logins: &Logins,
    request: &AuthRequest<'_>,
    mac: [u8; 32],
    pair: BasicCredentials,
) -> Result<Identification, Denial> {
    let check = PasswordCheck {
        credentials_mac: mac,
        user: logins.users.read(request.store, &pair.name, request.now).await?,
        credentials: pair.clone(),
        address: request.address,
        cache: Arc::clone(&logins.credentials),
        lockout: Arc::clone(&logins.lockout),
    };
    let priority = HashPriority::Unauthenticated(request.address);
    let user = match logins.hasher.run(priority, || check.run()).await {
        Ok(verdict) => verdict?,
        Err(HasherBusy) => return Err(Denial::LockedOut(BUSY_RETRY)),
    };
    complete_digest_credentials(logins, request, &user, &pair.password).await;
    let known = CachedLogin { user: Arc::clone(&user), until: request.now };
    logins.credentials.cache_login(mac, known, request.now);
    Ok(Identification::user(&user, AuthenticationInfo::Absent))
}

/// Derives Digest credentials for realms that were added after the password was set: only now is the
/// password known in clear.
async fn complete_digest_credentials(
    logins: &Logins,
    request: &AuthRequest<'_>,
    user: &UserAccount,
    password: &str,
) {
    let Logins { model, signer, .. } = logins;
    if !password::lacks_digests(&user.record, model, &signer.keyring.keys()) {
        return;
    }
    // A rotation may be in progress: what this login seals must be sealed with the new key.
    let keys = signer.keyring.reload_if_changed();
    let mut record = user.record.clone();
    if record.complete(model, &keys, &user.name, password).is_err() {
        return;
    }
    let by = ChangeAuthor::without_user(&user.name, request.id);
    let stored = (user.id, user.version);
    let record = Value::text(&record.to_string());
    let write = WritePlan::change_user(model, stored, [(PASSWORD, record)], by);
    // If another login was faster, or the write fails, the next login tries again.
    let options = WriteOptions::with_deadline(request.now + COMPLETE_TIMEOUT);
    let _ = request.store.write(Box::new(write), options).await;
    logins.users.invalidate();
}

/// A password, to be checked on the hasher's thread: compared and counted in one step. A correct password may
/// be refused without a comparison, because too many failures came before.
struct PasswordCheck {
    credentials_mac: [u8; 32],
    /// The user of this name.
    user: Option<Arc<UserAccount>>,
    credentials: BasicCredentials,
    address: IpAddr,
    cache: Arc<CredentialCache>,
    lockout: Arc<Lockout>,
}

impl PasswordCheck {
    /// There is one hasher thread, so no other check runs between this one's read of the lockout and its
    /// count: concurrent guesses get no more comparisons than sequential ones.
    fn run(self) -> (Result<Arc<UserAccount>, Denial>, WrongPassword) {
        let Self { credentials_mac, user, credentials, address, cache, lockout } = self;
        let BasicCredentials { name, password } = &credentials;
        let now = clock::now();
        // A client with many connections sends the same credentials on all of them before the first is
        // answered.
        if let (Some(user), Some(known)) = (&user, cache.find_login(&credentials_mac, now))
            && known.user.is_same_login(user)
        {
            return (Ok(Arc::clone(user)), WrongPassword::No);
        }
        if let Some(time) = lockout.locked_out_for(name, address, now) {
            return (Err(Denial::LockedOut(time)), WrongPassword::No);
        }
        let is_right = password::verify(user.as_ref().map(|user| &user.record), password);
        let wrong = if is_right { WrongPassword::No } else { WrongPassword::Yes };
        // Digest failures may have reached the limit during the hash.
        let verdict = match user.filter(|user| is_right && !user.is_disabled) {
            Some(user) => lockout.locked_out_for(name, address, clock::now()).map_or(Ok(user), Err),
            None => Err(match lockout.count_failure(name, address, clock::now()) {
                Ok(()) => return (Err(Denial::WrongPassword), wrong),
                Err(time) => time,
            }),
        };
        (verdict.map_err(Denial::LockedOut), wrong)
    }
}
