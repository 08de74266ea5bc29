//! The scripts of `tests/pages`, which control Chromium and Firefox by Puppeteer: a person with mouse and keyboard,
//! axe-core on every page, and payloads of cross-site scripting.

use std::path::Path;
use std::process::Command;

use super::pages::MODEL;
use crate::harness::{Backend, Setup};

/// Runs a script against a new server, as its first user.
fn run(script: &str, browser: &str, backend: Backend) {
    let server = Setup::new(backend).model(MODEL).with_authentication().start();
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pages");
    let (origin, admin) = (format!("http://{}", server.address), server.admin());
    let mut node = Command::new("node");
    node.arg(folder.join(script)).args([browser, &origin, &admin.name, &admin.password]);
    let output = node.env("CLIENT_PACKAGES", packages).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script} in {browser}: {}\n{errors}", output.status);
}

on_every_backend! {
    fn pages_work_with_mouse_and_keyboard_in_chromium(backend: Backend) {
        run("person.mjs", "chromium", backend);
    }

    fn pages_work_with_mouse_and_keyboard_in_firefox(backend: Backend) {
        run("person.mjs", "firefox", backend);
    }

    fn pages_have_no_findings_of_axe_and_load_nothing_from_other_hosts(backend: Backend) {
        run("axe.mjs", "chromium", backend);
    }

    fn pages_run_no_payload_of_cross_site_scripting(backend: Backend) {
        run("xss.mjs", "chromium", backend);
    }
}
