//! Transitions of a state that only some roles may make.

use expect_test::expect;
use serde_json::{Value, json};

use super::send;
use crate::harness::{Answer, Backend, Person, Server, Setup};

const MODEL: &str = r#"
title = "Press"

[resources.article.fields]
title = { type = "text" }
status = { type = "state", initial = "draft", next = {
  draft = ["review"],
  review = ["draft", { to = ["published"], roles = ["editor"] }],
  published = { to = ["draft"], roles = ["editor", "chief"] } } }

[roles.writer]
article = ["get", "post", "put", "patch"]

[roles.editor]
article = ["get", "put", "patch"]

[roles.chief]
article = ["get", "patch"]

[roles.blind]
article = { verbs = ["get"], hide = ["status"] }

[roles.robot]
article = { verbs = ["patch"] }
"#;

struct Press {
    server: Server,
    path: String,
}

impl Press {
    fn open(backend: Backend) -> Self {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        for role in ["writer", "editor", "chief", "robot"] {
            server.add_user(&person(role), &[role]);
        }
        server.add_user(&person("both"), &["blind", "robot"]);
        let admin = server.admin().basic();
        let created = server.request(
            "POST /articles",
            &[("Authorization", &admin)],
            r#"{"article":{"title":"a"}}"#,
        );
        let path = created.header("Location").unwrap().to_owned();
        Self { server, path }
    }

    fn send(&self, who: &Person, verb: &str, status: &str) -> Answer {
        let body = json!({"article": {"status": status}});
        send(&self.server, Some(who), &format!("{verb} {}", self.path), &body)
    }

    fn moves(&self, who: &Person, verb: &str, status: &str) {
        let answer = self.send(who, verb, status);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

fn person(role: &str) -> Person {
    Person::new(role, "as long as it takes")
}

/// The problem, its status and its members.
fn refusal(answer: &Answer) -> String {
    let json = answer.json();
    let member = |name: &str| json.get(name).map(Value::to_string).unwrap_or_default();
    let detail = member("detail");
    format!(
        "{} {} {detail} {} {}",
        answer.status,
        answer.problem(),
        member("state"),
        member("allowed")
    )
}

on_every_backend! {
    fn transition_of_other_roles_is_forbidden(backend: Backend) {
        let press = Press::open(backend);
        press.moves(&person("writer"), "PUT", "review");
        for verb in ["PUT", "PATCH"] {
            expect![[r#"403 transition-not-granted "the article is review, and your roles do not let it become published" "review" ["draft"]"#]]
                .assert_eq(&refusal(&press.send(&person("writer"), verb, "published")));
        }
        press.moves(&person("editor"), "PUT", "published");
        // Nothing is left for a writer here, and what the model does not declare stays a conflict.
        expect![[r#"403 transition-not-granted "the article is published, and your roles do not let it become draft" "published" []"#]]
            .assert_eq(&refusal(&press.send(&person("writer"), "PATCH", "draft")));
        expect![[r#"409 transition-not-allowed "the article is published and cannot become review" "published" []"#]]
            .assert_eq(&refusal(&press.send(&person("writer"), "PATCH", "review")));
        expect![[r#"409 transition-not-allowed "the article is published and cannot become review" "published" ["draft"]"#]]
            .assert_eq(&refusal(&press.send(&person("chief"), "PATCH", "review")));
        press.moves(&person("chief"), "PATCH", "draft");
        // Staying is no transition; an admin may make all of them.
        press.moves(&person("writer"), "PUT", "draft");
        for status in ["review", "published", "draft"] {
            press.moves(&press.server.admin(), "PATCH", status);
        }
    }

    /// A caller who may not see the state does not learn it from the refusal.
    fn transition_refusal_does_not_reveal_an_unseen_state(backend: Backend) {
        let press = Press::open(backend);
        let mut seen = Vec::new();
        for status in ["review", "published"] {
            press.moves(&press.server.admin(), "PATCH", status);
            for who in ["robot", "both"] {
                let target = if status == "review" { "published" } else { "review" };
                seen.push(refusal(&press.send(&person(who), "PATCH", target)).replace(target, "TARGET"));
            }
        }
        seen.dedup();
        assert_eq!(seen, [r#"409 transition-not-allowed "the article cannot become TARGET now"  "#]);
    }

    fn transition_of_other_roles_is_neither_a_button_nor_described(backend: Backend) {
        let press = Press::open(backend);
        press.moves(&person("writer"), "PATCH", "review");
        let get = |who: &Person, path: &str, kind: &str| {
            press.server.request(&format!("GET {path}"), &[("Authorization", &who.basic()), ("Accept", kind)], "")
        };
        let has_button = |who: &Person| get(who, &press.path, "text/html").text().contains("data-state=\"published\"");
        assert_eq!([has_button(&person("writer")), has_button(&person("editor")), has_button(&press.server.admin())], [false, true, true]);
        let about = |who: &Person| {
            get(who, "/-/schemas/article", "application/json").json()["properties"]["status"]["description"].as_str().unwrap().to_owned()
        };
        expect!["The state. A new item is `draft`. After `draft`: `review`. After `review`: `draft`. After `published`: nothing."].assert_eq(&about(&person("writer")));
        expect!["The state. A new item is `draft`. After `draft`: `review`. After `review`: `draft`, `published`. After `published`: `draft`."].assert_eq(&about(&person("editor")));
        expect!["The state. A new item is `draft`. After `draft`: `review`. After `review`: `draft`, `published` (role editor). After `published`: `draft` (role editor or chief)."].assert_eq(&about(&press.server.admin()));
        let problems = |who: &Person| {
            let document = get(who, "/-/openapi.json", "application/json").json();
            document["paths"]["/articles/{article_id}"]["patch"]["responses"].to_string().contains("transition-not-granted")
        };
        assert!(problems(&person("writer")) && !problems(&press.server.admin()));
    }

    /// Roles are no part of the stored model: a limit needs no migration.
    fn transition_limit_is_applied_at_start(backend: Backend) {
        let open = MODEL.replace(r#"{ to = ["published"], roles = ["editor"] }"#, "\"published\"");
        let server = Setup::new(backend).model(&open).start();
        let path = server.create("/articles", r#"{"article":{"title":"a"}}"#);
        let server = Setup::new(backend).model(MODEL).with_authentication().start_in(server.stop());
        server.add_user(&person("writer"), &["writer"]);
        let press = Press { server, path };
        press.moves(&person("writer"), "PATCH", "review");
        assert_eq!(press.send(&person("writer"), "PATCH", "published").problem(), "transition-not-granted");
    }
}
