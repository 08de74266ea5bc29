//! `ref` with `where`: which items may be referred to.

use serde_json::json;

use super::{RowRules, reference};
use crate::harness::{Backend, Setup, run_nouns};

const MODEL: &str = r#"
title = "Tickets"

[resources.tenant.fields]
name = { type = "text" }

[resources.member.fields]
tenant = { type = "ref", to = "tenant", required = true }
active = { type = "boolean", default = true }
chief  = { type = "ref", to = "member", where = "tenant = this.tenant" }

[resources.ticket]
parent = "tenant"
[resources.ticket.fields]
title    = { type = "text" }
level    = { type = "integer", default = 0 }
assignee = { type = "ref", to = "member", where = "tenant = this.tenant and active = true" }
"#;

on_every_backend! {
    fn reference_rule_refuses_targets_outside_of_it(backend: Backend) {
        let mut rules = RowRules::start(backend, MODEL, &[]);
        let [acme, other] = ["acme", "other"].map(|name| rules.create("/tenants", &json!({"tenant": {"name": name}})));
        let member = |tenant: &str| json!({"member": {"tenant": reference(tenant)}});
        let [ann, bob] = [&acme, &other].map(|tenant| rules.create("/members", &member(tenant)));
        let of = |member: &str| json!({"ticket": {"title": "a", "assignee": reference(member)}});
        let line = format!("POST {acme}/tickets");
        let refused = rules.request("admin", &line, &of(&bob));
        assert_eq!(refused.status, 422, "{refused:?}");
        let errors = json!([{"pointer": "/ticket/assignee", "code": "check", "detail": "expected a member for which tenant = this.tenant and active = true"}]);
        assert_eq!(refused.json()["errors"], errors);
        let ticket = rules.create(&format!("{acme}/tickets"), &of(&ann));
        let both = json!({"tickets": [{"assignee": reference(&ann)}, {"assignee": reference(&bob)}]});
        let refused = rules.request("admin", &line, &both);
        assert_eq!(refused.json()["errors"][0]["pointer"], "/tickets/1/assignee");
        let patch = format!("PATCH {ticket}");
        assert_eq!(rules.status("admin", &patch, &json!({"ticket": {"assignee": reference(&bob)}})), 422);
        assert_eq!(rules.status("admin", &format!("PUT {ticket}"), &of(&bob)), 422);
        assert_eq!(rules.status("admin", &format!("PUT {ticket}"), &of(&ann)), 200);
        // A later change of the target is not looked at, until the reference is set again.
        assert_eq!(rules.status("admin", &format!("PATCH {ann}"), &json!({"member": {"active": false}})), 200);
        assert_eq!(rules.status("admin", &patch, &json!({"ticket": {"level": 2}})), 200);
        assert_eq!(rules.status("admin", &patch, &json!({"ticket": {"assignee": null}})), 200);
        assert_eq!(rules.status("admin", &patch, &json!({"ticket": {"assignee": reference(&ann)}})), 422);
        // A value of the row that the rule reads counts too, and the row may refer to itself.
        let chief = json!({"member": {"chief": reference(&ann)}});
        assert_eq!(rules.status("admin", &format!("PATCH {ann}"), &chief), 200);
        assert_eq!(rules.status("admin", &format!("PATCH {bob}"), &chief), 422);
        let moved = json!({"member": {"tenant": reference(&other)}});
        assert_eq!(rules.status("admin", &format!("PATCH {ann}"), &moved), 200, "with itself");
        let with_chief = json!({"member": {"chief": reference(&bob)}});
        assert_eq!(rules.status("admin", &format!("PATCH {ann}"), &with_chief), 200);
        let back = json!({"member": {"tenant": reference(&acme)}});
        let refused = rules.request("admin", &format!("PATCH {ann}"), &back);
        assert_eq!(refused.json()["errors"][0]["pointer"], "/member/chief", "{refused:?}");
    }
}

#[test]
fn reference_rule_is_checked_by_imports() {
    let server = Setup::new(Backend::Sqlite).model(MODEL).start();
    let tenant = |name: &str| {
        let path = server.create("/tenants", format!(r#"{{"tenant":{{"name":"{name}"}}}}"#));
        super::id(&path).to_owned()
    };
    let (acme, other) = (tenant("acme"), tenant("other"));
    let chief = server.create("/members", format!(r#"{{"member":{{"tenant":"{acme}"}}}}"#));
    let chief = super::id(&chief);
    let import = |tenant: &str| {
        let file = server.folder().join("members.csv");
        std::fs::write(&file, format!("tenant,chief\n{tenant},{chief}\n")).unwrap();
        let database = server.database();
        let places = ["--model", "model.toml", "--database", &database];
        run_nouns(server.folder(), &[&["import", "member", "members.csv"][..], &places].concat())
    };
    let refused = import(&other);
    assert!(
        refused.stderr.contains("expected a member for which tenant = this.tenant"),
        "{}",
        refused.stderr
    );
    let done = import(&acme);
    assert!(done.code == Some(0), "{}", done.stderr);
}
