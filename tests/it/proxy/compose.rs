//! Two servers behind nginx, as `packaging/compose/` runs them in containers; here they run on loopback addresses.

use crate::harness::{Backend, Client, EventSource, Folder, Server, Setup, wait_until};

use super::nginx::Nginx;

const MODEL: &str = include_str!("../../../packaging/compose/nouns.toml");
const COMPOSE: &str = include_str!("../../../packaging/compose/compose.yaml");
/// The default of `bulk_bytes_max`.
const BODY_BYTES_MAX: usize = 8 << 20;
const NOTE: &str = r#"{"note":{"text":"tea before ten"}}"#;

/// Servers on one database, the first of which owns it.
fn start_two() -> (Server, Server) {
    let flags = ["--behind-proxy", "127.0.0.1"];
    let first = Setup::new(Backend::Postgres).model(MODEL).flags(&flags).with_authentication();
    let first = first.start();
    let second = Setup::replica(first.database()).model(MODEL).flags(&flags);
    let second = second.key_file(first.key_file()).start_in(Folder::new());
    (first, second)
}

/// How many requests for this path a server has answered.
fn count_answers(server: &Server, path: &str) -> usize {
    let path = format!(r#""path":"{path}""#);
    server.log().lines().filter(|line| line.contains(&path)).count()
}

/// Both servers answer; when one is stopped or killed, the other answers all reads.
#[test]
fn compose_nginx_balances_and_survives_the_loss_of_a_replica_on_postgres() {
    let (first, second) = start_two();
    let nginx = Nginx::start_compose([first.address, second.address]);
    let basic = first.admin().basic();
    let authorized = [("Authorization", basic.as_str())];
    let mut client = nginx.client_at("127.0.0.2");
    let created = client.request("POST /notes", &authorized, NOTE);
    assert_eq!(created.status, 201, "{created:?}");
    let note = created.header("Location").unwrap().to_owned();
    let read = |client: &mut Client| {
        client.request(&format!("GET {note}"), &authorized, "").json()["note"]["text"].clone()
    };
    wait_until("both have answered", || {
        assert_eq!(read(&mut client), "tea before ten");
        (count_answers(&first, &note) > 0 && count_answers(&second, &note) > 0).then_some(())
    });
    second.kill();
    for _ in 0..20 {
        assert_eq!(read(&mut client), "tea before ten", "a kept connection that died is replaced");
        assert_eq!(read(&mut nginx.client_at("127.0.0.2")), "tea before ten");
    }
}

/// nginx buffers responses, but passes on the events of a stream one by one.
#[test]
fn compose_nginx_passes_events_on_at_once_on_postgres() {
    let (first, second) = start_two();
    let nginx = Nginx::start_compose([first.address, second.address]);
    let basic = first.admin().basic();
    let mut source = EventSource::new("/notes").header("Authorization", &basic);
    let head = source.connect(nginx.address).unwrap();
    assert_eq!(head.status, 200, "{head:?}");
    let mut client = nginx.client_at("127.0.0.2");
    for _ in 0..3 {
        let created = client.request("POST /notes", &[("Authorization", &basic)], NOTE);
        assert_eq!(created.status, 201, "{created:?}");
        assert_eq!(source.next_event().kind, "created");
    }
    assert!(source.is_connected());
}

/// The largest body that the server accepts passes, and no larger one.
#[test]
fn compose_nginx_accepts_bodies_up_to_the_limit_of_the_server_on_postgres() {
    let (first, second) = start_two();
    let nginx = Nginx::start_compose([first.address, second.address]);
    let basic = first.admin().basic();
    let body = format!(r#"{{"notes":[{{"text":"a"}}]{}}}"#, " ".repeat(BODY_BYTES_MAX - 24));
    assert_eq!(body.len(), BODY_BYTES_MAX);
    let mut client = nginx.client_at("127.0.0.2");
    let accepted = client.request("POST /notes", &[("Authorization", &basic)], body);
    assert_eq!(accepted.status, 201, "{accepted:?}");
    let length = BODY_BYTES_MAX + 1;
    let head =
        format!("POST /notes HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    assert_eq!(client.send(head.as_bytes()).status, 413);
}

/// The addresses in both files agree, and so do both configurations of nginx.
#[test]
fn compose_files_agree_with_each_other() {
    let sites = [
        include_str!("../../../packaging/nginx.conf"),
        include_str!("../../../packaging/compose/nginx.conf"),
    ];
    let [one, two] = sites.map(|site| site.split_once("    client_max_body_size").unwrap().1);
    assert_eq!(one, two);
    for host in ["10.133.7.11", "10.133.7.12"] {
        assert!(sites[1].contains(&format!("server {host}:8080;")), "{host}");
        assert!(COMPOSE.contains(&format!("ipv4_address: {host}\n")), "{host}");
    }
    let (_, nginx) = COMPOSE.split_once("\n  nginx:\n").unwrap();
    let (_, address) = nginx.split_once("ipv4_address: ").unwrap();
    let address = address.lines().next().unwrap();
    assert!(COMPOSE.contains(&format!("NOUNS_BEHIND_PROXY: {address}\n")), "{address}");
}
