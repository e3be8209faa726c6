//! Every integration test, in one binary: it links once.

mod crash_model;
mod support;
mod tidy;
