//! One group that is asked in Slack and on WhatsApp: first here, then there, answered anywhere, closed
//! everywhere.

use crate::whatsapp_world::{ADA, SOON, TO_ADA, World, select, sim};
use askd_sim::slack::{Act, BOT_TOKEN, Config, Message, SIGNING_SECRET, Slack};
use serde_json::json;
use std::time::Duration;

const CHANNEL: &str = "C0AGENTS";
const ALICE: &str = "U0ALICE";

struct Both {
    world: World,
    slack: Slack,
}

impl Both {
    /// Asked in that channel of Slack, and after two seconds on WhatsApp too.
    async fn start(chat: &str) -> Self {
        let slack = Slack::start(Config { pace: Duration::ZERO, ..Config::default() }).await.unwrap();
        let routes = format!("{{ channel = \"slack\", chat = \"{chat}\", responders = [\"{ALICE}\"] }}, {TO_ADA}");
        let more = format!(
            "[asks]\nescalate_after = \"2s\"\n[slack]\nbot_token = \"{BOT_TOKEN}\"\nsigning_secret = \"{SIGNING_SECRET}\"\n\
             pace = \"0s\"\napi_url = \"{}\"\n",
            slack.api_url()
        );
        let world = World::start(sim(), &routes, &more).await;
        slack.set_interactivity_url(Some(format!("{}/slack/interactions", world.url)));
        world.writes(ADA, "hello").await;
        Self { world, slack }
    }

    /// The card in Slack that can be used.
    async fn card(&self) -> Message {
        let live = || self.slack.messages(CHANNEL).into_iter().rfind(|message| !message.elements().is_empty());
        self.world.passes(SOON, "a card", live).await
    }

    /// Waits until the card says this, and can be used no more.
    async fn card_says(&self, card: &Message, text: &str) {
        let says = || {
            let card = self.slack.message(CHANNEL, &card.ts)?;
            (card.elements().is_empty() && card.visible_text().contains(text)).then_some(())
        };
        self.world.passes(SOON, &format!("the card to say {text:?}"), says).await;
    }

    async fn all_done(&self) {
        self.world
            .until("every card to be closed", || {
                self.world.records().iter().all(|(path, _)| path.to_string_lossy().contains("/settled/"))
            })
            .await;
    }
}

// The stand-ins answer while the daemon starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asked_in_slack_and_then_on_whatsapp_answered_anywhere_closed_everywhere() {
    let both = Both::start(CHANNEL).await;
    let world = &both.world;
    world.ask("r1", select("Which?", &["a", "b"]));
    let card = both.card().await;
    world.shown(ADA, "Which?").await;
    world.writes(ADA, "2").await;
    let result = world.response("r1").await["result"].clone();
    assert_eq!((&result["answers"]["Which?"], &result["answered_by"]["channel"]), (&json!("b"), &json!("whatsapp")));
    both.card_says(&card, "Answered: b by Ada").await;
    world.shown(ADA, "Got it.\nAnswered: b by Ada").await;

    world.ask("r2", select("And now?", &["c", "d"]));
    let card = both.card().await;
    world.shown(ADA, "And now?").await;
    both.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.unwrap();
    let result = world.response("r2").await["result"].clone();
    assert_eq!((&result["answers"]["And now?"], &result["answered_by"]["channel"]), (&json!("c"), &json!("slack")));
    both.card_says(&card, "Answered: c by").await;
    let closing = world.shown(ADA, "Answered: c by alice").await;
    assert!(!closing.text.contains("Got it."), "it was not hers: {}", closing.text);
    both.all_done().await;
    let said = world.said_to(ADA);
    assert_eq!(said.iter().filter(|text| text.contains("Answered: ")).count(), 2, "each closed once: {said:#?}");
    world.kept_the_pace();
}

// The stand-ins answer while the daemon starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_slack_cannot_show_is_asked_on_whatsapp() {
    let both = Both::start("C0NOWHERE").await;
    both.world.ask("r1", select("Which?", &["a", "b"]));
    both.world.shown(ADA, "Which?").await;
    assert!(both.world.log().contains("channel_not_found"), "the operator is told why");
    both.world.writes(ADA, "1").await;
    assert_eq!(both.world.response("r1").await["result"]["answers"]["Which?"], "a");
    both.world.shown(ADA, "Answered: a by Ada").await;
    both.all_done().await;
    assert!(both.slack.messages(CHANNEL).is_empty());
}

// The stand-ins answer while the daemon starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_so_far_belong_to_one_person_and_one_card() {
    let both = Both::start(CHANNEL).await;
    let world = &both.world;
    world.ask("r1", json!({"questions": [{"question": "First?", "options": ["a", "b"]}, {"question": "Second?"}]}));
    let card = both.card().await;
    world.shown(ADA, "Question 1 of 2").await;
    world.writes(ADA, "1").await;
    world.shown(ADA, "Question 2 of 2").await;
    // The other half, on the other card, by another person: that is not the whole.
    let half = [("text:1", Act::Type("because".to_owned()))];
    both.slack.submit(CHANNEL, &card.ts, &half, "submit", ALICE).await.unwrap();
    let told = || both.slack.ephemerals(ALICE).into_iter().rfind(|note| note.text.contains("Still missing"));
    let note = both.slack.wait_for(SOON, told).await.expect("a private note");
    assert!(note.text.contains("First?"), "{}", note.text);
    assert!(world.response_now("r1").is_none());
    let rest = [("choice:0", Act::Choose(vec!["1".to_owned()]))];
    both.slack.submit(CHANNEL, &card.ts, &rest, "submit", ALICE).await.unwrap();
    let result = world.response("r1").await["result"].clone();
    assert_eq!(result["answers"], json!({"First?": "b", "Second?": "because"}));
    assert_eq!(result["answered_by"]["id"], ALICE);
    world.shown(ADA, "Answered: b; because by alice\nYour answers so far were not used.").await;
    both.card_says(&card, "Answered: b; because by").await;
    both.all_done().await;
}
