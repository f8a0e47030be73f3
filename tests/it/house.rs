//! The laws of the house that a compiler does not know: who may import whom, and what is deliberately
//! absent. The table stands in `ARCHITECTURE.md`, so that the document cannot say something else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The rooms named in the table, each with the rooms it may import.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows =
        text.lines().skip_while(|line| !line.starts_with("| room ")).skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let words = |cell: &str| {
            cell.split(',')
                .map(|word| word.trim().trim_matches('`').to_owned())
                .filter(|word| !word.is_empty())
                .collect()
        };
        (cells[0].trim_matches('`').to_owned(), words(cells[1]))
    })
    .collect()
}

/// The top-level rooms that a file mentions as `crate::room`, its own left out.
fn imports(text: &str) -> BTreeSet<String> {
    text.match_indices("crate::")
        // `$crate::` and other crates' paths do not count.
        .filter(|(at, _)| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == ':' || c == '_'))
        .map(|(at, found)| {
            let rest = &text[at + found.len()..];
            rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        })
        .collect()
}

fn room(path: &Path) -> String {
    let inner = path.strip_prefix(root().join("src")).unwrap();
    let first = inner.iter().next().unwrap().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

#[test]
fn imports_go_downhill_only() {
    let table = table();
    assert!(table.len() >= 6, "the table of ARCHITECTURE.md was not found");
    let mut seen = BTreeSet::new();
    for path in sources(&root().join("src")) {
        let from = room(&path);
        if matches!(from.as_str(), "main" | "lib") {
            continue;
        }
        let allowed = table.get(&from).unwrap_or_else(|| panic!("{from} is missing in the table of ARCHITECTURE.md"));
        for to in imports(&fs::read_to_string(&path).unwrap()) {
            assert!(
                to == from || allowed.contains(&to),
                "{} imports crate::{to}, which {from} may not",
                path.display()
            );
        }
        seen.insert(from);
    }
    for room in table.keys() {
        assert!(seen.contains(room), "{room} stands in the table of ARCHITECTURE.md and is not there");
    }
}

/// The rooms of `host` in the order of ARCHITECTURE.md: each with its place, counted from the left.
fn host_rooms() -> BTreeMap<String, usize> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let order = text.lines().find(|line| line.starts_with("ctx, ")).expect("the order of the rooms of host");
    let places = order.split(" <- ").enumerate();
    places.flat_map(|(place, rooms)| rooms.split(", ").map(move |room| (room.to_owned(), place))).collect()
}

#[test]
fn the_rooms_of_the_host_import_downhill_only() {
    let (rooms, host) = (host_rooms(), root().join("src/host"));
    for path in sources(&host) {
        let inner = path.strip_prefix(&host).unwrap();
        let from = inner.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
        if from == "mod" {
            continue;
        }
        let place = rooms.get(&from).unwrap_or_else(|| panic!("{from} is missing in ARCHITECTURE.md"));
        // In a room that is one file, `super` is the host.
        let host_is_above = inner.iter().count() == 1;
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap().lines();
        let code = code.filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
        let prefixes = ["crate::host::"].into_iter().chain(host_is_above.then_some("super::"));
        for (at, prefix) in prefixes.flat_map(|prefix| code.match_indices(prefix)) {
            let to: String =
                code[at + prefix.len()..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let Some(lower) = rooms.get(&to).filter(|_| to != from) else { continue };
            assert!(lower < place, "{} imports {to}, which {from} may not", path.display());
        }
    }
}

#[test]
fn the_core_touches_nothing() {
    for path in sources(&root().join("crates/core/src")) {
        let text = fs::read_to_string(&path).unwrap();
        for absent in [
            "std::fs",
            "std::io",
            "std::net",
            "std::env",
            "tokio",
            "async fn",
            ".await",
            "SystemTime",
            "Instant",
            "serde_json",
            "uuid",
        ] {
            // The record is the core's, and properties try what it keeps.
            let is_record = absent == "serde_json" && (path.ends_with("record.rs") || tests_only(&text));
            assert!(!text.contains(absent) || is_record, "{} has {absent}: the core touches nothing", path.display());
        }
    }
}

#[test]
fn every_file_says_what_it_is_and_stays_readable() {
    for path in sources(&root().join("src")).into_iter().chain(sources(&root().join("crates"))) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//!"), "{} does not say what it is", path.display());
        assert!(!text.contains("TODO") && !text.contains("FIXME"), "{}", path.display());
        let code = code_lines(&text);
        let tests_only = text.contains("use proptest::prelude") || path.ends_with("tests.rs");
        assert!(code <= 400 || tests_only, "{} has {code} lines before its tests: split it", path.display());
    }
}

/// How many lines a file has before its tests; not those that say where others of its tests are.
fn code_lines(text: &str) -> usize {
    let (mut count, mut lines) = (0, text.lines().peekable());
    while let Some(line) = lines.next() {
        let of_tests = line.starts_with("#[cfg(") && line.contains("test");
        match lines.peek() {
            Some(module) if of_tests && module.contains("mod ") && module.ends_with('{') => break,
            Some(module) if of_tests && module.starts_with("mod ") => drop(lines.next()),
            _ => count += 1,
        }
    }
    count
}

/// The compiler sees what nobody uses in the package, whose modules are private. What the core and its callers share is
/// public: there each name has to be used in another file.
#[test]
fn what_the_core_makes_public_is_used() {
    let core = root().join("crates/core/src");
    let files = sources(&root().join("src")).into_iter().chain(sources(&core));
    let files: Vec<(PathBuf, String)> = files
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .filter(|(_, text)| !tests_only(text))
        .collect();
    let words = |text: &str| -> BTreeSet<String> {
        let lines = text.split("#[cfg(test)]\nmod tests {").next().unwrap().lines().map(str::trim_start);
        let lines = lines.filter(|line| !line.starts_with("//") && !line.starts_with("pub use"));
        let words = lines.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
        words.map(str::to_owned).collect()
    };
    let words: Vec<(&PathBuf, BTreeSet<String>)> = files.iter().map(|(path, text)| (path, words(text))).collect();
    for (path, text) in files.iter().filter(|(path, _)| path.starts_with(&core)) {
        for line in text.lines().filter_map(|line| line.trim_start().strip_prefix("pub ")) {
            let line = line.trim_start_matches("const ").trim_start_matches("fn ").trim_start_matches("struct ");
            let line = line.trim_start_matches("enum ").trim_start_matches("type ");
            let name: String = line.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let used = words.iter().any(|(other, words)| *other != path && words.contains(&name));
            assert!(
                used || matches!(name.as_str(), "use" | "mod") || text.contains(&format!("type Err = {name};")),
                "{}: nobody uses {name}",
                path.display()
            );
        }
    }
}

fn tests_only(text: &str) -> bool {
    text.contains("\nuse proptest::prelude")
}

/// One that has another name by now would be played where it cannot be.
#[test]
fn the_stories_that_look_into_files_have_these_names() {
    let list = fs::read_to_string(root().join("tests/postgres/look_into_files")).unwrap();
    let is_there = |name: &&str| {
        let (module, story) = name.split_once("::").unwrap();
        let text = fs::read_to_string(root().join(format!("tests/it/{module}.rs"))).unwrap_or_default();
        text.contains(&format!("fn {}()", story.rsplit("::").next().unwrap()))
    };
    let gone: Vec<&str> = list.lines().filter(|name| !is_there(name)).collect();
    assert_eq!(gone, Vec::<&str>::new());
}

#[test]
fn each_check_of_the_page_takes_its_turn() {
    let folder = root().join("tests/browser");
    let package: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.join("package.json")).unwrap()).unwrap();
    let played = ["inbox", "places", "hours", "firefox"].map(|part| package["scripts"][part].as_str().unwrap());
    let mut played: Vec<&str> =
        played.iter().flat_map(|part| part.split(' ')).filter(|word| word.ends_with(".test.mjs")).collect();
    played.sort_unstable();
    let mut there = crate::harness::names(&folder);
    there.retain(|name| name.ends_with(".test.mjs"));
    assert_eq!(played, there);
}
