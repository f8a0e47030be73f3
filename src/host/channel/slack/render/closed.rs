//! A card that says how the ask ended. The question stays readable, the buttons are gone.

use super::super::text;
use super::blocks::{context, section};
use super::open::{texts, title_blocks};
use super::{COMFORTABLE, CardView, MAX_BLOCKS, Message, total};
use askd_core::wording::{self, Closing};
use askd_core::{Ask, ChannelName, Person, Stage, Time, Via};
use serde_json::Value;

/// Characters of a closing line. The agent has the whole of a long answer.
const LINE: usize = 1_200;

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
    let mut blocks = heading(ask, at);
    let said = ask.closing().as_ref().map(ended).unwrap_or_default();
    blocks.push(context(&format!("{said} · {}", date(at))));
    // The closing line of a stopped session is its remark already.
    if let Some(remark) = wording::remark(ask.remark()).filter(|remark| *remark != line) {
        blocks.push(context(remark));
    }
    Some(Message { text: text::top_level(&shortened(&line)), blocks })
}

/// Who asked what. Only who, if the texts still stand above.
fn heading(ask: &Ask, at: Time) -> Vec<Value> {
    let mut blocks = vec![context(&wording::slack_asked(ask.group.as_str(), ask.short_id.as_str()))];
    blocks.extend(ask.content.title.iter().flat_map(|title| title_blocks(title)));
    let texts = texts(&ask.content);
    let one_message = super::card(&CardView::of(ask, 1, at)).len() == 1;
    if one_message && blocks.len() + texts.len() < MAX_BLOCKS && total(&texts) <= COMFORTABLE {
        blocks.extend(texts);
    } else {
        blocks.push(section(&wording::slack_above(None)));
    }
    blocks
}

/// How the ask ended, with Slack's own name for the person who did it.
pub(super) fn ended(closing: &Closing) -> String {
    let what = text::mrkdwn(&shortened(&closing.what));
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
fn shortened(line: &str) -> String {
    let count = line.chars().count();
    if count <= LINE {
        return line.to_owned();
    }
    let end: String = line.chars().skip(count - LINE / 4).collect();
    format!("{}{end}", text::first(line, LINE * 3 / 4))
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
