//! Section 5 of the specification, and the rules of section 7 about 401 and 403.
//!
//! The tests compute digests by the formula of the specification, with a library's MD5, and send them
//! as bytes; `auth/` tests the server with third-party clients.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::harness::{ANN, Answer, Backend, Person, Server, Setup, md5, parameter};

/// Two resource groups with a realm each; one realm has Basic alone, the other Digest with MD5 alone.
const TWO_REALMS: &str = r#"
title = "Two"

[realms.front]
schemes = ["basic"]

[realms.back]
schemes = ["digest"]
algorithms = ["md5"]

[resources.guest]
realm = "front"
[resources.guest.fields]
name = { type = "text", required = true }

[resources.ledger]
realm = "back"
[resources.ledger.fields]
name = { type = "text", required = true }

[resources.line]
parent = "ledger"
[resources.line.fields]
name = { type = "text", required = true }

[roles.reader]
guest = ["get"]
"#;

fn two_realms(backend: Backend) -> Server {
    Setup::new(backend).model(TWO_REALMS).with_authentication().start()
}

fn store(backend: Backend) -> Server {
    Setup::new(backend).with_authentication().start()
}

/// Sends a request as bytes.
fn ask(server: &Server, line: &str, authorization: Option<&str>, body: &str) -> Answer {
    let mut text =
        format!("{line} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\n", server.address);
    if let Some(value) = authorization {
        text.push_str(&format!("Authorization: {value}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    server.send(text)
}

/// A client's response to a challenge, in the specification's terms.
struct DigestProof<'a> {
    person: &'a Person,
    challenge: &'a str,
    line: &'a str,
    count: &'a str,
    cnonce: &'a str,
}

impl DigestProof<'_> {
    fn response(&self) -> String {
        let (method, uri) = self.line.split_once(' ').unwrap();
        let (realm, nonce) =
            (parameter(self.challenge, "realm"), parameter(self.challenge, "nonce"));
        let ha1 = md5(format!("{}:{realm}:{}", self.person.name, self.person.password));
        let ha2 = md5(format!("{method}:{uri}"));
        md5(format!("{ha1}:{nonce}:{}:{}:auth:{ha2}", self.count, self.cnonce))
    }

    fn header(&self) -> String {
        let uri = self.line.split_once(' ').unwrap().1;
        let part = |name| parameter(self.challenge, name);
        format!(
            "Digest username=\"{}\", realm=\"{}\", nonce=\"{}\", uri=\"{uri}\", qop=auth, nc={}, cnonce=\"{}\", response=\"{}\", opaque=\"{}\"",
            self.person.name,
            part("realm"),
            part("nonce"),
            self.count,
            self.cnonce,
            self.response(),
            part("opaque")
        )
    }
}

/// The Digest line of the challenges for a path.
fn challenge(server: &Server, path: &str) -> String {
    let answer = ask(server, &format!("GET {path}"), None, "");
    assert_eq!(answer.status, 401, "{answer:?}");
    let lines = answer.all("WWW-Authenticate");
    lines.iter().find(|line| line.starts_with("Digest ")).unwrap().to_string()
}

fn proof<'a>(person: &'a Person, challenge: &'a str, line: &'a str) -> DigestProof<'a> {
    DigestProof { person, challenge, line, count: "00000001", cnonce: "0a4f113b" }
}

on_every_backend! {
    /// 5, flow 1 and 2. Without credentials: 401, with the scheme and the realm.
    fn s5_flow_1_and_2_challenge(backend: Backend) {
        let server = two_realms(backend);
        let guest = ask(&server, "GET /guests", None, "");
        assert_eq!((guest.status, guest.reason.as_str()), (401, "Unauthorized"));
        assert_eq!(guest.all("WWW-Authenticate"), [r#"Basic realm="front", charset="UTF-8""#]);
        let ledger = ask(&server, "GET /ledgers", None, "");
        assert_eq!(ledger.status, 401);
        let lines = ledger.all("WWW-Authenticate");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with(r#"Digest realm="back", "#), "{lines:?}");
    }

    /// 5, flow 2. Different resource groups have different realms; a nested resource has its parent's.
    fn s5_flow_2_realms(backend: Backend) {
        let server = two_realms(backend);
        let realm = |path: &str| ask(&server, &format!("GET {path}"), None, "").all("WWW-Authenticate").join(", ");
        assert!(realm("/guests").contains(r#"realm="front""#));
        assert!(realm("/ledgers").contains(r#"realm="back""#));
        let nested = realm("/ledgers/01890a5d-ac96-774b-bcce-b302099a8057/lines");
        assert!(nested.contains(r#"realm="back""#) && !nested.contains("front"), "{nested}");
    }

    /// 5, flow 3 and 4. The request repeated with credentials is answered normally.
    fn s5_flow_3_and_4_proof(backend: Backend) {
        let server = two_realms(backend);
        let admin = server.admin();
        assert_eq!(ask(&server, "GET /guests", Some(&admin.basic()), "").status, 200);
        let challenge = challenge(&server, "/ledgers");
        let answer = ask(&server, "GET /ledgers", Some(&proof(&admin, &challenge, "GET /ledgers").header()), "");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.header("Authentication-Info").unwrap().contains("rspauth="), "{answer:?}");
    }

    /// 5, flow 5. Wrong credentials: the challenge again.
    fn s5_flow_5_wrong_credentials(backend: Backend) {
        let server = two_realms(backend);
        let wrong = Person::new("admin", "not the password");
        let answer = ask(&server, "GET /guests", Some(&wrong.basic()), "");
        assert_eq!((answer.status, answer.all("WWW-Authenticate").len()), (401, 1), "{answer:?}");
        let first = challenge(&server, "/ledgers");
        let answer = ask(&server, "GET /ledgers", Some(&proof(&wrong, &first, "GET /ledgers").header()), "");
        assert_eq!(answer.status, 401);
        let again = answer.all("WWW-Authenticate").join("");
        assert_ne!(parameter(&again, "nonce"), parameter(&first, "nonce"));
        assert!(!again.contains("stale"), "{again}");
    }

    /// 5, Basic, rows 1 to 3. The challenge, the header, Base64 of `<username>:<password>`.
    fn s5_basic_rows_1_to_3(backend: Backend) {
        let server = two_realms(backend);
        let challenge = ask(&server, "GET /guests", None, "");
        assert!(challenge.all("WWW-Authenticate")[0].starts_with(r#"Basic realm="front""#));
        let admin = server.admin();
        let credentials = STANDARD.encode(format!("{}:{}", admin.name, admin.password));
        assert_eq!(ask(&server, "GET /guests", Some(&format!("Basic {credentials}")), "").status, 200);
        assert_eq!(ask(&server, "GET /guests", Some(&format!("basic {credentials}")), "").status, 200);
        for bad in ["Basic", "Basic ", "Basic !", "Basic YWRtaW4=", &format!("Basic {credentials}x")] {
            let answer = ask(&server, "GET /guests", Some(bad), "");
            assert_eq!(answer.status, 401, "{bad}: {answer:?}");
        }
    }

    /// 5, Digest, rows 1 and 3. The challenge has realm, qop, nonce and opaque.
    fn s5_digest_rows_1_to_3_challenge(backend: Backend) {
        let server = two_realms(backend);
        let first = challenge(&server, "/ledgers");
        assert_eq!(parameter(&first, "realm"), "back");
        assert_eq!(parameter(&first, "qop"), "auth");
        let (nonce, opaque) = (parameter(&first, "nonce"), parameter(&first, "opaque"));
        assert!(nonce.len() > 20 && !opaque.is_empty(), "{first}");
        assert_ne!(parameter(&challenge(&server, "/ledgers"), "nonce"), nonce);
    }

    /// 5, Digest, row 3. `nonce` and `opaque` come back unchanged or it is 401.
    fn s5_digest_row_3_unchanged(backend: Backend) {
        let server = two_realms(backend);
        let admin = server.admin();
        let challenge = challenge(&server, "/ledgers");
        let good = proof(&admin, &challenge, "GET /ledgers").header();
        for name in ["nonce", "opaque", "realm", "response"] {
            let value = if name == "response" {
                proof(&admin, &challenge, "GET /ledgers").response()
            } else {
                parameter(&challenge, name)
            };
            let last = value.chars().last().unwrap();
            let other = format!("{}{}", &value[..value.len() - last.len_utf8()], if last == 'a' { 'b' } else { 'a' });
            let bad = good.replace(&value, &other);
            assert_ne!(bad, good);
            assert_eq!(ask(&server, "GET /ledgers", Some(&bad), "").status, 401, "{name}");
        }
        assert_eq!(ask(&server, "GET /ledgers", Some(&good), "").status, 200);
    }

    /// 5, Digest, rows 4 to 6. Each parameter of the request is needed; `nc` has eight digits.
    fn s5_digest_rows_4_to_6_parameters(backend: Backend) {
        let server = two_realms(backend);
        let admin = server.admin();
        let challenge = challenge(&server, "/ledgers");
        let good = proof(&admin, &challenge, "GET /ledgers").header();
        for name in ["username", "realm", "nonce", "uri", "nc", "cnonce", "response", "opaque"] {
            let start = good.find(&format!("{name}=")).unwrap();
            let end = good[start..].find(", ").map_or(good.len(), |end| start + end + 2);
            let bad = format!("{}{}", &good[..start], &good[end..]);
            let status = ask(&server, "GET /ledgers", Some(bad.trim_end_matches(", ")), "").status;
            assert!(matches!(status, 400 | 401), "without {name}: {status}");
        }
        for count in ["1", "0000001", "000000001", "0000000g"] {
            let bad = DigestProof { count, ..proof(&admin, &challenge, "GET /ledgers") }.header();
            let status = ask(&server, "GET /ledgers", Some(&bad), "").status;
            assert!(matches!(status, 400 | 401), "nc={count}: {status}");
        }
        assert_eq!(ask(&server, "GET /ledgers", Some(&good), "").status, 200);
    }

    /// 5, Digest, row 6. A repeated nc is a replay; other ones are good, in any order.
    fn s5_digest_row_6_replay(backend: Backend) {
        let server = two_realms(backend);
        let admin = server.admin();
        let challenge = challenge(&server, "/ledgers");
        let body = r#"{"ledger":{"name":"one"}}"#;
        let counted = |count| DigestProof { count, ..proof(&admin, &challenge, "POST /ledgers") }.header();
        for count in ["00000005", "00000002", "0000ffff", "00000001"] {
            assert_eq!(ask(&server, "POST /ledgers", Some(&counted(count)), body).status, 201, "{count}");
        }
        let replay = ask(&server, "POST /ledgers", Some(&counted("00000002")), body);
        assert_eq!(replay.status, 401);
        assert!(replay.all("WWW-Authenticate").join("").contains("stale=true"), "{replay:?}");
        let list = ask(&server, "GET /ledgers", Some(&proof(&admin, &self::challenge(&server, "/ledgers"), "GET /ledgers").header()), "");
        assert_eq!(list.json()["ledgers"].as_array().unwrap().len(), 4);
    }

    /// 5, Digest, rows 7 to 9. MD5 by the formula; a mismatch is refused.
    fn s5_digest_rows_7_to_9_computation(backend: Backend) {
        let server = two_realms(backend);
        let admin = server.admin();
        let challenge = challenge(&server, "/ledgers");
        let other_method = proof(&admin, &challenge, "DELETE /ledgers").header();
        assert_eq!(ask(&server, "GET /ledgers", Some(&other_method), "").status, 401);
        let other_uri = proof(&admin, &challenge, "GET /guests").header();
        assert_eq!(ask(&server, "GET /ledgers", Some(&other_uri), "").status, 400);
        let with_query = proof(&admin, &challenge, "GET /ledgers?limit=1").header();
        assert_eq!(ask(&server, "GET /ledgers?limit=1", Some(&with_query), "").status, 200);
    }

    /// 7, row 2. 401 carries WWW-Authenticate, whatever is asked for.
    fn s7_row_2_unauthorized(backend: Backend) {
        let server = store(backend);
        for line in ["GET /", "GET /customers", "POST /customers", "GET /customers/1", "DELETE /customers/1",
            "PUT /customers/1/orders/1", "GET /-/users", "GET /-/metrics"] {
            let answer = ask(&server, line, None, if line.starts_with('P') { ANN } else { "" });
            assert_eq!(answer.status, 401, "{line}");
            assert_eq!(answer.all("WWW-Authenticate").len(), 2, "{line}: {answer:?}");
            assert_eq!(answer.problem(), "credentials-needed");
        }
    }

    /// 7, row 3. A known caller without the permission: 403.
    fn s7_row_3_forbidden(backend: Backend) {
        let server = two_realms(backend);
        let reader = Person::new("reader", "reads all day");
        server.add_user(&reader, &["reader"]);
        assert_eq!(ask(&server, "GET /guests", Some(&reader.basic()), "").status, 200);
        let refused = ask(&server, "POST /guests", Some(&reader.basic()), r#"{"guest":{"name":"x"}}"#);
        assert_eq!((refused.status, refused.reason.as_str()), (403, "Forbidden"));
        assert_eq!(refused.all("WWW-Authenticate").len(), 0);
        let challenge = challenge(&server, "/ledgers");
        let refused = ask(&server, "GET /ledgers", Some(&proof(&reader, &challenge, "GET /ledgers").header()), "");
        assert_eq!(refused.status, 403);
    }
}

/// 5, Basic, row 4. It is meant to run over HTTPS: without it, only on loopback.
#[test]
fn s5_basic_row_4_transport() {
    let folder = crate::harness::Folder::new();
    let ended = crate::harness::run_nouns(folder.path(), &["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("Basic"), "{ended:?}");
}
