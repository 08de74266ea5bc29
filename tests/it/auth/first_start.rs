//! The first user, and the servers that have none.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::harness::{Backend, Folder, Server, Setup, run, sql, wait_until};

on_every_backend! {
    /// The password is in a file that its owner alone can read, and nowhere else.
    fn the_first_user_is_made_once(backend: Backend) {
        let server = Setup::new(backend).closed().start();
        let admin = server.admin();
        assert!(admin.password.len() >= 16, "{admin:?}");
        let file = server.folder().join("nouns.admin-password");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(server.key_file()).unwrap().permissions().mode() & 0o777, 0o600);
        let log = wait_until("the place is logged", || {
            Some(server.log()).filter(|log| log.contains("nouns.admin-password"))
        });
        assert!(!log.contains(&admin.password), "{log}");
        let basic = admin.basic();
        assert_eq!(server.request("GET /customers", &[("Authorization", &basic)], "").status, 200);
        let server = server.restart();
        assert_eq!(server.admin().password, admin.password);
        assert!(!server.log().contains("nouns.admin-password"), "a second start makes no user");
        assert_eq!(server.request("GET /customers", &[("Authorization", &basic)], "").status, 200);
        let count = sql(backend, server.folder(), "SELECT count(*) FROM nouns_users");
        assert_eq!(count.trim(), "1");
    }

    /// An open server asks nobody and makes nobody.
    fn an_open_server_makes_no_user(server: Server) {
        assert_eq!(server.get("/customers").status, 200);
        assert_eq!(sql(server.backend(), server.folder(), "SELECT count(*) FROM nouns_users").trim(), "0");
        assert!(!server.folder().join("nouns.admin-password").exists());
    }
}

/// Several servers that start together on one new database make one first user.
#[test]
fn replicas_make_one_first_user() {
    let first = Folder::new();
    let address = Backend::Postgres.database(&first, "nouns.db");
    let key = first.path().join("nouns.key");
    let servers: Vec<Server> = std::thread::scope(|scope| {
        let start = || Setup::replica(address.clone()).key_file(key.clone()).start();
        let started: Vec<_> = (0..3).map(|_| scope.spawn(start)).collect();
        started.into_iter().map(|server| server.join().unwrap()).collect()
    });
    let tells = |server: &&Server| server.log().contains("nouns.admin-password");
    wait_until("one of them tells", || servers.iter().find(tells).map(drop));
    for server in &servers {
        let basic = server.admin().basic();
        assert_eq!(server.request("GET /", &[("Authorization", &basic)], "").status, 200);
    }
    assert_eq!(servers.iter().filter(tells).count(), 1);
}

/// Basic in clear is for this machine alone; a realm with Digest alone may be served anywhere.
#[test]
fn basic_in_clear_is_refused_at_start() {
    let folder = Folder::new();
    let ended = run(folder.path(), &["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("Basic") && ended.stderr.contains("0.0.0.0:0"), "{ended:?}");
    assert!(!folder.path().join("nouns.db").exists(), "nothing was made");
    assert!(!folder.path().join("nouns.key").exists(), "nothing was made");
}
