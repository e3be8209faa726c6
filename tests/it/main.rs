//! Every integration test, in one binary: it links once.

mod crash_model;
mod crash_regressions;
mod support;
mod tidy;
