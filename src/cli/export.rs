//! `nouns export`: all items of a resource, from one snapshot, as CSV or NDJSON.
//!
//! It runs while servers run, and changes nothing in the database. A file is complete or absent: the items are
//! written into `FILE.part`, which is renamed at the end.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::model_source::key_source;
use super::output_file::refuse_own_files;
use super::progress::{Progress, with_separators};
use super::report::{CommandError, command_error, print_done};
use super::transfer::{
    FileFormat, TransferArgs, TransferSource, is_standard_stream, unknown_format,
};
use crate::fault::OrBug as _;
use crate::formats::ItemView;
use crate::partial_file::{PartialFile, PartialFileError};
use crate::permit::Access;
use crate::store::{AdminStore, StoreError};

const BUFFER_BYTES: usize = 64 << 10;
/// The permissions of the file, unless the process's mask restricts them.
const FILE_MODE: u32 = 0o666;

#[derive(Debug, Args)]
#[command(after_help = "\
All items of the resource are written, under all parents and in the order of their ids, with the members that \
a list over HTTP shows to an admin. The id of the parent is the column <parent>_id. nouns import reads the file \
again.

It runs while servers run and reads one snapshot of the data. On SQLite the write-ahead log grows with each \
write until the export has ended.")]
pub struct ExportArgs {
    /// The resource, by its singular name
    resource: String,

    /// The file to create; - is standard output [default: standard output, as NDJSON]
    file: Option<PathBuf>,

    #[command(flatten)]
    transfer: TransferArgs,

    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

pub fn run(flags: &ExportArgs) -> Result<ExitCode, CommandError> {
    let source = TransferSource::find(&flags.transfer, &flags.resource)?;
    let file = flags.file.as_deref().filter(|path| !is_standard_stream(path));
    let format = match (flags.transfer.format, file) {
        (Some(format), _) => format,
        (None, Some(path)) => FileFormat::of_file(path).ok_or_else(|| unknown_format(path))?,
        (None, None) => FileFormat::Ndjson,
    };
    if let Some(path) = file {
        check_target(path, flags.force)?;
        let key = key_source(None, &source.model.server.storage, &source.database).ok();
        let own = (key.as_ref(), flags.transfer.model.as_deref());
        refuse_own_files(path, &source.database, own)?;
    }
    let mut admin_store = AdminStore::open_read_only(&source.database, &source.model)?;
    source.check_model(&mut admin_store)?;
    let Some(path) = file else {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
        let export = Export { source: &source, format, admin_store: &mut admin_store };
        return match export.write(&mut out) {
            // The reader has closed the pipe, as `head` does.
            Err(ExportError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {
                Ok(ExitCode::SUCCESS)
            }
            done => done.map(|_| ExitCode::SUCCESS).map_err(|error| error.describe("-", &source)),
        };
    };
    let shown = path.display().to_string();
    let export = Export { source: &source, format, admin_store: &mut admin_store };
    let part = PartialFile::create(path, FILE_MODE, |_| Ok(flags.force))
        .map_err(|error| explain_part_error(error, path))?;
    let written = write_part(&part.file, export).and_then(|rows| {
        // Another program may have created it meanwhile.
        check_target(path, flags.force).map_err(ExportError::Target)?;
        part.publish(path).map_err(ExportError::Output).map(|()| rows)
    });
    let rows = written.map_err(|error| error.describe(&shown, &source))?;
    let resource = source.resource();
    let name = if rows == 1 { &resource.name } else { &resource.plural };
    print_done(format_args!("wrote {} {name} into {shown}", with_separators(rows)));
    Ok(ExitCode::SUCCESS)
}

/// Refuses to replace anything but a file, and that only with `--force`.
fn check_target(path: &Path, is_forced: bool) -> Result<(), CommandError> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(command_error(format!("cannot write {shown}: {error}"))),
        Ok(metadata) if !metadata.is_file() => Err(command_error(format!(
            "{shown} is not a file; write to standard output instead: nouns export RESOURCE > {shown}"
        ))),
        Ok(_) if !is_forced => {
            Err(command_error(format!("{shown} exists; --force replaces it, when all is written")))
        }
        Ok(_) => Ok(()),
    }
}

fn explain_part_error(error: PartialFileError, target: &Path) -> CommandError {
    let part = PartialFile::path_of(target);
    let shown = part.display();
    command_error(match error {
        PartialFileError::InUse => format!(
            "another process is writing {shown}; wait until it is done, or name another file"
        ),
        PartialFileError::NotAFile => {
            format!("{shown} is not a file; move it away, or name another file")
        }
        PartialFileError::Foreign => {
            format!("{shown} exists: an export was interrupted; --force replaces it")
        }
        PartialFileError::Io(error) => format!("cannot write {shown}: {error}"),
    })
}

fn write_part(part: &File, export: Export<'_>) -> Result<u64, ExportError> {
    // It writes all that it has before it returns.
    export.write(&mut BufWriter::with_capacity(BUFFER_BYTES, part))
}

/// Why an export has failed.
enum ExportError {
    Output(io::Error),
    Target(CommandError),
    Store(StoreError),
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl ExportError {
    fn describe(self, file: &str, source: &TransferSource) -> CommandError {
        match self {
            Self::Target(error) => error,
            Self::Output(error) => command_error(format!("cannot write {file}: {error}")),
            Self::Store(error) => {
                command_error(format!("cannot read {}: {error}", source.database))
            }
        }
    }
}

/// The items of a resource, on their way into a file.
struct Export<'a> {
    source: &'a TransferSource,
    format: FileFormat,
    admin_store: &'a mut AdminStore,
}

impl Export<'_> {
    /// Returns the number of items.
    fn write(self, out: &mut impl Write) -> Result<u64, ExportError> {
        let resource = self.source.resource();
        let lines = self.format.output().stream_writer.or_bug("files have formats of lines");
        let access = Access::to_declared(resource);
        let view = ItemView { hidden: &access.hidden, ..ItemView::all_fields(resource) };
        let mut progress = Progress::new("exporting", None);
        let mut line = Vec::new();
        (lines.head)(&mut line, view);
        out.write_all(&line)?;
        let (mut rows, mut bytes, mut failure) = (0, 0, None);
        let scanned = self.admin_store.scan_table(resource.index, &mut |item| {
            line.clear();
            (lines.line)(&mut line, view, item);
            if let Err(error) = out.write_all(&line) {
                failure = Some(error);
                return ControlFlow::Break(());
            }
            rows += 1;
            bytes += u64::try_from(line.len()).unwrap_or(0);
            progress.update(rows, bytes);
            ControlFlow::Continue(())
        });
        scanned.map_err(ExportError::Store)?;
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(out.flush().map(|()| rows)?),
        }
    }
}
