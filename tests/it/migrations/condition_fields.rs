//! Migration of a field that the `exists` of a row filter compares: its indexes are dropped before its column changes.

use expect_test::expect;

use super::{ModelChange, check};
use crate::harness::Backend;

const BEFORE: &str = "[resources.team]\nid = \"integer\"\n[resources.team.fields]\nname = { type = \"text\" }\n\
    [resources.member]\nid = \"integer\"\nparent = \"team\"\n[resources.member.fields]\n\
    user = { type = \"text\", filter = true }\ncode = { type = \"text\", filter = true, max_length = 9 }\n\
    [roles.member]\nteam = { verbs = [\"get\"], where = \"exists(member where team = this.id and user = $user and code = 'x')\" }\n";
const AFTER: &str = "[resources.team]\nid = \"integer\"\n[resources.team.fields]\nname = { type = \"text\" }\n\
    [resources.member]\nid = \"integer\"\nparent = \"team\"\n[resources.member.fields]\n\
    user = { type = \"text\", filter = true, required = true, fill = \"nobody\" }\n\
    [roles.member]\nteam = { verbs = [\"get\"], where = \"exists(member where team = this.id and user = $user)\" }\n";

on_every_backend! {
    fn migration_of_a_field_in_a_row_filter_rewrites_it(backend: Backend) {
        check(
            backend,
            &ModelChange {
                before: BEFORE,
                after: AFTER,
                items: &[("/teams", "{}"), ("/teams/1/members", r#"{"user":"ann","code":"x"}"#), ("/teams/1/members", "{}")],
                flags: &["--allow-loss", "member.code"],
                collections: &["/teams/1/members"],
            },
            &expect![[r#"
                From the model in DATABASE to model.toml: 2 steps

                  rewrite  member.user  the field is required now, but items may be without it; they get its fill
                                        2 items; rewrites its table, about 1 s; cannot be undone

                  remove   member.code  the field was removed, but the database keeps values for it
                                        2 items; deletes its values, about 1 s; cannot be undone
                                        values of 1 item are lost: needs --allow-loss member.code

                Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss member.code
                --- plan: exit 1
                nouns: migrated DATABASE to model.toml (2 steps)

                {"id":1,"team_id":1,"user":"ann"}
                {"id":2,"team_id":1,"user":"nobody"}
            "#]],
        );
    }
}
