//! Event streams of flat collections and items: the events are those of the nested paths.

use serde_json::{Value, json};

use super::{MODEL, furnish, id, lamp};
use crate::harness::{Backend, ConnectError, EventSource, Person, Server, Setup};

fn follow(server: &Server, target: &str) -> EventSource {
    EventSource::new(target).connected(server.address)
}

fn set_watts(server: &Server, path: &str, watts: i64) {
    let body = json!({"lamp": {"watts": watts}}).to_string();
    assert_eq!(server.put(path, body).status, 200);
}

/// A server with a user who sees the houses in the street of this name.
fn start_with_tenant(backend: Backend) -> (Server, Person) {
    let role = "[roles.tenant]\nhouse = { verbs = [\"get\"], where = \"street = $user\" }\n\"*\" = [\"get\"]\n";
    let model = MODEL.replace("[roles.guest]\n", &format!("{role}[roles.guest]\n"));
    let server = Setup::new(backend).model(&model).with_authentication().start();
    let tenant = Person::new("elm", "a word for each");
    server.add_user(&tenant, &["tenant"]);
    (server, tenant)
}

/// Kind and subject of the next events.
fn next(source: &mut EventSource, count: usize) -> Vec<(String, Value)> {
    let events = source.next_events(count).into_iter();
    events.map(|event| (event.kind.clone(), event.json()["subject"].clone())).collect()
}

fn event(kind: &str, subject: &str) -> (String, Value) {
    (kind.to_owned(), json!(subject))
}

on_every_backend! {
    fn flat_stream_has_the_changes_of_all_parents(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let rooms = furnish(&server);
        let (mut all, mut filtered) = (follow(&server, "/lamps"), follow(&server, "/lamps?house_id=2&watts:gt=10"));
        let lamps = [lamp(&server, &rooms[0], 40), lamp(&server, &rooms[3], 40)];
        set_watts(&server, &lamps[1], 5);
        assert_eq!(server.delete(&lamps[0]).status, 204);
        assert_eq!(next(&mut all, 4), [
            event("created", &lamps[0]),
            event("created", &lamps[1]),
            event("updated", &lamps[1]),
            event("deleted", &lamps[0]),
        ]);
        assert_eq!(next(&mut filtered, 2), [event("created", &lamps[1]), event("left", &lamps[1])]);
        // It resumes like any other stream.
        let mut again = follow(&server, "/lamps?house_id=2&since=0");
        assert_eq!(next(&mut again, 2), [event("created", &lamps[1]), event("updated", &lamps[1])]);
    }

    fn flat_stream_begins_with_a_snapshot_that_has_whole_paths(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let rooms = furnish(&server);
        let lamps = [lamp(&server, &rooms[0], 1), lamp(&server, &rooms[3], 2)];
        let mut rooms_stream = follow(&server, "/rooms?snapshot=true");
        let expected: Vec<_> = rooms.iter().map(|room| event("item", room)).collect();
        assert_eq!(next(&mut rooms_stream, 5)[1..], expected);
        let mut lamps_stream = follow(&server, "/lamps?snapshot=true&watts:gt=0");
        assert_eq!(next(&mut lamps_stream, 3)[1..], [event("item", &lamps[0]), event("item", &lamps[1])]);
    }

    fn flat_item_stream_ends_with_the_item(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let rooms = furnish(&server);
        let lamp = lamp(&server, &rooms[2], 40);
        let mut source = follow(&server, &format!("/lamps/{}", id(&lamp)));
        set_watts(&server, &lamp, 60);
        assert_eq!(server.delete(&lamp).status, 204);
        assert_eq!(next(&mut source, 2), [event("updated", &lamp), event("deleted", &lamp)]);
        let (rest, _) = source.read_to_end();
        assert!(rest.is_empty(), "{rest:?}");
        match EventSource::new(&format!("/lamps/{}", id(&lamp))).connect(server.address) {
            Err(ConnectError::Refused(answer)) => assert_eq!(answer.status, 404),
            other => panic!("{other:?}"),
        }
    }

    /// The row filter of an ancestor decides at the time of the change.
    fn flat_stream_shows_only_items_under_visible_parents(backend: Backend) {
        let (server, tenant) = start_with_tenant(backend);
        let admin = server.admin().basic();
        let post = |path: &str, body: Value| {
            let made = server.request(&format!("POST {path}"), &[("Authorization", &admin)], body.to_string());
            assert_eq!(made.status, 201, "{made:?}");
            made.header("Location").unwrap().to_owned()
        };
        let mut source = EventSource::new("/lamps").header("Authorization", &tenant.basic()).connected(server.address);
        let mut lamps = Vec::new();
        for street in ["oak", "elm", "ash"] {
            let house = post("/houses", json!({"house": {"street": street}}));
            let room = post(&format!("{house}/rooms"), json!({"room": {"name": "hall"}}));
            lamps.push(post(&format!("{room}/lamps"), json!({"lamp": {"watts": 1}})));
        }
        let room = lamps[1].rsplit_once("/lamps").unwrap().0;
        let last = post(&format!("{room}/lamps"), json!({"lamp": {"watts": 2}}));
        assert_eq!(next(&mut source, 2), [event("created", &lamps[1]), event("created", &last)]);
    }

    /// The items below have no change of their own by which a client could notice.
    fn flat_stream_tells_which_parent_is_no_longer_visible(backend: Backend) {
        let (server, tenant) = start_with_tenant(backend);
        let admin = server.admin().basic();
        let send = |line: &str, body: Value| {
            let sent = server.request(line, &[("Authorization", &admin)], body.to_string());
            assert!(sent.status < 300, "{sent:?}");
            sent.header("Location").map(str::to_owned)
        };
        let make = |path: &str, body: Value| send(&format!("POST {path}"), body).unwrap();
        let lamps = ["oak", "elm"].map(|street| {
            let house = make("/houses", json!({"house": {"street": street}}));
            let room = make(&format!("{house}/rooms"), json!({"room": {"name": "hall"}}));
            make(&format!("{room}/lamps"), json!({"lamp": {"watts": 1}}))
        });
        let login = tenant.basic();
        let follow = |target: &str| {
            EventSource::new(target).header("Authorization", &login).connected(server.address)
        };
        let (mut all, mut some) = (follow("/lamps"), follow("/rooms?name=hall"));
        let mut nested = follow(lamps[1].rsplit_once('/').unwrap().0);
        let move_to = |house: i64, street: &str| {
            send(&format!("PUT /houses/{house}"), json!({"house": {"street": street}}));
        };
        move_to(1, "ash");
        move_to(2, "fir");
        move_to(2, "yew");
        send(&format!("PUT {}", lamps[1]), json!({"lamp": {"watts": 2}}));
        move_to(2, "elm");
        send(&format!("PUT {}", lamps[1]), json!({"lamp": {"watts": 3}}));
        move_to(2, "oak");
        let left = event("left", "/houses/2");
        let events = all.next_events(3);
        let seen: Vec<_> = events.iter().map(|event| (event.kind.clone(), event.json()["subject"].clone())).collect();
        assert_eq!(seen, [left.clone(), event("updated", &lamps[1]), left.clone()]);
        assert_eq!(events[0].json()["data"], json!({"id": 2}));
        assert_eq!(next(&mut some, 2), [left.clone(), left.clone()]);
        // The stream of a nested collection ends.
        assert_eq!(next(&mut nested, 1), [left]);
        assert!(nested.read_to_end().0.is_empty());
        // A page of the log has the same events.
        let mut again = follow(&format!("/lamps?since={}", events[0].sequence() - 1));
        assert_eq!(again.next_events(3), events);
    }
}
