//! Every integration test, in one binary: it links once.

mod bad_input;
mod crash_enumerate;
mod crash_model;
mod crash_regressions;
mod damage;
mod full_disk;
mod interleavings;
mod kill;
mod model;
mod power_cut;
mod sealing;
mod store_cases;
mod support;
mod system;
mod tidy;
