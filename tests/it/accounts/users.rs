//! User management on the command line: its output, the stored rows, and the effect on running servers.

use expect_test::expect;

use super::{AccountsFixture, PASSWORD, run_to_failure};
use crate::harness::{Backend, Masks, wait_until};

on_every_backend! {
    fn user_commands_add_change_list_and_remove(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        let mut output = String::new();
        let mut run = |args: &[&str], input: &str| output.push_str(&accounts.run_to_success(args, input));
        run(&["user", "add", "ann", "--role", "clerk", "--password-stdin"], "Circle of Life\n");
        run(&["user", "add", "jos\u{e9}", "--password-stdin"], "Hakuna Matata\r\n");
        run(&["user", "roles", "ann", "--role", "shopper", "--role", "admin"], "");
        run(&["user", "disable", "ann", "--force"], "");
        // The same name in another Unicode composition.
        run(&["user", "passwd", "jose\u{301}", "--password-stdin"], "Can you feel it");
        run(&["user", "list"], "");
        run(&["user", "list", "--json"], "");
        run(&["user", "enable", "ann"], "");
        run(&["user", "roles", "ann", "--none", "--force"], "");
        run(&["user", "list"], "");
        run(&["user", "remove", "ann"], "");
        run(&["user", "remove", "jos\u{e9}"], "");
        run(&["user", "list"], "");
        expect![[r#"
            nouns: added ann
            nouns: added josé
            nouns: set the roles of ann
            nouns: disabled ann
            nouns: set the password of josé
            NAME  ROLES          DISABLED  SINCE
            ann   shopper admin  yes       <time-1>
            josé  -              no        <time-2>
            {"name":"ann","roles":["shopper","admin"],"undeclared_roles":[],"disabled":true,"created_at":"<time-1>","updated_at":"<time-3>"}
            {"name":"josé","roles":[],"undeclared_roles":[],"disabled":false,"created_at":"<time-2>","updated_at":"<time-4>"}
            nouns: enabled ann
            nouns: set the roles of ann
            NAME  ROLES  DISABLED  SINCE
            ann   -      no        <time-1>
            josé  -      no        <time-2>
            nouns: removed ann
            nouns: removed josé
            NAME  ROLES  DISABLED  SINCE
        "#]].assert_eq(&Masks::default().text(&output));
        let log = accounts.sql("SELECT kind, actor FROM nouns_changes ORDER BY sequence");
        assert_eq!(log.lines().filter(|line| line.ends_with("command line")).count(), 9, "{log}");
    }

    fn user_commands_refused_name_the_remedy(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        accounts.add("ann");
        let before = accounts.sql("SELECT * FROM nouns_users");
        let mut messages = Vec::new();
        let mut refuse = |args: &[&str], input: &str| messages.push(accounts.run_to_failure(args, input));
        refuse(&["user", "add", "ann", "--password-stdin"], PASSWORD);
        refuse(&["user", "add", "bob", "--role", "clerc", "--password-stdin"], PASSWORD);
        refuse(&["user", "add", "b:b", "--password-stdin"], PASSWORD);
        refuse(&["user", "add", "", "--password-stdin"], PASSWORD);
        refuse(&["user", "add", "an\u{200b}n", "--password-stdin"], PASSWORD);
        refuse(&["user", "add", "\u{ff41}nn", "--password-stdin"], PASSWORD);
        refuse(&["user", "add", "ann ", "--password-stdin"], PASSWORD);
        refuse(&["user", "add", "bob", "--password-stdin"], "");
        refuse(&["user", "add", "bob", "--password-stdin"], "seven77");
        refuse(&["user", "add", "bob", "--password-stdin"], "two lines\nof it");
        refuse(&["user", "add", "bob", "--password-stdin"], &"long".repeat(257));
        refuse(&["user", "passwd", "bob", "--password-stdin"], PASSWORD);
        refuse(&["user", "roles", "bob", "--role", "clerk"], "");
        refuse(&["user", "roles", "ann", "--role", "boss"], "");
        refuse(&["user", "disable", "bob"], "");
        refuse(&["user", "remove", "bob"], "");
        expect![[r#"
            there is a user ann already; set the password with: nouns user passwd ann
            --role: expected one of "clerk", "shopper", "admin", got "clerc"
            name: expected a name without a colon
            name: expected at least 1 character, got 0
            name: expected no U+200B, which names may not have (RFC 8265)
            name: expected "ann", which looks like it
            name: expected words with one space between them, and none around them
            password: expected at least 8 characters, got 0
            password: expected at least 8 characters, got 7
            password: expected no control characters
            password: expected at most 1024 characters, got 1028
            there is no user bob; list the users with: nouns user list
            there is no user bob; list the users with: nouns user list
            --role: expected one of "clerk", "shopper", "admin", got "boss"
            there is no user bob; list the users with: nouns user list
            there is no user bob; list the users with: nouns user list
        "#]].assert_eq(&(messages.join("\n") + "\n"));
        assert_eq!(accounts.sql("SELECT * FROM nouns_users"), before);
        // Only what clap declares can be an argument: a password is not.
        let ended = accounts.run(&["user", "add", "bob", "--password", PASSWORD]);
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains("unexpected argument"), "{}", ended.stderr);
    }

    /// A revocation is in force at every server when the command ends.
    fn user_commands_take_effect_at_running_servers(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        accounts.add("ann");
        accounts.run_to_success(&["user", "add", "eve", "--role", "admin", "--password-stdin"], PASSWORD);
        let server = accounts.serve();
        assert_eq!(server.statuses_by_both_schemes("ann", PASSWORD), ["200", "200"]);
        accounts.run_to_success(&["user", "passwd", "ann", "--password-stdin"], "Hakuna Matata");
        assert_eq!(server.statuses_by_both_schemes("ann", PASSWORD), ["401", "401"]);
        assert_eq!(server.statuses_by_both_schemes("ann", "Hakuna Matata"), ["200", "200"]);
        accounts.run_to_success(&["user", "roles", "ann", "--none"], "");
        assert_eq!(server.statuses_by_both_schemes("ann", "Hakuna Matata"), ["403", "403"]);
        accounts.run_to_success(&["user", "roles", "ann", "--role", "admin"], "");
        assert_eq!(server.statuses_by_both_schemes("ann", "Hakuna Matata"), ["200", "200"]);
        accounts.run_to_success(&["user", "disable", "ann"], "");
        assert_eq!(server.statuses_by_both_schemes("ann", "Hakuna Matata"), ["401", "401"]);
        accounts.run_to_success(&["user", "enable", "ann"], "");
        wait_until("ann is let in again", || {
            (server.status("--digest", "ann", "Hakuna Matata") == "200").then_some(())
        });
        accounts.run_to_success(&["user", "remove", "ann"], "");
        assert_eq!(server.statuses_by_both_schemes("ann", "Hakuna Matata"), ["401", "401"]);
    }

    /// They create no database, no table and no key.
    fn user_commands_without_a_database_create_nothing(backend: Backend) {
        let accounts = AccountsFixture::without_database(backend);
        let commands: [(&[&str], &str); 8] = [
            (&["user", "add", "ann", "--role", "clerk", "--password-stdin"], PASSWORD),
            (&["user", "list"], ""),
            (&["user", "passwd", "ann", "--password-stdin"], PASSWORD),
            (&["user", "roles", "ann", "--none"], ""),
            (&["user", "disable", "ann"], ""),
            (&["user", "enable", "ann"], ""),
            (&["user", "remove", "ann"], ""),
            (&["key", "rotate"], ""),
        ];
        let expected = match backend {
            Backend::Sqlite => "there is no database ",
            Backend::Postgres => "there are no tables of nouns in ",
        };
        let check = |message: &str| {
            assert!(message.starts_with(expected) && message.ends_with("nouns serve"), "{message}");
        };
        let refuse_all = || {
            for (args, input) in &commands {
                check(&accounts.run_to_failure(args, input));
            }
            check(&run_to_failure(&mut accounts.command(&["changes"]), ""));
        };
        refuse_all();
        let left = || std::fs::read_dir(accounts.folder.path()).unwrap().count();
        assert_eq!(left(), 0, "nothing was made");
        match backend {
            Backend::Postgres => {
                let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
                assert_eq!(accounts.sql(tables).trim(), "0");
            }
            // An empty file is not a database either.
            Backend::Sqlite => {
                let file = accounts.folder.path().join("nouns.db");
                std::fs::write(&file, "").unwrap();
                refuse_all();
                assert_eq!((std::fs::metadata(&file).unwrap().len(), left()), (0, 1));
            }
        }
    }

    /// The file holds a password that is no longer valid.
    fn first_password_file_is_removed_when_its_password_changes(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        drop(accounts.serve());
        let file = accounts.password_file();
        assert!(file.exists());
        let output = accounts.run_to_success(&["user", "passwd", "admin", "--password-stdin"], PASSWORD);
        let removed = |output: &str| output.contains("removed ") && output.contains(".admin-password, which held the old one");
        assert!(removed(&output), "{output}");
        assert!(!file.exists());
        let output = accounts.run_to_success(&["user", "passwd", "admin", "--password-stdin"], "Hakuna Matata");
        assert_eq!(output, "nouns: set the password of admin\n");
        // Somebody else's password says nothing about it.
        std::fs::write(&file, "Hakuna Matata\n").unwrap();
        accounts.add("ann");
        accounts.run_to_success(&["user", "passwd", "ann", "--password-stdin"], PASSWORD);
        assert!(file.exists());
        assert!(removed(&accounts.run_to_success(&["user", "remove", "admin", "--force"], "")));
        assert!(!file.exists());
    }

    /// An interrupted start leaves the password in a file with a temporary name.
    fn first_password_file_with_its_temporary_name_is_removed_when_its_password_changes(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        accounts.interrupt_first_start();
        let temporary = || {
            let files = std::fs::read_dir(accounts.folder.path()).unwrap().map(|entry| entry.unwrap().path());
            files.filter(|file| file.to_str().unwrap().ends_with(".new")).collect::<Vec<_>>()
        };
        assert_eq!(temporary().len(), 1);
        let output = accounts.run_to_success(&["user", "passwd", "admin", "--password-stdin"], PASSWORD);
        assert!(output.contains("removed ") && output.contains(".new, which held the old one"), "{output}");
        assert_eq!(temporary().len(), 0);
    }

    /// Databases of one name on several servers share a folder of keys, and with it the name of this file.
    fn first_password_file_of_another_database_is_kept(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        drop(accounts.serve());
        let file = accounts.password_file();
        let foreign = "the password of another database\n";
        std::fs::write(&file, foreign).unwrap();
        let unfinished = file.with_extension("admin-password.0123456789abcdef.new");
        std::fs::write(&unfinished, foreign).unwrap();
        drop(accounts.serve());
        for args in [&["user", "passwd", "admin", "--password-stdin"][..], &["user", "remove", "admin", "--force"]] {
            let output = accounts.run_to_success(args, PASSWORD);
            let left = format!("{} is left as it is: ", file.file_name().unwrap().display());
            assert!(output.contains(&left), "{output}");
        }
        for file in [&file, &unfinished] {
            assert_eq!(std::fs::read_to_string(file).unwrap(), foreign);
        }
    }

    /// Without an admin nobody could manage users over HTTP.
    fn last_admin_is_kept_unless_forced(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        for name in ["ann", "bob"] {
            accounts.run_to_success(&["user", "add", name, "--role", "admin", "--role", "clerk", "--password-stdin"], PASSWORD);
        }
        // With another admin left, each of them may be removed.
        accounts.run_to_success(&["user", "disable", "bob"], "");
        let before = accounts.sql("SELECT * FROM nouns_users ORDER BY name");
        for args in [
            &["user", "disable", "ann"][..],
            &["user", "roles", "ann", "--role", "clerk"],
            &["user", "roles", "ann", "--none"],
            &["user", "remove", "ann"],
        ] {
            let message = accounts.run_to_failure(args, "");
            assert!(message.starts_with("ann is the last enabled user with the role admin, "), "{args:?}: {message}");
            assert!(message.ends_with("or say --force"), "{message}");
        }
        assert_eq!(accounts.sql("SELECT * FROM nouns_users ORDER BY name"), before);
        // A change that leaves the role in place is allowed.
        accounts.run_to_success(&["user", "roles", "ann", "--role", "admin"], "");
        accounts.run_to_success(&["user", "passwd", "ann", "--password-stdin"], PASSWORD);
        accounts.run_to_success(&["user", "remove", "bob"], "");
        accounts.run_to_success(&["user", "disable", "ann", "--force"], "");
        accounts.run_to_success(&["user", "remove", "ann"], "");
    }
}

/// The file with the temporary name shows it too.
#[test]
fn lost_database_with_a_temporary_password_file_is_not_created_again() {
    let accounts = AccountsFixture::on(Backend::Sqlite);
    accounts.interrupt_first_start();
    for end in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(accounts.folder.path().join(format!("nouns.db{end}"))));
    }
    let refused = accounts.run_to_failure(&["serve", "--listen", "127.0.0.1:0"], "");
    assert!(refused.contains("the database was lost") && refused.contains(".new"), "{refused}");
}
