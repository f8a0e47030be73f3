//! What a person in a terminal is told about an answer that was not sent, and how an agent's error begins. Part of
//! [`super::wording`].

use crate::Mistyped;

/// Why nothing was sent, and what would be sent. `of_several` names the question if there is more than one.
pub fn mistyped<L: AsRef<str>>(mistyped: &Mistyped, labels: &[L], own_words: bool, of_several: Option<&str>) -> String {
    let what = match mistyped {
        Mistyped::NoOption(words) => format!("{words:?} is none of the options"),
        Mistyped::OnlyOne => "the question takes one answer".to_owned(),
    };
    let labels = labels.iter().enumerate().map(|(index, label)| format!("\n  {}. {}", index + 1, label.as_ref()));
    let labels: String = labels.collect();
    let (Mistyped::NoOption(words), true) = (mistyped, own_words) else {
        return format!("{what}; nothing was sent. Choose from:{labels}");
    };
    let text = match of_several {
        Some(question) => format!("{question}={words}"),
        None => words.clone(),
    };
    format!("{what}; nothing was sent. Choose from:{labels}\nTo answer in your own words: --text {text:?}")
}

/// To a person who typed free text for a question that takes none.
pub fn no_own_words<L: AsRef<str>>(question: &str, labels: &[L]) -> String {
    let labels = labels.iter().enumerate().map(|(index, label)| format!("\n  {}. {}", index + 1, label.as_ref()));
    format!("{question:?} takes no words of your own; nothing was sent. Choose from:{}", labels.collect::<String>())
}

/// The beginning of the text of an MCP result, only if the call was rejected or the host fell silent. *Exact.*
const ERROR: &str = "Error: ";

/// An error as it stands in files, structured results, logs and on terminals: without the prefix that earlier hosts
/// wrote.
pub fn bare_error(error: &str) -> &str {
    error.strip_prefix(ERROR).unwrap_or(error)
}

/// The error as the text of an MCP result whose call was rejected, or whose host fell silent.
pub fn error_text(error: &str) -> String {
    format!("{ERROR}{}", bare_error(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_stands_once_or_not_at_all() {
        for sent in ["No questions provided", "Error: No questions provided"] {
            assert_eq!(bare_error(sent), "No questions provided");
            assert_eq!(error_text(sent), "Error: No questions provided");
        }
    }
}
