//! The change log: one entry for each row that changes, and the sweep of old entries.
//!
//! The tests read it with the database's own tool, as an operator would.

use expect_test::expect;

use crate::harness::{ANN, Backend, Client, Masks, Server, Setup, run_sql, wait_until};

const TEA: &str = r#"{"order":{"items":[{"product":"tea","unit_price":350}]}}"#;

fn log(server: &Server, columns: &str) -> String {
    let query = format!("SELECT {columns} FROM nouns_changes ORDER BY sequence");
    Masks::default().text(&run_sql(server.backend(), server.folder(), &query))
}

on_every_backend! {
    fn change_log_has_one_entry_for_each_change(server: Server) {
        let ann = server.create("/customers", ANN);
        server.create(&format!("{ann}/orders"), TEA);
        let bea = ANN.replace("Ann", "Bea");
        assert_eq!(server.put(&ann, &bea).status, 200);
        // These change nothing, or are refused.
        assert_eq!(server.put(&ann, &bea).status, 200);
        assert_eq!(server.put(&ann, "{}").status, 400);
        assert_eq!(server.post("/customers", r#"{"customers":[{"name":"Cem","email":"cem@example.com"},{}]}"#).status, 422);
        assert_eq!(server.delete(&ann).status, 204);
        expect![[r#"
            1|customer|created|/customers/<id-1>||open|
            2|order|created|/customers/<id-1>/orders/<id-2>|<id-1>|open|
            3|customer|updated|/customers/<id-1>||open|["name"]
            4|order|deleted|/customers/<id-1>/orders/<id-2>|<id-1>|open|
            5|customer|deleted|/customers/<id-1>||open|
        "#]].assert_eq(&log(&server, "sequence, resource, kind, subject, parent_id, actor, changed"));
        expect![[r#"
            created||{"id":"<id-1>","name":"Ann","email":"ann@example.com","created_at":"<time-1>","updated_at":"<time-1>","version":1}
            created||{"id":"<id-2>","customer_id":"<id-1>","status":"placed","currency":"EUR","items":[{"product":"tea","quantity":1,"unit_price":350}],"total":350,"created_at":"<time-2>","updated_at":"<time-2>","version":1}
            updated|{"id":"<id-1>","name":"Ann","email":"ann@example.com","created_at":"<time-1>","updated_at":"<time-1>","version":1}|{"id":"<id-1>","name":"Bea","email":"ann@example.com","created_at":"<time-1>","updated_at":"<time-3>","version":2}
            deleted|{"id":"<id-2>","customer_id":"<id-1>","status":"placed","currency":"EUR","items":[{"product":"tea","quantity":1,"unit_price":350}],"total":350,"created_at":"<time-2>","updated_at":"<time-2>","version":1}|
            deleted|{"id":"<id-1>","name":"Bea","email":"ann@example.com","created_at":"<time-1>","updated_at":"<time-3>","version":2}|
        "#]].assert_eq(&log(&server, "kind, before, after"));
    }

    fn change_log_entry_has_the_request_id_of_its_response(server: Server) {
        let answer = server.post("/customers", ANN);
        let id = answer.header("X-Request-Id").unwrap();
        assert_eq!(run_sql(server.backend(), server.folder(), "SELECT request_id FROM nouns_changes").trim(), id);
        wait_until("the log has the request", || server.log().contains(id).then_some(()));
    }

    fn change_log_of_ids_only_stores_no_fields(backend: Backend) {
        let model = "title = \"T\"\n[resources.secret]\nchanges = \"ids\"\n[resources.secret.fields]\nword = { type = \"text\" }\n";
        let server = Setup::new(backend).model(model).start();
        let path = server.create("/secrets", r#"{"secret":{"word":"xyzzy"}}"#);
        assert_eq!(server.put(&path, r#"{"secret":{"word":"plugh"}}"#).status, 200);
        assert_eq!(server.delete(&path).status, 204);
        expect![[r#"
            created|||
            updated|["word"]||
            deleted|||
        "#]].assert_eq(&log(&server, "kind, changed, before, after"));
    }

    /// The entry cannot be written, so the row is not written either.
    fn change_log_write_failure_rolls_back_the_row(server: Server) {
        server.create("/customers", ANN);
        run_sql(server.backend(), server.folder(), "ALTER TABLE nouns_changes RENAME TO hidden");
        // On SQLite it rolls back the whole commit group, so it counts as a storage fault.
        let told = match server.backend() {
            Backend::Sqlite => (503, "unavailable"),
            Backend::Postgres => (500, "internal"),
        };
        for _ in 0..3 {
            let answer = server.post("/customers", ANN);
            assert_eq!((answer.status, answer.problem().as_str()), told);
        }
        run_sql(server.backend(), server.folder(), "ALTER TABLE hidden RENAME TO nouns_changes");
        assert_eq!(run_sql(server.backend(), server.folder(), "SELECT count(*) FROM customers").trim(), "1");
        server.create("/customers", ANN);
    }

    /// One stored row is damaged: only requests for that row fail.
    fn damaged_row_fails_only_its_own_requests(server: Server) {
        let (damaged, path) = (server.create("/customers", ANN), server.create("/customers", ANN));
        let id = damaged.rsplit('/').next().unwrap();
        // PostgreSQL stores no invalid time, but it stores some that are out of our range.
        let noon = match server.backend() {
            Backend::Sqlite => "noon",
            Backend::Postgres => "infinity",
        };
        run_sql(server.backend(), server.folder(), &format!("UPDATE customers SET updated_at = '{noon}' WHERE id = '{id}'"));
        let address = server.address;
        let others = std::thread::spawn(move || {
            let mut client = Client::connect(address);
            (0..200).map(|_| client.request("POST /customers", &[], ANN).status).collect::<Vec<_>>()
        });
        let mut client = server.client();
        for _ in 0..200 {
            let answer = client.request(&format!("PUT {damaged}"), &[], ANN);
            assert_eq!((answer.status, answer.problem().as_str()), (500, "internal"));
        }
        assert!(others.join().unwrap().iter().all(|status| *status == 201));
        assert_eq!(server.put(&path, ANN).status, 200);
    }

    fn change_log_sweep_removes_old_entries(server: Server) {
        let backend = server.backend();
        server.create("/customers", ANN);
        let folder = server.stop();
        // More than two batches of the sweep, all older than any limit.
        run_sql(backend, folder.path(), "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
            INSERT INTO nouns_changes (sequence, time, resource, id, subject, kind, actor, request_id)
            SELECT -i, '2020-01-01T00:00:00.000000Z', 'customer', 'x', '/customers/x', 'created', 'open', 'r' FROM n");
        let server = Setup::new(backend).start_in(folder);
        wait_until("the old entries are gone", || {
            let left = run_sql(backend, server.folder(), "SELECT count(*) FROM nouns_changes");
            (left.trim() == "1").then_some(())
        });
    }

    fn change_log_numbers_are_never_reused(server: Server) {
        let backend = server.backend();
        server.create("/customers", ANN);
        server.create("/customers", ANN);
        let folder = server.stop();
        run_sql(backend, folder.path(), "UPDATE nouns_changes SET time = '2020-01-01T00:00:00.000000Z'");
        let server = Setup::new(backend).start_in(folder);
        let numbers = || run_sql(backend, server.folder(), "SELECT sequence FROM nouns_changes ORDER BY sequence");
        // All of it is old; the newest stays, so that the next one is numbered after it.
        wait_until("the old entries are gone", || (numbers() == "2\n").then_some(()));
        server.create("/customers", ANN);
        // The second is old too, and is swept as soon as it is not the newest.
        assert!(["2\n3\n", "3\n"].contains(&numbers().as_str()), "{}", numbers());
    }

    /// Regression: the sweep stopped at the first entry that was not old, such as one written by a
    /// wrong clock.
    fn change_log_sweep_passes_entries_from_the_future(server: Server) {
        let backend = server.backend();
        server.create("/customers", ANN);
        let folder = server.stop();
        run_sql(backend, folder.path(), "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
            INSERT INTO nouns_changes (sequence, time, resource, id, subject, kind, actor, request_id)
            SELECT -i, '2020-01-01T00:00:00.000000Z', 'customer', 'x', '/customers/x', 'created', 'open', 'r' FROM n;
            UPDATE nouns_changes SET time = '2999-01-01T00:00:00.000000Z' WHERE sequence IN (-1500, -700)");
        let server = Setup::new(backend).start_in(folder);
        let left = || run_sql(backend, server.folder(), "SELECT count(*) FROM nouns_changes WHERE time < '2021-01-01T00:00:00.000000Z'");
        wait_until("the old entries are gone", || (left().trim() == "0").then_some(()));
        assert_eq!(run_sql(backend, server.folder(), "SELECT count(*) FROM nouns_changes WHERE sequence > 0").trim(), "1");
    }

    fn change_log_kept_for_ever_is_not_swept(backend: Backend) {
        let model = "title = \"T\"\n[server]\nchanges_keep = \"forever\"\n[resources.note.fields]\ntext = { type = \"text\" }\n";
        let server = Setup::new(backend).model(model).start();
        server.create("/notes", r#"{"note":{"text":"old"}}"#);
        let folder = server.stop();
        run_sql(backend, folder.path(), "UPDATE nouns_changes SET time = '2020-01-01T00:00:00.000000Z'");
        let server = Setup::new(backend).model(model).start_in(folder);
        // A sweep, if there were one, would have run before the response to this.
        server.create("/notes", r#"{"note":{"text":"new"}}"#);
        server.create("/notes", r#"{"note":{"text":"newer"}}"#);
        assert_eq!(run_sql(backend, server.folder(), "SELECT count(*) FROM nouns_changes").trim(), "3");
    }
}
