//! The commands that messages recommend, with the model, the database and the key file that the operator has named.
//!
//! Only what was an argument is repeated: a variable of the environment is there for the next command too, and may
//! hold a password.

use std::ffi::OsStr;
use std::path::Path;

use super::cert::shell_quoted;

/// The way in which a command takes the model file.
#[derive(Debug, Clone, Copy)]
enum ModelArgument {
    Positional,
    Flag,
}

/// What the commands take; those that are missing take nothing of it.
const COMMANDS: &[(&str, ModelArgument, &[&str])] = &[
    ("serve", ModelArgument::Positional, &[DATABASE, KEY_FILE]),
    ("plan", ModelArgument::Positional, &[DATABASE]),
    ("migrate", ModelArgument::Positional, &[DATABASE]),
    ("changes", ModelArgument::Positional, &[DATABASE]),
    ("backup", ModelArgument::Positional, &[DATABASE]),
    ("restore", ModelArgument::Positional, &[DATABASE, KEY_FILE]),
    ("move", ModelArgument::Positional, &[DATABASE, KEY_FILE]),
    ("doctor", ModelArgument::Positional, &[DATABASE, KEY_FILE]),
    ("check", ModelArgument::Positional, &[]),
    ("user", ModelArgument::Flag, &[DATABASE, KEY_FILE]),
    ("key", ModelArgument::Flag, &[DATABASE, KEY_FILE]),
    ("export", ModelArgument::Flag, &[DATABASE]),
    ("import", ModelArgument::Flag, &[DATABASE]),
];
const DATABASE: &str = "--database";
const KEY_FILE: &str = "--key-file";

/// The beginning of a command in a message, and the characters that end it.
const BEGINNING: &str = ": nouns ";
const ENDS: [char; 4] = [';', ',', ')', '\n'];

/// The arguments of this command that others need as well.
#[derive(Debug, Default)]
pub struct CommandHint {
    model: Option<String>,
    flags: Vec<(&'static str, String)>,
}

impl CommandHint {
    pub fn new(model: Option<&Path>, database: Option<&str>, key_file: Option<&Path>) -> Self {
        let database = database.filter(|database| is_argument(database.as_ref()));
        let key_file = key_file.filter(|file| is_argument(file.as_os_str()));
        let key_file = key_file.map(|file| file.display().to_string());
        let flags = [(DATABASE, database.map(str::to_owned)), (KEY_FILE, key_file)];
        Self {
            model: model.map(|path| path.display().to_string()),
            flags: flags.into_iter().filter_map(|(flag, value)| Some((flag, value?))).collect(),
        }
    }

    /// `plan` becomes `nouns plan shop.toml --database sqlite:shop.db`.
    pub fn command(&self, words: &str) -> String {
        let mut text = format!("nouns {words}");
        let name = words.split(' ').next().unwrap_or_default();
        let Some((_, model, flags)) = COMMANDS.iter().find(|(known, ..)| *known == name) else {
            return text;
        };
        if let Some(file) = &self.model {
            text += match model {
                ModelArgument::Positional => " ",
                ModelArgument::Flag => " --model ",
            };
            text += &shell_quoted(Path::new(file));
        }
        for (flag, value) in self.flags.iter().filter(|(flag, _)| flags.contains(flag)) {
            text += &format!(" {flag} {}", shell_quoted(Path::new(value)));
        }
        text
    }

    /// Completes the commands in a message: those after a colon.
    pub fn complete(&self, message: &str) -> String {
        let mut parts = message.split(BEGINNING);
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (words, rest) = part.split_at(part.find(ENDS).unwrap_or(part.len()));
            text += &format!(": {}{rest}", self.command(words));
        }
        text
    }
}

/// Whether a value is an argument of this process, alone or after `=`.
pub fn is_argument(value: &OsStr) -> bool {
    let value = value.to_string_lossy();
    std::env::args_os().any(|argument| argument.to_string_lossy().ends_with(&*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_hint_completes_the_commands_of_a_message() {
        let flags = vec![(DATABASE, "sqlite:my data.db".to_owned()), (KEY_FILE, "k".to_owned())];
        let hint = CommandHint { model: Some("shop.toml".to_owned()), flags };
        for (message, expected) in [
            ("nothing to do", "nothing to do"),
            ("nouns serve makes it", "nouns serve makes it"),
            ("see: nouns plan", "see: nouns plan shop.toml --database 'sqlite:my data.db'"),
            ("see: nouns check; or not", "see: nouns check shop.toml; or not"),
            (
                "lost: nouns key rotate --lost",
                "lost: nouns key rotate --lost --model shop.toml --database 'sqlite:my data.db' --key-file k",
            ),
            ("a: nouns init, b: nouns cert", "a: nouns init, b: nouns cert"),
            (
                "a (b: nouns backup FILE)\nc: nouns check",
                "a (b: nouns backup FILE shop.toml --database 'sqlite:my data.db')\nc: nouns check shop.toml",
            ),
        ] {
            assert_eq!(hint.complete(message), expected);
        }
        assert_eq!(CommandHint::default().complete("see: nouns plan; a"), "see: nouns plan; a");
    }
}
