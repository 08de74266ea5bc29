//! Process metrics from the operating system.
//!
//! Numbers that the system does not offer are left out: only Linux has `/proc`.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::families::ProcessGauges;

/// `started` is the time since 1970.
#[expect(clippy::cast_precision_loss, reason = "shown to people and graphs")]
pub fn read_gauges(started: Duration) -> ProcessGauges {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ProcessGauges {
        cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
        resident_bytes: field(&status, "VmRSS:"),
        virtual_bytes: field(&status, "VmSize:"),
        open_files: open_files(),
        // `None` is no limit at all.
        open_files_max: getrlimit(Resource::Nofile).current,
        start_seconds: started.as_secs_f64(),
    }
}

/// A field of `/proc/self/status`, which is in KiB.
fn field(status: &str, name: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Open file descriptors. Newer kernels report their number as the directory's size; else they are counted, which
/// takes milliseconds with thousands of connections.
fn open_files() -> Option<u64> {
    const FOLDER: &str = "/proc/self/fd";
    match fs::metadata(FOLDER).map(|folder| folder.len()) {
        Ok(count @ 1..) => Some(count),
        // The directory itself is open while it is read.
        Ok(0) | Err(_) => {
            let count = fs::read_dir(FOLDER).ok()?.count();
            u64::try_from(count).ok()?.checked_sub(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_status_field_is_found_by_name() {
        let status = "Name:\tnouns\nVmSize:\t  204800 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(field(status, "VmRSS:"), Some(1 << 20));
        assert_eq!(field(status, "VmHWM:"), None);
        assert_eq!(field("VmRSS: much", "VmRSS:"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn process_metrics_are_plausible() {
        let held: Vec<_> = (0..50).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let seen = read_gauges(Duration::ZERO);
        drop(held);
        let resident = seen.resident_bytes.unwrap();
        assert!(resident > 1 << 20 && seen.virtual_bytes.unwrap() >= resident);
        assert!(seen.open_files.unwrap() >= 50);
        assert!(seen.cpu_seconds > 0.0);
    }
}
