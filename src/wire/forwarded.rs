//! The client address behind trusted proxies: `Forwarded` (RFC 7239), `X-Forwarded-For` and
//! `X-Forwarded-Proto`.
//!
//! Pure. Other headers of proxies are ignored, and nothing from these headers ever becomes part of a URL in a
//! response. A proxy that writes one of the two kinds of header may pass through the other kind as its client
//! sent it, so where both are present only the facts on which both agree are trusted.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::header_syntax::{has_balanced_quotes, split_quoted, split_token, split_unquoted};
use crate::model::Network;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// No chain of proxies is longer; elements further to the left are ignored.
const HOPS_MAX: usize = 32;

/// The connection that a request arrived over.
#[derive(Debug, Clone, Copy)]
pub struct PeerConnection {
    /// The address of the other end of the connection.
    pub peer: SocketAddr,
    /// Whether this server terminates TLS for the connection.
    pub is_tls: bool,
}

/// The client that sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// The address in canonical form: never an IPv4-mapped IPv6 address.
    pub address: IpAddr,
    /// Whether the client used https; `None`: no trusted proxy says.
    pub is_https: Option<bool>,
}

impl Sender {
    /// Whether the request is protected from readers in transit: by https, or on the same machine.
    pub fn is_private(&self) -> bool {
        self.is_https == Some(true) || self.address.is_loopback()
    }
}

/// One hop, as the proxy at its end describes it.
#[derive(Debug, Clone, Copy)]
struct Hop {
    /// `None`: the proxy conceals it.
    from: Option<IpAddr>,
    is_https: Option<bool>,
}

/// From left to right; `None`: the element cannot be parsed.
type Hops = VecDeque<Option<Hop>>;

/// The client that sent a request over this connection, if these proxies are trusted.
pub fn find_sender(way: PeerConnection, headers: &HeaderMap, proxies: &[Network]) -> Sender {
    let peer = way.peer.ip().to_canonical();
    let is_trusted = |address: IpAddr| proxies.iter().any(|network| network.contains(address));
    if !is_trusted(peer) {
        // There may be an undeclared proxy.
        let is_clear = (!proxies.is_empty()).then_some(false);
        return Sender { address: peer, is_https: if way.is_tls { Some(true) } else { is_clear } };
    }
    match (from_forwarded(headers, peer, is_trusted), from_x_forwarded(headers, peer, is_trusted)) {
        // The proxy itself sent the request.
        (None, None) => Sender { address: peer, is_https: way.is_tls.then_some(true) },
        (Some(sender), None) | (None, Some(sender)) => sender,
        (Some(sender), Some(other)) => Sender {
            address: if sender.address == other.address { sender.address } else { peer },
            is_https: sender.is_https.filter(|is_https| other.is_https == Some(*is_https)),
        },
    }
}

fn from_forwarded(
    headers: &HeaderMap,
    peer: IpAddr,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Option<Sender> {
    headers.get(FORWARDED)?;
    let mut hops = Hops::new();
    for line in headers.get_all(FORWARDED) {
        let line = line.as_bytes();
        match has_balanced_quotes(line) {
            true => split_unquoted(line, b',')
                .for_each(|element| push_hop(&mut hops, parse_hop(element))),
            // It is impossible to tell which element a proxy has added.
            false => push_hop(&mut hops, None),
        }
    }
    Some(walk_hops(&hops, peer, is_trusted))
}

fn from_x_forwarded(
    headers: &HeaderMap,
    peer: IpAddr,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Option<Sender> {
    let (addresses, schemes) = (X_FORWARDED_FOR, X_FORWARDED_PROTO);
    headers.get(&addresses).or_else(|| headers.get(&schemes))?;
    let mut hops = Hops::new();
    for text in split_list(&join_lines(headers, &addresses)) {
        push_hop(
            &mut hops,
            parse_address(text).map(|from| Hop { from: Some(from), is_https: None }),
        );
    }
    let Sender { address, .. } = walk_hops(&hops, peer, is_trusted);
    // The schemes do not correspond to elements of the other list, so they count only if all are equal.
    let schemes = join_lines(headers, &schemes);
    let mut parsed_schemes = split_list(&schemes).map(parse_scheme);
    let first = parsed_schemes.next().flatten();
    let is_https = first.filter(|first| parsed_schemes.all(|other| other == Some(*first)));
    Some(Sender { address, is_https })
}

/// Walks from the right, the nearest hop, to the left: a trusted proxy is believed about the hop before it.
fn walk_hops(hops: &Hops, peer: IpAddr, is_trusted: impl Fn(IpAddr) -> bool) -> Sender {
    let mut sender = Sender { address: peer, is_https: None };
    for hop in hops.iter().rev() {
        let Some(hop) = hop else { return Sender { is_https: None, ..sender } };
        sender.is_https = hop.is_https;
        let Some(address) = hop.from else { return sender };
        sender.address = address;
        if !is_trusted(address) {
            return sender;
        }
    }
    sender
}

/// Keeps the last hops; a dropped one counts as unparsable.
fn push_hop(hops: &mut Hops, hop: Option<Hop>) {
    if hops.len() == HOPS_MAX {
        hops.pop_front();
        if let Some(first) = hops.front_mut() {
            *first = None;
        }
    }
    hops.push_back(hop);
}

/// RFC 9110 §5.3: joins all lines of a header.
fn join_lines(headers: &HeaderMap, name: &HeaderName) -> String {
    let lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    lines.map(String::from_utf8_lossy).collect::<Vec<_>>().join(",")
}

/// RFC 9110 §5.6.1.2: empty elements are ignored.
fn split_list(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(|text| text.trim_matches([' ', '\t'])).filter(|text| !text.is_empty())
}

/// RFC 7239 §4: `for=192.0.2.60;proto=http;by=203.0.113.43`. Spaces around `;` are not in the grammar, but
/// common.
fn parse_hop(element: &[u8]) -> Option<Hop> {
    let mut seen: Vec<&[u8]> = Vec::new();
    let mut hop = Hop { from: None, is_https: None };
    for pair in split_unquoted(element, b';') {
        let (name, rest) = split_token(pair)?;
        let value = parse_value(rest.strip_prefix(b"=")?)?;
        // RFC 7239 §4: each parameter occurs once.
        if seen.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return None;
        }
        seen.push(name);
        if name.eq_ignore_ascii_case(b"for") {
            hop.from = parse_node(&value)?;
        } else if name.eq_ignore_ascii_case(b"proto") {
            hop.is_https = parse_scheme(&value);
        }
    }
    Some(hop)
}

/// A token, or the content of a quoted string.
fn parse_value(value: &[u8]) -> Option<String> {
    let (content, rest) = match value {
        [b'"', inside @ ..] => split_quoted(inside).ok()?,
        token => split_token(token).map(|(token, rest)| (token.into(), rest))?,
    };
    rest.is_empty().then(|| String::from_utf8_lossy(&content).into_owned())
}

/// RFC 7239 §6: an address with or without a port, or an obfuscated name.
fn parse_node(text: &str) -> Option<Option<IpAddr>> {
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (Some(IpAddr::V6(address.parse::<Ipv6Addr>().ok()?)), port),
        None => {
            let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let is_hidden = name.eq_ignore_ascii_case("unknown") || is_obfuscated(name);
            let address = || name.parse::<Ipv4Addr>().ok().map(IpAddr::V4);
            (if is_hidden { None } else { Some(address()?) }, port)
        }
    };
    let is_port = |port: &str| {
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        is_obfuscated(port) || (is_number && (1..=5).contains(&port.len()))
    };
    let is_whole = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    is_whole.then_some(name.map(|address| address.to_canonical()))
}

/// Whether a text is an obfuscated identifier (RFC 7239 §6.3).
fn is_obfuscated(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.strip_prefix('_').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_letter))
}

/// The address in `X-Forwarded-For`: some proxies append a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    // A zone has a meaning only on the proxy's machine.
    if text.contains('%') {
        return None;
    }
    let bare = text.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|at| at.ip()));
    let inner = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok();
    bare.ok().or_else(|| inner().map(IpAddr::V6)).map(|address| address.to_canonical())
}

fn parse_scheme(scheme: &str) -> Option<bool> {
    match scheme {
        _ if scheme.eq_ignore_ascii_case("https") => Some(true),
        _ if scheme.eq_ignore_ascii_case("http") => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
