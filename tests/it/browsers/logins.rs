//! Login by the browser's own dialog, and logout, after which the browser asks again.

use super::chromium::{Chromium, Tab};
use super::{REALMS, create_ann, start_store};
use crate::harness::{Backend, Person, Server, wait_until};

on_every_backend! {
    fn browser_dialog_logs_in_and_logout_asks_again(backend: Backend) {
        let chromium = Chromium::start();
        for (scheme, realm) in REALMS {
            let server = start_store(backend, realm, "");
            let item = create_ann(&server);
            let port = server.address.port();
            // Over TLS and on loopback a browser honours `Clear-Site-Data`, elsewhere it does not. It
            // does not send credentials for an item's path to the logout path at first.
            for (host, path, clears) in [
                ("127.0.0.1", "/customers", true),
                ("127.0.0.1", &*item, true),
                ("shop.test", &*item, false),
            ] {
                let base = format!("http://{host}:{port}");
                log_in_and_out(&chromium.tab(), &server, (&base, path), (scheme, clears));
            }
        }
    }

    /// The browser sends the credentials to all pages then, also to those that would not ask for them.
    fn browser_visitor_logs_in_where_anyone_may_read(backend: Backend) {
        let chromium = Chromium::start();
        for (scheme, realm) in REALMS {
            let server = start_store(backend, realm, "[roles.anyone]\ncustomer = [\"get\"]");
            create_ann(&server);
            let (tab, admin) = (chromium.tab(), server.admin());
            let list = format!("http://{}/customers", server.address);
            // The menu is not open, so that its text is not visible.
            let who = || tab.run_script("document.querySelector('.who').textContent").to_string();
            assert_eq!(tab.navigate(&list, &[]), 0, "{scheme}");
            assert!(who().contains("not logged in"), "{scheme}: {}", who());
            let link = format!("http://{}/?login", server.address);
            assert_eq!(tab.navigate(&link, &[&admin]), 1, "{scheme}");
            assert!(tab.text().contains("You are admin"), "{scheme}: {}", tab.text());
            assert_eq!(tab.navigate(&list, &[]), 0, "{scheme}");
            assert!(tab.text().contains("Ann") && who().contains("Log out"), "{scheme}: {}", who());
        }
    }
}

fn log_in_and_out(
    tab: &Tab<'_>,
    server: &Server,
    (base, path): (&str, &str),
    (scheme, clears): (&str, bool),
) {
    let (page, what) = (format!("{base}{path}"), format!("{scheme} at {base}{path}"));
    let admin = server.admin();
    // Cancelled: the browser shows the response's body.
    assert_eq!(tab.navigate(&page, &[]), 1, "{what}");
    assert!(tab.text().contains("credentials-needed"), "{what}");
    let wrong = Person::new("admin", "not the password");
    assert_eq!(tab.navigate(&page, &[&wrong, &admin]), 2, "{what}");
    assert!(tab.text().contains("Ann"), "{what}: {}", tab.text());
    // The browser follows by itself.
    assert_eq!(tab.navigate(&format!("{page}?"), &[]), 0, "{what}");
    assert!(tab.text().contains("Ann"), "{what}");
    wait_until("the browser has chosen its scheme", || {
        let mut words = scheme.split(' ');
        let (name, algorithm) = (words.next().unwrap(), words.next().unwrap_or(""));
        let sent = tab.credentials();
        sent.iter().any(|sent| sent.starts_with(name) && sent.contains(algorithm)).then_some(())
    });

    assert_eq!(tab.navigate(&format!("{base}/-/logout"), &[]), 0, "{what}");
    tab.wait_for_redirect(&format!("{base}/-/logout?done"));
    assert!(tab.text().contains("You are logged out"), "{what}: {}", tab.text());
    if clears {
        assert_eq!(tab.go_back(), 1, "{what}: it asks again");
        assert!(!tab.text().contains("Ann"), "{what}");
    }
    assert_eq!(tab.navigate(&page, &[]), 1, "{what}: it asks again");
    assert!(tab.text().contains("credentials-needed"), "{what}");
    // A client that is logged out already is challenged, and gets the same response.
    assert_eq!(tab.navigate(&format!("{base}/-/logout"), &[]), 1, "{what}");
    tab.wait_for_redirect(&format!("{base}/-/logout?done"));
    assert!(tab.text().contains("You are logged out"), "{what}");
    // Logs in again.
    assert_eq!(tab.navigate(&page, &[&admin]), 1, "{what}");
    assert!(tab.text().contains("Ann"), "{what}");
}
