//! What people read on WhatsApp: an ask as numbered text, split over messages where it is long. Pure.
//!
//! The sentences are in [`wording`]. This file puts them in order, limits the length of a message, and keeps the agent's
//! words from formatting, linking, or hiding characters.

use super::deadline_text;
use askd_core::{Ask, Content, Question, Stage, wording};
use jiff::Zoned;

/// The longest text message, in UTF-16 units (Cloud API: 4096 characters, counted the strictest way).
const MAX_UNITS: usize = 4096;
/// Extensions of files that are no top-level domains: apps do not make links of these.
const FILES: &[&str] = &[
    "js", "ts", "json", "yaml", "yml", "toml", "txt", "html", "css", "exe", "dll", "lock", "cpp", "csv", "xml", "sql",
    "pdf", "png", "jpg", "log", "php", "rb", "java", "go", "conf",
];
/// An invisible character of no width: it keeps two characters from having a meaning together.
const APART: char = '\u{200b}';
/// The characters that it stands behind.
const TAMED: &str = "@:.*_~`>-";

/// How a question is put, besides what it asks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct How<'a> {
    /// The group that asks, where several groups use the chat.
    pub(super) group: Option<&'a str>,
    /// The group that asks, where it alone uses the chat.
    pub(super) agent: Option<&'a str>,
    /// The code to answer with, where several asks are open in the chat.
    pub(super) code: Option<&'a str>,
    /// It is sent a second time, because the first may have been lost.
    pub(super) repeat: bool,
    /// Until when it can be answered, as the last line.
    pub(super) until: Option<&'a str>,
}

/// One question of an ask, as the messages to send.
pub(super) fn question(content: &Content, index: usize, how: How<'_>) -> Vec<String> {
    let Some(question) = content.questions.get(index) else { return Vec::new() };
    let mut head = Vec::new();
    if how.repeat {
        head.push(wording::REPEAT.to_owned());
    }
    head.extend(how.agent.filter(|_| index == 0).map(wording::asked_by));
    if index == 0 {
        for above in [&content.title, &content.context].into_iter().flatten() {
            head.push(tame(above));
            head.push(String::new());
        }
    }
    if content.questions.len() > 1 {
        let number = wording::question_of(index + 1, content.questions.len());
        head.push(if index == 0 { number } else { format!("{} {number}", wording::GOT_IT) });
    }
    head.extend(question.header.as_deref().map(one_line));
    head.push(wording::asking(how.group, &tame(&question.text)));
    let options = question.choices.iter().enumerate().map(|(at, choice)| {
        let description = choice.description.as_deref().map(|text| format!(" - {}", one_line(text)));
        format!("{}. {}{}", at + 1, one_line(&choice.label), description.unwrap_or_default())
    });
    let mut tail: Vec<String> = options.collect();
    tail.extend([String::new(), wording::how_to_reply(question)]);
    tail.extend(how.code.map(|code| wording::with_code(code, question)));
    if let Some(until) = how.until {
        tail.extend([String::new(), until.to_owned()]);
    }
    pack(&head.join("\n"), &tail.join("\n"))
}

/// A question that was asked too often.
pub(super) fn blocked(ask: &Ask) -> Vec<String> {
    let Some(block) = ask.block() else { return Vec::new() };
    let several = ask.content.questions.len() > 1;
    let mut head = vec![wording::chat_blocked(ask.group.as_str(), block.times, several)];
    head.extend(ask.content.title.iter().map(|title| tame(title)));
    head.extend(ask.content.questions.iter().map(|question| {
        let bullet = if several { "• " } else { "" };
        format!("{bullet}{}", tame(&question.text))
    }));
    pack(&head.join("\n"), &format!("\n{}", wording::how_to_allow(ask.short_id.as_str())))
}

/// The reader of a closing message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// The person who ended the ask.
    Ender,
    /// A person who had begun to answer it.
    HadBegun,
    /// Any other person who was asked.
    Others,
}

/// Whether it has timed out and a message can answer it. What was asked one by one cannot be answered late here: the inbox takes it.
pub(super) fn takes_late(ask: &Ask) -> bool {
    ask.is_late_open() && ask.content.questions.len() == 1
}

/// How an ask ended.
pub(super) fn closing(ask: &Ask, audience: Audience, now: &Zoned) -> Vec<String> {
    let Stage::Settled { at, .. } = ask.stage else { return Vec::new() };
    let Some(line) = ask.closing_line() else { return Vec::new() };
    let line = tame(&line);
    if takes_late(ask) {
        let late = wording::timed_out_late(&deadline_text::moment(at, now));
        return pack("", &format!("{late} {}", wording::late_by_message(ask.short_id.as_str())));
    }
    let mut lines = vec![line.as_str()];
    lines.extend((audience == Audience::HadBegun).then_some(wording::NOT_USED));
    // The closing line of a stopped session already says what came of it. What can be answered late elsewhere cannot be here.
    lines.extend(wording::remark(ask.remark()).filter(|remark| *remark != line && !ask.is_late_open()));
    pack("", &lines.join("\n"))
}

/// What is new about a question that was closed before; empty if there is nothing to say. A person who answered it late
/// has had a receipt.
pub(super) fn update(ask: &Ask, audience: Audience) -> Vec<String> {
    let Some(remark) = wording::remark(ask.remark()).filter(|_| !ask.is_late_open()) else { return Vec::new() };
    match ask.closing_line().filter(|_| ask.late_outcome().is_some() && audience != Audience::Ender) {
        Some(line) => pack("", &format!("{}\n{remark}", tame(&line))),
        None => pack("", remark),
    }
}

/// A text of ours as messages.
pub(super) fn note(text: &str) -> Vec<String> {
    pack("", text)
}

/// A few words of a question, for a list of several.
pub(super) fn in_short(question: &Question) -> String {
    few_words(&question.text)
}

/// The same of any text.
pub(super) fn few_words(text: &str) -> String {
    let text = one_line(text);
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", text[..at].trim_end()),
        None => text,
    }
}

/// A text of the agent on one line.
pub(super) fn one_line(text: &str) -> String {
    tame(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A text of the agent as nothing but readable words.
pub(super) fn tame(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let visible: Vec<char> = text.replace("\r\n", "\n").chars().filter_map(visible).collect();
    let mut newlines = 0;
    for (at, &c) in visible.iter().enumerate() {
        newlines = if c == '\n' { newlines + 1 } else { 0 };
        if newlines > 2 {
            continue;
        }
        let before = at.checked_sub(1).and_then(|at| visible.get(at)).copied();
        let after = visible.get(at + 1).copied();
        let link = c == '@' || (c == ':' && after == Some('/')) || (c == '.' && links(&visible, at));
        if link || opens_format(before, c, after) {
            out.extend([c, APART]);
        } else {
            out.push(c);
        }
    }
    out.trim().to_owned()
}

/// What a person wrote, without what [`tame`] put between the words if they are copied from a message of ours. Some
/// scripts have that character between words of their own.
pub(super) fn copied(said: &str) -> String {
    let mut before = None;
    let is_theirs = |c: &char| {
        let after = before.replace(*c);
        *c != APART || after.is_none_or(|after| !TAMED.contains(after))
    };
    said.chars().filter(is_theirs).collect()
}

/// Drops control characters, and those that turn or hide text.
fn visible(c: char) -> Option<char> {
    match c {
        '\n' => Some(c),
        '\t' => Some(' '),
        '\u{2028}' | '\u{2029}' => Some('\n'),
        '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{061c}'
        | '\u{2060}'..='\u{2069}'
        | '\u{202a}'..='\u{202e}'
        | '\u{feff}'
        | '\u{e0000}'..='\u{e007f}' => None,
        _ if c.is_control() => None,
        _ => Some(c),
    }
}

/// Whether a character could begin bold, code, a quotation or a list.
fn opens_format(before: Option<char>, c: char, after: Option<char>) -> bool {
    let at_edge = before.is_none_or(|c| !c.is_alphanumeric());
    let line_start = before.is_none_or(|c| c == '\n');
    match c {
        '*' | '_' | '~' | '`' => at_edge && after.is_some_and(|c| !c.is_whitespace()),
        '>' | '-' => line_start && after == Some(' '),
        _ => false,
    }
}

/// Whether the dot stands in what could be a domain.
fn links(text: &[char], dot: usize) -> bool {
    let before = dot.checked_sub(1).and_then(|at| text.get(at)).is_some_and(|c| c.is_alphanumeric());
    let rest = text.get(dot + 1..).unwrap_or_default();
    let domain: String = rest.iter().take_while(|c| c.is_alphabetic()).flat_map(|c| c.to_lowercase()).collect();
    before && domain.chars().count() >= 2 && !FILES.contains(&domain.as_str())
}

pub(super) fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// The fewest messages that hold everything, cut between lines, else between words. The tail, with the choices, stays in
/// one piece if it fits into one message.
fn pack(head: &str, tail: &str) -> Vec<String> {
    let mut pieces: Vec<&str> = head.split('\n').filter(|_| !head.is_empty()).flat_map(split_line).collect();
    if units(tail) <= MAX_UNITS {
        pieces.push(tail);
    } else {
        pieces.extend(tail.split('\n').flat_map(split_line));
    }
    let mut messages: Vec<String> = Vec::new();
    for piece in pieces {
        match messages.last_mut() {
            Some(last) if units(last) + 1 + units(piece) <= MAX_UNITS => last.extend(["\n", piece]),
            _ => messages.push(piece.to_owned()),
        }
    }
    messages.iter().map(|text| text.trim_matches('\n').to_owned()).filter(|text| !text.is_empty()).collect()
}

/// A line in pieces that fit into a message each, cut between words if possible.
fn split_line(mut line: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    while units(line) > MAX_UNITS {
        let mut taken = 0;
        let fits = line.char_indices().take_while(|(_, c)| {
            taken += c.len_utf16();
            taken <= MAX_UNITS
        });
        let end = fits.last().map_or(line.len(), |(at, c)| at + c.len_utf8());
        let end = line[..end].rfind(' ').filter(|space| *space > 0).unwrap_or(end);
        pieces.push(line[..end].trim_end());
        line = line[end..].trim_start();
    }
    pieces.push(line);
    pieces
}
