//! The forms of pages.

use super::get;
use crate::harness::{Backend, Setup};

on_every_backend! {
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
