//! The one HTTP client, of the daemon and of the command line. It uses no proxy, so that a token goes to the address
//! that the settings name and nowhere else.

use reqwest::ClientBuilder;
use std::time::Duration;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Builds a client for calls to this address. The caller limits how long each call may take.
pub(super) fn client_for(url: &str) -> ClientBuilder {
    let builder = ClientBuilder::new()
        .connect_timeout(CONNECT_TIMEOUT)
        .no_proxy()
        .user_agent(concat!("askd/", env!("CARGO_PKG_VERSION")));
    // Plain HTTP needs no certificates, and slim images have none.
    if url.starts_with("http://") { builder.tls_certs_only([]) } else { builder.https_only(true) }
}

/// The innermost cause: the outer errors only say that there was one.
pub(super) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
