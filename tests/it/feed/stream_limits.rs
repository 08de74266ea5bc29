//! Limits of event streams: per caller and in all, clients that have gone, clients that do not read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::harness::{
    Backend, Client, ConnectError, EventSource, Http2, Received, Server, Setup, StreamEnd,
    wait_until,
};

fn start(backend: Backend, limits: &str) -> Server {
    let model = format!(
        "title = \"Log\"\n[server]\nhttp2_prior_knowledge = true\n[server.limits]\n{limits}\n[resources.entry]\nid = \"integer\"\n\
         [resources.entry.fields]\ntext = {{ type = \"text\" }}\n"
    );
    Setup::new(backend).model(&model).start()
}

fn follow(server: &Server) -> Result<EventSource, u16> {
    let mut source = EventSource::new("/entries");
    match source.connect(server.address) {
        Ok(_) => Ok(source),
        Err(ConnectError::Refused(answer)) => Err(answer.status),
        Err(ConnectError::Lost(error)) => panic!("{error}"),
    }
}

fn create(client: &mut Client, text: &str) {
    let body = json!({"entry": {"text": text}}).to_string();
    assert_eq!(client.request("POST /entries", &[], body).status, 201);
}

on_every_backend! {
    fn streams_of_a_caller_are_limited(backend: Backend) {
        let server = start(backend, "streams_per_caller_max = 3");
        let mut sources: Vec<_> = (0..3).map(|_| follow(&server).unwrap()).collect();
        assert_eq!(follow(&server).unwrap_err(), 429);
        // The streams that were probed go on.
        create(&mut server.client(), "a");
        for source in &mut sources {
            assert_eq!(source.next_event().kind, "created");
        }
    }

    fn streams_in_all_are_limited(backend: Backend) {
        let server = start(backend, "streams_max = 2");
        let sources: Vec<_> = (0..2).map(|_| follow(&server).unwrap()).collect();
        assert_eq!(follow(&server).unwrap_err(), 503);
        drop(sources);
    }

    /// A page that is loaded again and again leaves streams behind, whose clients have gone.
    fn streams_of_clients_that_have_gone_make_room(backend: Backend) {
        let server = start(backend, "streams_per_caller_max = 3\nheartbeat_seconds = 600");
        let mut refusals = 0;
        for _ in 0..30 {
            // A busy machine may not tell the server in time that a client has gone. Without looking, the server
            // would learn it from a heartbeat after ten minutes.
            let mut is_refused = false;
            let mut source = wait_until("there is room", || match follow(&server) {
                Ok(source) => Some(source),
                Err(status) => {
                    assert_eq!(status, 429);
                    is_refused = true;
                    None
                }
            });
            source.close();
            refusals += u32::from(is_refused);
        }
        assert!(refusals < 10, "{refusals} of 30 were refused at first");
    }

    /// A simple client opens both windows after every frame of data, which costs it two frames for each event.
    fn streams_of_one_http2_connection_stay_while_events_flow(backend: Backend) {
        const STREAMS: u32 = 20;
        let server = start(backend, "");
        let (mut http2, client) = (Http2::connect(&server), &mut server.client());
        for number in 0..STREAMS {
            let accept = [("accept", "text/event-stream")];
            http2.request(2 * number + 1, ("GET", "/entries"), &accept, b"");
        }
        wait_until("all are connected", || {
            (server.metric("nouns_event_streams") == Some(STREAMS)).then_some(())
        });
        for count in 0..300 {
            create(client, "a");
            let mut missing = STREAMS;
            while missing > 0 {
                let frame = http2.next().unwrap_or_else(|| panic!("cut after {count} events"));
                assert!(!frame.is_cut(), "cut after {count} events: {frame:?}");
                if frame.kind == Http2::DATA {
                    let bytes = u32::try_from(frame.payload.len()).unwrap();
                    http2.open_window(frame.stream, bytes.max(1));
                    let text = String::from_utf8_lossy(&frame.payload).into_owned();
                    missing -= u32::from(text.contains("event: created"));
                }
            }
        }
    }

    /// A client that does not read is disconnected, others are not delayed, and it can resume.
    fn stream_of_a_slow_reader_is_cut_and_resumes(backend: Backend) {
        let server = start(backend, "send_seconds_max = 1");
        let mut slow = TcpStream::connect(server.address).unwrap();
        let request = "GET /entries HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
        slow.write_all(request.as_bytes()).unwrap();
        wait_until("it is connected", || {
            (server.metric("nouns_event_streams") == Some(1)).then_some(())
        });
        let mut quick = follow(&server).unwrap();
        let text = "x".repeat(100_000);
        let client = &mut server.client();
        for count in 1..=200 {
            create(client, &text);
            assert_eq!(quick.next_event().id, count.to_string());
        }
        wait_until("the slow reader is cut", || {
            (server.metric("nouns_event_streams") == Some(1)).then_some(())
        });
        // What has arrived ends in the middle of an event; the client resumes after the last complete one.
        let mut received = Vec::new();
        let _ = slow.read_to_end(&mut received);
        let received = String::from_utf8(received).unwrap();
        let blocks = received.rsplit_once("\n\n").unwrap().0;
        let last = blocks.rsplit_once("\nid: ").unwrap().1.split_once('\n').unwrap().0;
        let last: usize = last.trim().parse().unwrap();
        assert!(last < 200);
        let mut resumed = EventSource::new("/entries").resume_after(&last.to_string());
        resumed.connect(server.address).unwrap();
        let mut events = Vec::new();
        wait_until("it has the rest", || {
            match resumed.receive() {
                Received::Event(event) => events.push(event),
                // A reader that the machine stops for a second is slow too, and resumes again.
                Received::End(_) => drop(resumed.connect(server.address).unwrap()),
            }
            (events.len() == 200 - last).then_some(())
        });
        let ids: Vec<_> = events.iter().map(|event| event.sequence()).collect();
        let expected: Vec<_> = (i64::try_from(last).unwrap() + 1..=200).collect();
        assert_eq!(ids, expected);
    }

    /// The rest of a large event is in memory as long as its reader takes, also when the ring has forgotten it.
    fn stream_of_a_slow_reader_counts_the_event_that_it_holds(backend: Backend) {
        let server = start(backend, "send_seconds_max = 600\nheartbeat_seconds = 1");
        let mut slow = TcpStream::connect(server.address).unwrap();
        let request = "GET /entries HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
        slow.write_all(request.as_bytes()).unwrap();
        let mut quick = follow(&server).unwrap();
        wait_until("both are connected", || {
            (server.metric("nouns_event_streams") == Some(2)).then_some(())
        });
        // More than the buffers of the sockets take.
        let (text, client) = ("x".repeat(300_000), &mut server.client());
        for _ in 0..60 {
            create(client, &text);
            quick.next_event();
        }
        let passed = quick.comments().len() + 5;
        wait_until("the ring has forgotten the events", || {
            assert_eq!(quick.poll(Duration::from_millis(50)), None);
            (quick.comments().len() >= passed).then_some(())
        });
        let held: usize = server.metric("nouns_buffered_bytes").unwrap();
        assert!((250_000..700_000).contains(&held), "{held}");
        drop(slow);
        wait_until("nothing is held", || {
            (server.metric("nouns_buffered_bytes") == Some(0)).then_some(())
        });
    }

    /// A panic while a change is evaluated ends the streams that follow it, and no others.
    fn stream_whose_evaluation_panics_is_cut_and_resumes(backend: Backend) {
        let model = "title = \"Log\"\n[resources.entry]\nid = \"integer\"\n\
            [resources.entry.fields]\ntext = { type = \"text\" }\n\
            [resources.note]\nid = \"integer\"\n[resources.note.fields]\ntext = { type = \"text\" }\n";
        let server = Setup::new(backend).model(model).fault("feed:2").start();
        let mut source = follow(&server).unwrap();
        let mut notes = EventSource::new("/notes").connected(server.address);
        // Otherwise each stream may have to catch up, and evaluates the first change for itself. One poll may have been
        // in flight when the streams were connected; the second one knows both.
        let polls = || -> Option<u64> { server.metric("nouns_feed_polls_total{kind=\"tail\"}") };
        let before = polls().unwrap_or(0);
        wait_until("the feed follows the log", || polls().filter(|polls| *polls >= before + 2));
        let client = &mut server.client();
        create(client, "a");
        source.next_event();
        create(client, "b");
        assert_eq!(source.read_to_end().1, StreamEnd::Truncated);
        source.connect(server.address).unwrap();
        assert_eq!(source.next_event().json()["data"]["after"]["text"], "b");
        let body = r#"{"note":{"text":"n"}}"#;
        assert_eq!(client.request("POST /notes", &[], body).status, 201);
        assert_eq!(notes.next_event().kind, "created");
    }
}
