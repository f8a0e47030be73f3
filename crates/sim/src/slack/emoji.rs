//! Emoji as Slack has them: in the text of a message by name (`:rocket:`), in its blocks also as code points.
//!
//! Knows a few; all others stay as they were typed. That Slack names them is seen in its events; the fields are its documentation's. Custom emoji have no
//! code points, so their names stay text here. Called for what people write.

use serde_json::{Value, json};

const KNOWN: &[(&str, &str)] = &[
    ("rocket", "🚀"),
    ("tada", "🎉"),
    ("white_check_mark", "✅"),
    ("x", "❌"),
    ("eyes", "👀"),
    ("+1", "👍"),
    ("warning", "⚠️"),
];

/// The first of the skin tones, which is number 2.
const FIRST_TONE: u32 = 0x1f3fb;

/// The emoji by which the text begins: its name, its skin tone, and how long both are.
fn typed(text: &str) -> Option<(&'static str, Option<u32>, usize)> {
    let &(name, emoji) = KNOWN.iter().find(|(_, emoji)| text.starts_with(emoji))?;
    let tone = text[emoji.len()..].chars().next().filter(|c| ('\u{1f3fb}'..='\u{1f3ff}').contains(c));
    let length = emoji.len() + tone.map_or(0, char::len_utf8);
    Some((name, tone.map(|tone| u32::from(tone) - FIRST_TONE + 2), length))
}

/// A typed text with names in place of emoji.
pub(super) fn named(text: &str) -> String {
    let (mut named, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let length = if let Some((name, tone, length)) = typed(rest) {
            named.extend([":", name, ":"]);
            named.extend(tone.map(|tone| format!(":skin-tone-{tone}:")));
            length
        } else {
            named.push(c);
            c.len_utf8()
        };
        rest = &rest[length..];
    }
    named
}

/// The elements of a line of rich text: such names, and the text between them.
pub(super) fn elements(text: &str) -> Vec<Value> {
    let (mut elements, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while let Some(c) = rest.chars().next() {
        let Some((element, after)) = element(rest) else {
            plain.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        if !plain.is_empty() {
            elements.push(json!({"type": "text", "text": std::mem::take(&mut plain)}));
        }
        elements.push(element);
        rest = after;
    }
    if !plain.is_empty() || elements.is_empty() {
        elements.push(json!({"type": "text", "text": plain}));
    }
    elements
}

/// The element of the name by which the text begins, and what comes after it.
fn element(text: &str) -> Option<(Value, &str)> {
    let (name, rest) = text.strip_prefix(':')?.split_once(':')?;
    let (_, emoji) = KNOWN.iter().find(|(known, _)| *known == name)?;
    let tone = rest.strip_prefix(":skin-tone-").and_then(|tone| tone.split_once(':'));
    let tone = tone.and_then(|(tone, _)| tone.parse::<u32>().ok()).filter(|tone| (2..=6).contains(tone));
    let points = emoji.chars().map(u32::from).chain(tone.map(|tone| FIRST_TONE + tone - 2));
    let points: Vec<String> = points.map(|point| format!("{point:x}")).collect();
    let mut element = json!({"type": "emoji", "name": name, "unicode": points.join("-")});
    if let Some(tone) = tone {
        element["skin_tone"] = json!(tone);
    }
    let after = tone.map_or(rest, |tone| &rest[format!(":skin-tone-{tone}:").len()..]);
    Some((element, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emoji_have_names_and_code_points() {
        assert_eq!(named("🚀 go, 👍🏽 ⚠️ 🦀"), ":rocket: go, :+1::skin-tone-4: :warning: 🦀");
        let emoji = |name: &str, unicode: &str| json!({"type": "emoji", "name": name, "unicode": unicode});
        let text = |text: &str| json!({"type": "text", "text": text});
        let mut thumb = emoji("+1", "1f44d-1f3fd");
        thumb["skin_tone"] = json!(4);
        assert_eq!(
            elements(":rocket: go, :+1::skin-tone-4: :warning: at 12:30: :shipit:"),
            [
                emoji("rocket", "1f680"),
                text(" go, "),
                thumb,
                text(" "),
                emoji("warning", "26a0-fe0f"),
                text(" at 12:30: :shipit:")
            ]
        );
        assert_eq!(elements(""), [text("")]);
    }
}
