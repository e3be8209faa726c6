//! Help and the documentation say what is so.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Logctl, Ran};

#[test]
fn the_examples_of_the_documentation_run() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/logctl.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks = page.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let script: String = blocks.collect();
    let bin = Path::new(env!("CARGO_BIN_EXE_logctl")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-euc", &script]).env("PATH", path).current_dir(&dir).stdin(Stdio::null());
    let ran = Ran::from(shell.output().unwrap());
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("o-17") && ran.out.contains(": sound"), "{}", ran.out);
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
