//! Reads across parents: the flat, read-only collection of a nested resource, and its items by their ids alone.
//!
//! `visibility` compares flat lists with the nested ones, for callers with row filters.

mod events;
mod visibility;

use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Folder, Person, Server, Setup, run_nouns};

/// Three levels, with both kinds of ids, and a reference to a nested item.
const MODEL: &str = r#"
title = "Houses"
[resources.house]
id = "integer"
[resources.house.fields]
street = { type = "text", required = true, filter = true }
[resources.room]
parent = "house"
on_delete = "cascade"
[resources.room.fields]
name = { type = "text", required = true, filter = true }
[resources.lamp]
parent = "room"
id = "integer"
on_delete = "cascade"
[resources.lamp.fields]
watts = { type = "integer", filter = true }
label = { type = "text" }
[resources.bulb]
parent = "lamp"
flat = "spare_bulbs"
[resources.bulb.fields]
kind = { type = "text" }
[resources.switch]
parent = "room"
plural = "switches"
flat = false
[resources.switch.fields]
lamp = { type = "ref", to = "lamp" }
near = { type = "ref", to = "room", filter = true }
[roles.guest]
room = ["get"]
[roles.clerk]
"*" = ["get"]
"#;

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/// Two houses with two rooms each; the paths of the rooms.
fn furnish(server: &Server) -> Vec<String> {
    let mut rooms = Vec::new();
    for street in ["Elm", "Oak"] {
        let house = server.create("/houses", json!({"house": {"street": street}}).to_string());
        for name in ["kitchen", "attic"] {
            let room = json!({"room": {"name": format!("{street} {name}")}}).to_string();
            rooms.push(server.create(&format!("{house}/rooms"), room));
        }
    }
    rooms
}

fn lamp(server: &Server, room: &str, watts: i64) -> String {
    server.create(&format!("{room}/lamps"), json!({"lamp": {"watts": watts}}).to_string())
}

fn id(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

fn detail(answer: &Answer) -> String {
    answer.json()["detail"].as_str().unwrap_or_default().to_owned()
}

fn ids(answer: &Answer, plural: &str) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = |item: &Value| item["id"].to_string().trim_matches('"').to_owned();
    answer.json()[plural].as_array().unwrap().iter().map(text).collect()
}

fn names(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let rooms = answer.json()["rooms"].as_array().unwrap().clone();
    rooms.iter().map(|room| room["name"].as_str().unwrap().to_owned()).collect()
}

fn check(model: &str) -> String {
    let folder = Folder::new();
    std::fs::write(folder.path().join("m.toml"), model).unwrap();
    let ended = run_nouns(folder.path(), &["check", "m.toml"]);
    format!("{}{}", ended.stdout, ended.stderr)
}

on_every_backend! {
    fn flat_collection_of_the_built_in_store_has_the_orders_of_all_customers(server: Server) {
        let order = r#"{"order":{"items":[{"product":"tea","unit_price":350}]}}"#;
        let mut orders = Vec::new();
        for name in ["Ann", "Bea"] {
            let body = json!({"customer": {"name": name, "email": "a@example.com"}}).to_string();
            let customer = server.create("/customers", body);
            orders.push(server.create(&format!("{customer}/orders"), order));
        }
        let all = server.get("/orders?status=placed&count=exact");
        assert_eq!(ids(&all, "orders"), [id(&orders[0]), id(&orders[1])]);
        assert_eq!(all.json()["page"], json!({"limit": 50, "next": null, "total": 2}));
        let customer = orders[1].split('/').nth(2).unwrap();
        assert_eq!(ids(&server.get(&format!("/orders?customer_id={customer}")), "orders"), [id(&orders[1])]);
        assert_eq!(all.json()["orders"][0], server.get(&orders[0]).json()["order"]);
    }

    fn flat_item_is_that_of_the_nested_path(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let rooms = furnish(&server);
        let lamp = lamp(&server, &rooms[3], 40);
        for (flat, nested) in [(format!("/rooms/{}", id(&rooms[2])), &rooms[2]), (format!("/lamps/{}", id(&lamp)), &lamp)] {
            let (found, there) = (server.get(&flat), server.get(nested));
            assert_eq!((found.status, &found.body), (200, &there.body));
            for name in ["ETag", "Last-Modified", "Content-Type", "Vary"] {
                assert_eq!(found.header(name), there.header(name), "{name}");
            }
            assert_eq!(there.header("Content-Location"), None);
            assert_eq!(found.header("Content-Location"), Some(&**nested));
            let history = format!("</-/changes?subject={nested}>; rel=\"version-history\"");
            assert_eq!(found.all("Link"), [history, format!("<{nested}>; rel=\"canonical\"")]);
            // A tag of one path is good at the other.
            let tag = there.header("ETag").unwrap();
            let unchanged = server.request(&format!("GET {flat}"), &[("If-None-Match", tag)], "");
            assert_eq!((unchanged.status, unchanged.header("Content-Location")), (304, Some(&**nested)));
            let stale = server.request(&format!("GET {flat}"), &[("If-Match", "\"9\"")], "");
            assert_eq!((stale.status, stale.header("ETag")), (412, Some(tag)));
            let head = server.request(&format!("HEAD {flat}"), &[], "");
            assert_eq!((head.status, head.header("ETag"), head.body.len()), (200, Some(tag), 0));
        }
        let part = server.get(&format!("/lamps/{}?fields=watts", id(&lamp)));
        assert_eq!(part.header("Content-Location"), Some(&*format!("{lamp}?fields=id,watts")));
        assert_eq!(part.header("ETag"), server.get(&format!("{lamp}?fields=watts")).header("ETag"));
        let options = server.request(&format!("OPTIONS /lamps/{}", id(&lamp)), &[], "");
        assert_eq!((options.status, options.header("Allow")), (204, Some("GET, HEAD, OPTIONS")));
        assert_eq!((options.header("Accept-Patch"), options.header("Accept-Post")), (None, None));
        for missing in ["/lamps/999", "/lamps/x", "/rooms/01890a5d-ac96-774b-bcce-b302099a8057"] {
            assert_eq!(server.get(missing).problem(), "not-found", "{missing}");
        }
    }

    fn flat_item_as_it_was_is_that_of_the_nested_path(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let rooms = furnish(&server);
        let lamp = lamp(&server, &rooms[0], 40);
        assert_eq!(server.put(&lamp, r#"{"lamp":{"watts":60}}"#).status, 200);
        let past = server.get(&format!("/lamps/{}?version=1", id(&lamp)));
        assert_eq!((past.status, &past.json()["lamp"]["watts"]), (200, &json!(40)));
        assert_eq!(past.header("Content-Location"), Some(&*format!("{lamp}?version=1")));
        assert_eq!(past.body, server.get(&format!("{lamp}?version=1")).body);
        let links = past.all("Link");
        assert!(links.contains(&&*format!("<{lamp}>; rel=\"original\"")), "{links:?}");
        assert!(links.contains(&&*format!("<{lamp}>; rel=\"canonical\"")), "{links:?}");
        assert_eq!(server.get(&format!("/lamps/{}?version=3", id(&lamp))).problem(), "no-such-version");
        // Nothing says any more under which room it was.
        assert_eq!(server.delete(&lamp).status, 204);
        assert_eq!(server.get(&format!("{lamp}?version=1")).status, 200);
        assert_eq!(server.get(&format!("/lamps/{}?version=1", id(&lamp))).problem(), "not-found");
    }

    fn flat_list_is_filtered_by_every_ancestor(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let rooms = furnish(&server);
        let lamps: Vec<String> = [0, 0, 1, 2, 3].iter().zip(1..).map(|(at, watts)| lamp(&server, &rooms[*at], watts)).collect();
        let found = |query: &str| ids(&server.get(&format!("/lamps?{query}")), "lamps").len();
        assert_eq!(found(""), lamps.len());
        assert_eq!(found("house_id=1"), 3);
        assert_eq!(found("house_id:ne=1"), 2);
        assert_eq!(found("house_id:in=1,2&watts:gt=2"), 3);
        assert_eq!(found(&format!("room_id={}", id(&rooms[0]))), 2);
        assert_eq!(found(&format!("room_id={}&house_id=2", id(&rooms[0]))), 0);
        assert_eq!(found("house_id=7"), 0);
        assert_eq!(names(&server.get("/rooms?house_id=2&sort=-name")), ["Oak kitchen", "Oak attic"]);
        for (query, said) in [
            ("house_id=x", "house_id: expected an id, which is a positive integer, got \"x\""),
            ("room_id=7", "room_id: expected an id, which is a UUID, got \"7\""),
            ("house_id:gt=1", "house_id:gt: the operator does not fit; those that do: eq, ne, in"),
            ("sort=house_id", "sort: house_id: cannot be sorted by"),
            ("sort=room_id", "sort: room_id: cannot be sorted by"),
            ("house_ids=1", "house_ids: no such parameter here (there are limit, cursor, sort, fields, count, expand, any, not, room_id, house_id, id, created_at, updated_at, watts); did you mean \"house_id\"?"),
        ] {
            let refused = server.get(&format!("/lamps?{query}"));
            assert_eq!((refused.status, &*detail(&refused)), (400, said), "{query}");
        }
        // The parents of a nested list are in its path.
        let refused = server.get(&format!("{}/lamps?house_id=1", rooms[0]));
        assert!(detail(&refused).starts_with("house_id: no such parameter here"), "{refused:?}");
    }

    fn flat_list_has_pages_that_belong_to_its_query(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let rooms = furnish(&server);
        for number in 0..25 {
            lamp(&server, &rooms[number % 4], i64::try_from(number % 7).unwrap());
        }
        for query in ["", "sort=-watts&", "house_id=1&", "house_id=2&sort=watts,-id&", "watts:gt=2&sort=-id&"] {
            let whole = ids(&server.get(&format!("/lamps?{query}limit=100")), "lamps");
            let (mut walked, mut address) = (Vec::new(), format!("/lamps?{query}limit=4"));
            loop {
                let page = server.get(&address);
                walked.extend(ids(&page, "lamps"));
                let Some(link) = page.header("Link") else { break };
                address = link.trim_start_matches('<').split_once(">; rel=\"next\"").unwrap().0.to_owned();
                assert!(address.starts_with("/lamps?"), "{address}");
            }
            assert_eq!(walked, whole, "{query}");
        }
        let next = server.get("/lamps?limit=4").json()["page"]["next"].as_str().unwrap().to_owned();
        assert_eq!(server.get(&format!("/lamps?limit=4&house_id=1&cursor={next}")).problem(), "bad-cursor");
        assert_eq!(server.get(&format!("{}/lamps?limit=4&cursor={next}", rooms[0])).problem(), "bad-cursor");
    }

    fn flat_list_has_every_format_and_a_weak_tag(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let rooms = furnish(&server);
        let lamps = [lamp(&server, &rooms[0], 1), lamp(&server, &rooms[3], 2)];
        let ask = |accept: &str| server.request("GET /lamps?fields=watts,room_id", &[("Accept", accept)], "");
        let csv = format!("id,room_id,watts\r\n{},{},1\r\n{},{},2\r\n", id(&lamps[0]), id(&rooms[0]), id(&lamps[1]), id(&rooms[3]));
        assert_eq!(ask("text/csv").text(), csv);
        let lines = ask("application/x-ndjson");
        let lines: Vec<Value> = lines.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(Value::from(lines), ask("application/json").json()["lamps"]);
        let tag = |path: &str| {
            let answer = server.get(path);
            assert_eq!(answer.status, 200);
            answer.header("ETag").unwrap().to_owned()
        };
        let first = tag("/lamps");
        assert!(first.starts_with("W/\""), "{first}");
        let again = || server.request("GET /lamps", &[("If-None-Match", &first)], "").status;
        assert_eq!(again(), 304);
        // A change of another resource does not change it.
        lamp(&server, &rooms[0], 3);
        assert_eq!(again(), 200);
        let second = tag("/lamps");
        server.create("/houses", r#"{"house":{"street":"Ash"}}"#);
        assert_eq!(tag("/lamps"), second);
        // The tags of two lists differ, also where both are empty.
        assert_ne!(tag("/lamps?watts=9"), tag("/lamps?watts=8"));
    }

    fn flat_path_refuses_writes_and_names_the_nested_path(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let people = ["clerk", "guest"].map(|role| {
            let person = Person::new(role, "a word for each");
            server.add_user(&person, &[role]);
            person.basic()
        });
        let admin = server.admin().basic();
        for (line, said) in [
            ("POST /lamps", "lamps can only be read here; write to /houses/{house_id}/rooms/{room_id}/lamps"),
            ("PUT /lamps/1", "lamps can only be read here; write to /houses/{house_id}/rooms/{room_id}/lamps/{lamp_id}"),
            ("PATCH /lamps/1", "lamps can only be read here; write to /houses/{house_id}/rooms/{room_id}/lamps/{lamp_id}"),
            ("DELETE /spare_bulbs/x", "bulbs can only be read here; write to /houses/{house_id}/rooms/{room_id}/lamps/{lamp_id}/bulbs/{bulb_id}"),
        ] {
            let ask = |login: &str| {
                let refused = server.request(line, &[("Authorization", login)], r#"{"lamp":{}}"#);
                assert_eq!((refused.status, refused.problem().as_str()), (405, "method-not-allowed"), "{refused:?}");
                let allow = if line == "POST /lamps" { "GET, HEAD, QUERY, OPTIONS" } else { "GET, HEAD, OPTIONS" };
                assert_eq!(refused.header("Allow"), Some(allow));
                detail(&refused)
            };
            assert_eq!(ask(&admin), said);
            assert_eq!(ask(&people[0]), said);
            // Who may not see the parents does not learn of them.
            assert_eq!(ask(&people[1]), "");
            assert_eq!(ask("Basic !!!"), "");
        }
        // As a nested list of a parent that the caller may not read.
        let read = |path: &str, login: &str| server.request(&format!("GET {path}"), &[("Authorization", login)], "");
        assert_eq!(read("/rooms", &people[0]).status, 200);
        assert_eq!(read("/rooms", &people[1]).problem(), "not-found");
        assert_eq!(read("/lamps", &people[1]).problem(), "forbidden");
        assert_eq!(server.get("/rooms").status, 401);
    }

    fn flat_setting_turns_the_collection_off_or_renames_it(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let place = "/houses/{house_id}/rooms/{room_id}";
        let refused = server.get("/switches");
        assert_eq!((refused.problem().as_str(), detail(&refused)), ("no-such-path", format!("switches live at {place}/switches")));
        let refused = server.get("/bulbs");
        let said = format!("bulbs live at {place}/lamps/{{lamp_id}}/bulbs, and are read across parents at /spare_bulbs");
        assert_eq!((refused.problem().as_str(), detail(&refused)), ("no-such-path", said));
        assert_eq!(server.get("/spare_bulbs").status, 200);
        let home = server.get("/").json();
        let flat: Vec<&Value> = home["resources"].as_array().unwrap().iter().map(|one| &one["flat"]).collect();
        assert_eq!(json!(flat), json!([null, "/rooms", "/lamps", "/spare_bulbs", null]));
        let document = server.get("/-/openapi.json").json();
        let paths = document["paths"].as_object().unwrap();
        assert!(paths.contains_key("/spare_bulbs/{bulb_id}") && !paths.contains_key("/switches"));
        let list = &paths["/lamps"];
        assert_eq!(list.as_object().unwrap().keys().collect::<Vec<_>>(), ["get", "x-query-method"]);
        assert_eq!(list["get"]["operationId"], "flat_list_lamps");
        // Turning it off or on is no change of the stored data.
        let folder = server.stop();
        let other = MODEL.replace("flat = false\n", "").replace("flat = \"spare_bulbs\"", "flat = false");
        let server = Setup::new(backend).model(&other).start_in(folder);
        assert_eq!((server.get("/switches").status, server.get("/spare_bulbs").status), (200, 404));
    }

    fn flat_collection_has_a_page(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let rooms = furnish(&server);
        let lamp = lamp(&server, &rooms[1], 40);
        let switch = json!({"switch": {"near": id(&rooms[3]), "lamp": id(&lamp).parse::<i64>().unwrap()}}).to_string();
        let switch = server.create(&format!("{}/switches", rooms[0]), switch);
        let page = |path: &str| server.request(&format!("GET {path}"), &[("Accept", BROWSER)], "");
        let list = page("/rooms");
        let text = list.text();
        assert_eq!(list.status, 200);
        // Each row leads to the item under its house, and to the house by its name.
        assert!(text.contains(&format!("href=\"{}\">Elm attic</a>", rooms[1])), "{text}");
        assert!(text.contains("<a href=\"/houses/2\">Oak</a>") || text.contains("href=\"/houses/2\""), "{text}");
        assert!(text.contains("of all houses"), "{text}");
        assert!(!text.contains("New room") && !text.contains("data-upload"), "{text}");
        assert!(text.contains("href=\"/lamps\"") && text.contains("All lamps"), "{text}");
        // The path of a deeper item is found when it is opened.
        let deep = page("/lamps");
        assert!(deep.text().contains(&format!("href=\"/lamps/{}\"", id(&lamp))), "{}", deep.text());
        let opened = page(&format!("/lamps/{}?version=1", id(&lamp)));
        assert_eq!((opened.status, opened.header("Location")), (307, Some(&*format!("{lamp}?version=1"))));
        assert_eq!(page(&lamp).status, 200);
        // A reference to a nested item is a link.
        let page_of_switch = page(&switch);
        assert!(page_of_switch.text().contains(&format!("href=\"/rooms/{}\"", id(&rooms[3]))), "{}", page_of_switch.text());
        assert!(page_of_switch.text().contains("Oak attic"), "{}", page_of_switch.text());
        assert!(page("/").text().contains("<a href=\"/rooms\">rooms</a>"), "{}", page("/").text());
        assert_eq!(page("/rooms/x").status, 404);
    }
}

#[test]
fn flat_path_that_clashes_is_a_mistake_of_the_model() {
    let clash = MODEL.replace("flat = \"spare_bulbs\"", "flat = \"houses\"");
    assert!(
        check(&clash).contains("`house` and `bulb` would both be at /houses"),
        "{}",
        check(&clash)
    );
    assert!(check(&clash).contains("say another name with `flat`, or `flat = false` for none"));
    let clash = MODEL.replace("flat = \"spare_bulbs\"", "flat = \"lamps\"");
    assert!(check(&clash).contains("`lamp` and `bulb` would both be at /lamps"));
    let both = MODEL.replace("flat = false", "flat = \"spare_bulbs\"");
    assert!(check(&both).contains("`bulb` and `switch` would both be at /spare_bulbs"));
    // The name of a resource without a flat collection of its own is free.
    assert!(check(&MODEL.replace("flat = \"spare_bulbs\"", "flat = \"switches\"")).contains("ok"));
    for (flat, said) in [
        ("flat = 7", "`flat` expected true, false or a name, got an integer"),
        ("flat = \"Spare\"", "\"Spare\" cannot be the name of a collection"),
    ] {
        let found = check(&MODEL.replace("flat = \"spare_bulbs\"", flat));
        assert!(found.contains(said), "{found}");
    }
    let top = MODEL.replace("[resources.house]\n", "[resources.house]\nflat = false\n");
    assert!(check(&top).contains("`flat` needs a `parent`, which `house` has not"));
}
