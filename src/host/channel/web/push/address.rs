//! Which addresses askd calls because a browser named them: push services on the internet, over HTTPS, and those that the
//! settings name. Anything else in the operator's own network must not be reached this way, whatever its name resolves to.

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use url::{Host, Url};

/// Networks that are not the internet, or lead into another one.
const PRIVATE: [&str; 23] = [
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
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "fc00::/7",
    "fe80::/9",
];
const LONGEST: usize = 2048;

/// The address of a push service that askd may call. `named`: hosts with their port that the settings allow.
pub(super) fn allowed(endpoint: &str, named: &[String]) -> Result<Url, &'static str> {
    let url = Url::parse(endpoint).ok().filter(|_| endpoint.len() <= LONGEST).ok_or("endpoint is not an address")?;
    if is_named(&url, named) {
        return Ok(url);
    }
    match url.host() {
        _ if url.scheme() != "https" => Err("endpoint does not begin with https://"),
        Some(Host::Domain(_)) if url.username().is_empty() && url.password().is_none() => Ok(url),
        _ => Err("endpoint does not name the host of a push service"),
    }
}

/// Whether the settings allow this host, so that it may be in a private network.
pub(super) fn is_named(url: &Url, named: &[String]) -> bool {
    let own = url.host_str().zip(url.port_or_known_default()).map(|(host, port)| format!("{host}:{port}"));
    matches!(url.scheme(), "http" | "https") && own.is_some_and(|own| named.contains(&own))
}

/// Finds addresses on the internet only.
#[derive(Debug)]
pub(super) struct PublicOnly(Arc<[IpNet]>);

impl Default for PublicOnly {
    fn default() -> Self {
        Self(PRIVATE.iter().filter_map(|network| network.parse().ok()).collect())
    }
}

fn is_private(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_multicast() || networks.iter().any(|network| network.contains(&address))
}

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        let networks = Arc::clone(&self.0);
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| !is_private(&networks, address.ip())).collect();
            if public.is_empty() {
                return Err(format!("{} is in a private network; [web] push_hosts can allow it", name.as_str()).into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_refused_in_every_spelling() {
        let named = ["10.0.0.9:8080".to_owned()];
        for good in [
            "https://push.example/a",
            "https://push.example:8443/a?b",
            "http://10.0.0.9:8080/x",
            "https://10.0.0.9:8080/",
        ] {
            assert!(allowed(good, &named).is_ok(), "{good}");
        }
        for bad in [
            "http://push.example/a",
            "https://10.0.0.1/",
            "https://8.8.8.8/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://[::1]/",
            "https://a:b@push.example/",
            "http://10.0.0.9/",
            "ftp://10.0.0.9:8080/",
            "file:///etc/passwd",
            "push",
            "",
            &format!("https://push.example/{}", "a".repeat(LONGEST)),
        ] {
            assert!(allowed(bad, &named).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_addresses_on_the_internet_are_found() {
        let PublicOnly(networks) = PublicOnly::default();
        assert_eq!(networks.len(), PRIVATE.len());
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
            assert!(is_private(&networks, private.parse().unwrap()), "{private}");
        }
        for public in ["8.8.8.8", "142.250.1.1", "::ffff:8.8.8.8", "2a00:1450:4001::1", "172.32.0.1", "192.0.1.1"] {
            assert!(!is_private(&networks, public.parse().unwrap()), "{public}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_into_the_own_network_is_not_found() {
        let found = PublicOnly::default().resolve("localhost".parse().unwrap()).await;
        assert!(found.is_err_and(|error| error.to_string().contains("private network")));
    }
}
