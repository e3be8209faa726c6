//! Every integration test, in one binary: it links once.

mod interleavings;
mod tidy;
