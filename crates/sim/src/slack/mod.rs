//! A strict stand-in of Slack: Web API, interactions, events, Socket Mode, faults on demand, and a page to click in.
//!
//! Strict means: what Slack would refuse is refused, with Slack's names, and where Slack's limit is not known for sure the stricter reading holds; each module
//! says which of its facts are documented, read from official clients, or guessed. It is no model of Slack's storage, search, files or permissions of people.
//! Binds 127.0.0.1 only. Knows nothing of the daemon. Used by tests, benches and the demo, and judged by Slack's own clients (`tests/contract`).

mod api;
pub mod blocks;
mod calls;
mod chance;
mod config;
mod deliver;
mod emoji;
mod events;
mod faults;
mod handle;
mod interact;
mod message;
mod pace;
mod page;
mod raw;
mod respond;
mod run;
mod shared;
mod sign;
mod socket;
mod write;

pub use calls::{Call, Outcome, too_early};
pub use config::{ALL_SCOPES, APP_TOKEN, BOT_TOKEN, Channel, Config, SIGNING_SECRET, Token, User};
pub use deliver::Delivery;
pub use faults::{EVENTS, Fault, FaultKind, Faults, INTERACTIONS, Times};
pub use handle::{Goodbye, Slack};
pub use interact::{Act, At};
pub use message::Message;
pub use raw::{Raw, RawAnswer};
pub use run::{SlackArgs, run_slack};
pub use sign::sign;
pub use socket::MAX_SOCKETS;
