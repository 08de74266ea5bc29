//! Pages that follow changes: from which position of the change log.

use serde_json::json;

use super::{MODEL, get_as, read_page};
use crate::harness::{Backend, EventSource, Person, Setup};

on_every_backend! {
    /// What happens between the reads of a page and the start of its stream is not missed.
    fn page_is_followed_from_the_position_at_which_it_was_read(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let (admin, kim) = (server.admin(), Person::new("kim", "a long password"));
        server.add_user(&kim, &["clerk"]);
        let send = |line: &str, body: &serde_json::Value| {
            let sent = server.request(line, &[("Authorization", &admin.basic())], body.to_string());
            assert!(sent.status < 300, "{sent:?}");
            sent.header("Location").map(str::to_owned)
        };
        let ann = json!({"customer": {"name": "Ann", "level": "low"}});
        let ann = send("POST /customers", &ann).unwrap();
        let order = json!({"order": {"items": [{"product": "tea"}]}});
        let order = send(&format!("POST {ann}/orders"), &order).unwrap();
        let orders = format!("{ann}/orders");
        let renamed = json!({"customer": {"name": "Bea", "level": "low"}});
        let bought = json!({"order": {"items": [{"product": "milk"}]}});
        for (person, path, changed, body) in [
            (&admin, &*ann, &ann, &renamed),
            (&admin, &*order, &order, &bought),
            (&admin, "/customers", &ann, &renamed),
            (&admin, &*orders, &order, &bought),
            (&admin, "/orders", &order, &bought),
            (&kim, &*ann, &ann, &renamed),
            (&kim, "/customers", &ann, &renamed),
        ] {
            let page = get_as(&server, person, path);
            read_page(&page);
            let stream = page.text().split_once("data-live=\"").unwrap().1.split_once('"').unwrap().0;
            send(&format!("PUT {changed}"), body);
            let mut stream = EventSource::new(stream).header("Authorization", &person.basic()).connected(server.address);
            let event = stream.next_event();
            assert_eq!((&*event.kind, &event.json()["subject"]), ("updated", &json!(changed)), "{path}");
            // The next round changes it back.
            let former = if *changed == ann { json!({"customer": {"name": "Ann", "level": "low"}}) } else { json!({"order": {"items": [{"product": "tea"}]}}) };
            send(&format!("PUT {changed}"), &former);
        }
        // A page of the past follows nothing.
        let past = get_as(&server, &admin, &format!("{ann}?version=1"));
        assert!(!past.text().contains("data-live"), "{}", past.text());
    }
}
