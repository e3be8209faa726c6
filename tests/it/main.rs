//! Every integration test, in one binary: it links once.

mod crash_enumerate;
mod crash_model;
mod crash_regressions;
mod damage;
mod interleavings;
mod model;
mod store_cases;
mod support;
mod tidy;
