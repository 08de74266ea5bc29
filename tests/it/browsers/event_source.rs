//! `EventSource` of Chromium: it receives the events of a stream, and resumes by itself after the server was
//! restarted or killed.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::thread;

use super::chromium::{Chromium, Tab};
use super::foreign_site;
use crate::harness::{Backend, Server, Setup, TIMEOUT, run_sql, wait_until};

const MODEL: &str = r#"
title = "Store"
[server.limits]
heartbeat_seconds = 1
[resources.customer.fields]
name = { type = "text", required = true }
"#;

/// Follows a stream, and keeps what it receives in variables of the page.
const FOLLOW: &str = r#"
    window.received = [];
    window.opened = 0;
    window.stream = new EventSource(ADDRESS);
    for (const kind of ['created', 'updated', 'deleted', 'left', 'message'])
        stream.addEventListener(kind, event => received.push(event.lastEventId + ' ' + kind));
    new Promise(resolve => stream.onopen = () => { window.opened += 1; resolve(true); })
"#;

fn follow(tab: &Tab<'_>, address: &str) {
    tab.run_script(&FOLLOW.replace("ADDRESS", &format!("'{address}'")));
}

fn received(tab: &Tab<'_>) -> Vec<String> {
    let lines = tab.run_script("received.join('\\n')");
    lines.as_str().unwrap().lines().map(str::to_owned).collect()
}

/// A server that can be restarted on its port.
fn setup_with_port(backend: Backend, origin: &str) -> Setup {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let model = MODEL.replace("[server.limits]", &format!("[server]\n{origin}\n[server.limits]"));
    Setup::new(backend).model(&model).flags(&["--listen", &format!("127.0.0.1:{port}")])
}

fn create(server: &Server, name: &str) -> String {
    server.create("/customers", format!(r#"{{"customer":{{"name":"{name}"}}}}"#))
}

/// Waits until the page has everything that is in the log, each change once and in order.
fn assert_complete(tab: &Tab<'_>, server: &Server) {
    let query = "SELECT sequence, kind FROM nouns_changes ORDER BY sequence";
    let log = run_sql(server.backend(), server.folder(), query).replace('|', " ");
    let expected: Vec<&str> = log.lines().collect();
    wait_until("the page has every change", || {
        (received(tab).len() >= expected.len()).then_some(())
    });
    assert_eq!(received(tab), expected);
}

on_every_backend! {
    fn event_source_resumes_by_itself_after_restarts(backend: Backend) {
        let chromium = Chromium::start();
        let tab = chromium.tab();
        let setup = setup_with_port(backend, "");
        let mut server = setup.clone().start();
        let base = format!("http://{}", server.address);
        tab.navigate(&format!("{base}/customers"), &[]);
        follow(&tab, "/customers");
        let path = create(&server, "Ann");
        assert_eq!(server.put(&path, r#"{"customer":{"name":"Bea"}}"#).status, 200);
        assert_complete(&tab, &server);
        for is_killed in [false, true] {
            let opened = tab.run_script("opened").as_u64().unwrap();
            let folder = if is_killed { server.kill() } else { server.stop() };
            server = setup.clone().start_in(folder);
            // Whether the browser is back already or not, it receives this.
            create(&server, "Cem");
            wait_until("the browser has connected again", || {
                (tab.run_script("opened").as_u64().unwrap() > opened).then_some(())
            });
            create(&server, "Dee");
            assert_complete(&tab, &server);
        }
        assert_eq!(server.delete(&path).status, 204);
        assert_complete(&tab, &server);
    }

    fn event_source_of_a_declared_origin_receives_events(backend: Backend) {
        let elsewhere = foreign_site::serve();
        let chromium = Chromium::start();
        let tab = chromium.tab();
        let page = foreign_site::page(elsewhere, "127.0.0.1");
        let origin = format!("cors_origins = {:?}", page.trim_end_matches('/'));
        let server = setup_with_port(backend, &origin).start();
        tab.navigate(&page, &[]);
        follow(&tab, &format!("http://{}/customers", server.address));
        create(&server, "Ann");
        assert_complete(&tab, &server);
    }
}

/// Sends an empty page, and to all other requests the first bytes of a stream: a block without data. Returns
/// the heads of the requests for the stream.
fn serve_bookmark() -> (SocketAddr, mpsc::Receiver<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, heads) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            thread::spawn(move || {
                let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
                let is_stream = head.first().is_some_and(|line| line.contains("/stream"));
                let (media_type, body) = match is_stream {
                    true => ("text/event-stream", "retry: 10\nid: 7\n\nid: 9\n:\n"),
                    false => ("text/html", "<!doctype html><title>page</title>"),
                };
                drop(write!(
                    &stream,
                    "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nConnection: close\r\n\r\n{body}"
                ));
                if is_stream {
                    drop(sender.send(head));
                }
            });
        }
    });
    (address, heads)
}

/// The rule on which heartbeats rely (WHATWG HTML §9.2.6).
#[test]
fn event_source_block_without_data_moves_the_last_event_id_and_fires_nothing() {
    let (address, heads) = serve_bookmark();
    let chromium = Chromium::start();
    let tab = chromium.tab();
    tab.navigate(&format!("http://{address}/"), &[]);
    follow(&tab, "/stream");
    let has_id = |head: &[String], id: &str| {
        head.iter().any(|line| line.eq_ignore_ascii_case(&format!("Last-Event-ID: {id}")))
    };
    let first = heads.recv_timeout(TIMEOUT).unwrap();
    assert!(
        !first.iter().any(|line| line.to_lowercase().starts_with("last-event-id")),
        "{first:?}"
    );
    for _ in 0..2 {
        // The block of 9 was cut before its empty line.
        let again = heads.recv_timeout(TIMEOUT).unwrap();
        assert!(has_id(&again, "7"), "{again:?}");
    }
    assert_eq!(received(&tab), [""; 0]);
}
