//! Headless Chromium, controlled by the DevTools protocol.
//!
//! It knows nothing of our server. The tests answer the login dialogs: the credentials go into the
//! browser's own credential cache, as a person's would.
//! The protocol uses the browser's descriptors 3 and 4, which a shell connects to standard input and
//! output; when this end closes, the browser exits.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Folder, Person, TIMEOUT, wait_until};

/// Every name in these domains resolves to this machine, and each is another site.
const NAMES: &str = "MAP *.example 127.0.0.1, MAP *.test 127.0.0.1";

const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
];

/// A browser with a profile of its own.
pub struct Chromium {
    child: Child,
    connection: Arc<DevToolsConnection>,
    _profile: Folder,
}

/// The connection to the browser, and its responses.
struct DevToolsConnection {
    sender: Mutex<ChildStdin>,
    number: Mutex<u64>,
    waiting: Mutex<HashMap<u64, mpsc::Sender<Value>>>,
    tabs: Mutex<HashMap<String, TabEvents>>,
}

/// The events of a tab.
#[derive(Debug, Clone, Default)]
struct TabEvents {
    /// The users who answer the login dialogs, in turn; further dialogs are cancelled.
    dialog_users: Vec<Person>,
    dialogs: u32,
    loads: u32,
    /// The `Authorization` of every request.
    credentials: Vec<String>,
}

impl Chromium {
    pub fn start() -> Self {
        let profile = Folder::new();
        let line = format!(
            "exec chromium {} '--host-resolver-rules={NAMES}' --user-data-dir='{}' about:blank \
             3<&0 4>&1 </dev/null >/dev/null 2>&1",
            FLAGS.join(" "),
            profile.path().display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &line]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Its settings are in the profile folder as well.
        command.env("HOME", profile.path());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let wire = Arc::new(DevToolsConnection {
            sender: Mutex::new(to),
            number: Mutex::default(),
            waiting: Mutex::default(),
            tabs: Mutex::default(),
        });
        let reader = Arc::clone(&wire);
        thread::spawn(move || {
            for message in BufReader::new(from).split(0).map_while(Result::ok) {
                reader.handle_message(&serde_json::from_slice(&message).unwrap());
            }
            // The browser has exited, and no test waits for it.
            reader.waiting.lock().unwrap().clear();
        });
        Self { child, connection: wire, _profile: profile }
    }

    /// A tab with an empty browser context.
    pub fn tab(&self) -> Tab<'_> {
        let context = self.connection.call("", "Target.createBrowserContext", json!({}));
        let context = context["browserContextId"].as_str().unwrap().to_owned();
        self.open_tab_in(&context)
    }

    fn open_tab_in(&self, context: &str) -> Tab<'_> {
        let target = json!({"url": "about:blank", "browserContextId": context});
        let target = self.connection.call("", "Target.createTarget", target)["targetId"].clone();
        let attach = json!({"targetId": target, "flatten": true});
        let session =
            self.connection.call("", "Target.attachToTarget", attach)["sessionId"].clone();
        let session = session.as_str().unwrap().to_owned();
        self.connection.tabs.lock().unwrap().insert(session.clone(), TabEvents::default());
        let tab = Tab { browser: self, context: context.to_owned(), session };
        tab.ask("Page.enable", json!({}));
        tab.ask("Network.enable", json!({}));
        // Bypasses the page's content security policy for test scripts: its author could have had
        // another.
        tab.ask("Page.setBypassCSP", json!({"enabled": true}));
        tab
    }

    /// The text of the frames that load this address.
    pub fn frames(&self, base: &str) -> Vec<String> {
        let targets = self.connection.call("", "Target.getTargets", json!({}));
        let targets = targets["targetInfos"].as_array().unwrap().iter();
        let frames = targets.filter(|target| {
            target["type"] == "iframe" && target["url"].as_str().unwrap().starts_with(base)
        });
        let look = json!({"expression": "document.documentElement.innerText"});
        let shown = frames.map(|target| {
            let attach = json!({"targetId": target["targetId"], "flatten": true});
            let session =
                self.connection.call("", "Target.attachToTarget", attach)["sessionId"].clone();
            let seen =
                self.connection.call(session.as_str().unwrap(), "Runtime.evaluate", look.clone());
            seen["result"]["value"].to_string()
        });
        shown.collect()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Exits before the profile folder is removed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl DevToolsConnection {
    fn send_command(&self, session: &str, method: &str, parameters: Value) -> u64 {
        let number = {
            let mut number = self.number.lock().unwrap();
            *number += 1;
            *number
        };
        let mut message = json!({"id": number, "method": method});
        message["params"] = parameters;
        if !session.is_empty() {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        // The waiter for the response notices a browser that has exited.
        drop(self.sender.lock().unwrap().write_all(&bytes));
        number
    }

    fn call(&self, session: &str, method: &str, parameters: Value) -> Value {
        let answer = self.call_unchecked(session, method, parameters);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The response, even if it is an error.
    fn call_unchecked(&self, session: &str, method: &str, parameters: Value) -> Value {
        let (sender, answer) = mpsc::channel();
        let asked = format!("{method} {parameters}");
        // Locked until the number is known, so that the response finds its entry.
        let mut waiting = self.waiting.lock().unwrap();
        let number = self.send_command(session, method, parameters);
        waiting.insert(number, sender);
        drop(waiting);
        match answer.recv_timeout(TIMEOUT) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => panic!("no answer to {asked}"),
            Err(RecvTimeoutError::Disconnected) => panic!("Chromium has ended, asked {asked}"),
        }
    }

    /// Handles one message from the browser.
    fn handle_message(&self, message: &Value) {
        if let Some(number) = message["id"].as_u64() {
            if let Some(sender) = self.waiting.lock().unwrap().remove(&number) {
                drop(sender.send(message.clone()));
            }
            return;
        }
        let (method, parameters) = (message["method"].as_str().unwrap(), &message["params"]);
        let session = message["sessionId"].as_str().unwrap_or_default();
        let mut tabs = self.tabs.lock().unwrap();
        let Some(seen) = tabs.get_mut(session) else { return };
        match method {
            "Page.loadEventFired" => seen.loads += 1,
            // A page from the back/forward cache is not loaded again.
            "Page.frameNavigated" if parameters["type"] == "BackForwardCacheRestore" => {
                seen.loads += 1;
            }
            "Network.requestWillBeSentExtraInfo" => {
                let headers = parameters["headers"].as_object().unwrap();
                let sent =
                    headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("Authorization"));
                seen.credentials.extend(sent.map(|(_, value)| value.as_str().unwrap().to_owned()));
            }
            "Fetch.requestPaused" => {
                let going_on = json!({"requestId": parameters["requestId"]});
                self.send_command(session, "Fetch.continueRequest", going_on);
            }
            "Fetch.authRequired" => {
                seen.dialogs += 1;
                let next = (!seen.dialog_users.is_empty()).then(|| seen.dialog_users.remove(0));
                let typed = match next {
                    None => json!({"response": "CancelAuth"}),
                    Some(Person { name, password }) => {
                        json!({"response": "ProvideCredentials", "username": name, "password": password})
                    }
                };
                let request = &parameters["requestId"];
                let typed = json!({"requestId": request, "authChallengeResponse": typed});
                self.send_command(session, "Fetch.continueWithAuth", typed);
            }
            _ => {}
        }
    }
}

/// One tab; closed with its browser context when dropped.
pub struct Tab<'a> {
    browser: &'a Chromium,
    context: String,
    session: String,
}

impl Tab<'_> {
    fn ask(&self, method: &str, parameters: Value) -> Value {
        self.browser.connection.call(&self.session, method, parameters)
    }

    fn seen<T>(&self, look: impl FnOnce(&mut TabEvents) -> T) -> T {
        look(self.browser.connection.tabs.lock().unwrap().get_mut(&self.session).unwrap())
    }

    /// Navigates to an address as if it had been typed. These people answer the login dialogs, and
    /// further dialogs are cancelled. Returns the number of dialogs.
    pub fn navigate(&self, address: &str, typing: &[&Person]) -> u32 {
        self.navigate_with_dialogs(&format!("{address} is loaded"), typing, || {
            let there = self.ask("Page.navigate", json!({"url": address}));
            assert!(there["errorText"].is_null(), "{address}: {there}");
        })
    }

    /// One step back in the history of the tab.
    pub fn go_back(&self) -> u32 {
        let history = self.ask("Page.getNavigationHistory", json!({}));
        let at = history["currentIndex"].as_u64().unwrap() as usize;
        let entry = &history["entries"][at - 1]["id"];
        self.navigate_with_dialogs("the page before is loaded", &[], || {
            self.ask("Page.navigateToHistoryEntry", json!({"entryId": entry}));
        })
    }

    fn navigate_with_dialogs(&self, what: &str, typing: &[&Person], go: impl FnOnce()) -> u32 {
        let loads = self.seen(|seen| {
            seen.dialog_users = typing.iter().map(|&person| person.clone()).collect();
            seen.dialogs = 0;
            seen.loads
        });
        // Requests of the pages themselves are not intercepted: an event stream that is intercepted when that ends
        // may never open.
        let documents = json!([{"urlPattern": "*", "resourceType": "Document"}]);
        self.ask("Fetch.enable", json!({"handleAuthRequests": true, "patterns": documents}));
        go();
        wait_until(what, || self.seen(|seen| (seen.loads > loads).then_some(())));
        self.ask("Fetch.disable", json!({}));
        self.seen(|seen| seen.dialogs)
    }

    /// Waits until a redirect has led the tab to this address, and it is loaded.
    pub fn wait_for_redirect(&self, address: &str) {
        wait_until(&format!("{address} is loaded"), || {
            let look = json!({"expression": "document.readyState + ' ' + location", "returnByValue": true});
            // There may be no page at this moment.
            let there =
                self.browser.connection.call_unchecked(&self.session, "Runtime.evaluate", look);
            (there["result"]["result"]["value"] == format!("complete {address}")).then_some(())
        });
    }

    /// Runs script in the page, as if it came with the page, and awaits its promise.
    pub fn run_script(&self, script: &str) -> Value {
        let what = json!({
            "expression": script, "awaitPromise": true, "returnByValue": true, "userGesture": true,
        });
        let answer = self.ask("Runtime.evaluate", what);
        assert!(answer["exceptionDetails"].is_null(), "{script}: {answer}");
        answer["result"]["value"].clone()
    }

    pub fn text(&self) -> String {
        self.run_script("document.body.innerText").as_str().unwrap().to_owned()
    }

    /// Waits until the page shows a text, also if another page is loaded meanwhile.
    pub fn wait_for_text(&self, text: &str) {
        wait_until(&format!("the page shows {text}"), || {
            let look = json!({"expression": "document.body.innerText", "returnByValue": true});
            let shown =
                self.browser.connection.call_unchecked(&self.session, "Runtime.evaluate", look);
            let shown = shown["result"]["result"]["value"].as_str()?;
            shown.contains(text).then_some(())
        });
    }

    /// The credentials that were sent since the last call.
    pub fn credentials(&self) -> Vec<String> {
        self.seen(|seen| std::mem::take(&mut seen.credentials))
    }
}

impl Drop for Tab<'_> {
    fn drop(&mut self) {
        let context = json!({"browserContextId": self.context});
        self.browser.connection.send_command("", "Target.disposeBrowserContext", context);
    }
}
