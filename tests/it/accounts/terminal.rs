//! The password prompt on a terminal: asked twice, never echoed, and the terminal's settings are
//! restored.
//!
//! `script` gives the command a terminal of its own.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use super::{AccountsFixture, PASSWORD};
use crate::harness::{Backend, EXECUTABLE, wait_until};

/// A terminal in which a command runs.
struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    /// Runs `nouns user …`, then prints the terminal's settings.
    fn run(accounts: &AccountsFixture, arguments: &str) -> Self {
        let line = format!(
            "{EXECUTABLE} user {arguments} --database {}; echo code $?; stty -a; echo ended",
            accounts.database()
        );
        let mut command = Command::new("script");
        command
            .args(["-q", "-c", &line, "/dev/null"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap());
        command.env("TERM", "dumb").env("SHELL", "/bin/sh").current_dir(accounts.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let keyboard = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, keyboard, screen }
    }

    /// Waits for the prompt first: input typed before it is discarded.
    fn type_at_prompt(&mut self, question: &str, keys: &str) {
        self.wait_for(question);
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    fn wait_for(&self, text: &str) {
        wait_until(&format!("the screen shows {text:?}"), || {
            self.screen.lock().unwrap().contains(text).then_some(())
        });
    }

    /// Waits for the end; returns everything that was on the screen.
    fn end(self) -> String {
        self.wait_for("\r\nended");
        let Self { mut child, keyboard, screen } = self;
        drop(keyboard);
        child.wait().unwrap();
        let screen = screen.lock().unwrap().clone();
        let words: Vec<_> = screen.split_whitespace().collect();
        let is_set = |word: &&str| words.contains(word);
        assert!(["echo", "icanon", "isig", "iexten"].iter().all(is_set), "{screen}");
        screen
    }
}

#[test]
fn password_prompt_asks_twice_without_echo() {
    let accounts = AccountsFixture::on(Backend::Sqlite);
    let mut terminal = Terminal::run(&accounts, "add ann --role clerk");
    terminal.type_at_prompt("password for ann: ", "Circle of Live\x7f\x7ffe\n");
    terminal.type_at_prompt("once more: ", "Circle of Life\n");
    let screen = terminal.end();
    assert!(screen.contains("nouns: added ann\r\ncode 0"), "{screen}");
    assert!(!screen.contains("Circle"), "{screen}");
    assert_eq!(accounts.serve().statuses_by_both_schemes("ann", PASSWORD), ["200", "200"]);
}

#[test]
fn password_prompt_refuses_two_different_entries() {
    let accounts = AccountsFixture::on(Backend::Sqlite);
    let mut terminal = Terminal::run(&accounts, "add ann");
    terminal.type_at_prompt("password for ann: ", "Circle of Life\n");
    terminal.type_at_prompt("once more: ", "Circle of Live\n");
    let screen = terminal.end();
    assert!(
        screen.contains("the two passwords are not the same; nothing was changed\r\ncode 2"),
        "{screen}"
    );
    assert_eq!(accounts.sql("SELECT count(*) FROM nouns_users").trim(), "0");
    assert!(!accounts.key_file().exists());
}

#[test]
fn password_prompt_interrupted_restores_the_terminal() {
    let accounts = AccountsFixture::on(Backend::Sqlite);
    let mut terminal = Terminal::run(&accounts, "add ann");
    terminal.type_at_prompt("password for ann: ", "Circle\x03");
    let screen = terminal.end();
    assert!(screen.contains("interrupted; nothing was changed\r\ncode 2"), "{screen}");
    assert!(!screen.contains("Circle"), "{screen}");
    assert_eq!(accounts.sql("SELECT count(*) FROM nouns_users").trim(), "0");
}
