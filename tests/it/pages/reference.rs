//! The API reference at `/-/docs`.

use super::markup::Markup;
use super::{MODEL, get, get_as, read_page};
use crate::harness::{Backend, Person, Setup};

/// The text of a page, with single spaces.
fn words(page: &Markup) -> String {
    page.text.split_whitespace().collect::<Vec<_>>().join(" ")
}

on_every_backend! {
    fn page_of_the_reference_shows_what_the_caller_may_use(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let admin = server.admin();
        let all = ["/-/docs", "/-/docs/customer", "/-/docs/order", "/-/docs/carrier", "/-/docs/-/user", "/-/docs/-/webhook", "/-/docs/-/delivery"];
        for path in all {
            let answer = get_as(&server, &admin, path);
            assert!(answer.body.len() < 60_000, "{path}: {}", answer.body.len());
            let page = read_page(&answer);
            assert!(page.text.contains("API reference") && page.text.contains("curl -u"), "{path}");
            // Names between backticks in the texts of the document are code. (The pattern of a header has one too.)
            for quoted in ["`id`", "`exact`", "`ETag`", "`expand`"] {
                assert!(!page.text.contains(quoted), "{path}: {}", page.text);
            }
            // The same as JSON is a part of the OpenAPI document.
            let login = admin.basic();
            let part = server.request(&format!("GET {path}"), &[("Authorization", &login)], "");
            assert_eq!(part.header("Content-Type"), Some("application/json"), "{path}");
            assert_eq!(part.json()["openapi"], "3.1.0", "{path}");
        }
        let page = read_page(&get_as(&server, &admin, "/-/docs/customer"));
        for expected in ["margin", "at most 200 characters required", "one of low, high", "boolean, default true", "address.street", "PATCH", "invalid-fields", "CUSTOMER_ID"] {
            assert!(words(&page).contains(expected), "{expected}: {}", page.text);
        }
        assert!(page.addresses.contains(&"/-/problems/invalid-fields".to_owned()));
        let order = read_page(&get_as(&server, &admin, "/-/docs/order"));
        for expected in ["items[].product string required", "After placed", "one of placed, paid"] {
            assert!(words(&order).contains(expected), "{expected}: {}", order.text);
        }

        let clerk = Person::new("clerk", "the password of the clerk");
        server.add_user(&clerk, &["clerk"]);
        let customer = read_page(&get_as(&server, &clerk, "/-/docs/customer"));
        assert!(words(&customer).contains("at most 254 characters read-only"), "{}", customer.text);
        let start = read_page(&get_as(&server, &clerk, "/-/docs"));
        assert!(start.addresses.contains(&"/-/docs/customer".to_owned()));
        assert!(!start.addresses.iter().any(|address| address.contains("carrier") || address.contains("user")));
        let page = read_page(&get_as(&server, &clerk, "/-/docs/customer"));
        assert!(!page.text.contains("margin") && !page.text.contains("Delete a customer"), "{}", page.text);
        assert_eq!(get_as(&server, &clerk, "/-/docs/carrier").status, 403);
        assert_eq!(get(&server, "/-/docs").status, 401);
        assert_eq!(get_as(&server, &clerk, "/-/docs/nothing").status, 404);
    }
}
