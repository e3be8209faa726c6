//! Damage: found, named, stepped over, repaired on demand.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::Logctl;

/// Flips a byte where `bytes` stand in the file for the last time.
fn damage(path: &Path, bytes: &[u8]) {
    let file = fs::read(path).unwrap();
    let at = file.windows(bytes.len()).rposition(|window| window == bytes).unwrap();
    flip(path, at as u64);
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

#[test]
fn a_flipped_byte_is_found_named_and_stepped_over() {
    let logctl = Logctl::with_orders();
    assert!(logctl.ok("check").ends_with(": sound\n"));
    let partition = logctl.json("consume orders --key b")[0]["partition"].as_u64().unwrap();
    // In a record: the length of the value in front of it, as a varint.
    damage(&logctl.segments("orders", partition)[0], b"b\x022");
    let ran = logctl.run("check");
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains("DAMAGED") && ran.out.contains("checksum"), "{}", ran.out);
    let found = logctl.json("check orders");
    assert_eq!(found[0]["finding"], "corrupt");
    assert_eq!(found[0]["partition"], partition);
    assert!(found[0]["position"].as_u64().unwrap() >= 4096);
    assert_eq!(found.last().unwrap()["sound"], false);
    // The other partitions are read all the same.
    let ran = logctl.run("consume orders -f %k=%s,");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("corrupt data in"), "{}", ran.err);
    assert!(ran.out.contains("=") && !ran.out.contains("b=2"), "{}", ran.out);
    // It is isolated: there is nothing to decide.
    let ran = logctl.run("repair --dry-run");
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(ran.out.contains("can't be read and are given up"), "{}", ran.out);
    let partition = partition.to_string();
    assert_eq!(logctl.produce(&["produce", "orders", "-p", &partition], "7\n").code, 0);
    assert_eq!(logctl.values(&format!("consume orders -p {partition} -o -1")), ["7"]);
}

#[test]
fn a_damaged_index_is_found_and_repair_removes_it() {
    let logctl = Logctl::with_segments();
    let index = logctl.segments("small", 0)[0].with_extension("index");
    assert!(index.exists(), "{}", index.display());
    flip(&index, 40);
    assert_eq!(logctl.json("check")[0]["finding"], "index");
    assert_eq!(logctl.run("check").code, 1);
    let step = &logctl.json("repair --dry-run")[0];
    assert_eq!((&step["action"], &step["done"]), (&"remove-index".into(), &false.into()));
    assert_eq!(logctl.run("repair --dry-run").code, 1);
    assert!(index.exists());
    assert_eq!(logctl.run("repair --apply").code, 0);
    assert_eq!(logctl.run("check").code, 0);
    assert_eq!(logctl.run("repair --dry-run").code, 0);
    assert_eq!(logctl.json("consume small").len(), 300);
}

#[test]
fn an_end_that_cannot_be_proven_waits_for_repair() {
    let logctl = Logctl::with_segments();
    let segments = logctl.json("segments small");
    let last = segments.last().unwrap();
    fs::remove_file(last["path"].as_str().unwrap()).unwrap();
    let refused = logctl.produce(&["produce", "small"], "more\n");
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("logctl repair"), "{}", refused.err);
    assert_eq!(logctl.run("check").code, 1);
    let plan = logctl.json("repair --dry-run small");
    let step = plan.iter().find(|step| step["action"] == "go-on").unwrap();
    assert_eq!((&step["goes_on_at"], &step["done"]), (&last["start"], &false.into()));
    assert_eq!(logctl.run("repair --dry-run").code, 1);
    assert_eq!(logctl.produce(&["produce", "small"], "more\n").code, 1);

    let done = logctl.json("repair --apply small");
    assert!(done.iter().any(|step| step["action"] == "go-on" && step["done"] == true));
    assert_eq!(logctl.produce(&["produce", "small"], "more\n").code, 0);
    assert_eq!(logctl.values("consume small -o -1"), ["more"]);
}

#[test]
fn a_damaged_catalog_is_named() {
    let logctl = Logctl::with_orders();
    flip(&logctl.data().join("catalog"), 20);
    for line in ["topic list", "check", "consume orders"] {
        logctl.fails(line, 1, "catalog");
    }
}

#[test]
fn a_lost_catalog_is_made_anew() {
    let logctl = Logctl::with_orders();
    let before = logctl.values("consume orders");
    fs::write(logctl.data().join("catalog"), b"").unwrap();
    let ran = logctl.run("check");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("logctl repair"), "{}", ran.err);
    let step = &logctl.json("repair --dry-run")[0];
    assert_eq!(
        (step["action"].as_str(), step["topic"].as_str()),
        (Some("rebuild-catalog"), Some("orders"))
    );
    assert_eq!(logctl.run("check").code, 1, "a dry run changes nothing");
    assert_eq!(logctl.run("repair --apply").code, 0);
    assert_eq!(logctl.values("consume orders"), before);
    assert!(logctl.ok("check").ends_with(": sound\n"));
}
