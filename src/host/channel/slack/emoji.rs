//! Emoji that people type. Slack's text of a message has their names, `:rocket:`; which characters they are stands in the
//! blocks of the message. Custom emoji have none and stay names. Pure; called for replies in threads.

use serde_json::Value;

/// A text of Slack's with characters in place of the names of emoji, by the blocks of the same message.
pub(super) fn spelt(text: &str, blocks: &Value) -> String {
    let mut emoji = Vec::new();
    collect(blocks, &mut emoji);
    let (mut spelt, mut rest) = (String::with_capacity(text.len()), text);
    // They come in the order in which they stand in the text.
    for (name, characters) in emoji {
        let Some((before, after)) = rest.split_once(&format!(":{name}:")) else { continue };
        spelt.extend([before, &characters]);
        rest = after;
        // A skin tone follows as a name of its own.
        if let Some((tone, after)) = after.strip_prefix(":skin-tone-").and_then(|tone| tone.split_once(':')) {
            let tone = tone.parse::<u32>().ok().and_then(|tone| char::from_u32(TONES_BEGIN.checked_add(tone)?));
            spelt.extend(tone.filter(|tone| is_tone(*tone) && !characters.contains(is_tone)));
            rest = after;
        }
    }
    spelt + rest
}

/// Slack counts skin tones from 2; the first is U+1F3FB.
const TONES_BEGIN: u32 = 0x1f3f9;

fn is_tone(c: char) -> bool {
    ('\u{1f3fb}'..='\u{1f3ff}').contains(&c)
}

/// The emoji of these blocks: name and characters.
fn collect<'a>(blocks: &'a Value, emoji: &mut Vec<(&'a str, String)>) {
    match blocks {
        Value::Array(elements) => elements.iter().for_each(|element| collect(element, emoji)),
        Value::Object(element) if blocks["type"] == "emoji" => {
            let [name, unicode] = ["name", "unicode"].map(|field| element.get(field).and_then(Value::as_str));
            emoji.extend(name.zip(unicode.and_then(characters)));
        }
        Value::Object(element) => element.values().for_each(|value| collect(value, emoji)),
        _ => {}
    }
}

/// The characters of `1f44d-1f3fd`.
fn characters(unicode: &str) -> Option<String> {
    unicode.split('-').map(|point| char::from_u32(u32::from_str_radix(point, 16).ok()?)).collect()
}

/// A text without skin tones: whose emoji always have one cannot type the emoji of a label that has none.
pub(super) fn toneless(text: &str) -> String {
    text.replace(is_tone, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_become_characters_by_the_blocks_of_the_message() {
        let emoji = |name: &str, unicode: &str| json!({"type": "emoji", "name": name, "unicode": unicode});
        let lines = json!([
            emoji("eyes", "1f440"),
            emoji("rocket", "1f680"),
            {"type": "text", "text": " "},
            {"type": "emoji", "name": "shipit"},
            emoji("+1", "1f44d-1f3fd"),
            emoji("wave::skin-tone-2", "1f44b-1f3fb"),
        ]);
        let blocks = json!([{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": lines}]}]);
        let text = ":eyes::skin-tone-4: :rocket: :shipit: :+1::skin-tone-4: :wave::skin-tone-2: :rocket: 12:30:15";
        assert_eq!(spelt(text, &blocks), "👀🏽 🚀 :shipit: 👍🏽 👋🏻 :rocket: 12:30:15");
        for nothing in [Value::Null, json!("x"), json!([emoji("rocket", "d800")]), json!([emoji("rocket", "")])] {
            assert_eq!(spelt(":rocket: :a", &nothing), ":rocket: :a");
        }
        assert_eq!(toneless("👍🏽 ok"), "👍 ok");
    }
}
