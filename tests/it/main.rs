//! Stories about the whole of askd: the real binary, real files, real HTTP. One file a story,
//! `harness.rs` holds the world they play in.
#![cfg(feature = "host")]

mod accepting;
mod answering;
mod bad_input;
mod broken_on_purpose;
mod command_line;
mod crashes;
mod documents;
mod finding;
mod harness;
mod house;
mod http;
mod timing;
