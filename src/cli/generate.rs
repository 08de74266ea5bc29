//! `nouns completions` and `nouns man`: shell completions and manual pages, generated from the flags.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use super::report::{CommandError, command_error};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nouns completions bash > ~/.local/share/bash-completion/completions/nouns
  nouns completions zsh > ~/.zfunc/_nouns
  nouns completions fish > ~/.config/fish/completions/nouns.fish")]
pub struct CompletionsArgs {
    #[arg(value_name = "bash|elvish|fish|powershell|zsh", hide_possible_values = true)]
    shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nouns man > nouns.1 && man ./nouns.1
  nouns man user add > nouns-user-add.1
  nouns man --out man1                             the pages of all commands")]
pub struct ManArgs {
    /// The command to describe [default: nouns itself]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,

    /// Write the pages of all commands into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    out: Option<PathBuf>,
}

pub fn print_completions(
    mut root: Command,
    flags: &CompletionsArgs,
) -> Result<ExitCode, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut root, "nouns", &mut script);
    print_all(&script)
}

pub fn print_man_page(root: Command, flags: &ManArgs) -> Result<ExitCode, CommandError> {
    if let Some(folder) = &flags.out {
        clap_mangen::generate_to(root, folder).map_err(|error| {
            command_error(format!("cannot write manual pages into {} ({error})", folder.display()))
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut page = Vec::new();
    let command = find_command(root, &flags.command)?;
    clap_mangen::Man::new(command).render(&mut page)?;
    print_all(&page)
}

/// The command that `path` names; `build` gives it its whole name, such as `nouns-user-add`.
fn find_command(mut root: Command, path: &[String]) -> Result<Command, CommandError> {
    root.build();
    let found = path.iter().try_fold(&root, |command, name| command.find_subcommand(name));
    found.cloned().ok_or_else(|| {
        command_error(format!("there is no command {}; nouns help lists them", path.join(" ")))
    })
}

fn print_all(text: &[u8]) -> Result<ExitCode, CommandError> {
    std::io::stdout().write_all(text)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn completions_name_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "nouns", &mut script);
            let script = String::from_utf8(script).unwrap();
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }

    #[test]
    fn man_page_of_a_nested_command_has_its_whole_name() {
        let path = ["user".to_owned(), "add".to_owned()];
        let command = find_command(Cli::command(), &path).unwrap();
        assert_eq!(command.get_display_name(), Some("nouns-user-add"));
        let error = find_command(Cli::command(), &["sevre".to_owned()]).unwrap_err();
        assert_eq!(error, command_error("there is no command sevre; nouns help lists them"));
    }
}
