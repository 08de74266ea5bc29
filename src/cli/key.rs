//! `nouns key rotate`: key rotation, while servers run.
//!
//! It writes the new key before the old one into the file, reseals all records, stores the new fingerprint
//! in the database, and removes the old key. Interrupted at any point, the file holds all keys that are
//! needed, and the same command resumes, because a file with two keys means that a rotation is in progress.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::accounts::{self, Accounts, DatabaseArgs, wait_for_servers};
use super::report::{CommandError, command_error, print_done};
use crate::auth::key::{FINGERPRINT_NAME, KeySet};
use crate::auth::key_source::{KeyFileLock, KeySource};
use crate::auth::password::{PasswordRecord, ResealResult};
use crate::auth::webhook_secret::{self, ResealedSecrets};
use crate::fault;
use crate::model::builtin::PASSWORD;
use crate::value::Value;

/// The database stores the fingerprint of a rotation's new key under this name; empty without a rotation.
const ROTATION_NAME: &str = "key_rotation";
/// The maximum number of passes: a further pass finds work only if servers set passwords with the old key.
const PASSES_MAX: usize = 100;

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Replace the secret key and reseal stored credentials
    Rotate(RotateArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
It can be interrupted, and resumes when it is run again. Servers that use the same key file load the \
new key by themselves. Where others have copies of it, run it with --begin first, copy the file, which \
then holds both keys, to them, run it again without --begin, and copy the file once more.

With --lost the old key is not needed. What it has sealed is dropped: users whose realm offers Basic get \
back to Digest with their next login by Basic, the others with a new password.")]
pub struct RotateArgs {
    /// Add the new key to the key file, and stop
    #[arg(long, conflicts_with = "lost")]
    begin: bool,

    /// The old key is lost
    #[arg(long)]
    lost: bool,

    #[command(flatten)]
    database_args: DatabaseArgs,
}

pub fn run(command: &KeyCommand) -> Result<ExitCode, CommandError> {
    let KeyCommand::Rotate(flags) = command;
    rotate(flags)?;
    Ok(ExitCode::SUCCESS)
}

fn rotate(flags: &RotateArgs) -> Result<(), CommandError> {
    let mut accounts = flags.database_args.locate()?.check_key()?.open()?;
    let source = accounts.key_source()?;
    if let KeySource::Environment(_) = source {
        return Err(command_error(
            "the key in NOUNS_KEY cannot be rotated, because a variable cannot be changed from here; put it \
             into a file, rotate that with --key-file, and set NOUNS_KEY to what the file then holds",
        ));
    }
    let held = source.lock()?;
    let Some(stored) = accounts.fingerprint()? else {
        return Err(command_error(
            "this database has no key yet; one is made with its first user, by nouns serve or nouns user add",
        ));
    };
    let keys = match flags.lost {
        false => begin_rotation(&mut accounts, (&source, &held), &stored)?,
        true => begin_lost_rotation(&mut accounts, (&source, &held), &stored)?,
    };
    fault::point("rotate");
    if flags.begin {
        print_done(format_args!(
            "{} holds the new key and the old one; copy it to the other servers, then: nouns key rotate",
            source.name()
        ));
        return Ok(());
    }
    let counts = reseal_all(&mut accounts, &keys)?;
    fault::point("rotate");
    accounts.admin_store.write_system_value(FINGERPRINT_NAME, &keys.fingerprint())?;
    fault::point("rotate");
    source.write(&held, &keys.end_rotation())?;
    fault::point("rotate");
    set_rotation(&mut accounts, "")?;
    print_done(summary(&source.name(), flags.lost, counts));
    Ok(())
}

/// Users and webhooks whose stored secrets were rewritten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ResealCounts {
    /// Users who kept all of their Digest credentials.
    resealed: usize,
    /// Users who lost some or all of them, because no key opened them.
    dropped: usize,
    /// Webhooks that kept their secret.
    resealed_webhooks: usize,
    /// Webhooks that lost it, and are disabled.
    dropped_webhooks: usize,
}

impl ResealCounts {
    fn add(&mut self, other: Self) {
        self.resealed += other.resealed;
        self.dropped += other.dropped;
        self.resealed_webhooks += other.resealed_webhooks;
        self.dropped_webhooks += other.dropped_webhooks;
    }
}

fn summary(file: &str, is_lost: bool, counts: ResealCounts) -> String {
    let counted = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    let users = |count: usize| counted(count, "user");
    let mut done = match is_lost {
        true => format!("wrote a new key to {file} in place of the lost one"),
        false => format!(
            "rotated the key in {file}; resealed the credentials of {}",
            users(counts.resealed)
        ),
    };
    if is_lost && counts.resealed > 0 {
        done += &format!("; resealed the credentials of {}", users(counts.resealed));
    }
    if is_lost || counts.dropped > 0 {
        done += &format!("; dropped the Digest credentials of {}", users(counts.dropped));
    }
    if counts.dropped > 0 {
        done += ", who can use Digest again after their next login by Basic, where their realm offers it, \
                 or with a new password: nouns user passwd NAME";
    }
    if counts.resealed_webhooks > 0 {
        let webhooks = counted(counts.resealed_webhooks, "webhook");
        done += &format!("; resealed the secrets of {webhooks}");
    }
    if counts.dropped_webhooks > 0 {
        let webhooks = counted(counts.dropped_webhooks, "webhook");
        done += &format!(
            "; dropped the secrets of {webhooks}, disabled until they get new ones: \
             PATCH /-/webhooks/ID with {{\"webhook\":{{\"secret\":null,\"enabled\":true}}}}"
        );
    }
    done
}

/// The fingerprint of the new key of a rotation that has begun; empty without one.
fn rotation(accounts: &mut Accounts) -> Result<String, CommandError> {
    Ok(accounts.admin_store.read_system_value(ROTATION_NAME)?.unwrap_or_default())
}

fn set_rotation(accounts: &mut Accounts, fingerprint: &str) -> Result<(), CommandError> {
    Ok(accounts.admin_store.write_system_value(ROTATION_NAME, fingerprint)?)
}

/// Leaves both keys in the file; resumes a rotation that was begun already.
fn begin_rotation(
    accounts: &mut Accounts,
    (source, held): (&KeySource, &KeyFileLock),
    stored: &str,
) -> Result<KeySet, CommandError> {
    let keys = source.resolve(Some(stored))?.keys;
    let under_way = rotation(accounts)?;
    if !under_way.is_empty() && !keys.has_fingerprint(&under_way) {
        return Err(command_error(format!(
            "a rotation to the key of fingerprint {under_way} has begun elsewhere, and that key is not in {}; \
             finish it there, or copy that key file here",
            source.name()
        )));
    }
    if keys.is_rotating() {
        set_rotation(accounts, &keys.fingerprint())?;
        return Ok(keys);
    }
    let keys = keys.begin_rotation(KeySet::random()?);
    fault::point("rotate");
    source.write(held, &keys)?;
    fault::point("rotate");
    set_rotation(accounts, &keys.fingerprint())?;
    Ok(keys)
}

/// Leaves only a new key in the file.
fn begin_lost_rotation(
    accounts: &mut Accounts,
    (source, held): (&KeySource, &KeyFileLock),
    stored: &str,
) -> Result<KeySet, CommandError> {
    let under_way = rotation(accounts)?;
    match source.read()? {
        Some(keys) if keys.has_fingerprint(stored) => Err(command_error(format!(
            "{} holds the key of this database: it is not lost",
            source.name()
        ))),
        Some(keys) if keys.has_fingerprint(&under_way) => Ok(keys),
        Some(_) => Err(command_error(format!(
            "{} holds the key of another database, and is not overwritten; move it away, or name another --key-file",
            source.name()
        ))),
        None => {
            let keys = KeySet::random()?;
            fault::point("rotate");
            set_rotation(accounts, &keys.fingerprint())?;
            fault::point("rotate");
            source.write(held, &keys)?;
            Ok(keys)
        }
    }
}

/// Reseals the secrets of all users and webhooks until the new key has sealed everything.
fn reseal_all(accounts: &mut Accounts, keys: &KeySet) -> Result<ResealCounts, CommandError> {
    let mut all = ResealCounts::default();
    for pass in 0..PASSES_MAX {
        let mut counts = reseal_pass(accounts, keys)?;
        counts.add(reseal_webhooks(accounts, keys)?);
        all.add(counts);
        if counts == ResealCounts::default() && pass > 0 {
            return Ok(all);
        }
        // A server that did not know the new key yet may have set a password with the old one.
        wait_for_servers();
    }
    Err(command_error("servers still seal with the old key; restart them, then: nouns key rotate"))
}

/// Goes through all users once.
fn reseal_pass(accounts: &mut Accounts, keys: &KeySet) -> Result<ResealCounts, CommandError> {
    let mut counts = ResealCounts::default();
    accounts.for_each_user(|accounts, user| {
        let name = accounts::user_name(user);
        // A cheap check, and true in all but the first pass.
        if resealed_record(accounts::password_record(user), keys, name)?.is_none() {
            return Ok(());
        }
        fault::point("rotate");
        let mut dropped = 0;
        let changed = accounts.change(name, (PASSWORD, false), |user| {
            let sealed = resealed_record(accounts::password_record(user), keys, name)?;
            dropped = sealed.as_ref().map_or(0, |(_, dropped)| *dropped);
            Ok(sealed.map(|(value, _)| value))
        });
        match dropped {
            0 => counts.resealed += 1,
            1.. => counts.dropped += 1,
        }
        match changed {
            // Removed in the meantime.
            Err(_) if accounts.user(name).is_err() => Ok(()),
            done => done,
        }
    })?;
    Ok(counts)
}

/// Goes through all webhooks once.
fn reseal_webhooks(accounts: &mut Accounts, keys: &KeySet) -> Result<ResealCounts, CommandError> {
    let mut counts = ResealCounts::default();
    for stored in accounts.admin_store.webhook_secrets()? {
        match webhook_secret::reseal(keys, &stored.sealed) {
            Some(ResealedSecrets::Current) => {}
            Some(ResealedSecrets::Resealed(sealed)) => {
                fault::point("rotate");
                accounts.admin_store.replace_sealed_secret(&stored, &sealed)?;
                counts.resealed_webhooks += 1;
            }
            Some(ResealedSecrets::Lost) => {
                fault::point("rotate");
                accounts.drop_webhook_secret((stored.id, stored.version))?;
                counts.dropped_webhooks += 1;
            }
            None => return Err(command_error("the system has no randomness; try again")),
        }
    }
    Ok(counts)
}

/// The record with everything sealed by the first key, and how many credentials no key opened; `None` when
/// it is current already.
fn resealed_record(
    record: &str,
    keys: &KeySet,
    name: &str,
) -> Result<Option<(Value, usize)>, CommandError> {
    // A damaged record stays as it is.
    let Some(mut record) = PasswordRecord::parse(record) else { return Ok(None) };
    match record.reseal(keys, name) {
        Some(ResealResult { is_changed: true, dropped }) => {
            Ok(Some((Value::text(&record.to_string()), dropped)))
        }
        Some(ResealResult { is_changed: false, .. }) => Ok(None),
        None => Err(command_error("the system has no randomness; try again")),
    }
}
