//! Records through stdin and stdout: produce and consume.

use std::io::Read;

use serde_json::Value;

use super::{Logctl, Ran};

#[test]
fn lines_become_records_that_say_where_they_went() {
    let logctl = Logctl::new();
    logctl.ok("topic create orders --partitions 4");
    let lines = b"k1|one\nk2|two\n|empty key\nk1|\n\xff|\x80\x81\nlast|without newline";
    let args = ["--json", "produce", "orders", "--key-separator", "|", "-H", "a=1", "-H", "b"];
    let produced = logctl.produce(&args, lines);
    let told: Value = serde_json::from_str(&produced.out).unwrap();
    assert_eq!((produced.code, &told["records"]), (0, &6.into()));
    let partitions = told["partitions"].as_array().unwrap();
    let sum: u64 = partitions.iter().map(|partition| partition["records"].as_u64().unwrap()).sum();
    assert_eq!(sum, 6);

    let records = logctl.json("consume orders");
    assert_eq!(records.len(), 6);
    let of_key = |key: &str| -> Vec<&Value> {
        records.iter().filter(|record| record["key"] == key).collect()
    };
    let k1 = of_key("k1");
    assert_eq!((&k1[0]["value"], &k1[1]["value"]), (&"one".into(), &"".into()));
    assert_eq!(k1[0]["partition"], k1[1]["partition"]);
    assert_eq!(of_key("").len(), 1);
    let binary = records.iter().find(|record| record["key_encoding"] == "base64").unwrap();
    assert_eq!((&binary["key"], &binary["value"]), (&"/w==".into(), &"gIE=".into()));
    assert_eq!(binary["value_encoding"], "base64");
    let headers = serde_json::json!([{"name": "a", "value": "1"}, {"name": "b", "value": null}]);
    assert_eq!(binary["headers"], headers);
    for field in ["topic", "partition", "offset", "timestamp", "key", "value", "headers"] {
        assert!(k1[0].get(field).is_some(), "{field}");
    }
}

#[test]
fn a_key_or_a_partition_can_be_given_for_all_lines() {
    let logctl = Logctl::new();
    logctl.ok("topic create orders --partitions 4");
    let args = ["produce", "orders", "--key", "k", "--partition", "2", "--compression", "zstd"];
    let produced = logctl.produce(&args, "1\n2\n");
    assert!(produced.err.contains("appended 2 records"), "{}", produced.err);
    assert!(produced.err.contains("partition 2: 2 records, offsets 0..2"), "{}", produced.err);
    assert_eq!(logctl.produce(&["produce", "orders"], "no key\n").code, 0);
    assert_eq!(logctl.ok("consume orders --key k -f %p:%o:%k=%s;"), "2:0:k=1;2:1:k=2;");
    let keyless = logctl.json("consume orders").into_iter().find(|r| r["key"].is_null()).unwrap();
    assert_eq!(keyless["value"], "no key");
    assert_eq!(logctl.run("consume orders --key nobody").code, 1);
}

#[test]
fn a_line_that_is_refused_leaves_those_before_it_stored() {
    let logctl = Logctl::new();
    logctl.ok("topic create orders --partitions 1 --record-max-bytes 1KiB");
    let lines = format!("one\ntwo\n{}\nfour\n", "x".repeat(5000));
    let produced = logctl.produce(&["produce", "orders"], lines);
    assert_eq!(produced.code, 6, "{}", produced.err);
    assert!(produced.err.contains("line 3 was not appended"), "{}", produced.err);
    assert!(produced.err.contains("appended 2 records"), "{}", produced.err);
    assert_eq!(logctl.values("consume orders"), ["one", "two"]);
    // A line that never ends is refused once it is too long.
    let endless = logctl.produce(&["produce", "orders"], vec![b'y'; 8 << 20]);
    assert_eq!(endless.code, 6);
    let produced = logctl.produce(&["produce", "orders", "--key-separator", "="], "a=1\nb\n");
    assert_eq!(produced.code, 2);
    assert!(produced.err.contains("line 2"), "{}", produced.err);
    assert_eq!(logctl.values("consume orders"), ["one", "two", "1"]);
}

#[test]
fn many_lines_arrive_in_order_and_are_sound() {
    let logctl = Logctl::new();
    logctl.ok("topic create numbers --partitions 3");
    let lines: String = (0..200_000).map(|n| format!("k{}:{n}\n", n % 10)).collect();
    assert_eq!(logctl.produce(&["produce", "numbers", "--key-separator", ":"], lines).code, 0);
    let out = logctl.ok("consume numbers --key k7 -f %s\\n");
    let expected: String = (0..20_000).map(|n| format!("{}\n", n * 10 + 7)).collect();
    assert!(out == expected, "the records of a key are out of order");
    let sums = logctl.json("check numbers");
    assert_eq!((&sums[0]["sound"], &sums[0]["records"]), (&true.into(), &200_000.into()));
}

#[test]
fn offsets_are_chosen_as_help_says() {
    let logctl = Logctl::new();
    logctl.ok("topic create n --partitions 1");
    let lines: String = (0..10).map(|n| format!("{n}\n")).collect();
    logctl.produce(&["produce", "n"], lines);
    for (offsets, expected) in [
        ("start", "0123456789"),
        ("end", ""),
        ("+3", "3456789"),
        ("-3", "789"),
        ("-300", "0123456789"),
        ("4", "456789"),
        ("10", ""),
        ("2:5", "234"),
        ("2:500", "23456789"),
        ("+1:-7", "12"),
        ("@0", "0123456789"),
        ("@2013-01-01", "0123456789"),
        ("@2013-01-01:@2014-01-01", ""),
        ("@2013-01-01T00:00:00Z:2014-01-01T00:00:00+01:00", ""),
        ("@9999-01-01", ""),
    ] {
        assert_eq!(logctl.ok(&format!("consume n -f %s -o {offsets}")), expected, "{offsets}");
        let attached = logctl.ok(&format!("replay n -e -f %s --offsets={offsets}"));
        assert_eq!(attached, expected, "{offsets}");
    }
    assert_eq!(logctl.ok("consume n -f %s -o -5 -n 2"), "56");
    assert_eq!(logctl.ok("consume n -f %s -n 0"), "");
    let third = &logctl.json("consume n -o 3 -n 1")[0];
    let exactly = format!("consume n -f %s -o @{}:{}", third["timestamp"], i64::MAX);
    assert!(logctl.ok(&exactly).contains('3'));
}

#[test]
fn text_for_people_does_no_harm_to_a_terminal() {
    let logctl = Logctl::new();
    logctl.ok("topic create t --partitions 1");
    let args = ["produce", "t", "--key", "k\u{1b}[2J", "-H", "h=\u{7}"];
    assert_eq!(logctl.produce(&args, "a\tb\x1b]0;x\x07\n").code, 0);
    let out = logctl.ok("consume t");
    assert!(out.bytes().all(|byte| byte == b'\t' || byte == b'\n' || byte >= b' '), "{out:?}");
    let fields: Vec<_> = out.trim_end().split('\t').collect();
    assert_eq!(fields.len(), 6);
    assert_eq!((fields[0], fields[1], fields[4]), ("0", "0", r"a\tb\u{1b}]0;x\u{7}"));
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let logctl = Logctl::with_segments();
    let mut child = logctl.command(&["consume", "small"]).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 10];
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}
