//! Fuzz target: `Forwarded`, `X-Forwarded-For` and `X-Forwarded-Proto`, as a differential test against a
//! second parser.
//!
//! The input is lines: `F`, `X` or `P` for the header, a space, its value. The second parser is written from
//! the grammars of RFC 7239 and RFC 9110 with regular expressions and does not walk the hops: it searches for
//! the last element where the trust ends. Further properties: headers from an untrusted peer change nothing,
//! and an untrusted client that a proxy names last is the sender.

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue};
use regex::Regex;

use crate::model::Network;
use crate::wire::{PeerConnection, Sender, find_sender};

/// Elements before these are ignored.
const ELEMENTS_MAX: usize = 32;

const NAMES: [(&str, &str); 3] =
    [("F ", "forwarded"), ("X ", "x-forwarded-for"), ("P ", "x-forwarded-proto")];

static PROXIES: LazyLock<Vec<Network>> = LazyLock::new(|| {
    let texts = ["10.0.0.0/8", "127.0.0.1", "fd00::/8"];
    texts.iter().filter_map(|text| Network::parse(text).ok()).collect()
});

const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const UNTRUSTED_CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 9));

pub fn forwarded(data: &[u8]) {
    let mut headers = HeaderMap::new();
    let mut lines: [Vec<String>; 3] = Default::default();
    for line in data.split(|byte| *byte == b'\n') {
        for ((mark, name), seen) in NAMES.iter().zip(&mut lines) {
            let value = line.strip_prefix(mark.as_bytes());
            // A header cannot contain these bytes.
            if let Some(Ok(value)) = value.map(HeaderValue::from_bytes) {
                seen.push(String::from_utf8_lossy(value.as_bytes()).into_owned());
                headers.append(*name, value);
            }
        }
    }
    let by = |peer: IpAddr, headers: &HeaderMap| {
        find_sender(
            PeerConnection { peer: SocketAddr::new(peer, 80), is_tls: false },
            headers,
            &PROXIES,
        )
    };
    assert_eq!(by(UNTRUSTED_CLIENT, &headers), by(UNTRUSTED_CLIENT, &HeaderMap::new()));
    let ours = by(PROXY, &headers);
    assert_eq!(ours, second_parser_sender(&lines), "{lines:?}");
    // The proxy appends an untrusted client to everything that was sent.
    headers.remove("x-forwarded-proto");
    for (name, value) in
        [("forwarded", "for=192.0.2.9;proto=http"), ("x-forwarded-for", "192.0.2.9")]
    {
        headers.append(name, HeaderValue::from_static(value));
    }
    headers.insert("x-forwarded-proto", HeaderValue::from_static("http"));
    assert_eq!(by(PROXY, &headers), Sender { address: UNTRUSTED_CLIENT, is_https: Some(false) });
}

const TOKEN: &str = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+";
const QUOTED: &str = r#""(?:[^"\\]|\\.)*""#;

fn compile_pattern(pattern: &str) -> Regex {
    let pattern = pattern.replace("PAIR", r"TOKEN=(?:TOKEN|QUOTED)");
    let pattern = pattern.replace("TOKEN", TOKEN).replace("QUOTED", QUOTED);
    // A pattern that does not compile is a bug in the target.
    Regex::new(&format!("(?s){pattern}")).unwrap_or_else(|error| unreachable!("{error}"))
}

static LINE: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r#"^(?:[^"]|QUOTED)*$"#));
static ELEMENT: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r#"(?:[^",]|QUOTED)+"#));
static PAIRS: LazyLock<Regex> =
    LazyLock::new(|| compile_pattern(r"^[ \t;]*(?:PAIR(?:[ \t]*;[ \t;]*PAIR)*[ \t;]*)?$"));
static PAIR: LazyLock<Regex> =
    LazyLock::new(|| compile_pattern(r"(?<name>TOKEN)=(?:(?<token>TOKEN)|(?<quoted>QUOTED))"));
static ESCAPED: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"\\(.)"));
static NODE: LazyLock<Regex> = LazyLock::new(|| {
    compile_pattern(
        r"^(?:(?<four>[0-9.]+)|\[(?<six>[0-9A-Fa-f:.]+)\]|(?<hidden>(?i:unknown)|_[A-Za-z0-9._\-]+))(?::(?:[0-9]{1,5}|_[A-Za-z0-9._\-]+))?$",
    )
});
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| {
    compile_pattern(
        r"^(?:(?<four>[0-9.]+)(?::(?<port>[0-9]+))?|\[(?<six>[0-9A-Fa-f:.]+)\](?::(?<port6>[0-9]+))?|(?<bare>[0-9A-Fa-f:.]+))$",
    )
});

/// An element: unparsable (`None`), or an optional address and an optional scheme.
type ForwardedElement = Option<(Option<IpAddr>, Option<bool>)>;

fn second_parser_sender([forwarded, addresses, schemes]: &[Vec<String>; 3]) -> Sender {
    let elements = forwarded.iter().flat_map(|line| {
        let found = ELEMENT.find_iter(line).map(|found| found.as_str().trim_matches([' ', '\t']));
        let read = found.filter(|element| !element.is_empty()).map(parse_element);
        if LINE.is_match(line) { read.collect() } else { vec![None] }
    });
    let standard = (!forwarded.is_empty()).then(|| sender_before_last_trusted(elements.collect()));
    let elements =
        split_words(addresses).map(|text| parse_address(text).map(|address| (Some(address), None)));
    let mut common = sender_before_last_trusted(elements.collect());
    let parsed_schemes: Vec<Option<bool>> = split_words(schemes).map(parse_scheme).collect();
    common.is_https = parsed_schemes.first().copied().flatten();
    common.is_https =
        common.is_https.filter(|first| parsed_schemes.iter().all(|s| *s == Some(*first)));
    let is_common = !addresses.is_empty() || !schemes.is_empty();
    match (standard, is_common.then_some(common)) {
        (Some(one), Some(two)) => Sender {
            address: if one.address == two.address { one.address } else { PROXY },
            is_https: if one.is_https == two.is_https { one.is_https } else { None },
        },
        (one, two) => one.or(two).unwrap_or(Sender { address: PROXY, is_https: None }),
    }
}

fn split_words(lines: &[String]) -> impl Iterator<Item = &str> {
    let words = lines.iter().flat_map(|line| line.split(','));
    words.map(|word| word.trim_matches([' ', '\t'])).filter(|word| !word.is_empty())
}

/// Searches for the last element that is not the address of a trusted proxy.
fn sender_before_last_trusted(mut elements: Vec<ForwardedElement>) -> Sender {
    if elements.len() > ELEMENTS_MAX {
        elements.drain(..elements.len() - ELEMENTS_MAX);
        elements.splice(..1, [None]);
    }
    let is_trusted = |address: &IpAddr| PROXIES.iter().any(|network| network.contains(*address));
    let ends = |element: &ForwardedElement| {
        !element.is_some_and(|(address, _)| address.as_ref().is_some_and(is_trusted))
    };
    let at = elements.iter().rposition(ends).unwrap_or(0);
    let behind = elements.get(at + 1).copied().flatten().and_then(|(address, _)| address);
    let (address, is_https) = elements.get(at).copied().flatten().unwrap_or_default();
    Sender { address: address.or(behind).unwrap_or(PROXY), is_https }
}

fn parse_element(text: &str) -> ForwardedElement {
    PAIRS.find(text)?;
    let (mut element, mut names) = ((None, None), Vec::new());
    for found in PAIR.captures_iter(text) {
        let value = match (found.name("token"), found.name("quoted")) {
            (None, Some(quoted)) => {
                let inner = quoted.as_str().get(1..quoted.len() - 1).unwrap_or_default();
                ESCAPED.replace_all(inner, "$1").into_owned()
            }
            (token, _) => token.map_or("", |token| token.as_str()).to_owned(),
        };
        let name = found["name"].to_ascii_lowercase();
        match name.as_str() {
            "for" => element.0 = parse_node(&value)?,
            "proto" => element.1 = parse_scheme(&value),
            _ => {}
        }
        if names.contains(&name) {
            return None;
        }
        names.push(name);
    }
    Some(element)
}

fn parse_node(text: &str) -> Option<Option<IpAddr>> {
    let found = NODE.captures(text)?;
    if found.name("hidden").is_some() {
        return Some(None);
    }
    Some(Some(address_of_captures(&found)?))
}

fn parse_address(text: &str) -> Option<IpAddr> {
    let found = ADDRESS.captures(text)?;
    let port = found.name("port").or_else(|| found.name("port6"));
    if port.is_some_and(|port| port.as_str().parse::<u16>().is_err()) {
        return None;
    }
    match found.name("bare") {
        Some(bare) => Some(bare.as_str().parse::<IpAddr>().ok()?.to_canonical()),
        None => address_of_captures(&found),
    }
}

fn address_of_captures(found: &regex::Captures<'_>) -> Option<IpAddr> {
    let four = found.name("four").map(|four| four.as_str().parse().map(IpAddr::V4));
    let six = || found.name("six").map(|six| six.as_str().parse().map(IpAddr::V6));
    Some(four.or_else(six)?.ok()?.to_canonical())
}

fn parse_scheme(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "https" => Some(true),
        "http" => Some(false),
        _ => None,
    }
}
