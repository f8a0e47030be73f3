//! Finds the options that a person names in a terminal. A typo must not become an answer, so words that name no option
//! are an error and never count as free text.

use super::question::label_at;

/// Why the typed words are no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mistyped {
    /// These words are neither a label nor the number of an option.
    NoOption(String),
    /// They name several options where only one is allowed.
    OnlyOne,
}

/// The options that `words` name, by label or else by number, in the order in which they were typed. If `several` are
/// allowed, a word with commas that is not a label itself names an option with each part. Blank words name none.
pub fn chosen<L: AsRef<str>>(labels: &[L], several: bool, words: &[String]) -> Result<Vec<usize>, Mistyped> {
    let mut picks = Vec::new();
    for word in words.iter().filter(|word| !word.trim().is_empty()) {
        match option(labels, word) {
            Some(pick) => picks.push(pick),
            None if several => picks.extend(parts(labels, word)?),
            None => return Err(Mistyped::NoOption(word.clone())),
        }
    }
    if picks.len() > 1 && !several { Err(Mistyped::OnlyOne) } else { Ok(picks) }
}

fn option<L: AsRef<str>>(labels: &[L], word: &str) -> Option<usize> {
    label_at(labels, word).or_else(|| numbered(word.trim(), labels.len()))
}

/// The index of the option of this number. A sign is not part of a number: `+1` is what people write when they agree.
pub fn numbered(word: &str, options: usize) -> Option<usize> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    let number = word.parse::<usize>().ok().filter(|number| digits && (1..=options).contains(number))?;
    Some(number - 1)
}

fn parts<L: AsRef<str>>(labels: &[L], word: &str) -> Result<Vec<usize>, Mistyped> {
    let parts: Vec<&str> = word.split(',').filter(|part| !part.trim().is_empty()).collect();
    let named: Vec<Option<usize>> = parts.iter().map(|part| option(labels, part)).collect();
    match named.iter().position(Option::is_none) {
        None if !named.is_empty() => Ok(named.into_iter().flatten().collect()),
        // The error names the mistyped part among others that fit.
        Some(wrong) if named.iter().any(Option::is_some) => Err(Mistyped::NoOption(parts[wrong].trim().to_owned())),
        _ => Err(Mistyped::NoOption(word.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(labels: &[&str], several: bool, words: &[&str]) -> Result<Vec<usize>, Mistyped> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        chosen(labels, several, &words)
    }

    fn none(words: &str) -> Result<Vec<usize>, Mistyped> {
        Err(Mistyped::NoOption(words.to_owned()))
    }

    #[test]
    fn a_label_comes_before_its_number_and_a_typo_is_neither() {
        let labels = ["yes", "No", "1"];
        for (word, found) in [
            ("yes", Ok(vec![0])),
            ("YES ", Ok(vec![0])),
            ("no", Ok(vec![1])),
            ("1", Ok(vec![2])),
            ("2", Ok(vec![1])),
            ("yse", none("yse")),
            ("0", none("0")),
            ("4", none("4")),
            ("-1", none("-1")),
            ("+2", none("+2")),
            ("yes,no", none("yes,no")),
            ("  ", Ok(vec![])),
        ] {
            assert_eq!(typed(&labels, false, &[word]), found, "{word:?}");
        }
        assert_eq!(typed(&labels, false, &["yes", "no"]), Err(Mistyped::OnlyOne));
        assert_eq!(typed(&labels, false, &["yes", "mine"]), none("mine"));
    }

    #[test]
    fn several_are_several_words_or_one_with_commas() {
        let labels = ["staging", "prod", "a, b"];
        for (words, found) in [
            (&["staging", "prod"][..], Ok(vec![0, 1])),
            (&["prod, staging"], Ok(vec![1, 0])),
            (&["1,3"], Ok(vec![0, 2])),
            (&["a, b"], Ok(vec![2])),
            (&["A, B", "2,"], Ok(vec![2, 1])),
            (&["staging, prdo"], none("prdo")),
            (&["all, of them"], none("all, of them")),
            (&[","], none(",")),
        ] {
            assert_eq!(typed(&labels, true, words), found, "{words:?}");
        }
    }
}
