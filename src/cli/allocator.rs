//! Settings of the C library's allocator, so that memory goes back to the system after a peak.
//!
//! By default glibc raises the size from which it maps memory of its own, up to 32 MiB, with each large piece
//! that is freed; from then on large bodies and answers leave gaps between small pieces, and stay resident.
//! The surprising thing: without unsafe code these settings can be given by the environment alone, which is
//! read before `main`; so the program executes itself once more, with the same process id and arguments.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

const TUNABLES: &str = "GLIBC_TUNABLES";
/// Setting the threshold keeps it where it is: 256 KiB is what counts as large elsewhere.
const VALUE: &str = "glibc.malloc.mmap_threshold=262144:glibc.malloc.trim_threshold=1048576";
/// A program with capabilities of its own does not get to see `GLIBC_TUNABLES`, and must not try again.
const IS_SECOND: &str = "_NOUNS_IS_SECOND_EXECUTION";

/// Executes the program again with the settings, unless it has some. Where that cannot be done it goes on
/// without them.
pub(super) fn tune() {
    let is_glibc = cfg!(all(target_os = "linux", target_env = "gnu"));
    if !is_glibc || std::env::vars_os().any(|(name, _)| is_set_by(&name)) {
        return;
    }
    let mut arguments = std::env::args_os();
    let (Ok(program), Some(name)) = (std::env::current_exe(), arguments.next()) else { return };
    let mut command = Command::new(program);
    command.arg0(name).args(arguments).env(TUNABLES, VALUE).env(IS_SECOND, "1");
    // It returns only when it has failed.
    let _ = command.exec();
}

/// Whether a variable says how the allocator shall work, or that this was tried.
fn is_set_by(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    name == TUNABLES || name == IS_SECOND || name.starts_with("MALLOC_")
}
