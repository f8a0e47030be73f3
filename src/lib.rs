//! `askd` lets an agent without a screen ask a person and wait. Start with `ARCHITECTURE.md`.
//!
//! The binary needs [`main`], the tests need what `testing` names, and nothing else leaves the crate: so the compiler
//! tells what nobody uses.
#![cfg_attr(
    all(test, feature = "host"),
    expect(clippy::too_many_lines, reason = "a test may be a table, or read from top to bottom")
)]

mod agent;
mod cli;
#[cfg_attr(not(feature = "host"), expect(dead_code, reason = "the agent's side uses less of it"))]
mod clock;
#[cfg(feature = "demo")]
mod demo;
#[cfg(feature = "host")]
mod host;
#[cfg_attr(not(feature = "host"), expect(dead_code, unused_imports, reason = "the agent's side uses less of it"))]
mod ipc;
mod mcp;
#[cfg(test)]
mod odd;
#[cfg_attr(not(feature = "host"), expect(dead_code, reason = "the agent's side uses less of it"))]
mod random;
#[cfg_attr(not(feature = "host"), expect(dead_code, reason = "the agent's side uses less of it"))]
mod sabotage;

pub use cli::main;

/// What the tests of this package use of the daemon. It is no interface: it changes with any commit.
#[cfg(feature = "host")]
#[doc(hidden)]
pub mod testing {
    pub use crate::clock::{Clock, Hand};
    pub use crate::host::broker::Broker;
    pub use crate::host::channel::Adapter;
    pub use crate::host::port::{Channel, Progress, Updated};
    pub use crate::host::session::docker::{Engine, EngineError};
    pub use crate::host::settings::{Means, RouteSettings, Settings};
    pub use crate::host::{CHANNELS, Daemon};
}
