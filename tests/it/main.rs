//! Every integration test, in one binary: it links once.

mod bad_input;
mod cases_a;
mod cases_a_whole;
mod cases_b;
mod cases_c;
mod cases_e_h;
mod crash_enumerate;
mod crash_model;
mod crash_regressions;
mod damage;
mod failed_sync;
mod full_disk;
mod group_model;
mod hostile;
mod interleavings;
mod kill;
mod model;
mod power_cut;
mod requests;
mod sealing;
mod served;
mod store_cases;
mod support;
mod system;
mod tidy;
