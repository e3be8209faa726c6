//! The house rules that no compiler checks: layers, file sizes, leftovers.
//!
//! The words that are looked for are put together by `concat!`, so that this file passes itself.

use std::fs;
use std::path::{Path, PathBuf};

/// What each module of log-core may name from its own crate, besides itself.
const LAYERS: &[(&str, &str)] = &[
    ("clock", ""),
    ("metrics", ""),
    ("partitioner", ""),
    ("offset", "clock"),
    // Names are refused with the one error, and the one error quotes names.
    ("name", "error"),
    ("error", "name offset"),
    ("codec", "error"),
    ("config", "error"),
    ("background", "error"),
    ("protocol", "clock codec config error offset"),
    ("record", "clock error offset"),
    ("disk", "error"),
    ("segment", "clock config disk error metrics name offset record"),
    ("partition", "background clock config disk error metrics name offset record segment"),
    (
        "store",
        "background clock codec config disk error metrics name offset partition partitioner record",
    ),
];

/// Code lines that a file may have above its tests. Past it, the file has two subjects.
const FILE_MAX_LINES: usize = 500;

const PACKAGES: [&str; 5] = ["log-core", "log-server", "log-client", "tests", "benches"];

/// What no finished file holds, in comments or in code.
const LEFTOVERS: [&str; 6] = [
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("TO", "DO"),
    concat!("dbg", "!("),
    concat!("#[ig", "nore"),
    concat!("[al", "low("),
];

#[test]
fn modules_of_log_core_name_only_what_is_below_them() {
    for (path, module) in modules_of_log_core() {
        if module == "lib" || inside_tests(&path) {
            continue;
        }
        let shown = path.display();
        let Some((_, below)) = LAYERS.iter().find(|(name, _)| *name == module) else {
            panic!("{shown}: say in tests/it/tidy.rs what {module} may name");
        };
        for name in names_after(&code(&path), "crate::") {
            assert!(!name.is_empty(), "{shown}: one `use` per module, so that it can be searched");
            let fine = name == module || below.split(' ').any(|allowed| allowed == name);
            assert!(fine, "{shown}: {module} may not name {name}");
        }
    }
}

#[test]
fn no_module_of_log_core_reaches_another_through_super() {
    let src = root().join("log-core/src");
    for (path, _) in modules_of_log_core().into_iter().filter(|(path, _)| !inside_tests(path)) {
        let top = path.parent() == Some(&src)
            || path.ends_with("mod.rs") && path.parent().and_then(Path::parent) == Some(&src);
        let out = if top { concat!("sup", "er::") } else { concat!("super::", "super::") };
        assert!(!code(&path).contains(out), "{}: write `crate::`", path.display());
    }
}

#[test]
fn crates_depend_one_way() {
    for (package, banned) in [
        ("log-core", ["tokio", "log-server", "log-client"].as_slice()),
        ("log-client", &["log-server"]),
        ("log-server", &["log-client"]),
    ] {
        let manifest = text(&root().join(package).join("Cargo.toml"));
        // What its own tests and examples use binds none of its users.
        let of_users = manifest.lines().take_while(|line| *line != "[dev-dependencies]");
        for line in of_users {
            let line = if line.starts_with("description") { "" } else { line };
            let found = banned.iter().find(|name| names(line, name));
            assert!(found.is_none(), "{package} may not depend on it: {line}");
        }
    }
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    for path in all_files() {
        let shown = path.display();
        assert!(text(&path).starts_with("//! "), "{shown}: its first line says what it is for");
        let lines = code(&path).lines().count();
        assert!(lines <= FILE_MAX_LINES, "{shown}: {lines} lines; it has two subjects");
    }
}

#[test]
fn nothing_is_left_over() {
    for path in all_files() {
        for leftover in LEFTOVERS {
            assert!(!text(&path).contains(leftover), "{}: {leftover}", path.display());
        }
    }
}

#[test]
fn what_is_dangerous_or_will_be_replaced_has_its_files() {
    for (word, homes) in [
        (concat!("uns", "afe"), ["log-core/src/disk/mmap.rs", "benches/src/raw_map.rs"].as_slice()),
        (concat!("bin", "code"), &["log-core/src/codec.rs"]),
    ] {
        for path in all_files() {
            let at_home = homes.iter().any(|home| path.ends_with(home));
            let strays = !at_home && code(&path).lines().any(|line| names(line, word));
            assert!(!strays, "{}: {word} belongs in {homes:?}", path.display());
        }
    }
}

#[test]
fn the_engine_prints_nothing() {
    for (path, _) in modules_of_log_core() {
        // The `e` variants end in the same letters.
        for print in [concat!("print", "ln!"), concat!("print", "!")] {
            assert!(!code(&path).contains(print), "{}: return a fact", path.display());
        }
    }
}

/// Whether a file holds unit tests alone: `foo/tests.rs`, or one of a folder `tests`.
fn inside_tests(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.iter().any(|part| part == "tests")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ has a parent").to_path_buf()
}

fn all_files() -> Vec<PathBuf> {
    let files: Vec<_> =
        PACKAGES.iter().flat_map(|package| rust_files(&root().join(package))).collect();
    assert!(!files.is_empty(), "a rule over no files holds of nothing");
    files
}

/// Each file of the engine with the top module that it belongs to.
fn modules_of_log_core() -> Vec<(PathBuf, String)> {
    let src = root().join("log-core/src");
    let module = |path: PathBuf| {
        let inside = path.strip_prefix(&src).expect("found below src");
        let first = inside.iter().next().expect("a file has a name").to_string_lossy();
        let module = first.trim_end_matches(".rs").to_owned();
        (path, module)
    };
    rust_files(&src).into_iter().map(module).collect()
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    for entry in entries {
        let path = entry.expect("a readable directory").path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The file without its unit tests and without lines of comment.
fn code(path: &Path) -> String {
    let text = text(path);
    let above = text.split("\nmod tests {").next().unwrap_or_default();
    let lines = above.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn names_after(text: &str, prefix: &str) -> Vec<String> {
    let word = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    text.split(prefix).skip(1).map(word).collect()
}

/// Whether a line holds a word as a whole; `-` and `_` are parts of words.
fn names(line: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    line.split(|c| !inside(c)).any(|found| found == word)
}
