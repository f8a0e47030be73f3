//! The files of agents.
#![allow(dead_code, unused_imports)]

#[path = "../../../src/ipc/wire/mod.rs"]
pub mod wire;
