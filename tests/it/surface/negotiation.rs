//! Content negotiation: types accepted and sent, and the headers of every response.

use expect_test::expect;

use super::{ANN, NO_ONE};
use crate::harness::Server;

on_every_backend! {
    fn accept_chooses_the_type(server: Server) {
        let path = server.create("/customers", ANN);
        let ask = |accept: &str| {
            let answer = server.request(&format!("GET {path}"), &[("Accept", accept)], "");
            format!("{:<45} {} {}", accept, answer.status, answer.header("Content-Type").unwrap_or("-"))
        };
        let table: Vec<_> = [
            "", "application/json", "application/json;q=0.001", "application/json;q=0", "*/*", "*/*;q=0", "*/*, application/json;q=0",
            "application/*", "application/*;q=0, application/json", "text/*", "text/plain", "text/plain, */*;q=0.1",
            "application/problem+json", "application/xml, application/problem+json", "APPLICATION/Json", "application/json;charset=utf-8",
            "application/json;version=2", "application/json ; q=1", "garbage", "application/json;q=high", "/", ",, application/json,",
        ].into_iter().map(ask).collect();
        expect![[r#"
                                                          200 application/json
            application/json                              200 application/json
            application/json;q=0.001                      200 application/json
            application/json;q=0                          406 -
            */*                                           200 application/json
            */*;q=0                                       406 -
            */*, application/json;q=0                     406 application/problem+json
            application/*                                 200 application/json
            application/*;q=0, application/json           200 application/json
            text/*                                        406 -
            text/plain                                    406 -
            text/plain, */*;q=0.1                         200 application/json
            application/problem+json                      406 application/problem+json
            application/xml, application/problem+json     406 application/problem+json
            APPLICATION/Json                              200 application/json
            application/json;charset=utf-8                200 application/json
            application/json;version=2                    200 application/json
            application/json ; q=1                        200 application/json
            garbage                                       200 application/json
            application/json;q=high                       200 application/json
            /                                             200 application/json
            ,, application/json,                          200 application/json"#]].assert_eq(&table.join("\n"));
    }

    fn accept_lines_are_combined(server: Server) {
        let headers = [("Accept", "text/plain"), ("Accept", "application/json")];
        assert_eq!(server.request("GET /customers", &headers, "").status, 200);
    }

    /// 406 comes before any effect, and DELETE, which sends no body, never gets one.
    fn accept_unsatisfiable_is_406_and_changes_nothing(server: Server) {
        let accept = [("Accept", "text/plain")];
        let refused = server.request("POST /customers", &accept, ANN);
        expect![[r#"
            HTTP/1.1 406 Not Acceptable
            cache-control: private, no-cache
            vary: Accept
            link: </-/problems/not-acceptable>; rel="type"
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 0
            date: <date>

        "#]].assert_eq(&refused.masked());
        assert_eq!(server.get("/customers").json()["customers"].as_array().unwrap().len(), 0);
        let path = server.create("/customers", ANN);
        assert_eq!(server.request(&format!("PUT {path}"), &accept, ANN).status, 406);
        assert_eq!(server.request(&format!("DELETE {path}"), &accept, "").status, 204);
    }

    fn accept_chooses_the_type_of_problems(server: Server) {
        let ask = |accept: &str| {
            let answer = server.request(&format!("GET {NO_ONE}"), &[("Accept", accept)], "");
            (answer.status, answer.header("Content-Type").map(str::to_owned), answer.body.is_empty())
        };
        let problem = Some("application/problem+json".to_owned());
        assert_eq!(ask("*/*"), (404, problem.clone(), false));
        assert_eq!(ask("application/problem+json, application/json"), (404, problem.clone(), false));
        assert_eq!(ask("application/*"), (404, problem, false));
        assert_eq!(ask("application/json"), (404, Some("application/json".to_owned()), false));
        assert_eq!(ask("image/png").1, None);
    }

    fn content_type_unsupported_is_415(server: Server) {
        for kind in ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/json;charset=\"UTF-8\""] {
            assert_eq!(server.request("POST /customers", &[("Content-Type", kind)], ANN).status, 201, "{kind}");
        }
        assert_eq!(server.request("POST /customers", &[], ANN).status, 201);
        let readable = Some("application/json, application/x-ndjson, text/csv");
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/xml", "json", "", "application/json, text/plain",
            "application/json;charset=iso-8859-1"] {
            let answer = server.request("POST /customers", &[("Content-Type", kind)], ANN);
            assert_eq!((answer.problem().as_str(), answer.header("Accept")), ("unsupported-type", readable), "{kind}");
        }
    }

    /// Clients add a version to the only type they list; JSON has no meaningful parameters.
    fn accept_of_json_with_an_unknown_parameter_is_json(server: Server) {
        let path = server.create("/customers", ANN);
        let ask = |line: &str, accept: &str| server.request(line, &[("Accept", accept)], if line.starts_with("POST") { ANN } else { "" });
        for accept in ["application/json;version=1", "application/json; v=\"2\";q=0.5", "image/png, application/json;version=1", "application/json;indent=4;charset=utf-8"] {
            for line in ["GET /customers", &*format!("GET {path}"), "POST /customers", "GET /"] {
                let answer = ask(line, accept);
                assert!(answer.status < 300, "{line} {accept}: {answer:?}");
                assert_eq!(answer.header("Content-Type"), Some("application/json"), "{line} {accept}");
            }
            let refused = ask("GET /nowhere", accept);
            assert_eq!((refused.status, refused.header("Content-Type")), (404, Some("application/json")), "{accept}");
        }
        // An exact match is preferred, and a refused type is not sent.
        assert_eq!(ask("GET /customers", "application/json;version=1, text/csv;q=0.1").header("Content-Type"), Some("text/csv; charset=utf-8; header=present"));
        for accept in ["application/json;version=1;q=0", "application/json;version=1, application/json;q=0", "text/plain;version=1", "application/json;charset=latin1", "application/x-ndjson;version=1"] {
            assert_eq!(ask("GET /customers", accept).status, 406, "{accept}");
        }
    }

    fn content_encoding_of_a_request_is_refused(server: Server) {
        let answer = server.request("POST /customers", &[("Content-Encoding", "gzip")], ANN);
        assert_eq!(answer.problem(), "unsupported-coding");
        assert!(answer.header("Accept-Encoding").is_some(), "{answer:?}");
        assert_eq!(server.request("POST /customers", &[("Content-Encoding", "identity")], ANN).status, 201);
    }

    /// The headers that every response has, and those that some must not have.
    fn response_headers_of_every_response(server: Server) {
        let path = server.create("/customers", ANN);
        let lines = [
            ("GET /customers", ""), (&format!("GET {path}"), ""), (&format!("PUT {path}"), ANN), ("POST /customers", ANN),
            ("POST /customers", "{"), ("GET /nothing", ""), ("BREW /", ""), ("GET /customers/", ""), ("GET /", ""),
            ("GET /-/health", ""), ("GET /-/ready", ""), ("GET /-/metrics", ""), ("GET /-/problems/taken", ""), ("OPTIONS /customers", ""), (&format!("DELETE {path}"), ""),
        ];
        let mut request_ids = Vec::new();
        for (line, body) in lines {
            let answer = server.request(line, &[], body);
            assert!(answer.header("Date").unwrap().ends_with(" GMT"), "{line}");
            assert_eq!(answer.header("Cache-Control"), Some("private, no-cache"), "{line}");
            request_ids.push(answer.header("X-Request-Id").unwrap().to_owned());
            assert_eq!(answer.header("Content-Type").is_some(), !answer.body.is_empty(), "{line}");
            if answer.header("Content-Type").is_some() {
                assert_eq!(answer.header("Vary"), Some("Accept, Accept-Encoding"), "{line}");
            }
            assert_eq!(answer.header("Server"), None, "{line}");
            assert_eq!(answer.header("ETag").is_some(), line.starts_with("POST /customers") && answer.status == 201 || line == "GET /customers" || line.starts_with("GET /customers/0"), "{line}");
            assert_eq!(answer.header("Transfer-Encoding"), None, "{line}");
        }
        request_ids.sort();
        request_ids.dedup();
        assert_eq!(request_ids.len(), lines.len(), "a request id is given once");
    }

    /// A client's request id is not adopted: it could forge lines of the log.
    fn request_id_of_the_client_is_ignored(server: Server) {
        let answer = server.request("GET /customers", &[("X-Request-Id", "mine")], "");
        assert_ne!(answer.header("X-Request-Id"), Some("mine"));
    }

    fn last_modified_is_the_time_of_the_update(server: Server) {
        let path = server.create("/customers", ANN);
        let answer = server.get(&path);
        let updated_at: jiff::Timestamp = answer.json()["customer"]["updated_at"].as_str().unwrap().parse().unwrap();
        let modified = httpdate::parse_http_date(answer.header("Last-Modified").unwrap()).unwrap();
        let seconds = modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(i64::try_from(seconds).unwrap(), updated_at.as_second());
    }
}
