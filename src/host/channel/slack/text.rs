//! Text of agents and people, made safe for Slack: nothing in it can mention, link or pose, while
//! *bold*, _italic_ and `code` stay readable. Pure.
//!
//! Three layers, since the rules by which Slack finds links are its own: `&`, `<` and `>` are escaped, so that no
//! `<!...>`, `<@...>` or `<https...>` can be written; text objects say `verbatim`, so that Slack looks for
//! nothing by itself; and what looks like a link or a mention gets an invisible joint.

/// Breaks a link or a mention without being seen.
const JOINT: char = '\u{2060}';
/// Stands for what cannot be seen or turns text around.
const MARK: char = '\u{fffd}';
/// Marks above and below one letter; more of them reach into other lines.
const MOST_MARKS: usize = 4;

/// How long Slack may think a text is: in UTF-16 units, the larger of the likely counts.
pub(super) fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Only what can be seen, with line breaks; empty lines one at a time, so that nothing is pushed out of sight.
fn seen(text: &str) -> String {
    let mut seen = String::with_capacity(text.len());
    let mut marks = 0;
    for c in text.trim().chars() {
        marks = if combines(c) { marks + 1 } else { 0 };
        match c {
            '\n' | '\u{85}' | '\u{2028}' | '\u{2029}' if seen.ends_with("\n\n") => {}
            '\n' | '\u{85}' | '\u{2028}' | '\u{2029}' => seen.push('\n'),
            '\t' => seen.push(' '),
            '\r' | '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' => {}
            '\u{e0000}'..='\u{e007f}' => {}
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}' => seen.push(MARK),
            c if c.is_control() => seen.push(MARK),
            _ if marks > MOST_MARKS => {}
            c => seen.push(c),
        }
    }
    // What cannot be seen at all has to be seen.
    if seen.trim().is_empty() { MARK.to_string() } else { seen }
}

fn combines(c: char) -> bool {
    matches!(
        c,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
            | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}'
    )
}

/// For `plain_text` objects, in which Slack looks for nothing: one line.
pub(super) fn line(text: &str) -> String {
    seen(text).split('\n').map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// For `mrkdwn` objects that say `verbatim`, and for top-level text.
pub(super) fn mrkdwn(text: &str) -> String {
    escaped(&jointed(&seen(text)))
}

/// For top-level text, which has no `verbatim`: bare host names are broken too.
pub(super) fn top_level(text: &str) -> String {
    let text = jointed(&seen(text));
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
    escaped(&broken)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Joints in what Slack may take for a link or a mention.
fn jointed(text: &str) -> String {
    let mut jointed = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (head, tail) = rest.split_at(c.len_utf8());
        jointed.push_str(head);
        let next = tail.chars().next().unwrap_or(' ');
        let breaks = match c {
            // Also an e-mail address.
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

/// Links without slashes.
fn ends_with_scheme(text: &str) -> bool {
    ["mailto:", "tel:", "sms:", "slack:", "javascript:", "data:", "skype:", "facetime:"].iter().any(|scheme| {
        text.len()
            .checked_sub(scheme.len())
            .and_then(|at| text.get(at..))
            .is_some_and(|end| end.eq_ignore_ascii_case(scheme))
    })
}

/// Safe text in pieces of at most `most` units, split where a reader would: nothing is lost but the
/// blank at a split. A block of code goes on as one in the next piece.
pub(super) fn pieces(safe: &str, most: usize) -> Vec<String> {
    const FENCE: &str = "```";
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
            rest = tail.to_owned();
        }
    }
    if !rest.trim().is_empty() || pieces.is_empty() {
        pieces.push(rest);
    }
    pieces
}

/// Where to split so that what comes before has at most `most` units, never within an entity.
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
    // The last line or word that is not so early that the piece would be nearly empty.
    let late = |at: &usize| *at > end / 2;
    if let Some(at) = head.rfind('\n').filter(late).or_else(|| head.rfind(' ').filter(late)) {
        return at;
    }
    match head.rfind('&') {
        Some(at) if at > 0 && end - at <= 5 && !head[at..].contains(';') => at,
        _ => end,
    }
}

/// The first characters of a text for a notice, with an ellipsis if there is more.
pub(super) fn first(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut first: String = text.chars().take(most.saturating_sub(1)).collect();
    first.push('…');
    first
}

/// What a person typed in Slack, as it was meant: Slack's escapes and its `<...>` forms undone.
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
            Some('@') => plain.push_str(&format!("@{}", label.unwrap_or(&target[1..]))),
            Some('#') => plain.push_str(&format!("#{}", label.unwrap_or(&target[1..]))),
            Some('!') => plain.push_str(&format!("@{}", label.unwrap_or(&target[1..]).trim_start_matches('@'))),
            // A host name that Slack made a link of is what was typed; else the address is.
            _ => plain.push_str(label.filter(|label| target.ends_with(label)).unwrap_or(target)),
        }
        rest = after;
    }
    plain.push_str(rest);
    plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}
