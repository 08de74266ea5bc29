//! Names of webhooks that lead to public and to private addresses, in turn and together.
//!
//! Each test has its own network, in which a public address is that of the loopback interface, and its own
//! `/etc/hosts`. `nouns webhook test` sends to a server of ours with a certificate for the name, which answers 404.
//! A running server asks the name server of `tests/webhook-dns.py`; on SQLite, because PostgreSQL is not in that network.

use std::process::Command;

use crate::harness::{EXECUTABLE, FinishedProcess, Folder, Process};

/// A public address, that of example.com in 2014.
const PUBLIC: &str = "93.184.216.34";

/// Makes the network, starts the receiver on all addresses, and sends with each content of `/etc/hosts`. Prints
/// a line for each: its exit code and the message.
const SCRIPT: &str = r#"
    nouns=$1 public=$2
    mount --bind hosts /etc/hosts
    ip link set lo up
    ip address add "$public/32" dev lo
    "$nouns" cert --name hook.example >cert.out
    "$nouns" serve --listen 0.0.0.0:8443 --tls-cert nouns-cert.pem --tls-key nouns-key.pem \
        --database sqlite:a.db >serve.out 2>serve.err &
    server=$!
    trap 'kill $server' EXIT
    until grep -q serving serve.out; do kill -0 $server; sleep 0.01; done
    export SSL_CERT_FILE=$PWD/nouns-cert.pem
    for addresses in "$public" 127.0.0.1 "$public 127.0.0.1" "127.0.0.1 $public" "$public ::1" "$public"; do
        for address in $addresses; do echo "$address hook.example"; done >hosts
        code=0
        "$nouns" webhook test https://hook.example:8443/nothing >out 2>err || code=$?
        echo "$addresses: $code $(grep -o 'answered [0-9]*' out || grep -o 'the address.*' err)"
    done
"#;

fn run_in_own_network(folder: &Folder, program: &[&str]) -> FinishedProcess {
    let own = "if unshare --mount --net true 2>/dev/null; then user=; else user=--map-root-user; fi
        exec unshare $user --mount --net \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-ec", own, "sh"]).args(program).env_clear();
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
    command.env("PATH", path).current_dir(folder.path());
    Process::spawn(&mut command).end()
}

#[test]
fn webhook_to_a_name_is_checked_by_every_address_that_it_resolves_to() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("hosts"), "").unwrap();
    let ended = run_in_own_network(&folder, &["sh", "-ec", SCRIPT, "sh", EXECUTABLE, PUBLIC]);
    let refused = "2 the address of the host is not a public one; see --allow-private";
    let expected = [
        format!("{PUBLIC}: 1 answered 404"),
        format!("127.0.0.1: {refused}"),
        format!("{PUBLIC} 127.0.0.1: {refused}"),
        format!("127.0.0.1 {PUBLIC}: {refused}"),
        format!("{PUBLIC} ::1: {refused}"),
        format!("{PUBLIC}: 1 answered 404"),
    ];
    assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), expected, "{}", ended.stderr);
}

/// DNS rebinding at a running server: nothing connects to a private address. Names that are never resolved delay only
/// their own webhooks.
#[test]
fn webhook_deliveries_go_only_to_names_that_resolve_to_public_addresses() {
    let folder = Folder::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/webhook-dns.py");
    let ended = run_in_own_network(&folder, &["python3", script, EXECUTABLE, PUBLIC]);
    let refused = "pending the address of the host is not a public one";
    let late = "slow name: the name of the host was not resolved in time";
    let expected = [
        format!("{PUBLIC}: delivered None"),
        format!("127.0.0.1: {refused}"),
        format!("::1: {refused}"),
        format!("::ffff:127.0.0.1: {refused}"),
        format!("169.254.169.254: {refused}"),
        format!("{PUBLIC} 127.0.0.1: {refused}"),
        format!("{PUBLIC} ::1: {refused}"),
        format!("{PUBLIC}: delivered None"),
        "private connections: 0".to_owned(),
        "beside slow names: delivered".to_owned(),
        late.to_owned(),
        late.to_owned(),
    ];
    assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), expected, "{}", ended.stderr);
}
