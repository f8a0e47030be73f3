//! The card of a question that was asked too often: who asked what, how often, and one button. askd updates it when
//! the count grows, and when a person allows the question again.

use super::super::text;
use super::blocks::{actions, block_id, button, context, section, sections};
use super::closed::{date, ended};
use super::open::title_blocks;
use super::{COMFORTABLE, MAX_BLOCKS, Message, total};
use askd_core::{Ask, Lifted, wording};
use serde_json::Value;

/// Characters of a question on a card that would be too long otherwise. The cards before showed all of it.
const SHORT: usize = 300;

/// The card while the block stands; `None` if it does not.
pub(in super::super) fn blocked(ask: &Ask, attempt: u8) -> Option<Message> {
    let block = ask.block().filter(|_| ask.is_blocked())?;
    let group = ask.group.as_str();
    let mut blocks = vec![context(&wording::slack_blocked(group, block.times))];
    blocks.extend(questions(ask));
    blocks.push(section(wording::BLOCKED));
    let allow = button("allow", wording::ALLOW_AGAIN, "allow", Some("primary"));
    blocks.push(actions(&block_id(ask.id, "do", attempt), &[allow]));
    let first = ask.content.questions.first().map(|question| question.text.as_str()).unwrap_or_default();
    let more = ask.content.questions.len() - 1;
    let notice = wording::blocked_notice(group, &text::first(&text::line(first), SHORT), more);
    Some(Message { text: text::top_level(&notice), blocks })
}

/// The card once it has ended.
pub(super) fn lifted(ask: &Ask, lifted: &Lifted) -> Message {
    let line = ask.closing_line().unwrap_or_default();
    let said = ask.closing().as_ref().map(ended).unwrap_or_default();
    let mut blocks = vec![context(&wording::slack_asked(ask.group.as_str()))];
    blocks.extend(questions(ask));
    blocks.push(section(&format!(":white_check_mark: {said} · {}", date(lifted.at))));
    Message { text: text::top_level(&line), blocks }
}

fn questions(ask: &Ask) -> Vec<Value> {
    let several = ask.content.questions.len() > 1;
    let told = |most: usize| -> Vec<Value> {
        let each = ask.content.questions.iter().enumerate().flat_map(|(index, question)| {
            let said = text::first(&question.text, most);
            sections(&text::bold(&if several { format!("{}. {said}", index + 1) } else { said }))
        });
        each.collect()
    };
    let whole = told(usize::MAX);
    let questions = if whole.len() + 4 < MAX_BLOCKS && total(&whole) <= COMFORTABLE { whole } else { told(SHORT) };
    ask.content.title.iter().flat_map(|title| title_blocks(title)).chain(questions).collect()
}
