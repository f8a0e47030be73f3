//! Integration tests: one binary, one file per story.

#[cfg(test)]
mod sim_whatsapp;
