//! The server over real sockets, byte by byte.

mod binary;
mod limits;
mod requests;
mod stop;
mod support;
