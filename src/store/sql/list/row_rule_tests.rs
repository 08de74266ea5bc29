//! Row rules by relation: that indexes lead from the caller's value to the rows of a list, where `check` has no warning.

use expect_test::expect;

use super::test_plans::{
    NamedStatement, flat, flat_list, literal, postgres_plans, role_scope, sqlite_plans,
};
use super::*;
use crate::model::{self, ResourceIndex};
use crate::permit::warnings;
use crate::store::sql::dialect::{POSTGRES, SQLITE};
use crate::store::sql::read_statements::ReadStatements;

const MODEL: &str = r#"
title = "Tickets"
[resources.project]
[resources.project.fields]
tenant = { type = "text", filter = true, max_length = 40 }
[resources.member]
parent = "project"
[resources.member.fields]
user = { type = "text", filter = true, max_length = 40 }
level = { type = "integer" }
[resources.ticket]
[resources.ticket.fields]
project = { type = "ref", to = "project" }
owner = { type = "text", filter = true, max_length = 40 }
title = { type = "text", filter = true, max_length = 40 }
[resources.comment]
[resources.comment.fields]
ticket = { type = "ref", to = "ticket" }
[roles.path]
ticket = { verbs = ["get"], where = "project.tenant = $user" }
comment = { verbs = ["get"], where = "ticket.project.tenant = $user" }
[roles.member]
ticket = { verbs = ["get"], where = "exists(member where project = this.project and user = $user and level > 2)" }
comment = { verbs = ["get"], where = "exists(member where project = this.ticket.project and user = $user)" }
[roles.either]
ticket = { verbs = ["get"], where = "owner = $user or exists(member where project = this.project and user = $user)" }
"#;

const TICKETS: ResourceIndex = ResourceIndex(2);
const COMMENTS: ResourceIndex = ResourceIndex(3);

fn read() -> Model {
    let model = model::read("tickets.toml", MODEL).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(warnings(&model), Vec::<String>::new());
    model
}

fn statements(model: &Model, dialect: &'static Dialect) -> Vec<NamedStatement> {
    let mut all = Vec::new();
    for (role, resource) in [
        ("path", TICKETS),
        ("path", COMMENTS),
        ("member", TICKETS),
        ("member", COMMENTS),
        ("either", TICKETS),
    ] {
        let (scope, name) = (role_scope(model, role), &model.resource(resource).name);
        let collection = flat(resource, scope.clone());
        for query in ["", "sort=-id", "title=x", "sort=title"] {
            if resource == COMMENTS && query.contains("title") {
                continue;
            }
            let list = flat_list(model, resource, query);
            let listing =
                ListStatements::new(model, dialect, &collection, &list, SelectedBy::Condition);
            for section in listing.sections() {
                let name = format!("{role} {name} {query} {section:?}");
                all.push(NamedStatement::new(name, listing.page(section, 51)));
            }
            if query.is_empty() {
                all.push(NamedStatement::new(format!("{role} {name} count"), listing.count()));
            }
        }
        let read = ReadStatements::new(model, dialect, model.resource(resource), &scope);
        let conditions = read.condition_binds(&scope).map(|bind| literal(&bind));
        let id = "'01890a5d-ac96-774b-bcce-b302099a8057'".to_owned();
        let values = [id].into_iter().chain(conditions).collect();
        all.push(NamedStatement { name: format!("{role} {name} item"), sql: read.item, values });
    }
    all
}

#[test]
fn row_rules_on_sqlite_are_served_by_indexes() {
    let model = read();
    let all = sqlite_plans(&model, &statements(&model, &SQLITE));
    assert!(!all.contains("SCAN"), "{all}");
    expect![[r#"
        path ticket  All: SEARCH t0 USING INDEX nouns.tickets.ref.project (project=?); LIST SUBQUERY 1; SEARCH r1 USING COVERING INDEX nouns.projects.filter.tenant (tenant=?); USE TEMP B-TREE FOR ORDER BY
        path ticket count: SEARCH t0 USING COVERING INDEX nouns.tickets.ref.project (project=?); LIST SUBQUERY 1; SEARCH r1 USING COVERING INDEX nouns.projects.filter.tenant (tenant=?)
        path ticket sort=-id All: SEARCH t0 USING INDEX nouns.tickets.ref.project (project=?); LIST SUBQUERY 1; SEARCH r1 USING COVERING INDEX nouns.projects.filter.tenant (tenant=?); USE TEMP B-TREE FOR ORDER BY
        path ticket title=x All: SEARCH t0 USING INDEX nouns.tickets.filter.title (title=?); LIST SUBQUERY 1; SEARCH r1 USING COVERING INDEX nouns.projects.filter.tenant (tenant=?); CREATE BLOOM FILTER
        path ticket sort=title KeyPresent: SEARCH t0 USING INDEX nouns.tickets.ref.project (project=?); LIST SUBQUERY 1; SEARCH r1 USING COVERING INDEX nouns.projects.filter.tenant (tenant=?); USE TEMP B-TREE FOR ORDER BY
        path ticket sort=title KeyAbsent: SEARCH t0 USING INDEX nouns.tickets.filter.title (title=?); LIST SUBQUERY 1; SEARCH r1 USING COVERING INDEX nouns.projects.filter.tenant (tenant=?); CREATE BLOOM FILTER
        path ticket item: SEARCH t0 USING PRIMARY KEY (id=?); CORRELATED SCALAR SUBQUERY 1; SEARCH r1 USING PRIMARY KEY (id=?)
        path comment  All: SEARCH t0 USING INDEX nouns.comments.ref.ticket (ticket=?); LIST SUBQUERY 1; SEARCH r2 USING COVERING INDEX nouns.projects.filter.tenant (tenant=?); SEARCH r1 USING COVERING INDEX nouns.tickets.ref.project (project=?); USE TEMP B-TREE FOR ORDER BY
        path comment count: SEARCH t0 USING COVERING INDEX nouns.comments.ref.ticket (ticket=?); LIST SUBQUERY 1; SEARCH r2 USING COVERING INDEX nouns.projects.filter.tenant (tenant=?); SEARCH r1 USING COVERING INDEX nouns.tickets.ref.project (project=?)
        path comment sort=-id All: SEARCH t0 USING INDEX nouns.comments.ref.ticket (ticket=?); LIST SUBQUERY 1; SEARCH r2 USING COVERING INDEX nouns.projects.filter.tenant (tenant=?); SEARCH r1 USING COVERING INDEX nouns.tickets.ref.project (project=?); USE TEMP B-TREE FOR ORDER BY
        path comment item: SEARCH t0 USING PRIMARY KEY (id=?); CORRELATED SCALAR SUBQUERY 1; SEARCH r1 USING PRIMARY KEY (id=?); SEARCH r2 USING PRIMARY KEY (id=?)
        member ticket  All: SEARCH t0 USING INDEX nouns.tickets.ref.project (project=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?); USE TEMP B-TREE FOR ORDER BY
        member ticket count: SEARCH t0 USING COVERING INDEX nouns.tickets.ref.project (project=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?)
        member ticket sort=-id All: SEARCH t0 USING INDEX nouns.tickets.ref.project (project=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?); USE TEMP B-TREE FOR ORDER BY
        member ticket title=x All: SEARCH t0 USING INDEX nouns.tickets.filter.title (title=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?); CREATE BLOOM FILTER
        member ticket sort=title KeyPresent: SEARCH t0 USING INDEX nouns.tickets.ref.project (project=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?); USE TEMP B-TREE FOR ORDER BY
        member ticket sort=title KeyAbsent: SEARCH t0 USING INDEX nouns.tickets.filter.title (title=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?); CREATE BLOOM FILTER
        member ticket item: SEARCH t0 USING PRIMARY KEY (id=?); SEARCH r1 EXISTS USING INDEX nouns.members.filter.user (project_id=? AND user=?)
        member comment  All: SEARCH t0 USING INDEX nouns.comments.ref.ticket (ticket=?); LIST SUBQUERY 2; SEARCH r2 USING COVERING INDEX nouns.tickets.ref.project (project=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?); USE TEMP B-TREE FOR ORDER BY
        member comment count: SEARCH t0 USING COVERING INDEX nouns.comments.ref.ticket (ticket=?); LIST SUBQUERY 2; SEARCH r2 USING COVERING INDEX nouns.tickets.ref.project (project=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?)
        member comment sort=-id All: SEARCH t0 USING INDEX nouns.comments.ref.ticket (ticket=?); LIST SUBQUERY 2; SEARCH r2 USING COVERING INDEX nouns.tickets.ref.project (project=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?); USE TEMP B-TREE FOR ORDER BY
        member comment item: SEARCH t0 USING PRIMARY KEY (id=?); SEARCH r1 EXISTS USING COVERING INDEX nouns.members.filter.user (project_id=? AND user=?); CORRELATED SCALAR SUBQUERY 1; SEARCH r2 USING PRIMARY KEY (id=?)
        either ticket  All: MULTI-INDEX OR; INDEX 1; SEARCH t0 USING INDEX nouns.tickets.filter.owner (owner=?); INDEX 2; LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?); SEARCH t0 USING INDEX nouns.tickets.ref.project (project=?); USE TEMP B-TREE FOR ORDER BY
        either ticket count: MULTI-INDEX OR; INDEX 1; SEARCH t0 USING INDEX nouns.tickets.filter.owner (owner=?); INDEX 2; LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?); SEARCH t0 USING INDEX nouns.tickets.ref.project (project=?)
        either ticket sort=-id All: MULTI-INDEX OR; INDEX 1; SEARCH t0 USING INDEX nouns.tickets.filter.owner (owner=?); INDEX 2; LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?); SEARCH t0 USING INDEX nouns.tickets.ref.project (project=?); USE TEMP B-TREE FOR ORDER BY
        either ticket title=x All: SEARCH t0 USING INDEX nouns.tickets.filter.title (title=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?); CREATE BLOOM FILTER
        either ticket sort=title KeyPresent: MULTI-INDEX OR; INDEX 1; SEARCH t0 USING INDEX nouns.tickets.filter.owner (owner=?); INDEX 2; LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?); SEARCH t0 USING INDEX nouns.tickets.ref.project (project=?); USE TEMP B-TREE FOR ORDER BY
        either ticket sort=title KeyAbsent: SEARCH t0 USING INDEX nouns.tickets.filter.title (title=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.members.flat_filter.user (user=?); CREATE BLOOM FILTER
        either ticket item: SEARCH t0 USING PRIMARY KEY (id=?); CORRELATED SCALAR SUBQUERY 1; SEARCH r1 USING COVERING INDEX nouns.members.filter.user (project_id=? AND user=?)
    "#]].assert_eq(&all);
}

/// The same on PostgreSQL, with enough rows that a sequential scan would be slower.
#[test]
fn row_rules_on_postgres_are_served_by_indexes() {
    let model = read();
    let rows = "INSERT INTO projects SELECT gen_random_uuid(), now(), now(), 1, 't' || n % 1000 FROM generate_series(1, 5000) n;
         INSERT INTO members SELECT gen_random_uuid(), id, now(), now(), 1, tenant, n FROM projects, generate_series(1, 3) n;
         INSERT INTO tickets SELECT gen_random_uuid(), now(), now(), 1, id, 'o' || n, 't' || n FROM projects, generate_series(1, 10) n;
         INSERT INTO comments SELECT gen_random_uuid(), now(), now(), 1, id FROM tickets, generate_series(1, 2);
         ANALYZE;\n";
    let plans = postgres_plans("row_rule_plans", &model, rows, &statements(&model, &POSTGRES));
    assert!(!plans.contains("Seq Scan"), "{plans}");
}
