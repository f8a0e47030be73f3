//! The address of a webhook that starts or stops an agent, and the keys that sign its calls.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use ipnet::IpNet;
use secrecy::SecretSlice;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use url::{Host, Url};

/// Networks that are nobody's on the internet: a name that leads there could reach what only this host can reach.
const PRIVATE: [&str; 18] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/3",
    "::/96",
    "64:ff9b:1::/48",
    "2001::/32",
    "2002::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
];
/// Before a key, in the spelling of the Standard Webhooks specification.
const PREFIX: &str = "whsec_";
/// How many bytes the specification allows a key.
const KEY: std::ops::RangeInclusive<usize> = 24..=64;

/// Where a session is started or stopped by a signed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    url: Url,
    secret_file: PathBuf,
    private: bool,
}

impl Webhook {
    pub(super) fn new(url: &str, secret_file: PathBuf, private: bool) -> Result<Self, String> {
        let parsed = Url::parse(url).ok().filter(|url| url.has_host() && matches!(url.scheme(), "http" | "https"));
        let parsed = parsed.ok_or_else(|| format!("{url:?} is not a URL like https://example.com/continue"))?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("the URL of a webhook holds no name and password; the signature takes their place".to_owned());
        }
        let inside = match parsed.host() {
            Some(Host::Ipv4(address)) => is_private(address.into()),
            Some(Host::Ipv6(address)) => is_private(address.into()),
            Some(Host::Domain(_)) | None => private,
        };
        if parsed.scheme() == "http" && !inside {
            return Err(format!(
                "{url} is not encrypted: write https://, or, if the host is in your own network, private = true"
            ));
        }
        let webhook = Self { url: parsed, secret_file, private };
        webhook.keys().map(|_| webhook)
    }

    /// Where it leads.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The host that is called.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Whether a name may lead to this address. An address that stands in the URL itself is allowed.
    pub fn allows(&self, address: IpAddr) -> bool {
        self.private || !is_private(address)
    }

    /// The keys, each of which signs: one a line, so that a new one can be added before the old one goes.
    pub fn keys(&self) -> Result<Vec<SecretSlice<u8>>, String> {
        let file = self.secret_file.display();
        let text =
            std::fs::read_to_string(&self.secret_file).map_err(|error| format!("cannot read {file}: {error}"))?;
        let keys: Option<Vec<SecretSlice<u8>>> = text.split_whitespace().map(key).collect();
        keys.filter(|keys| !keys.is_empty()).ok_or_else(|| {
            format!(
                "{file} holds no key of Standard Webhooks. Make one: printf 'whsec_%s\\n' \"$(openssl rand -base64 32)\" > {file}"
            )
        })
    }
}

fn key(text: &str) -> Option<SecretSlice<u8>> {
    let bytes = BASE64.decode(text.strip_prefix(PREFIX)?).ok()?;
    KEY.contains(&bytes.len()).then(|| bytes.into())
}

fn is_private(address: IpAddr) -> bool {
    // An IPv4 address inside an IPv6 one is judged as what it leads to.
    let address = match address.to_canonical() {
        IpAddr::V6(v6) if v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        address => address,
    };
    PRIVATE.iter().filter_map(|net| net.parse::<IpNet>().ok()).any(|net| net.contains(&address))
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
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "fd00::1",
            "fe80::1",
            "2002:7f00:1::",
        ] {
            assert!(is_private(private.parse().unwrap()), "{private}");
        }
        for public in ["93.184.215.14", "172.32.0.1", "2606:4700::1", "64:ff9b::5db8:d70e", "::ffff:93.184.215.14"] {
            assert!(!is_private(public.parse().unwrap()), "{public}");
        }
    }
}
