//! A card that can be answered.

use super::super::text;
use super::blocks::{
    OTHER, SKIP, actions, block_id, button, choice, context, dismiss, header, input, markdown, option, plain, section,
    sections, text_input,
};
use super::{
    COMFORTABLE, CardView, MAX_BLOCKS, MAX_HEADER, MAX_INPUT_LABEL, MAX_OPTION, MAX_RADIOS, MAX_TOTAL, Message,
    SHORT_LABEL, total,
};
use askd_core::{Choice, Content, Group, Kind, Question, Rejection, Style, Time, wording};
use serde_json::Value;

/// Characters of a notice.
const NOTICE: usize = 300;
/// Texts of at most so many bytes, in at most so many questions, are one message.
const SHORT: usize = 400;
const SHORT_QUESTIONS: usize = 2;

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

/// Whether a card is one message. A settled one is rendered after each answer, and nearly every text is so short that this
/// needs no rendering.
pub(super) fn is_one_message(view: &CardView<'_>) -> bool {
    is_certainly_short(view.content) || card(view).len() == 1
}

/// Whether texts are so short that they fit into one message in whatever way they are rendered: each character is at most six
/// units then, and each text stands there twice at most. askd's own words beside them need fewer units than are left.
pub(super) fn is_certainly_short(content: &Content) -> bool {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let of_choice = |choice: &Choice| choice.label.len() + length(&choice.description);
    let of_question = |question: &Question| {
        let choices: usize = question.choices.iter().map(of_choice).sum();
        question.text.len() + length(&question.header) + length(&question.placeholder) + choices
    };
    let questions: usize = content.questions.iter().map(of_question).sum();
    content.questions.len() <= SHORT_QUESTIONS && length(&content.title) + length(&content.context) + questions <= SHORT
}

/// The blocks of the message that people use. Its first line is askd's own, the rest is the agent's. The texts are in
/// it, or stand above it in messages of their own.
fn form(view: &CardView<'_>, first_line: &str, texts_above: bool) -> Vec<Value> {
    let content = view.content;
    let mut blocks: Vec<Value> = retry_heading(view).into_iter().collect();
    blocks.push(context(first_line));
    if let Some(question) = view.one_click() {
        let above = || vec![section(&wording::slack_above(None))];
        blocks.extend(if texts_above { above() } else { texts(content) });
        blocks.push(actions(&block_id(view.id, "q0", view.attempt), &buttons(view, question)));
    } else {
        blocks.extend(content.title.iter().flat_map(|title| title_blocks(title)));
        if !texts_above {
            blocks.extend(background(content));
        }
        for (index, question) in content.questions.iter().enumerate() {
            let label = if texts_above { None } else { label(content, index, question) };
            if label.is_none() && !texts_above {
                blocks.extend(question_blocks(content, index, question));
            }
            let above = || texts_above.then(|| wording::slack_above((content.questions.len() > 1).then_some(index)));
            blocks.extend(inputs(view, index, question, label.or_else(above)));
        }
        blocks.push(last_row(view));
    }
    let in_thread = matches!(&*content.questions, [question] if question.kind != Kind::MultiSelect);
    blocks.extend(in_thread.then(|| context(wording::SLACK_THREAD)));
    blocks
}

fn background(content: &Content) -> Option<Value> {
    content.context.as_deref().map(markdown)
}

/// What people read before they answer: the background and the questions. A question that one click answers comes first.
fn texts(content: &Content) -> Vec<Value> {
    if let [question] = &*content.questions
        && super::one_click(question)
    {
        let asked = sections(&question_text(content, 0, question)).into_iter();
        return asked.chain(background(content)).chain(list(content, question)).collect();
    }
    let questions = content.questions.iter().enumerate();
    let questions = questions.flat_map(|(index, question)| question_blocks(content, index, question));
    background(content).into_iter().chain(questions).collect()
}

fn question_blocks(content: &Content, index: usize, question: &Question) -> Vec<Value> {
    sections(&question_text(content, index, question)).into_iter().chain(list(content, question)).collect()
}

/// Whether the messages of a card with this content are within Slack's limits.
pub(in super::super) fn fits(group: &Group, content: &Content) -> Result<(), Rejection> {
    if is_certainly_short(content) {
        return Ok(());
    }
    let id = askd_core::AskId::from_bits(u128::MAX);
    let until = Time::from_millis(4_102_444_800_000);
    let view = CardView { id, group, content, attempt: u8::MAX, retry: u8::MAX, until, timed_out: None };
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
    let again = view.retry > 0 && view.timed_out.is_none();
    again.then(|| context(&wording::retry_heading(view.retry)))
}

/// Who asks, and until when.
pub(super) fn byline(view: &CardView<'_>) -> String {
    if let Some(at) = view.timed_out {
        let asked = wording::slack_asked(view.group.as_str());
        return format!("{asked} · {}", wording::timed_out_late(&super::closed::time_of_day(at)));
    }
    wording::slack_who(view.group.as_str(), &super::closed::date(view.until))
}

/// A title, as a heading if it is short enough for one.
pub(super) fn title_blocks(title: &str) -> Vec<Value> {
    let line = text::line(title);
    if text::units(&line) <= MAX_HEADER { vec![header(&line)] } else { sections(&text::mrkdwn(title)) }
}

/// The question in bold, under its number or its title, and its header.
pub(super) fn question_text(content: &Content, index: usize, question: &Question) -> String {
    let several = content.questions.len() > 1;
    let title = content.title.iter().filter(|_| !several && super::one_click(question));
    let mut lines: Vec<String> = title.map(|title| text::mrkdwn(title)).collect();
    lines.extend(question.header.as_deref().map(|header| text::mrkdwn(&text::line(header))));
    lines.push(text::bold(&numbered(several, index, &question.text)));
    lines.join("\n")
}

fn numbered(several: bool, index: usize, text: &str) -> String {
    if several { format!("{}. {text}", index + 1) } else { text.to_owned() }
}

/// The question as the label of its field, if it is one line and has no list of options.
pub(super) fn label(content: &Content, index: usize, question: &Question) -> Option<String> {
    let header = question.header.as_deref().map(|header| format!("{} · ", text::line(header))).unwrap_or_default();
    let line = format!("{header}{}", text::line(&question.text));
    let line = numbered(content.questions.len() > 1, index, &line);
    let is_line = !question.text.trim().contains('\n') && text::units(&line) <= MAX_INPUT_LABEL;
    let listed_elsewhere = content.questions.len() == 1 && super::one_click(question);
    (is_line && (listed_elsewhere || !needs_list(content, question))).then_some(line)
}

/// The options, if one of them is too long for its button.
fn list(content: &Content, question: &Question) -> Vec<Value> {
    if !needs_list(content, question) {
        return Vec::new();
    }
    let lines = question.choices.iter().enumerate().map(|(index, choice)| {
        let description = choice.description.as_deref().map(|text| format!(" - {}", text::mrkdwn(&text::line(text))));
        format!("{}. {}{}", index + 1, text::mrkdwn(&text::line(&choice.label)), description.unwrap_or_default())
    });
    sections(&lines.collect::<Vec<_>>().join("\n"))
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
fn option_label(content: &Content, question: &Question, index: usize, choice: &Choice) -> String {
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

/// The row of a question that a click answers.
fn buttons(view: &CardView<'_>, question: &Question) -> Vec<Value> {
    let options = question.choices.iter().enumerate().map(|(at, choice)| {
        let label = option_label(view.content, question, at, choice);
        button(&format!("pick:0:{at}"), &label, &at.to_string(), choice.style.map(Style::name))
    });
    let mut row: Vec<Value> = options.collect();
    row.extend(question.takes_text().then(|| button("other:0", wording::SLACK_OTHER_ANSWER, OTHER, None)));
    row.extend((!question.required).then(skip));
    row.extend(view.timed_out.is_none().then(dismiss));
    row
}

fn skip() -> Value {
    button("skip", wording::SLACK_SKIP, SKIP, None)
}

/// The fields of a question in a form, the first with this label.
fn inputs(view: &CardView<'_>, index: usize, question: &Question, label: Option<String>) -> Vec<Value> {
    let named = |part: &str| block_id(view.id, &format!("{part}{index}"), view.attempt);
    if question.kind == Kind::Text {
        let label = label.unwrap_or_else(|| wording::slack_type(true).to_owned());
        return vec![text_input(&named("t"), &label, question, index, !question.required)];
    }
    let stands_in_it = label.is_some();
    let label = label.unwrap_or_else(|| wording::slack_choose(question.kind).to_owned());
    let mut field = input(&named("q"), &label, &choices(view, index, question), !question.required);
    if question.kind == Kind::MultiSelect && stands_in_it {
        field["hint"] = plain(wording::SLACK_SEVERAL);
    }
    let other = || text_input(&named("t"), wording::slack_type(false), question, index, true);
    std::iter::once(field).chain(question.takes_text().then(other)).collect()
}

fn choices(view: &CardView<'_>, index: usize, question: &Question) -> Value {
    let described = !needs_list(view.content, question);
    let mut options: Vec<Value> = question
        .choices
        .iter()
        .enumerate()
        .map(|(at, choice)| {
            let description = choice.description.as_deref().filter(|_| described);
            option(&option_label(view.content, question, at, choice), &at.to_string(), description)
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

/// The buttons of a form.
fn last_row(view: &CardView<'_>) -> Value {
    let mut row = vec![button("submit", wording::SLACK_SUBMIT, "submit", Some("primary"))];
    row.extend(matches!(&*view.content.questions, [question] if !question.required).then(skip));
    row.extend(view.timed_out.is_none().then(dismiss));
    actions(&block_id(view.id, "do", view.attempt), &row)
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
    let asks = wording::slack_asks(view.group.as_str());
    let first_line = |who: &str, part: usize| format!("{who} {}", wording::slack_part(part, count));
    let mut messages: Vec<Message> = packed
        .into_iter()
        .enumerate()
        .map(|(part, mut blocks)| {
            blocks.insert(0, context(&first_line(&asks, part + 1)));
            Message { text: notice.to_owned(), blocks }
        })
        .collect();
    let blocks = form(view, &first_line(&byline(view), count), true);
    messages.push(Message { text: notice.to_owned(), blocks });
    messages
}
