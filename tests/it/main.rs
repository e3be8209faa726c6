//! Every integration test, in one binary: it links once.

mod bad_input;
mod crash_model;
mod crash_regressions;
mod full_disk;
mod interleavings;
mod kill;
mod power_cut;
mod sealing;
mod store_cases;
mod support;
mod system;
mod tidy;
