//! Each `sslmode` against each kind of server certificate.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::*;
use crate::store::postgres::connect::tests::cluster::{TestCluster, is_of_version_1};

const EC: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256";
const RSA: &str = "-newkey rsa:2048";

/// The signer, the name of the certificate, and the hash.
const HASHES: [(&str, &str, &str); 5] = [
    ("ca", "ec-sha384", "sha384"),
    ("ca", "ec-sha512", "sha512"),
    ("rsa-ca", "rsa-sha256", "sha256"),
    ("rsa-ca", "rsa-sha384", "sha384"),
    ("rsa-ca", "rsa-sha512", "sha512"),
];

/// The TLS version of the current connection.
const ENCRYPTED: &str =
    "SELECT coalesce(version, 'plain') FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

fn cluster_with_certificates() -> TestCluster {
    let cluster = TestCluster::start();
    cluster.write("names", "subjectAltName = DNS:localhost, IP:127.0.0.1\n");
    cluster.write("other", "subjectAltName = DNS:db.example.com\n");
    cluster.write("none", "basicConstraints = CA:FALSE\n");
    cluster.self_sign("ca", EC, "");
    cluster.self_sign("stranger-ca", EC, "");
    cluster.self_sign("itself", EC, " -addext subjectAltName=DNS:localhost");
    cluster.sign("ca", "good", EC, " -days 30 -extfile names");
    cluster.sign("ca", "another-name", EC, " -days 30 -extfile other");
    cluster.sign("ca", "localhost", EC, " -days 30 -extfile none");
    cluster.sign("ca", "version-1", EC, " -days 30");
    cluster.sign("stranger-ca", "stranger", EC, " -days 30 -extfile names");
    cluster.self_sign("rsa-ca", RSA, "");
    // The signer's key decides the signature algorithm, not the signed key.
    for (by, name, hash) in HASHES {
        cluster.sign(by, name, EC, &format!(" -days 30 -{hash} -extfile names"));
    }
    cluster.sign("ca", "certified", EC, " -days 30 -extfile none");
    cluster.sign_expired("expired", EC, "-cert ca.crt -keyfile ca.key -extensions signed");
    let itself = "-selfsign -keyfile itself-expired.key -extensions itself";
    cluster.sign_expired("itself-expired", EC, itself);
    cluster
}

/// One line for each `sslmode`.
fn outcomes_by_sslmode(cluster: &TestCluster, host: &str, root: &str) -> String {
    let root = cluster.file(root);
    let modes = [
        "disable",
        "prefer",
        "require",
        "require&sslrootcert=ROOT",
        "verify-ca&sslrootcert=ROOT",
        "verify-full&sslrootcert=ROOT",
    ];
    let mut table = String::new();
    for mode in modes {
        let address = format!("postgres://nouns@{host}:{}/postgres?sslmode={mode}", cluster.port);
        let address = address.replace("ROOT", root.to_str().unwrap());
        let told = cluster.mask(&outcome_line(connect_and_query(&address, &SESSION, ENCRYPTED)));
        // The message of an expired certificate contains the current time.
        let told = told
            .split_once(" (invalid peer certificate: certificate expired")
            .map_or(told.clone(), |(before, rest)| {
                format!("{before} (…){}", rest.rsplit_once(')').unwrap().1)
            });
        writeln!(table, "{mode}: {told}").unwrap();
    }
    table
}

fn check(cluster: &TestCluster, certificate: Option<&str>, expected: &Expect) {
    cluster.serve(certificate);
    expected.assert_eq(&outcomes_by_sslmode(cluster, "localhost", "ca.crt"));
}

#[test]
fn sslmode_with_each_certificate() {
    let cluster = cluster_with_certificates();
    sslmode_without_and_with_tls(&cluster);
    system_roots(&cluster);
    check_channel_binding(&cluster, "good");
    client_certificates(&cluster);
    invalid_certificates(&cluster);
    self_signed_certificates(&cluster);
    old_versions_and_other_hashes(&cluster);
}

fn sslmode_without_and_with_tls(cluster: &TestCluster) {
    check(
        cluster,
        None,
        &expect![[r#"
        disable: plain
        prefer: plain
        require: PERMANENT PostgreSQL at localhost:PORT does not support TLS, and sslmode requires it; turn ssl on there, or use sslmode=prefer on a trusted network
        require&sslrootcert=ROOT: PERMANENT PostgreSQL at localhost:PORT does not support TLS, and sslmode requires it; turn ssl on there, or use sslmode=prefer on a trusted network
        verify-ca&sslrootcert=ROOT: PERMANENT PostgreSQL at localhost:PORT does not support TLS, and sslmode requires it; turn ssl on there, or use sslmode=prefer on a trusted network
        verify-full&sslrootcert=ROOT: PERMANENT PostgreSQL at localhost:PORT does not support TLS, and sslmode requires it; turn ssl on there, or use sslmode=prefer on a trusted network
    "#]],
    );
    check(
        cluster,
        Some("good"),
        &expect![[r#"
        disable: plain
        prefer: TLSv1.3
        require: TLSv1.3
        require&sslrootcert=ROOT: TLSv1.3
        verify-ca&sslrootcert=ROOT: TLSv1.3
        verify-full&sslrootcert=ROOT: TLSv1.3
    "#]],
    );
    // By its IP address, which the certificate has too; and with a CA that did not sign it.
    expect![[r#"
        disable: plain
        prefer: TLSv1.3
        require: TLSv1.3
        require&sslrootcert=ROOT: TLSv1.3
        verify-ca&sslrootcert=ROOT: TLSv1.3
        verify-full&sslrootcert=ROOT: TLSv1.3
    "#]]
    .assert_eq(&outcomes_by_sslmode(cluster, "127.0.0.1", "ca.crt"));
    expect![[r#"
        disable: plain
        prefer: TLSv1.3
        require: TLSv1.3
        require&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT is signed by an unknown CA (invalid peer certificate: UnknownIssuer); name the CA with sslrootcert=FILE
        verify-ca&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT is signed by an unknown CA (invalid peer certificate: UnknownIssuer); name the CA with sslrootcert=FILE
        verify-full&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT is signed by an unknown CA (invalid peer certificate: UnknownIssuer); name the CA with sslrootcert=FILE
    "#]].assert_eq(&outcomes_by_sslmode(cluster, "localhost", "stranger-ca.crt"));
}

/// Whichever CAs this machine trusts, the one made here is not among them.
fn system_roots(cluster: &TestCluster) {
    let place = format!("localhost:{}/postgres?sslrootcert=system", cluster.port);
    let told =
        outcome_line(connect_and_query(&format!("postgres://nouns@{place}"), &SESSION, ENCRYPTED));
    let words = ["is signed by an unknown CA", "no certificate of the system can be used"];
    let is_refused =
        told.starts_with("PERMANENT") && words.iter().any(|words| told.contains(words));
    assert!(is_refused, "{told}");
}

fn invalid_certificates(cluster: &TestCluster) {
    check(
        cluster,
        Some("another-name"),
        &expect![[r#"
            disable: plain
            prefer: TLSv1.3
            require: TLSv1.3
            require&sslrootcert=ROOT: TLSv1.3
            verify-ca&sslrootcert=ROOT: TLSv1.3
            verify-full&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT is issued for another host name (invalid peer certificate: certificate not valid for name "localhost"; certificate is only valid for DnsName("db.example.com")); use the host name that it has as a subject alternative name (its common name is not looked at), or sslmode=verify-ca
        "#]],
    );
    // The common name matches, but is not checked.
    check(
        cluster,
        Some("localhost"),
        &expect![[r#"
            disable: plain
            prefer: TLSv1.3
            require: TLSv1.3
            require&sslrootcert=ROOT: TLSv1.3
            verify-ca&sslrootcert=ROOT: TLSv1.3
            verify-full&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT is issued for another host name (invalid peer certificate: certificate not valid for name "localhost"; certificate is not valid for any names (according to its subjectAltName extension)); use the host name that it has as a subject alternative name (its common name is not looked at), or sslmode=verify-ca
        "#]],
    );
    check(
        cluster,
        Some("expired"),
        &expect![[r#"
            disable: plain
            prefer: TLSv1.3
            require: TLSv1.3
            require&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT has expired (…); renew it
            verify-ca&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT has expired (…); renew it
            verify-full&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT has expired (…); renew it
        "#]],
    );
    check(
        cluster,
        Some("stranger"),
        &expect![[r#"
            disable: plain
            prefer: TLSv1.3
            require: TLSv1.3
            require&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT is signed by an unknown CA (invalid peer certificate: UnknownIssuer); name the CA with sslrootcert=FILE
            verify-ca&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT is signed by an unknown CA (invalid peer certificate: UnknownIssuer); name the CA with sslrootcert=FILE
            verify-full&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT is signed by an unknown CA (invalid peer certificate: UnknownIssuer); name the CA with sslrootcert=FILE
        "#]],
    );
}

fn self_signed_certificates(cluster: &TestCluster) {
    cluster.serve(Some("itself"));
    expect![[r#"
        disable: plain
        prefer: TLSv1.3
        require: TLSv1.3
        require&sslrootcert=ROOT: TLSv1.3
        verify-ca&sslrootcert=ROOT: TLSv1.3
        verify-full&sslrootcert=ROOT: TLSv1.3
    "#]]
    .assert_eq(&outcomes_by_sslmode(cluster, "localhost", "itself.crt"));
    expect![[r#"
        disable: plain
        prefer: TLSv1.3
        require: TLSv1.3
        require&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT is signed by an unknown CA (invalid peer certificate: UnknownIssuer); name the CA with sslrootcert=FILE
        verify-ca&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT is signed by an unknown CA (invalid peer certificate: UnknownIssuer); name the CA with sslrootcert=FILE
        verify-full&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT is signed by an unknown CA (invalid peer certificate: UnknownIssuer); name the CA with sslrootcert=FILE
    "#]].assert_eq(&outcomes_by_sslmode(cluster, "localhost", "ca.crt"));
    cluster.serve(Some("itself-expired"));
    expect![[r#"
        disable: plain
        prefer: TLSv1.3
        require: TLSv1.3
        require&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT has expired (…); renew it
        verify-ca&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT has expired (…); renew it
        verify-full&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT has expired (…); renew it
    "#]].assert_eq(&outcomes_by_sslmode(cluster, "localhost", "itself-expired.crt"));
}

fn old_versions_and_other_hashes(cluster: &TestCluster) {
    cluster.serve(Some("version-1"));
    if is_of_version_1(&cluster.file("version-1.crt")) {
        expect![[r#"
            disable: plain
            prefer: TLSv1.3
            require: TLSv1.3
            require&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT cannot be used (invalid peer certificate: Other(OtherError(UnsupportedCertVersion))); make one of X.509 version 3, with a key of 2048 bits or more
            verify-ca&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT cannot be used (invalid peer certificate: Other(OtherError(UnsupportedCertVersion))); make one of X.509 version 3, with a key of 2048 bits or more
            verify-full&sslrootcert=ROOT: PERMANENT the certificate of PostgreSQL at localhost:PORT cannot be used (invalid peer certificate: Other(OtherError(UnsupportedCertVersion))); make one of X.509 version 3, with a key of 2048 bits or more
        "#]].assert_eq(&outcomes_by_sslmode(cluster, "localhost", "ca.crt"));
        check_channel_binding(cluster, "version-1");
    }
    for (_, certificate, _) in HASHES {
        cluster.serve(Some(certificate));
        check_channel_binding(cluster, certificate);
    }
}

/// The SCRAM proof covers the certificate (channel binding), for each hash that a certificate may be signed
/// with; the server would refuse a wrong one.
fn check_channel_binding(cluster: &TestCluster, certificate: &str) {
    for (user, binding, expected) in [
        ("scram:right", "require", "TLSv1.3"),
        ("scram:right", "prefer", "TLSv1.3"),
        ("scram:right", "disable", "TLSv1.3"),
        ("md5:right", "prefer", "TLSv1.3"),
        (
            "md5:right",
            "require",
            "PERMANENT PostgreSQL at 127.0.0.1:PORT failed authentication (server did not use channel binding); check the password and channel_binding",
        ),
        (
            "scram:wrong",
            "require",
            "PERMANENT PostgreSQL at 127.0.0.1:PORT refuses the password (password authentication failed for user \"scram\"); set the right one: in NOUNS_DATABASE, PGPASSWORD or a passfile",
        ),
    ] {
        let place = format!("127.0.0.1:{}/postgres", cluster.port);
        let address =
            format!("postgres://{user}@{place}?sslmode=require&channel_binding={binding}");
        let told = cluster.mask(&outcome_line(connect_and_query(&address, &SESSION, ENCRYPTED)));
        assert_eq!(told, expected, "{certificate} {user} {binding}");
    }
    let address = format!(
        "postgres://scram:right@127.0.0.1:{}/postgres?sslmode=disable&channel_binding=require",
        cluster.port
    );
    let told = outcome_line(connect_and_query(&address, &SESSION, ENCRYPTED));
    assert!(told.contains("failed authentication"), "{told}");
}

/// Client certificates. One signed by an unknown CA is not tested: the server closes such a connection
/// while the client writes, and its message may be lost.
fn client_certificates(cluster: &TestCluster) {
    let place = format!("127.0.0.1:{}/postgres?sslmode=require", cluster.port);
    let with = |certificate: &str, key: &str| {
        let (certificate, key) = (cluster.file(certificate), cluster.file(key));
        let files = format!("&sslcert={}&sslkey={}", certificate.display(), key.display());
        cluster.mask(&outcome_line(connect_and_query(
            &format!("postgres://certified@{place}{files}"),
            &SESSION,
            ENCRYPTED,
        )))
    };
    let told = [
        cluster.mask(&outcome_line(connect_and_query(
            &format!("postgres://certified@{place}"),
            &SESSION,
            ENCRYPTED,
        ))),
        with("certified.crt", "certified.key"),
        with("good.crt", "good.key"),
        with("certified.crt", "good.key"),
        with("none.crt", "certified.key"),
        with("certified.crt", "names"),
        with("names", "certified.key"),
    ];
    expect![[r#"
        PERMANENT PostgreSQL at 127.0.0.1:PORT does not let us in (connection requires a valid client certificate); add sslcert and sslkey to the address
        TLSv1.3
        PERMANENT PostgreSQL at 127.0.0.1:PORT does not let us in (certificate authentication failed for user "certified"); check the user of the address
        PERMANENT database: sslcert FOLDER/certified.crt and sslkey FOLDER/good.key do not match (keys may not be consistent: KeyMismatch)
        PERMANENT database: sslcert: cannot read FOLDER/none.crt (I/O error: No such file or directory (os error 2))
        PERMANENT database: sslkey: cannot read FOLDER/names (no items found); a key with a passphrase is not supported
        PERMANENT database: sslcert: there is no certificate in FOLDER/names, which must be a file in PEM
    "#]].assert_eq(&format!("{}\n", told.join("\n")));
}
