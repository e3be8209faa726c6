//! Consumers against a real server.
#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod alone;
mod group;
mod modes;
mod world;
