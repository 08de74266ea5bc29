//! The scripts of `tests/pages`, which control Chromium and Firefox by Puppeteer: a person with mouse and keyboard,
//! axe-core on every page, and payloads of cross-site scripting.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::pages::MODEL;
use crate::harness::{Backend, Process, Setup};

/// A script of a minute, on a machine with much else to do.
const SCRIPT_LIMIT: Duration = Duration::from_secs(1800);

/// Runs a script against a new server, as its first user.
fn run(script: &str, browser: &str, backend: Backend) {
    let server = Setup::new(backend).model(MODEL).with_authentication().start();
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pages");
    let (origin, admin) = (format!("http://{}", server.address), server.admin());
    let mut node = Command::new("node");
    node.arg(folder.join(script)).args([browser, &origin, &admin.name, &admin.password]);
    let ended = Process::spawn(node.env("CLIENT_PACKAGES", packages)).end_within(SCRIPT_LIMIT);
    assert_eq!(ended.code, Some(0), "{script} in {browser}:\n{}", ended.stderr);
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
