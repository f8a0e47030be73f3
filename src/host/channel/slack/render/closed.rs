//! A card that says how the ask ended, at a glance. The question stays readable, its background and the buttons are gone.

use super::super::text;
use super::blocks::{context, section, sections};
use super::open::{question_text, title_blocks};
use super::{CardView, Message};
use askd_core::wording::{self, Closing};
use askd_core::{Answers, Ask, ChannelName, Outcome, Person, Stage, Time, Via};
use serde_json::Value;

/// Characters or units of a closing line. The agent has the whole of a long answer.
const LINE: usize = 1_200;
/// Units of the text of an edited message.
const MAX_EDIT: usize = 4_000;
/// Units of all answers to several questions, and of each question beside its answer.
const ANSWERS: usize = 5_000;
const QUESTION: usize = 200;

/// The card of a settled ask; `None` while it is open or blocked.
pub(in super::super) fn closed(ask: &Ask, route: usize) -> Option<Message> {
    let Stage::Settled { at, .. } = &ask.stage else { return None };
    if let Some(block) = ask.block() {
        return block.lifted.as_ref().map(|lifted| super::blocked::lifted(ask, lifted));
    }
    if ask.is_late_open() {
        let attempt = ask.widgets.get(route).map_or(1, |widget| widget.attempt);
        return super::card(&CardView::late(ask, attempt, *at)).pop();
    }
    let line = ask.closing_line()?;
    let at = ask.late_outcome().map_or(*at, |(_, at)| at);
    let closing = ask.closing()?;
    let mut blocks = vec![context(&wording::slack_asked(ask.group.as_str()))];
    blocks.extend(asked(ask, at));
    blocks.push(section(&format!("{} · {}", ending(ask, &closing), date(at))));
    // The closing line of a stopped session is its remark already.
    if let Some(remark) = wording::remark(ask.remark()).filter(|remark| *remark != line) {
        blocks.push(context(remark));
    }
    let text = text::fit(LINE, MAX_EDIT, |count| text::top_level(&shortened(&line, count)));
    Some(Message { text, blocks })
}

/// The question; of several, each on a line with its answer. Where it stands, if that is above the card.
fn asked(ask: &Ask, at: Time) -> Vec<Value> {
    let content = &ask.content;
    if let [question] = &*content.questions {
        let one_message = super::is_one_message(&CardView::of(ask, 1, at));
        let said = if one_message { question_text(content, 0, question) } else { wording::slack_above(None) };
        let title = content.title.iter().filter(|_| !super::one_click(question)).flat_map(|title| title_blocks(title));
        return title.chain(sections(&said)).collect();
    }
    let answers = answers(ask);
    let room = ANSWERS / content.questions.len();
    let lines = content.questions.iter().enumerate().map(|(index, question)| {
        let answer = answers.as_ref().map(|answers| answers.entries().get(index).and_then(Option::as_ref));
        let answer = answer.map(|answer| text::fitted(&wording::answer_to(question, answer), room));
        wording::slack_line(&text::fitted(&question.text, QUESTION), answer.as_deref())
    });
    let lines = sections(&lines.collect::<Vec<_>>().join("\n"));
    content.title.iter().flat_map(|title| title_blocks(title)).chain(lines).collect()
}

/// What was answered, also after the timeout.
fn answers(ask: &Ask) -> Option<Answers> {
    if let Some(Outcome::Answered { answers, .. }) = ask.last_outcome() { Some(answers) } else { None }
}

/// A sign, what happened, and who did it.
fn ending(ask: &Ask, closing: &Closing) -> String {
    let by = closing.by.as_ref().map(mention).unwrap_or_default();
    if let Some(answers) = answers(ask) {
        let answer = match &*ask.content.questions {
            [question] => Some(wording::answer_to(question, answers.entries().first().and_then(Option::as_ref))),
            _ => None,
        };
        let answer = answer.map(|answer| text::fitted(&answer, LINE));
        return wording::slack_answered(answer.as_deref(), &by, ask.late_outcome().is_some());
    }
    let sign = match ask.outcome() {
        Some(Outcome::Dismissed { .. }) => return wording::slack_dismissed(&by),
        Some(Outcome::TimedOut) => ":hourglass:",
        Some(Outcome::Withdrawn { .. }) => ":no_entry_sign:",
        Some(Outcome::Answered { .. } | Outcome::Undelivered { .. } | Outcome::Blocked { .. }) | None => ":warning:",
    };
    format!("{sign} {}", ended(closing))
}

/// How the ask ended, with Slack's own name for the person who did it.
pub(super) fn ended(closing: &Closing) -> String {
    let what = text::fitted(&closing.what, LINE);
    closing.by.as_ref().map_or_else(|| what.clone(), |by| format!("{what} by {}", mention(by)))
}

/// Mentions a person of Slack in Slack's way, and anyone else by name.
fn mention(by: &Person) -> String {
    let is_id = by.id.starts_with(['U', 'W']) && by.id.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
    if by.via == Via::Channel(ChannelName::SLACK) && is_id {
        format!("<@{}>", by.id)
    } else {
        text::mrkdwn(by.called())
    }
}

/// The beginning and the end of a long line.
fn shortened(line: &str, most: usize) -> String {
    let count = line.chars().count();
    if count <= most {
        return line.to_owned();
    }
    let end: String = line.chars().skip(count - most / 4).collect();
    format!("{}{end}", text::first(line, most * 3 / 4))
}

/// A time of day, which Slack shows in everybody's own time.
pub(super) fn time_of_day(time: Time) -> String {
    format!("<!date^{}^{{time}}|{}>", time.as_millis() / 1000, plain_time(time))
}

/// A time of day in UTC, where Slack cannot show it in everybody's own time.
pub(super) fn plain_time(time: Time) -> String {
    let text = time.to_string();
    format!("{} UTC", text.get(11..16).unwrap_or(&text))
}

/// A moment, which Slack shows in everybody's own time.
pub(super) fn date(time: Time) -> String {
    let fallback = time.to_string().replace('T', " ");
    let fallback = fallback.get(..16).unwrap_or(&fallback);
    format!("<!date^{}^{{date_short_pretty}} {{time}}|{fallback} UTC>", time.as_millis() / 1000)
}
