//! What is refused, and the exit code that says why.

use std::process::Command;

use log_core::config::StoreConfig;
use log_core::store::{OpenMode, Store};

use super::{Logctl, Ran};

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_made() {
    let logctl = Logctl::new();
    for (line, says) in [
        ("", "Usage"),
        ("topic create a/b --partitions 1", "illegal topic name"),
        ("topic create __x --partitions 1", "illegal topic name"),
        ("topic create a", "--partitions"),
        ("topic create a --partitions 0", "1..=10000"),
        ("topic create a --partitions 10001", "1..=10000"),
        ("topic create a --partitions x", "invalid"),
        ("topic create a --partitions 1 --flush never", "interval:200ms:1MiB"),
        ("topic create a --partitions 1 --retention-age 7", "unit"),
        ("topic create a --partitions 1 --segment-bytes 1KiB", "segment_max_bytes"),
        ("topic alter a", "what is to be altered"),
        ("repair", "--dry-run"),
        ("repair --dry-run --apply", "cannot be used with"),
        ("consume a -o 5:3", "ends before it begins"),
        ("consume a -o x", "start, end"),
        ("consume a -o @2013-02-30", "no time"),
        ("consume a -f %q", "%q is not known"),
        ("consume a -f %s --json", "cannot be used with"),
        ("produce a --key k --key-separator :", "cannot be used with"),
        ("produce a -H =v", "has no name"),
    ] {
        logctl.fails(line, 2, says);
    }
    assert!(!logctl.data().exists(), "a refused command has made something");
    let both = logctl.run("--server 127.0.0.1:1 topic list");
    assert_eq!((both.code, both.err.contains("one of the two")), (2, true));
}

#[test]
fn what_is_not_there_has_an_exit_code_of_its_own() {
    let logctl = Logctl::new();
    for line in ["topic list", "consume a", "produce a", "check", "segments a", "repair --dry-run"]
    {
        logctl.fails(line, 3, "there is no store");
    }
    assert!(!logctl.data().exists());
    logctl.ok("topic create orders --partitions 2");
    for line in ["consume a", "produce a", "check a", "segments a", "topic trim a 0 0"] {
        logctl.fails(line, 3, "topic a does not exist");
    }
    for line in ["consume orders -p 2", "produce orders -p 2", "segments orders -p 2"] {
        logctl.fails(line, 3, "has no partition 2: it has 2");
    }
    logctl.fails("consume orders -o 5", 3, "offset 5 is out of range");
    logctl.fails("topic trim orders 0 5", 3, "offset 5 is out of range");
    logctl.fails("topic create orders --partitions 2", 6, "exists already");
    logctl.fails("topic add-partitions orders 1", 2, "can't be taken away");
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error_of_the_disk() {
    let args = ["--data", "/proc/nothing", "topic", "create", "a", "--partitions", "1"];
    let ran = Command::new(env!("CARGO_BIN_EXE_logctl")).args(args).output();
    let ran = Ran::from(ran.unwrap());
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(ran.err.contains("/proc/nothing"), "{}", ran.err);
}

#[test]
fn a_store_in_use_is_not_written_and_not_checked() {
    let logctl = Logctl::with_orders();
    let store = Store::open(logctl.data(), StoreConfig::default(), OpenMode::MustExist).unwrap();
    for line in [
        "topic create more --partitions 1",
        "topic delete orders --yes",
        "topic trim orders 0 0",
        "check",
        "repair --dry-run",
        "repair --apply",
        "produce orders",
    ] {
        logctl.fails(line, 4, "is in use by another process");
    }
    assert_eq!(logctl.json("consume orders").len(), 6);
    assert_eq!(logctl.run("topic list").code, 0);
    assert_eq!(logctl.run("segments orders").code, 0);
    store.close().unwrap();
    assert_eq!(logctl.run("check").code, 0);
}
