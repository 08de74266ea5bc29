//! The document over HTTP and by `nouns openapi`.

use expect_test::{expect, expect_file};
use serde_json::Value;

use crate::harness::{Backend, Folder, Server, Setup, run_nouns};

const STRANGE: &str = include_str!("../models/strange.toml");

/// The output of `nouns openapi` with these arguments.
fn printed(model: Option<&str>, args: &[&str]) -> String {
    let folder = Folder::new();
    if let Some(model) = model {
        std::fs::write(folder.path().join("nouns.toml"), model).unwrap();
    }
    let ended = run_nouns(folder.path(), &[&["openapi"], args].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    ended.stdout
}

#[test]
fn openapi_command_prints_the_document_of_the_store() {
    expect_file!["store.json"].assert_eq(&printed(None, &[]));
}

#[test]
fn openapi_command_with_roles_prints_what_they_may_use() {
    let document: Value = serde_json::from_str(&printed(None, &["--role", "shopper"])).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, item)| {
        item.as_object().unwrap().keys().map(move |method| format!("{method} {path}\n"))
    });
    expect![[r#"
        get /
        get /customers
        x-query-method /customers
        get /customers/{customer_id}
        put /customers/{customer_id}
        patch /customers/{customer_id}
        get /customers/{customer_id}/orders
        x-query-method /customers/{customer_id}/orders
        get /customers/{customer_id}/orders/{order_id}
        get /orders
        x-query-method /orders
        get /orders/{order_id}
        get /-/openapi.json
        get /-/docs
        get /-/docs/{resource}
        get /-/schemas/{resource}
        get /-/problems/{slug}
        get /-/logout
        get /-/logout/{realm}
        get /-/health
        get /-/ready
        get /-/assets/{file}
    "#]]
    .assert_eq(&operations.collect::<String>());
    let both = printed(None, &["--role", "shopper", "--role", "clerk"]);
    assert!(both.contains("\"create_order\""), "{both}");
}

#[test]
fn openapi_command_refuses_an_unknown_role() {
    let folder = Folder::new();
    let ended = run_nouns(folder.path(), &["openapi", "--role", "clark"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    expect![[r#"
        nouns: --role clark: the model declares no such role; did you mean clerk?
    "#]]
    .assert_eq(&ended.stderr);
}

on_every_backend! {
    /// The server and the command describe the same.
    fn openapi_of_an_admin_is_that_of_the_command(backend: Backend) {
        for model in [None, Some(STRANGE)] {
            let setup = Setup::new(backend).with_authentication();
            let setup = model.iter().fold(setup, |setup, model| setup.model(model));
            let server = setup.start();
            let base_path = model.map_or("", |_| "/api/v1");
            let admin = server.admin().basic();
            let line = format!("GET {base_path}/-/openapi.json");
            let answer = server.request(&line, &[("Authorization", &admin)], "");
            assert_eq!(answer.status, 200, "{answer:?}");
            let expected: Value = serde_json::from_str(&printed(model, &[])).unwrap();
            assert_eq!(answer.json(), expected);
        }
    }

    fn openapi_is_validated_and_negotiated(server: Server) {
        let path = "GET /-/openapi.json";
        let answer = server.request(path, &[], "");
        let (tag, body) = (answer.header("ETag").unwrap().to_owned(), answer.json());
        assert_eq!(answer.header("Content-Type"), Some("application/json"));
        assert_eq!(answer.header("Vary"), Some("Accept, Accept-Encoding"));
        assert_eq!(body["openapi"], "3.1.0");
        // Nobody needs credentials here.
        assert_eq!(body["components"]["securitySchemes"], Value::Null);
        let unchanged = server.request(path, &[("If-None-Match", &tag)], "");
        assert_eq!((unchanged.status, unchanged.header("ETag")), (304, Some(&*tag)));
        let zipped = server.request(path, &[("Accept-Encoding", "gzip"), ("If-None-Match", &tag)], "");
        assert_eq!(zipped.status, 304);
        assert_eq!(server.request(path, &[("If-None-Match", "W/\"1-document\"")], "").status, 200);
        assert_eq!(server.request(path, &[("If-Match", "\"1\"")], "").status, 412);
        for (accept, media) in [
            ("application/openapi+json", "application/openapi+json"),
            ("application/openapi+json;q=0.5, application/json", "application/json"),
            ("*/*", "application/json"),
        ] {
            let answer = server.request(path, &[("Accept", accept)], "");
            assert_eq!(answer.header("Content-Type"), Some(media), "{accept}");
            assert_eq!(answer.json(), body, "{accept}");
        }
        assert_eq!(server.request(path, &[("Accept", "text/csv")], "").status, 406);
        assert_eq!(server.request("HEAD /-/openapi.json", &[], "").status, 200);
        assert_eq!(server.request("POST /-/openapi.json", &[], "{}").status, 405);
        assert_eq!(server.get("/-/openapi.json?pretty=1").status, 400);
        assert_eq!(server.get("/-/openapi.json/").status, 308);
    }

    fn schema_of_a_resource_has_its_bodies(server: Server) {
        let answer = server.request("GET /-/schemas/customer", &[("Accept", "application/schema+json")], "");
        assert_eq!(answer.header("Content-Type"), Some("application/schema+json"));
        expect_file!["customer-schema.json"]
            .assert_eq(&format!("{:#}\n", answer.json()));
        let tag = answer.header("ETag").unwrap();
        assert_eq!(server.request("GET /-/schemas/customer", &[("If-None-Match", tag)], "").status, 304);
        let users = server.get("/-/schemas/-/user");
        assert_eq!((users.status, &users.json()["title"]), (200, &"user".into()));
        let password = &users.json()["$defs"]["create"]["properties"]["password"];
        assert_eq!(password["writeOnly"], true, "{password}");
        assert!(users.json()["properties"]["password"].is_null());
        for path in ["/-/schemas", "/-/schemas/nothing", "/-/schemas/customers", "/-/schemas/-", "/-/schemas/user"] {
            assert_eq!(server.get(path).status, 404, "{path}");
        }
    }
}
