//! Setting up: what an operator types before the first question, what goes wrong, and what askd says to it.

use crate::command_line::{as_another, copy_binary, err, of_another, out};
use crate::harness::{SOON, World, askd, choice, until};
use crate::in_slack::{ALICE, CHANNEL};
use crate::on_whatsapp::{ADA, sim};
use askd_sim::slack::{APP_TOKEN, BOT_TOKEN, Config, Message, Slack};
use askd_sim::whatsapp::Whatsapp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

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
    Records      files in /tmp/askd-x/state
    Inbox        http://127.0.0.1:8484
    Agents       their folders, or http://127.0.0.1:8486, once there is a token
    Slack        Socket Mode
    WhatsApp     not set up
    Group research: Slack C1 (U1 can answer), then the inbox
    Other groups: not served
    ");
    assert_eq!(right.status.code(), Some(0), "{}", err(&right));
    let certificate = check("[agents]\ntls_cert = \"/no/cert\"\ntls_key = \"/no/key\"\n", &[]);
    let told = err(&certificate);
    assert!(told.starts_with("askd: [agents] tls_cert, tls_key: cannot use /no/key: "), "{told}");
    assert_eq!(certificate.status.code(), Some(2), "it is a mistake in the settings");
    let missing = askd().args(["check", "--config", "/does/not/exist"]).output().unwrap();
    let told = "askd: cannot read the settings file /does/not/exist: No such file or directory (os error 2)\n";
    assert_eq!((err(&missing).as_str(), missing.status.code()), (told, Some(2)));
}

/// Under systemd only the unit says where the records are, and an operator's shell knows nothing of the unit.
#[test]
fn a_daemon_of_systemd_is_found_without_settings_and_where_none_is_both_places_are_named() {
    let world = World::new();
    let home = world.dir.path().join("home");
    let url = world.url();
    let list = |before: &str| {
        let mut command = crate::daemon::without_environment("unshare".as_ref());
        let script = format!("mount -t tmpfs none /var/lib && {before} exec {} list --url {url}", crate::harness::ASKD);
        command.args(["--mount", "sh", "-c", &script]).env("HOME", &home).env_remove("XDG_STATE_HOME").output()
    };
    if !list("true;").is_ok_and(|output| err(&output).starts_with("askd: ")) {
        println!(
            "SKIPPED a_daemon_of_systemd_is_found_without_settings_and_where_none_is_both_places_are_named: no mounts"
        );
        return;
    }
    let token = world.token();
    let kept = format!("mkdir -p /var/lib/askd/state && echo {token} >/var/lib/askd/state/web_token &&");
    let found = list(&kept).unwrap();
    assert_eq!((out(&found).as_str(), found.status.code()), ("No open questions.\n", Some(0)), "{}", err(&found));
    let none = list("true;").unwrap();
    let told = format!(
        "askd: cannot read the inbox token in {}/.local/state/askd/state/web_token: No such file or directory (os error 2). \
         There is none in /var/lib/askd/state either. Has `askd serve` run here? Or give --token, or the same --config\n",
        home.display()
    );
    assert_eq!((err(&none).as_str(), none.status.code()), (told.as_str(), Some(1)));
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
        "askd: the daemon at http://{address} refuses this token; if it was started with --config, give this command the \
         same; else `askd link` prints the current token, run as askd's own user or in its container\n"
    );
    for (args, status, told) in [
        (vec!["answer", &code], 2, &*choices),
        (vec!["list", "--token", "wrong", "--url", &address], 1, &refused),
        (vec!["aks", "hi"], 2, "tip: a similar subcommand exists: 'ask'"),
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
    if rustix::process::geteuid().is_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let binary = dir.path().join("askd");
        copy_binary(&binary);
        let mut other = Command::new(binary);
        other.arg("list").uid(12345).gid(12345).env_clear().env("ASKD__DATA_DIR", world.data()).current_dir("/");
        let told = err(&other.output().unwrap());
        assert!(
            told.contains("Only askd's own user can: put sudo -u '#0' before the command, or set ASKD_TOKEN"),
            "{told}"
        );
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
    // Beside the token of an agent it is the inbox token all the same, and no other token makes a link.
    let of_an_agent = "askd_0123456789_abcdef";
    let beside = world.cli(&["link"]).env("ASKD_TOKEN", of_an_agent).output().unwrap();
    assert_eq!(out(&beside), link, "{}", err(&beside));
    let listed = world.cli(&["list"]).env("ASKD_TOKEN", of_an_agent).output().unwrap();
    assert_eq!(out(&listed), "No open questions.\n", "{}", err(&listed));
    let named = world.run(&["link", "--token", of_an_agent]);
    assert_eq!((out(&named).as_str(), named.status.code()), ("", Some(2)));
    assert!(err(&named).contains("this is an agent's token"), "{}", err(&named));
    let wrong = world.cli(&["link"]).env("ASKD_TOKEN", "wrong").output().unwrap();
    assert_eq!((out(&wrong).as_str(), wrong.status.code()), ("", Some(1)));
    assert!(err(&wrong).contains("refuses this token"), "{}", err(&wrong));
    world.kill();
    let away = world.run(&["link"]);
    assert_eq!((out(&away), away.status.code()), (link, Some(1)), "of no use now, and it says so");
    assert!(err(&away).contains("Start it with `askd serve`"), "{}", err(&away));
}

/// Somebody has seen the link who should not have it.
#[test]
fn a_new_link_ends_the_one_before() {
    let mut world = World::empty()
        .with_binary()
        .config("[web]\npeople = [{ name = \"ann\", token = \"token-of-ann-0123456789-0123456789\" }]\n");
    world.start();
    let (before, url) = (world.token(), world.url());
    let opens = |token: &str| {
        let open = world.run(&["list", "--url", &url, "--token", token]);
        open.status.success() || !err(&open).contains("refuses this token")
    };
    let bearer = |token: &str| format!("authorization: Bearer {token}\r\n");
    let mut page = std::net::TcpStream::connect(world.address()).unwrap();
    let headers = format!("host: {}\r\n{}connection: close\r\n", world.address(), bearer(&before));
    let call = format!("GET /api/v1/events HTTP/1.1\r\n{headers}\r\n");
    std::io::Write::write_all(&mut page, call.as_bytes()).unwrap();
    std::io::Read::read_exact(&mut page, &mut [0; 12]).unwrap();
    let (status, told) = world.raw("POST", "/api/v1/inbox-token", &bearer("token-of-ann-0123456789-0123456789"), "");
    assert_eq!(status, 403, "{told}");
    let made = world.run(&["link", "--new"]);
    assert_eq!(out(&made), format!("{url}/#token={}\n", world.token()), "{}", err(&made));
    assert!(
        world.token() != before
            && opens(&world.token())
            && opens("token-of-ann-0123456789-0123456789")
            && !opens(&before)
    );
    page.set_read_timeout(Some(SOON)).unwrap();
    std::io::Read::read_to_end(&mut page, &mut Vec::new()).expect("an open page is closed");
    assert_eq!(world.raw("POST", "/api/v1/inbox-token", &bearer(&before), "").0, 401);
    let kept = world.token();
    world.kill();
    world.start();
    assert_eq!(world.token(), kept);

    let mut world = World::empty().with_binary().config("[web]\ntoken = \"of-the-settings-0123456789-0123456789\"\n");
    world.start();
    let refused = world.run(&["link", "--new", "--token", "of-the-settings-0123456789-0123456789"]);
    let told = "askd: The inbox token is in the settings. Replace [web] token there, and reload askd.\n";
    assert_eq!((err(&refused).as_str(), refused.status.code()), (told, Some(1)));
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
    assert_eq!(trail.lines().next(), Some(&*format!("Question {id}")));
    let what: Vec<&str> = trail.lines().skip(1).map(|line| line[25..41].trim()).collect();
    assert_eq!((what[0], what.contains(&"answered"), what.contains(&"delivered")), ("asked", true, true), "{trail}");
    assert!(trail.contains("by operator") && trail.contains("channel cli") && !trail.contains("Deploy"), "{trail}");
    let (at, token) = (format!("http://{}", world.address()), world.token());
    let mut elsewhere = askd();
    elsewhere.args(["log", &code, "--url", &at, "--token", &token]).env("ASKD__DATA_DIR", "/does/not/exist");
    assert_eq!(out(&elsewhere.output().unwrap()), trail, "from another host");
    world.kill();
    assert_eq!(out(&world.run(&["log", &id[..8]])), trail, "without a daemon, by the beginning of its id");
    let lines = out(&world.run(&["log", &id, "--json"]));
    assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).unwrap()["ask"] == id), "{lines}");
    // What is as short as a code may be one, and the beginning of the id of another question.
    let short = world.run(&["log", &id[..7]]);
    assert_eq!((short.status.code(), out(&short)), (Some(1), String::new()));
    assert!(err(&short).contains("the first 8 or more characters of its id"), "{}", err(&short));
    let unknown = world.run(&["log", "ffffffff"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(err(&unknown).contains("the audit log knows no question \"ffffffff\""), "{}", err(&unknown));
}

#[test]
fn a_group_is_added_with_its_folders_and_the_lines_to_connect_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
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
fn what_root_makes_for_a_group_before_the_first_start_is_the_daemons() {
    let dir = tempfile::tempdir().unwrap();
    let story = "what_root_makes_for_a_group_before_the_first_start_is_the_daemons";
    if as_another(dir.path(), story).is_none() {
        return;
    }
    let data = dir.path().join("data");
    let add = || askd().args(["group", "add", "research"]).env("ASKD__DATA_DIR", &data).output().unwrap();
    let refused = add();
    let told = format!(
        "askd: {0} does not exist yet, so askd cannot tell which user the folders should belong to. Start askd once, or make it for askd's user: \
         sudo install -d -o askd -g askd -m 0751 {0}\n",
        data.display()
    );
    assert_eq!((refused.status.code(), err(&refused), data.exists()), (Some(1), told, false));
    of_another(&data, 12345, 0o751);
    let added = add();
    assert_eq!(added.status.code(), Some(0), "{}", err(&added));
    for name in ["", "research", "research/tasks", "research/responses", "research/briefings"] {
        let at = std::fs::metadata(data.join("ipc").join(name)).unwrap();
        assert_eq!((at.uid(), at.gid()), (12345, 12345), "{name}");
    }
    // The daemon could read neither secrets of root's nor what a question of root's leaves.
    let before = files(dir.path());
    let mut init = askd();
    init.args(["init", "--group", "g", "--config", "askd.toml"]).current_dir(dir.path()).env("ASKD__DATA_DIR", &data);
    let refused = init.stdin(Stdio::null()).output().unwrap();
    let own = "run this as askd's own user: sudo -u '#12345' askd init ...\n";
    let told = format!("askd: {} belongs to user id 12345; {own}", data.join("ipc").display());
    assert_eq!((refused.status.code(), err(&refused)), (Some(1), told));
    assert_eq!(files(dir.path()), before);
    of_another(&data.join("state"), 12345, 0o700);
    let doctor = askd().args(["doctor", "--send"]).env("ASKD__DATA_DIR", &data).output().unwrap();
    assert!(out(&doctor).contains("sudo -u '#12345' askd doctor --send"), "{}", out(&doctor));
}

/// The usual settings file may be missing. One that is there and cannot be read is a mistake like any other.
#[test]
fn settings_of_the_system_that_cannot_be_read_are_not_taken_for_none() {
    let dir = tempfile::tempdir().unwrap();
    let story = "settings_of_the_system_that_cannot_be_read_are_not_taken_for_none";
    let Some(program) = as_another(dir.path(), story) else { return };
    let check = |before: &str| {
        let script =
            format!("mount -t tmpfs none /etc && mkdir /etc/askd && {before} && exec {} check", program.display());
        let mut command = crate::daemon::without_environment("unshare".as_ref());
        command.args(["--mount", "sh", "-c", &script]).env("ASKD__DATA_DIR", dir.path()).output().unwrap()
    };
    let none = check("true");
    if err(&none).contains("unshare:") || err(&none).contains("mount:") {
        println!("SKIPPED {story}: nothing can be mounted here");
        return;
    }
    assert_eq!(none.status.code(), Some(0), "{}", err(&none));
    for (before, why) in [
        ("ln -s /nowhere/askd.toml /etc/askd/askd.toml", "No such file or directory (os error 2)"),
        ("touch /etc/askd/askd.toml && chmod 700 /etc/askd", "Permission denied (os error 13)"),
        ("touch /etc/askd/askd.toml && chmod 600 /etc/askd/askd.toml", "Permission denied (os error 13)"),
    ] {
        let wrong = check(before);
        let told = format!("askd: cannot read the settings file /etc/askd/askd.toml: {why}\n");
        assert_eq!((wrong.status.code(), err(&wrong)), (Some(2), told), "{before}");
    }
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

/// What is in a folder, by name: mode and content.
fn files(folder: &Path) -> BTreeMap<PathBuf, (u32, String)> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            files.insert(path.clone(), (mode, std::fs::read_to_string(&path).unwrap_or_default()));
        }
    }
    files
}

#[tokio::test]
async fn init_goes_from_nothing_to_an_answered_question_and_destroys_nothing_when_it_runs_again() {
    let slack = Slack::start(Config { pace: Duration::ZERO, ..Config::default() }).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let set_up = dir.path().join("set-up");
    std::fs::create_dir(&set_up).unwrap();
    let init = |args: &[&str]| {
        let mut command = tokio::process::Command::from(askd());
        command.args(["init", "--config"]).arg(set_up.join("askd.toml")).arg("--data-dir").arg(dir.path().join("data"));
        command.args(args).env("ASKD__SLACK__API_URL", slack.api_url()).env("ASKD__SLACK__PACE", "0s");
        command.env("ASKD__HTTP__LISTEN", "127.0.0.1:0").stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap().wait_with_output()
    };
    let link = format!("https://acme.slack.com/archives/{CHANNEL}/p1700000000000000");
    let research = ["--group", "research", "--in", "slack", "--slack-channel", &link, "--slack-bot-token", BOT_TOKEN];

    // What is wrong is told before anything is written.
    let wrong = init(&[&research[..], &["--slack-app-token", "xapp-wrong"]].concat()).await.unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        err(&wrong).contains("--slack-app-token: slack: invalid_auth: the app-level token (xapp-...) is wrong"),
        "{}",
        err(&wrong)
    );
    slack.invite_bot(CHANNEL, false);
    let research =
        [&research[..], &["--slack-app-token", APP_TOKEN, "--agent", "docker", "--program", "claude"]].concat();
    let outside = init(&research).await.unwrap();
    assert!(
        err(&outside).contains("--slack-channel: slack: not_in_channel: invite the bot with /invite @askd"),
        "{}",
        err(&outside)
    );
    assert!(!set_up.join("askd.toml").exists(), "it begins anew");
    slack.invite_bot(CHANNEL, true);

    let running = init(&research);
    let click = async |ts: &str| slack.click(CHANNEL, ts, "pick:0:0", ALICE).await;
    let person = async {
        for text in ["Press the button if you will answer questions here.", "Can you read this?"] {
            let shown = |message: &Message| message.visible_text().contains(text) && message.has_action("pick:0:0");
            let Some(card) = slack.wait_for_message(shown, SOON).await else { return Some(text) };
            // The socket may connect after the card was posted. Slack then shows a warning sign, and a person clicks again.
            let mut tries = 0..10;
            while tries.next().is_some() && !click(&card.ts).await.expect("sent").acknowledged {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
        None
    };
    let (done, unseen) = tokio::join!(tokio::time::timeout(SOON * 3, running), person);
    let done = done.expect("an end").unwrap();
    assert_eq!(unseen, None, "{}{}", out(&done), err(&done));
    let told = out(&done);
    assert_eq!(done.status.code(), Some(0), "{told}{}", err(&done));
    let data = dir.path().join("data/ipc/research");
    for line in [
        "Slack knows it: @askd in the workspace",
        "Socket Mode connects.",
        &format!("{ALICE} can answer."),
        &format!("  -v {}/tasks:/workspace/ipc/tasks \\", data.display()),
        "claude mcp add askd -- askd mcp",
        &format!("Answered by {ALICE}."),
        "Done. Start the daemon:  askd serve --config",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
    assert!(!told.contains(BOT_TOKEN) && !told.contains(APP_TOKEN), "no secret is printed: {told}");
    let written = files(&set_up);
    let secrets = set_up.join("secrets");
    assert_eq!(written[&secrets.join("slack_bot_token")], (0o600, format!("{BOT_TOKEN}\n")));
    assert_eq!(written[&secrets.join("slack_app_token")], (0o600, format!("{APP_TOKEN}\n")));
    assert!(written[&set_up.join("slack-manifest.yaml")].1.contains("socket_mode_enabled: true"));
    let settings = &written[&set_up.join("askd.toml")].1;
    assert!(
        settings.contains(&format!("{{ channel = \"slack\", chat = \"{CHANNEL}\", responders = [\"{ALICE}\"] }},")),
        "{settings}"
    );
    let check = askd().args(["check", "--config"]).arg(set_up.join("askd.toml")).output().unwrap();
    assert_eq!(check.status.code(), Some(0), "{}", err(&check));
    assert!(out(&check).contains("Group research: Slack"), "{}", out(&check));

    let again = init(&[&research[..], &["--no-question"]].concat()).await.unwrap();
    assert!(out(&again).contains("research is in"), "{}{}", out(&again), err(&again));
    assert_eq!(files(&set_up), written, "what is there stays as it is");
    let mut elsewhere = askd();
    elsewhere.args(["init", "--group", "third", "--in", "inbox", "--data-dir", "/elsewhere", "--config"]);
    let elsewhere = elsewhere.arg(set_up.join("askd.toml")).stdin(Stdio::null()).output().unwrap();
    let data = dir.path().join("data");
    let told = format!(
        "keeps the data in {}: leave --data-dir out, or write at the top: data_dir = \"/elsewhere\"\n",
        data.display()
    );
    assert!(elsewhere.status.code() == Some(2) && err(&elsewhere).ends_with(&told), "{}", err(&elsewhere));
    assert_eq!(files(&set_up), written, "and nothing is written");
    let second = ["--group", "second", "--in", "inbox", "--agent", "here", "--program", "codex", "--no-question"];
    let second = init(&second).await.unwrap();
    assert_eq!(second.status.code(), Some(0), "{}", err(&second));
    let more = files(&set_up);
    let added = more[&set_up.join("askd.toml")].1.strip_prefix(&**settings).expect("nothing is changed");
    assert!(added.contains("[groups.second]") && more.len() == written.len(), "{added}");

    let missing = init(&["--group", "second", "--in", "slack", "--slack-channel", &link]).await.unwrap();
    let told =
        "already, without a route to slack: add the route there yourself (docs/slack.md), or give another --group\n";
    assert!(missing.status.code() == Some(2) && err(&missing).ends_with(told), "{}", err(&missing));

    // Beside the daemon: clicks are its own, and nothing else connects.
    let mut serve = tokio::process::Command::from(askd());
    serve.args(["serve", "--config"]).arg(set_up.join("askd.toml")).env("ASKD__SLACK__API_URL", slack.api_url());
    serve.env("ASKD__SLACK__PACE", "0s").env("ASKD__HTTP__LISTEN", "127.0.0.1:0").stderr(Stdio::null());
    let mut daemon = serve.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    slack.wait_for(SOON, || (slack.sockets() == 1).then_some(())).await.expect("the daemon");
    let sockets = slack.sockets_ever();
    let fourth = ["--group", "fourth", "--in", "slack", "--slack-channel", &link, "--agent", "docker"];
    let asked = tokio::time::timeout(SOON, init(&fourth)).await.expect("an end").unwrap();
    assert_eq!(asked.status.code(), Some(2), "{}{}", out(&asked), err(&asked));
    assert!(
        out(&asked).contains("A daemon runs on this data folder, and clicks in Slack come to it."),
        "{}",
        out(&asked)
    );
    assert!(err(&asked).starts_with("askd: --slack-responder is missing: Who can answer?"), "{}", err(&asked));
    let fourth = init(&[&fourth[..], &["--slack-responder", ALICE]].concat()).await.unwrap();
    assert_eq!(fourth.status.code(), Some(0), "{}{}", out(&fourth), err(&fourth));
    let told = out(&fourth);
    for line in [
        "A daemon runs on this data folder. After the next step, ask: askd ask --ipc",
        "Done. The running daemon reads the settings at a reload:  sudo systemctl reload askd",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
    let named = format!("responders = [\"{ALICE}\"] }},\n");
    let settings = files(&set_up).remove(&set_up.join("askd.toml")).unwrap().1;
    assert_eq!(settings.matches(&named).count(), 2, "{settings}");
    assert_eq!(slack.sockets_ever(), sockets, "no second daemon has connected");
    // A file that it does not read: its reload would change nothing.
    let elsewhere = set_up.join("elsewhere.toml");
    std::fs::copy(set_up.join("askd.toml"), &elsewhere).unwrap();
    let fifth = ["--group", "fifth", "--in", "inbox", "--agent", "here", "--no-question"];
    let mut command = askd();
    command.args(["init", "--config"]).arg(&elsewhere).args(fifth).env("ASKD__SLACK__API_URL", slack.api_url());
    let told = out(&command.stdin(Stdio::null()).output().unwrap());
    let shown = elsewhere.display();
    let next = format!(
        "Done. The running daemon does not read {shown}. Stop it, then start it with:  askd serve --config {shown}"
    );
    assert!(told.contains(&next), "{told}");
    daemon.start_kill().unwrap();
    daemon.wait().await.unwrap();
}

/// Many begin with a copy of config/default.toml, which has every section and no token.
#[tokio::test]
async fn init_sets_channels_up_where_the_file_has_their_sections() {
    let slack = Slack::start(Config { pace: Duration::ZERO, ..Config::default() }).await.unwrap();
    let phone = Whatsapp::start(sim()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("askd.toml");
    let init = |args: &[&str]| {
        let mut command = tokio::process::Command::from(askd());
        command.args(["init", "--no-question", "--agent", "here", "--config"]).arg(&file).args(args);
        command.env("ASKD__SLACK__API_URL", slack.api_url()).env("ASKD__DATA_DIR", dir.path().join("data"));
        command.env("ASKD_SLACK_BOT_TOKEN", BOT_TOKEN).env("ASKD_SLACK_APP_TOKEN", APP_TOKEN);
        command.env("ASKD_WHATSAPP_ACCESS_TOKEN", "sim-token").env("ASKD_WHATSAPP_APP_SECRET", "b");
        command.env("ASKD__WHATSAPP__API_URL", phone.api_url()).stdin(Stdio::null()).output()
    };
    let number = phone.config().phone_number_id.clone();
    let number = number.as_str();
    let in_slack = ["--group", "one", "--in", "slack", "--slack-channel", CHANNEL, "--slack-responder", ALICE];
    let on_whatsapp = ["--group", "two", "--in", "whatsapp", "--whatsapp-number-id", number, "--whatsapp-person", ADA];
    let before = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("config/default.toml")).unwrap();
    std::fs::write(&file, &before).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    for args in [in_slack, on_whatsapp, in_slack] {
        let done = init(&args).await.unwrap();
        assert_eq!(done.status.code(), Some(0), "{}{}", out(&done), err(&done));
        // Nobody waits for the phone: what is left to do at Meta is said all the same.
        let (told, is_on_whatsapp) = (out(&done), args == on_whatsapp);
        assert_eq!(told.contains("callback URL https://<your address>/whatsapp/webhook"), is_on_whatsapp, "{told}");
        assert_eq!(told.contains("Meta knows the number: +"), is_on_whatsapp, "{told}");
    }
    let other = init(&["--group", "one", "--slack-responder", "U0B0B"]).await.unwrap();
    let told = format!(
        "askd: --slack-responder: one is in {0} already, and keeps its routes: change [groups.one] there yourself, or leave \
         --slack-responder out\n",
        file.display()
    );
    assert_eq!((err(&other), other.status.code()), (told, Some(2)));
    let check = askd().args(["check", "--config"]).arg(&file).env("ASKD__DATA_DIR", dir.path()).output().unwrap();
    let told = out(&check);
    assert!(told.contains("Slack        Socket Mode") && !told.contains("not set up"), "{told}{}", err(&check));
    let written = files(dir.path());
    let (mode, after) = &written[&file];
    let mut lines = after.lines();
    for line in before.lines().filter(|line| *line != "phone_number_id = \"\"") {
        assert!(lines.any(|kept| kept == line), "{line}\n{after}");
    }
    assert_eq!((*mode, &written[&dir.path().join("askd.toml.old1")].1), (0o640, &before));
    assert!(!after.contains("\nwebhook_listen = \"127.0.0.1:8485\""), "what is in [http] stays as it is: {after}");

    std::fs::write(&file, "[asks]\ntimeout = \"1h\"\n").unwrap();
    let before = files(dir.path());
    for (flag, value, told) in [
        ("--whatsapp-number-id", "4711", "4711 is not the id of a number of this app: Meta refuses it (100): "),
        ("--whatsapp-access-token", "other", "Meta refuses it (190): "),
    ] {
        let mut args = on_whatsapp.to_vec();
        args.retain(|arg| *arg != number || flag != "--whatsapp-number-id");
        args.retain(|arg| *arg != flag);
        args.extend([flag, value]);
        let refused = init(&args).await.unwrap();
        let begins = format!("askd: {flag}: {told}");
        assert!(err(&refused).starts_with(&begins) && refused.status.code() == Some(2), "{}", err(&refused));
    }
    assert_eq!(files(dir.path()), before, "nothing of what was refused is kept");
    let done = init(&on_whatsapp).await.unwrap();
    let after = std::fs::read_to_string(&file).unwrap();
    assert!(after.contains("\nwebhook_listen = \"127.0.0.1:8485\"\n"), "{after}{}", err(&done));
    std::fs::write(&file, "slack.pace = \"2s\"\n").unwrap();
    let refused = init(&in_slack).await.unwrap();
    let told =
        format!("askd: {}: write the keys of slack below a line [slack], and run askd init again\n", file.display());
    assert_eq!((err(&refused), refused.status.code()), (told, Some(2)));
}

/// A card that nobody waits for would be a lie.
#[tokio::test]
async fn ctrl_c_takes_back_the_question_of_init() {
    let slack = Slack::start(Config { pace: Duration::ZERO, ..Config::default() }).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut command = tokio::process::Command::from(askd());
    command.args(["init", "--agent", "here", "--group", "one", "--in", "slack", "--slack-channel", CHANNEL]);
    command.args(["--slack-responder", ALICE, "--config", "askd.toml"]).current_dir(dir.path());
    command.env("ASKD__SLACK__API_URL", slack.api_url()).env("ASKD__DATA_DIR", dir.path().join("data"));
    command.env("ASKD_SLACK_BOT_TOKEN", BOT_TOKEN).env("ASKD_SLACK_APP_TOKEN", APP_TOKEN);
    command.env("ASKD__HTTP__LISTEN", "127.0.0.1:0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let card =
        until("the card", SOON, || slack.messages(CHANNEL).pop().filter(|card| !card.elements().is_empty())).await;
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = child.wait_with_output().await.unwrap();
    assert_eq!(
        (ended.status.code(), err(&ended)),
        (Some(1), "askd: interrupted; what was set up so far is kept\n".to_owned())
    );
    let card = slack.message(CHANNEL, &card.ts).unwrap();
    assert!(card.elements().is_empty() && card.visible_text().contains("Cancelled"), "{}", card.visible_text());
}

/// Some have tried by hand, and have a part of the section.
#[tokio::test]
async fn init_goes_on_from_a_slack_section_without_a_bot_token() {
    let slack = Slack::start(Config { pace: Duration::ZERO, ..Config::default() }).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("askd.toml");
    let init = |before: &str| {
        std::fs::write(&file, before).unwrap();
        let mut command = tokio::process::Command::from(askd());
        command.args(["init", "--no-question", "--agent", "here", "--group", "one", "--in", "slack"]);
        command.args(["--slack-channel", CHANNEL, "--slack-responder", ALICE, "--config"]).arg(&file);
        command.env("ASKD__SLACK__API_URL", slack.api_url()).env("ASKD__DATA_DIR", dir.path().join("data"));
        command.env("ASKD_SLACK_BOT_TOKEN", BOT_TOKEN).env("ASKD_SLACK_APP_TOKEN", APP_TOKEN);
        command.stdin(Stdio::null()).output()
    };
    std::fs::write(dir.path().join("signing"), "abc").unwrap();
    let in_file = format!("signing_secret_file = {:?}", dir.path().join("signing"));
    for kept in ["signing_secret = \"abc\"", "signing_secret = [\"abc\", \"def\"]", &in_file, "bot_token = \"\""] {
        let done = init(&format!("[slack]\n{kept}\n")).await.unwrap();
        assert_eq!(done.status.code(), Some(0), "{kept}: {}{}", out(&done), err(&done));
        let check = askd().args(["check", "--config"]).arg(&file).env("ASKD__DATA_DIR", dir.path()).output().unwrap();
        assert!(out(&check).contains("Slack        Socket Mode"), "{}{}", out(&check), err(&check));
        assert!(std::fs::read_to_string(&file).unwrap().contains(&format!("\n{kept}\n")));
    }
    // Before it tries or asks anything.
    for (kept, key) in [("app_token = \"xapp-1-2\"", "app_token"), ("app_token_file = \"/none\"", "app_token_file")] {
        let refused = init(&format!("[slack]\n{kept}\n")).await.unwrap();
        if key == "app_token" {
            let told = format!(
                "askd: {}: [slack] has {key}, but not all that Slack needs. Take {key} out, and run askd init again\n",
                file.display()
            );
            assert_eq!((err(&refused), out(&refused).as_str()), (told, ""));
        }
        assert_eq!(refused.status.code(), Some(2));
    }
}

/// In its image askd has the data folder elsewhere than the host, and a container of the agent has askd elsewhere than this host.
#[test]
fn init_prints_what_is_there_where_the_agent_runs() {
    let dir = tempfile::tempdir().unwrap();
    let printed = |args: &[&str]| {
        let mut command = askd();
        command.args(["init", "--no-question", "--in", "inbox", "--group", "g", "--program", "cursor", "--config"]);
        command.arg(dir.path().join("askd.toml")).args(args).env("ASKD__DATA_DIR", dir.path().join("data"));
        let done = command.stdin(Stdio::null()).current_dir(dir.path()).output().unwrap();
        assert!(done.status.success(), "{args:?}: {}", err(&done));
        out(&done)
    };
    let here = printed(&["--agent", "here"]);
    let own = format!("\"command\": \"{}\"", crate::harness::ASKD);
    assert!(here.contains(&own), "{here}");
    let (command, mount) = ("\"command\": \"askd\"", "  -v /srv/askd/ipc/g/tasks:/workspace/ipc/tasks \\\n");
    let inside = printed(&["--agent", "docker"]);
    assert!(inside.contains(command) && !inside.contains(&own), "{inside}");
    let both = printed(&["--agent", "docker", "--on-host", "/srv/askd"]);
    assert!(both.contains(command) && both.contains(mount), "{both}");
    let host = printed(&["--agent", "here", "--on-host", "/srv/askd"]);
    assert!(host.contains(command) && host.contains("\"/srv/askd/ipc/g\""), "{host}");
    let guide = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/docker.md")).unwrap();
    assert!(guide.contains("--in slack --on-host /srv/askd\n"), "the guide says so");
}

/// Nothing is written that the daemon would not go by, and nothing that nobody has said.
#[test]
fn init_writes_the_data_folder_that_is_in_force_and_no_settings_without_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let init = |args: &[&str], data: &str| {
        let mut command = askd();
        command.args(["init", "--no-question", "--config", "askd.toml"]).args(args).current_dir(dir.path());
        command.env("HOME", dir.path()).env("ASKD__DATA_DIR", dir.path().join(data)).stdin(Stdio::null());
        command.output().unwrap()
    };
    let file = dir.path().join("askd.toml");
    let refused = init(&[], "data");
    let told =
        "askd: there is no terminal to ask on; answer with flags, for example: askd init --group research --in inbox\n";
    assert_eq!((err(&refused).as_str(), refused.status.code()), (told, Some(2)));
    let refused = init(&["--group", "g", "--data-dir", "other"], "data");
    assert!(err(&refused).starts_with("askd: --data-dir: ASKD__DATA_DIR is set to "), "{}", err(&refused));
    assert!(!file.exists());
    let done = init(&["--group", "g"], "data");
    assert!(done.status.success(), "{}", err(&done));
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.contains(&format!("data_dir = {:?}\n", dir.path().join("data"))), "{written}");
}

#[test]
fn init_takes_no_data_folder_that_the_settings_refuse() {
    let dir = tempfile::tempdir().unwrap();
    let mut init = askd();
    init.args([
        "init",
        "--config",
        "askd.toml",
        "--group",
        "g",
        "--in",
        "inbox",
        "--no-question",
        "--data-dir",
        "~/askd",
    ]);
    let refused = init.stdin(Stdio::null()).current_dir(dir.path()).output().unwrap();
    let told = "askd: --data-dir: \"~/askd\": only a shell expands ~; write the full path, like /home/ann/askd\n";
    assert_eq!((err(&refused).as_str(), refused.status.code()), (told, Some(2)));
    assert!(!dir.path().join("~").exists());
}

/// A terminal that shows nothing of what is typed after that would be of no use to anybody.
#[test]
fn ctrl_c_ends_a_question_of_init_and_leaves_the_terminal_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let init = format!("{} init --config askd.toml --data-dir data --group g --in slack", crate::harness::ASKD);
    let mut command = Command::new("script");
    let line = format!("trap : INT; {init}; echo status $?; stty -a");
    command.args(["-qec", &line, "/dev/null"]).current_dir(dir.path()).env("HOME", dir.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut told, mut shown) = (Vec::new(), child.stdout.take().unwrap());
    while !String::from_utf8_lossy(&told).contains("not shown): ") {
        let mut byte = [0];
        std::io::Read::read_exact(&mut shown, &mut byte).unwrap();
        told.extend(byte);
    }
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\x03").unwrap();
    std::io::Read::read_to_end(&mut shown, &mut told).unwrap();
    let told = String::from_utf8(told).unwrap();
    child.wait().unwrap();
    assert!(told.contains("askd: interrupted; what was set up so far is kept") && told.contains("status 1"), "{told}");
    assert!(told.contains(" echo ") && !told.contains("-echo "), "{told}");
}

#[test]
fn init_asks_on_a_terminal_until_the_answer_fits() {
    let dir = tempfile::tempdir().unwrap();
    let line = format!("{} init --no-question --config askd.toml", crate::harness::ASKD);
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(dir.path()).env("HOME", dir.path());
    let mut child = command.env_remove("XDG_STATE_HOME").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let typed = b"not a name\nresearch\n\n9\n1\n\n3\n";
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), typed).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = out(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    for words in [
        "What is the agent called? [default]:",
        "a group's name is",
        "\"9\" is none of inbox, slack, whatsapp",
        "Wrote ",
    ] {
        assert!(told.contains(words), "{words}\n{told}");
    }
    assert!(told.contains("[mcp_servers.askd]"), "{told}");
    assert!(dir.path().join(".local/state/askd/ipc/research/tasks").is_dir());
    let mut nobody = askd();
    nobody.args(["init", "--config", "x.toml", "--data-dir", "data", "--in", "slack"]).current_dir(dir.path());
    let nobody = nobody.stdin(Stdio::null()).output().unwrap();
    let told = "askd: --slack-bot-token is missing: Bot User OAuth Token (xoxb-...; not shown)\n";
    assert_eq!((err(&nobody).as_str(), nobody.status.code()), (told, Some(2)));
}

#[tokio::test]
async fn init_listens_while_whatsapp_is_told_where_it_is() {
    let phone = Whatsapp::start(sim()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let line = format!(
        "{} init --config askd.toml --data-dir data --group research --in whatsapp --whatsapp-number-id {} \
         --whatsapp-person +{ADA} --agent here --program codex",
        crate::harness::ASKD,
        phone.config().phone_number_id
    );
    let mut command = tokio::process::Command::new("script");
    command.args(["-qefc", &line, "/dev/null"]).current_dir(dir.path()).env("ASKD__WHATSAPP__API_URL", phone.api_url());
    command.env("ASKD_WHATSAPP_ACCESS_TOKEN", "sim-token").env("ASKD_WHATSAPP_APP_SECRET", "sim-app-secret");
    command.env("ASKD__HTTP__LISTEN", "127.0.0.1:0").env("ASKD__HTTP__WEBHOOK_LISTEN", &free).kill_on_drop(true);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut told, mut some) = (String::new(), [0; 4096]);
    while !told.contains("Press Enter when that is done") {
        let read = child.stdout.as_mut().unwrap().read(&mut some).await.unwrap();
        assert!(read > 0, "{told}");
        told += &String::from_utf8_lossy(&some[..read]);
    }
    assert!(told.contains(&format!("cloudflared tunnel --url http://{free}")), "{told}");
    let verify = std::fs::read_to_string(dir.path().join("secrets/whatsapp_verify_token")).unwrap();
    assert!(told.contains(&format!("verify token {};", verify.trim())), "{told}");

    phone.set_webhook(Some(&format!("http://{free}/whatsapp/webhook")));
    phone.person_says(ADA, "hello");
    let heard =
        |phone: &Whatsapp| phone.webhooks().iter().any(|post| post.status == 200 && post.body.contains("hello"));
    assert!(phone.wait_until(heard, SOON).await, "the daemon is there while it asks");
    child.stdin.as_mut().unwrap().write_all(b"\n").await.unwrap();
    let question = phone.wait_for_message(|m| m.stage.shown() && m.text.contains("Can you read this?"), SOON).await;
    phone.person_quotes(ADA, &question.expect("the question").id, "1");
    let output = child.wait_with_output().await.unwrap();
    assert!(out(&output).contains(&format!("Answered by {ADA}.")), "{told}{}", out(&output));
    assert_eq!(output.status.code(), Some(0));
    let settings = std::fs::read_to_string(dir.path().join("askd.toml")).unwrap();
    assert!(settings.contains("webhook_listen = \"127.0.0.1:8485\"") && !settings.contains("sim-"), "{settings}");
}
