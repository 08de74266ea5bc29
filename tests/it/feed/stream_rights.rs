//! Event streams of callers with restricted rights: they see what GET shows them, and no more; a stream ends when
//! the rights of its caller change.

use std::time::Duration;

use expect_test::expect;
use serde_json::json;

use crate::harness::{
    Answer, Backend, ConnectError, EventSource, Person, Server, Setup, Stopwatch, StreamEnd,
    StreamEvent,
};

const MODEL: &str = r#"
title = "Office"
[server.limits]
failed_logins_max = 1000
[resources.team]
id = "integer"
[resources.team.fields]
lead = { type = "text" }
budget = { type = "integer", filter = true }
[resources.task]
id = "integer"
parent = "team"
[resources.task.fields]
text = { type = "text" }
[resources.visit]
id = "integer"
changes = "ids"
[resources.visit.fields]
by = { type = "text" }
[roles.anyone]
"/-/metrics" = ["get"]
[roles.lead]
team = { verbs = ["get"], where = "lead = $user", hide = ["budget"] }
task = ["get"]
visit = { verbs = ["get"], where = "by = $user" }
[roles.reader]
team = ["get"]
[roles.writer]
team = ["get", "post"]
"#;

struct Office {
    server: Server,
    admin: String,
    ann: Person,
    ann_path: String,
}

impl Office {
    fn start(backend: Backend) -> Self {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let ann = Person::new("ann", "the password of ann");
        let ann_path = server.add_user(&ann, &["lead"]);
        let admin = server.admin().basic();
        Self { server, admin, ann, ann_path }
    }

    fn request(&self, line: &str, body: &str) -> Answer {
        let kind = ("Content-Type", "application/json");
        self.server.request(line, &[("Authorization", &self.admin), kind], body)
    }

    fn team(&self, lead: &str) {
        let body = json!({"team": {"lead": lead, "budget": 7}}).to_string();
        assert_eq!(self.request("POST /teams", &body).status, 201);
    }

    fn set_lead(&self, id: u32, lead: &str) {
        let body = json!({"team": {"lead": lead}}).to_string();
        assert_eq!(self.request(&format!("PATCH /teams/{id}"), &body).status, 200);
    }

    fn follow(&self, person: &Person, target: &str) -> Result<EventSource, Answer> {
        let mut source = EventSource::new(target).header("Authorization", &person.basic());
        match source.connect(self.server.address) {
            Ok(_) => Ok(source),
            Err(ConnectError::Refused(answer)) => Err(*answer),
            Err(ConnectError::Lost(error)) => panic!("{error}"),
        }
    }
}

fn line(event: &StreamEvent) -> String {
    let json = event.json();
    let data = &json["data"];
    let lead = |name: &str| data[name]["lead"].clone();
    let budget = data.to_string().contains("budget");
    format!("{} {} {} {} {budget}", event.kind, json["subject"], lead("before"), lead("after"))
}

on_every_backend! {
    fn stream_of_a_row_filtered_caller_shows_only_its_rows_and_fields(backend: Backend) {
        let office = Office::start(backend);
        let mut source = office.follow(&office.ann, "/teams").unwrap();
        office.team("bob");
        office.team("ann");
        office.set_lead(2, "bob");
        office.set_lead(2, "ann");
        office.set_lead(1, "cid");
        let budget = json!({"team": {"budget": 8}}).to_string();
        assert_eq!(office.request("PATCH /teams/2", &budget).status, 200);
        assert_eq!(office.request("DELETE /teams/1", "").status, 204);
        assert_eq!(office.request("DELETE /teams/2", "").status, 204);
        let events = source.next_events(5);
        expect![[r#"
            created "/teams/2" null "ann" false
            left "/teams/2" null null false
            updated "/teams/2" null "ann" false
            updated "/teams/2" "ann" "ann" false
            deleted "/teams/2" "ann" null false"#]]
        .assert_eq(&events.iter().map(line).collect::<Vec<_>>().join("\n"));
        // The same when it is read from the log.
        let first = events[0].sequence() - 1;
        let mut again = office.follow(&office.ann, &format!("/teams?since={first}")).unwrap();
        assert_eq!(again.next_events(5), events);
    }

    /// Two users of one role share nothing that depends on who they are.
    fn streams_of_two_users_of_one_role_are_separate(backend: Backend) {
        let office = Office::start(backend);
        let bob = Person::new("bob", "the password of bob");
        office.server.add_user(&bob, &["lead"]);
        let mut of_ann = office.follow(&office.ann, "/teams").unwrap();
        let mut of_bob = office.follow(&bob, "/teams").unwrap();
        office.team("bob");
        office.team("ann");
        assert_eq!(of_ann.next_event().json()["subject"], "/teams/2");
        assert_eq!(of_bob.next_event().json()["subject"], "/teams/1");
    }

    /// The name of a user matters only where a row filter asks for it.
    fn streams_of_users_with_equal_rights_share_a_view(backend: Backend) {
        let office = Office::start(backend);
        let people = ["bob", "cid"].map(|name| Person::new(name, "a password of each"));
        people.iter().for_each(|person| drop(office.server.add_user(person, &["reader"])));
        let sources = people.iter().map(|person| office.follow(person, "/teams").unwrap());
        let mut sources: Vec<_> = sources.collect();
        assert_eq!(office.server.metric("nouns_feed_views"), Some(1));
        let mut of_ann = office.follow(&office.ann, "/teams").unwrap();
        assert_eq!(office.server.metric("nouns_feed_views"), Some(2));
        office.team("ann");
        for source in sources.iter_mut().chain([&mut of_ann]) {
            assert_eq!(source.next_event().json()["subject"], "/teams/1");
        }
    }

    fn stream_is_refused_without_a_grant_and_with_a_hidden_filter(backend: Backend) {
        let office = Office::start(backend);
        let status = |target: &str| office.follow(&office.ann, target).unwrap_err().status;
        assert_eq!(status("/-/users"), 403);
        assert_eq!(status("/teams?budget=7"), 400);
        assert_eq!(status("/visits"), 403);
        let refused = EventSource::new("/teams").connect(office.server.address);
        assert!(matches!(refused, Err(ConnectError::Refused(answer)) if answer.status == 401));
    }

    fn stream_ends_within_seconds_when_its_caller_loses_a_right(backend: Backend) {
        let office = Office::start(backend);
        let user = |member: serde_json::Value| json!({"user": member}).to_string();
        let mut fastest = Duration::MAX;
        for change in [
            user(json!({"roles": ["writer"]})),
            user(json!({"password": "another password of ann"})),
            user(json!({"disabled": true})),
        ] {
            let renewed = user(json!({
                "roles": ["reader"], "disabled": false, "password": "the password of ann"
            }));
            let renew = office.request(&format!("PATCH {}", office.ann_path), &renewed);
            assert_eq!(renew.status, 200, "{renew}");
            let mut source = office.follow(&office.ann, "/teams").unwrap();
            let changed = office.request(&format!("PATCH {}", office.ann_path), &change);
            assert_eq!(changed.status, 200, "{changed}");
            let watch = Stopwatch::start();
            let (events, end) = source.read_to_end();
            assert_eq!((events.len(), end), (0, StreamEnd::Truncated), "{change}");
            // One that looks only when it sends something waits for its heartbeat, which comes after 15 seconds.
            assert!(watch.elapsed() < Duration::from_secs(10), "{change}");
            fastest = fastest.min(watch.elapsed());
        }
        assert!(fastest < Duration::from_secs(3), "{fastest:?}");
    }
}
