//! Model changes of empty databases and empty resources.

use serde_json::json;

use crate::harness::{Backend, Setup, run_sql};

/// Children, a reference, integer ids, a unique rule.
const SCHOOL: &str = r#"
title = "School"
[resources.teacher.fields]
name = { type = "text", required = true, unique = true }
[resources.class]
id = "integer"
plural = "classes"
[resources.class.fields]
title = { type = "text", required = true }
room = { type = "text" }
lead = { type = "ref", to = "teacher" }
[resources.pupil]
parent = "class"
[resources.pupil.fields]
name = { type = "text", required = true }
"#;

/// The same names for other things.
const OTHER: &str = r#"
title = "Other"
[resources.pupil]
id = "integer"
[resources.pupil.fields]
age = { type = "integer", required = true, unique = true }
friend = { type = "ref", to = "pupil" }
[resources.lesson]
parent = "pupil"
[resources.lesson.fields]
at = { type = "timestamp" }
"#;

on_every_backend! {
    fn empty_database_accepts_another_model_and_the_old_one_again(backend: Backend) {
        let server = Setup::new(backend).model(SCHOOL).with_authentication().start();
        let admin = server.admin();
        let server = Setup::new(backend).model(OTHER).with_authentication().start_in(server.stop());
        let authorization = admin.basic();
        let send = |server: &crate::harness::Server, line: &str, body: &str| {
            server.request(line, &[("Authorization", &authorization)], body)
        };
        // The users stay.
        let pupil = send(&server, "POST /pupils", r#"{"pupil":{"age":7}}"#);
        assert_eq!(pupil.status, 201, "{pupil:?}");
        let path = pupil.header("Location").unwrap().to_owned();
        assert_eq!(send(&server, "POST /pupils", r#"{"pupil":{"age":7}}"#).status, 409);
        let lessons = format!("POST {path}/lessons");
        assert_eq!(send(&server, &lessons, r#"{"lesson":{}}"#).status, 201);
        assert_eq!(send(&server, &format!("DELETE {path}"), "").status, 409);
        let lesson = send(&server, &format!("GET {path}/lessons"), "").json();
        let lesson = lesson["lessons"][0]["id"].as_str().unwrap().to_owned();
        assert_eq!(send(&server, &format!("DELETE {path}/lessons/{lesson}"), "").status, 204);
        assert_eq!(send(&server, &format!("DELETE {path}"), "").status, 204);
        let server = Setup::new(backend).model(SCHOOL).with_authentication().start_in(server.stop());
        let class = send(&server, "POST /classes", r#"{"class":{"title":"1a"}}"#);
        assert_eq!(class.status, 201, "{class:?}");
        // The change log stays.
        let log = "SELECT count(*) FROM nouns_changes WHERE resource = 'lesson'";
        assert_eq!(run_sql(backend, server.folder(), log), "2\n");
    }

    fn empty_resource_may_change_when_another_has_items(backend: Backend) {
        let server = Setup::new(backend).model(SCHOOL).start();
        let class = server.create("/classes", r#"{"class":{"title":"1a"}}"#);
        let folder = server.stop();
        // The classes may refer to the teachers, and none does.
        let model = SCHOOL
            .replace("name = { type = \"text\", required = true, unique = true }", "age = { type = \"integer\" }")
            .replace("parent = \"class\"", "");
        let server = Setup::new(backend).model(&model).start_in(folder);
        assert_eq!(server.get(&class).json()["class"]["title"], "1a");
        let teacher = server.create("/teachers", r#"{"teacher":{"age":40}}"#);
        let id = teacher.rsplit_once('/').unwrap().1;
        let body = json!({"class": {"title": "1a", "lead": id}}).to_string();
        assert_eq!(server.put(&class, body).status, 200);
        server.create("/pupils", r#"{"pupil":{"name":"Ann"}}"#);
        // The database enforces the reference as before.
        assert_eq!(server.delete(&teacher).status, 409);
        let gone = "DELETE FROM teachers";
        match backend {
            // The tool does not enforce references by default.
            Backend::Sqlite => {
                let check = "SELECT count(*) FROM pragma_foreign_key_list('classes')";
                assert_eq!(run_sql(backend, server.folder(), check), "1\n");
            }
            Backend::Postgres => {
                let name = crate::harness::Postgres::database_name(server.folder());
                let ended = crate::harness::Postgres::shared().try_sql(&name, gone);
                assert!(ended.stderr.contains("foreign key"), "{ended:?}");
            }
        }
    }

    fn resource_with_items_refuses_an_incompatible_change(backend: Backend) {
        let server = Setup::new(backend).model(SCHOOL).start();
        let class = server.create("/classes", r#"{"class":{"title":"1a"}}"#);
        let folder = server.stop();
        let (ended, folder) =
            Setup::new(backend).model(OTHER).try_start_in(folder).expect_err("it is refused");
        assert_eq!(ended.code, Some(2));
        assert!(
            ended.stderr.contains("class: the resource was removed, but the database keeps its items"),
            "{}", ended.stderr
        );
        assert!(!ended.stderr.contains("teacher"), "{}", ended.stderr);
        let server = Setup::new(backend).model(SCHOOL).start_in(folder);
        assert_eq!(server.get(&class).status, 200);
        server.create("/teachers", r#"{"teacher":{"name":"Ann"}}"#);
    }

    fn recreated_table_does_not_reuse_ids(backend: Backend) {
        let server = Setup::new(backend).model(SCHOOL).start();
        for number in 1..=2 {
            let path = server.create("/classes", r#"{"class":{"title":"1a"}}"#);
            assert_eq!(path, format!("/classes/{number}"));
            assert_eq!(server.delete(&path).status, 204);
        }
        let folder = server.stop();
        let model = SCHOOL.replace("room = { type = \"text\" }", "room = { type = \"integer\" }");
        let server = Setup::new(backend).model(&model).start_in(folder);
        let path = server.create("/classes", r#"{"class":{"title":"1a","room":7}}"#);
        assert_eq!(path, "/classes/3");
    }

    fn empty_resource_with_another_plural_stays_referenced(backend: Backend) {
        let server = Setup::new(backend).model(SCHOOL).start();
        let class = server.create("/classes", r#"{"class":{"title":"1a"}}"#);
        let folder = server.stop();
        // One that takes a free name, and one that takes the name of a dropped table.
        let (teachers, pupils) = ("[resources.teacher]\nplural = \"lecturers\"\n", "plural = \"pupils\"\n");
        let first = SCHOOL.replace("[resources.teacher.fields]", &format!("{teachers}[resources.teacher.fields]"));
        let (without_pupils, _) = first.split_once("[resources.pupil]").unwrap();
        let second = without_pupils.replace("plural = \"lecturers\"\n", pupils);
        let mut folder = folder;
        for (model, plural) in [(first.as_str(), "/lecturers"), (&second, "/pupils")] {
            let server = Setup::new(backend).model(model).start_in(folder);
            let teacher = server.create(plural, r#"{"teacher":{"name":"Ann"}}"#);
            let id = teacher.rsplit_once('/').unwrap().1;
            let body = json!({"class": {"title": "1a", "lead": id}}).to_string();
            assert_eq!(server.put(&class, body).status, 200);
            assert_eq!(server.delete(&teacher).status, 409);
            assert_eq!(server.put(&class, r#"{"class":{"title":"1a"}}"#).status, 200);
            assert_eq!(server.delete(&teacher).status, 204);
            folder = server.stop();
        }
    }
}
