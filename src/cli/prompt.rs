//! Password input: from a terminal without echo, or from standard input.
//!
//! A password never comes from an argument or the environment. The caller validates the password.
//! During a prompt the terminal passes Ctrl-C on as a byte, so that the terminal is always restored before
//! the program ends.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Write};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use super::report::{CommandError, command_error};

/// The maximum size of the input, far more than a password may have.
const BYTES_MAX: u64 = 64 << 10;

const CTRL_C: u8 = 0x03;
const CTRL_D: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const CTRL_U: u8 = 0x15;
const DELETE: u8 = 0x7f;

/// Reads all of standard input, without the final line end. `what` is what it should be, for messages.
pub fn read_stdin(what: &str) -> Result<String, CommandError> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| {
        command_error(match error.kind() {
            ErrorKind::InvalidData => {
                format!("the {what} on standard input is not text in UTF-8")
            }
            _ => format!("cannot read the {what} from standard input ({error})"),
        })
    })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// Prompts twice on the terminal, even if standard input is redirected.
pub fn read_terminal(name: &str) -> Result<String, CommandError> {
    let terminal = File::options().read(true).write(true).open("/dev/tty").map_err(|_| {
        command_error(
            "there is no terminal to ask for the password on; give it on standard input, with --password-stdin",
        )
    })?;
    let first = prompt_hidden(&terminal, &format!("password for {name}: "))?;
    let second = prompt_hidden(&terminal, "once more: ")?;
    if first != second {
        return Err(command_error("the two passwords are not the same; nothing was changed"));
    }
    Ok(first)
}

/// Disables the echo of the terminal; restores it when dropped.
struct EchoDisabled<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> EchoDisabled<'a> {
    fn new(terminal: &'a File) -> rustix::io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut hidden = before.clone();
        hidden.local_modes -= LocalModes::ECHO | LocalModes::ECHONL;
        hidden.local_modes -= LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN;
        hidden.special_codes[SpecialCodeIndex::VMIN] = 1;
        hidden.special_codes[SpecialCodeIndex::VTIME] = 0;
        // Discards the input typed before the prompt.
        tcsetattr(terminal, OptionalActions::Flush, &hidden)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for EchoDisabled<'_> {
    fn drop(&mut self) {
        // If that fails, there is no other place to report to.
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
        let _ = self.terminal.write_all(b"\n");
    }
}

fn prompt_hidden(mut terminal: &File, question: &str) -> Result<String, CommandError> {
    let failed = |error: &dyn std::fmt::Display| {
        command_error(format!("cannot read from the terminal ({error})"))
    };
    let hidden = EchoDisabled::new(terminal).map_err(|error| failed(&error))?;
    terminal.write_all(question.as_bytes()).map_err(|error| failed(&error))?;
    let typed = read_edited_line(BufReader::new(terminal).bytes());
    drop(hidden);
    match typed {
        Ok(Some(line)) => String::from_utf8(line)
            .map_err(|_| command_error("the password is not text in UTF-8; nothing was changed")),
        Ok(None) => Err(command_error("interrupted; nothing was changed")),
        Err(error) => Err(failed(&error)),
    }
}

/// Reads one line, edited as terminals do; `None` when it was interrupted.
fn read_edited_line(
    bytes: impl Iterator<Item = std::io::Result<u8>>,
) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    for byte in bytes {
        match byte? {
            b'\n' | b'\r' => return Ok(Some(line)),
            CTRL_C => return Ok(None),
            CTRL_D if line.is_empty() => return Ok(None),
            BACKSPACE | DELETE => {
                // A character may have several bytes; those after the first begin with the bits 10.
                while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            CTRL_U => line.clear(),
            byte => line.push(byte),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(bytes: &[u8]) -> Option<String> {
        let line = read_edited_line(bytes.iter().map(|byte| Ok(*byte))).unwrap();
        line.map(|line| String::from_utf8(line).unwrap())
    }

    #[test]
    fn password_prompt_edits_the_line_as_terminals_do() {
        assert_eq!(typed(b"secret\nmore").as_deref(), Some("secret"));
        assert_eq!(typed(b"secret\r").as_deref(), Some("secret"));
        assert_eq!(typed(b"sex\x7fcret\x08t\n").as_deref(), Some("secret"));
        assert_eq!(typed("café\x7fe\n".as_bytes()).as_deref(), Some("cafe"));
        assert_eq!(typed(b"\x7f\x7fa\n").as_deref(), Some("a"));
        assert_eq!(typed(b"wrong\x15right\n").as_deref(), Some("right"));
        assert_eq!(typed(b"\n").as_deref(), Some(""));
        assert_eq!(typed(b"sec\x03ret\n"), None);
        assert_eq!(typed(b"\x04"), None);
        assert_eq!(typed(b"sec"), None);
    }
}
