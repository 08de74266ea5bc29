//! Status lines of responses, and request headers that would change a request's meaning.

use super::ANN;
use crate::harness::{Backend, Server, Setup};

/// The status line of the response to these bytes.
fn status_line(server: &Server, request: impl AsRef<[u8]>) -> String {
    let answer = String::from_utf8(server.send_raw(request)).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

fn post(body: &str) -> String {
    let length = body.len();
    format!(
        "POST /customers HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

on_every_backend! {
    /// RFC 9110 §15 has renamed two of them.
    fn reason_phrases_are_those_of_rfc_9110(backend: Backend) {
        let model = include_str!("../../../examples/store/nouns.toml");
        let limits = "\n[server.limits]\nbody_bytes_max = 1000\nbulk_bytes_max = 1000\n";
        let server = Setup::new(backend).model(&format!("{model}{limits}")).start();
        let long = "a".repeat(9000);
        for (request, expected) in [
            (post(r#"{"customer":{}}"#), "HTTP/1.1 422 Unprocessable Content"),
            (post(&format!(r#"{{"customer":{{"name":"{long}"}}}}"#)), "HTTP/1.1 413 Content Too Large"),
            (post(ANN), "HTTP/1.1 201 Created"),
            (format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"), "HTTP/1.1 414 URI Too Long"),
            (post(ANN).replace("POST", "BREW"), "HTTP/1.1 501 Not Implemented"),
        ] {
            assert_eq!(status_line(&server, &request), expected, "{}", &request[..request.len().min(200)]);
        }
    }

    /// RFC 9110 §14.5: a part must not be taken for the whole.
    fn put_with_a_content_range_is_refused(server: Server) {
        let path = server.create("/customers", ANN);
        let before = server.get(&path);
        for range in ["bytes 0-9/99", "bytes */*", "items 1", ""] {
            let refused = server.request(&format!("PUT {path}"), &[("Content-Range", range)], ANN.replace("Ann", "Eve"));
            assert_eq!((refused.status, refused.problem().as_str()), (400, "partial-put"), "{range:?}: {refused:?}");
        }
        assert_eq!(server.get(&path).text(), before.text());
        // Earlier checks come first, and the connection stays open.
        let mut client = server.client();
        let range = ("Content-Range", "bytes 0-9/99");
        let text = client.request(&format!("PUT {path}"), &[range, ("Content-Type", "text/plain")], ANN);
        assert_eq!(text.status, 415);
        assert_eq!(client.request(&format!("PUT {path}"), &[range], ANN).status, 400);
        assert_eq!(client.request(&format!("PUT {path}"), &[], ANN).status, 200);
    }
}
