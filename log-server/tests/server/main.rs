//! The server over real sockets, byte by byte.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod binary;
mod limits;
mod requests;
mod stop;
mod support;
