//! The places where people can be asked. A channel knows nothing of files, timers or who may answer.

pub mod web;
