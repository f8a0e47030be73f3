//! `[http]`: where to listen, and under which names.

use super::values::list;
use super::{SettingsError, wrong};
use serde::Deserialize;
use std::net::SocketAddr;
use url::{Host, Url};

/// `[http]`.
#[derive(Debug, Clone)]
pub struct Http {
    /// Where the inbox and the API are.
    pub listen: SocketAddr,
    /// Where the webhooks are, alone; `None`: beside the inbox.
    pub webhook_listen: Option<SocketAddr>,
    /// How people reach it from elsewhere; no slash at the end.
    pub public_url: Option<String>,
    /// Further names.
    pub allowed_hosts: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpShape {
    listen: String,
    webhook_listen: String,
    public_url: String,
    #[serde(deserialize_with = "list")]
    allowed_hosts: Vec<String>,
}

impl HttpShape {
    pub(super) fn check(self) -> Result<Http, SettingsError> {
        let listen: SocketAddr = self
            .listen
            .parse()
            .map_err(|_| wrong("http.listen", format!("{:?} is not an address like 127.0.0.1:8484", self.listen)))?;
        let public_url = Some(self.public_url.trim_end_matches('/').to_owned()).filter(|url| !url.is_empty());
        if let Some(url) = &public_url
            && url_host(url).is_none()
        {
            return Err(wrong("http.public_url", format!("{url:?} is not a URL like https://askd.example.com")));
        }
        if !listen.ip().is_loopback() && public_url.is_none() && self.allowed_hosts.is_empty() {
            return Err(wrong(
                "http.listen",
                format!(
                    "{listen} can be reached from other machines; say under which names: set http.public_url \
                     (https://askd.example.com) or http.allowed_hosts ([\"askd.example.com\"])"
                ),
            ));
        }
        let webhook_listen = Some(self.webhook_listen).filter(|text| !text.is_empty());
        let webhook_listen = webhook_listen.map(|text| {
            text.parse().map_err(|_| {
                wrong("http.webhook_listen", format!("{text:?} is neither \"\" nor an address like 0.0.0.0:8485"))
            })
        });
        Ok(Http { listen, webhook_listen: webhook_listen.transpose()?, public_url, allowed_hosts: self.allowed_hosts })
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
