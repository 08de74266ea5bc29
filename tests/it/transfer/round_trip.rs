//! An export that is imported into another database gives the same export.

use serde_json::Value;

use super::*;

const RESOURCES: [&str; 4] = ["customer", "order", "parcel", "review"];

/// Items with each kind of value, in states that a new item cannot have.
fn fill(server: &Server) {
    let mut before = String::new();
    for at in 0..30 {
        let name = ["Ann", "B, \\\"b\\\"", "=1+1", "Zoë\\n2", " x "][at % 5];
        let email = if at % 3 == 0 { "null".to_owned() } else { format!("\"c{at}@example.com\"") };
        let vip = at % 2 == 0;
        let email = if email == "null" { String::new() } else { format!(r#","email":{email}"#) };
        let body = format!(r#"{{"customer":{{"name":"{name}","vip":{vip}{email}}}}}"#);
        let customer = server.create("/customers", body);
        let tags = ["[]", r#"["a",","]"#, r#"["","\u0001"]"#][at % 3];
        let body = format!(
            r#"{{"order":{{"price":"{}.05","count":{},"tags":{tags},"due":"2026-02-28"}}}}"#,
            at * 1000,
            at % 7
        );
        let order = server.create(&format!("{customer}/orders"), body);
        for state in ["paid", "shipped"].iter().take(at % 3) {
            let body = format!(r#"{{"order":{{"status":"{state}"}}}}"#);
            let patch = [("Content-Type", "application/merge-patch+json")];
            let answer = server.request(&format!("PATCH {order}"), &patch, body);
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        let note = ["null", "{\"k\":[1,null]}", "\"\"", "0.10"][at % 4];
        let body =
            format!(r#"{{"parcel":{{"code":"p","weight":{},"note":{note}}}}}"#, at as f64 / 3.0);
        server.create(&format!("{order}/parcels"), body);
        let id = customer.rsplit('/').next().unwrap();
        let after = before.rsplit('/').next().filter(|id| !id.is_empty());
        let after = after.map(|id| format!(r#","after":"{id}""#)).unwrap_or_default();
        before = server.create("/reviews", format!(r#"{{"review":{{"customer":"{id}"{after}}}}}"#));
    }
}

/// The exported items without the members that an import sets anew. The id has the creation time of the item, unless
/// it is an integer.
fn comparable(text: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| {
        let mut item: Value = serde_json::from_str(line).unwrap();
        let members = item.as_object_mut().unwrap();
        for name in ["updated_at", "version"] {
            assert!(members.shift_remove(name).is_some());
        }
        if members["id"].is_number() {
            members.shift_remove("created_at");
        }
        item
    });
    lines.collect()
}

on_every_backend! {
    fn export_and_import_into_another_database_restore_every_value(shop: Shop) {
        fill(&shop.server);
        for format in ["csv", "ndjson"] {
            let copy = Shop::on(shop.server.backend());
            for resource in RESOURCES {
                let file = format!("{resource}.{format}");
                let exported = shop.run(&["export", resource, "-", "--format", format]).stdout;
                copy.write(&file, &exported);
                let printed = format!("nouns: created 30 {resource}s from {file}");
                copy.succeeds(&["import", resource, &file], &printed);
                let [before, after] = [&shop, &copy].map(|shop| comparable(&shop.run(&["export", resource]).stdout));
                assert_eq!(before.len(), 30);
                assert_eq!(before, after, "{resource} as {format}");
            }
            // Ids that the server allocates go on behind the imported ones.
            let orders = lines(&copy.run(&["export", "order"]).stdout);
            let (customer, order) = (orders[0]["customer_id"].as_str().unwrap(), orders[0]["id"].as_str().unwrap());
            let path = format!("/customers/{customer}/orders/{order}/parcels");
            let parcel = copy.server.create(&path, r#"{"parcel":{"code":"new"}}"#);
            assert_eq!(parcel, format!("{path}/31"));
            // Also behind one that is far away, and one in between does not set them back.
            for id in [50_000, 2_000] {
                copy.write("more.csv", &format!("code,order_id,id\nm{id},{order},{id}\n"));
                copy.succeeds(&["import", "parcel", "more.csv"], "nouns: created 1 parcel from more.csv");
            }
            let parcel = copy.server.create(&path, r#"{"parcel":{"code":"last"}}"#);
            assert_eq!(parcel, format!("{path}/50001"));
        }
    }
}

/// Fields that can be null, and would have another value in a new item.
const NULLABLE: &str = r#"
title = "Notes"
[resources.note.fields]
name = { type = "text", required = true }
text = { type = "text", nullable = true, default = "empty" }
day = { type = "date", nullable = true, default = { from = "now" } }
count = { type = "integer", nullable = true, required = true }
price = { type = "decimal", default = "1.50" }
"#;

on_every_backend! {
    /// Regression: an empty cell of CSV became the default.
    fn import_of_an_exported_null_restores_it(backend: Backend) {
        let shop = Shop { server: Setup::new(backend).model(NULLABLE).start() };
        let notes = || {
            let list = shop.server.get("/notes?fields=name,text,day,count,price").json();
            let notes = list["notes"].as_array().unwrap().iter();
            notes.map(|note| ["name", "text", "day", "count", "price"].map(|name| note[name].to_string()).join(" ")).collect::<Vec<_>>()
        };
        let path = shop.server.create("/notes", r#"{"note":{"name":"a","text":null,"day":null,"count":null}}"#);
        let expected = [r#""a" null null null "1.50""#];
        assert_eq!(notes(), expected);
        for file in ["notes.csv", "notes.ndjson"] {
            shop.succeeds(&["export", "note", file], &format!("nouns: wrote 1 note into {file}"));
            assert_eq!(shop.server.delete(&path).status, 204);
            shop.succeeds(&["import", "note", file], &format!("nouns: created 1 note from {file}"));
            assert_eq!(notes(), expected, "{file}");
            shop.succeeds(&["import", "note", file, "--upsert", "id"], &format!("nouns: {file}: 0 created, 0 updated, 1 unchanged"));
        }
        // Without a column, the default; so also with an empty cell of a field that cannot be null.
        assert_eq!(shop.server.delete(&path).status, 204);
        shop.write("new.csv", "name,count,price\nb,,\n");
        shop.succeeds(&["import", "note", "new.csv"], "nouns: created 1 note from new.csv");
        let today = shop.sql("SELECT day FROM notes");
        let found = notes();
        assert_eq!(found, [format!(r#""b" "empty" "{today}" null "1.50""#)]);
        // Over HTTP the same.
        let answer = shop.server.request("POST /notes", &[("Content-Type", "text/csv")], "name,text,count\nc,,\n");
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(notes()[1], format!(r#""c" null "{today}" null "1.50""#));
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
