//! Unknown environment variables that begin with `NOUNS_`.
//!
//! One that looks like a misspelled setting is refused, because ignoring it would mean running with other
//! settings than intended. Any other is only warned of: another program on the machine may use it.
//! Kubernetes sets some for a service called `nouns`; these are ignored.

use std::ffi::OsStr;

use clap::Command;

use super::report::{CommandError, command_error};
use crate::model::nearest;

const PREFIX: &str = "NOUNS_";
/// The prefix of variables for the tests of this program.
const TEST_PREFIX: &str = "NOUNS_TEST_";
/// `NOUNS_KEY` has no flag, because everyone on the machine can read arguments.
const KEY_VARIABLE: &str = "NOUNS_KEY";

/// Refuses a misspelled setting; returns the names of the other unknown variables.
pub fn check(root: &Command) -> Result<Vec<String>, CommandError> {
    let mut known = vec![KEY_VARIABLE.to_owned()];
    collect(root, &mut known);
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        Some((name.to_str()?.to_owned(), value)).filter(|(name, _)| name.starts_with(PREFIX))
    });
    let mut unknown = Vec::new();
    for (name, value) in variables {
        if known.contains(&name)
            || name.starts_with(TEST_PREFIX)
            || is_from_kubernetes(&name, &value)
        {
            continue;
        }
        if let Some(meant) = nearest_setting(&name, &known) {
            return Err(command_error(format!(
                "the environment variable {name} is not a setting; did you mean {meant}? remove or rename it"
            )));
        }
        unknown.push(name);
    }
    unknown.sort();
    Ok(unknown)
}

/// The variables of all commands.
fn collect(command: &Command, known: &mut Vec<String>) {
    let names = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    known.extend(names.map(str::to_owned));
    for command in command.get_subcommands() {
        collect(command, known);
    }
}

/// The setting that a name is a misspelling of. Names are compared without the prefix, which would make all
/// of them similar.
fn nearest_setting<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let short = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_ascii_lowercase();
    let names: Vec<String> = known.iter().map(|name| short(name)).collect();
    let found = nearest(&short(name), names.iter().map(String::as_str))?;
    let at = names.iter().position(|name| name == found)?;
    known.get(at).map(String::as_str)
}

/// `NOUNS_SERVICE_HOST`, `NOUNS_PORT_8080_TCP_ADDR` and the like, which Kubernetes sets in every container
/// beside a service called `nouns` or `nouns-…`.
fn is_from_kubernetes(name: &str, value: &OsStr) -> bool {
    let is_address = ["tcp://", "udp://", "sctp://"]
        .iter()
        .any(|scheme| value.to_str().is_some_and(|value| value.starts_with(scheme)));
    let is_port_part = name.rsplit_once("_PORT_").is_some_and(|(_, rest)| {
        let mut words = rest.split('_');
        let is_number = words.next().is_some_and(|word| word.parse::<u16>().is_ok());
        is_number && matches!(words.next(), Some("TCP" | "UDP" | "SCTP"))
    });
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || is_port_part
        || (name.ends_with("_PORT") && is_address)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn known() -> Vec<String> {
        let mut known = vec![KEY_VARIABLE.to_owned()];
        collect(&Cli::command(), &mut known);
        known
    }

    #[test]
    fn environment_variable_near_a_setting_is_a_misspelling() {
        let known = known();
        let find = |name: &str| nearest_setting(name, &known).map(str::to_owned);
        for (name, setting) in [
            ("NOUNS_LISTN", "NOUNS_LISTEN"),
            ("NOUNS_DATABSE", "NOUNS_DATABASE"),
            ("NOUNS_KEYFILE", "NOUNS_KEY_FILE"),
            ("NOUNS_TLS_CRT", "NOUNS_TLS_CERT"),
            ("NOUNS_PROXY_BEHIND", ""),
            ("NOUNS_PORT", ""),
            ("NOUNS_SOAK", ""),
            ("NOUNS_SEED", ""),
            ("NOUNS_EXECUTABLE", ""),
        ] {
            assert_eq!(find(name).unwrap_or_default(), setting, "{name}");
        }
        let flags = ["DATABASE", "LISTEN", "WAIT", "LOG", "OPEN", "KEY", "KEY_FILE", "REDIRECT"];
        assert!(flags.iter().all(|flag| known.contains(&format!("{PREFIX}{flag}"))), "{known:?}");
    }

    #[test]
    fn environment_variable_of_kubernetes_is_ignored() {
        let is_passed = |name: &str, value: &str| is_from_kubernetes(name, OsStr::new(value));
        assert!(is_passed("NOUNS_SERVICE_HOST", "10.0.0.11"));
        assert!(is_passed("NOUNS_SERVICE_PORT", "8080"));
        assert!(is_passed("NOUNS_SERVICE_PORT_HTTP", "8080"));
        assert!(is_passed("NOUNS_PORT", "tcp://10.0.0.11:8080"));
        assert!(is_passed("NOUNS_TLS_PORT", "tcp://10.0.0.11:8080"));
        assert!(is_passed("NOUNS_PORT_8080_TCP", "tcp://10.0.0.11:8080"));
        assert!(is_passed("NOUNS_PORT_8080_TCP_ADDR", "10.0.0.11"));
        assert!(!is_passed("NOUNS_PORT", "8080"));
        assert!(!is_passed("NOUNS_LISTN", "127.0.0.1:80"));
        assert!(!is_passed("NOUNS_PORT_X_TCP", "1"));
    }
}
