//! What people do around a card in Slack that is no click: edits in its thread.

use crate::harness::{World, choice};
use crate::in_slack::{ALICE, BOB, CHANNEL, Mode, STRANGER, in_slack};
use askd_sim::slack::{EVENTS, FaultKind, Message};
use serde_json::json;

async fn asked(mode: Mode) -> (World, Message) {
    let world = in_slack(mode).start().await;
    world.ask("r1", choice("Which?", &["React", "Vue"]));
    let card = world.card(CHANNEL).await;
    world.stored(&card.ts).await;
    (world, card)
}

#[tokio::test]
async fn who_edits_a_reply_is_told_once_that_edits_are_not_read() {
    for mode in [Mode::Http, Mode::Socket] {
        let (world, card) = asked(mode).await;
        let reply = |user, text| world.slack.reply_in_thread(CHANNEL, &card.ts, user, text).expect("sent").ts;
        let edit = |ts: &str, text| world.slack.edit(CHANNEL, ts, text).expect("edited");
        let (wrong, chat) = (reply(ALICE, "Svelte"), reply(STRANGER, "hm"));
        world.told(ALICE, "not one of the options").await;
        edit(&chat, "Vue");
        // Slack has found a link in it.
        edit(&wrong, "Svelte");
        world.slack.faults().next(EVENTS, FaultKind::Duplicate, 1);
        edit(&wrong, "Vue");
        let note = world.told(ALICE, "Edits").await;
        assert_eq!(note.text, "Edits are not read. Please send a new reply.");
        assert_eq!(note.thread_ts.as_deref(), Some(&*card.ts));
        let answer = reply(BOB, "React");
        assert_eq!(world.response("r1").await["result"]["answers"], json!({"Which?": "React"}));
        world.says(CHANNEL, &card.ts, "Answered: React").await;
        // Under a closed card people talk. What was no answer, and is none now, needs no note.
        edit(&wrong, "Svelte it is not, then");
        edit(&answer, "Vue, sorry");
        let note = world.told(BOB, "Edits").await;
        assert_eq!(note.text, "Edits are not read. The first answer stands: \"React\".");
        assert_eq!(world.slack.ephemerals(ALICE).len(), 2, "the hint, and one note for the edit");
        assert!(world.slack.ephemerals(STRANGER).is_empty());
    }
}
