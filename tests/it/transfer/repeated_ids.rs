//! Items that are deleted and imported again with their ids: no client takes the new item for the former one.

use super::*;
use crate::harness::Answer;

const MODEL: &str = r#"
title = "Notes"
[resources.note.fields]
text = { type = "text", required = true }
[resources.page]
id = "integer"
changes = "ids"
[resources.page.fields]
text = { type = "text", required = true }
"#;

on_every_backend! {
    /// Regression: the imported item had version 1 again, and with it the entity tag of the deleted one.
    fn import_of_a_deleted_item_again_continues_its_versions(backend: Backend) {
        let shop = Shop { server: Setup::new(backend).model(MODEL).start() };
        for (name, is_logged) in [("note", true), ("page", false)] {
            let body = |text: &str| format!(r#"{{"{name}":{{"text":"{text}"}}}}"#);
            let path = shop.server.create(&format!("/{name}s"), body("one"));
            let mut tags = vec![shop.server.get(&path).header("ETag").unwrap().to_owned()];
            assert_eq!(shop.server.put(&path, body("two")).status, 200);
            tags.push(shop.server.get(&path).header("ETag").unwrap().to_owned());
            for life in 0..2 {
                let file = format!("{name}{life}.ndjson");
                shop.succeeds(&["export", name, &file], &format!("nouns: wrote 1 {name} into {file}"));
                assert_eq!(shop.server.delete(&path).status, 204);
                shop.write(&file, &shop.read(&file).replace("two", "three"));
                shop.succeeds(&["import", name, &file], &format!("nouns: created 1 {name} from {file}"));
                let now = shop.server.get(&path);
                let version = now.json()[name]["version"].as_i64().unwrap();
                for tag in &tags {
                    let version = tag.trim_start_matches('"').split('-').next().unwrap();
                    for tag in [tag, &format!("\"{version}\"")] {
                        assert_eq!(shop.server.request(&format!("GET {path}"), &[("If-None-Match", tag)], "").status, 200, "{tag}");
                        assert_eq!(shop.server.request(&format!("PUT {path}"), &[("If-Match", tag)], body("lost")).status, 412, "{tag}");
                    }
                }
                tags.push(now.header("ETag").unwrap().to_owned());
                if is_logged {
                    assert_eq!(version, 3 + life);
                    let old = |version: i64| shop.server.get(&format!("{path}?version={version}")).json()[name]["text"].clone();
                    assert_eq!([old(1), old(2), old(version)], ["one", "two", "three"]);
                }
            }
            let log = |query: &str| {
                let list = format!("/-/changes?subject={path}{query}");
                let mut page = list.clone();
                let mut kinds = Vec::new();
                loop {
                    let answer = shop.server.get(&page).json();
                    let changes = answer["changes"].as_array().unwrap().clone();
                    kinds.extend(changes.iter().map(|change| change["kind"].as_str().unwrap().to_owned()));
                    match answer["page"]["next"].as_str() {
                        Some(cursor) => page = format!("{list}&cursor={cursor}"),
                        None => return kinds.join(" "),
                    }
                }
            };
            for query in ["", "&limit=1"] {
                assert_eq!(log(query), "created updated deleted created deleted created");
                assert_eq!(log(&format!("&sort=-sequence{query}")), "created deleted created deleted updated created");
            }
            // It goes on from there.
            let version = |answer: Answer| answer.json()[name]["version"].as_i64().unwrap();
            let before = version(shop.server.get(&path));
            assert_eq!(version(shop.server.put(&path, body("four"))), before + 1);
            assert_eq!(log(""), "created updated deleted created deleted created updated");
        }
    }
}
