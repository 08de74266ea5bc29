//! Stored values that are invalid, as another program may leave them: reading them fails, and the log
//! names the item.

use crate::harness::{Backend, EventSource, Person, Server, Setup, run_sql, wait_until};

/// A list that the editor does not see, so a change by the editor keeps the stored one.
const HIDDEN_LIST: &str = r#"title = "Notes"
[resources.note.fields]
title = { type = "text", required = true }
tags  = { type = "list", of = { type = "text" } }

[roles.editor]
note = { verbs = ["get", "put", "patch"], hide = ["tags"] }
"#;

on_every_backend! {
    /// White space between the tokens of a list, as another program may write it.
    fn stored_line_break_does_not_split_a_line(server: Server) {
        let ann = r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#;
        let orders = format!("{}/orders", server.create("/customers", ann));
        let order = r#"{"order":{"items":[{"product":"tea","quantity":2,"unit_price":350}]}}"#;
        let order = server.create(&orders, order);
        let before = server.get(&order).json();
        let with_line_breaks = match server.backend() {
            Backend::Sqlite => "replace(items, ',', ',' || char(10))",
            Backend::Postgres => "CAST(replace(CAST(items AS text), ',', ',' || chr(10)) AS json)",
        };
        run_sql(
            server.backend(),
            server.folder(),
            &format!("UPDATE orders SET items = {with_line_breaks}"),
        );
        assert_eq!(server.get(&order).json(), before);
        let lines = server.request("GET /orders", &[("Accept", "application/x-ndjson")], "");
        assert_eq!(lines.text().lines().count(), 1, "{lines:?}");
        let mut events = EventSource::new("/orders?snapshot=true").connected(server.address);
        assert_eq!(events.next_event().kind, "reset");
        let event = events.next_event();
        assert!(event.data.contains("tea"), "{event:?}");
    }

    fn damaged_value_is_named_in_the_log_and_counted(server: Server) {
        let ann = r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#;
        let (sound, damaged) = (server.create("/customers", ann), server.create("/customers", ann));
        let id = damaged.rsplit('/').next().unwrap();
        let value = match server.backend() {
            Backend::Sqlite => "yesterday",
            Backend::Postgres => "infinity",
        };
        run_sql(
            server.backend(),
            server.folder(),
            &format!("UPDATE customers SET updated_at = '{value}' WHERE id = '{id}'"),
        );
        assert_eq!(server.get(&sound).status, 200);
        let told = format!("the stored customer {id} is damaged: updated_at: ");
        for (count, path) in [&*damaged, "/customers", "/customers?sort=name"].into_iter().enumerate() {
            let answer = server.get(path);
            assert_eq!((answer.status, answer.problem().as_str()), (500, "internal"), "{path}");
            assert!(!answer.text().contains("damaged"), "{answer:?}");
            let lines = || server.log().lines().filter(|line| line.contains(&told)).count();
            wait_until("the log names it", || (lines() == count + 1).then_some(()));
            assert_eq!(server.metric("nouns_damaged_items_total"), Some(count as u64 + 1));
        }
        // A streaming response is cut.
        let accept = [("Accept", "application/x-ndjson"), ("Connection", "close")];
        let request = format!(
            "GET /customers HTTP/1.1\r\nHost: {}\r\n{}\r\n",
            server.address,
            accept.map(|(name, value)| format!("{name}: {value}\r\n")).concat()
        );
        server.send_raw(request);
        wait_until("the log names it", || {
            (server.log().lines().filter(|line| line.contains(&told)).count() == 4).then_some(())
        });
    }

    /// A value that is no list has no elements, on both engines.
    fn damaged_list_has_no_element(backend: Backend) {
        let model = "title = \"T\"\n[resources.note.fields]\n\
            tags = { type = \"list\", of = { type = \"integer\" }, filter = true }\n\
            more = { type = \"object\", fields = { tags = { type = \"list\", of = { type = \"integer\" }, filter = true } } }\n";
        let server = Setup::new(backend).model(model).start();
        server.create("/notes", r#"{"note":{"tags":[5],"more":{"tags":[5]}}}"#);
        let damaged = server.create("/notes", "{\"note\":{}}");
        let id = damaged.rsplit('/').next().unwrap();
        for value in ["5", "{\"a\":5}", "null", "\"5\""] {
            let sql = format!("UPDATE notes SET tags = '{value}', more = '{{\"tags\":{value}}}' WHERE id = '{id}'");
            run_sql(backend, server.folder(), &sql);
            for filter in ["tags:has=5", "more.tags:has=5"] {
                let found = server.get(&format!("/notes?{filter}"));
                assert_eq!(found.status, 200, "{value} {filter}: {found:?}");
                assert_eq!(found.json()["notes"].as_array().unwrap().len(), 1, "{value} {filter}");
            }
        }
    }

    fn damaged_list_is_not_replaced_by_a_change_of_another_field(backend: Backend) {
        let server = Setup::new(backend).model(HIDDEN_LIST).with_authentication().start();
        let ann = Person::new("ann", "edits what she sees");
        server.add_user(&ann, &["editor"]);
        let (admin, ann) = (server.admin().basic(), ann.basic());
        let send = |line: &str, by: &str, body: &str| {
            server.request(line, &[("Authorization", by)], body)
        };
        let body = r#"{"note":{"title":"a","tags":["x"]}}"#;
        let made = send("POST /notes", &admin, body);
        assert_eq!(made.status, 201, "{made:?}");
        let path = made.header("Location").unwrap();
        let id = path.rsplit('/').next().unwrap();
        // PostgreSQL refuses text that is not JSON.
        let damages = match backend {
            Backend::Sqlite => vec!["[1]", "{}", r#"["x""#, ""],
            Backend::Postgres => vec!["[1]", "{}"],
        };
        let mut count = 0;
        for damage in damages {
            let sql = |text: &str| run_sql(backend, server.folder(), text);
            sql(&format!("UPDATE notes SET tags = '{damage}' WHERE id = '{id}'"));
            for method in ["PATCH", "PUT"] {
                let answer = send(&format!("{method} {path}"), &ann, r#"{"note":{"title":"b"}}"#);
                let stored = sql(&format!("SELECT title, tags FROM notes WHERE id = '{id}'"));
                assert_eq!(stored.trim(), format!("a|{damage}"), "{method} {damage:?}: {answer:?}");
                assert_eq!((answer.status, answer.problem().as_str()), (500, "internal"), "{damage:?}");
                count += 1;
                let told = format!("the stored note {id} is damaged: tags: ");
                let lines = || server.log().lines().filter(|line| line.contains(&told)).count();
                wait_until("the log names it", || (lines() == count).then_some(()));
            }
        }
        let scrape = send("GET /-/metrics", &admin, "").text().to_owned();
        assert!(scrape.contains(&format!("nouns_damaged_items_total {count}\n")), "{scrape}");
        // The admin's access has no conditions that parse it, so the admin can delete it.
        assert_eq!(send(&format!("DELETE {path}"), &admin, "").status, 204);
        if backend == Backend::Sqlite {
            let sql = "SELECT count(*) FROM nouns_changes WHERE json_valid(before) = 0";
            assert_eq!(run_sql(backend, server.folder(), sql).trim(), "0");
        }
    }
    fn damaged_sort_value_that_is_too_long_ends_the_page(server: Server) {
        let ann = r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#;
        let (damaged, _) = (server.create("/customers", ann), server.create("/customers", ann));
        let id = damaged.rsplit('/').next().unwrap();
        let name = "A".repeat(70_000);
        let sql = format!("UPDATE customers SET name = '{name}' WHERE id = '{id}'");
        run_sql(server.backend(), server.folder(), &sql);
        let answer = server.get("/customers?sort=name&limit=1");
        assert_eq!((answer.status, answer.problem().as_str()), (500, "internal"), "{answer:?}");
        let told = format!("the stored customer {id} is damaged: a text is longer");
        wait_until("the log names it", || server.log().contains(&told).then_some(()));
    }
    fn damaged_roles_of_a_user_end_a_patch(backend: Backend) {
        let server = Setup::new(backend).model(HIDDEN_LIST).with_authentication().start();
        server.add_user(&Person::new("ann", "edits what she sees"), &["editor"]);
        let sql = "UPDATE nouns_users SET roles = '[1]' WHERE name = 'ann'";
        run_sql(backend, server.folder(), sql);
        let id = run_sql(backend, server.folder(), "SELECT id FROM nouns_users WHERE name = 'ann'");
        let path = format!("/-/users/{}", id.trim());
        let admin = server.admin().basic();
        let answer = server.request(
            &format!("PATCH {path}"),
            &[("Authorization", &*admin), ("Content-Type", "application/merge-patch+json")],
            r#"{"user":{"disabled":true}}"#,
        );
        assert_eq!((answer.status, answer.problem().as_str()), (500, "internal"), "{answer:?}");
        let told = format!("the stored user {} is damaged: roles: ", id.trim());
        wait_until("the log names it", || server.log().contains(&told).then_some(()));
    }
}
