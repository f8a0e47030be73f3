//! The address of a webhook that starts or stops an agent, and the keys that sign its calls.

use crate::host::networks::is_private;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use secrecy::SecretSlice;
use std::path::PathBuf;
use url::{Host, Url};

/// Before a key, in the spelling of the Standard Webhooks specification.
const PREFIX: &str = "whsec_";
/// How many bytes the specification allows a key.
const KEY: std::ops::RangeInclusive<usize> = 24..=64;

/// Where a session is started or stopped by a signed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Where it leads.
    pub url: Url,
    secret_file: PathBuf,
    /// Whether its name may lead to a private address. One that stands in the URL itself is allowed.
    pub private: bool,
}

impl Webhook {
    pub(super) fn new(url: &str, secret_file: PathBuf, private: bool) -> Result<Self, String> {
        let parsed = Url::parse(url).ok().filter(|url| url.has_host() && matches!(url.scheme(), "http" | "https"));
        let parsed = parsed.ok_or_else(|| format!("{url:?} is not a URL like https://example.com/continue"))?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("a webhook's URL must not contain a user name or password: remove them; the signature takes their place".to_owned());
        }
        let inside = match parsed.host() {
            Some(Host::Ipv4(address)) => is_private(address.into()),
            Some(Host::Ipv6(address)) => is_private(address.into()),
            Some(Host::Domain(_)) | None => private,
        };
        if parsed.scheme() == "http" && !inside {
            // An address says itself whether it is.
            let in_own_network =
                if parsed.domain().is_some() { ", or, if the host is in your own network, private = true" } else { "" };
            return Err(format!("{url} is not encrypted: write https://{in_own_network}"));
        }
        let webhook = Self { url: parsed, secret_file, private };
        webhook.keys().map(|_| webhook)
    }

    /// The host that is called.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
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
