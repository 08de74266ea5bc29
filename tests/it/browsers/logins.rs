//! A person logs in by the browser's own dialog, and out again, so that the browser asks anew.

use super::chromium::{Chromium, Tab};
use super::{REALMS, add_ann, store};
use crate::harness::{Backend, Person, Server, wait_until};

on_every_backend! {
    fn a_person_logs_in_and_out(backend: Backend) {
        let chromium = Chromium::start();
        for (scheme, realm) in REALMS {
            let server = store(backend, realm, "");
            let item = add_ann(&server);
            let port = server.address.port();
            // Over TLS and on loopback a browser clears what it has kept, elsewhere it does not. What is
            // for an item's path is not sent to the path of logout at first.
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
    // Cancelled: the answer is shown as it is.
    assert_eq!(tab.go(&page, &[]), 1, "{what}");
    assert!(tab.text().contains("credentials-needed"), "{what}");
    let wrong = Person::new("admin", "not the password");
    assert_eq!(tab.go(&page, &[&wrong, &admin]), 2, "{what}");
    assert!(tab.text().contains("Ann"), "{what}: {}", tab.text());
    // The browser goes on by itself.
    assert_eq!(tab.go(&format!("{page}?"), &[]), 0, "{what}");
    assert!(tab.text().contains("Ann"), "{what}");
    wait_until("the browser has chosen its scheme", || {
        let mut words = scheme.split(' ');
        let (name, algorithm) = (words.next().unwrap(), words.next().unwrap_or(""));
        let sent = tab.credentials();
        sent.iter().any(|sent| sent.starts_with(name) && sent.contains(algorithm)).then_some(())
    });

    assert_eq!(tab.go(&format!("{base}/-/logout"), &[]), 0, "{what}");
    tab.is_led_to(&format!("{base}/-/logout?done"));
    assert!(tab.text().starts_with("You are logged out."), "{what}: {}", tab.text());
    if clears {
        assert_eq!(tab.go_back(), 1, "{what}: it asks again");
        assert!(!tab.text().contains("Ann"), "{what}");
    }
    assert_eq!(tab.go(&page, &[]), 1, "{what}: it asks again");
    assert!(tab.text().contains("credentials-needed"), "{what}");
    // Whoever is out already is asked, and told the same.
    assert_eq!(tab.go(&format!("{base}/-/logout"), &[]), 1, "{what}");
    tab.is_led_to(&format!("{base}/-/logout?done"));
    assert!(tab.text().starts_with("You are logged out."), "{what}");
    // And in again.
    assert_eq!(tab.go(&page, &[&admin]), 1, "{what}");
    assert!(tab.text().contains("Ann"), "{what}");
}
