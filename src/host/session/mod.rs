//! The agents' containers: whether they run, and starting and stopping them. When that is called for is the
//! broker's to decide.

pub mod docker;
