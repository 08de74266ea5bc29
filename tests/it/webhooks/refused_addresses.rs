//! SSRF: URLs that lead into the server's own network, each refused before a connection is made.

use super::receiver::{Receiver, ReceiverAction};
use crate::harness::{Folder, run_nouns};

/// Hosts that are no public address, and part of the message.
const HOSTS: &[(&str, &str)] = &[
    ("127.0.0.1", "not a public one"),
    ("127.255.255.254", "not a public one"),
    ("0.0.0.0", "not a public one"),
    ("10.0.0.1", "not a public one"),
    ("100.64.0.1", "not a public one"),
    ("169.254.169.254", "not a public one"),
    ("172.16.0.1", "not a public one"),
    ("192.168.1.1", "not a public one"),
    ("168.63.129.16", "not a public one"),
    ("255.255.255.255", "not a public one"),
    ("[::]", "not a public one"),
    ("[::1]", "not a public one"),
    ("[::ffff:127.0.0.1]", "not a public one"),
    ("[::ffff:7f00:1]", "not a public one"),
    ("[::127.0.0.1]", "not a public one"),
    ("[64:ff9b::7f00:1]", "not a public one"),
    ("[64:ff9b::a9fe:a9fe]", "not a public one"),
    ("[2002:7f00:1::]", "not a public one"),
    ("[2001:0:4136:e378:8000:63bf:3fff:fdd2]", "not a public one"),
    ("[fe80::1]", "not a public one"),
    ("[fd00:ec2::254]", "not a public one"),
    ("[ff02::1]", "not a public one"),
    ("localhost", "not a public one"),
    ("LOCALHOST", "not a public one"),
    // Other spellings, which resolvers read as addresses.
    ("2130706433", "in its usual spelling"),
    ("0x7f000001", "in its usual spelling"),
    ("0x7f.1", "in its usual spelling"),
    ("017700000001", "in its usual spelling"),
    ("127.1", "in its usual spelling"),
    ("0", "in its usual spelling"),
    ("127.0.0.1.", "in its usual spelling"),
    ("0177.0.0.1", "in its usual spelling"),
    ("[fe80::1%25lo]", "in its usual spelling"),
    ("%31%32%37.0.0.1", "expected an absolute URL"),
    ("user@127.0.0.1", "no user name"),
    ("example.com@127.0.0.1", "no user name"),
];

#[test]
fn webhook_to_a_private_address_is_refused_without_a_connection() {
    let receiver = Receiver::always(ReceiverAction::status(204));
    let folder = Folder::new();
    for (host, expected) in HOSTS {
        let url = format!("https://{host}:{}/hook", receiver.port());
        let ended = run_nouns(folder.path(), &["webhook", "test", &url]);
        assert_eq!(ended.code, Some(2), "{host}: {ended:?}");
        let message = &ended.stderr;
        assert!(message.starts_with(&format!("nouns: cannot send to {url}: ")), "{message}");
        assert!(message.contains(expected), "{host}: {message}");
        assert!(!ended.stdout.contains("whsec_"), "{}", ended.stdout);
    }
    assert_eq!(receiver.connections(), 0);
}

#[test]
fn webhook_over_http_needs_allow_private() {
    let receiver = Receiver::always(ReceiverAction::status(204));
    let folder = Folder::new();
    let ended = run_nouns(folder.path(), &["webhook", "test", &receiver.url()]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert_eq!(
        ended.stderr,
        format!(
            "nouns: cannot send to {}: expected https; http is for private targets alone; see --allow-private\n",
            receiver.url()
        )
    );
    // No host has these addresses, with the flag either.
    for host in ["0.0.0.0", "[::]", "224.0.0.1", "255.255.255.255", "[ff02::1]", "[::ffff:0.0.0.0]"]
    {
        let url = format!("http://{host}:{}/", receiver.port());
        let ended = run_nouns(folder.path(), &["webhook", "test", &url, "--allow-private"]);
        assert_eq!(ended.code, Some(2), "{host}: {ended:?}");
        assert!(ended.stderr.contains("not a public one"), "{host}: {}", ended.stderr);
    }
    assert_eq!(receiver.connections(), 0);
}
