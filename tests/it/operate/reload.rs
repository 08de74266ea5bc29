//! A changed model file, applied at SIGHUP without a restart.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::json;

use super::stop::SILENT_GRACE;
use crate::harness::{Backend, Client, Person, Server, Setup, wait_until};

const NOTES: &str = "title = \"Notes\"\n[resources.note.fields]\ntext = { type = \"text\" }\n";
const NOT_APPLIED: &str = "the changed model was not applied, and the previous one is still served";

/// With a field and a resource more.
fn more() -> String {
    format!(
        "{NOTES}mood = {{ type = \"text\", default = \"calm\", filter = true }}\n\
         [resources.page.fields]\ntext = {{ type = \"text\" }}\n"
    )
}

fn lines(server: &Server, message: &str) -> usize {
    server.log().lines().filter(|line| line.contains(message)).count()
}

/// Writes the model file, and waits until the server has logged the message once more.
fn reload(server: &Server, model: &str, message: &str) -> String {
    let before = lines(server, message);
    fs::write(server.folder().join("model.toml"), model).unwrap();
    server.send_sighup();
    wait_until(message, || (lines(server, message) > before).then_some(()));
    server.log().lines().rfind(|line| line.contains(message)).unwrap().to_owned()
}

fn apply(server: &Server, model: &str) {
    reload(server, model, "the changed model is applied");
}

on_every_backend! {
    fn sighup_applies_additions_and_takes_them_back(backend: Backend) {
        let server = Setup::new(backend).model(NOTES).start();
        let note = server.create("/notes", r#"{"note":{"text":"tea"}}"#);
        let process = server.process_id();
        apply(&server, &more());
        assert_eq!(server.get(&note).json()["note"]["mood"], "calm");
        server.create("/pages", r#"{"page":{"text":"one"}}"#);
        assert_eq!(server.get("/notes?mood=calm").json()["notes"].as_array().unwrap().len(), 1);
        // As after the rollback of a deployment.
        apply(&server, NOTES);
        assert!(server.get(&note).json()["note"].get("mood").is_none());
        assert_eq!(server.get("/pages").status, 404);
        apply(&server, &more());
        assert_eq!(server.get("/pages").json()["pages"][0]["text"], "one");
        assert_eq!(server.process_id(), process);
        reload(&server, &more(), "SIGHUP: the model has not changed");
        server.stop();
    }

    fn sighup_applies_roles_and_limits(backend: Backend) {
        let roles = |verbs: &str, bytes: usize| {
            format!("{NOTES}[roles.clerk]\nnote = {verbs}\n[server.limits]\nbody_bytes_max = {bytes}\n")
        };
        let server =
            Setup::new(backend).model(&roles(r#"["get"]"#, 2000)).with_authentication().start();
        let clerk = Person::new("ann", "Circle of Life");
        server.add_user(&clerk, &["clerk"]);
        let login = clerk.basic();
        let post = |text: &str| {
            let body = json!({"note": {"text": text}}).to_string();
            server.request("POST /notes", &[("Authorization", &login)], body).status
        };
        assert_eq!(post("tea"), 403);
        apply(&server, &roles(r#"["get", "post"]"#, 2000));
        assert_eq!((post("tea"), post(&"x".repeat(1500))), (201, 201));
        apply(&server, &roles(r#"["get", "post"]"#, 1024));
        assert_eq!((post("tea"), post(&"x".repeat(1500))), (201, 413));
        apply(&server, &roles(r#"["get"]"#, 1024));
        assert_eq!(post("tea"), 403);
    }

    fn sighup_keeps_the_previous_model_where_the_new_one_cannot_be_applied(backend: Backend) {
        let server = Setup::new(backend).model(NOTES).start();
        let note = server.create("/notes", r#"{"note":{"text":"tea"}}"#);
        for (model, cause) in [
            (NOTES.replace("text\" }", "texd\" }"), "texd"),
            (NOTES.replace("type = \"text\"", "type = \"integer\""), "note.text: the type changed from text to integer"),
            (NOTES.replace("text =", "words ="), "nouns migrate"),
            (NOTES.replace("type = \"text\"", "type = \"text\", required = true"), "note.text"),
            (format!("{NOTES}[server]\nwait = true\n"), "takes a restart"),
            (String::new(), "the model has no title"),
        ] {
            let line = reload(&server, &model, NOT_APPLIED);
            assert!(line.contains("\"level\":\"error\"") && line.contains(cause), "{cause}: {line}");
            assert_eq!(server.get(&note).json()["note"]["text"], "tea");
        }
        fs::remove_file(server.folder().join("model.toml")).unwrap();
        server.send_sighup();
        wait_until("it is logged", || server.log().contains("there is no model file").then_some(()));
        apply(&server, &more());
        assert_eq!(server.get(&note).json()["note"]["mood"], "calm");
    }

    fn sighup_under_load_refuses_no_connection(backend: Backend) {
        const RELOADS: usize = 4;
        let server = Setup::new(backend).model(NOTES).start();
        let (ended, made) = (AtomicBool::new(false), AtomicUsize::new(0));
        let address = server.address;
        let body = r#"{"note":{"text":"tea"}}"#;
        let request = format!("POST /notes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        // One connection for each request.
                        let began = Instant::now();
                        let mut client = Client::connect(address);
                        client.write(request.as_bytes());
                        if client.is_closed() {
                            // The machine was so slow that the request came too late.
                            assert!(began.elapsed() > SILENT_GRACE / 2, "closed after {:?}", began.elapsed());
                            continue;
                        }
                        let answer = client.read_answer(false);
                        assert_eq!(answer.status, 201, "{}", answer.text());
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for number in 0..RELOADS {
                let before = made.load(Ordering::Relaxed);
                wait_until("requests are served", || (made.load(Ordering::Relaxed) > before + 8).then_some(()));
                let model = if number % 2 == 0 { more() } else { NOTES.to_owned() };
                apply(&server, &model);
            }
            ended.store(true, Ordering::Relaxed);
        });
        let count = crate::harness::run_sql(backend, server.folder(), "SELECT count(*) FROM notes");
        assert_eq!(count.trim(), made.load(Ordering::Relaxed).to_string(), "no write is lost or doubled");
    }
}

/// A server without a model file serves the built-in store, whose roles are not those of the file.
#[test]
fn sighup_does_not_exchange_the_built_in_store_and_a_model_file() {
    let server = Setup::new(Backend::Sqlite).start();
    fs::write(server.folder().join("nouns.toml"), NOTES).unwrap();
    server.send_sighup();
    wait_until("it is logged", || {
        let log = server.log();
        let line = log.lines().find(|line| line.contains(NOT_APPLIED))?;
        assert!(
            line.contains("started with the built-in store, and would now read nouns.toml"),
            "{line}"
        );
        Some(())
    });
    assert_eq!(server.get("/customers").status, 200);
}

#[test]
fn sigterm_after_sighup_ends_the_server() {
    let server = Setup::new(Backend::Sqlite).model(NOTES).start();
    fs::write(server.folder().join("model.toml"), more()).unwrap();
    assert!(server.try_signals(&["HUP", "TERM"]));
    let (status, _) = server.wait();
    assert!(status.success(), "{status}");
}
