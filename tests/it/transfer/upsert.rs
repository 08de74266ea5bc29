//! `nouns import --upsert`: rows that change the item with the same value, or create it.

use super::*;

on_every_backend! {
    fn upsert_by_a_unique_field_merges_the_columns_of_the_file(shop: Shop) {
        let ann = shop.customer("ann");
        let bea = shop.customer("bea");
        shop.write("new.csv", "email,vip,name\nann@example.com,true,Anna\nbea@example.com,,bea\ncle@example.com,true,Cle\n");
        shop.succeeds(&["import", "customer", "new.csv", "--upsert", "email"], "nouns: new.csv: 1 created, 1 updated, 1 unchanged");
        let item = |path: &str| {
            let item = shop.server.get(path).json()["customer"].clone();
            ["name", "email", "vip", "version"].map(|name| item[name].to_string()).join(" ")
        };
        assert_eq!(item(&ann), r#""Anna" "ann@example.com" true 2"#);
        assert_eq!(item(&bea), r#""bea" "bea@example.com" false 1"#);
        // Required columns are needed for new items only; the same value twice changes the item twice.
        shop.write("part.ndjson", concat!(
            "{\"email\":\"ann@example.com\",\"vip\":false}\n",
            "{\"email\":\"ann@example.com\",\"name\":\"Anne\"}\n",
        ));
        shop.succeeds(&["import", "customer", "part.ndjson", "--upsert", "email"], "nouns: part.ndjson: 0 created, 2 updated, 0 unchanged");
        assert_eq!(item(&ann), r#""Anne" "ann@example.com" false 4"#);
        shop.write("part.ndjson", "{\"email\":\"ann@example.com\",\"vip\":true}\n{\"email\":\"dan@example.com\",\"vip\":true}\n{\"name\":\"Eva\"}\n");
        let ended = shop.run(&["import", "customer", "part.ndjson", "--upsert", "email"]);
        assert_eq!(ended.stderr, "nouns: part.ndjson: 1 fault, nothing was imported\n  line 3: email: expected a value, by which --upsert finds the item, got nothing\n");
        shop.write("part.ndjson", "{\"email\":\"ann@example.com\",\"vip\":true}\n{\"email\":\"dan@example.com\",\"vip\":true}\n");
        let ended = shop.run(&["import", "customer", "part.ndjson", "--upsert", "email"]);
        assert!(ended.stderr.starts_with("nouns: part.ndjson: 1 fault, nothing was imported\n  line 2: name: expected "), "{ended:?}");
        assert_eq!(item(&ann), r#""Anne" "ann@example.com" false 4"#);
        assert_eq!(shop.sql("SELECT count(*) FROM nouns_changes WHERE kind = 'updated'"), "3");
    }

    fn upsert_by_id_changes_an_edited_export(shop: Shop) {
        let ann = shop.customer("ann");
        let order = shop.server.create(&format!("{ann}/orders"), r#"{"order":{"price":1,"tags":["x"]}}"#);
        shop.succeeds(&["export", "order", "orders.csv"], "nouns: wrote 1 order into orders.csv");
        let text = shop.read("orders.csv");
        shop.succeeds(&["import", "order", "orders.csv", "--upsert", "id"], "nouns: orders.csv: 0 created, 0 updated, 1 unchanged");
        shop.write("orders.csv", &text.replace("placed,1.00", "paid,2.50"));
        shop.succeeds(&["import", "order", "orders.csv", "--upsert", "id"], "nouns: orders.csv: 0 created, 1 updated, 0 unchanged");
        let item = shop.server.get(&order).json()["order"].clone();
        let values = ["status", "price", "total", "tags", "version"].map(|name| item[name].to_string()).join(" ");
        assert_eq!(values, r#""paid" "2.50" "2.50" ["x"] 2"#);
        // A state that cannot follow, and another parent.
        shop.write("orders.csv", &text);
        shop.refuses(
            &["import", "order", "orders.csv", "--upsert", "id"],
            "nouns: orders.csv: 1 fault, nothing was imported\n  line 2: status: expected shipped after paid, got placed",
        );
        let bea = shop.customer("bea");
        let [ann, bea] = [&ann, &bea].map(|path| path.rsplit('/').next().unwrap());
        shop.write("orders.csv", &text.replace(ann, bea).replace("placed", "paid"));
        shop.refuses(
            &["import", "order", "orders.csv", "--upsert", "id"],
            &format!("nouns: orders.csv: 1 fault, nothing was imported\n  line 2: customer_id: the stored order has {ann}, and keeps it"),
        );
    }

    fn upsert_by_a_field_that_is_unique_under_its_parent_needs_the_parent(shop: Shop) {
        let ann = shop.customer("ann");
        let orders = [1, 2].map(|price| shop.server.create(&format!("{ann}/orders"), format!(r#"{{"order":{{"price":{price}}}}}"#)));
        let ids = orders.each_ref().map(|path| path.rsplit('/').next().unwrap());
        let rows = |weight: u32| format!("code,order_id,weight\na,{},{weight}\na,{},{weight}\n", ids[0], ids[1]);
        shop.write("parcels.csv", &rows(1));
        shop.succeeds(&["import", "parcel", "parcels.csv", "--upsert", "code"], "nouns: parcels.csv: 2 created, 0 updated, 0 unchanged");
        shop.write("parcels.csv", &rows(2));
        shop.succeeds(&["import", "parcel", "parcels.csv", "--upsert", "code"], "nouns: parcels.csv: 0 created, 2 updated, 0 unchanged");
        assert_eq!(shop.sql("SELECT count(*) FROM parcels WHERE weight = 2"), "2");
        let subject = shop.sql("SELECT subject FROM nouns_changes ORDER BY sequence DESC LIMIT 1");
        assert!(subject.starts_with(&format!("{}/parcels/", orders[1])), "{subject}");
        shop.write("parcels.csv", "code,weight\na,3\n");
        let ended = shop.run(&["import", "parcel", "parcels.csv", "--upsert", "code"]);
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains("line 2: order_id: "), "{}", ended.stderr);
    }

    fn upsert_by_a_field_that_is_not_unique_is_refused(shop: Shop) {
        shop.write("new.csv", &customers(1));
        for field in ["name", "nick"] {
            shop.refuses(
                &["import", "customer", "new.csv", "--upsert", field],
                &format!("nouns: --upsert: expected id or a field of customer that is unique on its own and not computed, got {field}"),
            );
        }
        shop.refuses(
            &["import", "customer", "new.csv", "--upsert", "id"],
            "nouns: new.csv: 1 fault, nothing was imported\n  line 1: id: expected a column with this name, by which --upsert finds items\n  the lines after it were not examined",
        );
    }

    /// Regression: it was accepted, although an import ignores computed fields.
    fn upsert_by_a_computed_field_is_refused(backend: Backend) {
        let model = "title = \"Notes\"\n[resources.note.fields]\nname = { type = \"text\", required = true }\n\
             key = { type = \"text\", computed = \"lower(name)\", unique = true }\n";
        let shop = Shop { server: Setup::new(backend).model(model).start() };
        shop.write("new.csv", "name,key\nAnn,ann\n");
        shop.refuses(
            &["import", "note", "new.csv", "--upsert", "key"],
            "nouns: --upsert: expected id or a field of note that is unique on its own and not computed, got key",
        );
    }
}
