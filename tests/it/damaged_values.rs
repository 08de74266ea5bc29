//! Stored values that are invalid, as another program may leave them: reading them fails, and the log
//! names the item.

use crate::harness::{Backend, Server, run_sql, wait_until};

on_every_backend! {
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
}
