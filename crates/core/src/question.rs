//! What is asked, within limits. [`Questions`] can only be built within all of them, so nothing
//! downstream meets a question that nobody can answer. Limits: section 4 of the specification,
//! chosen below those of Slack and WhatsApp.

use super::{Rejection, quoted, shown};
use serde::{Deserialize, Serialize};
use std::fmt::Arguments;
use std::ops::Deref;

/// Questions in one ask.
pub const MAX_QUESTIONS: usize = 10;
/// Characters of a question, of a typed answer and of a description's parent texts.
pub const MAX_TEXT: usize = 3000;
/// Characters of `context`.
pub const MAX_CONTEXT: usize = 3000;
/// Characters of `title`.
pub const MAX_TITLE: usize = 100;
/// Characters of `header`.
pub const MAX_HEADER: usize = 30;
/// Options of one question: what Slack's radio buttons and checkboxes hold.
pub const MAX_CHOICES: usize = 10;
/// Characters of a label: what a Slack button holds.
pub const MAX_LABEL: usize = 75;
/// Characters of a description.
pub const MAX_DESCRIPTION: usize = 300;
/// Characters of a placeholder: what a Slack input holds.
pub const MAX_PLACEHOLDER: usize = 150;
/// Characters of a question's id.
pub const MAX_QUESTION_ID: usize = 128;
/// Characters of `session_id`, `idempotency_key` and `opCode`.
pub const MAX_TOKEN: usize = 128;

/// How a question is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Typed.
    Text,
    /// One of the choices.
    Select,
    /// Any number of the choices.
    MultiSelect,
    /// One of two: yes or no, or what the agent calls them.
    Confirm,
}

impl Kind {
    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Select => "select",
            Self::MultiSelect => "multi-select",
            Self::Confirm => "confirm",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Text, Self::Select, Self::MultiSelect, Self::Confirm].into_iter().find(|kind| kind.name() == name)
    }
}

/// One of a question's options.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// What it is called, and what the agent gets back.
    pub label: String,
    /// A line of explanation.
    pub description: Option<String>,
    /// How its button looks, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<Style>,
}

/// How the button of an option looks. At most one option of a question has each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// The one that the agent expects.
    Primary,
    /// One that cannot be taken back.
    Danger,
}

impl Style {
    /// The name used in files, and by Slack.
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Danger => "danger",
        }
    }
}

/// A question before anything is checked: as the agent wrote it, or as a record holds it.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Draft {
    /// Its id; made from the request's if missing.
    pub id: Option<String>,
    /// The question.
    #[serde(rename = "question")]
    pub text: String,
    /// A few words above it.
    pub header: Option<String>,
    /// How it is answered, by name; guessed from the options if missing.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Whether several options may be chosen. A record says so by the type.
    #[serde(skip)]
    pub multiple: bool,
    /// The options.
    #[serde(rename = "options")]
    pub choices: Vec<Choice>,
    /// Whether it has to be answered.
    pub required: Option<bool>,
    /// What an empty input shows.
    pub placeholder: Option<String>,
    /// Whether an answer of one's own is allowed beside the options.
    pub custom: Option<bool>,
}

/// One asked thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Question {
    /// Unique within the ask.
    pub id: String,
    /// The question; unique within the ask, and the key of its answer.
    #[serde(rename = "question")]
    pub text: String,
    /// A few words above it.
    pub header: Option<String>,
    /// How it is answered.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// None for [`Kind::Text`], two for [`Kind::Confirm`], else one to [`MAX_CHOICES`].
    #[serde(rename = "options")]
    pub choices: Vec<Choice>,
    /// Whether an answer of one's own ("Other") is allowed beside the choices.
    pub custom: bool,
    /// Whether it has to be answered; if not, it can be skipped.
    pub required: bool,
    /// What an empty input shows.
    pub placeholder: Option<String>,
}

impl Question {
    /// Whether a typed answer is taken.
    pub fn takes_text(&self) -> bool {
        self.kind == Kind::Text || self.custom
    }

    /// The choice with that label: an exact match, or else one that looks the same, ignoring case.
    pub fn choice(&self, label: &str) -> Option<usize> {
        let labels: Vec<&str> = self.choices.iter().map(|choice| choice.label.as_str()).collect();
        label_at(&labels, label)
    }
}

/// Which of these labels the text is: an exact match, or else one that looks the same, ignoring case.
pub(super) fn label_at<L: AsRef<str>>(labels: &[L], label: &str) -> Option<usize> {
    // What nobody sees is left out of the comparison, and this would not be refused.
    if label.contains('\0') {
        return None;
    }
    let exact = labels.iter().position(|known| known.as_ref() == label);
    exact.or_else(|| labels.iter().position(|known| look(known.as_ref()) == look(label)))
}

/// The form of a label by which people tell it from others. Keyboards differ in whether they mark an emoji as one with
/// colours.
fn look(label: &str) -> String {
    shown(label).replace(['\u{fe0e}', '\u{fe0f}'], "").to_lowercase()
}

/// What two labels are compared by.
fn fold(label: &str) -> String {
    label.trim().to_lowercase()
}

/// One to [`MAX_QUESTIONS`] questions, every limit kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Draft>")]
pub struct Questions(Vec<Question>);

/// Stored questions are checked again: a record that was changed by hand has no way around a limit.
impl TryFrom<Vec<Draft>> for Questions {
    type Error = Rejection;
    fn try_from(stored: Vec<Draft>) -> Result<Self, Rejection> {
        Self::new("", stored)
    }
}

impl Deref for Questions {
    type Target = [Question];
    fn deref(&self) -> &[Question] {
        &self.0
    }
}

impl Questions {
    /// Checks every limit. `request_id` makes the ids of questions that have none.
    pub fn new(request_id: &str, drafts: Vec<Draft>) -> Result<Self, Rejection> {
        if drafts.is_empty() {
            return Err(Rejection::NoQuestions);
        }
        at_most(format_args!("questions"), drafts.len(), MAX_QUESTIONS, "entries")?;
        let mut questions = Vec::with_capacity(drafts.len());
        for (index, draft) in drafts.into_iter().enumerate() {
            questions.push(Question::new(format_args!("questions[{index}]"), request_id, index, draft)?);
        }
        distinct(&questions, |question| &question.text, |index| format!("questions[{index}].question"))?;
        distinct(&questions, |question| &question.id, |index| format!("questions[{index}].id"))?;
        // An answer names its question by id or by text.
        let is_text = |id: &str| questions.iter().any(|question| question.text == id);
        let names_another = |question: &Question| question.id != question.text && is_text(&question.id);
        if let Some(index) = questions.iter().position(names_another) {
            let why = "it is the text of another question; use another id".to_owned();
            return Err(Rejection::Wrong { field: format!("questions[{index}].id"), why });
        }
        Ok(Self(questions))
    }

    /// Whether the same is asked in the same way, whatever ids the questions were given.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        let without_id = |question: &Question| Question { id: String::new(), ..question.clone() };
        self.0.iter().map(without_id).eq(other.0.iter().map(without_id))
    }

    /// Those of these indices; `None` if that would be none.
    pub fn only(&self, indices: &[usize]) -> Option<Self> {
        let kept: Vec<Question> = indices.iter().filter_map(|index| self.0.get(*index)).cloned().collect();
        (!kept.is_empty()).then_some(Self(kept))
    }

    /// The question of that id or that text; none if these are two, as they can be in records of earlier versions.
    pub fn find(&self, id_or_text: &str) -> Option<usize> {
        let named = |question: &Question| question.id == id_or_text || question.text == id_or_text;
        let mut found = self.0.iter().enumerate().filter(|(_, question)| named(question)).map(|(index, _)| index);
        found.next().filter(|_| found.next().is_none())
    }
}

impl Question {
    fn new(field: Arguments<'_>, request_id: &str, index: usize, draft: Draft) -> Result<Self, Rejection> {
        said(format_args!("{field}.question"), &draft.text)?;
        characters(format_args!("{field}.question"), &draft.text, MAX_TEXT)?;
        let id = draft.id.unwrap_or_else(|| format!("{request_id}_{index}"));
        said(format_args!("{field}.id"), &id)?;
        characters(format_args!("{field}.id"), &id, MAX_QUESTION_ID)?;
        optional(format_args!("{field}.header"), draft.header.as_deref(), MAX_HEADER)?;
        optional(format_args!("{field}.placeholder"), draft.placeholder.as_deref(), MAX_PLACEHOLDER)?;
        let kind = kind(field, draft.kind.as_deref(), draft.multiple, draft.choices.is_empty())?;
        Ok(Self {
            id,
            text: draft.text,
            header: draft.header,
            kind,
            choices: choices(format_args!("{field}.options"), kind, draft.choices)?,
            custom: matches!(kind, Kind::Select | Kind::MultiSelect) && draft.custom.unwrap_or(true),
            required: draft.required.unwrap_or(true),
            placeholder: draft.placeholder,
        })
    }
}

fn kind(field: Arguments<'_>, name: Option<&str>, multiple: bool, no_choices: bool) -> Result<Kind, Rejection> {
    let wrong = |why: String| Rejection::Wrong { field: format!("{field}.type"), why };
    let kind = match name {
        None if multiple => Kind::MultiSelect,
        None if no_choices => Kind::Text,
        None => Kind::Select,
        Some(name) => Kind::from_name(name)
            .ok_or_else(|| wrong(format!("{} is none of text, select, multi-select, confirm", quoted(name))))?,
    };
    match kind {
        Kind::Select if multiple => Ok(Kind::MultiSelect),
        Kind::Text | Kind::Confirm if multiple => {
            Err(wrong(format!("multiSelect does not go with {}; use type multi-select", kind.name())))
        }
        _ => Ok(kind),
    }
}

fn choices(field: Arguments<'_>, kind: Kind, choices: Vec<Choice>) -> Result<Vec<Choice>, Rejection> {
    let wrong = |why: String| Err(Rejection::Wrong { field: field.to_string(), why });
    at_most(field, choices.len(), MAX_CHOICES, "entries")?;
    for (index, choice) in choices.iter().enumerate() {
        said(format_args!("{field}[{index}].label"), &choice.label)?;
        characters(format_args!("{field}[{index}].label"), &choice.label, MAX_LABEL)?;
        optional(format_args!("{field}[{index}].description"), choice.description.as_deref(), MAX_DESCRIPTION)?;
    }
    distinct(&choices, |choice| fold(&choice.label), |index| format!("{field}[{index}].label"))?;
    for style in [Style::Primary, Style::Danger] {
        if choices.iter().filter(|choice| choice.style == Some(style)).count() > 1 {
            return wrong(format!("only one option can have the style {}", style.name()));
        }
    }
    match (kind, choices.len()) {
        (Kind::Text, 0) | (Kind::Confirm, 2) | (Kind::Select | Kind::MultiSelect, 1..) => Ok(choices),
        (Kind::Confirm, 0) => {
            Ok(["Yes", "No"].map(|label| Choice { label: label.to_owned(), description: None, style: None }).into())
        }
        (Kind::Text, _) => wrong("a text question has no options; leave them out, or use type select".to_owned()),
        (Kind::Confirm, count) => {
            wrong(format!("a confirm question has no options (Yes and No) or exactly two, not {count}"))
        }
        (_, 0) => {
            wrong(format!("a {} question needs at least 1 option; use type text for a typed answer", kind.name()))
        }
    }
}

/// Refuses a text over `limit` characters (Unicode scalar values).
fn characters(field: Arguments<'_>, text: &str, limit: usize) -> Result<(), Rejection> {
    at_most(field, text.chars().count(), limit, "characters")
}

/// The same for a text that may be missing.
fn optional(field: Arguments<'_>, text: Option<&str>, limit: usize) -> Result<(), Rejection> {
    text.map_or(Ok(()), |text| characters(field, text, limit))
}

fn at_most(field: Arguments<'_>, size: usize, limit: usize, unit: &'static str) -> Result<(), Rejection> {
    if size > limit { Err(Rejection::TooLong { field: field.to_string(), limit, size, unit }) } else { Ok(()) }
}

fn said(field: Arguments<'_>, text: &str) -> Result<(), Rejection> {
    if text.trim().is_empty() { Err(Rejection::Empty { field: field.to_string() }) } else { Ok(()) }
}

/// Refuses the first of these that is like one before it. `field`: where each of them is.
fn distinct<'a, T, V: PartialEq>(
    all: &'a [T],
    value: impl Fn(&'a T) -> V,
    field: impl Fn(usize) -> String,
) -> Result<(), Rejection> {
    let values: Vec<V> = all.iter().map(value).collect();
    for (index, value) in values.iter().enumerate() {
        if let Some(first) = values[..index].iter().position(|before| before == value) {
            return Err(Rejection::Duplicate { field: field(index), first: field(first) });
        }
    }
    Ok(())
}

impl super::Content {
    /// Checks the limits of `title` and `context`; the questions are within theirs already.
    pub fn new(title: Option<String>, context: Option<String>, questions: Questions) -> Result<Self, Rejection> {
        let asked = Self { title, context, questions };
        asked.within_limits()?;
        Ok(asked)
    }

    pub(crate) fn within_limits(&self) -> Result<(), Rejection> {
        optional(format_args!("title"), self.title.as_deref(), MAX_TITLE)?;
        optional(format_args!("context"), self.context.as_deref(), MAX_CONTEXT)
    }

    /// Refuses what only stored asks of earlier versions may have: questions and labels that look empty, labels that
    /// look alike, and U+0000 anywhere.
    pub fn fit_to_show(&self) -> Result<(), Rejection> {
        without_nul("title", self.title.as_deref())?;
        without_nul("context", self.context.as_deref())?;
        for (index, question) in self.questions.iter().enumerate() {
            let field = |name: &str| format!("questions[{index}].{name}");
            without_nul(&field("question"), Some(&question.text))?;
            said(format_args!("{}", field("question")), &shown(&question.text))?;
            without_nul(&field("id"), Some(&question.id))?;
            without_nul(&field("header"), question.header.as_deref())?;
            without_nul(&field("placeholder"), question.placeholder.as_deref())?;
            for (at, choice) in question.choices.iter().enumerate() {
                let field = format!("questions[{index}].options[{at}]");
                without_nul(&format!("{field}.label"), Some(&choice.label))?;
                without_nul(&format!("{field}.description"), choice.description.as_deref())?;
                said(format_args!("{field}.label"), &shown(&choice.label))?;
            }
            distinct(
                &question.choices,
                |choice| look(&choice.label),
                |at| format!("questions[{index}].options[{at}].label"),
            )?;
        }
        Ok(())
    }
}

/// Refuses U+0000, which many programs take for the end of a text.
pub fn without_nul(field: &str, text: Option<&str>) -> Result<(), Rejection> {
    if text.is_some_and(|text| text.contains('\0')) {
        let why = "has the character U+0000, which cannot be shown to anybody; leave it out".to_owned();
        return Err(Rejection::Wrong { field: field.to_owned(), why });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(text: &str, labels: &[&str]) -> Draft {
        let choices =
            labels.iter().map(|label| Choice { label: (*label).to_owned(), description: None, style: None }).collect();
        Draft { text: text.to_owned(), choices, ..Draft::default() }
    }

    fn one(draft: Draft) -> Result<Question, Rejection> {
        Questions::new("r", vec![draft]).map(|questions| questions[0].clone())
    }

    #[test]
    fn the_kind_is_guessed_from_the_options() {
        assert_eq!(one(draft("q", &[])).map(|q| q.kind), Ok(Kind::Text));
        assert_eq!(one(draft("q", &["a"])).map(|q| q.kind), Ok(Kind::Select));
        let multiple = Draft { multiple: true, ..draft("q", &["a"]) };
        assert_eq!(one(multiple).map(|q| (q.kind, q.custom)), Ok((Kind::MultiSelect, true)));
        let confirm = one(Draft { kind: Some("confirm".into()), ..draft("q", &[]) }).unwrap();
        assert_eq!(confirm.choices.iter().map(|c| c.label.as_str()).collect::<Vec<_>>(), ["Yes", "No"]);
        assert!(!confirm.custom);
    }

    #[test]
    fn what_nobody_could_answer_is_refused_with_the_field() {
        let field = |result: Result<Question, Rejection>| match result {
            Err(
                Rejection::Wrong { field, .. }
                | Rejection::TooLong { field, .. }
                | Rejection::Empty { field }
                | Rejection::Duplicate { field, .. },
            ) => field,
            other => panic!("{other:?}"),
        };
        let typed = |kind: &str, labels: &[&str]| Draft { kind: Some(kind.to_owned()), ..draft("q", labels) };
        assert_eq!(field(one(typed("select", &[]))), "questions[0].options");
        assert_eq!(field(one(typed("text", &["a"]))), "questions[0].options");
        assert_eq!(field(one(typed("confirm", &["a", "b", "c"]))), "questions[0].options");
        assert_eq!(field(one(typed("radio", &["a"]))), "questions[0].type");
        assert_eq!(field(one(draft(" ", &[]))), "questions[0].question");
        assert_eq!(field(one(draft("q", &["Yes", "yes "]))), "questions[0].options[1].label");
        assert_eq!(field(one(draft("q", &["a", ""]))), "questions[0].options[1].label");
        assert_eq!(field(one(draft("q", &[&"é".repeat(76)]))), "questions[0].options[0].label");
        assert!(one(draft("q", &[&"é".repeat(75)])).is_ok(), "characters are counted, not bytes");
        let eleven: Vec<String> = (0..11).map(|n| n.to_string()).collect();
        let eleven: Vec<&str> = eleven.iter().map(String::as_str).collect();
        assert_eq!(field(one(draft("q", &eleven))), "questions[0].options");
        assert_eq!(
            Questions::new("r", vec![draft("same", &[]), draft("same", &[])]),
            Err(Rejection::Duplicate { field: "questions[1].question".into(), first: "questions[0].question".into() })
        );
        assert_eq!(Questions::new("r", vec![]), Err(Rejection::NoQuestions));
    }

    #[test]
    fn an_answer_never_goes_to_another_question_than_it_names() {
        let named = |text: &str, id: &str| Draft { id: Some(id.to_owned()), ..draft(text, &[]) };
        let Err(Rejection::Wrong { field, .. }) = Questions::new("r", vec![named("B", "C"), named("A", "B")]) else {
            panic!("the id of one is the text of another")
        };
        assert_eq!(field, "questions[1].id");
        assert!(Questions::new("r", vec![named("A", "A"), named("B", "C")]).is_ok(), "its own text");
        // As an earlier version has stored it.
        let mut earlier = Questions::new("r", vec![named("A", "x"), named("B", "C")]).unwrap();
        earlier.0[0].id = "B".to_owned();
        assert_eq!(["A", "B", "C"].map(|name| earlier.find(name)), [Some(0), None, Some(1)]);
    }

    #[test]
    fn labels_that_look_alike_are_refused_and_so_is_what_ends_a_text() {
        let fits = |draft: Draft| {
            let questions = Questions::new("r", vec![draft]).unwrap();
            super::super::Content::new(None, None, questions).unwrap().fit_to_show()
        };
        let alike = |label: &str| Rejection::Duplicate {
            field: "questions[0].options[1].label".into(),
            first: format!("questions[0].options[{label}].label"),
        };
        for label in ["Yes\u{200b}", "Y\u{200c}es", "YES\u{202e}", "Y\u{ad}es"] {
            assert_eq!(fits(draft("q", &["Yes", label])), Err(alike("0")), "{label:?}");
        }
        assert_eq!(fits(draft("q", &["a  b", "a b"])), Err(alike("0")));
        let nothing = Rejection::Empty { field: "questions[0].options[1].label".into() };
        assert_eq!(fits(draft("q", &["a", "\u{200b}"])), Err(nothing));
        assert!(fits(draft("q", &["Yes", "Yés"])).is_ok());
        let nul = fits(draft("q\0", &[])).unwrap_err().to_string();
        assert!(nul.contains("questions[0].question") && nul.contains("U+0000"), "{nul}");
    }

    #[test]
    fn labels_match_exactly_first() {
        let question = one(draft("q", &["React", "Vue"])).unwrap();
        assert_eq!(question.choice("React"), Some(0));
        assert_eq!(question.choice(" vue "), Some(1));
        assert_eq!(question.choice("Angular"), None);
        assert_eq!(question.choice("Re\0act"), None, "it would hide what was typed");
    }
}
