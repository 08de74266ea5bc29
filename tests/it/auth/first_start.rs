//! The first user, and servers without users.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::harness::{Backend, Folder, Person, Server, Setup, run_nouns, run_sql, wait_until};

on_every_backend! {
    /// The password is in a file that only its owner can read, and nowhere else.
    fn first_user_is_created_once(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let admin = server.admin();
        assert!(admin.password.len() >= 16, "{admin:?}");
        let file = server.password_file();
        let shown = file.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(server.key_file()).unwrap().permissions().mode() & 0o777, 0o600);
        let log = wait_until("the place is logged", || {
            Some(server.log()).filter(|log| log.contains(&shown))
        });
        assert!(!log.contains(&admin.password), "{log}");
        let basic = admin.basic();
        assert_eq!(server.request("GET /customers", &[("Authorization", &basic)], "").status, 200);
        let server = server.restart();
        assert_eq!(server.admin().password, admin.password);
        assert!(!server.log().contains(&shown), "a second start makes no user");
        assert_eq!(server.request("GET /customers", &[("Authorization", &basic)], "").status, 200);
        let count = run_sql(backend, server.folder(), "SELECT count(*) FROM nouns_users");
        assert_eq!(count.trim(), "1");
    }

    /// A server under `--open` authenticates nobody and creates no user.
    fn first_user_is_not_created_by_an_open_server(server: Server) {
        assert_eq!(server.get("/customers").status, 200);
        assert_eq!(run_sql(server.backend(), server.folder(), "SELECT count(*) FROM nouns_users").trim(), "0");
        assert!(!server.password_file().exists());
    }

    /// The file belongs to another database, or to an earlier one: the start fails and creates nothing.
    fn first_password_file_that_exists_is_not_overwritten(backend: Backend) {
        let folder = Folder::new();
        let key = folder.path().join("nouns.key");
        let file = backend.password_file(&backend.database(&folder, "nouns.db"), &key);
        fs::write(&file, "of somebody else\n").unwrap();
        let setup = Setup::new(backend).with_authentication();
        let (ended, folder) = setup.clone().try_start_in(folder).unwrap_err();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        let shown = file.file_name().unwrap().to_str().unwrap();
        assert!(ended.stderr.contains(shown) && ended.stderr.contains("move "), "{ended:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "of somebody else\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no database and no key were made");
        if backend == Backend::Postgres {
            let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
            assert_eq!(run_sql(backend, folder.path(), tables).trim(), "0");
        }
        fs::remove_file(&file).unwrap();
        // The same where a server under `--open` has created the tables.
        let folder = Setup::new(backend).start_in(folder).stop();
        fs::write(&file, "of somebody else\n").unwrap();
        let (ended, folder) = setup.clone().try_start_in(folder).unwrap_err();
        assert!(ended.code == Some(2) && ended.stderr.contains("has no user yet"), "{ended:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "of somebody else\n");
        fs::remove_file(&file).unwrap();
        let server = setup.start_in(folder);
        let basic = server.admin().basic();
        assert_eq!(server.request("GET /customers", &[("Authorization", &basic)], "").status, 200);
    }

    /// The server is killed before the user is committed, and before the file is renamed: the password
    /// is known either way.
    fn first_user_of_an_interrupted_start_has_a_known_password(backend: Backend) {
        for fault in ["first_user:1", "first_user:2"] {
            let setup = Setup::new(backend).with_authentication();
            let interrupted = setup.clone().fault(fault).try_start_in(Folder::new());
            let (ended, folder) = interrupted.unwrap_err();
            assert!(ended.stderr.contains("planted at first_user"), "{ended:?}");
            let count = run_sql(backend, folder.path(), "SELECT count(*) FROM nouns_users");
            assert_eq!(count.trim(), if fault.ends_with('1') { "0" } else { "1" });
            let server = setup.start_in(folder);
            let file = server.password_file();
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            let shown = file.file_name().unwrap().to_str().unwrap().to_owned();
            wait_until("the place is logged", || server.log().contains(&shown).then_some(()));
            let basic = server.admin().basic();
            assert_eq!(server.request("GET /customers", &[("Authorization", &basic)], "").status, 200, "{fault}");
            assert!(!file.with_file_name(format!("{shown}.new")).exists());
        }
    }

    /// Another process may hold it for ever; the start fails with a message instead of waiting.
    fn first_user_behind_a_held_folder_lock_is_refused(backend: Backend) {
        let folder = Folder::new();
        let held = fs::File::open(folder.path()).unwrap();
        held.lock().unwrap();
        let setup = Setup::new(backend).with_authentication();
        let (ended, folder) = setup.clone().try_start_in(folder).unwrap_err();
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let said = "another process has held the lock of the folder ";
        assert!(ended.stderr.contains(said) && ended.stderr.contains("end it, and start again"), "{ended:?}");
        // A copy of the descriptor in a process that another test is starting would keep the lock of a closed one.
        held.unlock().unwrap();
        let server = setup.start_in(folder);
        let basic = server.admin().basic();
        assert_eq!(server.request("GET /customers", &[("Authorization", &basic)], "").status, 200);
    }

    /// A role that was renamed leaves users behind with one that grants nothing.
    fn undeclared_roles_of_users_are_logged_at_start(backend: Backend) {
        const CLERKS: &str = "title = \"T\"\n[resources.thing]\n[roles.clerk]\nthing = [\"get\"]\n";
        let server = Setup::new(backend).model(CLERKS).with_authentication().start();
        server.add_user(&Person::new("ann", "Circle of Life"), &["clerk"]);
        server.add_user(&Person::new("bob", "Circle of Life"), &["clerk", "admin"]);
        let key = server.key_file();
        assert!(!server.log().contains("does not declare"), "{}", server.log());
        let server = Setup::new(backend).model(&CLERKS.replace("clerk", "seller")).with_authentication().start_in(server.stop());
        let log = wait_until("it is told", || Some(server.log()).filter(|log| log.contains("does not declare")));
        let line = log.lines().find(|line| line.contains("does not declare")).unwrap();
        assert!(line.contains(r#""roles":"clerk""#) && line.contains(r#""users":"2""#), "{line}");
        assert!(line.contains("ann") && line.contains("bob"), "{line}");
        assert!(!log.contains("no enabled user has the role admin"), "{log}");
        let database = server.database();
        let list = |flag: &str| {
            let key = key.to_str().unwrap();
            let args = ["user", "list", "--model", "model.toml", "--database", &database, "--key-file", key];
            let args = args.into_iter().chain(Some(flag).filter(|flag| !flag.is_empty()));
            run_nouns(server.folder(), &args.collect::<Vec<_>>()).stdout
        };
        let table = list("");
        assert!(table.lines().any(|line| line.contains("ann") && line.contains("clerk (undeclared)")), "{table}");
        assert!(table.lines().any(|line| line.contains("bob") && line.contains("clerk (undeclared) admin")), "{table}");
        assert!(list("--json").contains(r#""roles":["clerk"],"undeclared_roles":["clerk"]"#), "{}", list("--json"));
    }
}

/// Several servers that start at the same time on one new database create one first user.
#[test]
fn first_user_is_created_once_by_concurrent_replicas() {
    let first = Folder::new();
    let address = Backend::Postgres.database(&first, "nouns.db");
    let key = first.path().join("nouns.key");
    let servers: Vec<Server> = std::thread::scope(|scope| {
        let start = || Setup::replica(address.clone()).key_file(key.clone()).start();
        let started: Vec<_> = (0..3).map(|_| scope.spawn(start)).collect();
        started.into_iter().map(|server| server.join().unwrap()).collect()
    });
    let tells = |server: &&Server| server.log().contains(".admin-password");
    wait_until("one of them tells", || servers.iter().find(tells).map(drop));
    for server in &servers {
        let basic = server.admin().basic();
        assert_eq!(server.request("GET /", &[("Authorization", &basic)], "").status, 200);
    }
    assert_eq!(servers.iter().filter(tells).count(), 1);
}

/// The password in the only file of a folder whose name ends with this.
fn password_in_file(folder: &Folder, end: &str) -> Option<String> {
    let files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut files = files.filter(|file| file.to_str().unwrap().ends_with(end));
    let file = files.next()?;
    assert_eq!(files.next(), None);
    Some(fs::read_to_string(file).unwrap().trim_end().to_owned())
}

/// Regression: databases of one name may share a folder of keys, and the start of one removed the temporary
/// password file of the other, whose first user was committed already.
#[test]
fn first_user_of_an_interrupted_start_survives_a_start_on_a_database_of_the_same_name() {
    let setup = Setup::new(Backend::Postgres).with_authentication();
    let interrupted = setup.clone().fault("first_user:2").try_start_in(Folder::new());
    let (_, folder) = interrupted.unwrap_err();
    let password = password_in_file(&folder, ".new").unwrap();
    run_sql(Backend::Postgres, folder.path(), "CREATE SCHEMA other");
    let address = Backend::Postgres.database(&folder, "nouns.db");
    let address = format!("{address}?options=-c%20search_path%3Dother");
    let key = folder.path().join("nouns.key");
    Setup::replica(address).key_file(key).start().stop();
    assert_eq!(password_in_file(&folder, ".new").as_deref(), Some(&*password));
    assert_ne!(password_in_file(&folder, ".admin-password").as_deref(), Some(&*password));
    let server = setup.start_in(folder);
    let basic = Person::new("admin", &password).basic();
    assert_eq!(server.request("GET /customers", &[("Authorization", &basic)], "").status, 200);
}

/// Regression: a start on a key in a read-only folder, as secrets are mounted, could not write the first password.
#[test]
fn first_password_with_a_read_only_key_folder_is_in_the_working_directory_on_postgres() {
    const READ_ONLY: &str = r#"
        if unshare --mount true 2>/dev/null; then user=; else user=--map-root-user; fi
        exec unshare $user --mount sh -ec 'mount --bind -o ro "$1" "$1"; shift; exec "$@"' sh "$@"
    "#;
    let secrets = Folder::new();
    let key = secrets.path().join("nouns.key");
    fs::write(&key, "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).unwrap();
    let program = ["sh", "-ec", READ_ONLY, "sh", secrets.path().to_str().unwrap()];
    let server = Setup::new(Backend::Postgres).key_file(key).run_under(&program).start();
    assert_eq!(fs::read_dir(secrets.path()).unwrap().count(), 1, "the key alone");
    let file = server.folder().join(server.password_file().file_name().unwrap());
    let password = fs::read_to_string(&file).unwrap();
    let status = |password: &str| {
        let basic = Person::new("admin", password).basic();
        server.request("GET /customers", &[("Authorization", &basic)], "").status
    };
    assert_eq!(status(password.trim_end()), 200);
}

/// Two databases in one folder have a file each.
#[test]
fn first_password_file_is_named_after_the_database() {
    let one = Setup::new(Backend::Sqlite).with_authentication().start();
    let admin = one.admin();
    let folder = one.stop();
    let two =
        Setup::new(Backend::Sqlite).database("room.db").with_authentication().start_in(folder);
    let other = two.admin();
    assert_ne!(other.password, admin.password);
    for (name, person) in [("nouns", &admin), ("room", &other)] {
        let file = two.folder().join(format!("{name}.admin-password"));
        assert_eq!(fs::read_to_string(file).unwrap().trim_end(), person.password);
    }
    let status = |server: &Server, person: &Person| {
        server.request("GET /customers", &[("Authorization", &person.basic())], "").status
    };
    assert_eq!((status(&two, &other), status(&two, &admin)), (200, 401));
    let one = Setup::new(Backend::Sqlite).with_authentication().start_in(two.stop());
    assert_eq!((status(&one, &admin), status(&one, &other)), (200, 401));
}

/// Basic without TLS is for loopback only; a realm with Digest alone may be served anywhere.
#[test]
fn basic_without_tls_is_refused_at_start() {
    let folder = Folder::new();
    let ended = run_nouns(folder.path(), &["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("Basic") && ended.stderr.contains("0.0.0.0:0"), "{ended:?}");
    assert!(!folder.path().join("nouns.db").exists(), "nothing was made");
    assert!(!folder.path().join("nouns.key").exists(), "nothing was made");
}
