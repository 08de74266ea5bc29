//! SSRF protection: the addresses that a webhook may lead to.
//!
//! Pure: the connector resolves names, and calls `AddressPolicy::allows` for every address. An IPv6 address that
//! contains an IPv4 address, which the network would translate to, is judged as that IPv4 address.

// Only the address types, without the sockets of `std::net`.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which addresses are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressPolicy {
    /// Only addresses of the public internet.
    PublicOnly,
    /// Private, loopback and link-local addresses too: `webhook_allow_private`.
    AllowPrivate,
}

impl AddressPolicy {
    pub fn new(allows_private: bool) -> Self {
        if allows_private { Self::AllowPrivate } else { Self::PublicOnly }
    }

    pub fn allows(self, address: IpAddr) -> bool {
        let address = match address {
            IpAddr::V6(v6) => embedded_ipv4(v6).map_or(address, IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        match (self, address) {
            // Nothing listens there, or Linux connects to itself: 0.0.0.0 and ::.
            (_, address) if address.is_unspecified() || address.is_multicast() => false,
            (_, IpAddr::V4(Ipv4Addr::BROADCAST)) => false,
            (Self::AllowPrivate, _) => true,
            (Self::PublicOnly, IpAddr::V4(v4)) => is_public_ipv4(v4),
            (Self::PublicOnly, IpAddr::V6(v6)) => is_public_ipv6(v6),
        }
    }
}

/// An IPv4 network: its first address, and the length of its prefix.
type Ipv4Range = ([u8; 4], u32);

/// The special-purpose networks of IPv4 (RFC 6890 and its registry), and one address of a public range.
const IPV4_REFUSED: [Ipv4Range; 16] = [
    // "This network", RFC 791 §3.2.
    ([0, 0, 0, 0], 8),
    // Private use, RFC 1918.
    ([10, 0, 0, 0], 8),
    // Shared by carriers and clouds, RFC 6598.
    ([100, 64, 0, 0], 10),
    // Loopback, RFC 1122 §3.2.1.3.
    ([127, 0, 0, 0], 8),
    // The platform channel of Azure's virtual machines, with the same trust as the metadata service.
    ([168, 63, 129, 16], 32),
    // Link-local, with the metadata services of clouds, RFC 3927.
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    // Protocol assignments, RFC 6890.
    ([192, 0, 0, 0], 24),
    // Documentation, RFC 5737.
    ([192, 0, 2, 0], 24),
    // Relays of 6to4, RFC 7526.
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    // Benchmarks of networks, RFC 2544.
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    // Multicast, RFC 5771.
    ([224, 0, 0, 0], 4),
    // Reserved, and the broadcast address, RFC 1112 §4.
    ([240, 0, 0, 0], 4),
];

fn is_public_ipv4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    let is_inside = |(network, prefix): Ipv4Range| {
        (bits ^ u32::from_be_bytes(network)).leading_zeros() >= prefix
    };
    !IPV4_REFUSED.into_iter().any(is_inside)
}

/// An IPv6 network: its first 16-bit groups, and the length of its prefix.
type Ipv6Range = ([u16; 2], u32);

/// The only range of IPv6 from which public addresses are assigned, RFC 3513 §4.
const IPV6_GLOBAL: Ipv6Range = ([0x2000, 0], 3);

/// The special-purpose networks inside of it.
const IPV6_REFUSED: [Ipv6Range; 3] = [
    // Protocol assignments, with Teredo and ORCHID, RFC 2928.
    ([0x2001, 0], 23),
    // Documentation, RFC 3849 and RFC 9637.
    ([0x2001, 0xdb8], 32),
    ([0x3fff, 0], 20),
];

fn is_public_ipv6(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    let is_inside = |([first, second], prefix): Ipv6Range| {
        let network = u128::from(first) << 112 | u128::from(second) << 96;
        (bits ^ network).leading_zeros() >= prefix
    };
    let is_global = is_inside(IPV6_GLOBAL) && !IPV6_REFUSED.into_iter().any(is_inside);
    is_global && !is_isatap(address)
}

/// ISATAP: the interface identifier `[02]00:5efe` and an IPv4 address, under any prefix, RFC 5214 §6.1. Such a tunnel
/// ends inside of a site, so none is public.
fn is_isatap(address: Ipv6Addr) -> bool {
    let [_, _, _, _, group, marker, _, _] = address.segments();
    group & !0x0200 == 0 && marker == 0x5efe
}

/// The IPv4 address to which packets for this address go.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, high, low] = address.segments();
    let from = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match [a, b, c, d, e, f] {
        // IPv4-mapped, RFC 4291 §2.5.5.2.
        [0, 0, 0, 0, 0, 0xffff] => Some(from(high, low)),
        // NAT64 with the well-known prefix, RFC 6052 §2.1.
        [0x64, 0xff9b, 0, 0, 0, 0] => Some(from(high, low)),
        // 6to4, RFC 3056 §2.
        [0x2002, high, low, ..] => Some(from(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(policy: AddressPolicy, text: &str) -> bool {
        policy.allows(text.parse().unwrap_or_else(|_| panic!("{text}")))
    }

    /// The first and the last address of each refused range, and the public addresses on both sides.
    #[test]
    fn address_borders_of_ipv4_ranges() {
        for (below, first, last, above) in [
            ("", "0.0.0.0", "0.255.255.255", "1.0.0.0"),
            ("9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0"),
            ("100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0"),
            ("126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0"),
            ("168.63.129.15", "168.63.129.16", "168.63.129.16", "168.63.129.17"),
            ("169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0"),
            ("172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0"),
            ("191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0"),
            ("192.0.1.255", "192.0.2.0", "192.0.2.255", "192.0.3.0"),
            ("192.88.98.255", "192.88.99.0", "192.88.99.255", "192.88.100.0"),
            ("192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0"),
            ("198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0"),
            ("198.51.99.255", "198.51.100.0", "198.51.100.255", "198.51.101.0"),
            ("203.0.112.255", "203.0.113.0", "203.0.113.255", "203.0.114.0"),
            ("223.255.255.255", "224.0.0.0", "255.255.255.255", ""),
        ] {
            for refused in [first, last] {
                assert!(!is_allowed(AddressPolicy::PublicOnly, refused), "{refused}");
                for embedded in embeddings(refused) {
                    assert!(!AddressPolicy::PublicOnly.allows(embedded), "{embedded}");
                }
            }
            for public in [below, above].into_iter().filter(|text| !text.is_empty()) {
                assert!(is_allowed(AddressPolicy::PublicOnly, public), "{public}");
                for embedded in embeddings(public) {
                    assert!(AddressPolicy::PublicOnly.allows(embedded), "{embedded}");
                }
            }
        }
    }

    /// The IPv6 addresses that lead to an IPv4 address.
    fn embeddings(text: &str) -> [IpAddr; 3] {
        let bits = u128::from(text.parse::<Ipv4Addr>().unwrap().to_bits());
        let mapped = 0xffff_0000_0000 | bits;
        let nat64 = 0x64_ff9b_u128 << 96 | bits;
        let six_to_four = 0x2002_u128 << 112 | bits << 80 | 1;
        [mapped, nat64, six_to_four].map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)))
    }

    #[test]
    fn address_borders_of_ipv6_ranges() {
        for refused in [
            "::",
            "::1",
            "::7f00:1",
            "::8.8.8.8",
            "64:ff9b:1::808:808",
            "100::1",
            "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "2001::",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
            "2001:db8::",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
            "3fff::",
            "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
            "2606:4700::5efe:7f00:1",
            "2606:4700::200:5efe:808:808",
            "::ffff:0:7f00:1",
            "::ffff:0:808:808",
            "4000::",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fdff:ffff::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ] {
            assert!(!is_allowed(AddressPolicy::PublicOnly, refused), "{refused}");
        }
        for public in [
            "2000::",
            "2001:200::",
            "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
            "2001:db9::",
            "2606:4700::1111",
            "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "3fff:1000::",
            "2606:4700::1:5efe:7f00:1",
        ] {
            assert!(is_allowed(AddressPolicy::PublicOnly, public), "{public}");
        }
    }

    #[test]
    fn address_private_when_allowed_is_everything_that_one_host_can_have() {
        for allowed in [
            "127.0.0.1",
            "10.1.2.3",
            "169.254.169.254",
            "::1",
            "fe80::1",
            "fd00::1",
            "::ffff:127.0.0.1",
            "8.8.8.8",
            "2606:4700::1111",
        ] {
            assert!(is_allowed(AddressPolicy::AllowPrivate, allowed), "{allowed}");
        }
        for refused in [
            "0.0.0.0",
            "::",
            "::ffff:0.0.0.0",
            "64:ff9b::",
            "224.0.0.1",
            "::ffff:239.255.255.250",
            "255.255.255.255",
            "ff02::1",
        ] {
            assert!(!is_allowed(AddressPolicy::AllowPrivate, refused), "{refused}");
        }
    }
}
