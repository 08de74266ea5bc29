//! A private PostgreSQL for tests, and certificates for it.
//!
//! `openssl` makes the certificates, as operators do: it can also make those that rustls would not, such as
//! one of version 1.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};

use crate::log::{LogStyle, Logger};
use crate::metrics::Metrics;
use crate::model;
use crate::store::postgres;
use crate::store::postgres::connection_url::address::{LibpqEnvironment, PostgresUrl};
use crate::store::postgres::worker::PostgresStore;

static LOG: LazyLock<Logger> =
    LazyLock::new(|| Logger::start_to(LogStyle::Json, std::io::sink()).unwrap());

const WITH_POSTGRES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/with-postgres");

/// Host-based authentication: each user is named for how it is admitted.
const HBA_RULES: &str = "\
    local all all trust\n\
    hostssl all encrypted 127.0.0.1/32 trust\n\
    hostnossl all plain 127.0.0.1/32 trust\n\
    host all scram 127.0.0.1/32 scram-sha-256\n\
    host all md5 127.0.0.1/32 md5\n\
    hostssl all certified 127.0.0.1/32 cert\n\
    host all nouns,reader,lazy,remote,last,nobody 127.0.0.1/32 trust\n";

pub struct TestCluster {
    /// The process that stops the server when its standard input closes.
    supervisor: Child,
    pub folder: PathBuf,
    pub port: u16,
}

impl TestCluster {
    pub fn start() -> Self {
        let show = "echo \"$NOUNS_TEST_POSTGRES $NOUNS_TEST_POSTGRES_FOLDER\"; exec cat";
        let mut command = Command::new(WITH_POSTGRES);
        command.args(["sh", "-c", show]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let (address, folder) = line.trim_end().split_once(' ').expect("PostgreSQL did not start");
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        let cluster = Self { supervisor: process, folder: folder.into(), port };
        cluster.sql("ALTER SYSTEM SET synchronous_commit = on");
        for user in ["encrypted", "plain", "certified", "reader", "lazy", "remote", "last"] {
            cluster.sql(&format!("CREATE ROLE {user} LOGIN"));
        }
        cluster.sql("CREATE ROLE scram LOGIN PASSWORD 'right'");
        cluster.sql("SET password_encryption = md5; CREATE ROLE md5 LOGIN PASSWORD 'right'");
        fs::write(cluster.folder.join("data/pg_hba.conf"), HBA_RULES).unwrap();
        cluster
    }

    /// Runs a statement over the socket, where every user is trusted.
    pub fn sql(&self, text: &str) -> String {
        let mut command = Command::new("psql");
        command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-U", "nouns", "postgres"]);
        command.arg("-h").arg(&self.folder).args(["-p", &self.port.to_string()]);
        output(command.args(["-c", text])).trim_end().to_owned()
    }

    /// Opens a store with one resource and these settings.
    pub fn open(&self, settings: &str) -> Arc<PostgresStore> {
        let text = format!(
            "title = \"T\"\n[server]\n{settings}\n[resources.thing.fields]\nname = {{ type = \"text\" }}\n"
        );
        let model = Arc::new(model::read("nouns.toml", &text).unwrap());
        let address = format!("postgres://nouns@127.0.0.1:{}/postgres", self.port);
        let address = Arc::new(PostgresUrl::parse(&address, &LibpqEnvironment::default()).unwrap());
        postgres::worker::open(&address, &model, (&LOG, &Metrics::new(&model)), false).unwrap()
    }

    /// Restarts the server with this certificate, or without TLS. It listens again when this returns.
    pub fn serve(&self, certificate: Option<&str>) {
        self.sql(&format!(
            "ALTER SYSTEM SET ssl = {}",
            if certificate.is_some() { "on" } else { "off" }
        ));
        if let Some(name) = certificate {
            for (key, ending) in [("ssl_cert_file", "crt"), ("ssl_key_file", "key")] {
                let file = self.file(&format!("{name}.{ending}"));
                self.sql(&format!("ALTER SYSTEM SET {key} = '{}'", file.display()));
            }
            self.sql(&format!(
                "ALTER SYSTEM SET ssl_ca_file = '{}'",
                self.file("ca.crt").display()
            ));
        }
        self.restart("fast");
    }

    /// Stops the server with this `pg_ctl` mode, and starts it. It listens again when this returns.
    pub fn restart(&self, mode: &str) {
        output(Command::new(WITH_POSTGRES).args(["--restart", mode]).arg(&self.folder));
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn openssl(&self, words: &str) {
        output(Command::new("openssl").args(words.split(' ')).current_dir(&self.folder));
    }

    /// Makes a key and a self-signed certificate. `kind` is the key option of `openssl req`.
    pub fn self_sign(&self, name: &str, kind: &str, more: &str) {
        self.openssl(&format!(
            "req -x509 {kind} -nodes -subj /CN={name} -days 30 -keyout {name}.key -out {name}.crt{more}"
        ));
        self.restrict_to_postgres(name);
    }

    /// Makes a key and a certificate signed by `by`, with these extensions; without any it has version 1.
    pub fn sign(&self, by: &str, name: &str, kind: &str, more: &str) {
        self.openssl(&format!(
            "req -new {kind} -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA {by}.crt -CAkey {by}.key -CAcreateserial -out {name}.crt{more}"
        ));
        self.restrict_to_postgres(name);
    }

    /// Makes a key and an expired certificate. Only `openssl ca` can set the start date.
    pub fn sign_expired(&self, name: &str, kind: &str, by: &str) {
        self.write("index.txt", "");
        self.write(
            "ca.cnf",
            "[ca]\ndefault_ca = here\n\
             [here]\ndatabase = index.txt\nnew_certs_dir = .\npolicy = any\ndefault_md = sha256\nrand_serial = yes\n\
             [any]\ncommonName = supplied\n\
             [signed]\nsubjectAltName = DNS:localhost\n\
             [itself]\nsubjectAltName = DNS:localhost\nbasicConstraints = critical, CA:TRUE\n",
        );
        self.openssl(&format!(
            "req -new {kind} -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
        ));
        self.openssl(&format!(
            "ca -batch -notext -config ca.cnf {by} -startdate 20240101000000Z -enddate 20250101000000Z \
             -in {name}.csr -out {name}.crt"
        ));
        self.restrict_to_postgres(name);
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).unwrap();
    }

    /// PostgreSQL refuses a key that others can read, and may run as another user.
    fn restrict_to_postgres(&self, name: &str) {
        let owner = fs::metadata(&self.folder).unwrap();
        for ending in ["key", "crt"] {
            let file = self.file(&format!("{name}.{ending}"));
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
    }

    /// Masks the parts that differ from run to run.
    pub fn mask(&self, text: &str) -> String {
        text.replace(self.folder.to_str().unwrap(), "FOLDER")
            .replace(&format!(":{}", self.port), ":PORT")
            .replace(&format!(".PGSQL.{}", self.port), ".PGSQL.PORT")
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        drop(self.supervisor.wait());
    }
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether a certificate has version 1, which newer versions of openssl no longer make.
pub fn is_of_version_1(certificate: &Path) -> bool {
    let mut command = Command::new("openssl");
    let text = output(command.args(["x509", "-noout", "-text", "-in"]).arg(certificate));
    text.contains("Version: 1 ")
}
