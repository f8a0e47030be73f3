//! The command line, as a user meets it: what it prints, where, and with which exit code.

use crate::harness::{SHORTEST, SOON, World, askd, exchange, names, through, within};
use crate::said;
use crate::sessions::{Program, start, with_session};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

pub(crate) fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

impl World {
    /// `askd` as another terminal on the same host would run it, from another folder.
    pub(crate) fn cli(&self, args: &[&str]) -> Command {
        let mut command = askd();
        command.args(args).current_dir("/").env("ASKD__DATA_DIR", self.data());
        if !matches!(args[0], "ask" | "serve") {
            command.env("ASKD__HTTP__LISTEN", self.address().to_string());
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.cli(args).output().unwrap()
    }

    /// Runs `askd ask` while `person` does something about it.
    fn asked(&self, args: &[&str], person: impl FnOnce(&Value)) -> Output {
        let child = self.cli(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        person(&self.one_open());
        child.wait_with_output().unwrap()
    }
}

#[test]
fn a_first_run_in_two_terminals() {
    let world = World::of(&["default"]);
    let output = world.asked(&["ask", "hi?", "--option", "yes", "--option", "no=not today"], |ask| {
        assert_eq!(ask["group"], "default");
        assert_eq!(ask["questions"][0]["options"][1], json!({"label": "no", "description": "not today"}));
        let list = out(&world.run(&["list"]));
        assert!(
            list.starts_with("CODE  AGENT    LEFT") && list.contains("default") && list.contains("  inbox  hi?"),
            "{list}"
        );
        let answered = world.run(&["answer", &ask["id"].as_str().unwrap()[..8], "No"]);
        assert_eq!((out(&answered).as_str(), answered.status.code()), ("Answered: no by operator\n", Some(0)));
    });
    assert_eq!((out(&output).as_str(), output.status.code()), ("no\n", Some(0)), "{}", err(&output));
    assert_eq!(err(&output), "", "nothing but the answer");
    world.group("default").responses_are(&[]);
    assert_eq!(out(&world.run(&["list"])), "No open questions.\n");
    assert!(out(&world.run(&["list", "--settled"])).contains("Answered: no by operator"));
    assert_eq!(world.audit().iter().find(|line| line["what"] == "answered").unwrap()["channel"], "cli");
}

/// Python opens `/dev/null` for reading and writing, as the runtime does for an output that was closed.
#[test]
fn a_script_that_wants_only_the_exit_code_throws_the_answer_away() {
    let world = World::of(&["default"]);
    for output in [null(), Stdio::null()] {
        let mut asking = world.cli(&["ask", "Go?", "--confirm"]).stdout(output).spawn().unwrap();
        let ask = world.one_open();
        assert!(world.run(&["dismiss", ask["short_id"].as_str().unwrap()]).status.success());
        assert_eq!(asking.wait().unwrap().code(), Some(3));
    }
}

fn null() -> Stdio {
    std::fs::File::options().read(true).write(true).open("/dev/null").unwrap().into()
}

#[test]
fn every_form_can_be_asked_and_answered() {
    let world = World::new();
    let answer = |args: &[&'static str]| {
        let args: Vec<&str> = args.to_vec();
        let world = &world;
        move |ask: &Value| {
            let mut all = vec!["answer", ask["short_id"].as_str().unwrap()];
            all.extend(args);
            let output = world.run(&all);
            assert!(output.status.success(), "{}", err(&output));
        }
    };
    let multi = world.asked(
        &[
            "ask",
            "Which?",
            "--multi",
            "--option",
            "staging",
            "--option",
            "prod",
            "--title",
            "T",
            "--context",
            "C",
            "--timeout",
            "10m",
        ],
        answer(&["prod", "staging", "--text", "my own"]),
    );
    assert_eq!(out(&multi), "staging\nprod\nmy own\n");
    let confirm = world.asked(&["ask", "Sure?", "--confirm"], answer(&["yes"]));
    assert_eq!(out(&confirm), "Yes\n");
    let text = world.asked(&["ask", "Why?", "--text"], answer(&["because"]));
    assert_eq!(out(&text), "because\n");
    let whole = world.asked(&["ask", "Why?", "--json"], answer(&["-q", "Why?=a=b"]));
    let result: Value = serde_json::from_str(&out(&whole)).unwrap();
    assert_eq!((&result["status"], &result["answers"]["Why?"]), (&json!("answered"), &json!("a=b")));
}

#[test]
fn a_typo_in_a_terminal_is_not_an_answer() {
    let world = World::new();
    let agent = world.group("g");
    let ask = |id: &str, question: Value| {
        agent.ask(id, &json!({"questions": [question]}));
        world.open_of(id)["id"].as_str().unwrap().to_owned()
    };
    let refused = |args: &[&str], told: &str| {
        let output = world.run(args);
        assert_eq!((output.status.code(), out(&output)), (Some(2), String::new()), "{args:?}");
        assert_eq!(err(&output), format!("askd: {told}\n"), "{args:?}");
    };
    let deploy = ask("r1", json!({"question": "Deploy now?", "options": ["yes", "no"]}));
    let own = "\nTo answer in your own words: --text ";
    let labels = "nothing was sent. Choose from:\n  1. yes\n  2. no";
    refused(&["answer", &deploy, "yse"], &format!("\"yse\" is none of the options; {labels}{own}\"yse\""));
    refused(&["answer", &deploy, "3"], &format!("\"3\" is none of the options; {labels}{own}\"3\""));
    refused(&["answer", &deploy, "yes", "no"], &format!("the question takes one answer; {labels}"));
    assert!(world.run(&["answer", &deploy, "2"]).status.success());
    assert_eq!(agent.wait("r1")["result"]["answers"]["Deploy now?"], "no", "by its number");

    let which = json!({"question": "Which?", "options": ["staging", "prod"], "type": "multi-select", "custom": false});
    let which = ask("r2", which);
    let labels = "nothing was sent. Choose from:\n  1. staging\n  2. prod";
    refused(&["answer", &which, "staging, prdo"], &format!("\"prdo\" is none of the options; {labels}"));
    refused(
        &["answer", &which, "--text", "both"],
        "\"Which?\" takes no words of your own; \
        nothing was sent. Choose from:\n  1. staging\n  2. prod",
    );
    assert!(world.run(&["answer", &which, "prod, staging"]).status.success());
    assert_eq!(agent.wait("r2")["result"]["answers"]["Which?"], json!(["staging", "prod"]));

    let own = ask("r3", json!({"question": "Ship it?", "options": ["yes", "no"]}));
    assert!(world.run(&["answer", &own, "--text", "r3_0=on Monday"]).status.success());
    assert_eq!(agent.wait("r3")["result"]["answers"]["Ship it?"], "r3_0=on Monday", "the words as they are");
    let why = ask("r4", json!({"question": "Why?"}));
    assert!(world.run(&["answer", &why, "it", "rains, a=b"]).status.success());
    assert_eq!(agent.wait("r4")["result"]["answers"]["Why?"], "it rains, a=b");
    let both = json!([{"question": "A?", "options": ["x", "y"]}, {"question": "B?", "options": ["x", "y"]}]);
    agent.ask("r5", &json!({"questions": both}));
    let both = world.open_of("r5")["id"].as_str().unwrap().to_owned();
    assert!(world.run(&["answer", &both, "-q", "A?=2", "--text", "r5_1=z = z"]).status.success());
    assert_eq!(agent.wait("r5")["result"]["answers"], json!({"A?": "y", "B?": "z = z"}));
}

#[test]
fn the_code_of_a_settled_question_still_names_it() {
    let world = World::of(&["g"]);
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.open_of("r1");
    let code = ask["short_id"].as_str().unwrap().to_owned();
    assert!(world.run(&["answer", &code, "React"]).status.success());
    agent.take("r1");
    assert!(out(&world.run(&["list", "--settled"])).contains(&format!("\n{code}  ")), "the list shows it");
    let show = world.run(&["show", &code]);
    let shown = out(&show);
    assert!(shown.starts_with(&format!("{code}  g  inbox  closed\nAnswered: React by operator (")), "{shown}");
    let late = world.run(&["answer", &code, "Vue"]);
    assert_eq!((late.status.code(), out(&late)), (Some(1), String::new()));
    assert!(err(&late).contains("Already answered \"React\" by the operator in a terminal."), "{}", err(&late));
}

#[test]
fn only_the_options_can_be_answered_if_a_script_says_so() {
    let world = World::new();
    let asked = ["ask", "Deploy now?", "--option", "yes", "--option", "no", "--only-options"];
    let output = world.asked(&asked, |ask| {
        assert_eq!(ask["questions"][0]["custom"], false);
        assert_eq!(world.answer(ask, &json!({"Deploy now?": "maybe"})).0, 422);
        assert!(world.run(&["answer", ask["id"].as_str().unwrap(), "yes"]).status.success());
    });
    assert_eq!((out(&output).as_str(), output.status.code()), ("yes\n", Some(0)));
    for wrong in [&["ask", "Why?", "--only-options"][..], &["ask", "Why?", "--text", "--only-options"]] {
        assert_eq!(world.run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn an_answer_after_the_timeout_is_taken_and_what_became_of_it_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::new(dir.path(), "start", 0);
    let world = with_session(&start(&program), "").started();
    let agent = world.group("g");
    let question = json!({"question": "Which auth strategy?", "options": ["JWT tokens", "OAuth 2.0"]});
    agent.ask("r1", &json!({"questions": [question], "timeoutMs": 10000}));
    let id = world.one_open()["id"].as_str().unwrap().to_owned();
    world.later(SHORTEST);
    assert_eq!(agent.take("r1")["result"]["status"], "timeout");
    let list = out(&world.run(&["list", "--settled"]));
    assert!(list.contains("Timed out, 6d 23h left · Which") || list.contains("Timed out, 7d left · Which"), "{list}");
    let show = out(&world.run(&["show", &id]));
    assert!(show.contains("\nTimed out ("), "{show}");
    assert!(
        show.contains("\nYou can still answer: the agent will be started with it.\n")
            && show.contains("left for a late answer"),
        "{show}"
    );
    let unfit = world.run(&["answer", &id, "mine", "yours"]);
    assert!(err(&unfit).contains("\"mine\" is none of the options"), "told why: {}", err(&unfit));
    let answered = world.run(&["answer", &id, "JWT tokens"]);
    let line = "Answered after the timeout: JWT tokens by operator";
    assert_eq!((out(&answered), answered.status.code()), (format!("{line}\n"), Some(0)), "{}", err(&answered));
    let second = world.run(&["answer", &id, "OAuth 2.0"]);
    assert_eq!((second.status.code(), err(&second).contains("JWT tokens")), (Some(1), true), "{}", err(&second));
    let show = within(SOON, "the start to be said", || {
        let show = out(&world.run(&["show", &id]));
        show.contains("\nThe agent was started with the answer.\n").then_some(show)
    });
    assert!(show.contains("\nTimed out (") && show.contains(&format!("\n{line} (")), "{show}");
    assert!(!show.contains("still answer"), "{show}");
    assert!(out(&world.run(&["list", "--settled"])).contains(line));
}

#[test]
fn each_way_to_end_has_its_exit_code_and_its_sentence() {
    let world = World::new();
    let by = |command: &'static str| {
        let world = &world;
        move |ask: &Value| {
            let output = world.run(&[command, ask["id"].as_str().unwrap()]);
            assert_eq!((out(&output).as_str(), output.status.code()), ("Cancelled\n", Some(0)), "{}", err(&output));
        }
    };
    let dismissed = world.asked(&["ask", "a?"], by("dismiss"));
    assert_eq!((dismissed.status.code(), out(&dismissed)), (Some(3), String::new()));
    assert_eq!(err(&dismissed), "askd: ask_user cancelled: the user dismissed the question.\n");
    let cancelled = world.asked(&["ask", "b?"], by("cancel"));
    assert_eq!(err(&cancelled), "askd: ask_user cancelled: the question was withdrawn.\n");
    let timeout = world.asked(&["ask", "c?", "--timeout", "10s"], |_| world.later(SHORTEST));
    assert_eq!((timeout.status.code(), out(&timeout)), (Some(4), String::new()));
    assert!(err(&timeout).contains("ask_user timeout"));
    for (args, words) in [
        (&["ask"][..], "<QUESTION>"),
        (&["ask", " "], "askd: the question is empty."),
        (&["ask", "q", "--option", "a", "--option", "A"], "--option[1].label is the same"),
        (&["ask", "q", "--timeout", "soon"], "--timeout"),
        (&["ask", "q", "--timeout", "1s"], "it must be between 10s and 7days"),
        (&["ask", "q", "--multi"], "--option"),
        (&["show", "../x"], "not a code or the beginning of an id"),
        (&["serve", "--config", "/does/not/exist"], "/does/not/exist"),
        (&["nonsense"], "nonsense"),
    ] {
        let output = world.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", err(&output));
        assert!(err(&output).contains(words), "{args:?}: {}", err(&output));
    }
}

#[test]
fn a_daemon_that_is_away_is_said_and_nothing_is_left_behind() {
    let mut world = World::process();
    world.kill();
    let output = world.run(&["ask", "anybody?", "--render-timeout", "10s"]);
    assert_eq!((output.status.code(), out(&output)), (Some(5), String::new()));
    assert!(err(&output).contains("askd serve") && err(&output).contains("taken back"), "{}", err(&output));
    world.group("default").tasks_gone();
    let list = world.run(&["list"]);
    assert_eq!(list.status.code(), Some(1));
    assert!(err(&list).contains("no askd at") && err(&list).contains("askd serve"), "{}", err(&list));
    world.start();
    assert!(world.open().is_empty(), "what was taken back is not asked");
}

#[test]
fn interrupted_it_withdraws_unless_told_to_keep() {
    let world = World::new();
    let interrupt = |signals: &[Signal], args: &[&str]| {
        // Whoever runs these tests may ignore SIGHUP.
        let mut program = through(&["env", "--default-signal=HUP"], &world.cli(args));
        let child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ask = world.one_open();
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        for signal in signals {
            // It may have ended by the second one.
            let _sent = rustix::process::kill_process(pid, *signal);
        }
        (child.wait_with_output().unwrap(), ask)
    };
    // SIGHUP: its terminal was closed, which may send several signals.
    let (int, term, hup) = (Signal::INT, Signal::TERM, Signal::HUP);
    for signals in [&[int][..], &[term], &[hup], &[hup, hup], &[term, hup], &[hup, term]] {
        let (output, ask) = interrupt(signals, &["ask", "a?"]);
        assert_eq!(output.status.code(), Some(3), "{signals:?}: {}", err(&output));
        let is_settled = || world.details(ask["id"].as_str().unwrap())["state"] == "settled";
        within(SOON, "the withdrawal", || is_settled().then_some(()));
        assert!(world.open().is_empty());
    }
    let (output, ask) = interrupt(&[hup], &["ask", "b?", "--keep"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("stays open"), "{}", err(&output));
    assert_eq!(world.details(ask["id"].as_str().unwrap())["state"], "open");
}

#[test]
fn started_by_nohup_it_waits_on_when_its_terminal_is_closed() {
    let world = World::new();
    let mut nohup = through(&["nohup"], &world.cli(&["ask", "a?"]));
    let child = nohup.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ask = world.one_open();
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    assert_eq!(world.answer(&ask, &json!({"a?": "yes"})).0, 200);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), out(&output)), (Some(0), "yes\n".to_owned()), "{}", err(&output));
}

/// A process that was suspended while its question was answered, and that is interrupted as soon as it goes on.
#[test]
fn interrupted_after_a_suspension_it_does_not_say_that_an_answered_question_was_withdrawn() {
    let mut world = World::of(&["default"]);
    let agent = world.group("default");
    let signal = |child: &Child, signal| {
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    };
    let alive = agent.tasks().join(".alive");
    let beats = || names(&alive).iter().map(|name| alive.join(name).metadata().unwrap().modified().unwrap()).max();
    let suspended = ["told", "away"].map(|question| {
        let child = world.cli(&["ask", question]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ask = world.one_open();
        // By its next sign of life it has read the status.
        let first = beats();
        within(SOON, "the next sign of life", || (beats() > first).then_some(()));
        signal(&child, rustix::process::Signal::STOP);
        assert_eq!(world.answer(&ask, &json!({question: "yes"})).0, 200);
        let briefing = agent.path.join("briefings").join(format!("{}.json", ask["id"].as_str().unwrap()));
        world.passing(Duration::from_secs(60), "the briefing", || briefing.exists().then_some(()));
        std::fs::remove_file(briefing).unwrap();
        child
    });
    let read = || world.audit().iter().filter(|line| line["what"] == "briefing_read").count() == 2;
    world.passing(Duration::from_secs(30), "both to be read", || read().then_some(()));
    let goes_on = |child: Child| {
        signal(&child, rustix::process::Signal::TERM);
        signal(&child, rustix::process::Signal::CONT);
        child.wait_with_output().unwrap()
    };
    let [told, away] = suspended;
    let told = goes_on(told);
    assert_eq!((told.status.code(), err(&told)), (Some(5), format!("askd: {}\n", said::TOLD_ELSEWHERE)));
    assert!(world.terminate().success());
    let away = goes_on(away);
    let why = "askd: interrupted; the question was closed before that, and askd has not said how (request ";
    assert!(away.status.code() == Some(1) && err(&away).starts_with(why), "{}", err(&away));
}

#[test]
fn show_prints_what_a_person_needs_and_nothing_that_moves_the_cursor() {
    let world = World::of(&["g"]);
    let agent = world.group("g");
    agent.ask("r1", &json!({"title": "T\u{1b}[2J", "context": "line one\nline two",
        "questions": [{"question": "Which\u{7}?", "options": [{"label": "a\u{202e}b", "description": "d\u{9b}"}], "required": false}]}));
    let ask = world.one_open();
    let shown = out(&world.run(&["show", ask["id"].as_str().unwrap()]));
    for words in [
        "  g  inbox  ",
        "\n| T [2J\n| line one\n| line two\n\n| Which ?\n",
        "\n  1. ab - d",
        "in your own words: --text",
        "optional",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let whole = out(&world.run(&["list", "--json"]));
    let parsed: Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(parsed["asks"][0]["questions"][0]["options"][0]["label"], "a\u{202e}b", "escaped, and still the same");
    let outputs =
        [shown, out(&world.run(&["list"])), whole, out(&world.run(&["show", "--json", ask["id"].as_str().unwrap()]))];
    for output in outputs {
        assert!(!output.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{9b}']), "{output:?}");
    }
}

#[test]
fn an_answer_on_a_terminal_does_not_steer_it_and_a_script_gets_it_to_the_letter() {
    let world = World::process();
    let label = "a\u{202e}b";
    let asked = ["ask", "Which?", "--option", label, "--option", "c"];
    let pick = |ask: &Value| assert_eq!(world.answer(ask, &json!({"Which?": label})).0, 200);
    assert_eq!(out(&world.asked(&asked, pick)), format!("{label}\n"));
    let line = format!("{} ask Which? --option {label} --option c 2>/dev/null", crate::harness::ASKD);
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("ASKD__DATA_DIR", world.data()).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    pick(&world.one_open());
    let told = out(&child.wait_with_output().unwrap());
    assert_eq!(told.trim(), "ab", "{told:?}");
}

#[test]
fn on_a_terminal_it_says_after_three_seconds_that_no_daemon_is_there() {
    use std::io::Read as _;
    let mut world = World::process();
    world.kill();
    let line = format!("{} ask anybody?", crate::harness::ASKD);
    let mut command = Command::new("script");
    command.args(["-qefc", &line, "/dev/null"]).env("ASKD__DATA_DIR", world.data()).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let (mut told, mut some) = (String::new(), [0; 4096]);
    while !told.contains("is `askd serve` running?") {
        let read = child.stdout.as_mut().unwrap().read(&mut some).unwrap();
        assert!(read > 0, "{told:?}");
        told += &String::from_utf8_lossy(&some[..read]);
    }
    assert!(told.contains("waiting for askd (Ctrl-C withdraws it)"), "{told:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_list_on_a_terminal_is_cut_to_its_width() {
    let world = World::empty().with_binary().groups(&["g"]).started();
    let agent = world.group("g");
    agent.ask("r1", &json!({"questions": [{"question": "Which database should the new service use? ".repeat(5), "options": ["a"]}]}));
    world.open_of("r1");
    let line = format!("stty cols 60; {} list", crate::harness::ASKD);
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("ASKD__DATA_DIR", world.data()).stdin(Stdio::null());
    let output = command.env("ASKD__HTTP__LISTEN", world.address().to_string()).output().unwrap();
    let told = out(&output);
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("\u{1b}[2mCODE  AGENT  LEFT") && lines[2].contains("1 open.  askd show "), "{told:?}");
    assert!(lines[1].ends_with('…') && lines[1].chars().count() == 60, "{told:?}");
}

#[test]
fn several_questions_are_answered_by_id_or_text() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask("r1", &json!({"questions": [{"question": "a = b?", "options": ["x", "y"]}, {"question": "Why?", "type": "multi-select", "options": ["1", "2"]}]}));
    let ask = world.one_open();
    let id = ask["id"].as_str().unwrap();
    let bare = world.run(&["answer", id, "x"]);
    assert_eq!(bare.status.code(), Some(2));
    assert!(err(&bare).contains("2 questions") && err(&bare).contains("-q \"r1_1=...\""), "{}", err(&bare));
    let wrong = world.run(&["answer", id, "-q", "a = b?=x", "-q", "r1_1=1, 3"]);
    assert_eq!(wrong.status.code(), Some(2));
    let told = "askd: \"3\" is none of the options; nothing was sent. Choose from:\n  1. 1\n  2. 2\n\
                To answer in your own words: --text \"r1_1=3\"\n";
    assert_eq!(err(&wrong), told);
    let stray = world.run(&["answer", id, "-q", "a = b?=x", "-q", "Who?=me"]);
    assert!(stray.status.code() == Some(2) && err(&stray).contains("no question \"Who?\""), "{}", err(&stray));
    let good = world.run(&["answer", id, "-q", "a = b?=x", "-q", "r1_1=2", "-q", "r1_1=1"]);
    assert!(good.status.success(), "{}", err(&good));
    assert_eq!(agent.wait("r1")["result"]["answers"], json!({"a = b?": "x", "Why?": ["1", "2"]}));
    let late = world.run(&["answer", id, "-q", "r1_0=y"]);
    assert_eq!(late.status.code(), Some(1));
    assert!(
        err(&late).contains("Already answered") && err(&late).contains("the operator in a terminal"),
        "{}",
        err(&late)
    );
}

#[test]
fn what_keeps_the_daemon_from_starting_is_one_line_that_says_what_to_do() {
    let world = World::process();
    let other = World::empty().with_binary();
    let taken = other.command().env("ASKD__HTTP__LISTEN", world.address().to_string()).output().unwrap();
    assert_eq!(taken.status.code(), Some(1));
    let line = err(&taken).lines().find(|line| line.contains("cannot listen")).unwrap().to_owned();
    assert!(line.contains("stop it, or set [http] listen"), "{line}");

    let homeless = askd().arg("serve").env_remove("HOME").env_remove("XDG_STATE_HOME").output().unwrap();
    assert_eq!(homeless.status.code(), Some(2));
    assert!(err(&homeless).contains("ASKD__DATA_DIR"), "{}", err(&homeless));
    let homeless = askd().args(["ask", "q"]).env_remove("HOME").env_remove("XDG_STATE_HOME").output().unwrap();
    assert_eq!(homeless.status.code(), Some(1));
    assert!(err(&homeless).contains("ASKD__DATA_DIR") || err(&homeless).contains("--ipc"), "{}", err(&homeless));

    let slack = "[slack]\nbot_token = \"xoxb-a\"\nsigning_secret = \"s\"\n[groups.g]\nroutes = [{ channel = \"slack\", \
                 chat = \"C1\", responders = [\"@alice\"] }]\n";
    for (settings, words) in [
        (slack, "\"@alice\" is not a member id of Slack"),
        ("[slack]\nbot_token = \"xapp-a\"\napp_token = \"xoxb-a\"\n", "this one belongs in slack.app_token"),
        ("[groups.g]\nroute = [{ channel = \"web\" }]\n", "unknown key \"route\". Did you mean \"routes\"?"),
    ] {
        let output = World::empty().with_binary().config(settings).command().output().unwrap();
        assert_eq!((output.status.code(), err(&output).contains(words)), (Some(2), true), "{words}: {}", err(&output));
    }

    for (name, value, words) in [
        ("ASKD__HTTP__LISTN", "x", "ASKD__HTTP__LISTN: unknown key. Did you mean ASKD__HTTP__LISTEN?"),
        ("ASKD__ASKS__TIMEOUT", "soon", "ASKD__ASKS__TIMEOUT: \"soon\" is not a duration"),
        ("ASKD__HTTP__LISTEN", "0.0.0.0:0", "allowed_hosts"),
        ("ASKD__COLOUR", "red", "ASKD__COLOUR: unknown key"),
    ] {
        let output = World::empty().env(name, value).command().env(name, value).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}: {}", err(&output));
        assert!(err(&output).contains(words), "{name}: {}", err(&output));
    }
}

/// A process of its own copies it: a child that another story forks at that moment would hold our copy open for writing,
/// and a file that is open for writing cannot be run.
pub(crate) fn copy_binary(to: &std::path::Path) {
    assert!(Command::new("cp").arg(crate::harness::ASKD).arg(to).status().unwrap().success());
}

/// A script that can be run. A process of its own writes it, for the same reason.
pub(crate) fn script(at: &std::path::Path, text: &str) {
    let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$2\" && chmod 755 \"$2\"";
    assert!(Command::new("sh").args(["-c", write, "sh", text]).arg(at).status().unwrap().success());
}

/// A program in this folder that is the real binary as a user of no other groups, who can use the folder and no other; `None`
/// where only root could do that.
pub(crate) fn as_another(dir: &std::path::Path, story: &str) -> Option<std::path::PathBuf> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED {story}: needs root to be another user");
        return None;
    }
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    copy_binary(&dir.join("askd"));
    let program = dir.join("as-another");
    let text = format!("exec setpriv --reuid 12345 --regid 12345 --clear-groups {} \"$@\"", dir.join("askd").display());
    script(&program, &text);
    Some(program)
}

/// Makes a folder that belongs to that user.
pub(crate) fn of_another(folder: &std::path::Path, gid: u32, mode: u32) {
    std::fs::create_dir_all(folder).unwrap();
    std::os::unix::fs::chown(folder, Some(12345), Some(gid)).unwrap();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_data_folder_that_cannot_be_made_is_named_with_the_user_and_the_mend() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED a_data_folder_that_cannot_be_made_is_named_with_the_user_and_the_mend: needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let binary = dir.path().join("askd");
    copy_binary(&binary);
    let data = dir.path().join("var/lib/askd");
    let mut command = Command::new(binary);
    command.arg("serve").uid(12345).gid(12345).env_clear().env("USER", "alice").env("ASKD__DATA_DIR", &data);
    let output = command.env("ASKD__HTTP__LISTEN", "127.0.0.1:0").stdin(Stdio::null()).output().unwrap();
    let folder = data.display();
    let told = format!(
        "cannot create {folder} as user alice (12345); make it with: sudo install -d -o 12345 {folder}, or leave data_dir \
         out of the settings to use ~/.local/state/askd: Permission denied"
    );
    assert_eq!((output.status.code(), err(&output).contains(&told)), (Some(1), true), "{}", err(&output));
}

#[test]
fn a_folder_of_another_user_is_said_loudly_with_how_to_mend_it() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED a_folder_of_another_user_is_said_loudly_with_how_to_mend_it: needs root to be another user");
        return;
    }
    let mut world = World::empty().with_binary();
    let agent = world.group("theirs");
    // The daemon as another user than the one who owns the agent's folders.
    std::os::unix::fs::chown(world.data(), Some(12345), Some(12345)).unwrap();
    std::os::unix::fs::chown(world.data().join("ipc"), Some(12345), Some(12345)).unwrap();
    std::fs::set_permissions(world.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(agent.tasks(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let binary = world.dir.path().join("askd");
    copy_binary(&binary);
    let log = std::fs::File::create(world.log_path()).unwrap();
    let serve = world.command();
    let mut command = Command::new(binary);
    command.args(serve.get_args()).env("ASKD__DATA_DIR", world.data()).env("ASKD__HTTP__LISTEN", "127.0.0.1:0");
    let mut child = command.uid(12345).gid(12345).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let said = within(SOON, "the complaint", || {
        world.log().lines().find(|line| line.contains("ERROR") && line.contains("theirs/tasks")).map(str::to_owned)
    });
    assert!(said.contains("user id 12345") && said.contains("chgrp"), "{said}");
    // Mended, it goes on by itself.
    std::fs::set_permissions(agent.tasks(), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::set_permissions(agent.path.join("responses"), std::fs::Permissions::from_mode(0o777)).unwrap();
    agent.ask_framework("r1");
    std::fs::set_permissions(agent.tasks().join("r1.json"), std::fs::Permissions::from_mode(0o644)).ok();
    within(SOON, "the question after mending", || {
        crate::harness::names(&world.data().join("state/pending_questions/theirs")).first().cloned()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    world.kill();
}

#[test]
fn a_folder_that_no_daemon_has_served_yet_is_not_called_another_one() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("tasks")).unwrap();
    let refused = askd().args(["ask", "Now?", "--ipc"]).arg(dir.path()).output().unwrap();
    let told = "/responses: No such file or directory (os error 2). askd makes it: start the daemon that serves this folder, or wait a \
                moment and try again";
    assert_eq!((refused.status.code(), err(&refused).contains(told)), (Some(1), true), "{}", err(&refused));
}

/// Without them it would tell people who click that they are over, and keep no deadline.
#[test]
fn open_questions_that_another_user_keeps_from_it_are_named_and_it_does_not_start_without_them() {
    let story = "open_questions_that_another_user_keeps_from_it_are_named_and_it_does_not_start_without_them";
    let world = World::empty();
    let Some(program) = as_another(world.dir.path(), story) else { return };
    of_another(&world.data(), 12345, 0o751);
    let mut world = world.with_daemon(&program).started();
    let tasks = world.data().join("ipc/g/tasks");
    of_another(&world.data().join("ipc/g"), 12345, 0o755);
    of_another(&tasks, 12345, 0o755);
    let request = json!({"type": "ask_user:ask", "request_id": "r1", "questions": [{"question": "Which?"}]});
    std::fs::write(tasks.join("r1.json"), request.to_string()).unwrap();
    let pending = world.state().join("pending_questions/g");
    // Not the name that it has while it is being written.
    let record = within(SOON, "the question", || names(&pending).into_iter().find(|name| !name.starts_with(".tmp")));
    assert!(world.terminate().success());
    let owner = |path: &std::path::Path, uid| std::os::unix::fs::chown(path, Some(uid), None).unwrap();
    for kept in [pending.clone(), pending.join(&record)] {
        owner(&kept, 0);
        std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o700)).unwrap();
        let refused = world.command().output().unwrap();
        let told = format!(
            "{}: Permission denied (os error 13). It may hold questions or outcomes, so askd does not go on without it; nothing was changed. \
             Fix: give the state folder back to the user that askd runs as: chown -R 12345, and chmod -R u+rwX",
            kept.display()
        );
        assert_eq!((refused.status.code(), err(&refused).contains(&told)), (Some(1), true), "{}", err(&refused));
        owner(&kept, 12345);
    }
    world.start();
    assert_eq!(world.open().len(), 1);
    assert!(world.terminate().success());
    std::fs::write(pending.join(&record), "{").unwrap();
    world.start();
    let told = out(&world.cli(&["doctor"]).output().unwrap());
    let aside = format!(
        "the record of an open question is damaged and was set aside: {}",
        pending.join(format!("{record}.corrupt")).display()
    );
    assert!(told.contains(&aside), "{told}");
}

#[test]
fn the_demo_answers_by_itself_and_starts_the_agent_that_was_killed() {
    let folders = tempfile::tempdir().unwrap();
    let mut demo = askd();
    demo.args(["demo", "--auto"]).env("TMPDIR", folders.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = demo.spawn().unwrap();
    // An agent is taken for dead 15 s after its last sign of life.
    within(SOON, "the demo to end by itself", || child.try_wait().unwrap());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let told = out(&output);
    for line in [
        "release-bot  got \"Canary\" from you in the inbox after",
        "deploy-bot   got \"Promote\" from alice in Slack after",
        "travel-bot   got \"12:45\" from Ada on WhatsApp after",
        "night-bot    was killed while it waits (kill -9).",
        "night-bot    was started again by your answer, and reads:",
        "The user answered: \"Restart now\"",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let first = |word: &str| told.find(word).unwrap();
    assert!(
        first("asks in the inbox").max(first("asks in Slack")).max(first("asks on WhatsApp")) < first("got "),
        "{told}"
    );
    assert_eq!(std::fs::read_dir(folders.path()).unwrap().count(), 0, "nothing is left behind");
}

/// A demo that a person plays, and what its one address says.
struct Demo {
    child: std::process::Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
    /// What it says before its links.
    reach: String,
    host: String,
    token: String,
}

impl Demo {
    fn start() -> Self {
        Self::start_on("127.0.0.1:0")
    }

    fn start_on(listen: &str) -> Self {
        use std::io::BufRead as _;
        let mut demo = askd();
        demo.args(["demo", "--listen", listen]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = demo.spawn().unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let mut reach = String::new();
        let link = loop {
            let line = lines.next().unwrap().unwrap();
            match line.split_once("http://") {
                Some((_, host)) => break host.to_owned(),
                None => reach.push_str(&line),
            }
        };
        let inbox = lines.next().unwrap().unwrap();
        let token = inbox.split_once("/inbox/#token=").unwrap().1.to_owned();
        Self { child, lines, reach, host: link.trim_end_matches('/').to_owned(), token }
    }

    fn line(&mut self, word: &str) -> String {
        self.lines.find_map(|line| Some(line.unwrap()).filter(|line| line.contains(word))).unwrap()
    }

    fn http(&self, head: &str, headers: &str, body: &str) -> (u16, String) {
        let (host, length) = (&self.host, body.len());
        let head = format!("{head} HTTP/1.1\r\nhost: {host}\r\n{headers}content-type: application/json\r\n");
        let request = format!("{head}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
        let (status, body) = exchange(host.parse().unwrap(), request.as_bytes());
        (status, body)
    }

    fn json(&self, head: &str, body: &str) -> Value {
        let token = format!("authorization: Bearer {}\r\n", self.token);
        serde_json::from_str(&self.http(head, &token, body).1).unwrap()
    }

    /// The ask of a group, once its question is there.
    fn ask(&self, group: &str) -> Value {
        within(SOON, "the question in the inbox", || {
            let list = self.json("GET /inbox/api/v1/asks?state=open", "");
            list["asks"].as_array()?.iter().find(|ask| ask["group"] == group).cloned()
        })
    }

    fn end(mut self) {
        use std::io::Read as _;
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        let goodbye = self.line("Goodbye");
        assert!(goodbye.contains("its folder is gone"), "{goodbye}");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert_eq!(log, "", "nothing but the lines of the demo");
    }
}

#[test]
fn the_demo_is_one_address_with_all_three_places() {
    let mut demo = Demo::start();
    let (status, page) = demo.http("GET /", "", "");
    assert_eq!(status, 200);
    for place in [&format!("inbox/#token={}", demo.token), "slack/?user=U0ALICE&channel=C0AGENTS", "phone/"] {
        assert!(page.contains(&format!("<iframe src=\"{place}\"")), "{place}: {page}");
    }
    for (path, text) in [("inbox", "askd inbox"), ("slack", "Mock Slack"), ("phone", "Mock phone")] {
        assert!(demo.http(&format!("GET /{path}/"), "", "").1.contains(text), "{path}");
    }
    assert_eq!(demo.http("GET /elsewhere/", "", "").0, 404);
    assert_eq!(demo.http("GET /inbox/api/v1/asks", "", "").0, 401, "the inbox asks for its token");
    assert_eq!(demo.http("GET /lines", "origin: http://evil.example\r\n", "").0, 403);
    let rebound = "GET /lines HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    assert_eq!(exchange(demo.host.parse().unwrap(), rebound.as_bytes()).0, 403);
    let asked = within(SOON, "three questions, none of which waits for the answer to another one", || {
        let lines: Vec<Value> = serde_json::from_str(&demo.http("GET /lines", "", "").1).unwrap();
        (lines.len() == 3).then_some(lines)
    });
    assert!(asked.iter().all(|line| line["kind"] == "asks"), "{asked:?}");
    let mut places: Vec<_> = asked.iter().map(|line| line["place"].as_str().unwrap()).collect();
    places.sort_unstable();
    assert_eq!(places, ["inbox", "phone", "slack"]);
    let id = demo.ask("release-bot")["id"].as_str().unwrap().to_owned();
    let answer = json!({"answers": {"How should I roll out version 2.4?": "Blue-green"}, "by": "web"}).to_string();
    assert_eq!(demo.json(&format!("POST /inbox/api/v1/asks/{id}/answer"), &answer)["state"], "settled");
    demo.line("release-bot  got \"Blue-green\" from you in the inbox after");
    demo.end();
}

#[test]
fn the_demo_warns_if_others_can_reach_it() {
    const WARNING: &str = "Anyone who can reach this computer over the network can use the demo.";
    for (listen, others) in [("127.0.0.1:0", false), ("0.0.0.0:0", true)] {
        let demo = Demo::start_on(listen);
        let page = demo.http("GET /", "", "").1;
        assert_eq!(demo.reach.contains(&format!("Warning: {WARNING}")), others, "{}", demo.reach);
        assert_eq!(demo.reach.contains("Nothing leaves this computer."), !others, "{}", demo.reach);
        assert_eq!((page.contains(WARNING), page.contains("Nothing leaves")), (others, !others), "{page}");
        demo.end();
    }
}

/// Nobody waits for an agent that is not started again.
#[test]
fn the_demo_says_how_each_question_ended_and_what_comes_next() {
    let ends = |how: &str, told: &str| {
        let mut demo = Demo::start();
        let post = |group: &str, what: &str, body: &Value| {
            let id = demo.ask(group)["id"].as_str().unwrap().to_owned();
            demo.json(&format!("POST /inbox/api/v1/asks/{id}/{what}"), &body.to_string());
        };
        let says = |who: &str, what: &str| {
            within(SOON, &format!("{who} to say {what:?}"), || {
                let lines: Vec<Value> = serde_json::from_str(&demo.http("GET /lines", "", "").1).unwrap();
                let line = lines.iter().rfind(|line| line["who"] == who)?;
                line["what"].as_str().unwrap().starts_with(what).then_some(())
            });
        };
        post("release-bot", "dismiss", &json!({"by": "web"}));
        says("release-bot", "got no answer: its question was dismissed.");
        post("deploy-bot", "cancel", &json!({}));
        says("deploy-bot", "got no answer: its question was withdrawn.");
        let question = "Which flight to Lisbon should I book?";
        post("travel-bot", "answer", &json!({"answers": {question: "12:45"}, "by": "web"}));
        says("night-bot", "was killed");
        post("night-bot", how, &json!({"by": "web"}));
        says("night-bot", told);
        demo.line("That was all.");
        demo.end();
    };
    std::thread::scope(|threads| {
        threads.spawn(|| ends("dismiss", "was started again because its question was dismissed, and reads:"));
        threads.spawn(|| ends("cancel", "is not started again: its question was withdrawn."));
    });
}

/// The demo reports a stranger's click in one of its own lines, and no log line comes between.
#[test]
fn the_demo_says_what_a_stranger_is_told_and_its_terminal_stays_clean() {
    let mut demo = Demo::start();
    let card = within(SOON, "the card", || {
        let state = demo.json("GET /slack/page/state?channel=C0AGENTS&user=U0STRANGER", "");
        assert_eq!(state["channels"].as_array().unwrap().len(), 1, "no channel that nothing comes to");
        let messages = state["messages"].as_array()?;
        messages.iter().find(|message| message["text"].as_str().is_some_and(|text| text.contains("canary"))).cloned()
    });
    let actions = card["blocks"].as_array().unwrap().iter().find(|block| block["type"] == "actions").unwrap();
    let act = json!({
        "user": "U0STRANGER", "channel": "C0AGENTS", "ts": card["ts"], "block_id": actions["block_id"],
        "action_id": actions["elements"][0]["action_id"], "act": "click",
    });
    assert_eq!(demo.json("POST /slack/page/act", &act.to_string())["sent"], true);
    let told = demo.line("stranger");
    assert!(told.contains("Slack        tells only stranger: Only members of this workspace can answer."), "{told}");
    demo.end();
}

#[test]
fn settings_of_groups_are_reloaded_on_hangup() {
    let world = World::empty()
        .with_binary()
        .config("[groups.a]\nroutes = [{ channel = \"web\" }]\n[defaults]\nroutes = []\n")
        .started();
    let stranger = world.group("b");
    stranger.ask_framework("r1");
    assert_eq!(stranger.wait("r1")["result"]["status"], "rejected");
    std::fs::write(world.dir.path().join("askd.toml"), "[defaults]\nroutes = [{ channel = \"web\" }]\n").unwrap();
    world.signal(rustix::process::Signal::HUP);
    within(SOON, "the settings to be read", || world.log().contains("reloaded the settings").then_some(()));
    stranger.ask_framework("r2");
    world.open_of("r2");
    for (wrong, complaint) in [
        ("nonsense = 1\n", "unknown key \"nonsense\""),
        ("[web]\npeople = [{ token_file = \"/f\" }]\n", "web.people[0].name: missing"),
    ] {
        std::fs::write(world.dir.path().join("askd.toml"), wrong).unwrap();
        world.signal(rustix::process::Signal::HUP);
        within(SOON, "the complaint", || world.log().contains(complaint).then_some(()));
        assert!(world.log().contains("stay as they were"));
    }
    stranger.ask_framework("r3");
    world.open_of("r3");
}

#[test]
fn secrets_and_texts_are_in_no_log() {
    let world = World::empty().env("RUST_LOG", "info").env("ASKD__WEB__TOKEN", "canary-token-1234567890").started();
    let agent = world.group("g");
    agent.ask("r1", &json!({"title": "canary-title", "context": "canary-context", "questions": [{"question": "canary-question", "options": ["canary-label"]}]}));
    let headers = "authorization: Bearer canary-token-1234567890\r\ncontent-type: application/json\r\n";
    let code = within(SOON, "the ask", || {
        let (_, list) = world.raw("GET", "/api/v1/asks", headers, "");
        serde_json::from_str::<Value>(&list).ok()?["asks"][0]["id"].as_str().map(str::to_owned)
    });
    let body = json!({"answers": {"r1_0": "canary-answer"}}).to_string();
    assert_eq!(world.raw("POST", &format!("/api/v1/asks/{code}/answer"), headers, &body).0, 200);
    assert_eq!(
        world.raw("POST", &format!("/api/v1/asks/{code}/answer"), "authorization: Bearer canary-wrong\r\n", &body).0,
        401
    );
    agent.wait("r1");
    world.all_done("g");
    assert!(world.log().contains("Pending question resolved"));
    assert!(!world.log().contains("canary"), "{}", world.log());
    let audit = serde_json::to_string(&world.audit()).unwrap();
    assert!(!audit.contains("canary"), "{audit}");
}
