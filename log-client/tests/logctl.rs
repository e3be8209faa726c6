//! logctl as its users run it: every verb, what it prints, and the exit code.
#![expect(clippy::disallowed_methods, reason = "tests look at files, and damage them, directly")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use log_core::config::StoreConfig;
use log_core::store::{OpenMode, Store};
use serde_json::Value;
use tempfile::TempDir;

struct Logctl {
    dir: TempDir,
}

struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Logctl {
    fn new() -> Logctl {
        Logctl { dir: tempfile::tempdir().unwrap() }
    }

    /// A store with topic `orders`: three keys, two records each, in three partitions.
    fn with_orders() -> Logctl {
        let logctl = Logctl::new();
        logctl.ok("topic create orders --partitions 3");
        let lines = "a,1\nb,2\nc,3\na,4\nb,5\nc,6\n";
        let produced = logctl.produce(&["produce", "orders", "--key-separator", ","], lines);
        assert_eq!(produced.code, 0, "{}", produced.err);
        logctl
    }

    /// A store with topic `small`: one partition in several segments, 300 records.
    fn with_segments() -> Logctl {
        let logctl = Logctl::new();
        let limits = "--segment-bytes 64KiB --batch-max-bytes 16KiB --record-max-bytes 8KiB";
        logctl.ok(&format!("topic create small --partitions 1 {limits}"));
        let lines = format!("{}\n", "x".repeat(1000)).repeat(300);
        assert_eq!(logctl.produce(&["produce", "small"], lines).code, 0);
        logctl
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_logctl"));
        command.arg("--data").arg(self.data()).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn produce(&self, args: &[&str], stdin: impl AsRef<[u8]>) -> Ran {
        let mut child = self.command(args).spawn().unwrap();
        // One that refuses its arguments does not read.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_ref());
        Ran::from(child.wait_with_output().unwrap())
    }

    /// Runs with arguments that have no spaces in them.
    fn run(&self, line: &str) -> Ran {
        self.produce(&line.split_whitespace().collect::<Vec<_>>(), "")
    }

    fn ok(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!(ran.code, 0, "{line}: {}{}", ran.out, ran.err);
        ran.out
    }

    fn fails(&self, line: &str, code: i32, says: &str) {
        let ran = self.run(line);
        assert_eq!(ran.code, code, "{line}: {}{}", ran.out, ran.err);
        let said = ran.err.contains(says);
        assert!(said && !ran.err.contains("panicked"), "{line}: {says:?} is not in {}", ran.err);
    }

    fn json(&self, line: &str) -> Vec<Value> {
        let ran = self.run(&format!("{line} --json"));
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Values of `consume`, in the order in which they were printed.
    fn values(&self, line: &str) -> Vec<String> {
        let text = |record: &Value| record["value"].as_str().unwrap().to_owned();
        self.json(line).iter().map(text).collect()
    }

    /// The segments of a topic's partition, the oldest first.
    fn segments(&self, topic: &str, partition: u64) -> Vec<PathBuf> {
        let described = self.json(&format!("segments {topic} -p {partition}"));
        described.iter().map(|segment| PathBuf::from(segment["path"].as_str().unwrap())).collect()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code().expect("it was not killed"),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

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
fn a_topic_lives_from_create_to_delete() {
    let logctl = Logctl::new();
    assert_eq!(logctl.ok("topic create orders --partitions 3"), "created topic orders\n");
    logctl.ok("topic create clicks --partitions 1 --flush interval:200ms:1MiB --retention-age 7d");
    let listed = logctl.json("topic list");
    let names: Vec<_> = listed.iter().map(|topic| topic["topic"].as_str().unwrap()).collect();
    assert_eq!(names, ["clicks", "orders"]);
    assert_eq!(listed[1]["partitions"], 3);

    let config = &logctl.json("topic describe clicks")[0]["config"];
    assert_eq!(config["flush"], "interval:200ms:1MiB");
    assert_eq!(config["retention_max_age_ms"], 7 * 24 * 3600 * 1000_u64);
    logctl.ok("topic alter clicks --retention-age none --retention-bytes 1GiB --flush os");
    let config = &logctl.json("topic describe clicks")[0]["config"];
    assert_eq!((&config["flush"], &config["retention_max_age_ms"]), (&"os".into(), &Value::Null));
    assert_eq!(config["retention_max_bytes"], 1_u64 << 30);

    logctl.ok("topic add-partitions orders 5");
    let described = &logctl.json("topic describe orders")[0];
    assert_eq!(described["partitions"].as_array().unwrap().len(), 5);
    assert!(logctl.ok("topic describe orders").contains("retention-age             none"));

    logctl.fails("topic delete orders", 2, "--yes");
    logctl.ok("topic delete orders --yes");
    logctl.fails("topic describe orders", 3, "orders does not exist");
}

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
    let without = Command::new(env!("CARGO_BIN_EXE_logctl")).args(["topic", "list"]).output();
    let without = Ran::from(without.unwrap());
    assert_eq!((without.code, without.err.contains("--data DIR")), (2, true));
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
fn trimming_moves_the_start() {
    let logctl = Logctl::with_segments();
    let trimmed = &logctl.json("topic trim small 0 250")[0];
    assert_eq!(trimmed["log_start"], 250);
    assert!(trimmed["removed_segments"].as_u64().unwrap() > 1);
    assert_eq!(logctl.json("consume small")[0]["offset"], 250);
    logctl.fails("consume small -o 249", 3, "the partition holds 250..300");
    assert_eq!(logctl.run("check").code, 0);
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
fn segments_say_what_is_in_each_file() {
    let logctl = Logctl::with_segments();
    let segments = logctl.json("segments small");
    assert!(segments.len() > 2);
    let mut next = 0;
    for segment in &segments {
        assert_eq!(segment["start"], next);
        next = segment["end"].as_u64().unwrap();
        assert!(Path::new(segment["path"].as_str().unwrap()).exists());
        assert_eq!(segment["fault"], Value::Null);
    }
    assert_eq!(next, 300);
    assert_eq!(segments[0]["sealed"], true);
    assert!(logctl.ok("segments small").contains("00000000000000000000-00000001.log"));
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

#[test]
fn a_damaged_catalog_is_named() {
    let logctl = Logctl::with_orders();
    flip(&logctl.data().join("catalog"), 20);
    for line in ["topic list", "check", "consume orders", "repair --apply"] {
        logctl.fails(line, 1, "catalog");
    }
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

#[test]
fn help_documents_grammar_and_exit_codes() {
    let logctl = Logctl::new();
    let help = logctl.ok("--help");
    assert!(help.contains("Exit codes:") && help.contains("Examples:"));
    let help = logctl.ok("consume --help");
    for part in ["+n", "-n", "@t", "FROM:TO", "%k", "base64", "takes no lock"] {
        assert!(help.contains(part), "{part}");
    }
    for verb in ["produce", "check", "repair", "segments", "topic create", "topic alter"] {
        assert!(logctl.ok(&format!("{verb} --help")).contains("Example"), "{verb}");
    }
}
