//! The order of checks: of two faults in one request, the one that is checked first is reported.
//!
//! A fault is a change to a valid request; every pair of faults of different steps is tried on every
//! request that can have both.

use crate::harness::{Answer, Server};

use super::{ANN, BEA, TEA};

/// A request in parts, so that each fault can change its own.
#[derive(Clone)]
struct FaultyRequest {
    method: &'static str,
    path: String,
    query: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    body: String,
}

impl FaultyRequest {
    fn send(&self, server: &Server) -> Answer {
        server.request(
            &format!("{} {}{}", self.method, self.path, self.query),
            &self.headers,
            &self.body,
        )
    }
}

struct RequestFault {
    /// Its position in the order of checks: the number of the step in `pipeline::answer`, and the position in
    /// that step. Equal positions are never combined.
    step: (u8, u8),
    slug: &'static str,
    spoil: fn(&mut FaultyRequest),
}

const FAULTS: &[RequestFault] = &[
    RequestFault {
        step: (1, 0),
        slug: "bad-host",
        spoil: |request| request.headers.push(("Host", "exa mple")),
    },
    RequestFault { step: (2, 0), slug: "unknown-method", spoil: |request| request.method = "BREW" },
    RequestFault {
        step: (2, 0),
        slug: "no-such-path",
        spoil: |request| request.path.insert(1, 'x'),
    },
    RequestFault {
        step: (2, 0),
        slug: "method-not-allowed",
        spoil: |request| request.method = "TRACE",
    },
    RequestFault {
        step: (3, 0),
        slug: "cross-site",
        spoil: |request| request.headers.push(("Sec-Fetch-Site", "cross-site")),
    },
    RequestFault {
        step: (3, 0),
        slug: "wrong-host",
        spoil: |request| request.headers.push(("Host", "example.com")),
    },
    // With this Accept a problem can be sent, while the path's own type is not acceptable.
    RequestFault {
        step: (6, 0),
        slug: "not-acceptable",
        spoil: |request| request.headers.push(("Accept", "application/problem+json")),
    },
    RequestFault {
        step: (7, 0),
        slug: "bad-idempotency-key",
        spoil: |request| request.headers.push(("Idempotency-Key", "\"")),
    },
    RequestFault {
        step: (7, 1),
        slug: "unsupported-coding",
        spoil: |request| request.headers.push(("Content-Encoding", "compress")),
    },
    RequestFault {
        step: (7, 2),
        slug: "unsupported-type",
        spoil: |request| request.headers.push(("Content-Type", "text/plain")),
    },
    RequestFault {
        step: (8, 0),
        slug: "too-large",
        spoil: |request| request.body.push_str(&" ".repeat(9 * 1024 * 1024)),
    },
    RequestFault { step: (8, 0), slug: "bad-json", spoil: |request| request.body.insert(0, '!') },
    RequestFault {
        step: (8, 0),
        slug: "bad-wrapper",
        spoil: |request| request.body = "{}".to_owned(),
    },
    RequestFault { step: (9, 0), slug: "bad-query", spoil: |request| request.query = "?x=1" },
    RequestFault {
        step: (10, 0),
        slug: "not-found",
        spoil: |request| request.path = request.path.replacen("rs/0", "rs/f", 1),
    },
    RequestFault {
        step: (11, 0),
        slug: "precondition-failed",
        spoil: |request| request.headers.push(("If-Match", "\"99\"")),
    },
    RequestFault {
        step: (12, 0),
        slug: "invalid-fields",
        spoil: |request| request.body = request.body.replacen(":{\"", ":{\"zz\":1,\"", 1),
    },
    RequestFault {
        step: (13, 0),
        slug: "transition-not-allowed",
        spoil: |request| {
            request.body =
                request.body.replacen("\"items\"", "\"status\":\"delivered\",\"items\"", 1);
        },
    },
];

/// Sends the request with each fault alone, then with each pair.
fn check(server: &Server, good: &FaultyRequest, faults: &[&str]) {
    let faults: Vec<_> = faults
        .iter()
        .map(|slug| FAULTS.iter().find(|fault| fault.slug == *slug).unwrap())
        .collect();
    for fault in &faults {
        let mut request = good.clone();
        (fault.spoil)(&mut request);
        assert_eq!(
            request.send(server).problem(),
            fault.slug,
            "{} {} alone",
            good.method,
            fault.slug
        );
        for later in faults.iter().filter(|later| later.step > fault.step) {
            let mut request = good.clone();
            (fault.spoil)(&mut request);
            (later.spoil)(&mut request);
            // Both wrote a Host: that is one fault, not two.
            if request.headers.iter().filter(|(name, _)| *name == "Host").count() < 2 {
                let slug = request.send(server).problem();
                assert_eq!(
                    slug, fault.slug,
                    "{} with {} and {}",
                    good.method, fault.slug, later.slug
                );
            }
        }
    }
}

on_every_backend! {
    fn check_order_of_put(server: Server) {
        let customer = server.create("/customers", ANN);
        let order = server.create(&format!("{customer}/orders"), TEA);
        let good = FaultyRequest { method: "PUT", path: order, query: "", headers: Vec::new(), body: TEA.replace("tea", "jam") };
        check(&server, &good, &[
            "bad-host", "unknown-method", "no-such-path", "method-not-allowed", "cross-site", "wrong-host", "not-acceptable",
            "unsupported-coding", "unsupported-type", "too-large", "bad-json", "bad-wrapper", "bad-query", "not-found", "precondition-failed",
            "invalid-fields", "transition-not-allowed",
        ]);
        assert_eq!(good.send(&server).json()["order"]["version"], 2, "no faulty request has changed anything");
    }

    fn check_order_of_patch(server: Server) {
        let customer = server.create("/customers", ANN);
        let order = server.create(&format!("{customer}/orders"), TEA);
        let good = FaultyRequest { method: "PATCH", path: order, query: "", headers: Vec::new(), body: TEA.replace("tea", "jam") };
        check(&server, &good, &[
            "bad-host", "unknown-method", "no-such-path", "method-not-allowed", "cross-site", "wrong-host", "not-acceptable",
            "bad-idempotency-key", "unsupported-coding", "unsupported-type", "too-large", "bad-json", "bad-wrapper", "bad-query", "not-found", "precondition-failed",
            "invalid-fields", "transition-not-allowed",
        ]);
        assert_eq!(good.send(&server).json()["order"]["version"], 2, "no faulty request has changed anything");
    }

    fn check_order_of_post(server: Server) {
        let customer = server.create("/customers", ANN);
        let path = format!("{customer}/orders");
        let good = FaultyRequest { method: "POST", path: path.clone(), query: "", headers: Vec::new(), body: TEA.to_owned() };
        check(&server, &good, &[
            "bad-host", "unknown-method", "no-such-path", "method-not-allowed", "cross-site", "wrong-host", "not-acceptable",
            "bad-idempotency-key", "unsupported-coding", "unsupported-type", "too-large", "bad-json", "bad-wrapper", "bad-query", "not-found", "precondition-failed",
            "invalid-fields", "transition-not-allowed",
        ]);
        assert_eq!(server.get(&path).json()["orders"].as_array().unwrap().len(), 0);
    }

    fn check_order_of_get(server: Server) {
        let path = server.create("/customers", BEA);
        let good = FaultyRequest { method: "GET", path, query: "", headers: Vec::new(), body: String::new() };
        check(&server, &good, &["bad-host", "unknown-method", "no-such-path", "method-not-allowed", "wrong-host", "not-acceptable", "bad-query", "not-found", "precondition-failed"]);
        assert_eq!(good.send(&server).status, 200);
    }

    fn check_order_of_delete(server: Server) {
        let path = server.create("/customers", BEA);
        let good = FaultyRequest { method: "DELETE", path, query: "", headers: Vec::new(), body: String::new() };
        check(&server, &good, &["bad-host", "unknown-method", "no-such-path", "method-not-allowed", "cross-site", "wrong-host", "too-large", "bad-query", "not-found", "precondition-failed"]);
        assert_eq!(good.send(&server).status, 204);
    }

    /// Within the route: an unknown method before an unknown path, a redirect before a wrong method.
    fn check_order_within_the_route(server: Server) {
        let status = |line: &str| server.request(line, &[], "").status;
        assert_eq!(status("BREW /nothing"), 501);
        assert_eq!(status("DELETE /nothing"), 404);
        assert_eq!(status("DELETE /customers/"), 308);
        assert_eq!(status("DELETE /customers"), 405);
    }
}
