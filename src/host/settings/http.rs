//! `[http]`: where to listen, and under which names.

use super::mistakes::Mistakes;
use super::values::{list, or_zero, seconds};
use serde::de::{Error as _, IntoDeserializer as _};
use serde::{Deserialize, Deserializer};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use url::{Host, Url};

/// `[http]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Where the inbox and the API are.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Where the webhooks are, alone; `None`: beside the inbox.
    #[serde(deserialize_with = "another_address")]
    pub webhook_listen: Option<SocketAddr>,
    /// How people reach it from elsewhere; no slash at the end.
    #[serde(deserialize_with = "public_url")]
    pub public_url: Option<String>,
    /// Further names.
    #[serde(deserialize_with = "list")]
    pub allowed_hosts: Vec<String>,
    /// How long a daemon that was told to stop still takes calls, while `/readyz` says that it stops.
    #[serde(deserialize_with = "or_zero")]
    pub stop_delay: Duration,
}

/// `[agents]`: where agents ask over HTTP, and under which names.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agents {
    /// `None`: nowhere, until there is a token.
    #[serde(deserialize_with = "another_address")]
    pub listen: Option<SocketAddr>,
    #[serde(deserialize_with = "public_url")]
    public_url: Option<String>,
    #[serde(deserialize_with = "list")]
    allowed_hosts: Vec<String>,
    /// How long a question counts as waited for after an MCP call was told that it is pending.
    #[serde(deserialize_with = "seconds::<60, 86_400, _>")]
    pub pending_lease: Duration,
    tls_cert: PathBuf,
    tls_key: PathBuf,
}

/// Where agents ask over HTTP if there is a token and no address is set.
const FOR_AGENTS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8486);

impl Agents {
    /// The same for the HTTP server, which serves nothing else there.
    pub fn http(&self) -> Http {
        let Self { listen, public_url, allowed_hosts, .. } = self.clone();
        let (listen, stop_delay) = (listen.unwrap_or(FOR_AGENTS), Duration::ZERO);
        Http { listen, webhook_listen: None, public_url, allowed_hosts, stop_delay }
    }

    /// Where agents ask over HTTP.
    pub fn url(&self) -> String {
        self.http().url(if self.tls().is_some() { "https" } else { "http" })
    }

    /// The files of its certificate and the key, if it has TLS of its own.
    pub fn tls(&self) -> Option<(PathBuf, PathBuf)> {
        (!self.tls_cert.as_os_str().is_empty()).then(|| (self.tls_cert.clone(), self.tls_key.clone()))
    }

    pub(super) fn check(&self, http: &Http, mistakes: &mut Mistakes) {
        self.http().check("agents", mistakes);
        let addresses = [
            ("http.listen", Some(http.listen)),
            ("http.webhook_listen", http.webhook_listen),
            ("agents.listen", self.listen),
        ];
        for (at, (key, address)) in addresses.iter().enumerate() {
            let same = |(_, before): &&(&str, Option<SocketAddr>)| before.is_some() && before == address;
            if let Some((before, _)) = addresses[..at].iter().find(same)
                && address.is_some_and(|address| address.port() != 0)
            {
                mistakes.add(*key, format!("askd listens there already ({before}); use another port"));
            }
        }
        let is_set = |path: &PathBuf| !path.as_os_str().is_empty();
        if is_set(&self.tls_cert) != is_set(&self.tls_key) {
            mistakes.add("agents.tls_cert", "a certificate needs its key: set both tls_cert and tls_key, or neither");
        }
    }
}

fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|_| D::Error::custom(format!("{text:?} is not an address like 127.0.0.1:8484")))
}

fn another_address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    (!text.is_empty()).then(|| address(text.into_deserializer())).transpose()
}

fn public_url<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let url = String::deserialize(from)?.trim_end_matches('/').to_owned();
    if !url.is_empty() && url_host(&url).is_none() {
        return Err(D::Error::custom(format!("{url:?} is not a URL like https://askd.example.com")));
    }
    Ok(Some(url).filter(|url| !url.is_empty()))
}

impl Http {
    /// What people and clients call it, or else its address in this scheme.
    pub(super) fn url(&self, scheme: &str) -> String {
        self.public_url.clone().unwrap_or_else(|| format!("{scheme}://{}", reachable(self.listen)))
    }

    pub(super) fn check(&self, section: &str, mistakes: &mut Mistakes) {
        let Self { listen, public_url, allowed_hosts, .. } = self;
        if !listen.ip().is_loopback() && public_url.is_none() && allowed_hosts.is_empty() {
            let why = format!(
                "{listen} can be reached from other machines; say under which names: set {section}.public_url \
                 (https://askd.example.com) or {section}.allowed_hosts ([\"askd.example.com\"])"
            );
            mistakes.add(format!("{section}.listen"), why);
        }
    }
}

/// An http or https URL without a name and password in it.
fn web_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let plain = url.username().is_empty() && url.password().is_none() && url.has_host();
    (plain && matches!(url.scheme(), "http" | "https")).then_some(url)
}

/// Host and port of an http or https URL, as they stand in a `Host` header.
pub fn url_host(text: &str) -> Option<String> {
    let url = web_url(text)?;
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// Whether a URL is plain http to this very machine.
pub fn is_loopback_url(text: &str) -> bool {
    let loopback = |host: Host<&str>| match host {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    };
    web_url(text).is_some_and(|url| url.scheme() == "http" && url.host().is_some_and(loopback))
}

/// An address that can be connected to: what listens everywhere is reached on the loopback.
pub fn reachable(mut listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        listen.set_ip(if listen.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
    }
    listen
}
