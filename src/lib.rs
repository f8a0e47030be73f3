//! `askd` lets an agent without a screen ask a person and wait.
pub mod ask;
