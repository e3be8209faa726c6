//! Topics and their files: made, described, altered, trimmed, deleted.

use std::path::Path;

use serde_json::Value;

use super::Logctl;

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
