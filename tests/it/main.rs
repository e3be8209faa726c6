//! Every integration test, in one binary: it links once.

mod crash_model;
mod crash_regressions;
mod interleavings;
mod store_cases;
mod support;
mod tidy;
