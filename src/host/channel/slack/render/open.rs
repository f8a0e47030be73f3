//! A card that can be answered.

use super::super::text;
use super::blocks::{
    OTHER, SKIP, actions, block_id, button, choice, context, header, input, option, section, sections, text_input,
};
use super::{
    COMFORTABLE, CardView, MAX_BLOCKS, MAX_HEADER, MAX_OPTION, MAX_PLACEHOLDER, MAX_RADIOS, MAX_TOTAL, Message,
    SHORT_LABEL, total,
};
use askd_core::{Choice, Content, Group, Kind, Question, Rejection, Time, wording};
use serde_json::Value;

/// Characters of a notice.
const NOTICE: usize = 300;

/// The messages of a card; the last one is what people use.
pub(in super::super) fn card(view: &CardView<'_>) -> Vec<Message> {
    let notice = notice(view);
    let one_message = |view: &CardView<'_>| form(view, &byline(view), false);
    let blocks = one_message(view);
    let is_one = |blocks: &[Value]| blocks.len() <= MAX_BLOCKS && total(blocks) <= COMFORTABLE;
    // After its timeout a card has as many messages as before: posted messages cannot be joined or split.
    let one = match view.timed_out {
        None => is_one(&blocks),
        Some(_) => is_one(&one_message(&CardView { timed_out: None, ..*view })),
    };
    if one { vec![Message { text: notice, blocks }] } else { split(view, &notice) }
}

/// The blocks of the message that people use. Its first line is askd's own, the rest is the agent's. The texts are in
/// it, or stand above it in messages of their own.
fn form(view: &CardView<'_>, first_line: &str, texts_above: bool) -> Vec<Value> {
    let content = view.content;
    let mut blocks: Vec<Value> = retry_heading(view).into_iter().collect();
    blocks.push(context(first_line));
    blocks.extend(content.title.iter().flat_map(|title| title_blocks(title)));
    if !texts_above {
        blocks.extend(background(content));
    }
    let many = content.questions.len() > 1;
    for (index, question) in content.questions.iter().enumerate() {
        if texts_above {
            blocks.push(section(&wording::slack_above(many.then_some(index))));
        } else {
            blocks.extend(question_text(content, index, question));
        }
        blocks.extend(inputs(view, index, question));
    }
    blocks.extend(last_row(view));
    blocks
}

fn background(content: &Content) -> Vec<Value> {
    content.context.iter().flat_map(|background| sections(&text::mrkdwn(background))).collect()
}

/// What people read before they answer: the background and the questions.
pub(super) fn texts(content: &Content) -> Vec<Value> {
    let questions = content.questions.iter().enumerate();
    let questions = questions.flat_map(|(index, question)| question_text(content, index, question));
    background(content).into_iter().chain(questions).collect()
}

/// Whether the messages of a card with this content are within Slack's limits.
pub(in super::super) fn fits(group: &Group, content: &Content) -> Result<(), Rejection> {
    let id = askd_core::AskId::from_bits(u128::MAX);
    let until = Time::from_millis(4_102_444_800_000);
    let view =
        CardView { id, short_id: None, group, content, attempt: u8::MAX, numbered: true, until, timed_out: None };
    let messages = card(&view);
    let size = messages.iter().map(|message| total(&message.blocks)).max().unwrap_or(0);
    let most = messages.iter().map(|message| message.blocks.len()).max().unwrap_or(0);
    for (size, limit, unit) in
        [(size, MAX_TOTAL, "characters in one Slack message"), (most, MAX_BLOCKS, "blocks in one Slack message")]
    {
        if size > limit {
            return Err(Rejection::TooLong { field: "questions".to_owned(), limit, size, unit });
        }
    }
    Ok(())
}

/// The text of a notification.
fn notice(view: &CardView<'_>) -> String {
    if let Some(at) = view.timed_out {
        return text::top_level(&wording::timed_out_late(&super::closed::plain_time(at)));
    }
    let first = view.content.questions.first().map(|question| question.text.as_str()).unwrap_or_default();
    let more = view.content.questions.len() - 1;
    let asks = wording::slack_notice(view.group.as_str(), &text::first(&text::line(first), NOTICE), more);
    text::top_level(&asks)
}

/// The heading of a card that was posted again and waits for an answer.
fn retry_heading(view: &CardView<'_>) -> Option<Value> {
    let again = view.numbered && view.attempt > 1 && view.timed_out.is_none();
    again.then(|| context(&wording::retry_heading(view.attempt)))
}

/// Who asks, and until when.
fn byline(view: &CardView<'_>) -> String {
    let code = view.short_id.map_or("k7", |short| short.as_str());
    if let Some(at) = view.timed_out {
        let asked = wording::slack_asked(view.group.as_str(), code);
        return format!("{asked} · {}", wording::timed_out_late(&super::closed::time_of_day(at)));
    }
    wording::slack_who(view.group.as_str(), code, &super::closed::date(view.until))
}

/// A title, as a heading if it is short enough for one.
pub(super) fn title_blocks(title: &str) -> Vec<Value> {
    let line = text::line(title);
    if text::units(&line) <= MAX_HEADER { vec![header(&line)] } else { sections(&text::mrkdwn(title)) }
}

/// The question, and a list of its options if they are too long for their buttons.
fn question_text(content: &Content, index: usize, question: &Question) -> Vec<Value> {
    let mut shown = String::new();
    if content.questions.len() > 1 {
        shown.push_str(&wording::slack_number(index));
        shown.push(' ');
    }
    if let Some(header) = &question.header {
        // An asterisk would end the bold early.
        shown.extend(["*", &text::mrkdwn(&text::line(header)).replace('*', "∗"), "*\n"]);
    }
    shown.push_str(&text::mrkdwn(&question.text));
    if let Some(hint) = question.placeholder.as_deref().filter(|hint| text::units(&text::line(hint)) > MAX_PLACEHOLDER)
    {
        shown.extend(["\n_", &text::mrkdwn(&text::line(hint)), "_"]);
    }
    if needs_list(content, question) {
        for (index, choice) in question.choices.iter().enumerate() {
            shown.extend(["\n", &(index + 1).to_string(), ". ", &text::mrkdwn(&text::line(&choice.label))]);
            if let Some(description) = &choice.description {
                shown.extend([" - ", &text::mrkdwn(&text::line(description))]);
            }
        }
    }
    sections(&shown)
}

/// Whether an option is too long for its button.
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

/// The text on the button of an option: its label, with its number if there is a list, or the number alone.
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

/// The elements with which people answer a question.
fn inputs(view: &CardView<'_>, index: usize, question: &Question) -> Vec<Value> {
    let named = |part: &str| block_id(view.id, &format!("{part}{index}"), view.attempt);
    let mut blocks = Vec::new();
    match question.kind {
        Kind::Text => {}
        Kind::Select | Kind::Confirm if view.one_click() => {
            let buttons = question.choices.iter().enumerate().map(|(at, choice)| {
                button(
                    &format!("pick:{index}:{at}"),
                    &label(view.content, question, at, choice),
                    &at.to_string(),
                    false,
                )
            });
            blocks.push(actions(&named("q"), &buttons.collect::<Vec<_>>()));
        }
        _ => blocks.push(input(
            &named("q"),
            wording::slack_choose(question.kind),
            &choices(view, index, question),
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

fn choices(view: &CardView<'_>, index: usize, question: &Question) -> Value {
    let described = !needs_list(view.content, question);
    let mut options: Vec<Value> = question
        .choices
        .iter()
        .enumerate()
        .map(|(at, choice)| {
            let description = choice.description.as_deref().filter(|_| described);
            option(&label(view.content, question, at, choice), &at.to_string(), description)
        })
        .collect();
    let action_id = format!("choice:{index}");
    if question.kind == Kind::MultiSelect {
        return choice("checkboxes", &action_id, &options);
    }
    // A person cannot clear a radio button again, so typing and skipping need radio buttons of their own.
    if question.takes_text() {
        options.push(option(wording::SLACK_OTHER, OTHER, None));
    }
    if !question.required {
        options.push(option(wording::SLACK_SKIP, SKIP, None));
    }
    let kind = if options.len() <= MAX_RADIOS { "radio_buttons" } else { "static_select" };
    choice(kind, &action_id, &options)
}

fn last_row(view: &CardView<'_>) -> Option<Value> {
    let questions = &view.content.questions;
    let submits = !view.one_click() || questions.iter().any(Question::takes_text);
    let skips = questions.len() == 1 && questions.iter().all(|question| !question.required);
    let mut buttons = Vec::new();
    if submits {
        buttons.push(button("submit", wording::SLACK_SUBMIT, "submit", true));
    }
    if skips {
        buttons.push(button("skip", wording::SLACK_SKIP, "skip", false));
    }
    if view.timed_out.is_none() {
        buttons.push(button("dismiss", wording::SLACK_DISMISS, "dismiss", false));
    }
    (!buttons.is_empty()).then(|| actions(&block_id(view.id, "do", view.attempt), &buttons))
}

/// A card of several messages: the texts first, then the form.
fn split(view: &CardView<'_>, notice: &str) -> Vec<Message> {
    let mut packed: Vec<Vec<Value>> = Vec::new();
    for block in texts(view.content) {
        let one = std::slice::from_ref(&block);
        match packed.last_mut() {
            Some(last) if last.len() + 2 < MAX_BLOCKS && total(last) + total(one) + 200 <= COMFORTABLE => {
                last.push(block);
            }
            _ => packed.push(vec![block]),
        }
    }
    let count = packed.len() + 1;
    let first_line = |part: usize| format!("{} {}", byline(view), wording::slack_part(part, count));
    let mut messages: Vec<Message> = packed
        .into_iter()
        .enumerate()
        .map(|(part, mut blocks)| {
            blocks.insert(0, context(&first_line(part + 1)));
            Message { text: notice.to_owned(), blocks }
        })
        .collect();
    messages.push(Message { text: notice.to_owned(), blocks: form(view, &first_line(count), true) });
    messages
}
