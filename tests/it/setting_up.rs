//! Setting up: what an operator types before the first question, what goes wrong, and what askd says to it.

use crate::command_line::{err, out};
use crate::harness::{World, askd, choice};
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};

#[test]
fn check_prints_every_mistake_with_its_line_or_what_holds() {
    let dir = tempfile::tempdir().unwrap();
    let check = |text: &str, env: &[(&str, &str)]| {
        std::fs::write(dir.path().join("askd.toml"), text).unwrap();
        let mut command = askd();
        command.args(["check", "--config", "askd.toml"]).current_dir(dir.path()).env("ASKD__DATA_DIR", "/tmp/askd-x");
        command.envs(env.iter().copied()).output().unwrap()
    };
    let wrong = check("\n\n\n\n\n\n\n[groups.research]\nroute = [{ channel = \"web\" }]\n", &[]);
    let told = "askd: groups.research: unknown key \"route\". Did you mean \"routes\"? (askd.toml, line 9)\n";
    assert_eq!((err(&wrong).as_str(), out(&wrong).as_str(), wrong.status.code()), (told, "", Some(2)));
    let both = check(
        "gid = \"x\"\n[asks]\ntimeout = \"x\"\n",
        &[("ASKD__HTTP__LISTN", "x"), ("ASKD__ASKS__MAX_RETRIES", "9")],
    );
    let told = err(&both);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "askd: 4 mistakes in the settings:");
    assert!(lines[1].ends_with("(askd.toml, line 1)") && lines[2].ends_with("(askd.toml, line 3)"), "{lines:?}");
    assert_eq!(lines[3], "  ASKD__ASKS__MAX_RETRIES: 9 does not fit; it must be at least 0 and at most 5");
    assert_eq!(lines[4], "  ASKD__HTTP__LISTN: unknown key. Did you mean ASKD__HTTP__LISTEN?");

    let right = check(
        "[slack]\nbot_token = \"xoxb-a\"\napp_token = \"xapp-a\"\n[defaults]\nroutes = []\n[groups.research]\nroutes = [\n{ \
         channel = \"slack\", chat = \"C1\", responders = [\"U1\"] }, { channel = \"web\" }]\n",
        &[("ASKD__ASKS__MAX_RETRIES", "1")],
    );
    insta::assert_snapshot!(out(&right), @r"
    The settings are right.
    Data folder  /tmp/askd-x
    Inbox        http://127.0.0.1:8484
    Slack        Socket Mode
    WhatsApp     not set up
    Group research: Slack C1 (U1 can answer), then the inbox
    Other groups: not served
    ");
    assert_eq!(right.status.code(), Some(0), "{}", err(&right));
    let missing = askd().args(["check", "--config", "/does/not/exist"]).output().unwrap();
    let told = "askd: cannot read the settings file /does/not/exist: No such file or directory (os error 2)\n";
    assert_eq!((err(&missing).as_str(), missing.status.code()), (told, Some(2)));
}

#[test]
fn the_mistakes_of_a_first_hour_are_told_with_what_to_do() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask("r1", &json!({"questions": [{"question": "Deploy now?", "options": ["yes", "no"]}]}));
    let code = world.open_of("r1")["short_id"].as_str().unwrap().to_owned();
    let address = world.address().to_string();
    let choices =
        format!("askd: What is the answer to \"Deploy now?\"\n  1. yes\n  2. no\nAnswer with: askd answer {code} 1\n");
    let refused = format!(
        "askd: the daemon at http://{address} refuses this token; `askd link` prints the current one, run as askd's own \
         user or in its container\n"
    );
    for (args, status, told) in [
        (vec!["answer", &code], 2, &*choices),
        (vec!["list", "--token", "wrong", "--url", &address], 1, &refused),
        (vec!["ask", ""], 2, "askd: the question is empty.\n"),
        (vec!["ask", "q", "--timeout", "3s"], 2, "'--timeout <DURATION>': it must be between 10s and 7days"),
        (vec!["ask", "q", "--timeout", "abc"], 2, "'--timeout <DURATION>': \"abc\" is not a duration like 30m"),
        (
            vec!["ask", "q", "--option", "a", "--option", "a"],
            2,
            "askd: --option[1].label is the same as --option[0].label",
        ),
    ] {
        let output = world.cli(&args).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {}", err(&output));
        assert!(err(&output).contains(told), "{args:?}: {}", err(&output));
    }
    let list = world.run(&["list", "--url", &address]);
    assert!(out(&list).contains("Deploy now?"), "http:// may be left out: {}", err(&list));
}

#[test]
fn an_answer_is_asked_for_on_a_terminal() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask("r1", &choice("Deploy now?", &["yes", "no"]));
    let code = world.open_of("r1")["short_id"].as_str().unwrap().to_owned();
    let line = format!("{} answer {code}", crate::harness::ASKD);
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("ASKD__DATA_DIR", world.data());
    command.env("ASKD__HTTP__LISTEN", world.address().to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"2\n").unwrap();
    assert_eq!(agent.wait("r1")["result"]["answers"]["Deploy now?"], "no");
    let told = out(&child.wait_with_output().unwrap());
    assert!(
        told.contains("What is the answer to \"Deploy now?\"") && told.contains("Answered: no by operator"),
        "{told}"
    );
}

#[test]
fn the_link_opens_the_inbox() {
    let mut world = World::process();
    let link = out(&world.run(&["link"]));
    assert_eq!(link, format!("{}/#token={}\n", world.url(), world.token()));
    let elsewhere = world.cli(&["link"]).env("ASKD__HTTP__PUBLIC_URL", "https://askd.example.com/").output().unwrap();
    assert_eq!(out(&elsewhere), format!("https://askd.example.com/#token={}\n", world.token()));
    world.kill();
    let away = world.run(&["link"]);
    assert_eq!((out(&away), away.status.code()), (link, Some(1)), "of no use now, and it says so");
    assert!(err(&away).contains("Start it with `askd serve`"), "{}", err(&away));
}

#[test]
fn the_trail_of_a_question_is_read_from_the_audit_files() {
    let mut world = World::process();
    let agent = world.group("g");
    agent.ask("r1", &choice("Deploy now?", &["yes", "no"]));
    let ask = world.open_of("r1");
    let (id, code) = (ask["id"].as_str().unwrap().to_owned(), ask["short_id"].as_str().unwrap().to_owned());
    assert!(world.run(&["answer", &code, "yes"]).status.success());
    agent.take("r1");
    world.all_done("g");
    let trail = out(&world.run(&["log", &code]));
    let what: Vec<&str> = trail.lines().map(|line| line[25..41].trim()).collect();
    assert_eq!((what[0], what.contains(&"answered"), what.contains(&"delivered")), ("asked", true, true), "{trail}");
    assert!(trail.contains("by operator") && trail.contains("channel cli") && !trail.contains("Deploy"), "{trail}");
    world.kill();
    assert_eq!(out(&world.run(&["log", &id[..8]])), trail, "without a daemon, by the beginning of its id");
    let lines = out(&world.run(&["log", &id, "--json"]));
    assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).unwrap()["ask"] == id), "{lines}");
    let unknown = world.run(&["log", "ffffffff"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(err(&unknown).contains("the audit files know no question \"ffffffff\""), "{}", err(&unknown));
}

#[test]
fn a_group_is_added_with_its_folders_and_the_lines_to_connect_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let gid = std::fs::metadata(dir.path()).unwrap().gid();
    let run = |args: &[&str]| askd().args(args).env("ASKD__DATA_DIR", &data).output().unwrap();
    let added = run(&["group", "add", "research", "--for-docker"]);
    let told = out(&added);
    let folder = data.join("ipc/research");
    for line in [
        format!("The folders of research are ready: {}", folder.display()),
        format!("  --user 1000:{gid} \\"),
        format!("  -v {}/tasks:/workspace/ipc/tasks \\", folder.display()),
        format!("      - {}/briefings:/workspace/ipc/briefings", folder.display()),
    ] {
        assert!(told.lines().any(|told| told == line), "{line}\n{told}{}", err(&added));
    }
    for name in ["", "tasks", "responses", "briefings"] {
        let mode = std::fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o770, "{name}");
    }
    std::fs::write(folder.join("tasks/kept.json"), "{}").unwrap();
    let again = run(&["group", "add", "research", "--for-docker", "--on-host", "/srv/askd"]);
    assert!(out(&again).contains("  -v /srv/askd/ipc/research/tasks:/workspace/ipc/tasks \\"), "{}", out(&again));
    assert!(folder.join("tasks/kept.json").exists(), "nothing is destroyed");
    let file = dir.path().join("askd.toml");
    std::fs::write(&file, "[defaults]\nroutes = []\n").unwrap();
    let output = run(&["group", "add", "other", "--config", file.to_str().unwrap()]);
    assert!(out(&output).contains("Add this to the settings"), "{}{}", out(&output), err(&output));
    let wrong = run(&["group", "add", "../x"]);
    assert_eq!((wrong.status.code(), err(&wrong).contains("a group's name is")), (Some(2), true), "{}", err(&wrong));
}

#[test]
fn programs_are_told_what_they_need() {
    let printed = |args: &[&str]| askd().args(args).output().unwrap();
    let claude = printed(&["mcp", "--print", "claude", "--ipc", "/data/ipc/research"]);
    assert_eq!(out(&claude), "claude mcp add askd -- askd mcp --ipc '/data/ipc/research'\n");
    assert_eq!(err(&claude), "askd: run this in the project's folder:\n");
    let codex = out(&printed(&["mcp", "--print", "codex"]));
    let codex: Value = config::Config::builder()
        .add_source(config::File::from_str(&codex, config::FileFormat::Toml))
        .build()
        .and_then(config::Config::try_deserialize)
        .unwrap();
    assert_eq!(codex["mcp_servers"]["askd"]["args"], json!(["mcp"]));
    for (program, key) in [("cursor", "mcpServers"), ("claude-desktop", "mcpServers"), ("vscode", "servers")] {
        let file: Value = serde_json::from_str(&out(&printed(&["mcp", "--print", program]))).unwrap();
        assert_eq!(file[key]["askd"], json!({"command": crate::harness::ASKD, "args": ["mcp"]}), "{program}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(out(&printed(&["completions", shell])).contains("askd"), "{shell}");
    }
}
