//! `askd` lets an agent without a screen ask a person and wait. Start with `ARCHITECTURE.md`.

pub mod agent;
pub mod cli;
pub mod clock;
#[cfg(feature = "demo")]
pub mod demo;
#[cfg(feature = "host")]
pub mod host;
pub mod ipc;
pub mod random;
pub mod sabotage;
