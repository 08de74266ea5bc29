//! IP networks in CIDR notation, for the trusted proxies.
//!
//! Pure: nothing is resolved, so host names are refused. An IPv4-mapped IPv6 address (`::ffff:10.0.0.1`) is
//! treated as the IPv4 address, in networks and in the addresses compared with them.

use std::fmt;
// Only the address types, without the sockets of `std::net`.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses with a common prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// All bits after the prefix are zero.
    address: IpAddr,
    prefix: u8,
}

/// Whether `text` is a port. Rust's parser would also accept `+80`.
pub fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// Why a text is not a network that can be trusted, with an example of one.
#[derive(Debug, PartialEq, Eq)]
pub struct NetworkFault {
    pub what: String,
    pub help: String,
}

const NETWORK_HELP: &str = "such as 10.0.0.0/8, fd00::/8, or the address of one proxy, 127.0.0.1";

impl Network {
    /// `10.0.0.0/8`, `2001:db8::/32`; a single address is a network of one.
    pub fn parse(text: &str) -> Result<Self, NetworkFault> {
        let fault = |what: String, help: &str| NetworkFault { what, help: help.to_owned() };
        let (address, prefix) = match text.split_once('/') {
            None => (text, None),
            Some((address, prefix)) => (address, Some(prefix)),
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            return Err(fault(format!("expected a network, got {text:?}"), NETWORK_HELP));
        };
        let bits = address_bits(address);
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = match prefix {
            None => Some(bits),
            Some(digits) if is_number(digits) => digits.parse().ok().filter(|count| *count <= bits),
            Some(_) => None,
        };
        let Some(prefix) = prefix else {
            let what = format!("expected a prefix from 1 to {bits} behind the /, got {text:?}");
            return Err(fault(what, NETWORK_HELP));
        };
        let network = Self { address: mask_address(address, prefix), prefix };
        if network.address != address {
            let what =
                format!("{text:?} has an address with more bits than its prefix of {prefix}");
            let help = format!("write {network} for the network, or {address} for the one address");
            return Err(NetworkFault { what, help });
        }
        let network = network.canonical();
        if network.prefix == 0 {
            let what = format!("{text:?} would let everyone claim to be at any address");
            return Err(fault(what, "name the addresses of the proxies alone"));
        }
        Ok(network)
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        mask_address(address.to_canonical(), self.prefix) == self.address
    }

    /// Converts an IPv4-mapped IPv6 network to IPv4.
    fn canonical(self) -> Self {
        match (self.address.to_canonical(), self.prefix.checked_sub(MAPPED_BITS)) {
            (address @ IpAddr::V4(_), Some(prefix)) if self.address.is_ipv6() => {
                Self { address, prefix }
            }
            _ => self,
        }
    }
}

/// The prefix length of `::ffff:0:0/96`, which contains all IPv4-mapped addresses.
const MAPPED_BITS: u8 = 96;

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl fmt::Display for NetworkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.help)
    }
}

fn address_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with all bits after the prefix cleared.
fn mask_address(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn network_contains_addresses_with_its_prefix() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
            ("::ffff:10.0.0.0/104", "10.1.2.3", "::a00:1"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("127.0.0.1/32", "::ffff:127.0.0.1", "::1"),
            ("192.0.2.128/25", "192.0.2.200", "192.0.2.127"),
            ("128.0.0.0/1", "255.0.0.1", "127.255.255.255"),
            ("::1", "::1", "::2"),
            ("::1", "::1", "0.0.0.1"),
            ("2001:db8::/32", "2001:db8:ffff::9", "2001:db9::"),
            ("8000::/1", "ffff::", "::1"),
            ("::/8", "::1", "1.2.3.4"),
        ] {
            let parsed = Network::parse(network).unwrap();
            assert!(parsed.contains(inside.parse().unwrap()), "{inside} in {network}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{outside} in {network}");
        }
    }

    #[test]
    fn network_invalid_text_is_refused_with_help() {
        let told = [
            "",
            "proxy.example",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "::1/129",
            "10.0.0.1/8",
            "2001:db8::1/64",
            "0.0.0.0/0",
            "::/0",
            "::ffff:0.0.0.0/96",
        ]
        .map(|text| Network::parse(text).unwrap_err().to_string());
        expect![[r#"
            expected a network, got ""; such as 10.0.0.0/8, fd00::/8, or the address of one proxy, 127.0.0.1
            expected a network, got "proxy.example"; such as 10.0.0.0/8, fd00::/8, or the address of one proxy, 127.0.0.1
            expected a prefix from 1 to 32 behind the /, got "10.0.0.0/"; such as 10.0.0.0/8, fd00::/8, or the address of one proxy, 127.0.0.1
            expected a prefix from 1 to 32 behind the /, got "10.0.0.0/33"; such as 10.0.0.0/8, fd00::/8, or the address of one proxy, 127.0.0.1
            expected a prefix from 1 to 32 behind the /, got "10.0.0.0/+8"; such as 10.0.0.0/8, fd00::/8, or the address of one proxy, 127.0.0.1
            expected a prefix from 1 to 128 behind the /, got "::1/129"; such as 10.0.0.0/8, fd00::/8, or the address of one proxy, 127.0.0.1
            "10.0.0.1/8" has an address with more bits than its prefix of 8; write 10.0.0.0/8 for the network, or 10.0.0.1 for the one address
            "2001:db8::1/64" has an address with more bits than its prefix of 64; write 2001:db8::/64 for the network, or 2001:db8::1 for the one address
            "0.0.0.0/0" would let everyone claim to be at any address; name the addresses of the proxies alone
            "::/0" would let everyone claim to be at any address; name the addresses of the proxies alone
            "::ffff:0.0.0.0/96" would let everyone claim to be at any address; name the addresses of the proxies alone"#]].assert_eq(&told.join("\n"));
    }

    proptest::proptest! {
        #[test]
        fn network_parse_never_panics(text in "\\PC{0,30}|[0-9a-f:./]{0,30}") {
            if let Ok(network) = Network::parse(&text) {
                proptest::prop_assert!(network.contains(network.address));
                proptest::prop_assert_eq!(Network::parse(&network.to_string()), Ok(network));
            }
        }
    }
}
