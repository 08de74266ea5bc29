//! Settings of the C library's allocator, so that memory is returned to the system after a peak.
//!
//! By default glibc raises its threshold for mapping memory separately, up to 32 MiB, with each large block
//! that is freed; from then on large bodies and responses leave gaps between small blocks, and stay resident.
//! Without unsafe code these settings can only be given by the environment, which is read before `main`; so
//! the program executes itself once more, with the same process id and arguments.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::report::{CommandError, command_error};

const TUNABLES: &str = "GLIBC_TUNABLES";
/// A threshold that is set is never raised. 256 KiB is the size that counts as large in other modules.
const VALUE: &str = "glibc.malloc.mmap_threshold=262144:glibc.malloc.trim_threshold=1048576";
/// Marks the second execution: with file capabilities the program never sees `GLIBC_TUNABLES`, and must not
/// retry.
const IS_SECOND: &str = "_NOUNS_IS_SECOND_EXECUTION";

/// Executes the program again with the settings, unless they are set.
pub fn tune() -> Result<(), CommandError> {
    let is_glibc = cfg!(all(target_os = "linux", target_env = "gnu"));
    if !is_glibc || std::env::vars_os().any(|(name, _)| is_set_by(&name)) {
        return Ok(());
    }
    let mut arguments = std::env::args_os();
    let (Ok(program), Some(name)) = (std::env::current_exe(), arguments.next()) else {
        return Ok(());
    };
    // Started as `ld-linux.so nouns`: the executable is the loader, which expects other arguments.
    if program.file_name().is_some_and(|file| file.to_string_lossy().starts_with("ld-")) {
        return Ok(());
    }
    let mut command = Command::new(program);
    command.arg0(name).args(arguments).env(TUNABLES, VALUE).env(IS_SECOND, "1");
    // `exec` returns only when it has failed, and has then reset the action of SIGPIPE: a server that
    // continued would be killed by the first client that closes its connection.
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
