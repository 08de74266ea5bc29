//! `nouns key rotate`: key rotation, while servers run.
//!
//! It writes the new key before the old one into the file, reseals all records, stores the new fingerprint
//! in the database, and removes the old key. The one surprising thing: interrupted at any point, the file
//! holds all keys that are needed, and the same command resumes, because a file with two keys means that a
//! rotation is in progress.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::accounts::{self, Accounts, Place, wait_for_servers};
use super::{Refusal, refusal, say};
use crate::auth::key::{FINGERPRINT, Held, Keys, Source};
use crate::auth::password::{Record, Resealed};
use crate::fault;
use crate::model::own::PASSWORD;
use crate::value::Value;

/// The database stores the fingerprint of the rotation's new key under this name; empty when there is none.
const ROTATION: &str = "key_rotation";
/// A pass finds nothing to do unless servers set passwords with the old key.
const PASSES_MAX: usize = 100;

#[derive(Debug, Subcommand)]
pub(super) enum Key {
    /// Put another key in place of the one there is
    Rotate(Rotate),
}

#[derive(Debug, Args)]
#[command(after_help = "\
It can be interrupted, and goes on when it is run again. Servers that use the same key file take the
new key by themselves. Where others have copies of it, run it with --begin first, copy the file, which
then holds both keys, to them, run it again without --begin, and copy the file once more.

With --lost the old key is not needed. What it has sealed is dropped: users whose realm offers Basic get
back to Digest with their next login by Basic, the others with a new password.")]
pub(super) struct Rotate {
    /// Write the new key beside the old one, and stop there
    #[arg(long, conflicts_with = "lost")]
    begin: bool,

    /// The old key is lost
    #[arg(long)]
    lost: bool,

    #[command(flatten)]
    place: Place,
}

pub(super) fn run(command: &Key) -> Result<ExitCode, Refusal> {
    let Key::Rotate(flags) = command;
    rotate(flags)?;
    Ok(ExitCode::SUCCESS)
}

fn rotate(flags: &Rotate) -> Result<(), Refusal> {
    let mut accounts = flags.place.find()?.check_key()?.open()?;
    let source = accounts.source()?;
    if let Source::Environment(_) = source {
        return Err(refusal(
            "the key in NOUNS_KEY cannot be rotated, because a variable cannot be changed from here; put it \
             into a file, rotate that with --key-file, and set NOUNS_KEY to what the file then holds",
        ));
    }
    let held = source.lock().map_err(refusal)?;
    let Some(stored) = accounts.fingerprint()? else {
        return Err(refusal(
            "this database has no key yet; one is made with its first user, by nouns serve or nouns user add",
        ));
    };
    let keys = match flags.lost {
        false => begin(&mut accounts, (&source, &held), &stored)?,
        true => begin_anew(&mut accounts, (&source, &held), &stored)?,
    };
    fault::point("rotate");
    if flags.begin {
        said(format_args!(
            "{} holds the new key and the old one; copy it to the other servers, then: nouns key rotate",
            source.name()
        ));
        return Ok(());
    }
    let counts = seal_anew(&mut accounts, &keys)?;
    fault::point("rotate");
    accounts.beside.remember(FINGERPRINT, &keys.fingerprint()).map_err(refusal)?;
    fault::point("rotate");
    source.write(&held, &keys.end_rotation()).map_err(refusal)?;
    fault::point("rotate");
    accounts.beside.remember(ROTATION, "").map_err(refusal)?;
    said(summary(&source.name(), flags.lost, counts));
    Ok(())
}

/// Users whose record was rewritten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    /// With all of their Digest credentials.
    resealed: usize,
    /// Without some or all of them, because no key opened them.
    dropped: usize,
}

fn summary(file: &str, is_lost: bool, counts: Counts) -> String {
    let users = |count: usize| match count {
        1 => "1 user".to_owned(),
        count => format!("{count} users"),
    };
    let mut done = match is_lost {
        true => format!("wrote a new key to {file} in place of the lost one"),
        false => format!("rotated the key in {file}; sealed anew for {}", users(counts.resealed)),
    };
    if is_lost && counts.resealed > 0 {
        done += &format!("; sealed anew for {}", users(counts.resealed));
    }
    if is_lost || counts.dropped > 0 {
        done += &format!("; dropped the Digest credentials of {}", users(counts.dropped));
    }
    if counts.dropped > 0 {
        done += ", who get back to Digest with their next login by Basic, where their realm offers it, \
                 or with a new password: nouns user passwd NAME";
    }
    done
}

/// Leaves both keys in the file; resumes a rotation that was begun already.
fn begin(
    accounts: &mut Accounts,
    (source, held): (&Source, &Held),
    stored: &str,
) -> Result<Keys, Refusal> {
    let keys = source.settle(Some(stored)).map_err(refusal)?.keys;
    let under_way = accounts.beside.recall(ROTATION).map_err(refusal)?.unwrap_or_default();
    if !under_way.is_empty() && !keys.has(&under_way) {
        return Err(refusal(format!(
            "a rotation to the key of fingerprint {under_way} has begun elsewhere, and that key is not in {}; \
             finish it there, or copy that key file here",
            source.name()
        )));
    }
    if keys.is_rotating() {
        accounts.beside.remember(ROTATION, &keys.fingerprint()).map_err(refusal)?;
        return Ok(keys);
    }
    let keys = keys.begin_rotation(Keys::random().map_err(refusal)?);
    fault::point("rotate");
    source.write(held, &keys).map_err(refusal)?;
    fault::point("rotate");
    accounts.beside.remember(ROTATION, &keys.fingerprint()).map_err(refusal)?;
    Ok(keys)
}

/// Leaves only a new key in the file.
fn begin_anew(
    accounts: &mut Accounts,
    (source, held): (&Source, &Held),
    stored: &str,
) -> Result<Keys, Refusal> {
    let under_way = accounts.beside.recall(ROTATION).map_err(refusal)?.unwrap_or_default();
    match source.read().map_err(refusal)? {
        Some(keys) if keys.has(stored) => Err(refusal(format!(
            "{} holds the key of this database: it is not lost",
            source.name()
        ))),
        Some(keys) if keys.has(&under_way) => Ok(keys),
        Some(_) => Err(refusal(format!(
            "{} holds a key of something else, and is not overwritten; move it away, or name another --key-file",
            source.name()
        ))),
        None => {
            let keys = Keys::random().map_err(refusal)?;
            fault::point("rotate");
            accounts.beside.remember(ROTATION, &keys.fingerprint()).map_err(refusal)?;
            fault::point("rotate");
            source.write(held, &keys).map_err(refusal)?;
            Ok(keys)
        }
    }
}

/// Reseals the records of all users until the new key has sealed everything.
fn seal_anew(accounts: &mut Accounts, keys: &Keys) -> Result<Counts, Refusal> {
    let mut all = Counts::default();
    for pass in 0..PASSES_MAX {
        let Counts { resealed, dropped } = pass_through(accounts, keys)?;
        all = Counts { resealed: all.resealed + resealed, dropped: all.dropped + dropped };
        if resealed + dropped == 0 && pass > 0 {
            return Ok(all);
        }
        // A server that did not know the new key yet may have set a password with the old one.
        wait_for_servers();
    }
    Err(refusal("servers still seal with the old key; restart them, then: nouns key rotate"))
}

/// Goes through all users once.
fn pass_through(accounts: &mut Accounts, keys: &Keys) -> Result<Counts, Refusal> {
    let mut counts = Counts::default();
    accounts.each_user(|accounts, user| {
        let name = accounts::name(user);
        // A cheap check, and true in all but the first pass.
        if sealed_anew(accounts::record(user), keys, name)?.is_none() {
            return Ok(());
        }
        fault::point("rotate");
        let mut dropped = 0;
        let changed = accounts.change(name, (PASSWORD, false), |user| {
            let sealed = sealed_anew(accounts::record(user), keys, name)?;
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

/// The record with everything sealed by the first key, and how many credentials no key opened; `None` when
/// it is current already.
fn sealed_anew(record: &str, keys: &Keys, name: &str) -> Result<Option<(Value, usize)>, Refusal> {
    // A damaged record stays as it is.
    let Some(mut record) = Record::parse(record) else { return Ok(None) };
    match record.reseal(keys, name) {
        Some(Resealed { is_changed: true, dropped }) => {
            Ok(Some((Value::text(&record.to_string()), dropped)))
        }
        Some(Resealed { is_changed: false, .. }) => Ok(None),
        None => Err(refusal("the system has no randomness; try again")),
    }
}

fn said(what: impl std::fmt::Display) {
    say(&mut std::io::stdout(), format_args!("nouns: {what}"));
}
