//! What the words of a message mean for one question. Pure.
//!
//! In doubt the question is asked again: one more message is better than an answer that the person did not mean. The core
//! decides whether the person may answer, and whether the answer fits the limits.

use askd_core::wording::Unfit;
use askd_core::{Given, Kind, Question};

/// What a text means for a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// An answer. An empty one skips the question.
    Given(Given),
    /// The person does not want to answer the ask.
    Dismiss,
    /// No answer, and why.
    Unfit(Unfit),
    /// Nothing but the code: show the question again.
    Show,
}

/// What a text means for that question of an ask that may be named by this code.
pub(super) fn read(text: &str, code: Option<&str>, question: &Question) -> Meaning {
    let (first, rest) = split_first_word(text);
    // An option may begin with what looks like the code.
    if Some(&*first) != code || question.choice(text.trim()).is_some() {
        understand(text, question)
    } else if rest.is_empty() {
        Meaning::Show
    } else {
        understand(rest, question)
    }
}

/// The first word, as it would be if it were a code.
pub(super) fn first_word(text: &str) -> String {
    split_first_word(text).0
}

/// The first word, and what comes after it.
pub(super) fn split_first_word(text: &str) -> (String, &str) {
    let text = text.trim();
    let (first, rest) =
        text.split_at(text.find(|c: char| c.is_whitespace() || ":,;)".contains(c)).unwrap_or(text.len()));
    (first.trim_end_matches('.').to_lowercase(), rest.trim_start_matches([':', ',', ';', ')']).trim())
}

fn picks(mut picks: Vec<usize>) -> Meaning {
    picks.sort_unstable();
    picks.dedup();
    Meaning::Given(Given { picks, text: None })
}

/// Exact label, then number, then the words, then free text.
fn understand(text: &str, question: &Question) -> Meaning {
    let text = text.trim();
    if text.is_empty() {
        return Meaning::Unfit(Unfit::NoText);
    }
    let label = question.choice(text);
    let plain = plain_digits(text);
    let numbers = if question.kind == Kind::Text { None } else { numbers(&plain, question) };
    if let (None, Some(line)) = (label, whole_line(text, question)) {
        return picks(vec![line]);
    }
    match (label, numbers.as_deref()) {
        (Some(label), Some([number])) => {
            number.or_label(Some(label), question).map_or_else(Meaning::Unfit, |pick| picks(vec![pick]))
        }
        (Some(label), _) => picks(vec![label]),
        (None, Some(numbers)) => by_number(numbers, question),
        (None, None) => by_words(text, &plain, question),
    }
}

/// The option whose whole line this is, as the message has it: its number and its label. A label of digits, or of one word that means yes
/// or no, may be meant otherwise.
fn whole_line(text: &str, question: &Question) -> Option<usize> {
    let (number, label) = text.split_once(|c: char| c.is_whitespace() || ".):".contains(c))?;
    let label = label.trim_start_matches(['.', ')', ':']).trim();
    let at = question.choice(label)?;
    let is_sure = label.chars().any(char::is_alphabetic) && !is_yes_or_no(label);
    (is_sure && plain_digits(number).parse() == Ok(at + 1)).then_some(at)
}

fn by_number(numbers: &[Number], question: &Question) -> Meaning {
    match numbers {
        [Number { value: 0, .. }] => skip(question, Unfit::NoSuchNumber),
        [_, _, ..] if question.kind != Kind::MultiSelect => Meaning::Unfit(Unfit::OnlyOne),
        [number] => number.or_label(None, question).map_or_else(Meaning::Unfit, |pick| picks(vec![pick])),
        numbers => {
            let chosen = numbers.iter().map(|number| number.or_label(number.label(question), question));
            chosen.collect::<Result<Vec<_>, _>>().map_or_else(Meaning::Unfit, picks)
        }
    }
}

/// A number that a person has written.
#[derive(Debug, Clone, Copy)]
struct Number {
    value: usize,
    /// With a sign that no name has: "2.", "#2". It is no name for certain.
    marked: bool,
}

impl Number {
    /// The option that it names: the name of one option may be the number of another.
    fn label(self, question: &Question) -> Option<usize> {
        question.choice(&self.value.to_string()).filter(|_| !self.marked)
    }

    /// The option that it stands for, if it is also the name of `label`.
    fn or_label(self, label: Option<usize>, question: &Question) -> Result<usize, Unfit> {
        let listed = self.value.checked_sub(1).filter(|at| *at < question.choices.len());
        match (label, listed) {
            (Some(label), Some(listed)) if label != listed => Err(Unfit::TwoMeanings),
            (label, listed) => label.or(listed).ok_or(Unfit::NoSuchNumber),
        }
    }
}

fn skip(question: &Question, otherwise: Unfit) -> Meaning {
    if question.required { Meaning::Unfit(otherwise) } else { Meaning::Given(Given::default()) }
}

fn by_words(text: &str, plain: &str, question: &Question) -> Meaning {
    let word = plain.trim_end_matches(['.', '!']).to_lowercase();
    match word.as_str() {
        "cancel" => return Meaning::Dismiss,
        "skip" => return skip(question, Unfit::NotOptional),
        "0" if !question.required => return skip(question, Unfit::NotOptional),
        "y" | "n" if question.kind == Kind::Confirm => {
            let starts = |label: &str| label.to_lowercase() == if word == "y" { "yes" } else { "no" };
            if let Some(pick) = question.choices.iter().position(|choice| starts(&choice.label)) {
                return picks(vec![pick]);
            }
        }
        _ => {}
    }
    if question.kind == Kind::MultiSelect
        && let Some(chosen) = labels(text, question)
    {
        return chosen.map_or_else(Meaning::Unfit, picks);
    }
    // Digits and signs that are no list of numbers are a slip, not an answer in words.
    let slip =
        question.kind != Kind::Text && text.chars().any(char::is_numeric) && !text.chars().any(char::is_alphabetic);
    if slip {
        return Meaning::Unfit(Unfit::NoSuchNumber);
    }
    if question.takes_text() {
        return Meaning::Given(Given { picks: Vec::new(), text: Some(text.to_owned()) });
    }
    Meaning::Unfit(near(&word, question).map_or(Unfit::NotOffered, Unfit::Near))
}

/// Words that stand for a yes or a no.
const YES: &[&str] = &["yes", "yeah", "yep", "yup", "sure", "ok", "okay", "of course", "go", "go ahead", "do it", "👍"];
const NO: &[&str] = &["no", "nope", "nah", "no way", "never", "don't", "do not", "stop", "👎"];

/// Words that an option begins with which refuses.
const REFUSALS: &[&str] = &["abort", "cancel", "decline", "deny", "hold", "keep", "not", "refuse", "reject", "wait"];

/// The one option that a word may stand for: another yes or no, or its label with a slip of the finger.
fn near(word: &str, question: &Question) -> Option<usize> {
    let labels: Vec<String> = question.choices.iter().map(|choice| choice.label.trim().to_lowercase()).collect();
    let word = word.split(',').next().unwrap_or(word).trim();
    for (at, words) in [YES, NO].into_iter().enumerate() {
        if words.contains(&word) {
            let same = labels.iter().position(|label| words.contains(&label.as_str()));
            let confirms = question.kind == Kind::Confirm && is_yes_then_no(&labels);
            return same.or(confirms.then_some(at));
        }
    }
    let slips = |label: &str| if label.chars().count() > 5 { 2 } else { 1 };
    let is_close = |(_, label): &(usize, &String)| {
        label.chars().count() > 2 && strsim::damerau_levenshtein(label, word) <= slips(label)
    };
    let mut close = labels.iter().enumerate().filter(is_close).map(|(at, _)| at);
    close.next().filter(|_| close.next().is_none())
}

/// Whether the first words of two options tell that the first is a yes, or the second a no. An agent may have put them the other
/// way round.
fn is_yes_then_no(labels: &[String]) -> bool {
    let begins = |at: usize, words: &[&[&str]]| {
        let first =
            labels.get(at).and_then(|label| label.split(|c: char| c.is_whitespace() || ",.:;!".contains(c)).next());
        first.is_some_and(|first| words.iter().any(|words| words.contains(&first)))
    };
    let (no_first, yes_last) = (begins(0, &[NO, REFUSALS]), begins(1, &[YES]));
    (begins(0, &[YES]) || begins(1, &[NO, REFUSALS])) && !no_first && !yes_last
}

/// Whether a text is no more than a yes or a no.
pub(super) fn is_yes_or_no(text: &str) -> bool {
    let words = text.to_lowercase();
    let first = words.split([',', '.', '!', ' ']).next().unwrap_or_default();
    let listed = |text: &str| YES.contains(&text) || NO.contains(&text) || ["y", "n"].contains(&text);
    listed(words.trim().trim_end_matches(['.', '!'])) || listed(first) && words.split_whitespace().count() <= 3
}

/// Whether a text is a one and nothing else, however it is written.
pub(super) fn is_one(text: &str) -> bool {
    let plain = plain_digits(text);
    plain.trim_matches(['#', '(', ')', '.', '!', ':']) == "1" || plain.eq_ignore_ascii_case(WORDS[0])
}

/// Labels and numbers with commas or "and" between them, if there is nothing else.
fn labels(text: &str, question: &Question) -> Option<Result<Vec<usize>, Unfit>> {
    let parts = text.split([',', ';', '\n', '&', '+']).flat_map(|part| part.split(" and "));
    let mut chosen = Vec::new();
    for part in parts.map(|part| part.trim().trim_start_matches("and ").trim()).filter(|part| !part.is_empty()) {
        let label = question.choice(part);
        match (label, numbers(&plain_digits(part), question).as_deref()) {
            (label, Some([number])) => match number.or_label(label, question) {
                Err(Unfit::NoSuchNumber) => return None,
                pick => chosen.push(pick),
            },
            (label, _) => chosen.push(Ok(label?)),
        }
    }
    (!chosen.is_empty()).then(|| chosen.into_iter().collect())
}

/// Words around a number that change nothing.
const AROUND: &[&str] = &["option", "number", "no", "nr", "choice", "answer", "please", "pls", "thanks", "thx"];
/// Numbers that people write out.
const WORDS: [&str; 10] = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

/// A text that is numbers: `2`, `2.`, `(2)`, `#2`, `1,3`, `1 3`, `1 and 3`, `option 2 please`, `No. 2`, `two`.
fn numbers(text: &str, question: &Question) -> Option<Vec<Number>> {
    if let Some(at) = WORDS.iter().position(|word| text.eq_ignore_ascii_case(word)) {
        return Some(vec![Number { value: at + 1, marked: false }]);
    }
    // A no changes everything where it may be an answer.
    let refuses = |label: &str| NO.contains(&label.trim().to_lowercase().as_str());
    let takes_a_no = question.kind == Kind::Confirm || question.choices.iter().any(|choice| refuses(&choice.label));
    let (mut list, mut announced) = (Vec::new(), false);
    let parts = text.split(|c: char| c.is_whitespace() || ",;&+/".contains(c)).filter(|part| !part.is_empty());
    for part in parts {
        let bare = part.trim_start_matches(['#', '(']).trim_end_matches(['.', ')', '!', ':']);
        if !bare.is_empty() && bare.len() <= 6 && bare.bytes().all(|b| b.is_ascii_digit()) {
            list.push(Number { value: bare.parse().ok()?, marked: bare != part });
            announced = false;
            continue;
        }
        let word = bare.to_lowercase();
        let means_nothing = word == "and" || AROUND.contains(&word.as_str()) && question.choice(bare).is_none();
        if announced || !means_nothing || word == "no" && takes_a_no {
            return None;
        }
        announced = word == "no";
    }
    (!list.is_empty() && !announced).then_some(list)
}

/// Digits of every kind as plain ones: "²", "２", "②", "٢", a keycap.
fn plain_digits(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{fe0f}' | '\u{20e3}' => {}
            '¹' => out.push('1'),
            '²' => out.push('2'),
            '³' => out.push('3'),
            // Three rows of twenty: "①", "⑴", "⒈".
            '①'..='⒛' => out.push_str(&((u32::from(c) - u32::from('①')) % 20 + 1).to_string()),
            '🔟' => out.push_str("10"),
            '，' | '、' => out.push(','),
            '．' | '。' => out.push('.'),
            '（' => out.push('('),
            '）' => out.push(')'),
            _ => out.push(digit(c).unwrap_or(c)),
        }
    }
    out.trim().to_owned()
}

/// The zeros of decimal digits that people have on their keyboards.
const ZEROS: [char; 14] = [
    '\u{2070}', '\u{2080}', '\u{ff10}', '\u{660}', '\u{6f0}', '\u{966}', '\u{9e6}', '\u{a66}', '\u{ae6}', '\u{b66}',
    '\u{be6}', '\u{c66}', '\u{e50}', '\u{17e0}',
];

fn digit(c: char) -> Option<char> {
    ZEROS.iter().find_map(|zero| {
        let value = u32::from(c).checked_sub(u32::from(*zero)).filter(|value| *value < 10)?;
        char::from_digit(value, 10)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use askd_core::{Choice, Draft, Questions};
    use proptest::prelude::*;

    fn question(kind: &str, labels: &[&str], custom: Option<bool>, required: bool) -> Question {
        let choices =
            labels.iter().map(|label| Choice { label: (*label).to_owned(), description: None, style: None }).collect();
        let draft = Draft {
            text: "q".to_owned(),
            kind: Some(kind.to_owned()),
            choices,
            custom,
            required: Some(required),
            ..Draft::default()
        };
        Questions::new("r", vec![draft]).unwrap()[0].clone()
    }

    fn one(question: &Question, text: &str) -> Meaning {
        read(text, Some("k7"), question)
    }

    fn text(text: &str) -> Meaning {
        Meaning::Given(Given { picks: vec![], text: Some(text.to_owned()) })
    }

    #[test]
    fn a_number_is_understood_as_a_person_means_it() {
        let select = question("select", &["JWT tokens", "Session cookies", "OAuth 2.0"], None, true);
        for two in [
            "2",
            " 2 ",
            "2.",
            "2)",
            "(2)",
            "#2",
            "²",
            "２",
            "٢",
            "2️⃣",
            "②",
            "⒉",
            "₂",
            "02",
            "two",
            "Option 2",
            "2 please",
            "number 2.",
            "session COOKIES",
            "k7 2",
            "K7: 2",
            "k7, 2.",
            "２．",
            "2\n",
        ] {
            assert_eq!(one(&select, two), picks(vec![1]), "{two:?}");
        }
        for line in [
            "2. Session cookies",
            "2 session cookies",
            "2) Session cookies",
            "2️⃣ Session cookies",
            "k7 2: Session cookies",
        ] {
            assert_eq!(one(&select, line), picks(vec![1]), "{line:?}");
        }
        let other = question("select", &["JWT tokens", "Session cookies"], Some(true), true);
        assert_eq!(one(&other, "2. Session cookies"), picks(vec![1]));
        assert_eq!(one(&other, "1. Session cookies"), text("1. Session cookies"));
        for out in ["4", "0", "99", "999999", "½", "1-3", "2,5", "-1", "1e3".trim_end_matches("e3"), "7)"] {
            let meant = one(&select, out);
            assert!(matches!(meant, Meaning::Unfit(_)) || out == "1", "{out:?}: {meant:?}");
        }
        assert_eq!(one(&select, "1,3"), Meaning::Unfit(Unfit::OnlyOne));
        assert_eq!(one(&select, "2 factor, with keys"), text("2 factor, with keys"));
        assert_eq!(one(&select, "Keycloak"), text("Keycloak"));
        assert_eq!(one(&select, "cancel"), Meaning::Dismiss);
        assert_eq!(one(&select, "Cancel."), Meaning::Dismiss);
        assert_eq!(one(&select, "skip"), Meaning::Unfit(Unfit::NotOptional));
    }

    #[test]
    fn several_numbers_or_labels_are_several_picks() {
        let multi = question("multi-select", &["staging", "prod EU", "prod US"], None, true);
        for both in
            ["1,3", "1 3", "1 and 3", "3, 1", "1;3", "1 & 3", "１、３", "staging, prod US", "1 and prod us", "1, 3, 1"]
        {
            assert_eq!(one(&multi, both), picks(vec![0, 2]), "{both:?}");
        }
        assert_eq!(one(&multi, "1,4"), Meaning::Unfit(Unfit::NoSuchNumber));
        assert_eq!(one(&multi, "staging, after five"), text("staging, after five"));
        let closed = question("multi-select", &["a", "b"], Some(false), true);
        assert_eq!(one(&closed, "a, c"), Meaning::Unfit(Unfit::NotOffered));
    }

    #[test]
    fn a_label_that_is_another_ones_number_is_asked_back() {
        let odd = question("select", &["2", "1", "5"], None, true);
        assert_eq!(one(&odd, "2"), Meaning::Unfit(Unfit::TwoMeanings));
        assert_eq!(one(&odd, "2."), picks(vec![1]), "a number for certain");
        assert_eq!(one(&odd, "5"), picks(vec![2]), "no fifth option: only a name");
        assert_eq!(one(&odd, "3"), picks(vec![2]));
        let counts = question("multi-select", &["2", "3", "5"], None, true);
        for unsure in ["2,3", "2 and 5", "3 5", "5, 3"] {
            assert_eq!(one(&counts, unsure), Meaning::Unfit(Unfit::TwoMeanings), "{unsure:?}");
        }
        assert_eq!(one(&counts, "1 2"), Meaning::Unfit(Unfit::TwoMeanings));
        assert_ne!(one(&counts, "1.2"), picks(vec![0]));
        let ratio = question("select", &["5", "10"], None, true);
        assert_ne!(one(&ratio, "1.5"), picks(vec![0]));
        assert_eq!(one(&counts, "1, 5"), picks(vec![0, 2]), "no first name, no fifth option");
        assert_eq!(one(&counts, "2., 3."), picks(vec![1, 2]), "numbers for certain");
        let mixed = question("multi-select", &["2", "b", "c"], None, true);
        assert_eq!(one(&mixed, "2, c"), Meaning::Unfit(Unfit::TwoMeanings));
        assert_eq!(one(&mixed, "#2, c"), picks(vec![1, 2]));
        let far = question("multi-select", &["18", "20", "22"], None, true);
        assert_eq!(one(&far, "18,20"), picks(vec![0, 1]));
        assert_eq!(one(&far, "18,21"), Meaning::Unfit(Unfit::NoSuchNumber));
    }

    #[test]
    fn a_no_beside_a_number_is_not_overlooked() {
        let confirm = question("confirm", &[], None, true);
        let reversed = question("select", &["No", "Yes"], Some(false), true);
        for unsure in ["1 no", "no 1", "1, no thanks", "No. 2", "no 2"] {
            for question in [&confirm, &reversed] {
                let meant = one(question, unsure);
                assert!(matches!(meant, Meaning::Unfit(_)), "{unsure:?}: {meant:?}");
            }
        }
        let select = question("select", &["Postgres", "MySQL"], Some(false), true);
        for number in ["no 2", "No. 2", "nr 2", "no. 2 please"] {
            assert_eq!(one(&select, number), picks(vec![1]), "{number:?}");
        }
        for refused in ["2 no", "2, no thanks", "no please 2"] {
            assert_eq!(one(&select, refused), Meaning::Unfit(Unfit::NotOffered), "{refused:?}");
        }
        let named = question("select", &["Answer", "Ignore"], Some(false), true);
        assert!(matches!(one(&named, "answer 2"), Meaning::Unfit(_)), "two options");
    }

    #[test]
    fn a_yes_or_a_no_is_told_from_an_answer() {
        for word in ["yes", "No.", "ok!", "go ahead", "yes please", "no, not that", "👍", "y"] {
            assert!(is_yes_or_no(word), "{word}");
        }
        for word in ["1", "JWT tokens", "yes if the tests pass", "nobody", ""] {
            assert!(!is_yes_or_no(word), "{word}");
        }
    }

    #[test]
    fn a_one_is_a_one_however_it_is_written() {
        for one in ["1", " 1. ", "1)", "(1)", "#1", "1!", "\u{661}", "1\u{fe0f}\u{20e3}", "One"] {
            assert!(is_one(one), "{one}");
        }
        for other in ["", "2", "11", "1 2", "option 1", "k7 1", "yes", "."] {
            assert!(!is_one(other), "{other}");
        }
    }

    #[test]
    fn confirm_takes_its_two_choices_only() {
        let confirm = question("confirm", &[], None, true);
        assert_eq!(one(&confirm, "YES"), picks(vec![0]));
        assert_eq!(one(&confirm, "n"), picks(vec![1]));
        assert_eq!(one(&confirm, "2"), picks(vec![1]));
        let near = |question: &Question, word: &str| match one(question, word) {
            Meaning::Unfit(Unfit::Near(at)) => Some(at),
            Meaning::Unfit(Unfit::NotOffered) => None,
            other => panic!("{word}: {other:?}"),
        };
        for (word, proposed) in [
            ("sure, go ahead", Some(0)),
            ("Nope.", Some(1)),
            ("yse", Some(0)),
            ("ok!", Some(0)),
            ("never", Some(1)),
            ("maybe", None),
            ("yes if the tests pass", None),
        ] {
            assert_eq!(near(&confirm, word), proposed, "{word}");
        }
        let renamed = |labels: &[&str]| question("confirm", labels, None, true);
        assert_eq!(near(&renamed(&["Deploy now", "Not yet"]), "yes"), Some(0));
        assert_eq!(near(&renamed(&["Yes, now", "Later"]), "no"), Some(1));
        for labels in
            [["No, keep it", "Yes, wipe it"], ["Abort", "Proceed"], ["Later", "Yes: wipe it"], ["Leave it", "Wipe it"]]
        {
            for word in ["yes", "no", "ok"] {
                assert_eq!(
                    near(&renamed(&labels), word),
                    None,
                    "{word}: one keystroke from the opposite of {labels:?}"
                );
            }
        }
        let closed = question("select", &["Staging", "Production"], Some(false), true);
        assert_eq!((near(&closed, "prodution"), near(&closed, "stagign")), (Some(1), Some(0)));
        assert_eq!((near(&closed, "sure"), near(&closed, "neither")), (None, None), "no option is a yes");
    }

    #[test]
    fn typed_answers_and_skipping() {
        let free = question("text", &[], None, true);
        assert_eq!(one(&free, "0"), text("0"), "how many? none");
        assert_eq!(one(&free, " 2. "), text("2."));
        assert_eq!(one(&free, "k7 hello"), text("hello"));
        let optional = question("text", &[], None, false);
        for nothing in ["0", "skip", "SKIP.", "０"] {
            assert_eq!(one(&optional, nothing), Meaning::Given(Given::default()), "{nothing:?}");
        }
        assert_eq!(one(&question("select", &["a"], None, false), "0"), Meaning::Given(Given::default()));
    }

    #[test]
    fn a_code_goes_before_the_answer() {
        let free = question("text", &[], None, true);
        assert_eq!(one(&free, "k7"), Meaning::Show);
        assert_eq!(one(&free, "k7 cancel"), Meaning::Dismiss);
        assert_eq!(one(&free, "m3 2"), text("m3 2"), "the code of another");
        assert_eq!(one(&question("select", &["k7 Pro", "k8"], None, true), "k7 pro"), picks(vec![0]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_text_breaks_it(text in "\\PC{0,40}|[ 0-9.,)(#²½٢①k7and\u{20e3}\u{fe0f}\\n]{0,12}", kind in 0..4_usize) {
            let kinds = [("text", &[][..]), ("select", &["1", "b"][..]), ("multi-select", &["a", "2", "c"][..]), ("confirm", &[][..])];
            let (kind, labels) = kinds[kind];
            let question = question(kind, labels, None, text.len() % 2 == 0);
            if let Meaning::Given(given) = read(&text, Some("k7"), &question) {
                prop_assert!(given.picks.iter().all(|pick| *pick < question.choices.len()));
                prop_assert!(given.text.is_none() || question.takes_text(), "confirm takes no text");
                prop_assert!(question.required || !given.picks.is_empty() || given.text.is_some() || given == Given::default());
            }
        }
    }
}
