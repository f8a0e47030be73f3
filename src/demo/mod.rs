//! The whole loop with no account and no configuration: a daemon, its inbox, a stand-in of Slack, and scripted
//! agents that ask through real files. Everything in it is the real thing but the agents and Slack.

mod phone;

use crate::agent::{Folder, Process, Taken, Waiter};
use crate::clock::Clock;
use crate::host::Daemon;
use crate::host::client::Client;
use crate::host::settings::{Settings, SettingsError};
use crate::ipc::wire::{AnswerValue, RequestFile};
use crate::random;
use anyhow::{Context as _, ensure};
use askd_sim::slack::{self, Slack};
use phone::Phone;
use reqwest::Method;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long anything may take that no person is needed for.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two looks at a list.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Where the demo's agents ask: in the inbox, in Slack, on the phone.
const INBOX_GROUP: &str = "research";
const SLACK_GROUP: &str = "deploy";
const PHONE_GROUP: &str = "whatsapp";
/// The channel of the stand-in that the second one asks in, and a person who is there.
const CHANNEL: &str = "C0AGENTS";
const PERSON: &str = "U0ALICE";

/// A folder that is gone when this is dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "the demo's folder is left behind");
        }
    }
}

/// Runs the demo: by hand until `stop`, or by itself. `say` writes a line for people.
pub async fn run(auto: bool, stop: CancellationToken, say: impl Fn(&str)) -> anyhow::Result<()> {
    let folder = Temporary(std::env::temp_dir().join(format!("askd-demo-{}", random::unique())));
    let phone = Phone::start().await.context("the stand-in of WhatsApp")?;
    let slack = Slack::start(slack::Config::default()).await.context("the stand-in of Slack")?;
    let daemon = Daemon::open(settings(&folder.0, &slack, &phone)?, Clock::system()).await?;
    let url = format!("http://{}", daemon.address());
    let client = Client::new(&url, daemon.token().clone())?;
    say(&format!("A daemon runs in {} for as long as this demo does.", folder.0.display()));
    say("");
    say(&format!("  Open the inbox:             {url}/#token={}", daemon.token().expose_secret()));
    say(&format!("  Open the pretended Slack:   {}/?user={PERSON}&channel={CHANNEL}", slack.url()));
    say(&format!("  Open the pretended phone:   {}", phone.page()));
    say("");
    let stopping = stop.clone();
    #[expect(clippy::disallowed_methods, reason = "the daemon itself, which is told to stop and waited for")]
    let running = tokio::spawn(daemon.run(stop.clone(), || ()));
    let on_the_phone = async {
        phone.connect(&format!("{url}/whatsapp/webhook"));
        play(&folder.0, phone_scene(), auto.then_some(Person::Phone(&phone)), &say).await
    };
    let elsewhere = async {
        wait_for(|| slack.sockets() > 0).await.context("the daemon has not connected to the pretended Slack")?;
        for scene in scenes() {
            let person = if scene.group == SLACK_GROUP { Person::Slack(&slack) } else { Person::Inbox(&client) };
            play(&folder.0, scene, auto.then_some(person), &say).await?;
        }
        anyhow::Ok(())
    };
    let script = async {
        Box::pin(async { tokio::try_join!(elsewhere, on_the_phone) }).await?;
        if !auto && !stop.is_cancelled() {
            say_what_is_next(&say, &folder.0);
            stop.cancelled().await;
        }
        anyhow::Ok(())
    };
    let played = tokio::select! {
        played = script => played,
        () = say_private_notes(&slack, &say) => Ok(()),
        () = stopping.cancelled() => if auto { Err(anyhow::anyhow!("stopped before everything was tried")) } else { Ok(()) },
    };
    stop.cancel();
    running.await.context("the daemon")??;
    played?;
    if auto {
        say("Everything worked: asked, shown, answered, delivered.");
    }
    Ok(())
}

fn say_what_is_next(say: &impl Fn(&str), data: &Path) {
    say("That was the whole loop. Ctrl-C ends the demo; until then ask more from another terminal:");
    for group in [INBOX_GROUP, SLACK_GROUP] {
        say(&format!(
            "  askd ask --ipc {} \"Deploy now?\" --option yes --option \"no=not today\" --only-options",
            data.join("ipc").join(group).display()
        ));
    }
}

/// Says what the pretended Slack shows to one person alone, for example to a stranger who clicked. Never ends.
async fn say_private_notes(slack: &Slack, say: &impl Fn(&str)) {
    let clock = Clock::system();
    let mut told = 0;
    loop {
        let notes = slack.select(|message| message.only_for.is_some());
        for note in notes.iter().skip(told) {
            let name = slack.config().users.iter().find(|user| note.only_for.as_ref() == Some(&user.id));
            let name = name.map_or("somebody", |user| user.name.as_str());
            say(&format!("Slack shows to {name} alone: {}", note.text));
        }
        told = notes.len();
        clock.sleep(LOOK_EVERY).await;
    }
}

/// The daemon's settings: a free port, and a group for each of the three places where its agents ask.
fn settings(data_dir: &Path, slack: &Slack, phone: &Phone) -> Result<Settings, SettingsError> {
    Settings::from_toml(&format!(
        "data_dir = \"{data_dir}\"\n[http]\nlisten = \"127.0.0.1:0\"\n[log]\nfilter = \"warn\"\n\
         [asks]\nremind_after = \"\"\nlate_answers = \"\"\nmax_per_hour_per_group = 1000\n\
         [groups.{INBOX_GROUP}]\n\
         [groups.{SLACK_GROUP}]\nroutes = [{{ channel = \"slack\", chat = {CHANNEL:?}, responders = \"anyone\" }}, \
         {{ channel = \"web\" }}]\n\
         [groups.{PHONE_GROUP}]\nroutes = [{{ channel = \"whatsapp\", chat = {chat:?} }}]\n\
         [slack]\nbot_token = {bot:?}\napp_token = {app:?}\napi_url = {api:?}\n{whatsapp}",
        data_dir = data_dir.display(),
        chat = phone::ADA,
        bot = slack::BOT_TOKEN,
        app = slack::APP_TOKEN,
        api = slack.api_url(),
        whatsapp = phone.settings(),
    ))
}

/// Who answers if nobody else does, and where.
enum Person<'a> {
    Inbox(&'a Client),
    Slack(&'a Slack),
    Phone(&'a Phone),
}

/// A question of the script, and what the demo answers if nobody else does.
struct Scene {
    group: &'static str,
    /// Where the agent asks.
    place: &'static str,
    /// As in a request file.
    file: Value,
    answer: &'static [&'static str],
}

fn scenes() -> Vec<Scene> {
    let roll_out = json!({
        "title": "Release 2.4", "context": "All 812 tests pass. The database needs no migration.",
        "questions": [{"question": "How shall I roll out version 2.4?", "options": [
            {"label": "Blue-green", "description": "two environments, switch at once"},
            {"label": "Canary", "description": "5 % of the users first"},
            "Not today",
        ]}],
    });
    let details = json!({"questions": [
        {"question": "Which targets?", "type": "multi-select", "options": ["staging", "production EU", "production US"]},
        {"question": "Tell the customers by mail?", "type": "confirm"},
        {"question": "Anything to add?", "required": false, "placeholder": "for the release notes"},
    ]});
    let go_on = json!({
        "title": "Release 2.4", "context": "`canary` has served *5 %* for an hour without an error.",
        "questions": [{"question": "Shall I go on with the roll-out?", "options": ["Go on", "Wait an hour", "Roll back"]}],
    });
    vec![
        Scene { group: INBOX_GROUP, place: "", file: roll_out, answer: &["Canary"] },
        Scene { group: INBOX_GROUP, place: "", file: details, answer: &["staging", "Yes", "Thanks to everybody"] },
        Scene { group: SLACK_GROUP, place: " in the pretended Slack", file: go_on, answer: &["Go on"] },
    ]
}

/// What the agent asks on the phone, one question after the other.
fn phone_scene() -> Scene {
    let file = json!({"questions": [
        {"question": "Which auth strategy?", "options": ["JWT tokens", "Session cookies", "OAuth 2.0"]},
        {"question": "Shall I open a pull request?", "type": "confirm"},
    ]});
    Scene { group: PHONE_GROUP, place: " on the phone", file, answer: &["2", "yes"] }
}

/// Asks as an agent would, while `person` does what a person would.
async fn play(data: &Path, scene: Scene, person: Option<Person<'_>>, say: &impl Fn(&str)) -> anyhow::Result<()> {
    let ipc = data.join("ipc").join(scene.group);
    wait_for(|| ipc.join("responses").is_dir()).await.context("the daemon has not made the agents' folders")?;
    // Their id and kind are the agent's side to fill in.
    let mut file = scene.file;
    (file["type"], file["request_id"]) = ("".into(), "".into());
    let file: RequestFile = serde_json::from_value(file)?;
    let asked: Vec<String> = file.questions.iter().map(|draft| draft.question.clone()).collect();
    say(&format!("The agent asks{}: {}", scene.place, asked.join(" / ")));
    let answering = async {
        match person {
            Some(Person::Inbox(client)) => answer(client, &asked, scene.answer).await,
            Some(Person::Slack(slack)) => click(slack, scene.answer).await,
            Some(Person::Phone(phone)) => phone.reply(&asked, scene.answer).await,
            None => Ok(()),
        }
    };
    let clock = Clock::system();
    let process = Process::new(&clock);
    let waiter = Waiter::ask(Arc::new(Folder::open(&ipc)?), file, clock, &process)?;
    let (answered, taken) = tokio::join!(answering, waiter.wait());
    answered?;
    tell(taken?, say)
}

fn tell(taken: Taken, say: &impl Fn(&str)) -> anyhow::Result<()> {
    let result = &taken.response.result;
    if result.answered {
        for (question, answer) in &result.answers.0 {
            let answer = match answer {
                AnswerValue::One(answer) => answer.clone(),
                AnswerValue::Many(answers) => answers.join(", "),
            };
            say(&format!("The agent reads: {question} -> {answer}"));
        }
    } else {
        say(&format!("The agent reads: {}", taken.response.error.clone().unwrap_or_default()));
    }
    say("");
    taken.done().context("cannot delete the response")
}

/// Does what a person would: looks into the inbox and answers.
async fn answer(client: &Client, asked: &[String], answers: &[&str]) -> anyhow::Result<()> {
    let clock = Clock::system();
    let open = clock.timeout(PATIENCE, async {
        loop {
            let list = client.call(Method::GET, "/asks?state=open", None).await?;
            let ours = |ask: &&Value| ask["questions"][0]["question"] == *asked[0];
            if let Some(ask) = list["asks"].as_array().and_then(|asks| asks.iter().find(ours)) {
                return anyhow::Ok(ask.clone());
            }
            clock.sleep(LOOK_EVERY).await;
        }
    });
    let ask = open.await.context("the question did not appear in the inbox")??;
    let id = ask["id"].as_str().unwrap_or_default();
    client.call(Method::POST, &format!("/asks/{id}/shown"), None).await?;
    let given: serde_json::Map<String, Value> =
        asked.iter().cloned().zip(answers.iter().map(|answer| json!(answer))).collect();
    let body = json!({ "answers": given });
    let settled = client.call(Method::POST, &format!("/asks/{id}/answer"), Some(&body)).await?;
    ensure!(settled["state"] == "settled", "the answer was not taken");
    Ok(())
}

/// Does what a person would in Slack: clicks the button, and sees the card change.
async fn click(slack: &Slack, answers: &[&str]) -> anyhow::Result<()> {
    let there = |message: &slack::Message| message.has_action("pick:0:0");
    let card =
        slack.wait_for_message(there, PATIENCE).await.context("the card did not appear in the pretended Slack")?;
    let delivery = slack.click(CHANNEL, &card.ts, "pick:0:0", PERSON).await.map_err(anyhow::Error::msg)?;
    ensure!(delivery.acknowledged, "the click was not taken");
    let closed = format!("Answered: {}", answers.join(", "));
    let says = |message: &slack::Message| message.ts == card.ts && message.text.starts_with(&closed);
    slack.wait_for_message(says, PATIENCE).await.context("the card does not say that it was answered")?;
    Ok(())
}

async fn wait_for(there: impl Fn() -> bool) -> anyhow::Result<()> {
    let clock = Clock::system();
    let looking = async {
        while !there() {
            clock.sleep(LOOK_EVERY).await;
        }
    };
    clock.timeout(PATIENCE, looking).await.context("waited too long")
}
