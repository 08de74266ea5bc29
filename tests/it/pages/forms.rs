//! The forms of pages, and the links to them.

use super::{MODEL, get, get_as};
use crate::harness::{Backend, Person, Setup};

on_every_backend! {
    fn page_of_an_item_leads_to_new_children_for_those_who_may_create_them(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let admin = server.admin();
        let body = r#"{"customer":{"name":"Ann","level":"low"}}"#;
        let made = server.request("POST /customers", &[("Authorization", &admin.basic())], body);
        let path = made.header("Location").unwrap();
        let link = format!("href=\"{path}/orders#new\"");
        // A button beside the heading, and the way out of an empty list.
        assert_eq!(get_as(&server, &admin, path).text().matches(&link).count(), 2);
        let kim = Person::new("kim", "a long password");
        server.add_user(&kim, &["clerk"]);
        let page = get_as(&server, &kim, path).text().to_owned();
        assert!(page.contains("No orders yet.") && !page.contains(&link), "{page}");
    }

    fn page_form_offers_the_items_of_a_reference(backend: Backend) {
        let model = "title = \"T\"\n[resources.team.fields]\nname = { type = \"text\", required = true, filter = true }\n\
            [resources.member]\nparent = \"team\"\n[resources.member.fields]\nname = { type = \"text\", required = true, filter = true }\n\
            [resources.room]\nparent = \"team\"\nflat = false\n[resources.room.fields]\nname = { type = \"text\", required = true, filter = true }\n\
            [resources.task.fields]\nteam = { type = \"ref\", to = \"team\" }\nmember = { type = \"ref\", to = \"member\" }\n\
            room = { type = \"ref\", to = \"room\" }\n";
        let server = Setup::new(backend).model(model).start();
        let answer = get(&server, "/tasks");
        let page = answer.text();
        // Those of a nested resource come from its flat collection.
        let offered = ["/teams", "/members", "/rooms"].map(|from| page.contains(&format!("data-from=\"{from}\"")));
        assert_eq!((offered, page.contains("name=\"/room\"")), ([true, true, false], true), "{page}");
    }
}
