//! JSON on standard output.

use askd_core::turns;

/// JSON that a terminal can show: what steers or turns it is escaped, so that it means the same.
pub(super) fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        // Below U+0020 all are escaped already, but for the line ends between the values.
        if turns(c) || (c.is_control() && c >= '\u{7f}') || matches!(c, '\u{2028}' | '\u{2029}') {
            let mut units = [0; 2];
            escaped.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_json_means_the_same() {
        let value = serde_json::json!({"a\u{9b}": "\u{202e}x\u{7f}\u{2028}\n\"", "b": ["é", "\u{1f600}"]});
        let text = escaped(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!text.contains(['\u{9b}', '\u{202e}', '\u{7f}', '\u{2028}']) && text.contains("\\u009b"), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
