//! Challenges: the `WWW-Authenticate` lines of a realm.
//!
//! They are written in the form that most clients understand. All challenges of one response share a nonce
//! and an `opaque`, because many clients combine parameters of different challenges. Lines are built in
//! advance except for the nonce, since challenges are most of the cost of a flood of anonymous requests. When
//! a header line has several challenges, only the last has `charset`. wget 1.21 crashes if a
//! `WWW-Authenticate` line of 256 bytes or more is followed by another, so the line with both Digest
//! challenges has at most 255 bytes if the realm name has at most eight. `stale=true` may make it longer,
//! which is harmless: wget never reuses a nonce, so it never gets `stale=true`.

use http::HeaderValue;

use super::digest::qop_text;
use crate::fault::OrBug;
use crate::model::{Algorithm, AuthScheme, ChallengeForm, Realm};

/// The lines of one realm.
#[derive(Debug)]
pub struct Challenges {
    lines: Vec<ChallengeLine>,
}

#[derive(Debug)]
enum ChallengeLine {
    /// The complete line, which is the same in each response.
    Basic(HeaderValue),
    /// Digest challenges: the text before each nonce, and the `opaque` after it.
    Digest { heads: Vec<String>, opaque: Box<str> },
}

impl Challenges {
    pub fn new(realm: &Realm, opaque: &str) -> Self {
        let mut lines = Vec::new();
        for scheme in &realm.schemes {
            match scheme {
                AuthScheme::Basic => {
                    let line = format!("Basic realm=\"{}\", charset=\"UTF-8\"", realm.name);
                    lines.push(ChallengeLine::Basic(header_value(line)));
                }
                AuthScheme::Digest => {
                    let opaque: Box<str> = format!("\", opaque=\"{opaque}\"").into();
                    let heads =
                        realm.algorithms.iter().map(|algorithm| digest_prefix(realm, *algorithm));
                    match realm.challenge {
                        ChallengeForm::Merged => {
                            lines.push(ChallengeLine::Digest { heads: heads.collect(), opaque });
                        }
                        ChallengeForm::Separate => {
                            lines.extend(heads.map(|head| ChallengeLine::Digest {
                                heads: vec![head],
                                opaque: opaque.clone(),
                            }));
                        }
                    }
                }
            }
        }
        Self { lines }
    }

    /// `is_stale`: only the nonce was wrong, so that the client need not prompt its user again. Only a
    /// private connection is offered Basic, which sends the password in clear.
    pub fn lines(&self, nonce: &str, is_stale: bool, is_private: bool) -> Vec<HeaderValue> {
        let is_offered =
            |line: &&ChallengeLine| is_private || !matches!(line, ChallengeLine::Basic(_));
        self.lines.iter().filter(is_offered).map(|line| line.render(nonce, is_stale)).collect()
    }
}

impl ChallengeLine {
    fn render(&self, nonce: &str, is_stale: bool) -> HeaderValue {
        let (heads, opaque) = match self {
            Self::Basic(line) => return line.clone(),
            Self::Digest { heads, opaque } => (heads, opaque),
        };
        let mut line = String::with_capacity(heads.len() * 160);
        for head in heads {
            if !line.is_empty() {
                line.push_str(", ");
            }
            line.push_str(head);
            line.push_str(nonce);
            line.push_str(opaque);
            if is_stale {
                line.push_str(", stale=true");
            }
        }
        line.push_str(", charset=UTF-8");
        header_value(line)
    }
}

// RFC 7616 §3.3: realm, nonce, opaque and qop are quoted, algorithm and stale are not.
fn digest_prefix(realm: &Realm, algorithm: Algorithm) -> String {
    let algorithm = match algorithm {
        Algorithm::Md5 => "MD5",
        Algorithm::Sha256 => "SHA-256",
    };
    let qop: Vec<&str> = realm.qop.iter().map(|qop| qop_text(*qop)).collect();
    let (name, qop) = (&realm.name, qop.join(","));
    format!("Digest realm=\"{name}\", qop=\"{qop}\", algorithm={algorithm}, nonce=\"")
}

fn header_value(line: String) -> HeaderValue {
    HeaderValue::try_from(line.into_bytes())
        .or_bug("the model check refuses names that no header can hold")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::super::nonce::{self, Nonces};
    use super::*;

    fn check(realm: &str, is_stale: bool, expected: &Expect) {
        let text = format!("title = \"T\"\n[realms.x]\n{realm}\n[resources.thing]\n");
        let model = crate::model::read("nouns.toml", &text).unwrap();
        let challenges = Challenges::new(&model.realms[0], "OPAQUE");
        let lines = challenges.lines("NONCE", is_stale, true);
        let lines: Vec<&str> = lines.iter().map(|line| line.to_str().unwrap()).collect();
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn challenge_has_the_form_that_the_realm_declares() {
        check(
            "",
            false,
            &expect![[r#"
            Digest realm="x", qop="auth", algorithm=SHA-256, nonce="NONCE", opaque="OPAQUE", Digest realm="x", qop="auth", algorithm=MD5, nonce="NONCE", opaque="OPAQUE", charset=UTF-8
            Basic realm="x", charset="UTF-8""#]],
        );
        check(
            "challenge = \"separate\"",
            true,
            &expect![[r#"
            Digest realm="x", qop="auth", algorithm=SHA-256, nonce="NONCE", opaque="OPAQUE", stale=true, charset=UTF-8
            Digest realm="x", qop="auth", algorithm=MD5, nonce="NONCE", opaque="OPAQUE", stale=true, charset=UTF-8
            Basic realm="x", charset="UTF-8""#]],
        );
        check("schemes = [\"basic\"]", true, &expect![[r#"Basic realm="x", charset="UTF-8""#]]);
        check(
            "schemes = [\"digest\"]\nalgorithms = [\"md5\"]\nqop = [\"auth\", \"auth-int\"]",
            false,
            &expect![[
                r#"Digest realm="x", qop="auth,auth-int", algorithm=MD5, nonce="NONCE", opaque="OPAQUE", charset=UTF-8"#
            ]],
        );
        check(
            "schemes = [\"basic\", \"digest\"]",
            true,
            &expect![[r#"
            Basic realm="x", charset="UTF-8"
            Digest realm="x", qop="auth", algorithm=SHA-256, nonce="NONCE", opaque="OPAQUE", stale=true, Digest realm="x", qop="auth", algorithm=MD5, nonce="NONCE", opaque="OPAQUE", stale=true, charset=UTF-8"#]],
        );
    }

    /// wget 1.21 crashes on a longer line.
    #[test]
    fn challenge_first_line_fits_into_255_bytes_for_short_realms() {
        let nonces = Nonces::new(&[[7; 32]]).unwrap();
        let nonce = nonces.issue(u64::MAX, i64::from(u32::MAX), [0xff; 6]);
        assert_eq!(nonce.len(), nonce::TEXT_BYTES);
        for length in 1..=8 {
            let name = "r".repeat(length);
            let text = format!("title = \"T\"\n[realms.{name}]\n[resources.thing]\n");
            let model = crate::model::read("nouns.toml", &text).unwrap();
            let challenges = Challenges::new(&model.realms[0], &nonces.opaques(&name)[0]);
            let lines = challenges.lines(&nonce, false, true);
            assert!(lines[0].to_str().unwrap().contains("SHA-256"), "{lines:?}");
            assert!(lines[0].to_str().unwrap().contains("MD5"), "{lines:?}");
            assert!(lines[0].len() <= 255, "{} bytes: {lines:?}", lines[0].len());
        }
    }

    #[test]
    fn challenge_without_tls_omits_basic() {
        let check = |schemes: &str, expected: usize| {
            let text = format!("title = \"T\"\n[realms.x]\n{schemes}\n[resources.thing]\n");
            let model = crate::model::read("nouns.toml", &text).unwrap();
            let lines = Challenges::new(&model.realms[0], "OPAQUE").lines("NONCE", false, false);
            assert_eq!(lines.len(), expected, "{schemes}");
            assert!(lines.iter().all(|line| line.as_bytes().starts_with(b"Digest ")));
        };
        check("", 1);
        check("challenge = \"separate\"", 2);
        check("schemes = [\"basic\"]", 0);
    }

    #[test]
    fn challenge_realm_of_any_letters_is_sent_as_utf8() {
        let text = "title = \"T\"\n[realms.\"Bücher, 本\"]\n[resources.thing]\n";
        let model = crate::model::read("nouns.toml", text).unwrap();
        let challenges = Challenges::new(&model.realms[0], "OPAQUE");
        let lines = challenges.lines("NONCE", false, true);
        assert_eq!(lines.len(), 2);
        let basic = "Basic realm=\"Bücher, 本\", charset=\"UTF-8\"";
        assert_eq!(lines[1].as_bytes(), basic.as_bytes());
    }
}
