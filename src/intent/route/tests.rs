//! Tests of routing.

use super::*;
use crate::intent::target::{PathIds, ResourcePath, format_path};
use crate::model;

const MODEL: &str = r#"
title = "Shelves"

[resources.room.fields]
name = { type = "text" }

[resources.shelf]
parent = "room"
plural = "shelves"
id = "integer"

[resources.shelf.fields]
side = { type = "text" }
"#;

const ROOM: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn show(method: &str, target: &str) -> String {
    show_in(MODEL, method, target)
}

fn show_in(text: &str, method: &str, target: &str) -> String {
    let model = model::read("model.toml", text).unwrap_or_else(|errors| panic!("{errors}"));
    let (path, query) =
        target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    match route(&model, &method, path, query) {
        Ok(Route { verb, target: RouteTarget::Collection(address) }) => {
            format!("{verb:?} {}", show_address(&model, &address))
        }
        Ok(Route { verb, target: RouteTarget::Item(address) }) => {
            format!("{verb:?} {}", show_address(&model, &address))
        }
        Ok(Route { verb, target: RouteTarget::ProblemPage(kind) }) => {
            format!("{verb:?} explanation of {}", kind.slug)
        }
        Ok(Route { verb, target: place }) => format!("{verb:?} {place:?}"),
        Err(RouteError::Redirect(to)) => format!("moved to {to}"),
        Err(RouteError::Problem(problem)) => problem.kind().slug.to_owned(),
    }
}

fn show_address(model: &Model, address: &ResourcePath) -> String {
    match &address.ids {
        Some(PathIds { item: Some(id), .. }) if address.form == PathForm::Flat => {
            format!("{}/{id}", address.collection_path(model).unwrap())
        }
        Some(PathIds { item: None, .. }) => address.collection_path(model).unwrap(),
        Some(ids) => format_path(model, address.resource, &ids.ancestors, ids.item),
        None => "a path with an invalid id".to_owned(),
    }
}

#[test]
fn route_of_known_path_is_found() {
    assert_eq!(show("GET", "/"), "Get Home");
    assert_eq!(show("GET", "/-/logout"), "Get Logout(RealmIndex(0))");
    assert_eq!(show("GET", "/-/logout/nouns"), "Get Logout(RealmIndex(0))");
    assert_eq!(show("GET", "/-/logout/Doors"), "no-such-path");
    assert_eq!(show("POST", "/-/logout"), "method-not-allowed");
    assert_eq!(show("GET", "/rooms"), "Get /rooms");
    assert_eq!(show("GET", "/%72ooms"), "Get /rooms");
    assert_eq!(
        show("POST", &format!("/rooms/{ROOM}/shelves")),
        format!("Post /rooms/{ROOM}/shelves")
    );
    assert_eq!(
        show("PUT", &format!("/rooms/{ROOM}/shelves/7")),
        format!("Put /rooms/{ROOM}/shelves/7")
    );
    assert_eq!(show("OPTIONS", "*"), "Options Server");
    assert_eq!(show("HEAD", "/-/health"), "Head Health");
    assert_eq!(show("GET", "/-/problems/taken"), "Get explanation of taken");
}

#[test]
fn route_of_users_is_under_the_server_prefix() {
    assert_eq!(show("GET", "/-/users"), "Get /-/users");
    assert_eq!(show("DELETE", &format!("/-/users/{ROOM}")), format!("Delete /-/users/{ROOM}"));
    assert_eq!(show("GET", "/-/users/"), "moved to /-/users");
    assert_eq!(show("GET", "/-/users/7"), "Get a path with an invalid id");
    for path in ["/users", "/-/rooms", "/-", "/-/", &format!("/-/users/{ROOM}/x")] {
        assert_eq!(show("GET", path), "no-such-path", "{path}");
    }
    let model =
        MODEL.replace("[resources.room.", "[resources.user.").replace("\"room\"", "\"user\"");
    assert_eq!(show_in(&model, "GET", "/users"), "Get /users");
    assert_eq!(show_in(&model, "GET", "/-/users"), "Get /-/users");
    assert_eq!(show_in(&model, "GET", &format!("/-/users/{ROOM}/shelves")), "no-such-path");
}

#[test]
fn route_with_invalid_id_has_a_target_without_ids() {
    assert_eq!(show("GET", "/rooms/abc"), "Get a path with an invalid id");
    assert_eq!(show("GET", "/rooms/abc/shelves"), "Get a path with an invalid id");
    assert_eq!(show("GET", &format!("/rooms/{ROOM}/shelves/007")), "Get a path with an invalid id");
    assert_eq!(show("GET", "/shelves/007"), "Get a path with an invalid id");
}

#[test]
fn route_of_flat_path_is_found_for_reading() {
    assert_eq!(show("GET", "/shelves"), "Get /shelves");
    assert_eq!(show("HEAD", "/shelves/7"), "Head /shelves/7");
    assert_eq!(show("OPTIONS", "/shelves/7"), "Options /shelves/7");
    assert_eq!(show("GET", "/shelves/"), "moved to /shelves");
    for (method, path) in [
        ("POST", "/shelves"),
        ("PUT", "/shelves/7"),
        ("PATCH", "/shelves/7"),
        ("DELETE", "/shelves/7"),
    ] {
        assert_eq!(show(method, path), "method-not-allowed");
    }
}

#[test]
fn route_of_unknown_path_is_404() {
    for target in [
        "/room",
        "/shelves/1/books",
        "/rooms/abc/books",
        "//",
        "/rooms//",
        "/-",
        "/-/",
        "/-/nothing",
        "/-/problems",
        "/-/problems/nothing",
        "/rooms/a/shelves/1/x",
        "/..",
        "/rooms/..",
        "/%ff",
        "rooms",
        "/ROOMS",
    ] {
        let found = show("GET", target);
        assert!(
            found == "no-such-path"
                || found == "Get a path with an invalid id" && target.ends_with(".."),
            "{target}: {found}"
        );
    }
}

#[test]
fn route_with_trailing_slash_redirects_if_the_rest_is_known() {
    assert_eq!(show("GET", "/rooms/"), "moved to /rooms");
    assert_eq!(show("POST", "/rooms/?a=1&b"), "moved to /rooms?a=1&b");
    assert_eq!(show("GET", "/-/health/"), "moved to /-/health");
    assert_eq!(show("GET", "/rooms//"), "no-such-path");
    assert_eq!(show("GET", "/nothing/"), "no-such-path");
    assert_eq!(show("PATCH", "/rooms/"), "moved to /rooms");
}

#[test]
fn route_with_unknown_method_is_501_and_with_other_method_405() {
    assert_eq!(show("BREW", "/nothing"), "unknown-method");
    assert_eq!(show("get", "/rooms"), "unknown-method");
    assert_eq!(show("DELETE", "/nothing"), "no-such-path");
    for (method, path) in [
        ("PUT", "/rooms"),
        ("DELETE", "/rooms"),
        ("POST", "/rooms/abc"),
        ("TRACE", "/"),
        ("CONNECT", ""),
        ("POST", "/-/ready"),
    ] {
        assert_eq!(show(method, path), "method-not-allowed", "{method} {path}");
    }
}

#[test]
fn route_with_base_path_requires_it_everywhere() {
    let model = format!("{MODEL}\n[server]\nbase_path = \"/v1\"\n");
    assert_eq!(show_in(&model, "GET", "/v1/rooms"), "Get /v1/rooms");
    assert_eq!(show_in(&model, "GET", "/v1/rooms/"), "moved to /v1/rooms");
    assert_eq!(show_in(&model, "GET", "/v1/"), "Get Home");
    assert_eq!(show_in(&model, "GET", "/rooms"), "no-such-path");
    assert_eq!(show_in(&model, "GET", "/v1rooms"), "no-such-path");
}

mod never_panics {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn route_of_arbitrary_path_never_panics(path in "(/|%|\\.|-|[a-z0-9]|rooms|shelves|\\PC){0,12}") {
            let _ = super::show("GET", &path);
        }
    }
}

#[test]
fn preflight_lists_the_methods_of_the_target() {
    let model = model::read("model.toml", MODEL).unwrap_or_else(|errors| panic!("{errors}"));
    for (path, expected) in [
        ("/rooms", "GET, HEAD, QUERY, POST, OPTIONS"),
        ("/rooms/", "GET, HEAD, QUERY, POST, OPTIONS"),
        ("/rooms/x", "GET, HEAD, PUT, PATCH, DELETE, OPTIONS"),
        ("/", "GET, HEAD, OPTIONS"),
        ("/attic", "GET, HEAD, QUERY, POST, PUT, PATCH, DELETE, OPTIONS"),
    ] {
        assert_eq!(preflight_methods(&model, path), expected, "{path}");
    }
}
