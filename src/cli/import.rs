//! `nouns import`: items of a resource from CSV or NDJSON, validated as over HTTP.
//!
//! The file is read twice. The first pass validates every line without the database; a fault ends the import before
//! anything is written. The second pass writes in batches, all in one transaction, or each in its own with
//! `--resumable`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;

use super::accounts::command_line_author;
use super::import_file::{CheckedRows, ImportBatches, ImportFile, LineFaults};
use super::import_position::{ImportPosition, PositionStart};
use super::progress::with_separators;
use super::report::{CommandError, command_error, print_done};
use super::transfer::{
    FileFormat, TransferArgs, TransferSource, is_standard_stream, unknown_format,
};
use crate::clock;
use crate::model::Resource;
use crate::plan::{ImportRules, UpsertKey};
use crate::store::{
    AdminStore, ImportEnd, ImportJob, ImportSource as _, ImportedBatch, PositionStep, StoreError,
};

/// More rows are not imported in one transaction while a server waits for its end.
const BLOCKING_ROWS_MAX: u64 = 10_000;
/// The pause between batches while a server writes to the same file: SQLite's lock is not fair, and a writer that
/// waits for it looks every 100 milliseconds.
const BATCH_PAUSE_MIN: Duration = Duration::from_millis(150);

#[derive(Debug, Args)]
#[command(after_help = "\
Each row becomes a new item, with the same rules as over HTTP, or with --upsert changes the item that has the \
same value. The members that the server sets (created_at, updated_at, version, computed fields) are ignored; an id is \
kept. The id of the parent is the column <parent>_id.

Nothing is written if a line is wrong: all rows are one transaction. With --resumable each 1,000 rows are one; the same \
command goes on after an interruption or a fault. Servers may run meanwhile; a server on SQLite would wait for a \
large transaction, so that --resumable is needed then.")]
pub struct ImportArgs {
    /// The resource, by its singular name
    resource: String,

    /// The file to read; - is standard input
    file: PathBuf,

    #[command(flatten)]
    transfer: TransferArgs,

    /// Change the item with the same value of this unique field, or of id; create it if there is none
    #[arg(long, value_name = "FIELD")]
    upsert: Option<String>,

    /// Check all rows, also against the stored data, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// Commit every 1,000 rows, and go on where an earlier run of this file has stopped
    #[arg(long)]
    resumable: bool,

    /// With --resumable: begin at the first row, whatever an earlier run has done
    #[arg(long, requires = "resumable")]
    restart: bool,
}

pub fn run(flags: &ImportArgs) -> Result<ExitCode, CommandError> {
    let source = TransferSource::find(&flags.transfer, &flags.resource)?;
    let upsert = find_key(source.resource(), flags.upsert.as_deref())?;
    let format = flags.transfer.format.or_else(|| FileFormat::of_file(&flags.file));
    let format = format.ok_or_else(|| unknown_format(&flags.file))?;
    let input = InputFile::open(&flags.file, flags.resumable)?;
    let mut admin_store = AdminStore::open(&source.database, &source.model)?;
    source.check_model(&mut admin_store)?;
    let import = Import { flags, source: &source, upsert, format, input: &input };
    let CheckedRows { rows, last_id } = import.check_lines()?;
    let job = ImportJob {
        resource: source.resource().index,
        upsert,
        author: command_line_author(),
        last_id,
        is_dry_run: flags.dry_run,
    };
    let done = match flags.resumable {
        true => import.write_steps(&mut admin_store, job)?,
        false => {
            import.refuse_to_block(rows)?;
            import.write_at_once(&mut admin_store, &job)?
        }
    };
    print_done(done);
    Ok(ExitCode::SUCCESS)
}

fn find_key(resource: &Resource, name: Option<&str>) -> Result<Option<UpsertKey>, CommandError> {
    let Some(name) = name else { return Ok(None) };
    let key = UpsertKey::find(resource, name);
    key.map(Some).ok_or_else(|| {
        command_error(format!(
            "--upsert: expected id or a field of {} that is unique on its own and not computed, got {name}",
            resource.name
        ))
    })
}

/// The file to import, which is read twice.
struct InputFile {
    file: File,
    /// Its name in messages.
    name: String,
    bytes: u64,
}

impl InputFile {
    fn open(path: &Path, is_resumable: bool) -> Result<Self, CommandError> {
        let is_stream = is_standard_stream(path);
        if is_stream && is_resumable {
            return Err(command_error(
                "--resumable reads from a position of a file, which standard input does not have",
            ));
        }
        let name = match is_stream {
            true => "standard input".to_owned(),
            false => path.display().to_string(),
        };
        let file = match is_stream {
            true => spool_stdin(),
            false => File::open(path),
        };
        let opened = file.and_then(|file| file.metadata().map(|metadata| (file, metadata)));
        let (file, metadata) =
            opened.map_err(|error| command_error(format!("cannot read {name}: {error}")))?;
        if !metadata.is_file() {
            return Err(command_error(format!(
                "{name} is not a file, and an import reads it twice; use - for standard input"
            )));
        }
        Ok(Self { file, name, bytes: metadata.len() })
    }

    fn describe(&self, error: &io::Error) -> CommandError {
        command_error(format!("cannot read {}: {error}", self.name))
    }
}

/// Copies standard input into a temporary file without a name.
fn spool_stdin() -> io::Result<File> {
    let name = format!("nouns-import-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    io::copy(&mut io::stdin().lock(), &mut file)?;
    Ok(file)
}

/// One run of the command.
struct Import<'a> {
    flags: &'a ImportArgs,
    source: &'a TransferSource,
    upsert: Option<UpsertKey>,
    format: FileFormat,
    input: &'a InputFile,
}

impl<'a> Import<'a> {
    fn open_file(&self) -> Result<ImportFile<'a>, CommandError> {
        let rules = ImportRules {
            model: &self.source.model,
            resource: self.source.resource(),
            upsert: self.upsert,
            columns: None,
            now: clock::moment(),
        };
        let describe = |error: io::Error| self.input.describe(&error);
        let file = self.input.file.try_clone().map_err(describe)?;
        let opened = ImportFile::open(file, self.format, rules).map_err(describe)?;
        opened.map_err(|faults| self.faults_error(&faults, "nothing was imported"))
    }

    /// The first pass.
    fn check_lines(&self) -> Result<CheckedRows, CommandError> {
        let mut file = self.open_file()?;
        let checked = file.check_all(self.input.bytes);
        let checked = checked.map_err(|error| self.input.describe(&error))?;
        checked.map_err(|faults| self.faults_error(&faults, "nothing was imported"))
    }

    fn faults_error(&self, faults: &LineFaults, effect: &str) -> CommandError {
        let count = with_separators(faults.count());
        let word = if faults.count() == 1 { "fault" } else { "faults" };
        command_error(format!("{}: {count} {word}, {effect}{}", self.input.name, faults.lines()))
    }

    /// A server on SQLite is the only other writer, and would wait until the transaction ends.
    fn refuse_to_block(&self, rows: u64) -> Result<(), CommandError> {
        if rows <= BLOCKING_ROWS_MAX || !AdminStore::blocks_server(&self.source.database)? {
            return Ok(());
        }
        Err(command_error(format!(
            "a server has {} open, and its writes would wait for one transaction of {} rows; stop the server, or \
             import with --resumable, which commits every 1,000 rows",
            self.source.database,
            with_separators(rows)
        )))
    }

    fn batches(&self, file: ImportFile<'a>) -> ImportBatches<'a> {
        ImportBatches::new(file, self.flags.dry_run, self.input.bytes)
    }

    /// The second pass, in one transaction.
    fn write_at_once(
        &self,
        admin_store: &mut AdminStore,
        job: &ImportJob,
    ) -> Result<String, CommandError> {
        let mut batches = self.batches(self.open_file()?);
        let end = admin_store.import(job, &mut batches);
        let end = end.map_err(|error| {
            let name = &self.input.name;
            command_error(match error {
                StoreError::OutcomeUnknown(cause) => format!(
                    "{name}: it is not known whether its rows were imported, because the commit was not confirmed \
                     ({cause}); look for them with nouns changes before you import them again"
                ),
                error => format!("{name}: nothing was imported: {error}"),
            })
        })?;
        match end {
            ImportEnd::RolledBack if !batches.faults.is_empty() => {
                Err(self.faults_error(&batches.faults, "nothing was imported"))
            }
            ImportEnd::RolledBack | ImportEnd::Committed => Ok(self.describe_done(&batches.total)),
        }
    }

    /// The second pass, with a transaction for each batch.
    fn write_steps(
        &self,
        admin_store: &mut AdminStore,
        job: ImportJob,
    ) -> Result<String, CommandError> {
        let name = ImportPosition::key(&self.source.resource().label);
        let stored = admin_store.read_system_value(&name)?;
        let mut file = self.open_file()?;
        let start = match self.flags.restart {
            true => PositionStart::First,
            false => ImportPosition::find_start(stored.as_deref(), &mut file, self.input.bytes)
                .map_err(|error| self.input.describe(&error))?,
        };
        let (rows_before, file) = match start {
            PositionStart::First => (0, self.open_file()?),
            PositionStart::After(rows) => (rows, file),
            PositionStart::Complete(rows) => {
                return Ok(format!(
                    "all {} rows of {} were imported by an earlier run; --restart imports them again",
                    with_separators(rows),
                    self.input.name
                ));
            }
            PositionStart::Other(other) => return Err(self.other_file_error(&other)),
        };
        let mut steps = ImportSteps {
            import: self,
            name: &name,
            job,
            stored,
            batches: self.batches(file),
            rows_before,
            is_shared: AdminStore::blocks_server(&self.source.database)?,
        };
        steps.write_all(admin_store)?;
        let done = self.describe_done(&steps.batches.total);
        Ok(match rows_before {
            0 => done,
            rows => format!("{done}; {} rows by an earlier run", with_separators(rows)),
        })
    }

    fn other_file_error(&self, other: &ImportPosition) -> CommandError {
        command_error(format!(
            "an import of {} into {} has stopped after {} rows, and {} does not begin with the same lines; finish \
             that import, or begin with this file: --restart",
            other.file,
            self.source.resource().name,
            with_separators(other.rows),
            self.input.name
        ))
    }

    fn describe_done(&self, total: &ImportedBatch) -> String {
        let ImportedBatch { created, updated, unchanged, .. } = total;
        let resource = self.source.resource();
        let name = if *created == 1 { &resource.name } else { &resource.plural };
        let [created, updated, unchanged] =
            [created, updated, unchanged].map(|rows| with_separators(*rows));
        let file = &self.input.name;
        match (self.upsert, self.flags.dry_run) {
            (None, false) => format!("created {created} {name} from {file}"),
            (None, true) => {
                format!("would create {created} {name} from {file}; nothing was written")
            }
            (Some(_), false) => {
                format!("{file}: {created} created, {updated} updated, {unchanged} unchanged")
            }
            (Some(_), true) => format!(
                "{file}: {created} to create, {updated} to update, {unchanged} unchanged; nothing was written"
            ),
        }
    }
}

/// An import in steps: each commits a batch with the position behind it.
struct ImportSteps<'a> {
    import: &'a Import<'a>,
    name: &'a str,
    job: ImportJob,
    /// The stored position.
    stored: Option<String>,
    batches: ImportBatches<'a>,
    /// Rows that earlier runs have imported.
    rows_before: u64,
    /// Whether a server needs the write lock between the batches.
    is_shared: bool,
}

impl ImportSteps<'_> {
    fn write_all(&mut self, admin_store: &mut AdminStore) -> Result<(), CommandError> {
        // Before the first row, so that a second run at the same time ends here or there.
        self.write_step(admin_store, false)?;
        loop {
            let began = clock::now();
            let is_last = self.write_step(admin_store, true)?;
            if is_last || self.batches.is_over() {
                break;
            }
            if self.is_shared {
                thread::sleep(BATCH_PAUSE_MIN.max(clock::now().duration_since(began)));
            }
        }
        match self.batches.faults.is_empty() {
            true => Ok(()),
            false => Err(self.import.faults_error(&self.batches.faults, "nothing was written")),
        }
    }

    /// Writes the next batch and the position behind it. True after the last one.
    fn write_step(
        &mut self,
        admin_store: &mut AdminStore,
        has_rows: bool,
    ) -> Result<bool, CommandError> {
        let from = self.batches.end.0.line;
        let rows = match has_rows {
            true => self.batches.next_batch().map_err(|error| self.stopped(&error))?,
            false => Vec::new(),
        };
        let is_last = has_rows && rows.is_empty();
        let (position, digest) = &self.batches.end;
        let count = u64::try_from(rows.len()).unwrap_or(0);
        let after = ImportPosition {
            is_complete: is_last,
            run: self.job.author.request_id.to_string(),
            position: *position,
            rows: self.rows_before + self.done_rows() + count,
            digest: digest.clone(),
            file: self.import.input.name.clone(),
        };
        let after = after.to_text();
        let step = PositionStep { name: self.name, before: self.stored.as_deref(), after: &after };
        let batch = admin_store.import_step(&self.job, (&rows, &step));
        let batch = batch.map_err(|error| self.stopped(&error.to_string()))?;
        let Some(batch) = batch else {
            return Err(self.stopped("another import into the same resource has begun"));
        };
        let has_faults = !batch.faults.is_empty();
        self.batches.record(ImportedBatch { faults: batch.faults, ..ImportedBatch::default() });
        if has_faults && !self.batches.is_dry_run {
            let effect = format!(
                "{} rows before line {from} are imported; mend the lines from there on, and run the command again",
                with_separators(self.rows_before + self.done_rows())
            );
            return Err(self.import.faults_error(&self.batches.faults, &effect));
        }
        let ImportedBatch { created, updated, unchanged, .. } = batch;
        self.batches.record(ImportedBatch { created, updated, unchanged, faults: Vec::new() });
        if !self.batches.is_dry_run {
            self.stored = Some(after);
        }
        Ok(is_last)
    }

    /// The rows of this run.
    fn done_rows(&self) -> u64 {
        let ImportedBatch { created, updated, unchanged, .. } = &self.batches.total;
        created + updated + unchanged
    }

    fn stopped(&self, cause: &str) -> CommandError {
        let rows = with_separators(self.rows_before + self.done_rows());
        command_error(format!(
            "{}: stopped after {rows} rows: {cause}; the same command goes on there",
            self.import.input.name
        ))
    }
}
