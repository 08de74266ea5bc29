//! Fields of type `refs`: lists of references, with links that lookups and deletions use.

use serde_json::{Value, json};

use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::harness::{Backend, Person, Server, Setup, run_nouns, run_sql};

const MODEL: &str = r#"
title = "Blog"

[resources.tag]
id = "integer"
[resources.tag.fields]
name = { type = "text", required = true }
owner = { type = "text" }

[resources.author]
[resources.author.fields]
name = { type = "text", required = true }

[resources.post]
id = "integer"
[resources.post.fields]
title = { type = "text", required = true, unique = true }
tags = { type = "refs", to = "tag", on_delete = "remove", max_items = 4 }
authors = { type = "refs", to = "author" }
related = { type = "refs", to = "post", on_delete = "remove" }
tag_count = { type = "integer", computed = "count(tags)" }

[roles.writer]
post = "*"
author = "*"
tag = { verbs = ["get"], where = "owner = $user" }
"#;

/// The rows of the table of links, as `item target`.
fn links(backend: Backend, server: &Server, field: &str) -> Vec<String> {
    let sql = format!(
        r#"SELECT CAST("item" AS text) || ' ' || CAST("target" AS text) FROM "posts.{field}" ORDER BY "item", "target""#
    );
    run_sql(backend, server.folder(), &sql).lines().map(str::to_owned).collect()
}

fn start(backend: Backend) -> Server {
    let server = Setup::new(backend).model(MODEL).start();
    for name in ["red", "green", "blue"] {
        server.create("/tags", json!({"tag": {"name": name}}).to_string());
    }
    server
}

fn post(title: &str, tags: &[u64]) -> String {
    json!({"post": {"title": title, "tags": tags}}).to_string()
}

on_every_backend! {
    fn refs_are_written_with_their_links(backend: Backend) {
        let server = start(backend);
        let path = server.create("/posts", post("a", &[3, 1]));
        assert_eq!(server.get(&path).json()["post"]["tags"], json!([3, 1]), "the order is kept");
        assert_eq!(server.get(&path).json()["post"]["tag_count"], 2);
        assert_eq!(links(backend, &server, "tags"), ["1 1", "1 3"]);
        let list = json!({"posts": [{"title": "b", "tags": [1]}, {"title": "c"}, {"title": "d", "tags": []}]});
        assert_eq!(server.post("/posts", list.to_string()).status, 201);
        assert_eq!(links(backend, &server, "tags"), ["1 1", "1 3", "2 1"]);
        // A list in which an item is refused leaves no links.
        let list = json!({"posts": [{"title": "e", "tags": [1, 2]}, {"title": "b", "tags": [2]}]});
        let answer = server.post("/posts", list.to_string());
        assert_eq!((answer.problem().as_str(), answer.faults()), ("taken", vec!["/posts/1/title | taken | another post has this value".to_owned()]));
        assert_eq!(links(backend, &server, "tags").len(), 3);
        let patch = |body: Value| server.request(&format!("PATCH {path}"), &[("Content-Type", "application/merge-patch+json")], body.to_string());
        assert_eq!(patch(json!({"post": {"tags": [1, 2]}})).json()["post"]["tags"], json!([1, 2]));
        assert_eq!(links(backend, &server, "tags"), ["1 1", "1 2", "2 1"]);
        assert_eq!(patch(json!({"post": {"title": "A"}})).status, 200);
        assert_eq!(links(backend, &server, "tags"), ["1 1", "1 2", "2 1"]);
        let json_patch = r#"[{"op": "add", "path": "/post/tags/-", "value": 3}]"#;
        let answer = server.request(&format!("PATCH {path}"), &[("Content-Type", "application/json-patch+json")], json_patch);
        assert_eq!(answer.json()["post"]["tags"], json!([1, 2, 3]));
        assert_eq!(server.put(&path, json!({"post": {"title": "A"}}).to_string()).status, 200);
        assert_eq!(links(backend, &server, "tags"), ["2 1"]);
        assert_eq!(server.delete("/posts/2").status, 204);
        assert_eq!(links(backend, &server, "tags"), Vec::<String>::new());
    }

    fn refs_that_are_not_valid_are_refused_with_their_places(backend: Backend) {
        let server = start(backend);
        let refused = |tags: Value| {
            server.post("/posts", json!({"post": {"title": "x", "tags": tags}}).to_string()).faults()
        };
        assert_eq!(refused(json!([1, 9, 2, 8])), ["/post/tags/1 | reference | no such item", "/post/tags/3 | reference | no such item"]);
        assert_eq!(refused(json!([1, 2, 1])), ["/post/tags/2 | items | expected each id once, got this one twice"]);
        assert_eq!(refused(json!([1, "x", null])), [
            "/post/tags/1 | type | expected an id as a number, got a string",
            "/post/tags/2 | null | expected the id of another item, got null",
        ]);
        assert_eq!(refused(json!(1)), ["/post/tags | type | expected a list of ids, got a number"]);
        assert_eq!(refused(json!([1, 2, 3, 4, 5])), [
            "/post/tags | items | expected at most 4 items, got 5",
        ]);
        assert_eq!(server.get("/posts").json()["posts"], json!([]));
    }

    fn delete_removes_references_from_lists_or_is_refused(backend: Backend) {
        let server = start(backend);
        let author = server.create("/authors", r#"{"author":{"name":"Ann"}}"#);
        let id = author.rsplit('/').next().unwrap();
        server.create("/posts", json!({"post": {"title": "a", "tags": [1, 2, 3], "authors": [id]}}).to_string());
        server.create("/posts", json!({"post": {"title": "b", "tags": [2], "related": [1]}}).to_string());
        assert_eq!(server.delete("/tags/2").status, 204);
        let post = server.get("/posts/1").json()["post"].clone();
        assert_eq!((&post["tags"], &post["tag_count"], &post["version"]), (&json!([1, 3]), &json!(2), &json!(2)));
        assert_eq!(server.get("/posts/2").json()["post"]["tags"], json!([]));
        assert_eq!(links(backend, &server, "tags"), ["1 1", "1 3"]);
        let answer = server.delete(&author);
        assert_eq!((answer.status, answer.problem().as_str()), (409, "referenced"));
        assert_eq!(server.delete("/posts/1").status, 204);
        assert_eq!(server.get("/posts/2").json()["post"]["related"], json!([]));
        assert_eq!(server.delete(&author).status, 204);
        let changes = server.get("/-/changes?subject=/posts/2").json();
        let changed: Vec<&Value> = changes["changes"].as_array().unwrap().iter().map(|one| &one["changed"]).collect();
        assert_eq!(changed[1..], [&json!(["tags", "tag_count"]), &json!(["related"])]);
    }

    /// A reference to an item that the caller cannot see can stay, and cannot be added.
    fn refs_to_invisible_items_stay_and_cannot_be_added(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let [root, ann] = ["root", "ann"].map(|name| Person::new(name, "as long as it takes"));
        server.add_user(&root, &["admin"]);
        server.add_user(&ann, &["writer"]);
        let send = |who: &Person, line: &str, body: Value| {
            let login = who.basic();
            server.request(line, &[("Authorization", &login), ("Content-Type", "application/json")], body.to_string())
        };
        for owner in ["ann", "bob", "eve"] {
            assert_eq!(send(&root, "POST /tags", json!({"tag": {"name": "x", "owner": owner}})).status, 201);
        }
        assert_eq!(send(&root, "POST /posts", json!({"post": {"title": "a", "tags": [2]}})).status, 201);
        let put = |tags: Value| send(&ann, "PUT /posts/1", json!({"post": {"title": "a", "tags": tags}}));
        assert_eq!(put(json!([1, 2])).status, 200);
        assert_eq!(put(json!([3, 2, 1])).faults(), ["/post/tags/0 | reference | no such item"]);
        assert_eq!(put(json!([1])).status, 200);
        assert_eq!(put(json!([1, 2])).faults(), ["/post/tags/1 | reference | no such item"]);
    }

    fn refs_of_a_new_field_and_of_a_dropped_table_of_links(backend: Backend) {
        let without = MODEL.replace("tags = { type = \"refs\", to = \"tag\", on_delete = \"remove\", max_items = 4 }\n", "")
            .replace("tag_count = { type = \"integer\", computed = \"count(tags)\" }\n", "");
        let server = Setup::new(backend).model(&without).start();
        server.create("/tags", r#"{"tag":{"name":"red"}}"#);
        server.create("/posts", r#"{"post":{"title":"a"}}"#);
        let with = MODEL.replace("tag_count = { type = \"integer\", computed = \"count(tags)\" }\n", "");
        let server = Setup::new(backend).model(&with).start_in(server.stop());
        server.create("/posts", post("b", &[1]));
        assert_eq!(links(backend, &server, "tags"), ["2 1"]);
        run_sql(backend, server.folder(), r#"DROP TABLE "posts.tags""#);
        let server = server.restart();
        assert_eq!(links(backend, &server, "tags"), ["2 1"]);
        // An index that is dropped fails this.
        let server = server.restart();
        run_sql(backend, server.folder(), r#"DROP INDEX "posts.tags.item""#);
    }

    fn refs_follow_renames_of_resources_and_fields(backend: Backend) {
        let server = start(backend);
        server.create("/posts", post("a", &[1, 2]));
        let database = server.database();
        let folder = server.stop();
        let renamed = MODEL
            .replace("[resources.tag]\n", "[resources.label]\nrenamed_from = \"tag\"\n")
            .replace("[resources.tag.fields]", "[resources.label.fields]")
            .replace("tags = { type = \"refs\", to = \"tag\"", "labels = { renamed_from = \"tags\", type = \"refs\", to = \"label\"")
            .replace("count(tags)", "count(labels)")
            .replace("\ntag = {", "\nlabel = {");
        std::fs::write(folder.path().join("model.toml"), &renamed).unwrap();
        let ended = run_nouns(folder.path(), &["migrate", "model.toml", "--database", &database]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let server = Setup::new(backend).model(&renamed).start_in(folder);
        assert_eq!(server.get("/posts/1").json()["post"]["labels"], json!([1, 2]));
        assert_eq!(links(backend, &server, "labels"), ["1 1", "1 2"]);
        assert_eq!(server.delete("/labels/1").status, 204);
        assert_eq!(server.get("/posts/1").json()["post"]["labels"], json!([2]));
    }

    /// A list of numbers becomes refs, if the items exist.
    fn refs_from_a_list_of_ids_are_checked_by_a_migration(backend: Backend) {
        let list = MODEL.replace("tags = { type = \"refs\", to = \"tag\", on_delete = \"remove\"", "tags = { type = \"list\", of = { type = \"integer\" }");
        let server = Setup::new(backend).model(&list).start();
        server.create("/tags", r#"{"tag":{"name":"red"}}"#);
        server.create("/posts", post("a", &[1]));
        server.create("/posts", post("b", &[1, 7]));
        let database = server.database();
        let folder = server.stop();
        std::fs::write(folder.path().join("model.toml"), MODEL).unwrap();
        let arguments = ["migrate", "model.toml", "--database", &database];
        let ended = run_nouns(folder.path(), &arguments);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("post.tags: 1 item is in the way: /posts/2 (an item referred to does not exist"), "{}", ended.stderr);
        run_sql(backend, folder.path(), r#"UPDATE "posts" SET "tags" = '[]' WHERE "id" = 2"#);
        let ended = run_nouns(folder.path(), &arguments);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let server = Setup::new(backend).model(MODEL).start_in(folder);
        assert_eq!(links(backend, &server, "tags"), ["1 1"]);
    }

    fn refs_are_filters_of_lists(backend: Backend) {
        let server = start(backend);
        let author = server.create("/authors", r#"{"author":{"name":"Ann"}}"#);
        let author = author.rsplit('/').next().unwrap();
        server.create("/posts", post("a", &[1, 2]));
        server.create("/posts", post("b", &[2]));
        server.create("/posts", json!({"post": {"title": "c", "authors": [author]}}).to_string());
        let titles = |query: &str| {
            let answer = server.get(&format!("/posts?{query}"));
            assert_eq!(answer.status, 200, "{answer:?}");
            let posts = answer.json()["posts"].as_array().unwrap().clone();
            posts.iter().map(|post| post["title"].as_str().unwrap().to_owned()).collect::<String>()
        };
        assert_eq!(titles("tags:has=2"), "ab");
        assert_eq!(titles("tags:has=2&tags:has=1"), "a");
        assert_eq!(titles("any=(tags:has=1;authors:exists=true)"), "ac");
        assert_eq!(titles(&format!("authors:has={author}")), "c");
        assert_eq!(titles(&format!("not=(authors:has={author})&sort=-id")), "ba");
        assert_eq!(titles("tags:has=3"), "");
        assert_eq!(server.get("/posts?tags=1").status, 400);
        assert_eq!(server.get("/posts?tags:has=x").status, 400);
        assert_eq!(server.get("/posts?sort=tags").status, 400);
    }

    fn refs_are_expanded_in_place(backend: Backend) {
        let server = start(backend);
        server.create("/posts", post("a", &[3, 1]));
        server.create("/posts", post("b", &[]));
        let answer = server.get("/posts?expand=tags&fields=title");
        assert_eq!(answer.status, 200, "{answer:?}");
        let posts = answer.json()["posts"].clone();
        let names = |post: &Value| {
            let tags = post["tags"].as_array().unwrap().iter();
            tags.map(|tag| tag["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!((names(&posts[0]), names(&posts[1])), (vec!["blue".to_owned(), "red".to_owned()], vec![]));
        let one = server.get("/posts/1?expand=tags").json();
        assert_eq!(one["post"]["tags"][1]["id"], 1);
    }

    fn refs_of_an_import_have_links(backend: Backend) {
        let server = start(backend);
        let file = "id,title,tags\n5,a,\"[1,2]\"\n6,b,\"[9]\"\n7,c,[]\n";
        std::fs::write(server.folder().join("posts.csv"), file).unwrap();
        let database = server.database();
        let arguments = ["import", "post", "posts.csv", "--model", "model.toml", "--database", &database];
        let ended = run_nouns(server.folder(), &arguments);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("line 3: tags/0: no such item"), "{}", ended.stderr);
        std::fs::write(server.folder().join("posts.csv"), file.replace("[9]", "[3]")).unwrap();
        let ended = run_nouns(server.folder(), &arguments);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(links(backend, &server, "tags"), ["5 1", "5 2", "6 3"]);
    }

    /// After random writes the links are those of the lists, and the lists those of a model in memory.
    fn refs_agree_with_their_links_after_random_writes(backend: Backend) {
        let server = start(backend);
        let mut random = SeededRandom::new(print_seed("references"));
        let mut tags: Vec<u64> = vec![1, 2, 3];
        let mut last_tag = 3;
        let mut posts: Vec<(String, Vec<u64>)> = Vec::new();
        for step in 0..120 {
            let mut some: Vec<u64> = tags.iter().copied().filter(|_| random.below(3) == 0).collect();
            some.truncate(4);
            match random.below(6) {
                0 | 1 => {
                    let path = server.create("/posts", post(&format!("t{step}"), &some));
                    posts.push((path, some));
                }
                2 | 3 if !posts.is_empty() => {
                    let at = random.below(posts.len());
                    let answer = server.put(&posts[at].0, post(&format!("t{step}"), &some));
                    assert_eq!(answer.status, 200, "{answer:?}");
                    posts[at].1 = some;
                }
                4 if !posts.is_empty() && random.below(3) == 0 => {
                    let (path, _) = posts.remove(random.below(posts.len()));
                    assert_eq!(server.delete(&path).status, 204);
                }
                5 if !tags.is_empty() && random.below(2) == 0 => {
                    let tag = tags.remove(random.below(tags.len()));
                    assert_eq!(server.delete(&format!("/tags/{tag}")).status, 204);
                    for (_, list) in &mut posts {
                        list.retain(|one| *one != tag);
                    }
                }
                _ => {
                    last_tag += 1;
                    server.create("/tags", r#"{"tag":{"name":"x"}}"#);
                    tags.push(last_tag);
                }
            }
        }
        let mut expected: Vec<(u64, u64)> = Vec::new();
        for (path, list) in &posts {
            assert_eq!(server.get(path).json()["post"]["tags"], json!(list), "{path}");
            let id = path.rsplit('/').next().unwrap().parse().unwrap();
            expected.extend(list.iter().map(|tag| (id, *tag)));
        }
        expected.sort_unstable();
        let expected: Vec<String> = expected.iter().map(|(item, tag)| format!("{item} {tag}")).collect();
        let sorted = links(backend, &server, "tags");
        assert_eq!(sorted, expected);
    }
}
