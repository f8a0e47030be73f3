//! What people see of a text. Two labels that look alike are the same to a person who has to choose between them.
//! Nobody reads characters that control a terminal or turn the direction of a line.

/// Whether a character takes no room when it is shown.
fn is_hidden(c: char) -> bool {
    turns(c)
        || (c.is_control() && !c.is_whitespace())
        || matches!(
            c,
            '\u{ad}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}'
                | '\u{ffa0}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// Whether a character changes the direction in which people read the rest of the line.
pub fn turns(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A label as people see it: without hidden characters, each run of blanks as one blank, and no blanks around it.
pub fn shown(text: &str) -> String {
    let seen: String = text.chars().filter(|c| !is_hidden(*c)).collect();
    seen.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text of one or more lines without characters that control a terminal; line ends are `\n`.
pub fn without_controls(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// A text as one line for a terminal, so that an agent's words cannot overwrite askd's own.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| !turns(*c)).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A word of the agent's in a sentence of ours: the beginning, if it is long.
pub fn quoted(word: &str) -> String {
    match word.char_indices().nth(40) {
        Some((at, _)) => format!("\"{}…\"", word[..at].escape_debug()),
        None => format!("{word:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_alike_is_alike() {
        for alike in
            ["Yes", " Yes ", "Yes\u{200b}", "Y\u{200c}es", "\u{202e}Yes", "Ye\u{ad}s", "Yes\u{7}", "\u{feff}Yes"]
        {
            assert_eq!(shown(alike), "Yes", "{alike:?}");
        }
        assert_eq!(shown("not\u{a0} \n today"), "not today");
        assert_eq!(shown("\u{200b} \u{2060}\u{3164}\u{2800}"), "");
        assert_ne!(shown("Yés"), "Yes");
    }

    #[test]
    fn an_answer_keeps_its_lines_and_loses_what_steers() {
        assert_eq!(without_controls("a\u{1b}[2Jb\r\nc\td\re\u{9b}\u{7f}"), "a[2Jb\nc\td\ne");
        assert_eq!(printable("a\nb\u{202e}c\u{1b}"), "a bc ");
    }
}
