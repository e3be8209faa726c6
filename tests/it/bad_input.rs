//! Bad input: names, numbers, directories and files that are not what they should be.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use log_core::disk::{Disk, OsDisk};

use crate::system::quiet;

/// A process that another thread was just starting had a copy of the lock's descriptor: a store
/// that had been closed could not be opened again, now and then.
#[test]
fn a_lock_is_free_once_it_is_let_go_though_processes_are_being_started() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("LOCK");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                quiet(&mut Command::new("true"));
            }
        });
        let failed = (0..5_000).filter(|_| OsDisk.lock(&path).is_err()).count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0, "nobody else has it");
    });
}
