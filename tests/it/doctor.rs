//! `askd doctor`: all is green beside the stand-ins; each thing that is broken on purpose turns the check red that names its
//! cause, and after the printed fix, or once it is undone, all is green again.

use crate::harness::{SOON, World, askd};
use crate::in_slack::{ALICE, CHANNEL, Mode, in_slack};
use crate::on_whatsapp::{ADA, TO_ADA, sim};
use crate::ports::free_port;
use askd_sim::slack::{BOT_TOKEN, Token};
use askd_sim::whatsapp::{Business, Config, Template};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// How something is broken.
enum Broken {
    /// By these settings, which come last.
    Settings(String),
    /// By the mode of a file or folder in the data folder; the printed fix is run.
    Mode(&'static str, u32),
    /// By another text in a file of the data folder.
    Text(&'static str, &'static str),
    /// At Meta.
    Meta(fn(&mut Business)),
}

/// What it said: the checks with a fault, each with its fix; and all of it for a failed story.
pub(crate) async fn doctor(world: &World, extra: &str) -> (Vec<(String, String)>, String) {
    doctor_with(world, extra, &[]).await
}

async fn doctor_with(world: &World, extra: &str, flags: &[&str]) -> (Vec<(String, String)>, String) {
    let file = |name: &str, text: &str| {
        let path = world.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let listen = file("listen.toml", &format!("[http]\nlisten = \"{}\"\n", world.address()));
    let extra = file("extra.toml", extra);
    let mut command = askd();
    command.args(["doctor", "--json", "--config"]).arg(world.dir.path().join("askd.toml")).arg("--config").arg(listen);
    command.arg("--config").arg(extra).args(flags).env("ASKD__DATA_DIR", world.data());
    // The stand-ins answer meanwhile, in this very runtime.
    let output = tokio::process::Command::from(command).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let told: Value = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr));
    });
    let faults = told["findings"].as_array().unwrap().iter().filter(|finding| finding["verdict"] == "fault");
    let said = |finding: &Value, field: &str| finding[field].as_str().unwrap().to_owned();
    let faults: Vec<_> = faults.map(|finding| (said(finding, "check"), said(finding, "fix"))).collect();
    assert_eq!(output.status.code(), Some(i32::from(!faults.is_empty())), "{text}");
    (faults, text)
}

/// `--send` asks in each group, sees the card, and takes everything back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_question_is_shown_withdrawn_and_leaves_nothing_behind() {
    let mut world = in_slack(Mode::Http).with_binary().start().await;
    let folder = world.data().join("ipc/research/tasks");
    world.until("the group's folders", || folder.exists()).await;
    let (faults, text) = doctor_with(&world, "", &["--send"]).await;
    assert_eq!(faults, [], "{text}");
    let told: Value = serde_json::from_str(&text).unwrap();
    let sent = told["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == "test question research");
    assert_eq!(sent.unwrap()["what"], "was shown in slack, and withdrawn", "{text}");
    assert_eq!(world.log().matches("Slack has checked").count(), 1, "that was Slack, not the doctor");
    let card = world.slack.messages(CHANNEL).pop().unwrap();
    let card = world.says(CHANNEL, &card.ts, "Cancelled").await;
    assert!(
        card.visible_text().contains("Test of askd doctor") && card.elements().is_empty(),
        "{}",
        card.visible_text()
    );
    world.all_closed(SOON).await;
    let group = world.group("research");
    assert_eq!(group.task_names(), Vec::<String>::new());
    group.responses_are(&[]);
    // A channel that refuses it is the fault, with the reason.
    world.slack.invite_bot(CHANNEL, false);
    let (faults, text) = doctor_with(&world, "", &["--send"]).await;
    let checks: Vec<&str> = faults.iter().map(|(check, _)| check.as_str()).collect();
    assert!(checks.contains(&"test question research"), "{text}");
    group.responses_are(&[]);
    assert_eq!(world.stop().await, Some(0));
}

/// The inbox would show any question. The doctor looks where people are to see it first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_question_that_is_shown_elsewhere_than_on_the_first_route_is_a_fault() {
    let mut world = in_slack(Mode::Http).group("}]", "}, { channel = \"web\" }]").with_binary().start().await;
    let folder = world.data().join("ipc/research/tasks");
    world.until("the group's folders", || folder.exists()).await;
    assert_eq!(doctor_with(&world, "", &["--send"]).await.0, []);
    world.slack.invite_bot(CHANNEL, false);
    let (faults, text) = doctor_with(&world, "", &["--send"]).await;
    assert!(faults.iter().any(|(check, _)| check == "test question research"), "{text}");
    assert!(text.contains("it was shown in web, and not in slack"), "{text}");
    assert_eq!(world.stop().await, Some(0));
}

/// The id of a private channel looks like that of a public one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_private_channel_only_its_own_scope_is_missed() {
    let token = |secret: &str, scope: &str| {
        let scopes = ["chat:write", scope].map(str::to_owned).into();
        Token { secret: secret.to_owned(), scopes }
    };
    let tokens = [token("xoxb-public", "channels:history"), token("xoxb-private", "groups:history")];
    let world = in_slack(Mode::Http).sim(|sim| sim.bot_tokens.extend(tokens)).with_binary().start().await;
    let folder = world.data().join("ipc/research/tasks");
    world.until("the group's folders", || folder.exists()).await;
    let private = "C0PRIVATE";
    for (token, chat, lacks) in [
        (BOT_TOKEN, private, None),
        ("xoxb-private", private, None),
        ("xoxb-public", CHANNEL, None),
        ("xoxb-private", CHANNEL, Some("channels:history")),
        ("xoxb-public", private, Some("groups:history")),
    ] {
        let Broken::Settings(route) = routes(chat, ALICE) else { unreachable!() };
        let (faults, text) = doctor(&world, &format!("[slack]\nbot_token = \"{token}\"\n{route}")).await;
        let fault = |scope| {
            let fix = format!("the app lacks {scope}: add it under OAuth & Permissions and install the app again");
            (format!("slack chat {chat}"), fix)
        };
        assert_eq!(faults, lacks.map(fault).into_iter().collect::<Vec<_>>(), "{token} {chat}: {text}");
    }
}

/// The daemon does not know Slack; no secret is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_was_started_without_slack_is_to_be_restarted() {
    let world = World::empty().with_binary().config("[groups.research]\n").started();
    let folder = world.data().join("ipc/research/tasks");
    world.until("the group's folders", || folder.exists()).await;
    let closed = format!("http://127.0.0.1:{}", free_port());
    let slack = format!("[slack]\nbot_token = \"xoxb-1\"\nsigning_secret = \"s\"\napi_url = \"{closed}/api\"\n");
    let (faults, text) = doctor(&world, &slack).await;
    let fix = faults.iter().find(|(check, _)| check == "slack webhook").map(|(_, fix)| fix.as_str());
    assert!(fix.is_some_and(|fix| fix.starts_with("restart the daemon")), "{text}");
}

/// A daemon in a process of its own, on Slack and WhatsApp.
async fn world() -> World {
    let poor = Token { secret: "xoxb-poor".into(), scopes: vec!["chat:write".into()] };
    // What looks at people and at archived channels needs more than the shipped app has.
    let tokens = vec![Token::with_all_scopes(BOT_TOKEN), poor];
    let slack = in_slack(Mode::Http).sim(|sim| sim.bot_tokens = tokens).groups("").with_binary().prepare().await;
    let routes = format!("{{ channel = \"slack\", chat = \"{CHANNEL}\", responders = [\"{ALICE}\"] }}, {TO_ADA}");
    let template = Template { name: "asks".into(), language: "en".into(), body: "{{1}} asks".into(), buttons: vec![] };
    let greedy = Template { name: "greedy".into(), body: "{{1}} {{2}}".into(), ..template.clone() };
    let sim = Config { templates: vec![template, greedy], ..sim() };
    let world = slack.on_whatsapp(sim, &routes, "template = \"asks\"").await;
    world.writes(ADA, "hello").await;
    let folder = world.data().join("ipc/research/briefings");
    world.until("the group's folders", || folder.exists()).await;
    world
}

fn routes(chat: &str, person: &str) -> Broken {
    settings(&format!(
        "[groups.research]\nroutes = [{{ channel = \"slack\", chat = \"{chat}\", responders = [\"{person}\"] }}]"
    ))
}

fn in_a_day() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap() + 86_400
}

/// One that is in the settings since the daemon has started.
const UNREAD_TOKEN: &str = "a token that the daemon has not read";

fn settings(text: &str) -> Broken {
    Broken::Settings(text.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_breakage_turns_the_check_red_that_names_its_cause_and_its_fix_turns_it_green() {
    let mut world = world().await;
    let (faults, text) = doctor(&world, "").await;
    assert_eq!(faults, [], "{text}");
    let closed = format!("http://127.0.0.1:{}", free_port());
    let plain = world.dir.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    let command = |program: &Path| {
        settings(&format!("[groups.research]\nsession = {{ start = {{ command = [\"{}\"] }} }}", program.display()))
    };
    let breakages = [
        ("an unknown key", settings("[asks]\ntimeoutt = \"1m\""), "settings"),
        ("another kind of token", settings("[slack]\nbot_token = \"xapp-1\""), "settings"),
        ("a broken file", settings("[slack"), "settings"),
        (
            "a route without responders",
            settings("groups.research.routes = [{ channel = \"slack\", chat = \"C1\" }]"),
            "settings",
        ),
        ("a data folder for everybody", Broken::Mode("", 0o777), "data folder"),
        ("records that others can read", Broken::Mode("state", 0o755), "state folder"),
        ("records that askd itself cannot write", Broken::Mode("state", 0o500), "state folder"),
        ("a token that others can read", Broken::Mode("state/web_token", 0o644), "token file"),
        ("another token", Broken::Text("state/web_token", "another"), "token"),
        (UNREAD_TOKEN, settings("[web]\ntoken = \"0123456789abcdef0123456789abcdef\""), "token"),
        ("closed tasks", Broken::Mode("ipc/research/tasks", 0o700), "group research"),
        ("closed responses", Broken::Mode("ipc/research/responses", 0o750), "group research"),
        ("another group id", settings("gid = \"12345\""), "group "),
        ("a wrong bot token", settings("[slack]\nbot_token = \"xoxb-wrong\""), "slack token"),
        ("a bot that may only write", settings("[slack]\nbot_token = \"xoxb-poor\""), "slack scopes"),
        ("a wrong app token", settings("[slack]\napp_token = \"xapp-wrong\""), "slack socket"),
        ("another signing secret", settings("[slack]\nsigning_secret = \"another\""), "slack webhook"),
        ("no such channel", routes("C0NOWHERE", ALICE), "slack chat C0NOWHERE"),
        ("an archived channel", routes("C0ARCHIVED", ALICE), "slack chat C0ARCHIVED"),
        ("a channel without the bot", routes("C0UNINVITED", ALICE), "slack chat C0UNINVITED"),
        ("nobody", routes(CHANNEL, "U0NOBODY"), "slack person U0NOBODY"),
        ("a bot as responder", routes(CHANNEL, "U0ASKDBOT"), "slack person U0ASKDBOT"),
        ("no Slack", settings(&format!("[slack]\napi_url = \"{closed}/api\"")), "slack connection"),
        ("a wrong access token", settings("[whatsapp]\naccess_token = \"wrong\""), "whatsapp token"),
        ("another number", settings("[whatsapp]\nphone_number_id = \"1\""), "whatsapp number"),
        ("another app secret", settings("[whatsapp]\napp_secret = \"another\""), "whatsapp app secret"),
        ("a token that cannot send", Broken::Meta(|app| app.scopes.truncate(1)), "whatsapp permissions"),
        ("a token that lasts a day", Broken::Meta(|app| app.expires_at = in_a_day()), "whatsapp expiry"),
        ("no field messages", Broken::Meta(|app| app.fields = vec!["account_update".into()]), "whatsapp field"),
        ("an app without the account", Broken::Meta(|app| app.subscribed = false), "whatsapp account"),
        ("a template in review", Broken::Meta(|app| app.template_status = "PENDING".into()), "whatsapp template"),
        ("no such template", settings("[whatsapp]\ntemplate = \"other\""), "whatsapp template"),
        ("no such language", settings("[whatsapp]\ntemplate_language = \"de\""), "whatsapp template"),
        ("a template with two variables", settings("[whatsapp]\ntemplate = \"greedy\""), "whatsapp template"),
        (
            "nobody wrote, and there is no template",
            settings(
                "groups.research.routes = [{ channel = \"whatsapp\", chat = \"15550009999\" }]\nwhatsapp.template = \"\"",
            ),
            "whatsapp window 15550009999",
        ),
        ("another verify token", settings("[whatsapp]\nverify_token = \"another\""), "whatsapp webhook"),
        ("no WhatsApp", settings(&format!("[whatsapp]\napi_url = \"{closed}\"")), "whatsapp connection"),
        ("a dead tunnel", settings(&format!("[http]\npublic_url = \"{closed}\"")), "public_url"),
        (
            "a container that is not there",
            settings("[groups.research]\nsession = { probe = { docker = \"no-such\" } }"),
            "session research",
        ),
        ("a program that is not there", command(Path::new("/nowhere/start")), "session research"),
        ("a program that cannot be run", command(&plain), "session research"),
    ];
    for (name, broken, check) in breakages {
        let (mut extra, mut before) = ("", None);
        match &broken {
            Broken::Settings(text) => extra = text,
            Broken::Mode(file, mode) => {
                std::fs::set_permissions(world.data().join(file), std::fs::Permissions::from_mode(*mode)).unwrap();
            }
            Broken::Text(file, text) => {
                let file = world.data().join(file);
                before = Some((file.clone(), std::fs::read(&file).unwrap()));
                std::fs::write(file, text).unwrap();
            }
            Broken::Meta(change) => world.phone.business(change),
        }
        let (faults, text) = doctor(&world, extra).await;
        let named = !faults.is_empty() && faults.iter().all(|(fault, fix)| fault.starts_with(check) && !fix.is_empty());
        assert!(named, "{name}: {faults:?}\n{text}");
        let at = if name == UNREAD_TOKEN { "of the settings ([web] token)" } else { "in state/web_token" };
        let says = text.contains(&format!("the daemon does not accept the token {at}"));
        assert_eq!(says, check == "token", "{name}: {text}");
        if matches!(broken, Broken::Mode(..)) || faults[0].1.starts_with("chmod") {
            let fixed = std::process::Command::new("sh").args(["-c", &faults[0].1]).status().unwrap();
            assert!(fixed.success(), "{name}: {faults:?}");
            assert_eq!(doctor(&world, extra).await.0, [], "{name}, after its fix");
        }
        world.phone.business(|app| *app = Business::default());
        if let Some((file, bytes)) = before {
            std::fs::write(file, bytes).unwrap();
        }
    }
    assert_eq!(doctor(&world, "").await.0, [], "all is undone");
    // What it says of itself is the cause, and nothing is in the folder's place that a fix could remove.
    let folder = world.data().join("ipc/research");
    std::fs::rename(&folder, world.dir.path().join("research")).unwrap();
    let (faults, text) = doctor(&world, "").await;
    let told = faults.iter().all(|(fault, _)| fault == "status") && !text.contains("remove what is there");
    assert!(told && text.contains("\"check\": \"group research\""), "{faults:?}\n{text}");
    std::fs::rename(world.dir.path().join("research"), &folder).unwrap();
    let address = world.address();
    assert_eq!(world.stop().await, Some(0));
    let (faults, text) = doctor(&world, "").await;
    assert_eq!((faults.len(), faults[0].0.as_str()), (1, "daemon"), "{text}");
    assert!(text.contains("\"what\": \"daemon\"") && text.contains("not_checked"), "what depends on it: {text}");
    let stranger = std::net::TcpListener::bind(address).unwrap();
    let (faults, text) = doctor(&world, "").await;
    assert!(text.contains("something that is not askd listens on") && faults.len() == 1, "{text}");
    drop(stranger);
}
