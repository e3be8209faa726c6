//! logctl on a server: the same verbs say the same as on a directory, and those of a server alone.

use std::process::{Command, Stdio};

use log_server::{Server, ServerConfig};
use serde_json::Value;

use super::{Logctl, Ran};

struct Online {
    logctl: Logctl,
    server: Server,
}

impl Online {
    fn new() -> Online {
        let logctl = Logctl::new();
        let server = Server::bind(ServerConfig::local(logctl.data())).unwrap();
        Online { logctl, server }
    }

    fn with_orders() -> Online {
        let online = Online::new();
        online.ok("topic create orders --partitions 3");
        let lines = "a,1\nb,2\nc,3\na,4\nb,5\nc,6\n";
        let produced = online.produce("produce orders --key-separator ,", lines);
        assert_eq!(produced.code, 0, "{}", produced.err);
        online
    }

    fn produce(&self, line: &str, stdin: &str) -> Ran {
        use std::io::Write;
        let mut command = Command::new(env!("CARGO_BIN_EXE_logctl"));
        command.arg("--server").arg(self.server.address().to_string());
        command.args(line.split_whitespace()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // One that refuses its arguments does not read.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        Ran::from(child.wait_with_output().unwrap())
    }

    fn run(&self, line: &str) -> Ran {
        self.produce(line, "")
    }

    fn ok(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!(ran.code, 0, "{line}: {}{}", ran.out, ran.err);
        ran.out
    }

    fn json(&self, line: &str) -> Vec<Value> {
        let out = self.ok(&format!("{line} --json"));
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn fails(&self, line: &str, code: i32, says: &str) {
        let ran = self.run(line);
        assert_eq!(ran.code, code, "{line}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains(says), "{line}: {says:?} is not in {}", ran.err);
    }
}

/// The words that are printed, but for what differs from run to run: ids, times, and the bytes that
/// markers take, of which a directory gets one with each command.
fn normal(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c == ',').collect();
    let bare = |word: &str| word.trim_matches(['"', '}', ']']).to_owned();
    let shown = words.iter().zip(words.iter().skip(1).chain([&""])).map(|(word, next)| {
        let value = word.rsplit(':').next().map(bare).unwrap_or_default();
        let is_id = value.len() == 32 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_time = bare(word).ends_with('Z') || word.contains("timestamp");
        let is_bytes = *next == "KiB" || word.starts_with("\"bytes\":");
        if is_id || is_time || is_bytes { "?".to_owned() } else { (*word).to_owned() }
    });
    shown.filter(|word| !word.is_empty()).collect()
}

#[test]
fn the_same_verbs_say_the_same_on_a_server_and_on_a_directory() {
    let (directory, online) = (Logctl::new(), Online::new());
    let lines = "a,1\nb,2\nc,3\na,4\nb,5\nc,6\n";
    for line in [
        "topic create orders --partitions 3",
        "topic create orders --partitions 3",
        "topic create a/b --partitions 1",
        "topic describe nowhere",
        "produce orders --key-separator ,",
        "produce nowhere",
        "topic list",
        "topic list --json",
        "topic alter orders --retention-age 7d",
        "topic describe orders",
        "topic describe orders --json",
        "topic add-partitions orders 5",
        "topic add-partitions orders 2",
        "consume orders -e",
        "consume orders -e -o -1 -p 0",
        "consume orders -e --json",
        "consume orders -e --key a",
        "consume orders -e --key nobody",
        "consume orders -o 0:1",
        "consume orders -o @2013-01-01:2014-01-01",
        "consume orders -o 99 -p 0 -e",
        "consume orders -p 9 -e",
        "topic trim orders 0 1",
        "topic trim orders 0 99",
        "topic delete orders",
        "topic delete orders --yes",
        "topic delete orders --yes",
    ] {
        let words: Vec<_> = line.split_whitespace().collect();
        let (here, there) = (directory.produce(&words, lines), online.produce(line, lines));
        assert_eq!(there.code, here.code, "{line}: {} / {}", there.err, here.err);
        assert_eq!(normal(&there.out), normal(&here.out), "{line}");
    }
}

#[test]
fn a_group_is_listed_described_reset_and_deleted() {
    let online = Online::with_orders();
    online.fails("group describe billing", 3, "group");
    let read = online.json("consume orders --group billing --exit");
    assert_eq!(read.len(), 6);
    assert!(online.ok("consume orders --group billing --exit").is_empty(), "all is committed");
    assert!(online.ok("group list").contains("billing"));

    let described = &online.json("group describe billing")[0];
    let partitions = described["partitions"].as_array().unwrap();
    let lag = |at: &Value| at["lag"].as_u64().unwrap();
    assert_eq!((partitions.len(), partitions.iter().map(lag).sum::<u64>()), (3, 0));
    assert!(online.ok("group describe billing").contains("COMMITTED"));

    let planned = online.ok("group reset billing orders --to earliest --dry-run");
    assert!(planned.contains("nothing was changed"), "{planned}");
    assert!(online.ok("consume orders --group billing --exit").is_empty());
    online.ok("group reset billing orders --to earliest");
    assert_eq!(online.json("consume orders --group billing --exit").len(), 6);

    online.fails("group delete billing", 2, "say --yes");
    online.ok("group delete billing --yes");
    online.fails("group delete billing --yes", 3, "group");

    // What is committed can be looked at, and set, at rest, too.
    online.json("consume orders --group billing -n 2");
    let Online { logctl, server } = online;
    drop(server);
    assert!(logctl.ok("group list").contains("billing"));
    let lag_at_rest = || {
        let described = &logctl.json("group describe billing")[0];
        described["partitions"].as_array().unwrap().iter().map(lag).sum::<u64>()
    };
    assert_eq!(lag_at_rest(), 4);
    logctl.ok("group reset billing orders --to latest");
    assert_eq!(lag_at_rest(), 0);
    logctl.ok("group delete billing --yes");
    logctl.fails("group describe billing", 3, "no group");
}

#[test]
fn a_server_tells_how_it_is_and_how_fast() {
    let online = Online::new();
    let status = &online.json("status")[0];
    assert!(status["metrics"]["connections_open"].as_u64().unwrap() > 0, "{status}");
    assert!(online.ok("status").contains("METRIC"));
    for verb in ["produce", "consume", "e2e"] {
        let measured = &online.json(&format!("bench {verb} --seconds 1"))[0];
        assert!(measured["records"].as_u64().unwrap() > 0, "{verb}: {measured}");
    }
    online.fails("bench e2e --size 4", 2, "--size");
}

#[test]
fn what_needs_the_files_or_a_server_says_so() {
    let online = Online::new();
    for verb in ["check", "segments orders", "repair --dry-run"] {
        online.fails(verb, 2, "--data DIR");
    }
    let logctl = Logctl::with_orders();
    for verb in ["status", "bench produce"] {
        logctl.fails(verb, 2, "--server HOST:PORT");
    }
    logctl.fails("consume orders --group g", 2, "--server HOST:PORT");
    logctl.fails("produce orders --acks none", 2, "policy");
    let script = logctl.ok("completions bash");
    assert!(script.contains("logctl"));
}

#[test]
fn where_no_server_answers_the_next_step_is_told() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let mut command = Command::new(env!("CARGO_BIN_EXE_logctl"));
    command.env("LOG_SERVER", address.to_string()).args(["topic", "list"]);
    let ran = Ran::from(command.output().unwrap());
    let told = ran.err.contains("log-server --data DIR") && ran.err.contains("--data DIR");
    assert!(ran.code == 3 && told, "{}: {}", ran.code, ran.err);
}
