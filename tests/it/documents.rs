//! The documents say what the program does: their examples are run, their JSON is read.

use crate::harness::{SOON, World, askd, names, within};
use crate::remote::Remote;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The fenced blocks of a language, each with the line before it.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(&format!("```{language}\n")) {
        let (block, after) = after.split_once("```").unwrap();
        blocks.push(block.to_owned());
        rest = after;
    }
    blocks
}

/// A client that knows nothing but the protocol: the examples of `docs/protocol.md`, to the letter.
fn drop_in(world: &World, program: &str, flag: &str, code: &str) -> String {
    let agent = world.group("drop-in");
    let child = Command::new(program)
        .args([flag, code])
        .current_dir(&agent.path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let ask = world.one_open();
    assert_eq!(world.answer(&ask, &json!({"Which framework?": "Vue"})).0, 200);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    agent.responses_are(&[]);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_shell_client_of_the_protocol_works() {
    let examples = blocks(&document("docs/protocol.md"), "sh");
    let client = examples.iter().find(|block| block.contains("ask_user:ask")).unwrap();
    assert!(client.lines().filter(|line| !line.trim().is_empty()).count() <= 10, "ten lines are promised");
    let world = World::new();
    let printed = drop_in(&world, "sh", "-c", client);
    assert!(printed.contains("\"Which framework?\": \"Vue\""), "{printed}");
}

#[test]
fn the_python_client_of_the_protocol_works() {
    let examples = blocks(&document("docs/protocol.md"), "python");
    let client = examples.iter().find(|block| block.contains("ask_user:ask")).unwrap();
    let world = World::new();
    assert_eq!(drop_in(&world, "python3", "-c", client), "Vue\n");
}

#[test]
fn the_curl_client_of_remote_agents_works_and_ends_on_an_error() {
    if Command::new("jq").arg("--version").output().is_err() {
        eprintln!("SKIPPED the_curl_client_of_remote_agents_works_and_ends_on_an_error: needs jq");
        return;
    }
    let examples = blocks(&document("docs/remote.md"), "sh");
    let client = examples.iter().find(|block| block.contains("/agent/v1/asks")).unwrap();
    let remote = Remote::new();
    let agent = remote.agent("g");
    let folder = tempfile::tempdir().unwrap();
    let run = |token: &str| {
        fs::write(folder.path().join("token"), token).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", client]).current_dir(folder.path()).env("ASKD_URL", format!("http://{}", agent.at));
        command.env("ASKD_TOKEN_FILE", folder.path().join("token")).env_remove("ASKD_TOKEN");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let client = run(&agent.token);
    remote.world.one_open();
    remote.answer_any("Yes");
    let done = client.wait_with_output().unwrap();
    assert!(done.status.success() && done.stdout == b"Yes\n", "{done:?}");
    // Refused while it waits, and from the beginning.
    let waits = run(&agent.token);
    remote.world.one_open();
    assert_eq!(agent.revoked(&remote.world), 204);
    // One after the other: both write what they got into one folder.
    for done in [waits.wait_with_output(), run("askd_none_of_ours").wait_with_output()] {
        let done = done.unwrap();
        assert!(!done.status.success() && !done.stderr.is_empty(), "{done:?}");
    }
}

#[test]
fn the_requests_of_the_protocol_are_accepted_and_its_responses_have_all_fields() {
    let world = World::new();
    let agent = world.group("g");
    let mut requests = 0;
    for block in blocks(&document("docs/protocol.md"), "json") {
        let value: Value = serde_json::from_str(&block).unwrap_or_else(|error| panic!("{error}: {block}"));
        if value["type"] == "ask_user:ask" {
            requests += 1;
            let id = value["request_id"].as_str().unwrap();
            agent.put(&format!("{id}.json"), block.as_bytes());
            world.open_of(id);
        }
    }
    assert!(requests >= 2, "the protocol shows requests");
    let shown: Vec<Value> = blocks(&document("docs/protocol.md"), "json")
        .iter()
        .map(|block| serde_json::from_str(block).unwrap())
        .collect();
    let response = shown.iter().find(|value| value.get("result").is_some()).expect("a response is shown");
    agent.ask_framework("real");
    world.answer(&world.open_of("real"), &json!({"real_0": "Vue"}));
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&response["result"]), keys(&agent.wait("real")["result"]));
}

#[test]
fn the_asks_of_the_api_document_have_all_fields() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    let shown: Vec<Value> =
        blocks(&document("docs/api.md"), "json").iter().map(|b| serde_json::from_str(b).unwrap()).collect();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&shown[0]), keys(&ask));
    assert_eq!(keys(&shown[0]["questions"][0]), keys(&ask["questions"][0]));
    let (_, settled) = world.answer(&ask, &json!({"r1_0": "Vue"}));
    assert_eq!(keys(&shown[1]["outcome"]), keys(&settled["outcome"]));
    let limited = World::empty().config("[asks]\nmax_attempts = 1\n").started();
    let agent = limited.group("g");
    let question = json!({"questions": [{"question": "Go?", "options": ["yes", "no"]}]});
    agent.ask("r1", &question);
    limited.one_open();
    agent.ask("r2", &question);
    agent.wait("r2");
    let (_, list) = limited.call("GET", "/asks?state=settled", None);
    let id = list["asks"][0]["id"].as_str().unwrap().to_owned();
    let (_, blocked) = limited.call("POST", &format!("/asks/{id}/reset"), Some(&json!({})));
    let documented = &shown[2]["block"];
    assert_eq!(keys(documented), keys(&blocked["block"]));
    assert_eq!(keys(&documented["allowed_again"]), keys(&blocked["block"]["allowed_again"]));
}

/// Whether `askd mcp` starts with this environment, and goes when its client does.
fn serves(ipc: &Path, args: &[String], env: &[(String, String)]) {
    let mut command = askd();
    command.args(args).envs(env.iter().cloned()).env("ASKD_IPC_DIR", ipc).stdin(Stdio::null());
    if env.iter().any(|(name, _)| name == "ASKD_TOKEN_FILE") {
        let token = ipc.join("token");
        fs::write(&token, "askd_1_2").unwrap();
        command.env("ASKD_TOKEN_FILE", token);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?} {env:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_ready_lines_for_mcp_clients_work() {
    let text = document("docs/agents.md");
    let world = World::empty().with_binary();
    let agent = world.group("g");
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|s| s.as_str().unwrap().to_owned()).collect()
    };
    let mut lines = 0;
    for block in blocks(&text, "json") {
        let settings: Value = serde_json::from_str(&block).unwrap_or_else(|error| panic!("{error}: {block}"));
        // VS Code has a name of its own for the list.
        let server = &settings.get("mcpServers").unwrap_or(&settings["servers"])["askd"];
        assert_eq!(server["command"], "askd", "{block}");
        let env = server["env"].as_object().cloned().unwrap_or_default();
        let env: Vec<_> = env.into_iter().map(|(name, value)| (name, value.as_str().unwrap().to_owned())).collect();
        serves(&agent.path, &strings(&server["args"]), &env);
        lines += 1;
    }
    for block in blocks(&text, "toml") {
        let file = config::File::from_str(&block, config::FileFormat::Toml);
        let settings: Value = config::Config::builder().add_source(file).build().unwrap().try_deserialize().unwrap();
        let server = &settings["mcp_servers"]["askd"];
        assert_eq!(server["command"], "askd", "{block}");
        let wait = server["env"].as_object().unwrap().values().next().unwrap().as_str().unwrap();
        // The call returns before it is cut.
        assert!(wait.parse::<i64>().unwrap() < server["tool_timeout_sec"].as_i64().unwrap(), "{block}");
        serves(&agent.path, &strings(&server["args"]), &[("ASKD_MAX_WAIT".to_owned(), wait.to_owned())]);
        lines += 1;
    }
    assert!(lines >= 3, "lines for the common clients are shown");
}

/// The commands of the guide to the letter, but for what sudo and systemd do.
#[test]
fn what_the_operations_guide_backs_up_is_restored_by_its_commands() {
    let guide = document("docs/operations.md");
    let section = guide.split("\n## Back up and restore\n").nth(1).unwrap();
    let commands = blocks(section, "sh");
    let mut world = World::process();
    let agent = world.group("g");
    let answer = |world: &World, request: &str, answer: &str| {
        let question = format!("{request}?");
        assert_eq!(world.answer(&world.open_of(request), &json!({question: answer})).0, 200);
    };
    for request in ["open", "collected", "uncollected", "later"] {
        agent.ask(request, &json!({"questions": [{"question": format!("{request}?"), "options": ["yes", "no"]}]}));
        world.open_of(request);
    }
    answer(&world, "collected", "yes");
    agent.take("collected");
    answer(&world, "uncollected", "yes");
    agent.wait("uncollected");
    within(SOON, "askd to know that one was collected", || {
        let folder = world.state().join("settled/g");
        // What a flush has not named yet is no record.
        let records = names(&folder).into_iter().filter(|name| !name.starts_with('.'));
        let records = records.filter_map(|name| fs::read_to_string(folder.join(name)).ok());
        let is_known = records.into_iter().any(|record| record.contains("\"response\": \"taken\""));
        is_known.then_some(())
    });
    let etc = world.dir.path().join("etc");
    fs::create_dir_all(etc.join("askd")).unwrap();
    for (block, line) in commands[..2].iter().enumerate().flat_map(|(at, it)| it.lines().map(move |line| (at, line))) {
        match line.split("  #").next().unwrap().trim() {
            "sudo systemctl stop askd" => assert!(world.terminate().success()),
            "sudo systemctl start askd" => world.start(),
            "sudo systemctl set-environment ASKD_SERVE_OPTIONS=--after-loss" => {
                assert!(
                    document("deploy/askd.service")
                        .contains("\nExecStart=/usr/local/bin/askd serve $ASKD_SERVE_OPTIONS\n")
                );
                world.after_loss(true);
            }
            "sudo systemctl unset-environment ASKD_SERVE_OPTIONS" => world.after_loss(false),
            line => {
                let line = line.replace("sudo ", "").replace("/var/lib/askd", world.data().to_str().unwrap());
                let line = line.replace("/etc ", &format!("{} ", etc.display()));
                let status = Command::new("sh").args(["-c", &line]).current_dir(world.dir.path()).status().unwrap();
                assert!(status.success() || (block == 0 && status.code() == Some(1)), "{line}");
            }
        }
        if line.contains("-rf askd.tar") && block == 0 {
            answer(&world, "later", "yes");
            agent.take("later");
            fs::remove_file(agent.response_path("uncollected")).unwrap();
        }
    }
    for request in ["open", "later"] {
        answer(&world, request, "no");
        assert_eq!(agent.take(request)["result"]["answers"][format!("{request}?")], "no");
    }
    assert_eq!(agent.wait("uncollected")["result"]["answers"]["uncollected?"], "yes");
    assert!(agent.response("collected").is_none(), "it was collected");
    assert_eq!(world.call("GET", "/asks?state=settled", None).1["total"], 4);
}

/// With the commands of the guide to the letter. Nothing outside hears of it: no push service, no agent, and the daemon that
/// goes on keeps its addresses.
#[test]
fn an_upgrade_is_rehearsed_on_a_copy_by_the_commands_of_the_guide() {
    let guide = document("docs/operations.md");
    let section = guide.split("\n## Upgrade and downgrade\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let commands = blocks(section, "sh").concat();
    let [serve, list] = commands.lines().collect::<Vec<_>>()[..] else { panic!("two commands: {commands}") };
    let mut world = World::empty()
        .in_files()
        .with_binary()
        .config("[web]\ntoken = \"of-the-settings-0123456789-0123456789\"\n[groups.g]\n");
    world.start();
    let bearer = "authorization: Bearer of-the-settings-0123456789-0123456789\r\ncontent-type: application/json\r\n";
    assert_eq!(world.raw("POST", "/api/v1/tokens", bearer, "{\"group\": \"g\"}").0, 201);
    world.group("g").ask_framework("r1");
    let stored = || (names(&world.state().join("pending_questions/g")).len() == 1).then_some(());
    within(SOON, "the question", stored);
    assert!(world.terminate().success());
    let copy = world.dir.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let copied = Command::new("cp").arg("-a").arg(world.state()).arg(copy.join("state")).status().unwrap();
    assert!(copied.success());
    let port = crate::ports::free_port();
    let command = |line: &str| {
        let line = line.split("  #").next().unwrap().replace("/tmp/copy", copy.to_str().unwrap());
        let line = line.replace("8585", &port.to_string()).replace("askd ", &format!("{} ", crate::harness::ASKD));
        let mut command = crate::daemon::without_environment("sh".as_ref());
        command.args(["-c", &format!("exec env {line}")]);
        command
    };
    let log = copy.join("log");
    let mut daemon = command(serve).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let listed = || {
        let done = command(list).output().unwrap();
        done.status.success().then(|| String::from_utf8(done.stdout).unwrap())
    };
    let told = within(SOON, "the copy to be read", || listed().filter(|told| told.contains("Which framework?")));
    let kept = fs::read_to_string(copy.join("state/web_token")).unwrap();
    let bearer = format!("host: 127.0.0.1:{port}\r\nauthorization: Bearer {}\r\n", kept.trim());
    let request = format!("GET /api/v1/me HTTP/1.1\r\n{bearer}connection: close\r\n\r\n");
    let (_, me) = crate::harness::exchange(([127, 0, 0, 1], port).into(), request.as_bytes());
    let log = fs::read_to_string(log).unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(me.contains("\"push_key\":null"), "it would call push services: {me}");
    assert!(log.contains("agents can ask over HTTP") && !log.contains("8486"), "{told}{log}");
}

#[test]
fn the_text_for_an_agents_instructions_names_every_outcome() {
    let texts = blocks(&document("docs/agents.md"), "text");
    let text = texts.iter().find(|text| text.contains("ask_user")).unwrap();
    for word in [
        "answered",
        "pending",
        "stillPending",
        "ask_user_wait",
        "question_id",
        "shouldRetry",
        "Max retries exceeded",
        "undeliverable",
        "timeout",
        "cancelled",
        "blocked",
        "rejected",
        "timeoutMs",
        "context",
    ] {
        assert!(text.contains(word), "{word}");
    }
}

#[test]
fn every_command_explains_itself_with_an_example() {
    let help = askd().arg("--help").output().unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    let commands: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        // What is further in is the rest of a long line.
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() >= 8, "{text}");
    for command in commands {
        let help = askd().args([command, "--help"]).output().unwrap();
        let text = String::from_utf8(help.stdout).unwrap();
        assert!(help.status.success() && text.contains("Example") && text.contains("askd "), "{command}: {text}");
        if command == "briefing" {
            assert!(text.contains("askd briefing --take) || exit 1\n"), "as in docs/agents.md: {text}");
        }
        // What is said at length is said.
        let codes = matches!(command, "ask" | "briefing" | "check" | "doctor" | "forget" | "serve" | "status");
        assert!(text.contains("Exit codes") == codes, "{command}: {text}");
    }
}

/// The guides' links to a part of a guide lead to a heading.
#[test]
fn links_within_the_guides_lead_to_a_heading() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let guides: Vec<String> =
        names(&folder).into_iter().filter(|name| Path::new(name).extension().is_some_and(|it| it == "md")).collect();
    let anchor = |heading: &str| -> String {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    let mut wrong = Vec::new();
    for guide in &guides {
        for link in document(&format!("docs/{guide}")).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((file, part)) = link.split_once('#') else { continue };
            let file = if file.is_empty() { guide } else { file };
            if link.contains("//") || !guides.iter().any(|known| known == file) {
                continue;
            }
            let text = document(&format!("docs/{file}"));
            let mut headings = text.lines().filter(|line| line.starts_with('#'));
            if !headings.any(|line| anchor(line.trim_start_matches('#').trim()) == part) {
                wrong.push(format!("{guide}: {link}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_readme_names_only_commands_and_files_that_are_there() {
    let readme = document("README.md");
    for word in readme.split(|c: char| c.is_whitespace() || "`()[]\"'".contains(c)) {
        let path = word.trim_end_matches(['.', ',', ':', ';']);
        let ours = ["docs/", "src/", "tests/", "config/", "deploy/"].iter().any(|folder| path.starts_with(folder));
        if ours || (path.contains(".md") && !path.contains("//")) {
            let path = path.split('#').next().unwrap();
            assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists(), "README.md names {path}");
        }
    }
}

/// All text below a folder.
fn sources(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text =
        entries.map(|path| if path.is_dir() { sources(&path) } else { fs::read_to_string(path).unwrap_or_default() });
    text.collect::<Vec<_>>().join("\n")
}

/// Each row of the table in SECURITY.md names what shows it, and all of that is there.
#[test]
fn every_promise_of_security_names_a_gate_or_a_story_that_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let security = document("SECURITY.md");
    let table = security.split("| what holds | shown by |").nth(1).unwrap().split("\n\n").next().unwrap();
    let (gates, stories) = (sources(&root.join("tests/gates")), sources(&root.join("tests/it")));
    let programs = sources(&root.join("src")) + &sources(&root.join("crates"));
    let names: Vec<String> = ["tests/sabotage", "tests/docker"]
        .iter()
        .flat_map(|folder| fs::read_dir(root.join(folder)).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let defines = |text: &str, name: &str| ["fn", "mod"].iter().any(|word| text.contains(&format!("{word} {name}")));
    for row in table.lines().skip(2) {
        let shown = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let quoted: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
        assert!(!quoted.is_empty(), "nothing shows: {row}");
        for name in quoted {
            let (area, story) = name.split_once("::").unwrap_or(("", name));
            let is_there = match name {
                _ if name.contains('/') => root.join(name).exists(),
                _ if !area.is_empty() => {
                    let file = fs::read_to_string(root.join(format!("tests/it/{area}.rs"))).unwrap_or_default();
                    !file.is_empty() && (story == "*" || defines(&file, story))
                }
                _ => {
                    let begins = |file: &String| file.starts_with(name.trim_end_matches('*'));
                    gates.contains(&format!("\"{name}\""))
                        || names.iter().any(begins)
                        || defines(&stories, name)
                        || defines(&programs, name)
                }
            };
            assert!(is_there, "SECURITY.md names {name:?}, which is not there");
        }
        // What stands in brackets after the gate `refusals` is a group of its cells.
        for group in shown.split("`refusals` (").skip(1).flat_map(|rest| rest.split(')').next().unwrap().split(", ")) {
            assert!(gates.contains(&format!("\"{group}")), "the gate `refusals` has no cells of {group:?}");
        }
    }
}

/// What stands before the reference part is read by people who look whether they want askd at all.
#[test]
fn the_readme_is_short_and_its_first_commands_are_real() {
    let readme = document("README.md");
    let welcome = readme.split("\n## Reference").next().unwrap();
    let words = welcome.split_whitespace().filter(|word| word.contains(|c: char| c.is_alphanumeric())).count();
    assert!(words <= 400, "{words} words");
    let commands: Vec<String> = blocks(welcome, "sh");
    for command in ["cargo run --release -- demo", "tests/run", "askd serve", "claude mcp add askd -- askd mcp"] {
        assert!(commands.iter().any(|block| block.contains(command)), "{command}");
    }
    // Whatever an `askd` in it is given is understood.
    for line in commands.iter().flat_map(|block| block.lines()).filter(|line| line.contains("askd ask")) {
        let call = line.split("askd ask").nth(1).unwrap().split([')', '#']).next().unwrap();
        let output = Command::new("sh")
            .args(["-c", &format!("{} ask {call} --help", env!("CARGO_BIN_EXE_askd"))])
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(
        !readme.contains("ghcr.io") && !readme.contains("docker pull"),
        "there is no image but the one that is built"
    );
}
