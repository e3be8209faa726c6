//! Every integration test, in one binary: it links once.

mod interleavings;
mod store_cases;
mod tidy;
