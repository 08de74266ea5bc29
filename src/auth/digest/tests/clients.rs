//! Two other implementations as Digest clients: the crate `http-auth`, and one in Python.
//!
//! They answer our challenges with random names, passwords and targets. The server accepts their credentials,
//! and refuses them after a change of any byte, unless the changed text has the same meaning.

use std::io::Write;
use std::process::{Command, Stdio};

use http_auth::{PasswordClient, PasswordParams};
use serde_json::{Value, json};

use super::*;
use crate::auth::challenge::Challenges;
use crate::auth::nonce::Nonces;
use crate::auth::parameters;

const REQUESTS: usize = 10_000;
const NOW: i64 = 1_800_000_000;

/// A deterministic random number generator.
struct SeededRandom(u64);

impl SeededRandom {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 1).unwrap() % limit.max(1)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn text(&mut self, letters: &[&str], least: usize, most: usize) -> String {
        let length = least + self.below(most - least + 1);
        (0..length).map(|_| self.pick(letters)).collect()
    }
}

const LETTERS: &[&str] =
    &["a", "Z", "0", " ", "\"", "\\", ",", "=", "ä", "ø", "日", "€", "😀", ";", "%"];
const WORDS: &[&str] = &["a", "customers", "0", "%20", "~", "-", "/", "é", ";", "(", ")"];

/// A request to authenticate, and the server that challenges it.
struct ChallengedRequest {
    realm: Realm,
    name: String,
    password: String,
    method: &'static str,
    target: String,
    nonces: Nonces,
    nonce: String,
}

impl ChallengedRequest {
    fn random(numbers: &mut SeededRandom) -> Self {
        let mut key = [0; 32];
        key.iter_mut().for_each(|byte| *byte = numbers.next().to_be_bytes()[0]);
        let nonces = Nonces::new(&[key]).unwrap();
        let mut random = [0; 6];
        random.iter_mut().for_each(|byte| *byte = numbers.next().to_be_bytes()[0]);
        let mut realm = realm(numbers.pick(&["store", "two words", "a, b=c", "Bücher"]));
        let algorithms: [&[Algorithm]; 3] =
            [&[Algorithm::Sha256, Algorithm::Md5], &[Algorithm::Md5], &[Algorithm::Sha256]];
        realm.algorithms = numbers.pick(&algorithms).to_vec();
        realm.challenge = numbers.pick(&[ChallengeForm::Merged, ChallengeForm::Separate]);
        let query = numbers.pick(&["", "?limit=1", "?a=%22&b"]);
        Self {
            realm,
            name: numbers.text(LETTERS, 1, 12),
            password: numbers.text(&[LETTERS, &[":"]].concat(), 0, 20),
            method: numbers.pick(&["GET", "POST", "PUT", "PATCH", "DELETE"]),
            target: format!("/{}{query}", numbers.text(WORDS, 0, 8)),
            nonce: nonces.issue(numbers.next(), NOW, random),
            nonces,
        }
    }

    /// Whether the server accepts the credentials.
    fn accepts(&self, header: &[u8], body: &[u8]) -> bool {
        let Some((AuthScheme::Digest, rest)) = parameters::split_scheme(header) else {
            return false;
        };
        let Ok(proof) = read(rest) else { return false };
        let target = DigestTarget { text: &self.target, host: "localhost:8080" };
        let opaques = self.nonces.opaques(&self.realm.name);
        let Ok(algorithm) = proof.check_scope(&self.realm, &opaques, &target) else { return false };
        let is_user = match &proof.user {
            DigestUsername::Name(name) => **name == *self.name,
            DigestUsername::Hash(sent) => userhash(algorithm, &self.name, &self.realm.name)
                .equals_constant_time(sent.as_bytes()),
        };
        let body_hash = proof.covers_body().then(|| hash_bytes(algorithm, body));
        is_user
            && self.nonces.read(&proof.nonce, NOW + 1).is_ok()
            && proof.verify(&self.ha1(algorithm), self.method, body_hash.as_ref())
    }

    fn ha1(&self, algorithm: Algorithm) -> Ha1 {
        ha1(algorithm, &self.name, &self.realm.name, &self.password)
    }

    /// The server refuses the credentials after a change of any byte, unless the meaning stays the same.
    fn refuses_changes(&self, header: &[u8], body: &[u8], numbers: &mut SeededRandom) {
        let mut changed = header.to_vec();
        let at = numbers.below(changed.len());
        changed[at] ^= 1 << numbers.below(8);
        let is_same = matches!(
            (parameters::split_scheme(&changed), parameters::split_scheme(header)),
            (Some((AuthScheme::Digest, changed)), Some((_, sent)))
                if read(changed).is_ok_and(|proof| Ok(proof) == read(sent))
        );
        let shown = String::from_utf8_lossy(&changed);
        assert_eq!(self.accepts(&changed, body), is_same, "{shown}");
    }
}

#[test]
fn digest_requests_of_http_auth_are_accepted_and_changed_ones_refused() {
    let mut numbers = SeededRandom(1);
    for number in 0..REQUESTS {
        let mut asked = ChallengedRequest::random(&mut numbers);
        // The client sends only ASCII in quotes; it can encode other characters in names, but not in realms.
        if !asked.realm.name.is_ascii() {
            asked.realm.name = "store".into();
        }
        asked.target.retain(|letter| letter.is_ascii());
        let opaque = &asked.nonces.opaques(&asked.realm.name)[0];
        let mut client = PasswordClient::builder();
        for line in
            Challenges::new(&asked.realm, opaque).lines(&asked.nonce, numbers.below(2) == 0, true)
        {
            client = client.challenges(str::from_utf8(line.as_bytes()).unwrap());
        }
        let mut client = client.build().unwrap_or_else(|error| panic!("{number}: {error}"));
        for _ in 0..=numbers.below(3) {
            let sent = client.respond(&PasswordParams {
                username: &asked.name,
                password: &asked.password,
                uri: &asked.target,
                method: asked.method,
                body: None,
            });
            let sent = sent.unwrap_or_else(|error| panic!("{number}: {error}"));
            assert!(asked.accepts(sent.as_bytes(), b""), "{number}: {sent}");
            asked.refuses_changes(sent.as_bytes(), b"", &mut numbers);
        }
    }
}

/// Runs the client in Python once, with a line of JSON for each request and for each response.
fn answers(requests: &[Value]) -> Vec<Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/digest-client.py");
    let mut python = Command::new("python3")
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("python3: {error}"));
    let lines: String = requests.iter().map(|request| format!("{request}\n")).collect();
    // The client reads all of its input before it writes anything.
    python.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn digest_requests_of_python_are_accepted_and_changed_ones_refused() {
    let mut numbers = SeededRandom(2);
    let (mut requests, mut all) = (Vec::new(), Vec::new());
    for seed in 0..REQUESTS {
        let mut asked = ChallengedRequest::random(&mut numbers);
        asked.realm.legacy = asked.realm.algorithms.contains(&Algorithm::Md5);
        let opaque = asked.nonces.opaques(&asked.realm.name).remove(0);
        let lines = Challenges::new(&asked.realm, &opaque).lines(&asked.nonce, false, true);
        let lines: Vec<_> =
            lines.iter().map(|line| str::from_utf8(line.as_bytes()).unwrap()).collect();
        let (body, answer) = (numbers.text(LETTERS, 0, 30), numbers.text(LETTERS, 0, 30));
        requests.push(json!({
            "seed": seed, "challenges": lines, "name": asked.name, "password": asked.password,
            "method": asked.method, "target": asked.target, "body": body, "answer": answer,
            "legacy": asked.realm.legacy,
        }));
        all.push((asked, body, answer));
    }
    let answers = answers(&requests);
    assert_eq!(answers.len(), REQUESTS);
    let mut kinds = std::collections::BTreeMap::<String, usize>::new();
    for ((asked, body, answer), sent) in all.iter().zip(&answers) {
        let bytes: Vec<u8> = serde_json::from_value(sent["authorization"].clone()).unwrap();
        let shown = String::from_utf8_lossy(&bytes);
        assert!(asked.accepts(&bytes, body.as_bytes()), "{shown}");
        asked.refuses_changes(&bytes, body.as_bytes(), &mut numbers);
        let proof = read(parameters::split_scheme(&bytes).unwrap().1).unwrap();
        let algorithm = proof.algorithm.unwrap();
        if proof.covers_body() {
            let other = format!("{body} ");
            assert!(!asked.accepts(&bytes, other.as_bytes()), "{shown}");
        }
        let body_hash = hash_bytes(algorithm, answer.as_bytes());
        let info = proof
            .with_ha1(&asked.ha1(algorithm))
            .unwrap()
            .authentication_info(Some(&body_hash), Some("next"));
        assert_eq!(info.as_deref(), sent["information"].as_str(), "{shown}");
        *kinds.entry(sent["kind"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert!(kinds.len() >= 20 && kinds.values().all(|count| *count >= 20), "{kinds:#?}");
}
