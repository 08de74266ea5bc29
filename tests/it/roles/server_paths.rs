//! Grants of the server's own paths: monitoring needs no admin.

use super::PermissionsFixture;
use crate::harness::{Backend, Folder, Setup, run_nouns};

const MODEL: &str = r#"
title = "Watched"

[resources.note.fields]
text = { type = "text" }

[roles.monitor]
"/-/metrics" = ["get"]

[roles.auditor]
"/-/users" = ["get"]

[roles.writer]
"*" = "*"
"#;

on_every_backend! {
    fn metrics_grant_opens_metrics_and_nothing_else(backend: Backend) {
        let mut office = PermissionsFixture::with_model(backend, MODEL);
        office.set_role("monitor");
        let scraped = office.request("GET /-/metrics", "");
        assert_eq!(scraped.status, 200, "{scraped:?}");
        assert!(scraped.text().contains("nouns_build_info"));
        assert_eq!(office.request("HEAD /-/metrics", "").status, 200);
        assert_eq!(office.request("GET /", "").json()["resources"], serde_json::json!([]));
        for line in ["GET /-/users", "GET /notes", "POST /notes", "POST /-/users"] {
            assert_eq!(office.request(line, "{}").status, 403, "{line}");
        }
        // A grant on all resources does not include the server's own paths.
        office.set_role("writer");
        for line in ["GET /-/metrics", "GET /-/users"] {
            assert_eq!(office.request(line, "").status, 403, "{line}");
        }
        office.set_role("anyone");
        assert_eq!(office.request("GET /-/metrics", "").status, 401);
    }

    fn users_grant_reads_but_does_not_write_users(backend: Backend) {
        let mut office = PermissionsFixture::with_model(backend, MODEL);
        office.set_role("auditor");
        let listed = office.request("GET /-/users", "");
        assert_eq!(listed.status, 200, "{listed:?}");
        assert_eq!(listed.json()["users"].as_array().unwrap().len(), 2);
        assert!(!listed.text().contains("password"), "{listed:?}");
        let path = office.path.clone();
        let own = office.request(&format!("GET {path}"), "");
        assert_eq!((own.status, &own.json()["user"]["name"]), (200, &"ann".into()));
        let body = r#"{"user":{"name":"ann","roles":["admin"]}}"#;
        for verb in ["PUT", "PATCH", "DELETE"] {
            assert_eq!(office.request(&format!("{verb} {path}"), body).status, 403, "{verb}");
        }
        let eve = r#"{"user":{"name":"eve","password":"a long one","roles":["admin"]}}"#;
        assert_eq!(office.request("POST /-/users", eve).status, 403);
        assert_eq!(office.request("GET /-/metrics", "").status, 403);
    }

    fn metrics_grant_of_anyone_needs_no_credentials(backend: Backend) {
        let model = MODEL.replace("[roles.monitor]", "[roles.anyone]");
        let server = Setup::new(backend).model(&model).with_authentication().start();
        assert_eq!(server.get("/-/metrics").status, 200);
        assert_eq!(server.get("/-/users").status, 401);
    }
}

#[test]
fn check_refuses_server_paths_that_cannot_be_granted() {
    let folder = Folder::new();
    let check = |grant: &str| {
        let model = MODEL.replace(r#""/-/metrics" = ["get"]"#, grant);
        std::fs::write(folder.path().join("nouns.toml"), model).unwrap();
        let checked = run_nouns(folder.path(), &["check"]);
        assert_eq!(checked.code, Some(2), "{grant}: {checked:?}");
        checked.stderr
    };
    for (grant, message, help) in [
        (r#""/-/changes" = "*""#, "of `/-/changes` only reading can be granted", "[\"get\"]"),
        (r#""/-/metrcs" = ["get"]"#, "`/-/metrcs` cannot be granted", "did you mean `/-/metrics`?"),
        (r#""/-/health" = ["get"]"#, "`/-/health` cannot be granted", "`/-/users`"),
        (
            r#""/-/users" = ["get", "post"]"#,
            "of `/-/users` only reading can be granted",
            "[\"get\"]",
        ),
        (r#""/-/webhooks" = ["gett"]"#, "unknown verb \"gett\"", "did you mean `get`?"),
        (
            r#""/-/webhooks" = { verbs = ["get"], hide = ["url"] }"#,
            "expected \"*\" or a list of verbs, got a table",
            "",
        ),
        (r#""/-/users" = "*""#, "of `/-/users` only reading can be granted", "[\"get\"]"),
        (r#""/-/metrics" = ["post"]"#, "of `/-/metrics` only reading can be granted", "[\"get\"]"),
        (
            r#""/-/users" = { verbs = ["get"], hide = ["roles"] }"#,
            "of `/-/users` only reading can be granted",
            "[\"get\"]",
        ),
    ] {
        let said = check(grant);
        assert!(said.contains(message) && said.contains(help), "{grant}: {said}");
    }
}

#[test]
fn schema_of_the_model_file_has_the_server_paths() {
    let folder = Folder::new();
    let schema = run_nouns(folder.path(), &["check", "--schema"]);
    let schema: serde_json::Value = serde_json::from_str(&schema.stdout).unwrap();
    let paths = schema["$defs"]["role"]["properties"].as_object().unwrap();
    let names = ["/-/changes", "/-/metrics", "/-/users", "/-/webhooks"];
    assert_eq!(paths.keys().collect::<Vec<_>>(), names);
    assert_eq!(paths["/-/users"]["const"], serde_json::json!(["get"]));
    assert_eq!(paths["/-/webhooks"]["$ref"], "#/$defs/verbs");
}
