use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Why no connection may go to this address, in a word or two; `None` for an address of the public
/// internet.
///
/// What an allowed name resolves to is in the hands of whoever runs its zone. Without this, they
/// would reach what listens on this machine and in its network.
pub fn reserved(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => reserved_v4(address),
        IpAddr::V6(address) => reserved_v6(address),
    }
}

/// Whether the machine itself has this address. No packet is sent.
///
/// A public address of its own leads to whatever listens here, as loopback does.
pub(super) fn is_own(address: IpAddr) -> bool {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // The kernel takes the address of the destination as the source when it is its own.
    let source = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

fn reserved_v4(address: Ipv4Addr) -> Option<&'static str> {
    let bits = u32::from(address);
    let within = |network: [u8; 4], length: u32| {
        let mask = u32::MAX << (32 - length);
        bits & mask == u32::from(Ipv4Addr::from(network))
    };
    Some(match address.octets() {
        _ if within([169, 254, 169, 254], 32) => "metadata",
        _ if within([100, 100, 100, 200], 32) => "metadata",
        _ if within([168, 63, 129, 16], 32) => "metadata",
        _ if within([0, 0, 0, 0], 8) => "unspecified",
        _ if within([127, 0, 0, 0], 8) => "loopback",
        _ if within([10, 0, 0, 0], 8) => "private",
        _ if within([172, 16, 0, 0], 12) => "private",
        _ if within([192, 168, 0, 0], 16) => "private",
        _ if within([100, 64, 0, 0], 10) => "shared",
        _ if within([169, 254, 0, 0], 16) => "link-local",
        _ if within([192, 0, 0, 0], 24) => "reserved",
        _ if within([192, 0, 2, 0], 24) => "documentation",
        _ if within([198, 51, 100, 0], 24) => "documentation",
        _ if within([203, 0, 113, 0], 24) => "documentation",
        _ if within([192, 88, 99, 0], 24) => "relay",
        _ if within([198, 18, 0, 0], 15) => "benchmark",
        _ if within([224, 0, 0, 0], 4) => "multicast",
        _ if within([240, 0, 0, 0], 4) => "reserved",
        _ => return None,
    })
}

fn reserved_v6(address: Ipv6Addr) -> Option<&'static str> {
    let bits = u128::from(address);
    let within = |network: Ipv6Addr, length: u32| {
        let mask = u128::MAX << (128 - length);
        bits & mask == u128::from(network)
    };
    let network = |first: u16, second: u16| Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0);
    Some(match () {
        () if address.is_loopback() => "loopback",
        () if within(network(0xfe80, 0), 10) => "link-local",
        () if within(network(0xfc00, 0), 7) => "private",
        () if within(network(0xff00, 0), 8) => "multicast",
        () if within(network(0x64, 0xff9b), 32) => "translated",
        // Beyond 2000::/3 nothing is public.
        () if !within(network(0x2000, 0), 3) => "reserved",
        // Addresses that carry an IPv4 address, which a gateway on the way would go to.
        () if within(network(0x2002, 0), 16) => "translated",
        () if within(network(0x2001, 0), 32) => "translated",
        () if within(network(0x2001, 0), 23) => "reserved",
        () if within(network(0x2001, 0xdb8), 32) => "documentation",
        () if within(network(0x3fff, 0), 20) => "documentation",
        () => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bc_36_what_is_not_public_is_refused() {
        for text in [
            "127.0.0.1",
            "127.255.255.255",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.169.254",
            "169.254.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "198.18.0.1",
            "203.0.113.1",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::a00:1",
            "2002:7f00:1::",
            "2001:0:1::",
            "fe80::1",
            "fec0::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001:db8::1",
            "3fff::1",
            "100::1",
            "5f00::1",
        ] {
            assert!(reserved(text.parse().unwrap()).is_some(), "{text}");
        }
        for text in [
            "1.1.1.1",
            "140.82.121.4",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "2a00:1450::1",
        ] {
            assert_eq!(reserved(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn an_address_of_this_machine_is_known() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("192.0.2.1".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn bc_36_the_clothes_of_ipv6_change_nothing(bits: u32) {
            let plain = Ipv4Addr::from(bits);
            let mapped = IpAddr::V6(plain.to_ipv6_mapped());
            prop_assert_eq!(reserved(mapped), reserved(IpAddr::V4(plain)));
            let standard = plain.is_private() || plain.is_loopback() || plain.is_link_local()
                || plain.is_multicast() || plain.is_broadcast() || plain.is_unspecified()
                || plain.is_documentation();
            prop_assert!(!standard || reserved(IpAddr::V4(plain)).is_some());
        }
    }
}
