//! `askd` lets an agent without a screen ask a person and wait.

#[cfg(feature = "host")]
pub mod sim;
