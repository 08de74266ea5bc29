//! The link "Log in", for visitors who may read without credentials.

use super::{get, get_as};
use crate::harness::{Backend, Setup};

const MODEL: &str = "title = \"T\"\n[resources.note.fields]\ntext = { type = \"text\" }\n[roles.anyone]\nnote = [\"get\"]\n";

on_every_backend! {
    fn page_asks_an_anonymous_visitor_for_a_login(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        for path in ["/", "/notes"] {
            let page = get(&server, path);
            assert_eq!(page.status, 200, "{page:?}");
            assert!(page.text().contains("<a href=\"/?login\">Log in</a>"), "{}", page.text());
        }
        let asked = get(&server, "/?login");
        assert_eq!((asked.status, asked.all("WWW-Authenticate").is_empty()), (401, false), "{asked:?}");
        let page = get_as(&server, &server.admin(), "/?login");
        assert_eq!(page.status, 200, "{page:?}");
        assert!(page.text().contains("You are admin") && !page.text().contains("?login"), "{}", page.text());
        assert_eq!(get(&server, "/?login=now").status, 400);
        assert_eq!(get(&server, "/notes?login").status, 400);
    }

    fn page_of_an_open_server_asks_for_no_login(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let page = get(&server, "/?login");
        assert_eq!(page.status, 200, "{page:?}");
        assert!(!page.text().contains("Log in"), "{}", page.text());
    }
}
