//! What a caller sees of the document: no path, method or field that its roles do not grant.

use crate::harness::{Backend, Person, Server, Setup};

const STRANGE: &str = include_str!("../models/strange.toml");

/// Adds a user to a server of the strange model, which has a base path.
fn add_user(server: &Server, name: &str, role: &str) -> String {
    let person = Person::new(name, "a long password");
    let user =
        serde_json::json!({"user": {"name": name, "password": person.password, "roles": [role]}});
    let admin = server.admin().basic();
    let line = "POST /api/v1/-/users";
    let answer = server.request(line, &[("Authorization", &admin)], user.to_string());
    assert_eq!(answer.status, 201, "{answer:?}");
    person.basic()
}

on_every_backend! {
    fn openapi_of_a_role_has_no_hidden_field_and_no_row_filter(backend: Backend) {
        let server = Setup::new(backend).model(STRANGE).with_authentication().start();
        let login = add_user(&server, "kim", "keeper");
        let get = |path: &str| server.request(&format!("GET {path}"), &[("Authorization", &login)], "");
        let answer = get("/api/v1/-/openapi.json");
        assert_eq!(answer.status, 200, "{answer:?}");
        let (text, document) = (answer.text().to_owned(), answer.json());
        for hidden in ["secret", "price", "owner", "labels", "amount", "$user", "level >= 0"] {
            assert!(!text.contains(hidden), "{hidden}");
        }
        let house = &document["components"]["schemas"]["house.create"]["properties"];
        assert!(house["name"].is_object() && house["count"].is_null(), "{house}");
        let replaced = &document["components"]["schemas"]["house.replace"]["properties"];
        assert_eq!(replaced["count"]["readOnly"], true);
        assert!(document["paths"]["/houses/{house_id}"]["delete"].is_null());
        // A write may be answered without the item, where a row filter applies.
        let room = "/houses/{house_id}/floors/{floor_id}/rooms/{room_id}";
        assert!(document["paths"][room]["put"]["responses"]["204"].is_object());
        for (path, status) in [
            ("/api/v1/-/schemas/room", 200),
            ("/api/v1/-/schemas/-/user", 403),
            ("/api/v1/-/schemas/archive", 200),
        ] {
            assert_eq!(get(path).status, status, "{path}");
        }
        let schema = get("/api/v1/-/schemas/room").text().to_owned();
        assert!(!schema.contains("price") && schema.contains("\"door\""), "{schema}");
    }

    fn openapi_of_a_writer_who_may_not_read_has_no_items(backend: Backend) {
        let server = Setup::new(backend).model(STRANGE).with_authentication().start();
        let writer = add_user(&server, "dee", "dropper");
        let line = "GET /api/v1/-/openapi.json";
        let answer = server.request(line, &[("Authorization", &writer)], "");
        let document = answer.json();
        let schemas = &document["components"]["schemas"];
        assert!(schemas["house"].is_null() && schemas["house.create"].is_object(), "{answer:?}");
        let created = &document["paths"]["/houses"]["post"]["responses"]["201"];
        assert!(created["content"].is_null() && created["headers"]["Location"].is_object());
    }

    fn openapi_has_the_docs_and_schemas_of_callers_with_a_grant_of_any_resource(backend: Backend) {
        let model = "title = \"Two\"\n[resources.one.fields]\nx = { type = \"text\" }\n\
            [resources.two.fields]\nx = { type = \"text\" }\n[roles.clerk]\ntwo = [\"post\"]\n\
            [roles.watcher]\n\"/-/metrics\" = [\"get\"]\n";
        let server = Setup::new(backend).model(model).with_authentication().start();
        for (role, resources) in [("clerk", Some("two")), ("watcher", None)] {
            let person = Person::new(role, "a long password");
            server.add_user(&person, &[role]);
            let login = [("Authorization", &*person.basic())];
            let paths = server.request("GET /-/openapi.json", &login, "").json()["paths"].clone();
            for path in ["/-/docs/{resource}", "/-/schemas/{resource}"] {
                let named = &paths[path]["get"]["parameters"][0]["schema"]["enum"];
                let expected = resources.map_or(serde_json::Value::Null, |name| serde_json::json!([name]));
                assert_eq!(named, &expected, "{role} {path}: {paths}");
            }
        }
    }

    fn openapi_needs_a_grant_as_the_list_of_resources_does(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let nobody = Person::new("ned", "a long password");
        server.add_user(&nobody, &[]);
        for path in ["/", "/-/openapi.json", "/-/schemas/customer"] {
            let line = format!("GET {path}");
            assert_eq!(server.get(path).status, 401, "{path}");
            let answer = server.request(&line, &[("Authorization", &nobody.basic())], "");
            assert_eq!(answer.status, 403, "{path}");
        }
        // Without credentials, what `anyone` may use.
        let server = Setup::new(backend).model(STRANGE).with_authentication().start();
        let document = server.get("/api/v1/-/openapi.json").json();
        let paths = &document["paths"];
        assert!(paths["/archives"]["get"].is_object() && paths["/houses"].is_null(), "{paths}");
        assert_eq!(paths["/archives"]["get"]["security"].as_array().unwrap().last(), Some(&serde_json::json!({})));
        assert!(!document.to_string().contains("Räume"), "{document}");
    }
}
