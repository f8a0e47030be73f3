//! What the cards of Slack and the messages of WhatsApp say of an outcome after the decision, and answers that come
//! after the timeout: taken once, from whoever may answer, and the agent is started with them.

use crate::harness::{SHORTEST, World, choice, until};
use crate::in_slack::{ALICE, BOB as SLACK_BOB, CHANNEL, Mode, STRANGER, in_slack};
use crate::on_whatsapp::{ADA, MALLORY, TO_ADA, binary_on_whatsapp, on_whatsapp, result, sim};
use crate::said;
use crate::sessions::Program;
use askd_sim::slack::{Act, Message as Card, Raw};
use askd_sim::whatsapp::Message as Said;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// Long enough for a short timeout to pass and to be told of, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const STILL: &str = said::STILL_ANSWERABLE;
const STARTED: &str = said::STARTED;

/// A program in a folder of its own.
struct Run {
    program: Program,
    folder: TempDir,
}

impl Run {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { program: Program::new(folder.path(), name, 0), folder }
    }

    /// One that fails until it is mended.
    fn failing(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { program: Program::new(folder.path(), name, 1), folder }
    }

    fn mend(&self) {
        let name = self.program.path.file_name().unwrap().to_str().unwrap();
        let _mended = Program::new(self.folder.path(), name, 0);
    }

    /// As `start` or `stop` of a group's `session`.
    fn means(&self, what: &str) -> String {
        format!("{what} = {{ command = [\"{}\"] }}", self.program.path.display())
    }

    /// What it was given when it was run.
    async fn ran(&self) -> String {
        until("the program to run", PATIENCE, || self.program.runs().into_iter().next()).await
    }

    /// The briefing it was given, when it was run once.
    async fn briefing(&self) -> Value {
        let run = self.ran().await;
        assert_eq!(self.program.runs().len(), 1);
        serde_json::from_str(&run[run.find("\n{").unwrap()..]).unwrap()
    }
}

fn text_of(question: &str, labels: &str, answer: &str) -> String {
    let options = if labels.is_empty() { String::new() } else { format!("\nOptions: {labels}") };
    format!(
        "You previously asked the user: \"{question}\"{options}\nThe user answered: \"{answer}\"\n\
         Continue from where you left off."
    )
}

// Slack.

fn group(session: &str, rules: &str) -> String {
    format!(
        "[groups.research]\n{rules}\nsession = {{ {session} }}\nroutes = [{{ channel = \"slack\", \
         chat = \"{CHANNEL}\", responders = [\"{ALICE}\", \"{SLACK_BOB}\"] }}]\n"
    )
}

async fn with_session(session: &str, rules: &str) -> World {
    in_slack(Mode::Http).groups(&group(session, rules)).start().await
}

fn briefly(mut ask: Value) -> Value {
    ask["timeoutMs"] = json!(10_000);
    ask
}

/// Takes a response, as a client does.
async fn take(world: &World, request_id: &str) -> Value {
    let response = world.response_within(request_id, PATIENCE).await;
    std::fs::remove_file(response_path(world, request_id)).unwrap();
    response
}

fn response_path(world: &World, request_id: &str) -> PathBuf {
    world.data().join(format!("ipc/research/responses/{request_id}.json"))
}

/// Asks, lets it time out, and gives the card that can still be answered.
async fn late_card(world: &World, request_id: &str, ask: Value) -> Card {
    world.ask(request_id, briefly(ask));
    let card = world.card(CHANNEL).await;
    world.time_passes(SHORTEST).await;
    assert_eq!(take(world, request_id).await["result"]["status"], "timeout");
    world.says(CHANNEL, &card.ts, STILL).await
}

/// A click on a card as it was, whatever it says by now.
async fn stale_click(world: &World, click: &Value) {
    let raw = Raw::interaction(&world.slack, &format!("{}/slack/interactions", world.url()), click);
    assert_eq!(world.slack.send_raw(raw).await.status, Some(200));
}

fn click_of(world: &World, card: &Card, action: &str, user: &str) -> Value {
    world.slack.payload_of_click(CHANNEL, &card.ts, action, user).unwrap()
}

#[tokio::test]
async fn a_card_that_timed_out_is_answered_once_and_the_agent_is_started_with_it() {
    let start = Run::new("start");
    let mut world = in_slack(Mode::Http).groups(&group(&start.means("start"), "")).with_binary().start().await;
    let card = late_card(&world, "r1", choice("Which auth strategy?", &["JWT tokens", "OAuth 2.0"])).await;
    let shown = card.visible_text();
    assert!(shown.contains("*research* asked") && shown.contains(" · Timed out at <!date^"), "{shown}");
    assert!(shown.contains("{time}|") && shown.contains("Which auth strategy?"), "{shown}");
    assert!(card.text.starts_with("Timed out at ") && card.text.ends_with(&format!(" UTC. {STILL}")), "{}", card.text);
    assert!(card.has_action("pick:0:0") && card.has_action("other:0") && !card.has_action("dismiss"), "{shown}");
    let late = |who: &str, action: &str| click_of(&world, &card, action, who);
    let (second, stranger) = (late(SLACK_BOB, "pick:0:1"), late(STRANGER, "pick:0:0"));
    stale_click(&world, &stranger).await;
    world.told(STRANGER, "You're not on the list for this question").await;
    assert_eq!(world.slack.message(CHANNEL, &card.ts).unwrap().edits, card.edits, "a stranger changes nothing");
    world.kill();
    world.begin().await;
    let delivery = world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.unwrap();
    assert!(delivery.acknowledged);
    world.stored("\"JWT tokens\"").await;
    let closed = world.says(CHANNEL, &card.ts, "*JWT tokens* by <@U0ALICE>, after the timeout").await;
    assert!(closed.elements().is_empty(), "it is taken once");
    let told = start.briefing().await;
    assert_eq!(told["text"], text_of("Which auth strategy?", "1. JWT tokens, 2. OAuth 2.0", "JWT tokens"));
    assert_eq!(told["result"]["answered_by"], json!({"channel": "slack", "id": ALICE, "name": "alice"}));
    let started = world.says(CHANNEL, &card.ts, STARTED).await;
    assert!(started.visible_text().contains("*JWT tokens* by <@U0ALICE>, after the timeout"));
    stale_click(&world, &second).await;
    let note = world.told(SLACK_BOB, "Already answered \"JWT tokens\"").await;
    assert!(note.text.contains("by alice in Slack. Your answer was not used."), "{}", note.text);
    assert_eq!(start.program.runs().len(), 1);
    assert!(world.response_now("r1").is_none(), "the outcome for its waiter was the timeout");
    assert_eq!(world.slack.messages(CHANNEL).len(), 1, "one card, nothing else");
}

#[tokio::test]
async fn a_form_and_a_thread_answer_after_the_timeout_too() {
    let start = Run::new("start");
    let world = with_session(&start.means("start"), "").await;
    let form = json!({"questions": [
        {"question": "Which targets?", "type": "multi-select", "options": ["staging", "prod"]},
        {"question": "Why now?"},
    ]});
    let card = late_card(&world, "r1", form).await;
    assert!(card.has_action("choice:0") && card.has_action("text:1") && !card.has_action("dismiss"));
    let half = [("choice:0", Act::Choose(vec!["1".to_owned()]))];
    world.slack.submit(CHANNEL, &card.ts, &half, "submit", ALICE).await.unwrap();
    let missing = world.told(ALICE, "Please answer").await;
    assert!(missing.text.contains("Why now?"), "{}", missing.text);
    assert_eq!(world.slack.message(CHANNEL, &card.ts).unwrap().edits, card.edits, "what was chosen is not lost");
    world.slack.submit(CHANNEL, &card.ts, &[("text:1", Act::Type("because".into()))], "submit", ALICE).await.unwrap();
    let closed = world.says(CHANNEL, &card.ts, "Answered by <@U0ALICE>, after the timeout").await;
    assert!(closed.elements().is_empty());
    let told = start.briefing().await;
    assert_eq!(told["result"]["answers"], json!({"Which targets?": ["prod"], "Why now?": "because"}));
    world.says(CHANNEL, &card.ts, STARTED).await;

    let start = Run::new("start");
    let world = with_session(&start.means("start"), "").await;
    let card = late_card(&world, "r1", choice("Which?", &["React", "Vue"])).await;
    world.slack.reply_in_thread(CHANNEL, &card.ts, ALICE, "rather Svelte, I think").unwrap();
    world.told(ALICE, "That is not one of the options.").await;
    world.slack.reply_in_thread(CHANNEL, &card.ts, ALICE, "2.").unwrap();
    world.says(CHANNEL, &card.ts, "*Vue* by <@U0ALICE>, after the timeout").await;
    assert_eq!(start.briefing().await["result"]["answers"], json!({"Which?": "Vue"}));
}

#[tokio::test]
async fn asking_again_closes_the_late_card_and_opens_another() {
    let start = Run::new("start");
    let world = with_session(&start.means("start"), "").await;
    let same = || {
        let mut ask = choice("Which?", &["React", "Vue"]);
        ask["session_id"] = json!("s");
        ask
    };
    let card = late_card(&world, "r1", same()).await;
    let stale = click_of(&world, &card, "pick:0:0", ALICE);
    world.ask("r2", same());
    let closed = world.says(CHANNEL, &card.ts, "Asked again.").await;
    assert!(closed.elements().is_empty() && closed.visible_text().contains("Timed out · <!date^"));
    let new = world.card(CHANNEL).await;
    assert_ne!(new.ts, card.ts);
    stale_click(&world, &stale).await;
    let note = world.told(ALICE, "This question has timed out").await;
    assert!(note.text.contains("React"), "what was answered is given back: {}", note.text);
    assert!(world.response_now("r2").is_none(), "one consent does not serve another request");
    world.slack.click(CHANNEL, &new.ts, "pick:0:1", SLACK_BOB).await.unwrap();
    assert_eq!(take(&world, "r2").await["result"]["answers"], json!({"Which?": "Vue"}));
    assert!(start.program.runs().is_empty());
}

#[tokio::test]
async fn when_the_time_for_late_answers_is_over_the_card_closes_and_a_click_is_given_back() {
    let start = Run::new("start");
    let world = with_session(&start.means("start"), "late_answers = \"2s\"").await;
    world.ask("r1", briefly(choice("Which?", &["React", "Vue"])));
    let card = world.card(CHANNEL).await;
    let stale = click_of(&world, &card, "pick:0:1", ALICE);
    world.time_passes(SHORTEST).await;
    assert_eq!(take(&world, "r1").await["result"]["status"], "timeout");
    let over = || world.slack.message(CHANNEL, &card.ts).filter(|now| now.text == "Timed out");
    let over = world.passes(PATIENCE, "the card to close", over).await;
    let shown = over.visible_text();
    assert!(over.elements().is_empty() && shown.contains("Timed out · <!date^") && !shown.contains(STILL), "{shown}");
    let updates = updates(&world);
    assert!(updates.len() == 2 && updates[0].contains(STILL), "it could be answered before: {updates:?}");
    // Somebody whose screen is behind.
    stale_click(&world, &stale).await;
    let note = world.told(ALICE, "This question has timed out, and the agent was told so.").await;
    assert!(note.text.ends_with("Your answer was not used: Vue"), "{}", note.text);
    assert!(start.program.runs().is_empty());
}

/// What cards were changed to, in order.
fn updates(world: &World) -> Vec<String> {
    let calls = world.slack.calls().into_iter().filter(|call| call.method == "chat.update");
    calls.map(|call| call.args["blocks"].to_string()).collect()
}

#[tokio::test]
async fn what_nobody_collects_is_said_to_be_kept_until_it_is_read() {
    let world = with_session("", "answer_retention = \"1s\"").await;
    world.ask("r1", choice("Which?", &["React", "Vue"]));
    let card = world.card(CHANNEL).await;
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.unwrap();
    let kept = said::KEPT;
    let said = world.says(CHANNEL, &card.ts, kept).await.visible_text();
    assert!(said.contains("*React* by <@U0ALICE>"), "{said}");
    let briefings = world.data().join("ipc/research/briefings");
    let briefing = || {
        std::fs::read_dir(&briefings).ok()?.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some())
    };
    std::fs::remove_file(world.passes(PATIENCE, "the briefing", briefing).await).unwrap();
    let plain = || world.slack.message(CHANNEL, &card.ts).filter(|now| !now.visible_text().contains(kept));
    let plain = world.passes(PATIENCE, "the card to say nothing of it any more", plain).await;
    assert!(plain.visible_text().contains("*React* by <@U0ALICE>"));
    world.all_closed(PATIENCE).await;
}

#[tokio::test]
async fn under_abort_task_the_card_says_that_the_session_was_stopped() {
    let stop = Run::new("stop");
    let go = stop.folder.path().join("go");
    let once_told =
        format!("while [ ! -e {} ]; do sleep 0.02; done; exec {}", go.display(), stop.program.path.display());
    let stops = format!("stop = {{ command = [\"/bin/sh\", \"-c\", \"{once_told}\"] }}");
    let world = with_session(&stops, "on_timeout = \"abort_task\"").await;
    world.ask("r1", briefly(choice("Which?", &["React", "Vue"])));
    let card = world.card(CHANNEL).await;
    world.time_passes(SHORTEST).await;
    world.says(CHANNEL, &card.ts, "Timed out · ").await;
    let _told = std::fs::File::create(go).unwrap();
    assert!(stop.ran().await.contains("ASKD_REASON=ask_user_timeout\n"));
    assert!(world.response_now("r1").is_some(), "the response comes first");
    let closed = world.says(CHANNEL, &card.ts, "Timed out, cancelled.").await;
    assert!(closed.elements().is_empty() && closed.text == "Timed out, cancelled.", "{}", closed.text);
    assert_eq!(closed.visible_text().matches("Timed out").count(), 1, "{}", closed.visible_text());
    assert_eq!(updates(&world).len(), 2, "closed before it was stopped");
    assert_eq!(stop.program.runs().len(), 1);
    world.all_closed(PATIENCE).await;
}

#[tokio::test]
async fn what_is_not_collected_for_ten_minutes_is_said_until_it_is() {
    let world = with_session("", "timeout = \"1h\"").await;
    world.ask("r1", choice("Which?", &["React", "Vue"]));
    let card = world.card(CHANNEL).await;
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.unwrap();
    world.response_within("r1", PATIENCE).await;
    world.all_closed(PATIENCE).await;
    world.time_passes(Duration::from_secs(590)).await;
    // Whatever came of that was done before what is asked now is up.
    world.ask("r2", choice("And now?", &["yes", "no"]));
    world.card(CHANNEL).await;
    assert_eq!(updates(&world).len(), 1);
    world.time_passes(Duration::from_secs(11)).await;
    let overdue = "The agent has not collected it yet.";
    let said = world.says(CHANNEL, &card.ts, overdue).await.visible_text();
    assert!(said.contains("*React* by <@U0ALICE>"), "{said}");
    take(&world, "r1").await;
    world.time_passes(Duration::from_secs(10)).await;
    let plain = || world.slack.message(CHANNEL, &card.ts).filter(|now| !now.visible_text().contains(overdue));
    let plain = world.passes(PATIENCE, "the remark to go away", plain).await;
    assert!(plain.visible_text().contains("*React* by <@U0ALICE>"));
}

// WhatsApp.

const CLOSED_LATE: &str =
    "You can still answer: the agent will be started with it. Swipe the question to reply, or start with ";

/// `session` of the group whose only route is Ada.
fn section(session: &str) -> String {
    format!("[groups.research.session]\n{session}\n")
}

async fn phone_with_session(session: &str) -> World {
    let world = on_whatsapp(sim(), TO_ADA, &section(session)).await;
    world.writes(ADA, "hello").await;
    world
}

/// Asks, lets it time out, and gives the question and the message that closed it.
async fn late_question(world: &World, id: &str, text: &str) -> (Said, Said) {
    world.ask(id, briefly(choice(text, &["React", "Vue"])));
    let question = world.shown(ADA, text).await;
    world.time_passes(SHORTEST).await;
    assert_eq!(result(&world.response(id).await), ("timeout", "timeout"));
    let about = |said: &Said| said.outgoing && said.quotes.as_ref() == Some(&question.id);
    let closing = || world.phone.messages_to(ADA).into_iter().find(|said| about(said) && said.stage.shown());
    let closing = world.passes(PATIENCE, "a closing message", closing).await;
    std::fs::remove_file(world.data().join(format!("ipc/research/responses/{id}.json"))).unwrap();
    let late = closing.text.contains(STILL);
    let noted = |(path, record): (PathBuf, String)| {
        // The last step puts it with what is settled.
        let is_kept = path.iter().any(|part| part == "settled");
        is_kept && record.contains("\"taken\"") && record.contains("\"closed\": \"late\"")
    };
    world.until("it to be noted", || !late || world.records().into_iter().all(noted)).await;
    (question, closing)
}

/// The code with which a question that timed out is answered.
fn code(closing: &Said) -> String {
    let code = closing.text.split(CLOSED_LATE).nth(1).and_then(|rest| rest.strip_suffix('.'));
    code.unwrap_or_else(|| panic!("{}", closing.text)).to_owned()
}

fn count(world: &World, text: &str) -> usize {
    world.said_to(ADA).iter().filter(|said| said.contains(text)).count()
}

#[tokio::test]
async fn on_whatsapp_a_late_answer_needs_the_code() {
    let start = Run::new("start");
    let mut world = binary_on_whatsapp(sim(), TO_ADA, &section(&start.means("start"))).await;
    world.writes(ADA, "hello").await;
    let (_, closing) = late_question(&world, "r1", "Which framework?").await;
    assert!(closing.text.starts_with("Timed out at ") && closing.text.contains(". You can "), "{}", closing.text);
    let code = code(&closing);
    let before = world.records();
    world.writes(ADA, "2").await;
    let hint = world.shown(ADA, "so I did not take this as its answer.").await;
    assert!(hint.text.contains(&format!("start with {code}")), "{}", hint.text);
    for said in ["1", "React"] {
        let id = world.phone.person_says(MALLORY, &format!("{code} {said}"));
        world.taken(&id).await;
    }
    assert!(before == world.records(), "a bare number is none, and a stranger's is none");
    // No answer; and how it is given is said as it is for one that comes late.
    world.writes(ADA, &format!("{code} 7")).await;
    let back = world.shown(ADA, "Please pick 1-2").await;
    assert!(back.text.contains(&format!("start with {code}")), "{}", back.text);
    assert!(!back.text.contains("cancel"), "there is nothing to dismiss: {}", back.text);
    world.writes(ADA, &code).await;
    world.until("to be told how once more", || count(&world, &closing.text) == 2).await;
    world.restart().await;
    world.writes(ADA, &format!("{} 2", code.to_uppercase())).await;
    world.shown(ADA, "Answered after the timeout: Vue by Ada").await;
    let told = start.briefing().await;
    assert_eq!(told["text"], text_of("Which framework?", "1. React, 2. Vue", "Vue"));
    let started = world.shown(ADA, STARTED).await;
    assert_eq!(started.text, STARTED, "whoever answered knows what");
    world.writes(ADA, &format!("{code} 1")).await;
    world.shown(ADA, "Already answered \"Vue\" by Ada on WhatsApp.").await;
    assert_eq!((start.program.runs().len(), count(&world, STARTED)), (1, 1), "{:#?}", world.said_to(ADA));
    assert_eq!(world.said_to(MALLORY), Vec::<String>::new());
    world.kept_the_pace();
}

#[tokio::test]
async fn on_whatsapp_a_late_answer_quotes_while_another_question_is_open() {
    let start = Run::new("start");
    let world = phone_with_session(&start.means("start")).await;
    let (question, closing) = late_question(&world, "r1", "Which framework?").await;
    world.ask("r2", choice("Which targets?", &["staging", "prod"]));
    world.shown(ADA, "Which targets?").await;
    world.quiet(1).await;
    // The closing message can be quoted as well as the question.
    let wrong = world.phone.person_quotes(ADA, &closing.id, "React, Vue");
    world.taken(&wrong).await;
    let quoted = world.phone.person_quotes(ADA, &question.id, "1");
    world.taken(&quoted).await;
    let answer = start.briefing().await["result"]["answers"]["Which framework?"].clone();
    assert_eq!(answer, "React, Vue", "the first one");
    world.shown(ADA, "Already answered").await;
    assert!(world.response_now("r2").is_none());
    world.writes(ADA, "2").await;
    assert_eq!(world.response("r2").await["result"]["answers"]["Which targets?"], "prod", "the bare number is of this");
}

#[tokio::test]
async fn on_whatsapp_a_late_answer_quotes_the_closing_message_after_a_plain_restart() {
    let start = Run::new("start");
    let mut world = phone_with_session(&start.means("start")).await;
    let (_, closing) = late_question(&world, "r1", "Which framework?").await;
    assert_eq!(world.stop().await, Some(0));
    world.begin().await;
    world.phone.person_quotes(ADA, &closing.id, "2");
    assert_eq!(start.briefing().await["result"]["answers"]["Which framework?"], "Vue");
}

#[tokio::test]
async fn a_late_answer_from_elsewhere_is_told_on_whatsapp_once() {
    let start = Run::new("start");
    let world = phone_with_session(&start.means("start")).await;
    let (_, closing) = late_question(&world, "r1", "Which framework?").await;
    // Its code is still its own.
    let path = format!("/asks/{}/answer", code(&closing));
    let body = json!({"answers": {"Which framework?": "Vue"}});
    assert_eq!(world.call("POST", &path, Some(&body)).0, 200);
    let told = format!("Answered after the timeout: Vue by operator\n{STARTED}");
    world.shown(ADA, &told).await;
    assert_eq!(count(&world, "Answered after the timeout"), 1, "{:#?}", world.said_to(ADA));
}

#[tokio::test]
async fn without_a_start_a_late_reply_is_given_back_on_whatsapp() {
    let world = phone_with_session("").await;
    let (question, closing) = late_question(&world, "r1", "Which framework?").await;
    assert_eq!(closing.text, "Timed out");
    world.phone.person_quotes(ADA, &question.id, "Svelte, if we can");
    let back = world.shown(ADA, "This question has timed out, and the agent was told so.").await;
    assert!(back.text.ends_with("Your answer was not used: Svelte, if we can"), "{}", back.text);
}

/// A message to Ada fails, because the chat is closed for us after all.
async fn lapse(world: &World, message: &str) {
    world.phone.status(message, askd_sim::whatsapp::Stage::Failed, Some(131_047));
    let told = |sim: &askd_sim::whatsapp::Whatsapp| {
        sim.webhooks().iter().any(|post| post.status == 200 && post.body.contains("131047"))
    };
    assert!(world.phone.wait_until(told, PATIENCE).await);
}

#[tokio::test]
async fn a_closing_message_that_had_to_wait_says_what_has_become_of_it_since() {
    let start = Run::new("start");
    let world = phone_with_session(&start.means("start")).await;
    world.ask("r1", briefly(choice("Which framework?", &["React", "Vue"])));
    world.shown(ADA, "Which framework?").await;
    let id = world.open()[0]["id"].as_str().unwrap().to_owned();
    let sticker = world.phone.person_sends(ADA, &askd_sim::whatsapp::Sending::Sticker);
    world.taken(&sticker).await;
    let hint = world.shown(ADA, said::ONLY_TEXT).await;
    lapse(&world, &hint.id).await;
    world.time_passes(SHORTEST).await;
    world.response("r1").await;
    let body = json!({"answers": {"Which framework?": "Vue"}});
    assert_eq!(world.call("POST", &format!("/asks/{id}/answer"), Some(&body)).0, 200);
    start.briefing().await;
    let started = |line: &Value| line["what"] == "started";
    world.until("the start to be noted", || world.audit().iter().any(started)).await;
    world.writes(ADA, "anything new?").await;
    world.shown(ADA, &format!("Answered after the timeout: Vue by operator\n{STARTED}")).await;
    let done = || world.records().iter().all(|(_, record)| record.contains("\"closed\": \"started\""));
    world.until("the chat to be closed", done).await;
    assert_eq!(count(&world, "Timed out"), 0, "it cannot be answered any more: {:#?}", world.said_to(ADA));
    assert_eq!(count(&world, STARTED), 1, "{:#?}", world.said_to(ADA));
}

#[tokio::test]
async fn outside_the_window_nothing_is_said_of_what_became_of_an_outcome() {
    // It fails until the chat is closed for us.
    let start = Run::failing("start");
    let world = phone_with_session(&format!("{}\n[asks]\npickup_timeout = \"1s\"", start.means("start"))).await;
    world.ask("r1", choice("Which framework?", &["React", "Vue"]));
    world.shown(ADA, "Which framework?").await;
    world.writes(ADA, "1").await;
    let closing = world.shown(ADA, "Answered: React by Ada").await;
    lapse(&world, &closing.id).await;
    start.ran().await;
    start.mend();
    // As if it had been said.
    let said = || world.records().iter().any(|(_, record)| record.contains("\"closed\": \"started\""));
    world.until("the start to be noted", said).await;
    assert_eq!(count(&world, STARTED), 0, "{:#?}", world.said_to(ADA));
    // The closing line that failed is said when the person writes, and it says all of it.
    world.writes(ADA, "anything new?").await;
    world.shown(ADA, &format!("Answered: React by Ada\n{STARTED}")).await;
    // What would have been said besides goes before what is said now.
    world.ask("r2", choice("And now?", &["a"]));
    world.shown(ADA, "And now?").await;
    assert_eq!(count(&world, STARTED), 1, "{:#?}", world.said_to(ADA));
}

#[tokio::test]
async fn on_whatsapp_a_stopped_session_is_told_of() {
    let stop = Run::new("stop");
    let world = phone_with_session(&stop.means("stop")).await;
    let mut ask = briefly(choice("Which framework?", &["React", "Vue"]));
    ask["timeoutPolicy"] = json!("abort_task");
    world.ask("r1", ask);
    world.shown(ADA, "Which framework?").await;
    world.until("the session to be stopped", || !stop.program.runs().is_empty()).await;
    assert!(stop.ran().await.contains("ASKD_REASON=ask_user_timeout\n"));
    assert!(world.response_now("r1").is_some(), "the response comes first");
    world.shown(ADA, "Timed out, cancelled.").await;
    let said = world.said_to(ADA);
    assert_eq!(said[said.len() - 2..], ["Timed out", "Timed out, cancelled."]);
    assert_eq!(stop.program.runs().len(), 1);
}
