//! Which addresses askd calls because a browser named them: push services on the internet, over HTTPS, and those that the
//! settings name. Anything else in the operator's own network must not be reached this way, whatever its name resolves to.

use url::{Host, Url};

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
}
