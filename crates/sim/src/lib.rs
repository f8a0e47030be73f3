//! Stand-ins for the chat platforms: strict about limits and signatures, with faults on demand and a page to click in.
//!
//! They stand beside `host` and know nothing of it: no `use` of `host`, `ipc` or `ask` here, so that a
//! mistake is not made twice and agreed upon. Used by tests, benches, the demo and the command that
//! runs one alone.
#![expect(clippy::disallowed_methods, reason = "the stand-ins know nothing of askd, its clock and its tasks included")]

mod line;
pub mod slack;
pub mod whatsapp;

pub use slack::{SlackArgs, run_slack};
