//! Stand-ins for the chat platforms: strict about limits and signatures, with faults on demand and a page to click in.
//!
//! They stand beside `host` and know nothing of it. Used by tests, benches, the demo and the command that runs one alone.

pub mod slack;

pub use slack::{SlackArgs, run_slack};
