//! DNS rebinding: a foreign name that resolves to this machine, so that to the browser its pages and
//! the server are one origin.

use super::ANN;
use super::chromium::Chromium;
use crate::harness::Server;

on_every_backend! {
    fn dns_rebinding_to_an_open_server_is_refused(server: Server) {
        server.create("/customers", ANN);
        let before = server.get("/customers").body;
        let chromium = Chromium::start();
        let (tab, port) = (chromium.tab(), server.address.port());
        // The page has the same origin as the server, and could do anything.
        let steal = "fetch('/customers').then(async answer => `${answer.status} ${await answer.text()}`)";
        let add = "fetch('/customers', {method: 'POST', headers: {'Content-Type': 'application/json'}, \
            body: JSON.stringify({customer: {name: 'Eve', email: 'eve@evil.example'}})}).then(answer => answer.status)";
        tab.navigate(&format!("http://evil.example:{port}/customers"), &[]);
        assert!(tab.text().contains("wrong-host"), "{}", tab.text());
        let stolen = tab.run_script(steal);
        assert!(stolen.as_str().unwrap().starts_with("421 "), "{stolen}");
        assert_eq!(tab.run_script(add), 421);
        assert_eq!(server.get("/customers").body, before);
        // The same request at the server's own name succeeds, so that the name makes the difference.
        tab.navigate(&format!("http://localhost:{port}/customers"), &[]);
        assert!(tab.run_script(steal).as_str().unwrap().contains("Ann"));
        assert_eq!(tab.run_script(add), 201);
        assert_ne!(server.get("/customers").body, before);
    }
}
