//! The `askd` binary.
fn main() {}
