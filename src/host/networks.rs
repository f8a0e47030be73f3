//! Which addresses lie in somebody's own network, and names that lead to none of them: what a browser or the settings name
//! must not reach what only this host can reach.

use crate::sabotage::on;
use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Networks that are not the internet, or lead into another one (the special-purpose registries of IANA).
const PRIVATE: [&str; 22] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/3",
    "::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "fc00::/7",
    "fe80::/9",
];

/// Whether an address is not on the internet.
pub(super) fn is_private(address: IpAddr) -> bool {
    // An IPv4 address inside an IPv6 one is judged as what it leads to.
    let address = match address.to_canonical() {
        IpAddr::V6(v6) if v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        address => address,
    };
    address.is_multicast()
        || PRIVATE.iter().filter_map(|net| net.parse::<IpNet>().ok()).any(|net| net.contains(&address))
}

/// Resolves names to addresses on the internet only. Who connects uses what was judged here: the name may lead elsewhere
/// a moment later.
#[derive(Debug, Clone, Copy)]
pub(super) struct PublicOnly {
    /// How an operator allows a private address.
    pub(super) otherwise: &'static str,
}

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        let otherwise = self.otherwise;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|found| !is_private(found.ip()) || on("anywhere")).collect();
            if public.is_empty() {
                return Err(format!("{} leads to a private address; {otherwise}", name.as_str()).into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_ones_own_network_are_told_apart() {
        assert!(PRIVATE.iter().all(|net| net.parse::<IpNet>().is_ok()));
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "fd00::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(is_private(private.parse().unwrap()), "{private}");
        }
        for public in
            ["8.8.8.8", "::ffff:8.8.8.8", "2a00:1450:4001::1", "172.32.0.1", "192.0.1.1", "64:ff9b::5db8:d70e"]
        {
            assert!(!is_private(public.parse().unwrap()), "{public}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_into_the_own_network_is_not_found() {
        let found = PublicOnly { otherwise: "ask" }.resolve("localhost".parse().unwrap()).await;
        assert!(found.is_err_and(|error| error.to_string() == "localhost leads to a private address; ask"));
    }
}
