//! The command line: flags, files and settings, right and wrong.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use expect_test::expect;

use super::{SERVE, assert_start_fails, check_failed_start, contents};
use crate::harness::{Backend, EXECUTABLE, FinishedProcess, Folder, Process, Setup, run_nouns};

/// Basic without TLS is for loopback only.
#[test]
fn basic_without_tls_on_other_addresses_is_refused() {
    let folder = Folder::new();
    assert_start_fails(
        folder.path(),
        &["serve", "--listen", "0.0.0.0:0"],
        &expect![[r#"
            nouns: the realm "store" offers Basic, which sends passwords in clear, and 0.0.0.0:0 can be reached from other machines; serve HTTPS with --tls-cert and --tls-key (nouns cert creates a self-signed pair), say --behind-proxy where a proxy terminates TLS, listen on a loopback address, or declare schemes = ["digest"] for the realm
        "#]],
    );
}

/// Every server of one database needs the same key, so it has to be given.
#[test]
fn key_file_missing_with_postgres_is_refused() {
    let folder = Folder::new();
    let database = "postgres://nobody@127.0.0.1:1/none";
    assert_start_fails(
        folder.path(),
        &["serve", "--listen", "127.0.0.1:0", "--database", database],
        &expect![[r#"
        nouns: with PostgreSQL the key has to be named, because every server needs the same one; name its file with --key-file, or set NOUNS_KEY (a new key: openssl rand -base64 32)
    "#]],
    );
}

#[test]
fn open_flag_on_other_addresses_is_refused() {
    let folder = Folder::new();
    assert_start_fails(
        folder.path(),
        &["serve", "--open", "--listen", "0.0.0.0:0"],
        &expect![[r#"
            nouns: --open lets everyone do everything, so it listens on this machine alone: 0.0.0.0:0 is not a loopback address; use --listen 127.0.0.1:8080
        "#]],
    );
}

#[test]
fn listen_port_in_use_fails_the_start() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = ["serve", "--open", "--listen", &address, "--database", "sqlite:nouns.db"];
    let before = contents(folder.path());
    let ended = run_nouns(folder.path(), &args);
    let stderr = ended.stderr.replace(&address, "ADDRESS");
    check_failed_start(
        &FinishedProcess { stderr, ..ended },
        folder.path(),
        &expect![[r#"
        nouns: cannot listen on ADDRESS: the port is taken; stop the program that has it, or choose another port, as in --port 8081 (0 picks a free one)
    "#]],
    );
    assert!(contents(folder.path()) == before);
}

#[test]
fn flags_invalid_are_refused() {
    let folder = Folder::new();
    assert_start_fails(
        folder.path(),
        &["serve", "--opne"],
        &expect![[r#"
        error: unexpected argument '--opne' found

          tip: a similar argument exists: '--open'

        Usage: nouns serve --open[=<BOOL>] [MODEL]

        For more information, try '--help'.
    "#]],
    );
    assert_start_fails(
        folder.path(),
        &["serve", "--open", "--listen", "here"],
        &expect![[r#"
        nouns: cannot listen on here: expected ADDRESS:PORT, such as 127.0.0.1:8080, [::1]:8080 or localhost:0; the port is missing
    "#]],
    );
    assert_start_fails(
        folder.path(),
        &["serve", "--open", "--database", "mysql:x"],
        &expect![[r#"
            nouns: database: expected sqlite:PATH or postgres://…, got "mysql:…"
        "#]],
    );
    assert_start_fails(
        folder.path(),
        &["serve", "--open", "--log", "loud"],
        &expect![[r#"
        error: invalid value 'loud' for '--log <STYLE>'
          [possible values: pretty, json]

        For more information, try '--help'.
    "#]],
    );
    assert_start_fails(
        folder.path(),
        &["srve"],
        &expect![[r#"
        error: unrecognized subcommand 'srve'

          tip: a similar subcommand exists: 'serve'

        Usage: nouns <COMMAND>

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn model_file_missing_fails_the_start() {
    let folder = Folder::new();
    assert_start_fails(
        folder.path(),
        &["serve", "--open", "shop.toml"],
        &expect![[r#"
        nouns: there is no model file shop.toml; create one with: nouns init
    "#]],
    );
    assert_start_fails(
        folder.path(),
        &["check", "shop.toml"],
        &expect![[r#"
        nouns: there is no model file shop.toml; create one with: nouns init
    "#]],
    );
}

#[test]
fn model_file_invalid_fails_the_start() {
    let folder = Folder::new();
    fs::write(
        folder.path().join("nouns.toml"),
        "title = \"Shop\"\n[resources.cup.fields]\nsize = { type = \"integr\" }\n",
    )
    .unwrap();
    assert_start_fails(
        folder.path(),
        SERVE,
        &expect![[r#"
        error: unknown type "integr"
         --> nouns.toml:3:17
          |
        3 | size = { type = "integr" }
          |                 ^^^^^^^^
          |
          = help: did you mean `integer`?
    "#]],
    );
}

#[test]
fn init_writes_once_and_serves_without_an_edit() {
    for example in
        ["store", "library", "blog", "appointments", "inventory", "tickets", "courses", "expenses"]
    {
        let folder = Folder::new();
        let made = run_nouns(folder.path(), &["init", "--from", example]);
        assert_eq!(made.code, Some(0), "{made:?}");
        let again = run_nouns(folder.path(), &["init", "--from", example]);
        assert_eq!(again.code, Some(2), "{again:?}");
        let checked = run_nouns(folder.path(), &["check"]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
        let server = Setup::new(Backend::Sqlite).start_in(folder);
        assert_eq!(server.get("/").status, 200);
    }
}

/// Runs a command that only prints, and returns its output.
fn run_and_print(args: &[&str]) -> String {
    let folder = Folder::new();
    let ended = run_nouns(folder.path(), args);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?}");
    assert!(contents(folder.path()).is_empty());
    ended.stdout
}

#[test]
fn version_and_schema_are_printed() {
    assert_eq!(run_and_print(&["--version"]), concat!("nouns ", env!("CARGO_PKG_VERSION"), "\n"));
    let schema: serde_json::Value =
        serde_json::from_str(&run_and_print(&["check", "--schema"])).unwrap();
    assert!(schema["$schema"].is_string(), "{schema}");
}

#[test]
fn help_is_printed() {
    expect![[r#"
        Declare the nouns. HTTP already has the verbs.

        You write a small model file that names your resources; nouns serves them as a complete HTTP
        interface. Without a model file it serves a small store of customers and orders.

        Usage: nouns <COMMAND>

        Commands:
          serve        Serve a model over HTTP
          init         Create a commented model file, nouns.toml
          check        Check a model file and list all mistakes
          plan         Show what a changed model does to the stored data
          migrate      Apply a changed model to the stored data
          openapi      Print the OpenAPI document of a model
          export       Write all items of a resource into a file
          import       Create items of a resource from a file
          changes      Print the change log, one line per change
          backup       Copy the database to a file, while servers run
          restore      Put a backup in the place of the database
          move         Copy a stopped database to PostgreSQL, or back to SQLite
          doctor       Check the database, the key and the machine, and say what to mend
          user         Manage users
          cert         Create a self-signed certificate to try HTTPS
          key          Rotate the server's secret key
          webhook      Try webhooks
          completions  Print a shell completion script
          man          Print the manual page of nouns or of one command
          help         Print this message or the help of the given subcommand(s)

        Options:
          -h, --help
                  Print help (see a summary with '-h')

          -V, --version
                  Print version

        Try it:
          nouns serve                                      the store, at http://127.0.0.1:8080
          curl -u "admin:$(cat nouns.admin-password)" http://127.0.0.1:8080/customers
          nouns init && nouns check                        a model file of your own to start from
    "#]]
    .assert_eq(&run_and_print(&["--help"]));
    expect![[r#"
        Create a commented model file, nouns.toml

        Usage: nouns init [OPTIONS]

        Options:
              --from <EXAMPLE>            The example to start from [default: store] [possible values:
                                          store, library, blog, appointments, inventory, tickets, courses,
                                          expenses]
              --from-database <DATABASE>  Write a model for the tables of a database: sqlite:PATH or
                                          postgres://USER@HOST/NAME
          -h, --help                      Print help

        With --from-database it writes a model from the tables of another program: tables, columns, keys and
        rules, as far as they fit; comments in the file and messages say what does not. It reads the
        catalogue, and no rows. It does not serve those tables: the comments have the statements that export
        their rows for nouns import.
    "#]]
    .assert_eq(&run_and_print(&["init", "--help"]));
    expect![[r#"
        Check a model file and list all mistakes

        Usage: nouns check [OPTIONS] [MODEL]

        Arguments:
          [MODEL]  The model file [default: nouns.toml here, else the built-in store]

        Options:
              --schema  Print the JSON Schema of the model file, for editors
          -h, --help    Print help
    "#]]
    .assert_eq(&run_and_print(&["check", "--help"]));
}

#[test]
fn help_of_serve_is_printed() {
    expect![[r#"
        Serve a model over HTTP

        Usage: nouns serve [OPTIONS] [MODEL]

        Arguments:
          [MODEL]  The model file [default: nouns.toml here, else the built-in store]

        Options:
              --database <DATABASE>  The database: sqlite:PATH or postgres://USER@HOST/NAME [default:
                                     sqlite:nouns.db]
              --listen <ADDRESS>     Address and port to listen on; may be repeated; port 0 picks a free one
                                     [default: 127.0.0.1:8080]
              --port <PORT>          Port to listen on at 127.0.0.1: short for --listen 127.0.0.1:PORT
              --tls-cert <FILE>      The certificate with its chain, in PEM: all addresses then serve HTTPS;
                                     reloaded on SIGHUP
              --tls-key <FILE>       The key of the certificate, in PEM, without a passphrase
              --redirect <ADDRESS>   Plain HTTP address that redirects to HTTPS; may be repeated
              --key-file <FILE>      The file with the server's secret key, 32 bytes in base64; NOUNS_KEY
                                     may hold the key itself [default: nouns.key beside the SQLite file]
              --behind-proxy <CIDR>  Network of a trusted proxy, such as 10.0.0.0/8, whose headers name the
                                     address and the scheme of a client (Forwarded, X-Forwarded-For,
                                     X-Forwarded-Proto); may be repeated
              --open[=<BOOL>]        Serve without authentication: everyone who reaches it may do
                                     everything; loopback addresses only
              --wait[=<BOOL>]        Retry while the database cannot be reached
              --demo                 Serve the built-in store with a few hundred customers and orders, in a
                                     temporary database that is deleted at the end
              --log <STYLE>          Log format, on standard error: pretty or json [default: pretty on a
                                     terminal, else json]
          -h, --help                 Print help

        Settings:
          Every flag but --port and --demo is also an environment variable and a key of the model's [server]
          table: --database is NOUNS_DATABASE and database. The flag wins, then the environment, then the
          file. A variable NOUNS_... that looks like a misspelled setting is refused.

        Files:
          nouns.db              the database; nouns.db-wal and nouns.db-shm belong to it
          nouns.db-lock         prevents a second server
          nouns.key             encrypts Digest credentials; back it up separately
          nouns.admin-password  the first password, written by the first start

        Ending:
          SIGHUP reloads the certificate, its key and a changed model.
          SIGTERM or SIGINT (Ctrl-C) finishes requests in flight, up to 10 seconds; a second one ends at
          once.
          Exit code 0: shut down on request. 1: ended by an internal error; answered writes are saved. 2:
          could not start; the message says why, and nothing was changed.
    "#]].assert_eq(&run_and_print(&["serve", "--help"]));
}

#[test]
fn setting_precedence_is_flag_then_environment_then_file() {
    let folder = Folder::new();
    let model = "title = \"Shop\"\n[server]\nopen = true\nlisten = [\"127.0.0.1:0\"]\ndatabase = \"sqlite:file.db\"\n[resources.cup.fields]\nsize = { type = \"integer\" }\n";
    fs::write(folder.path().join("nouns.toml"), model).unwrap();
    let start = |environment: &[(&str, &str)], args: &[&str]| {
        let mut command = Command::new(EXECUTABLE);
        command
            .arg("serve")
            .args(args)
            .env_clear()
            .envs(environment.iter().copied())
            .current_dir(folder.path());
        let process = Process::spawn(&mut command);
        process.first_line();
        process.signal("TERM");
        assert_eq!(process.end().code, Some(0));
        let names = ["file.db", "environment.db", "flag.db"];
        let made: Vec<_> = names
            .into_iter()
            .filter(|name| fs::remove_file(folder.path().join(name)).is_ok())
            .collect();
        made.join(" ")
    };
    let environment = [("NOUNS_DATABASE", "sqlite:environment.db")];
    assert_eq!(start(&[], &[]), "file.db");
    assert_eq!(start(&environment, &[]), "environment.db");
    assert_eq!(start(&environment, &["--database", "sqlite:flag.db"]), "flag.db");
}

/// The pages of all commands, as packages install them.
#[test]
fn man_pages_of_all_commands_are_written_into_a_folder() {
    let folder = Folder::new();
    let ended = run_nouns(folder.path(), &["man", "--out", "."]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    for (file, name) in
        [("nouns.1", "nouns"), ("nouns-serve.1", "serve"), ("nouns-user-add.1", "add")]
    {
        let page = fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(page.contains(".TH nouns") && page.contains(name), "{file}: {page}");
    }
    let ended = run_nouns(folder.path(), &["man", "--out", "nowhere"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.starts_with("nouns: cannot write manual pages into nowhere ("),
        "{}",
        ended.stderr
    );
}

fn with_variables(folder: &Folder, args: &[&str], variables: &[(&str, &str)]) -> Process {
    let mut command = Command::new(EXECUTABLE);
    command.args(args).env_clear().envs(variables.iter().copied()).current_dir(folder.path());
    Process::spawn(&mut command)
}

/// A misspelled variable would leave the default in force.
#[test]
fn environment_variable_misspelled_is_refused() {
    let folder = Folder::new();
    for (args, variable, expected) in [
        (&["serve", "--open"][..], "NOUNS_LISTN", "did you mean NOUNS_LISTEN?"),
        (&["serve", "--open"], "NOUNS_DATABSE", "did you mean NOUNS_DATABASE?"),
        (&["user", "list"], "NOUNS_DATA_BASE", "did you mean NOUNS_DATABASE?"),
        (&["key", "rotate"], "NOUNS_KEYFILE", "did you mean NOUNS_KEY_FILE?"),
        (&["changes"], "NOUNS_DATABAS", "did you mean NOUNS_DATABASE?"),
        (&["check"], "NOUNS_LISTN", "did you mean NOUNS_LISTEN?"),
        (&["init"], "NOUNS_LISTN", "did you mean NOUNS_LISTEN?"),
    ] {
        let ended = with_variables(&folder, args, &[(variable, "secret-value")]).end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{args:?}: {ended:?}");
        let line =
            format!("nouns: the environment variable {variable} is not a setting; {expected}");
        assert!(ended.stderr.starts_with(&line), "{ended:?}");
        assert!(!ended.stderr.contains("secret-value"), "{ended:?}");
        assert_eq!(contents(folder.path()), contents(Folder::new().path()), "nothing was made");
    }
}

/// Kubernetes sets variables for a service called nouns; those unlike any setting are logged and
/// ignored.
#[test]
fn environment_variable_unlike_any_setting_is_logged() {
    let folder = Folder::new();
    let variables = [
        ("NOUNS_LISTEN", "127.0.0.1:0"),
        ("NOUNS_SERVICE_HOST", "10.0.0.11"),
        ("NOUNS_SERVICE_PORT", "8080"),
        ("NOUNS_PORT", "tcp://10.0.0.11:8080"),
        ("NOUNS_PORT_8080_TCP_ADDR", "10.0.0.11"),
        ("NOUNS_TEST_ANYTHING", "1"),
        ("NOUNS_FLAVOUR", "secret-value"),
    ];
    let server = with_variables(&folder, &["serve", "--open", "--log", "json"], &variables);
    server.first_line();
    server.signal("TERM");
    let ended = server.end();
    let told: Vec<_> = ended.stderr.lines().filter(|line| line.contains("NOUNS_")).collect();
    assert_eq!(told.len(), 1, "{}", ended.stderr);
    assert!(told[0].contains(r#""variables":"NOUNS_FLAVOUR""#), "{told:?}");
    assert!(!ended.stderr.contains("secret-value"), "{}", ended.stderr);
}
