//! Makes text of agents and people safe for Slack: it cannot mention, link or pose, while *bold*, _italic_ and `code`
//! stay readable. Pure.
//!
//! Slack does not publish how it finds links, so there are three layers. `&`, `<` and `>` are escaped, so that nothing
//! can write `<!...>`, `<@...>` or `<https...>`. Text objects say `verbatim`, so that Slack parses nothing. And an
//! invisible joint breaks what looks like a link or a mention.

/// Breaks a link or a mention, invisibly.
const JOINT: char = '\u{2060}';
/// Replaces characters that are invisible or reverse the text.
const REPLACEMENT: char = '\u{fffd}';
/// How many combining marks one letter keeps; more of them would cover other lines.
const MAX_MARKS: usize = 4;

/// The longest text, in units, that bold makes easier to read.
const GLANCE: usize = 300;
/// Begins and ends a block of code.
const FENCE: &str = "```";

/// The length of a text by Slack's limits: in UTF-16 units, because Slack does not say and this count is the largest.
pub(super) fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Keeps what is visible, with line breaks and single empty lines, so that nothing is pushed out of sight.
fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    let mut marks = 0;
    for c in text.trim().chars() {
        marks = if combines(c) { marks + 1 } else { 0 };
        match c {
            '\n' | '\u{85}' | '\u{2028}' | '\u{2029}' if visible.ends_with("\n\n") => {}
            '\n' | '\u{85}' | '\u{2028}' | '\u{2029}' => visible.push('\n'),
            '\t' => visible.push(' '),
            '\r'
            | '\u{ad}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{2060}'..='\u{2064}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}' => {}
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}' => {
                visible.push(REPLACEMENT);
            }
            c if c.is_control() => visible.push(REPLACEMENT),
            _ if marks > MAX_MARKS => {}
            c => visible.push(c),
        }
    }
    // A text of invisible characters has to be visible, too.
    if visible.trim().is_empty() { REPLACEMENT.to_string() } else { visible }
}

fn combines(c: char) -> bool {
    matches!(
        c,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
            | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}'
    )
}

/// For `plain_text` objects, which Slack does not parse: one line.
pub(super) fn line(text: &str) -> String {
    visible(text).split('\n').map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// For `mrkdwn` objects that say `verbatim`, and for top-level text.
pub(super) fn mrkdwn(text: &str) -> String {
    escaped(&jointed(&visible(text)))
}

/// As [`mrkdwn`], in bold: each line by itself. A text that is long or has marks of its own stays as it is.
pub(super) fn bold(text: &str) -> String {
    let safe = mrkdwn(text);
    if units(&safe) > GLANCE || safe.contains('*') || safe.contains("```") {
        return safe;
    }
    let bold = |line: &str| if line.trim().is_empty() { String::new() } else { format!("*{}*", line.trim()) };
    safe.split('\n').map(bold).collect::<Vec<_>>().join("\n")
}

/// The beginning of a text on one line as [`mrkdwn`] of at most `most` units, which can stand in bold.
pub(super) fn fitted(text: &str, most: usize) -> String {
    // An asterisk would end the bold early.
    let text = line(text).replace('*', "∗");
    fit(most, most, |count| mrkdwn(&first(&text, count)))
}

/// The text that `of` gives for so many characters, or for as many as give at most `most` units.
pub(super) fn fit(mut count: usize, most: usize, of: impl Fn(usize) -> String) -> String {
    loop {
        let text = of(count);
        let size = units(&text);
        if size <= most || count == 0 {
            return text;
        }
        count = count * most / size;
    }
}

/// For `markdown` blocks, which Slack parses as Markdown: emphasis, lists and code stay, links and mentions do not.
pub(super) fn markdown(text: &str) -> String {
    let text = visible(text);
    let lines: Vec<&str> = text.split('\n').collect();
    let ends = |line: &&str| line.starts_with(FENCE) && line.trim_end().bytes().all(|b| b == b'`');
    let mut in_code = false;
    let mut safe = Vec::with_capacity(lines.len());
    for (at, line) in lines.iter().enumerate() {
        let code = in_code;
        in_code = if in_code {
            !ends(line)
        } else {
            let opens = line.strip_prefix(FENCE).is_some_and(|rest| !rest.contains('`'));
            opens && lines[at + 1..].iter().any(ends)
        };
        safe.push(if code || in_code { (*line).to_owned() } else { without_hosts(line) });
    }
    inert(&jointed(&safe.join("\n")))
}

/// Breaks the names of hosts in a line of Markdown, but not in its code.
fn without_hosts(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('`') {
        let (before, code) = rest.split_at(at);
        let ticks = code.len() - code.trim_start_matches('`').len();
        let (mark, inside) = code.split_at(ticks);
        let closed = inside.match_indices(mark).map(|(at, _)| at).find(|&at| {
            let (inside, after) = (&inside[..at], &inside[at + ticks..]);
            !inside.ends_with('`') && !after.starts_with('`')
        });
        out.push_str(&hosts_broken(before));
        let end = closed.filter(|_| !before.ends_with('\\')).map_or(ticks, |end| end + 2 * ticks);
        out.push_str(&code[..end]);
        rest = &code[end..];
    }
    out + &hosts_broken(rest)
}

/// Breaks what could make a link, an image, a mention or a character out of other ones in Markdown.
fn inert(text: &str) -> String {
    let mut inert = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        inert.push(c);
        let next = chars.peek().copied().unwrap_or(' ');
        let breaks = match c {
            '<' => true,
            '&' => next == '#' || next.is_alphanumeric(),
            ']' => matches!(next, '(' | '[' | ':'),
            _ => false,
        };
        if breaks {
            inert.push(JOINT);
        }
    }
    inert
}

/// For top-level text, which has no `verbatim`: breaks bare host names, too.
pub(super) fn top_level(text: &str) -> String {
    escaped(&hosts_broken(&jointed(&visible(text))))
}

fn hosts_broken(text: &str) -> String {
    let mut broken = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        broken.push(c);
        if c == '.' && before.is_alphanumeric() && chars.peek().is_some_and(|next| next.is_alphabetic()) {
            broken.push(JOINT);
        }
        before = c;
    }
    broken
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Puts joints into what Slack may take for a link or a mention.
fn jointed(text: &str) -> String {
    let mut jointed = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (head, tail) = rest.split_at(c.len_utf8());
        jointed.push_str(head);
        let next = tail.chars().next().unwrap_or(' ');
        let breaks = match c {
            // E-mail addresses, too.
            '@' | '#' => next.is_alphanumeric() || next == '_',
            ':' => tail.starts_with("//") || ends_with_scheme(&jointed),
            '.' => {
                jointed.len() >= 4
                    && jointed.get(jointed.len() - 4..).is_some_and(|www| www.eq_ignore_ascii_case("www."))
            }
            _ => false,
        };
        if breaks {
            jointed.push(JOINT);
        }
        rest = tail;
    }
    jointed
}

/// Whether the text ends with the scheme of a link without slashes.
fn ends_with_scheme(text: &str) -> bool {
    ["mailto:", "tel:", "sms:", "slack:", "javascript:", "data:", "skype:", "facetime:"].iter().any(|scheme| {
        text.len()
            .checked_sub(scheme.len())
            .and_then(|at| text.get(at..))
            .is_some_and(|end| end.eq_ignore_ascii_case(scheme))
    })
}

/// Splits safe text into pieces of at most `most` units, where a reader would split it. Only the blank at a split is
/// lost. A block of code continues as one in the next piece.
pub(super) fn pieces(safe: &str, most: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = safe.to_owned();
    while units(&rest) > most {
        let at = split_at(&rest, most - 2 * (FENCE.len() + 1));
        let (head, tail) = rest.split_at(at);
        let (head, tail) = (head.trim_end(), tail.trim_start_matches([' ', '\n']));
        if head.matches(FENCE).count() % 2 == 1 {
            pieces.push(format!("{head}\n{FENCE}"));
            rest = format!("{FENCE}\n{tail}");
        } else {
            pieces.push(head.to_owned());
            rest = String::from(tail);
        }
    }
    if !rest.trim().is_empty() || pieces.is_empty() {
        pieces.push(rest);
    }
    pieces
}

/// Where to split so that the first part has at most `most` units. Never splits an entity.
fn split_at(text: &str, most: usize) -> usize {
    let mut count = 0;
    let mut end = text.len();
    for (at, c) in text.char_indices() {
        count += c.len_utf16();
        if count > most {
            end = at;
            break;
        }
    }
    let head = &text[..end];
    // The last line break or blank, unless it would leave the piece nearly empty.
    let late = |at: &usize| *at > end / 2;
    if let Some(at) = head.rfind('\n').filter(late).or_else(|| head.rfind(' ').filter(late)) {
        return at;
    }
    match head.rfind('&') {
        Some(at) if at > 0 && end - at <= 5 && !head[at..].contains(';') => at,
        _ => end,
    }
}

/// The first characters of a text, with an ellipsis if there are more.
pub(super) fn first(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut first: String = text.chars().take(most.saturating_sub(1)).collect();
    first.push('…');
    first
}

/// What a person typed in Slack: undoes Slack's escapes and its `<...>` forms.
pub(super) fn typed(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, form)) = rest.split_once('<') {
        plain.push_str(before);
        let Some((form, after)) = form.split_once('>') else {
            plain.push('<');
            rest = form;
            continue;
        };
        let (target, label) = form.split_once('|').map_or((form, None), |(target, label)| (target, Some(label)));
        match target.chars().next() {
            Some('@') => plain.extend(["@", label.unwrap_or(&target[1..])]),
            Some('#') => plain.extend(["#", label.unwrap_or(&target[1..])]),
            Some('!') => plain.extend(["@", label.unwrap_or(&target[1..]).trim_start_matches('@')]),
            // Slack turns a typed host name into a link with that label. In other links the address was typed.
            _ => plain.push_str(label.filter(|label| target.ends_with(label)).unwrap_or(target)),
        }
        rest = after;
    }
    plain.push_str(rest);
    copied(&plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
}

/// What a person typed, without the joints of a card that it was copied from.
pub(super) fn copied(typed: &str) -> String {
    typed.replace(JOINT, "")
}
