//! Stand-ins for the platforms `askd` talks to, for its tests, its demo and its benches.
//!
//! They know the platforms' public contracts and nothing of the daemon: no `use` of `host`, `ipc`
//! or `ask` here, so that a mistake is not made twice and agreed upon.

pub mod whatsapp;
