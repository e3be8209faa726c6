//! Every integration test, in one binary: it links once.

mod kill;
mod power_cut;
mod system;
mod tidy;
