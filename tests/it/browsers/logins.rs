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
