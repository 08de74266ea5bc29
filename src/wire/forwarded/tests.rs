//! Tests of the client address: tables of examples, and properties of arbitrary headers.

use super::*;

/// The trusted proxies of all tests: this machine, two networks, and one IPv6 network.
const PROXIES: &[&str] = &["127.0.0.1", "10.0.0.0/8", "192.168.1.0/24", "fd00::/8"];

fn proxies() -> Vec<Network> {
    PROXIES.iter().map(|text| Network::parse(text).unwrap()).collect()
}

fn way(peer: &str, is_tls: bool) -> PeerConnection {
    PeerConnection { peer: SocketAddr::new(peer.parse().unwrap(), 5000), is_tls }
}

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = match *name {
            "F" => FORWARDED,
            "X" => X_FORWARDED_FOR,
            "P" => X_FORWARDED_PROTO,
            other => HeaderName::try_from(other).unwrap(),
        };
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

/// `ADDRESS`, and `https`, `http`, or nothing where the scheme is unknown.
fn shown(sender: Sender) -> String {
    let scheme = match sender.is_https {
        Some(true) => " https",
        Some(false) => " http",
        None => "",
    };
    format!("{}{scheme}", sender.address)
}

fn from(peer: &str, lines: &[(&str, &str)]) -> String {
    shown(find_sender(way(peer, false), &headers(lines), &proxies()))
}

/// Sent by a trusted proxy.
fn check(table: &[(&[(&str, &str)], &str)]) {
    for (lines, expected) in table {
        assert_eq!(from("10.0.0.1", lines), *expected, "{lines:?}");
    }
}

#[test]
fn forwarded_examples_of_rfc_7239() {
    check(&[
        (&[("F", "for=192.0.2.60;proto=http;by=203.0.113.43")], "192.0.2.60 http"),
        (&[("F", "for=192.0.2.60;proto=https")], "192.0.2.60 https"),
        (&[("F", "For=\"[2001:db8:cafe::17]:4711\"")], "2001:db8:cafe::17"),
        (&[("F", "for=\"[2001:db8::1]\";PROTO=HTTPS")], "2001:db8::1 https"),
        (&[("F", "for=\"192.0.2.43:80\"")], "192.0.2.43"),
        (&[("F", "for=\"192.0.2.43:_port.1-a\"")], "192.0.2.43"),
        (&[("F", "for=192.0.2.43, for=198.51.100.17")], "198.51.100.17"),
        (&[("F", "for=192.0.2.43"), ("F", "for=198.51.100.17")], "198.51.100.17"),
        (&[("F", "for=192.0.2.43, for=\"[fd00::9]\"")], "192.0.2.43"),
        (
            &[("F", "for=192.0.2.43;proto=https"), ("F", "for=10.1.1.1;proto=http")],
            "192.0.2.43 https",
        ),
        (&[("F", "for=192.0.2.43 , ,, for=10.1.1.1;proto=http ,")], "192.0.2.43"),
        (&[("F", "proto=https ; for=192.0.2.43")], "192.0.2.43 https"),
        (&[("F", "secret=\"a, for=1.2.3.4\";for=192.0.2.43")], "192.0.2.43"),
        (&[("F", "x=\"\\\", for=1.2.3.4, \\\"\";for=192.0.2.43")], "192.0.2.43"),
        (&[("F", "for=\"\\192.0.2.4\\3\"")], "192.0.2.43"),
        (&[("F", "for=\"[::ffff:192.0.2.43]\"")], "192.0.2.43"),
    ]);
}

/// An obfuscated hop ends the walk; the scheme it used still counts.
#[test]
fn forwarded_obfuscated_node_ends_the_walk() {
    check(&[
        (&[("F", "for=unknown;proto=https")], "10.0.0.1 https"),
        (&[("F", "for=_hidden, for=10.2.2.2")], "10.2.2.2"),
        (
            &[("F", "for=1.2.3.4, for=_SEVKISEK;proto=http, for=10.2.2.2;proto=https")],
            "10.2.2.2 http",
        ),
        (&[("F", "for=1.2.3.4, for=\"_gazonk:80\"")], "10.0.0.1"),
        (&[("F", "by=10.0.0.1")], "10.0.0.1"),
        (&[("F", "proto=https")], "10.0.0.1 https"),
        (&[("F", "proto=gopher;for=192.0.2.4")], "192.0.2.4"),
        (&[("F", "")], "10.0.0.1"),
        (&[("X", "192.0.2.4, unknown")], "10.0.0.1"),
    ]);
}

/// An element that cannot be parsed ends the walk; the elements to its right count.
#[test]
fn forwarded_malformed_element_ends_the_walk() {
    for bad in [
        "for",
        "for=",
        "=1.2.3.4",
        "for =1.2.3.4",
        "for= 1.2.3.4",
        "for=1.2.3.4:80",
        "for=[::1]",
        "for=\"::1\"",
        "for=\"[::1\"",
        "for=\"[1.2.3.4]\"",
        "for=\"[fe80::1%eth0]\"",
        "for=\"1.2.3.4:\"",
        "for=\"1.2.3.4:123456\"",
        "for=\"1.2.3.4:_\"",
        "for=\"[::1]80\"",
        "for=1.2.3",
        "for=01.2.3.4",
        "for=_",
        "for=\"_é\"",
        "for=\"1.2.3.4\"x",
        "for=x\"1.2.3.4\"",
        "for=1.2.3.4;for=1.2.3.4",
        "for=1.2.3.4;FOR=5.6.7.8",
        "for=1.2.3.4;by=a;by=a",
        "for=1.2.3.4 proto=https",
        "for=\"1.2.3.4",
        "for=\"1.2.3.4\\\"",
        "for=1.2.3.4;x=\"",
        "\"",
    ] {
        let line = format!("for=9.9.9.9;proto=https, {bad}");
        check(&[(&[("F", &line)], "10.0.0.1")]);
        let right = "for=10.3.3.3;proto=https";
        check(&[(&[("F", bad), ("F", right)], "10.3.3.3")]);
        check(&[(&[("F", bad), ("F", "for=192.0.2.4;proto=https")], "192.0.2.4 https")]);
        // Only within its line, unless a quote is unbalanced: then the whole line is unparsable.
        let is_open = !has_balanced_quotes(bad.as_bytes());
        let line = format!("{bad}, for=192.0.2.4");
        check(&[(&[("F", &line)], if is_open { "10.0.0.1" } else { "192.0.2.4" })]);
    }
    for bad in [
        "x",
        "1.2.3",
        "1.2.3.4:",
        "[::1",
        "fe80::1%eth0",
        "[fe80::1%1]:80",
        "1.2.3.4;5.6.7.8",
        "\"1.2.3.4\"",
        "é",
    ] {
        let line = format!("9.9.9.9, {bad}");
        check(&[(&[("X", &line)], "10.0.0.1")]);
        check(&[(&[("X", bad), ("X", "192.0.2.4")], "192.0.2.4")]);
    }
}

/// A client cannot open a quote that swallows the elements that a proxy appends, to make the server believe
/// the client's own text.
#[test]
fn forwarded_unbalanced_quote_hides_no_hop() {
    for mine in ["for=\"x", "for=1.1.1.1;x=\"", "for=\"x\\", "for=\"x\\\"", "for=1.1.1.1, \""] {
        for added in [
            "for=192.0.2.4",
            "for=\"[2001:db8::1]\"",
            "for=\"192.0.2.4:80\";host=\"a, for=1.1.1.1\"",
            "for=192.0.2.4;host=\"a;for=1.1.1.1\"",
        ] {
            let line = format!("{mine}, {added}");
            check(&[(&[("F", &line)], "10.0.0.1")]);
        }
    }
}

#[test]
fn x_forwarded_headers_of_common_proxies() {
    check(&[
        (&[("X", "192.0.2.4")], "192.0.2.4"),
        (&[("X", "192.0.2.4"), ("P", "https")], "192.0.2.4 https"),
        (&[("X", "1.1.1.1, 192.0.2.4"), ("P", "http")], "192.0.2.4 http"),
        (&[("X", "1.1.1.1"), ("X", "192.0.2.4")], "192.0.2.4"),
        (&[("X", "1.1.1.1, 192.0.2.4, 10.9.9.9,192.168.1.7")], "192.0.2.4"),
        (&[("X", "1.1.1.1, 192.168.2.7, 10.9.9.9")], "192.168.2.7"),
        (&[("X", "2001:db8::1")], "2001:db8::1"),
        (&[("X", "[2001:db8::1]")], "2001:db8::1"),
        (&[("X", "[2001:db8::1]:80, 10.0.0.7:4711")], "2001:db8::1"),
        (&[("X", "192.0.2.4:80")], "192.0.2.4"),
        (&[("X", "::ffff:192.0.2.4, ::ffff:10.0.0.7")], "192.0.2.4"),
        (&[("X", " , 192.0.2.4 ,, ")], "192.0.2.4"),
        // All hops are trusted: the client is the leftmost.
        (&[("X", "10.5.5.5, 10.6.6.6")], "10.5.5.5"),
        (&[("P", "https")], "10.0.0.1 https"),
        // Only a scheme that all agree on.
        (&[("X", "192.0.2.4"), ("P", "https, https")], "192.0.2.4 https"),
        (&[("X", "192.0.2.4"), ("P", "https, http")], "192.0.2.4"),
        (&[("X", "192.0.2.4"), ("P", "https"), ("P", "http")], "192.0.2.4"),
        (&[("X", "192.0.2.4"), ("P", "https, x")], "192.0.2.4"),
        (&[("X", "192.0.2.4"), ("P", "\"https\"")], "192.0.2.4"),
        (&[("X", "192.0.2.4"), ("P", "")], "192.0.2.4"),
        (&[("x-forwarded-host", "evil"), ("x-real-ip", "1.1.1.1")], "10.0.0.1"),
    ]);
}

/// A proxy that writes one kind of header may pass through the other kind as its client sent it.
#[test]
fn forwarded_and_x_forwarded_count_only_where_they_agree() {
    let honest: &[(&str, &str)] = &[("X", "192.0.2.4"), ("P", "http")];
    for (forged, expected) in [
        ("for=1.1.1.1;proto=https", "10.0.0.1"),
        ("for=1.1.1.1;proto=http", "10.0.0.1 http"),
        ("for=192.0.2.4;proto=https", "192.0.2.4"),
        ("for=192.0.2.4;proto=http", "192.0.2.4 http"),
        ("for=192.0.2.4", "192.0.2.4"),
        ("proto=https", "10.0.0.1"),
        ("for=\"", "10.0.0.1"),
    ] {
        check(&[(&[honest, &[("F", forged)]].concat(), expected)]);
    }
    let honest = ("F", "for=192.0.2.4;proto=http");
    for (forged, expected) in [
        (&[("X", "1.1.1.1")][..], "10.0.0.1"),
        (&[("X", "1.1.1.1"), ("P", "https")], "10.0.0.1"),
        (&[("X", "192.0.2.4")], "192.0.2.4"),
        (&[("P", "https")], "10.0.0.1"),
        (&[("P", "http")], "10.0.0.1 http"),
    ] {
        check(&[(&[&[honest], forged].concat(), expected)]);
    }
}

#[test]
fn forwarded_from_untrusted_peer_is_ignored() {
    let lines = &[("F", "for=1.1.1.1;proto=https"), ("X", "1.1.1.1"), ("P", "https")];
    assert_eq!(from("192.0.2.9", lines), "192.0.2.9 http");
    assert_eq!(from("::ffff:192.0.2.9", lines), "192.0.2.9 http");
    assert_eq!(from("::ffff:10.0.0.1", lines), "1.1.1.1 https");
    let told = |is_tls, proxies: &[Network]| {
        shown(find_sender(way("192.0.2.9", is_tls), &headers(lines), proxies))
    };
    assert_eq!(told(true, &proxies()), "192.0.2.9 https");
    // Without a declared proxy the path of the request is unknown.
    assert_eq!(told(false, &[]), "192.0.2.9");
    assert_eq!(told(true, &[]), "192.0.2.9 https");
}

#[test]
fn forwarded_missing_from_trusted_proxy_is_the_proxy_itself() {
    let told =
        |is_tls, lines| shown(find_sender(way("10.0.0.1", is_tls), &headers(lines), &proxies()));
    assert_eq!(told(false, &[]), "10.0.0.1");
    assert_eq!(told(true, &[]), "10.0.0.1 https");
    // TLS between the proxy and this server says nothing about how the client reached the proxy.
    assert_eq!(told(true, &[("X", "192.0.2.4")]), "192.0.2.4");
    assert_eq!(told(true, &[("X", "192.0.2.4"), ("P", "http")]), "192.0.2.4 http");
}

#[test]
fn forwarded_hops_are_limited() {
    let ours = vec!["10.0.0.2"; HOPS_MAX - 1].join(", ");
    check(&[(&[("X", &format!("192.0.2.4, {ours}"))], "192.0.2.4")]);
    check(&[(&[("X", &format!("192.0.2.4, 10.0.0.2, {ours}"))], "10.0.0.2")]);
    let many = "1.1.1.1,".repeat(4_000);
    check(&[(&[("X", &format!("{many} 192.0.2.4, 10.0.0.2"))], "192.0.2.4")]);
    let many = "for=\"[::1]\",".repeat(2_000);
    check(&[(&[("F", &format!("{many} for=192.0.2.4;proto=http"))], "192.0.2.4 http")]);
}

#[test]
fn forwarded_sender_is_private_by_https_or_on_loopback() {
    for (address, is_https, expected) in [
        ("192.0.2.4", Some(true), true),
        ("192.0.2.4", Some(false), false),
        ("192.0.2.4", None, false),
        ("127.0.0.1", Some(false), true),
        ("::1", None, true),
    ] {
        let sender = Sender { address: address.parse().unwrap(), is_https };
        assert_eq!(sender.is_private(), expected, "{sender:?}");
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    /// Addresses of which about half are trusted, and invalid ones.
    fn word() -> impl Strategy<Value = String> {
        prop_oneof![
            "10\\.0\\.0\\.[1-9]",
            "192\\.0\\.2\\.[1-9]",
            "\\[fd00::[1-9]\\](:80)?",
            Just("unknown".to_owned()),
            Just("_x".to_owned()),
            "[ -~]{0,6}",
        ]
    }

    fn element() -> impl Strategy<Value = String> {
        let proto = prop_oneof![Just(""), Just(";proto=https"), Just(";proto=http"), Just("\"")];
        prop_oneof![
            (word(), proto.clone()).prop_map(|(word, proto)| format!("for=\"{word}\"{proto}")),
            (word(), proto).prop_map(|(word, proto)| format!("for={word}{proto}")),
            word(),
        ]
    }

    fn lines() -> impl Strategy<Value = Vec<(&'static str, String)>> {
        let line = proptest::collection::vec(element(), 0..5).prop_map(|list| list.join(", "));
        let name = prop_oneof![Just("F"), Just("X"), Just("P")];
        proptest::collection::vec((name, line), 0..5)
    }

    fn made(lines: &[(&'static str, String)]) -> HeaderMap {
        let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
        headers(&lines)
    }

    proptest! {
        #[test]
        fn forwarded_arbitrary_headers_from_untrusted_peer_are_ignored(lines in lines(), is_tls: bool) {
            let (way, proxies) = (way("192.0.2.9", is_tls), proxies());
            prop_assert_eq!(
                find_sender(way, &made(&lines), &proxies),
                find_sender(way, &HeaderMap::new(), &proxies)
            );
        }

        /// A client can make up everything to the left of an untrusted hop.
        #[test]
        fn forwarded_elements_left_of_untrusted_hop_are_ignored(lines in lines(), forged in lines()) {
            let proxies = proxies();
            // A trusted proxy appends the untrusted client's address to what the client has sent.
            let honest = [("F", "for=198.51.100.7;proto=http".to_owned()), ("X", "198.51.100.7".to_owned())];
            let sent: Vec<_> = [&forged[..], &honest].concat();
            let mut headers = made(&sent);
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
            let told = find_sender(way("10.0.0.1", false), &headers, &proxies);
            prop_assert_eq!(shown(told), "198.51.100.7 http");
            // With one kind of header alone it is the client's address, with both it may be the proxy's.
            for kind in 0..2 {
                let sent: Vec<_> = [&lines[..], &honest[kind..=kind]].concat();
                let told = find_sender(way("10.0.0.1", false), &made(&sent), &proxies);
                prop_assert!(["198.51.100.7", "10.0.0.1"].contains(&told.address.to_string().as_str()), "{:?}", told);
            }
        }
    }
}
