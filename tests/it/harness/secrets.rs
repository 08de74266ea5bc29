//! The search for leaked secrets: passwords, keys, the HA1 values that stand for passwords, and secrets of webhooks,
//! which one response may contain.
//!
//! The harness records every secret that a test sends or a server creates; it searches every response,
//! and when a server ends its log, its arguments, its database and all its files.
//! So each test looks for leaks, whatever else it is about.
//! Secrets belong to a database, since replicas and restarts share them.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use regex::bytes::Regex;
use sha2::{Digest as _, Sha256};

use super::postgres::AdminConnection;
use super::{Answer, Backend, Process, md5};

/// Shorter secrets would be found by chance.
const BYTES_MIN: usize = 7;
/// The beginning of a long secret is enough.
const BYTES_MAX: usize = 64;
/// Whether a secret may be in the file of this name.
fn may_contain_secrets(name: &str) -> bool {
    name == "nouns.key" || is_password_file(name)
}

/// The first start on a database creates it, and names it after the database.
fn is_password_file(name: &str) -> bool {
    let is_temporary = name.contains(".admin-password.") && name.ends_with(".new");
    is_temporary || name.ends_with(".admin-password")
}

/// The secrets of one database.
#[derive(Debug, Default)]
pub struct Secrets(Mutex<KnownSecrets>);

#[derive(Debug, Default)]
struct KnownSecrets {
    /// Names and passwords.
    people: Vec<(String, String)>,
    realms: Vec<String>,
    /// Secrets of webhooks that were sent: the response to the same request contains them.
    sent_webhook_secrets: Vec<String>,
    /// The description of each secret, and one of its forms.
    needles: Vec<(String, Vec<u8>)>,
    /// One expression for all forms.
    compiled: Option<Regex>,
}

static BY_DATABASE: LazyLock<Mutex<HashMap<String, Arc<Secrets>>>> = LazyLock::new(Mutex::default);
static BY_SERVER: LazyLock<Mutex<HashMap<SocketAddr, Arc<Secrets>>>> =
    LazyLock::new(Mutex::default);

impl Secrets {
    /// The secrets of the database with this URL.
    pub fn of_database(database: &str) -> Arc<Self> {
        Arc::clone(lock_ignoring_poison(&BY_DATABASE).entry(database.to_owned()).or_default())
    }

    /// The secrets of the database of the server at this address.
    pub fn of_server(server: SocketAddr) -> Option<Arc<Self>> {
        lock_ignoring_poison(&BY_SERVER).get(&server).cloned()
    }

    pub fn register_server(self: &Arc<Self>, server: SocketAddr) {
        lock_ignoring_poison(&BY_SERVER).insert(server, Arc::clone(self));
    }

    pub fn learn_person(&self, name: &str, password: &str) {
        let mut known = lock_ignoring_poison(&self.0);
        let pair = (name.to_owned(), password.to_owned());
        if password.len() < BYTES_MIN || known.people.contains(&pair) {
            return;
        }
        let what = format!("the password of {name}");
        let quoted = |text: String| text.as_bytes()[1..text.len() - 1].to_vec();
        known.add(&what, password.as_bytes().to_vec());
        known.add(&what, quoted(serde_json::Value::from(password).to_string()));
        known.add(&what, quoted(format!("{password:?}")));
        known.add(&what, hex(password.as_bytes()).into_bytes());
        known.add(&what, STANDARD_NO_PAD.encode(password).into_bytes());
        known.add(&what, STANDARD_NO_PAD.encode(format!("{name}:{password}")).into_bytes());
        for realm in known.realms.clone() {
            known.add_hashes(&pair, &realm);
        }
        known.people.push(pair);
    }

    pub fn learn_realm(&self, realm: &str) {
        let mut known = lock_ignoring_poison(&self.0);
        if known.realms.iter().any(|other| other == realm) {
            return;
        }
        for pair in known.people.clone() {
            known.add_hashes(&pair, realm);
        }
        known.realms.push(realm.to_owned());
    }

    /// Records the keys of a key file, one key a line.
    pub fn learn_keys(&self, text: &str) {
        let mut known = lock_ignoring_poison(&self.0);
        for key in text.lines().map(str::trim).filter(|key| !key.is_empty()) {
            let Ok(raw) = STANDARD.decode(key) else { continue };
            known.add("a key", key.trim_end_matches('=').as_bytes().to_vec());
            known.add("a key", hex(&raw).into_bytes());
            known.add("a key", raw);
        }
    }

    /// Records the secrets that a server has created at its start, or since.
    pub fn learn_files(&self, key_file: &Path) {
        if let Ok(text) = fs::read_to_string(key_file) {
            self.learn_keys(&text);
        }
        for path in files(key_file.parent().unwrap_or(Path::new("."))) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if let (true, Ok(text)) = (is_password_file(&name), fs::read_to_string(&path)) {
                self.learn_person("admin", text.trim_end());
            }
        }
    }

    /// Records Basic credentials, and the passwords in a body.
    pub fn learn_request(&self, bytes: &[u8]) {
        static BASIC: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"(?im)^authorization:\s*basic\s+([0-9a-z+/=]+)").unwrap());
        static PASSWORD: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r#""password"\s*:\s*("(?:[^"\\]|\\.)*")"#).unwrap());
        static NAME: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r#""name"\s*:\s*("(?:[^"\\]|\\.)*")"#).unwrap());
        for found in BASIC.captures_iter(bytes) {
            let pair =
                STANDARD.decode(&found[1]).ok().and_then(|pair| String::from_utf8(pair).ok());
            if let Some((name, password)) = pair.as_deref().and_then(|pair| pair.split_once(':')) {
                self.learn_person(name, password);
            }
        }
        let webhook_secrets = find_webhook_secrets(bytes);
        lock_ignoring_poison(&self.0).sent_webhook_secrets.extend(webhook_secrets);
        let text = |json: &[u8]| serde_json::from_slice::<String>(json).ok();
        for password in PASSWORD.captures_iter(bytes).filter_map(|found| text(&found[1])) {
            for name in NAME.captures_iter(bytes).filter_map(|found| text(&found[1])) {
                self.learn_person(&name, &password);
            }
            self.learn_person("somebody", &password);
        }
    }

    /// Fails when a response contains a secret.
    pub fn check_answer(&self, answer: &Answer) {
        static REALM: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r#"\brealm="([^"]*)""#).unwrap());
        for line in answer.all("WWW-Authenticate") {
            for found in REALM.captures_iter(line.as_bytes()) {
                self.learn_realm(&String::from_utf8_lossy(&found[1]));
            }
        }
        let headers = answer.headers.iter().flat_map(|(name, value)| [name, ": ", value, "\n"]);
        self.check("the headers of an answer", headers.collect::<String>().as_bytes());
        // A stored response is the same again.
        if answer.header("Idempotent-Replayed").is_none() {
            self.check("the body of an answer", &answer.body);
        }
        let mut known = lock_ignoring_poison(&self.0);
        let mut shown = std::mem::take(&mut known.sent_webhook_secrets);
        shown.extend(find_webhook_secrets(&answer.body));
        for secret in shown {
            known.add_webhook_secret(&secret);
        }
    }

    /// Fails when some bytes contain a secret.
    pub fn check(&self, place: &str, bytes: &[u8]) {
        if let Some(what) = self.find(bytes) {
            panic!("{what} is in {place}: {}", String::from_utf8_lossy(bytes));
        }
    }

    /// The secret that some bytes contain.
    pub fn find(&self, bytes: &[u8]) -> Option<String> {
        let mut known = lock_ignoring_poison(&self.0);
        if known.needles.is_empty() {
            return None;
        }
        let found = known.compile_expression().find(bytes)?;
        let is_it = |(_, needle): &&(String, Vec<u8>)| needle == found.as_bytes();
        known.needles.iter().find(is_it).map(|(what, _)| what.clone())
    }

    pub fn is_empty(&self) -> bool {
        lock_ignoring_poison(&self.0).needles.is_empty()
    }

    /// For tests that plant a secret.
    pub fn clear(&self) {
        *lock_ignoring_poison(&self.0) = KnownSecrets::default();
    }
}

impl KnownSecrets {
    fn add(&mut self, what: &str, mut needle: Vec<u8>) {
        needle.truncate(BYTES_MAX);
        if !self.needles.iter().any(|(_, known)| *known == needle) {
            self.needles.push((what.to_owned(), needle));
            self.compiled = None;
        }
    }

    /// Without the prefix `whsec_`.
    fn add_webhook_secret(&mut self, secret: &str) {
        let what = "the secret of a webhook";
        self.add(what, secret.trim_end_matches('=').as_bytes().to_vec());
        if let Ok(raw) = STANDARD.decode(secret) {
            self.add(what, hex(&raw).into_bytes());
            self.add(what, raw);
        }
    }

    /// RFC 7616 §3.4.2, by both algorithms.
    fn add_hashes(&mut self, (name, password): &(String, String), realm: &str) {
        let text = format!("{name}:{realm}:{password}");
        let what = format!("the HA1 of {name} in {realm}");
        let of_md5: Vec<u8> = hex_decode(&md5(&text));
        for hash in [of_md5, Sha256::digest(&text).to_vec()] {
            self.add(&what, hex(&hash).into_bytes());
            self.add(&what, hex(&hash).to_uppercase().into_bytes());
            self.add(&what, STANDARD_NO_PAD.encode(&hash).into_bytes());
            self.add(&what, hash);
        }
    }

    fn compile_expression(&mut self) -> Regex {
        let made = self.compiled.get_or_insert_with(|| {
            let byte = |byte: &u8| format!("\\x{byte:02x}");
            let forms = self.needles.iter().map(|(_, needle)| needle.iter().map(byte).collect());
            Regex::new(&format!("(?s-u){}", forms.collect::<Vec<String>>().join("|"))).unwrap()
        });
        made.clone()
    }
}

/// The secrets of webhooks in some bytes, without their prefix.
fn find_webhook_secrets(bytes: &[u8]) -> Vec<String> {
    static SECRET: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"whsec_([0-9A-Za-z+/=]{32,})").unwrap());
    let found = SECRET.captures_iter(bytes);
    found.map(|found| String::from_utf8_lossy(&found[1]).into_owned()).collect()
}

/// Ignores poisoning: the state that a failed test has left is good enough for the others.
fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex_decode(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|two| str::from_utf8(two).unwrap());
    digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect()
}

/// Searches everything that a server leaves when it is dropped: after the process, before the folder.
#[derive(Debug)]
pub struct LeakSearch {
    pub secrets: Arc<Secrets>,
    backend: Backend,
    database: String,
    folder: PathBuf,
    key_file: PathBuf,
    /// The process's arguments, which every user of the machine can read.
    arguments: Vec<u8>,
    output: [Arc<Mutex<String>>; 2],
}

impl LeakSearch {
    /// For a running process, with its folder and its key file.
    pub fn new(
        process: &Process,
        backend: Backend,
        database: &str,
        (folder, key_file): (&Path, PathBuf),
    ) -> Self {
        let secrets = Secrets::of_database(database);
        secrets.learn_files(&key_file);
        let arguments = format!("/proc/{}/cmdline", process.child.id());
        Self {
            secrets,
            backend,
            database: database.to_owned(),
            folder: folder.to_owned(),
            key_file,
            arguments: fs::read(arguments).unwrap_or_default(),
            output: [Arc::clone(&process.stdout), Arc::clone(&process.stderr)],
        }
    }

    /// Each secret that was found, with its location.
    pub fn findings(&self) -> Vec<String> {
        self.secrets.learn_files(&self.key_file);
        if self.secrets.is_empty() {
            return Vec::new();
        }
        let mut places = vec![("the arguments".to_owned(), self.arguments.clone())];
        for (name, text) in ["standard output", "the log"].iter().zip(&self.output) {
            places.push(((*name).to_owned(), lock_ignoring_poison(text).clone().into_bytes()));
        }
        for path in files(&self.folder) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !may_contain_secrets(&name) {
                places.push((name, fs::read(&path).unwrap_or_default()));
            }
        }
        if self.backend == Backend::Postgres {
            places.push(("the database".to_owned(), dump_database(&self.database)));
        }
        let found = places.iter().filter_map(|(place, bytes)| {
            self.secrets.find(bytes).map(|what| format!("{what} is in {place}"))
        });
        found.collect()
    }
}

impl Drop for LeakSearch {
    fn drop(&mut self) {
        // A test that fails already says why.
        if !thread::panicking() {
            let findings = self.findings();
            assert!(findings.is_empty(), "{findings:#?}");
        }
    }
}

/// The regular files of a folder, which may be gone.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_file()).collect()
}

/// All rows of all tables. Empty where the database is gone, or locked by the test.
pub fn dump_database(database: &str) -> Vec<u8> {
    let dump = "SET statement_timeout = 10000; SET lock_timeout = 2000; \
                SELECT database_to_xml(true, false, '')";
    let rows = AdminConnection::open(database).and_then(|connection| connection.query(dump));
    rows.unwrap_or_default().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_in_every_form() {
        let secrets = Secrets::default();
        assert_eq!(secrets.find(b"Circle of Life"), None, "nothing is known yet");
        secrets.learn_realm("store");
        secrets.learn_person("ann", "Circle of \"Life\"");
        secrets.learn_person("ann", "Circle of Life");
        secrets.learn_realm("other");
        secrets.learn_keys("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n");
        for form in [
            "Circle of Life",
            r#"Circle of \"Life\""#,
            "Q2lyY2xlIG9mIExpZmU=",
            "436972636c65206f66204c696665",
            // By `printf %s ann:Circle of Life | base64`, `md5sum` and `sha256sum`.
            "YW5uOkNpcmNsZSBvZiBMaWZl",
            "695b48c6d2ff6d326451f49f89f54be2",
            "695B48C6D2FF6D326451F49F89F54BE2",
            "4c512ed88e1ac6541366918149e86159a88973746ae8d7d83142ab63c62fdd58",
            "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE",
        ] {
            assert!(secrets.find(format!("a {form} b").as_bytes()).is_some(), "{form}");
        }
        let ha1 = hex_decode("695b48c6d2ff6d326451f49f89f54be2");
        assert_eq!(secrets.find(&ha1).as_deref(), Some("the HA1 of ann in store"));
        assert!(secrets.find(STANDARD.encode(&ha1).as_bytes()).is_some());
        assert!(secrets.find(&[1; 32]).is_some());
        assert_eq!(secrets.find(b"ann, Circle of Li fe, /customers"), None);
    }

    #[test]
    fn secrets_in_requests_are_recorded() {
        let secrets = Secrets::default();
        secrets.learn_request(
            b"GET / HTTP/1.1\r\nauthorization: basic YW5uOkNpcmNsZSBvZiBMaWZl\r\n\r\n",
        );
        assert!(secrets.find(b"Circle of Life").is_some());
        secrets.learn_request(br#"{"user":{"name":"bob","password" : "tea \"at\" ten"}}"#);
        assert!(secrets.find(b"tea \"at\" ten").is_some());
        secrets.learn_realm("x");
        assert!(secrets.find(md5("bob:x:tea \"at\" ten").as_bytes()).is_some());
    }
}
