//! What the demo's agents ask, where, and what the demo answers by itself with `--auto`.

use super::PATIENCE;
use super::phone::Phone;
use super::terminal::{Kind, Place, Terminal};
use super::wait_for;
use crate::agent::{Taken, Way};
use crate::clock::Clock;
use crate::host::client::Client;
use crate::ipc::wire::{AnswerValue, RequestFile};
use anyhow::{Context as _, ensure};
use askd_core::Via;
use askd_sim::slack::{self, Slack};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// The agents: each is a group.
pub(super) const RELEASE: &str = "release-bot";
pub(super) const DEPLOY: &str = "deploy-bot";
pub(super) const TRAVEL: &str = "travel-bot";
pub(super) const NIGHT: &str = "night-bot";
/// The channel of the mock Slack that they ask in, and a person who is there.
pub(super) const CHANNEL: &str = "C0AGENTS";
pub(super) const PERSON: &str = "U0ALICE";

/// What the agent asks that is killed, and its options.
const NIGHT_QUESTION: &str = "The nightly backup is running. Restart the database anyway?";
const NIGHT_OPTIONS: [&str; 2] = ["Restart now", "Wait for the backup"];

/// Pause between two looks at a question that a person has half an hour for.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The three places.
pub(super) struct Places<'a> {
    pub(super) inbox: &'a Client,
    pub(super) slack: &'a Slack,
    pub(super) phone: &'a Phone,
}

/// One question, and what the demo answers if nobody else does.
#[derive(Deserialize)]
pub(super) struct Scene {
    group: String,
    place: Place,
    answer: String,
    request: RequestFile,
}

/// What is asked in the first second. The pictures of the README show it, too.
pub(super) fn scenes() -> anyhow::Result<Vec<Scene>> {
    serde_json::from_str(include_str!("scenes.json")).context("the demo's scenes")
}

/// How the agent of a scene reaches the daemon: the one in [`DEPLOY`] over HTTP with a token, the others through their folders.
pub(super) async fn way(scene: &Scene, data: &Path, agents: &str, inbox: &Client) -> anyhow::Result<Way> {
    let clock = Clock::system();
    if scene.group == DEPLOY {
        let made = inbox.call(Method::POST, "/tokens", Some(&json!({"group": DEPLOY, "name": "demo"}))).await?;
        let variable = |name: &str| match name {
            "ASKD_URL" => Some(agents.to_owned()),
            "ASKD_TOKEN" => made["token"].as_str().map(str::to_owned),
            _ => None,
        };
        return Ok(Way::new(None, variable, &clock)?);
    }
    let ipc = data.join("ipc").join(&scene.group);
    wait_for(|| ipc.join("responses").is_dir()).await.context("the daemon has not made the agents' folders")?;
    Ok(Way::new(Some(ipc), |_| None, &clock)?)
}

/// Asks as an agent would, while somebody answers: with `auto` the demo does.
pub(super) async fn play(
    scene: &Scene,
    mut way: Way,
    auto: Option<&Places<'_>>,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let question = &scene.request.questions[0].question;
    let clock = Clock::system();
    let asked = clock.monotonic();
    let call = way.ask(scene.request.clone(), |_| None)?;
    asks(terminal, &scene.group, scene.place, question);
    let answering = async {
        match (auto, scene.place) {
            (None, _) => Ok(()),
            (Some(places), Place::Inbox) => answer(places.inbox, question, &scene.answer).await,
            (Some(places), Place::Slack) => click(places.slack, question, &scene.answer).await,
            (Some(places), Place::Phone) => places.phone.reply(question, &scene.answer).await,
        }
    };
    let (answered, taken) = tokio::join!(answering, call.wait());
    answered?;
    tell(scene, taken?, clock.monotonic().since(asked), terminal)?;
    Ok(call.finish().await?)
}

fn tell(scene: &Scene, taken: Taken, waited: Duration, terminal: &Terminal) -> anyhow::Result<()> {
    let result = &taken.response.result;
    let told = match (result.answers.0.first(), &result.answered_by) {
        (Some((_, AnswerValue::One(answer))), Some(by)) => {
            let who = by.name.as_deref().unwrap_or("you");
            let place = by.channel.parse::<Via>().map(|via| via.place()).unwrap_or_default();
            format!("got {answer:?} from {who} {place} after {} s", waited.as_secs())
        }
        _ => format!("got no answer: {}.", unanswered(&result.status, &result.reason)),
    };
    terminal.tell(&scene.group, &told, Kind::Got, Some(scene.place));
    taken.done().context("cannot delete the response")
}

/// Why an agent has no answer.
fn unanswered(status: &str, reason: &str) -> &'static str {
    match (status, reason) {
        ("timeout", _) => "nobody answered in time",
        ("cancelled", "user") => "its question was dismissed",
        ("cancelled", _) => "its question was withdrawn",
        _ => "its question could not be shown",
    }
}

fn asks(terminal: &Terminal, group: &str, place: Place, question: &str) {
    let name = match place {
        Place::Inbox => "in the inbox",
        Place::Slack => "in Slack",
        Place::Phone => "on WhatsApp",
    };
    let way = if group == DEPLOY { " (over HTTP)" } else { "" };
    terminal.tell(group, &format!("asks {name:<12}  {question}{way}"), Kind::Asks, Some(place));
}

/// The agent that is killed while it waits: an answer or a dismissal starts it again, and nothing else does.
pub(super) async fn kill_one(
    data: &Path,
    auto: Option<&Places<'_>>,
    places: &Places<'_>,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let mut agent = tokio::process::Command::new(std::env::current_exe()?);
    agent.args(["ask", NIGHT_QUESTION, "--only-options", "--title", "Database db-2"]);
    agent.args(NIGHT_OPTIONS.iter().flat_map(|option| ["--option", option]));
    agent.arg("--ipc").arg(data.join("ipc").join(NIGHT));
    agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut agent = agent.spawn().context("cannot start an agent")?;
    asks(terminal, NIGHT, Place::Slack, NIGHT_QUESTION);
    let card = card(places.slack, NIGHT_QUESTION).await?;
    let ask = card.metadata.as_ref().and_then(|metadata| metadata["event_payload"]["ask"].as_str()).unwrap_or_default();
    Clock::system().sleep(Duration::from_secs(1)).await;
    if agent.try_wait()?.is_some() {
        terminal.tell(NIGHT, "got its answer before it could be killed", Kind::Got, Some(Place::Slack));
        return Ok(());
    }
    agent.kill().await.context("cannot kill an agent")?;
    terminal.tell(
        NIGHT,
        "was killed while it waits (kill -9). Answer it all the same: within 15 s askd starts it again.",
        Kind::Lost,
        None,
    );
    if auto.is_some() {
        click(places.slack, NIGHT_QUESTION, NIGHT_OPTIONS[0]).await?;
    }
    let outcome = ended(places.inbox, ask).await;
    let [status, reason] = ["status", "reason"].map(|field| outcome[field].as_str().unwrap_or_default());
    let by = match (status, reason) {
        ("answered", _) => "by your answer",
        ("cancelled", "user") => "because its question was dismissed",
        _ => {
            let told = format!("is not started again: {}.", unanswered(status, reason));
            terminal.tell(NIGHT, &told, Kind::Got, Some(Place::Slack));
            return Ok(());
        }
    };
    let began = begun(data);
    let briefing = loop {
        match std::fs::read(&began) {
            Ok(briefing) => break serde_json::from_slice::<Value>(&briefing)?,
            Err(_) => Clock::system().sleep(super::LOOK_EVERY).await,
        }
    };
    let text = briefing["text"].as_str().unwrap_or_default();
    terminal.tell(NIGHT, &format!("was started again {by}, and reads:\n{text}"), Kind::Got, Some(Place::Slack));
    Ok(())
}

/// How this ask ended, once it has.
async fn ended(client: &Client, id: &str) -> Value {
    loop {
        match client.call(Method::GET, &format!("/asks/{id}"), None).await {
            Ok(ask) if ask["state"] == "settled" => return ask["outcome"].clone(),
            // If the daemon does not answer, the demo is about to stop.
            Ok(_) | Err(_) => Clock::system().sleep(LOOK_AGAIN).await,
        }
    }
}

/// What the agent that is started again has read.
pub(super) fn begun(data: &Path) -> PathBuf {
    data.join("night-bot-began.json")
}

/// Does what a person would: looks into the inbox and answers.
async fn answer(client: &Client, question: &str, answer: &str) -> anyhow::Result<()> {
    let clock = Clock::system();
    let open = clock.timeout(PATIENCE, async {
        loop {
            let list = client.call(Method::GET, "/asks?state=open", None).await?;
            let ours = |ask: &&Value| ask["questions"][0]["question"] == question;
            if let Some(ask) = list["asks"].as_array().and_then(|asks| asks.iter().find(ours)) {
                return anyhow::Ok(ask.clone());
            }
            clock.sleep(super::LOOK_EVERY).await;
        }
    });
    let ask = open.await.context("the question did not appear in the inbox")??;
    let id = ask["id"].as_str().unwrap_or_default();
    client.call(Method::POST, &format!("/asks/{id}/shown"), None).await?;
    let body = json!({"answers": {question: answer}, "by": "web"});
    let settled = client.call(Method::POST, &format!("/asks/{id}/answer"), Some(&body)).await?;
    ensure!(settled["state"] == "settled", "the answer was not taken");
    Ok(())
}

/// The card of a question, once it is there.
async fn card(slack: &Slack, question: &str) -> anyhow::Result<slack::Message> {
    let there = |message: &slack::Message| message.has_action("pick:0:0") && message.text.contains(question);
    slack.wait_for_message(there, PATIENCE).await.context("the card did not appear in the mock Slack")
}

/// Does what a person would in Slack: clicks the first button, and sees the card change.
async fn click(slack: &Slack, question: &str, answer: &str) -> anyhow::Result<()> {
    let card = card(slack, question).await?;
    let delivery = slack.click(CHANNEL, &card.ts, "pick:0:0", PERSON).await.map_err(anyhow::Error::msg)?;
    ensure!(delivery.acknowledged, "the click was not taken");
    let closed = format!("Answered: {answer}");
    let says = |message: &slack::Message| message.ts == card.ts && message.text.starts_with(&closed);
    slack.wait_for_message(says, PATIENCE).await.context("the card does not say that it was answered")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::unanswered;

    #[test]
    fn an_agent_without_an_answer_says_why() {
        for (status, reason, why) in [
            ("timeout", "timeout", "nobody answered in time"),
            ("cancelled", "user", "its question was dismissed"),
            ("cancelled", "system", "its question was withdrawn"),
            ("undeliverable", "system", "its question could not be shown"),
        ] {
            assert_eq!(unanswered(status, reason), why);
        }
    }
}
