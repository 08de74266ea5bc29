//! Fake servers that are not PostgreSQL, or that send errors which a real one sends only at rare moments.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener};

use expect_test::expect;

use super::*;

/// Answers one connection's first message with these bytes, and closes it.
fn start_fake_server(bytes: &[u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let bytes = bytes.to_vec();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(&bytes);
        // Closed with unread data, it would be reset, and the answer might be lost.
        let _ = stream.shutdown(Shutdown::Write);
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    place
}

/// An `ErrorResponse` of the protocol.
fn error_response(code: &str, message: &str) -> Vec<u8> {
    let fields = format!("SFATAL\0VFATAL\0C{code}\0M{message}\0\0");
    let length = u32::try_from(fields.len() + 4).unwrap();
    [b"E", &length.to_be_bytes()[..], fields.as_bytes()].concat()
}

#[test]
fn connect_error_for_each_answer_of_a_server() {
    let answers: [(&str, Vec<u8>); 18] = [
        ("starting", error_response("57P03", "the database system is starting up")),
        ("stopping", error_response("57P03", "the database system is shutting down")),
        ("ended", error_response("57P01", "terminating connection due to administrator command")),
        ("full", error_response("53300", "sorry, too many clients already")),
        ("disk", error_response("53100", "could not write init file")),
        ("files", error_response("58030", "could not read block 0")),
        ("options", error_response("08P01", "unsupported startup parameter: options")),
        (
            "options since 1.20",
            error_response("08P01", "unsupported startup parameter in options: lock_timeout"),
        ),
        ("proxy without a way", error_response("08P01", "no such database: shop")),
        (
            "proxy that is full",
            error_response("08P01", "no more connections allowed (max_client_conn)"),
        ),
        (
            "proxy that waits",
            error_response(
                "08P01",
                "server login has been failing, try again later (server_login_retry)",
            ),
        ),
        (
            "old rules",
            error_response(
                "28000",
                "no pg_hba.conf entry for host \"10.0.0.1\", user \"ann\", database \"shop\", SSL off",
            ),
        ),
        ("someone between", error_response("28000", "SCRAM channel binding check failed")),
        ("other", error_response("XX000", "cache lookup failed")),
        ("nothing", Vec::new()),
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec()),
        ("noise", vec![0xff; 64]),
        ("Kerberos", vec![b'R', 0, 0, 0, 8, 0, 0, 0, 7]),
    ];
    let mut told = String::new();
    for (name, bytes) in answers {
        let place = start_fake_server(&bytes);
        let address = format!("postgres://ann@{place}/shop?sslmode=disable");
        let outcome = outcome_line(connect_and_query(&address, &SESSION, "SELECT 1"))
            .replace(&place, "PLACE");
        writeln!(told, "{name}: {outcome}").unwrap();
    }
    expect![[r#"
        starting: TRANSIENT PostgreSQL at PLACE is not ready (the database system is starting up)
        stopping: TRANSIENT PostgreSQL at PLACE is not ready (the database system is shutting down)
        ended: TRANSIENT PostgreSQL at PLACE is stopping (terminating connection due to administrator command)
        full: TRANSIENT PostgreSQL at PLACE has no free connection (sorry, too many clients already)
        disk: TRANSIENT PostgreSQL at PLACE reports a system error (could not write init file)
        files: TRANSIENT PostgreSQL at PLACE reports a system error (could not read block 0)
        options: PERMANENT PostgreSQL at PLACE is behind a proxy that does not pass our settings on (unsupported startup parameter: options); if it is a pooling proxy such as pgbouncer, put database_pooling = "transaction" into [server]
        options since 1.20: PERMANENT PostgreSQL at PLACE is behind a proxy that does not pass our settings on (unsupported startup parameter in options: lock_timeout); if it is a pooling proxy such as pgbouncer, put database_pooling = "transaction" into [server]
        proxy without a way: PERMANENT PostgreSQL at PLACE is behind a proxy without a route for this user or database (no such database: shop); check its settings, or the address
        proxy that is full: TRANSIENT PostgreSQL at PLACE cannot be reached through the proxy (no more connections allowed (max_client_conn))
        proxy that waits: TRANSIENT PostgreSQL at PLACE cannot be reached through the proxy (server login has been failing, try again later (server_login_retry))
        old rules: PERMANENT PostgreSQL at PLACE does not let us in without encryption (no pg_hba.conf entry for host "10.0.0.1", user "ann", database "shop", SSL off); add sslmode=require to the address, or a line to its pg_hba.conf
        someone between: PERMANENT PostgreSQL at PLACE sees another certificate than we do (SCRAM channel binding check failed); find out what terminates TLS in between; if it is your own proxy, add channel_binding=disable
        other: PERMANENT PostgreSQL at PLACE refuses the connection (cache lookup failed); check the address
        nothing: TRANSIENT cannot reach PostgreSQL at PLACE (it closed the connection); start it, or check --database
        HTTP: TRANSIENT cannot reach PostgreSQL at PLACE (its answer was cut short; is it PostgreSQL?); start it, or check --database
        noise: TRANSIENT cannot reach PostgreSQL at PLACE (invalid message length: header length < 4); start it, or check --database
        Kerberos: PERMANENT PostgreSQL at PLACE failed authentication (unsupported authentication method); check the password and channel_binding
    "#]].assert_eq(&told);
}

/// `sslmode=prefer` falls back to plain text if the server has no TLS; `sslmode=require` does not.
#[test]
fn connect_error_for_each_answer_to_ssl_request() {
    let mut told = String::new();
    for (name, bytes) in [("no", "N"), ("yes, and then noise", "Sxxxxxxxxxxxx"), ("what", "E")] {
        for mode in ["prefer", "require"] {
            let place = start_fake_server(bytes.as_bytes());
            let address = format!("postgres://ann@{place}/shop?sslmode={mode}");
            let outcome = outcome_line(connect_and_query(&address, &SESSION, "SELECT 1"))
                .replace(&place, "PLACE");
            writeln!(told, "{name}, {mode}: {outcome}").unwrap();
        }
    }
    expect![[r#"
        no, prefer: TRANSIENT cannot reach PostgreSQL at PLACE (it closed the connection); start it, or check --database
        no, require: PERMANENT PostgreSQL at PLACE does not support TLS, and sslmode requires it; turn ssl on there, or use sslmode=prefer on a trusted network
        yes, and then noise, prefer: PERMANENT TLS with PostgreSQL at PLACE failed (received corrupt message of type InvalidContentType); check sslmode
        yes, and then noise, require: PERMANENT TLS with PostgreSQL at PLACE failed (received corrupt message of type InvalidContentType); check sslmode
        what, prefer: TRANSIENT cannot reach PostgreSQL at PLACE (it closed the connection); start it, or check --database
        what, require: PERMANENT PostgreSQL at PLACE does not support TLS, and sslmode requires it; turn ssl on there, or use sslmode=prefer on a trusted network
    "#]].assert_eq(&told);
}
