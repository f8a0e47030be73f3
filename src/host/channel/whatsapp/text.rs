//! What people read on WhatsApp: an ask as numbered text, split over messages where it is long. Pure.
//!
//! The sentences are in [`wording`]; this says where they stand, how long a message may be, and what the
//! agent's words may not do: format, link, or hide characters.

use super::deadline_text;
use askd_core::{Ask, Content, Question, Stage, Time, wording};

/// The longest text message, in UTF-16 units (Cloud API: 4096 characters, counted the strictest way).
const MAX_UNITS: usize = 4096;
/// Extensions of files that are no top-level domains: nobody makes links of these.
const FILES: &[&str] = &[
    "js", "ts", "json", "yaml", "yml", "toml", "txt", "html", "css", "exe", "dll", "lock", "cpp", "csv", "xml", "sql",
    "pdf", "png", "jpg", "log", "php", "rb", "java", "go", "conf",
];
/// Invisible and of no width: keeps two characters from meaning something together.
const APART: char = '\u{200b}';

/// How a question is put, besides what it asks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct How<'a> {
    /// Who asks, where several groups use the chat.
    pub(super) group: Option<&'a str>,
    /// The code to answer with, where several asks are open in the chat.
    pub(super) code: Option<&'a str>,
    /// Sent a second time because the first may have been lost.
    pub(super) repeat: bool,
    /// Until when it can be answered: a line of its own, below.
    pub(super) until: Option<&'a str>,
}

/// One question of an ask, as the messages to send.
pub(super) fn question(content: &Content, index: usize, how: How<'_>) -> Vec<String> {
    let Some(question) = content.questions.get(index) else { return Vec::new() };
    let mut head = Vec::new();
    if how.repeat {
        head.push(wording::REPEAT.to_owned());
    }
    if index == 0 {
        for above in [&content.title, &content.context].into_iter().flatten() {
            head.push(tame(above));
            head.push(String::new());
        }
    } else {
        head.extend([wording::GOT_IT.to_owned(), String::new()]);
    }
    if content.questions.len() > 1 {
        head.push(wording::question_of(index + 1, content.questions.len()));
    }
    head.extend(question.header.as_deref().map(one_line));
    head.push(wording::asking(how.group, &tame(&question.text)));
    let options = question.choices.iter().enumerate().map(|(at, choice)| {
        let description = choice.description.as_deref().map(|text| format!(" - {}", one_line(text)));
        format!("{}. {}{}", at + 1, one_line(&choice.label), description.unwrap_or_default())
    });
    let mut tail: Vec<String> = options.collect();
    tail.extend([String::new(), wording::how_to_reply(question)]);
    tail.extend(how.code.map(wording::with_code));
    if let Some(until) = how.until {
        tail.extend([String::new(), until.to_owned()]);
    }
    pack(&head.join("\n"), &tail.join("\n"))
}

/// A question that was asked too often.
pub(super) fn blocked(ask: &Ask) -> Vec<String> {
    let Some(block) = &ask.block else { return Vec::new() };
    let several = ask.content.questions.len() > 1;
    let mut head = vec![wording::chat_blocked(ask.group.as_str(), block.times, several)];
    head.extend(ask.content.title.iter().map(|title| tame(title)));
    head.extend(ask.content.questions.iter().map(|question| {
        let bullet = if several { "• " } else { "" };
        format!("{bullet}{}", tame(&question.text))
    }));
    pack(&head.join("\n"), &format!("\n{}", wording::how_to_allow(ask.short_id.as_str())))
}

/// Whom a closing line is told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// Who ended the ask.
    Ender,
    /// Who had begun to answer it.
    HadBegun,
    /// Whoever else was asked.
    Others,
}

/// How an ask ended.
pub(super) fn closing(ask: &Ask, audience: Audience, now: Time) -> Vec<String> {
    let Stage::Settled { at, .. } = ask.stage else { return Vec::new() };
    let Some(line) = ask.closing_line() else { return Vec::new() };
    let line = tame(&line);
    // What was asked one by one cannot be answered late here: the inbox takes it.
    if ask.is_late_open() && ask.content.questions.len() == 1 {
        let late = wording::timed_out_late(&deadline_text::time_of_day(at, now));
        return pack("", &format!("{late} {}", wording::late_by_message(ask.short_id.as_str())));
    }
    let got_it = audience == Audience::Ender && ask.ended_by().is_some();
    let mut lines = Vec::from_iter(got_it.then_some(wording::GOT_IT));
    lines.push(&line);
    lines.extend((audience == Audience::HadBegun).then_some(wording::NOT_USED));
    // Said late, it says what became of it too. What a stopped session is told by is its closing line.
    lines.extend(wording::remark(ask.remark()).filter(|remark| *remark != line));
    pack("", &lines.join("\n"))
}

/// What is new about a question that was closed before; nothing, if nothing has to be said. Who answered it late
/// has a receipt.
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
    let text = one_line(&question.text);
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", text[..at].trim_end()),
        None => text,
    }
}

/// A text of the agent on one line.
fn one_line(text: &str) -> String {
    tame(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A text of the agent that can be read and does nothing else.
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

/// Control characters, and those that turn or hide text, are dropped.
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

fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// As few messages as hold everything: cut between lines, else between words; the tail, with what can be
/// chosen, stays in one piece if it can.
fn pack(head: &str, tail: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let mut current = String::new();
    for line in head.split('\n').filter(|_| !head.is_empty()) {
        add(&mut messages, &mut current, line);
    }
    if units(tail) <= MAX_UNITS {
        add_whole(&mut messages, &mut current, tail);
    } else {
        tail.split('\n').for_each(|line| add(&mut messages, &mut current, line));
    }
    messages.push(current);
    messages.iter().map(|text| text.trim_matches('\n').to_owned()).filter(|text| !text.is_empty()).collect()
}

fn add_whole(messages: &mut Vec<String>, current: &mut String, text: &str) {
    if current.is_empty() {
        current.push_str(text);
    } else if units(current) + 1 + units(text) <= MAX_UNITS {
        current.push('\n');
        current.push_str(text);
    } else {
        messages.push(std::mem::replace(current, text.to_owned()));
    }
}

fn add(messages: &mut Vec<String>, current: &mut String, line: &str) {
    if units(line) <= MAX_UNITS {
        // An empty line at the top of a message would be lost.
        return add_whole(messages, current, line);
    }
    let mut rest = line;
    while units(rest) > MAX_UNITS {
        let mut taken = 0;
        let fits = rest.char_indices().take_while(|(_, c)| {
            taken += c.len_utf16();
            taken <= MAX_UNITS
        });
        let end = fits.last().map_or(rest.len(), |(at, c)| at + c.len_utf8());
        let end = rest[..end].rfind(' ').filter(|space| *space > 0).unwrap_or(end);
        add_whole(messages, current, rest[..end].trim_end());
        rest = rest[end..].trim_start();
    }
    add_whole(messages, current, rest);
}
