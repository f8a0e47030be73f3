//! A card that can be answered.

use super::super::text;
use super::blocks::{
    OTHER, SKIP, actions, block_id, button, choice, context, header, input, option, section, sections, text_input,
};
use super::{
    COMFORTABLE, MAX_BLOCKS, MAX_HEADER, MAX_OPTION, MAX_PLACEHOLDER, MAX_RADIOS, MAX_TOTAL, Message, SHORT_LABEL,
    Sight, total,
};
use askd_core::{Choice, Content, Group, Kind, Question, Rejection, Time, wording};
use serde_json::Value;

/// Characters of a notice.
const NOTICE: usize = 300;

/// The messages of a card; the last one is what people use.
pub(in super::super) fn card(sight: &Sight<'_>) -> Vec<Message> {
    let notice = notice(sight);
    let blocks = whole(sight);
    let is_one = |blocks: &[Value]| blocks.len() <= MAX_BLOCKS && total(blocks) <= COMFORTABLE;
    // After its timeout it is as many messages as it was before: what was posted cannot be taken apart.
    let one = match sight.timed_out {
        None => is_one(&blocks),
        Some(_) => is_one(&whole(&Sight { timed_out: None, ..*sight })),
    };
    if one { vec![Message { text: notice, blocks }] } else { split(sight, &notice) }
}

/// All of it in one message.
fn whole(sight: &Sight<'_>) -> Vec<Value> {
    let mut blocks = intro(sight);
    for (index, question) in sight.content.questions.iter().enumerate() {
        blocks.extend(told(sight.content, index, question));
        blocks.extend(asked(sight, index, question));
    }
    blocks.extend(last_row(sight));
    blocks
}

/// Whether the card of this content can be shown at all: its messages are within Slack's limits.
pub(in super::super) fn fits(group: &Group, content: &Content) -> Result<(), Rejection> {
    let id = askd_core::AskId::from_bits(u128::MAX);
    let until = Time::from_millis(4_102_444_800_000);
    let sight = Sight { id, short_id: None, group, content, attempt: u8::MAX, numbered: true, until, timed_out: None };
    let size = card(&sight).iter().map(|message| total(&message.blocks)).max().unwrap_or(0);
    let most = card(&sight).iter().map(|message| message.blocks.len()).max().unwrap_or(0);
    for (size, limit, unit) in
        [(size, MAX_TOTAL, "characters in one Slack message"), (most, MAX_BLOCKS, "blocks in one Slack message")]
    {
        if size > limit {
            return Err(Rejection::TooLong { field: "questions".to_owned(), limit, size, unit });
        }
    }
    Ok(())
}

/// What a person reads of it in a notice.
fn notice(sight: &Sight<'_>) -> String {
    if let Some(at) = sight.timed_out {
        return text::top_level(&wording::timed_out_late(&super::closed::plain_time(at)));
    }
    let first = sight.content.questions.first().map(|question| question.text.as_str()).unwrap_or_default();
    let more = sight.content.questions.len() - 1;
    let asks = wording::slack_notice(sight.group.as_str(), &text::first(&text::line(first), NOTICE), more);
    text::top_level(&asks)
}

/// Who asks, until when, and what about: the line is askd's own, the rest is the agent's.
fn intro(sight: &Sight<'_>) -> Vec<Value> {
    let mut blocks: Vec<Value> = retry(sight).into_iter().collect();
    blocks.push(context(&who(sight)));
    if let Some(title) = &sight.content.title {
        blocks.extend(titled(title));
    }
    if let Some(background) = &sight.content.context {
        blocks.extend(sections(&text::mrkdwn(background)));
    }
    blocks
}

/// Heads a card that was posted again, while it waits for an answer.
fn retry(sight: &Sight<'_>) -> Option<Value> {
    let again = sight.numbered && sight.attempt > 1 && sight.timed_out.is_none();
    again.then(|| context(&wording::retry_heading(sight.attempt)))
}

fn who(sight: &Sight<'_>) -> String {
    let code = sight.short_id.map_or("k7", |short| short.as_str());
    if let Some(at) = sight.timed_out {
        let asked = wording::slack_asked(sight.group.as_str(), code);
        return format!("{asked} · {}", wording::timed_out_late(&super::closed::time_of_day(at)));
    }
    wording::slack_who(sight.group.as_str(), code, &super::closed::date(sight.until))
}

/// A title, as a heading if it is short enough for one.
pub(super) fn titled(title: &str) -> Vec<Value> {
    let line = text::line(title);
    if text::units(&line) <= MAX_HEADER { vec![header(&line)] } else { sections(&text::mrkdwn(title)) }
}

/// The question and, where its options need more room than their buttons have, what they say.
pub(super) fn told(content: &Content, index: usize, question: &Question) -> Vec<Value> {
    let mut told = String::new();
    if content.questions.len() > 1 {
        told.push_str(&wording::slack_number(index));
        told.push(' ');
    }
    if let Some(header) = &question.header {
        // A star in it would end the bold early.
        told.extend(["*", &text::mrkdwn(&text::line(header)).replace('*', "∗"), "*\n"]);
    }
    told.push_str(&text::mrkdwn(&question.text));
    if let Some(hint) = question.placeholder.as_deref().filter(|hint| text::units(&text::line(hint)) > MAX_PLACEHOLDER)
    {
        told.extend(["\n_", &text::mrkdwn(&text::line(hint)), "_"]);
    }
    if needs_list(content, question) {
        for (index, choice) in question.choices.iter().enumerate() {
            told.extend(["\n", &(index + 1).to_string(), ". ", &text::mrkdwn(&text::line(&choice.label))]);
            if let Some(description) = &choice.description {
                told.extend([" - ", &text::mrkdwn(&text::line(description))]);
            }
        }
    }
    sections(&told)
}

/// Whether what the options say does not fit into their buttons.
fn needs_list(content: &Content, question: &Question) -> bool {
    let alone = content.questions.len() == 1 && super::one_click(question);
    question.choices.iter().any(|choice| {
        let label = text::units(&text::line(&choice.label));
        let description = choice.description.as_deref().map(|description| text::units(&text::line(description)));
        if alone {
            label > SHORT_LABEL || description.is_some()
        } else {
            label > MAX_OPTION || description > Some(MAX_OPTION)
        }
    })
}

/// What an option's button says: its label, with its number where there is a list, or that alone.
fn label(content: &Content, question: &Question, index: usize, choice: &Choice) -> String {
    let line = text::line(&choice.label);
    let numbered = format!("{}. {line}", index + 1);
    if !needs_list(content, question) {
        line
    } else if text::units(&numbered) <= MAX_OPTION {
        numbered
    } else {
        wording::slack_option(index)
    }
}

/// The elements by which a question is answered.
fn asked(sight: &Sight<'_>, index: usize, question: &Question) -> Vec<Value> {
    let named = |part: &str| block_id(sight.id, &format!("{part}{index}"), sight.attempt);
    let mut blocks = Vec::new();
    match question.kind {
        Kind::Text => {}
        Kind::Select | Kind::Confirm if sight.one_click() => {
            let buttons = question.choices.iter().enumerate().map(|(at, choice)| {
                button(
                    &format!("pick:{index}:{at}"),
                    &label(sight.content, question, at, choice),
                    &at.to_string(),
                    false,
                )
            });
            blocks.push(actions(&named("q"), &buttons.collect::<Vec<_>>()));
        }
        _ => blocks.push(input(
            &named("q"),
            wording::slack_choose(question.kind),
            &choices(sight, index, question),
            !question.required,
        )),
    }
    if question.takes_text() {
        let alone = question.kind == Kind::Text;
        let element = text_input(&format!("text:{index}"), question.placeholder.as_deref(), alone);
        blocks.push(input(&named("t"), wording::slack_type(alone), &element, !(alone && question.required)));
    }
    blocks
}

fn choices(sight: &Sight<'_>, index: usize, question: &Question) -> Value {
    let described = !needs_list(sight.content, question);
    let mut options: Vec<Value> = question
        .choices
        .iter()
        .enumerate()
        .map(|(at, choice)| {
            let description = choice.description.as_deref().filter(|_| described);
            option(&label(sight.content, question, at, choice), &at.to_string(), description)
        })
        .collect();
    let action_id = format!("choice:{index}");
    if question.kind == Kind::MultiSelect {
        return choice("checkboxes", &action_id, &options);
    }
    // A radio button cannot be let go of again: whoever would rather type, or skip, needs one for that.
    if question.takes_text() {
        options.push(option(wording::SLACK_OTHER, OTHER, None));
    }
    if !question.required {
        options.push(option(wording::SLACK_SKIP, SKIP, None));
    }
    let kind = if options.len() <= MAX_RADIOS { "radio_buttons" } else { "static_select" };
    choice(kind, &action_id, &options)
}

fn last_row(sight: &Sight<'_>) -> Option<Value> {
    let questions = &sight.content.questions;
    let submits = !sight.one_click() || questions.iter().any(Question::takes_text);
    let skips = questions.len() == 1 && questions.iter().all(|question| !question.required);
    let mut buttons = Vec::new();
    if submits {
        buttons.push(button("submit", wording::SLACK_SUBMIT, "submit", true));
    }
    if skips {
        buttons.push(button("skip", wording::SLACK_SKIP, "skip", false));
    }
    if sight.timed_out.is_none() {
        buttons.push(button("dismiss", wording::SLACK_DISMISS, "dismiss", false));
    }
    (!buttons.is_empty()).then(|| actions(&block_id(sight.id, "do", sight.attempt), &buttons))
}

/// More than one message: the texts first, then the form.
fn split(sight: &Sight<'_>, notice: &str) -> Vec<Message> {
    let mut texts = Vec::new();
    if let Some(background) = &sight.content.context {
        texts.extend(sections(&text::mrkdwn(background)));
    }
    for (index, question) in sight.content.questions.iter().enumerate() {
        texts.extend(told(sight.content, index, question));
    }
    let mut packed: Vec<Vec<Value>> = Vec::new();
    for block in texts {
        let one = std::slice::from_ref(&block);
        match packed.last_mut() {
            Some(last) if last.len() + 2 < MAX_BLOCKS && total(last) + total(one) + 200 <= COMFORTABLE => {
                last.push(block);
            }
            _ => packed.push(vec![block]),
        }
    }
    let count = packed.len() + 1;
    let head = |part: usize| context(&format!("{} {}", who(sight), wording::slack_part(part, count)));
    let mut messages: Vec<Message> = packed
        .into_iter()
        .enumerate()
        .map(|(part, mut blocks)| {
            blocks.insert(0, head(part + 1));
            Message { text: notice.to_owned(), blocks }
        })
        .collect();
    messages.push(Message { text: notice.to_owned(), blocks: form(sight, head(count)) });
    messages
}

/// The form of a card whose texts stand above it.
fn form(sight: &Sight<'_>, head: Value) -> Vec<Value> {
    let mut blocks: Vec<Value> = retry(sight).into_iter().collect();
    blocks.push(head);
    if let Some(title) = &sight.content.title {
        blocks.extend(titled(title));
    }
    let many = sight.content.questions.len() > 1;
    for (index, question) in sight.content.questions.iter().enumerate() {
        blocks.push(section(&wording::slack_above(many.then_some(index))));
        blocks.extend(asked(sight, index, question));
    }
    blocks.extend(last_row(sight));
    blocks
}
