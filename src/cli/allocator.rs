//! Settings of the C library's allocator, so that memory goes back to the system after a peak.
//!
//! By default glibc raises the size from which it maps memory of its own, up to 32 MiB, with each large piece
//! that is freed; from then on large bodies and answers leave gaps between small pieces, and stay resident.
//! The surprising thing: without unsafe code these settings can be given by the environment alone, which is
//! read before `main`; so the program executes itself once more, with the same process id and arguments.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::{CommandError, command_error};

const TUNABLES: &str = "GLIBC_TUNABLES";
/// Setting the threshold keeps it where it is: 256 KiB is what counts as large elsewhere.
const VALUE: &str = "glibc.malloc.mmap_threshold=262144:glibc.malloc.trim_threshold=1048576";
/// A program with capabilities of its own does not get to see `GLIBC_TUNABLES`, and must not try again.
const IS_SECOND: &str = "_NOUNS_IS_SECOND_EXECUTION";

/// Executes the program again with the settings, unless it has some.
pub(super) fn tune() -> Result<(), CommandError> {
    let is_glibc = cfg!(all(target_os = "linux", target_env = "gnu"));
    if !is_glibc || std::env::vars_os().any(|(name, _)| is_set_by(&name)) {
        return Ok(());
    }
    let mut arguments = std::env::args_os();
    let (Ok(program), Some(name)) = (std::env::current_exe(), arguments.next()) else {
        return Ok(());
    };
    // Started as `ld-linux.so nouns`: the executable is the loader, which takes other arguments.
    if program.file_name().is_some_and(|file| file.to_string_lossy().starts_with("ld-")) {
        return Ok(());
    }
    let mut command = Command::new(program);
    command.arg0(name).args(arguments).env(TUNABLES, VALUE).env(IS_SECOND, "1");
    // It returns only when it has failed, and has then reset the action of SIGPIPE: a server that went on
    // would be killed by the first client that closes its connection.
    let error = command.exec();
    Err(command_error(format!(
        "cannot execute itself with the settings of the allocator ({error}); start it with the environment \
         variable {TUNABLES}={VALUE}"
    )))
}

/// Whether a variable configures the allocator, or records that the re-execution was tried.
fn is_set_by(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    name == TUNABLES || name == IS_SECOND || name.starts_with("MALLOC_")
}
