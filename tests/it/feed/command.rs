//! `nouns changes`: lines of JSON, short lines on a terminal, and positions that were swept.

use std::path::Path;
use std::process::Command;

use expect_test::expect;

use crate::harness::{ANN, Backend, EXECUTABLE, Masks, Process, Server, run_nouns, run_sql};

/// Three changes of one customer.
fn write_changes(server: &Server) {
    let path = server.create("/customers", ANN);
    // A terminal that obeyed it would clear its screen.
    let wild = ANN.replace("Ann", "B\\u001b[2J\\u202e").replace("ann@", "bea@");
    assert_eq!(server.put(&path, wild).status, 200);
    assert_eq!(server.delete(&path).status, 204);
}

/// What a terminal of this width receives from `nouns changes`, with a sign for ESC.
fn run_on_terminal(folder: &Path, width: usize, arguments: &str) -> String {
    let line = format!("stty cols {width}; {arguments}");
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &line, "/dev/null"]).env_clear().current_dir(folder);
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("SHELL", "/bin/sh");
    let ended = Process::spawn(&mut command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // A mark at the left edge keeps the indentation.
    let text = ended.stdout.replace('\r', "").replace('\x1b', "␛");
    text.lines().map(|line| format!("|{line}\n")).collect()
}

/// Ids, and the digits of days and times.
fn mask(text: &str) -> String {
    let text = Masks::default().text(text);
    let time = regex::Regex::new(r"\d\d-\d\d \d\d:\d\d:\d\d").unwrap();
    let short_id = regex::Regex::new(r"…[0-9a-f]{6}").unwrap();
    short_id.replace_all(&time.replace_all(&text, "<day> <time>"), "…<id>").into_owned()
}

on_every_backend! {
    fn changes_command_on_a_terminal_prints_short_lines(server: Server) {
        write_changes(&server);
        let changes = format!("{EXECUTABLE} changes --database {}", server.database());
        let run = |width, arguments: &str| mask(&run_on_terminal(server.folder(), width, arguments));
        expect![[r#"
            |␛[2m      1  <day> <time>  ␛[0m␛[32mcreated␛[0m  /customers/<id-1>␛[2m  open␛[0m
            |␛[2m      2  <day> <time>  ␛[0m␛[33mupdated␛[0m  /customers/<id-1>␛[2m  open␛[0m  name: Ann → B\u{1b}[2J\u{202e}, email: ann@example.com → bea@example.com
            |␛[2m      3  <day> <time>  ␛[0m␛[31mdeleted␛[0m  /customers/<id-1>␛[2m  open␛[0m
        "#]].assert_eq(&run(170, &changes));
        expect![[r#"
            |      2  <day> <time>  updated  /customers/…<id>  open  name: Ann → B\u{1b}…
            |      3  <day> <time>  deleted  /customers/…<id>  open
        "#]].assert_eq(&run(80, &format!("NO_COLOR=1 {changes} --since 1")));
        // A script that runs on a terminal asks for JSON.
        let json = run(80, &format!("{changes} --since 2 --json"));
        let piped = run_nouns(server.folder(), &["changes", "--since", "2", "--database", &server.database()]);
        assert_eq!((json, piped.code), (format!("|{}", mask(&piped.stdout)), Some(0)));
        assert!(piped.stdout.starts_with(r#"{"sequence":3,"#), "{}", piped.stdout);
    }

    fn changes_command_since_a_swept_position_is_refused(server: Server) {
        write_changes(&server);
        write_changes(&server);
        run_sql(server.backend(), server.folder(), "DELETE FROM nouns_changes WHERE sequence < 4");
        let database = server.database();
        let run = |since: &str| run_nouns(server.folder(), &["changes", "--since", since, "--database", &database]);
        for since in ["1", "2"] {
            let ended = run(since);
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
            let message = format!("nouns: the change log no longer has the changes after {since}; the oldest it has is 4 (--since 0 begins there)\n");
            assert_eq!(ended.stderr, message);
        }
        for (since, first) in [("-1", Some("4")), ("0", Some("4")), ("3", Some("4")), ("5", Some("6")), ("6", None), ("7", None)] {
            let ended = run(since);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
            let printed = ended.stdout.strip_prefix("{\"sequence\":").and_then(|rest| rest.split(',').next());
            assert_eq!(printed, first, "since {since}");
        }
    }
}

/// Entries that were swept while nobody read them are not skipped silently.
#[test]
fn changes_command_that_follows_ends_when_it_is_overtaken_by_the_sweep() {
    let server = Server::on(Backend::Sqlite);
    write_changes(&server);
    let mut command = Command::new(EXECUTABLE);
    command.args(["changes", "--follow", "--database", &server.database()]).env_clear();
    let follower = Process::spawn(&mut command);
    for sequence in 1..=3 {
        let line = follower.first_line();
        assert!(line.starts_with(&format!("{{\"sequence\":{sequence},")), "{line}");
    }
    // In one transaction, so that the follower sees both or neither.
    run_sql(
        Backend::Sqlite,
        server.folder(),
        "BEGIN; INSERT INTO nouns_changes SELECT sequence + 10, time, resource, id, parent_id, subject, \
         kind, actor, request_id, changed, before, after FROM nouns_changes; \
         DELETE FROM nouns_changes WHERE sequence < 12; COMMIT",
    );
    let ended = follower.end();
    assert_eq!((ended.code, ended.stdout.lines().count()), (Some(2), 3), "{ended:?}");
    assert!(ended.stderr.contains("no longer has the changes after 3; the oldest it has is 12"));
}
