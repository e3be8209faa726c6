//! Consumers against a real server.

mod alone;
mod group;
mod modes;
mod world;
