//! Every refusal, hint and receipt beside what the first version said for the same: none may be as long again.
//! `cargo test -p askd-core shorter -- --nocapture` prints the table.

use super::*;
use crate::{Block, Choice, Draft, Lifted, Time, Via};

const AUTH: &[&str] = &["JWT", "Cookies", "OAuth"];

fn asked(kind: &str, labels: &[&str], custom: bool) -> Questions {
    let choice = |label: &&str| Choice { label: (*label).to_owned(), ..Choice::default() };
    let choices = labels.iter().map(choice).collect();
    let draft =
        Draft { text: "Q?".to_owned(), kind: Some(kind.to_owned()), choices, custom: Some(custom), ..Draft::default() };
    Questions::new("r", vec![draft]).unwrap()
}

fn alice() -> Person {
    Person { via: Via::Channel(crate::ChannelName::SLACK), id: "U1".to_owned(), name: Some("alice".to_owned()) }
}

/// What was said, and what is.
fn refusals() -> Vec<(String, String)> {
    let auth = asked("select", AUTH, true);
    let (question, id, strings) =
        ("Q?".to_owned(), "U1".to_owned(), |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect());
    let answers = |outcome: &Outcome| already(outcome, &auth);
    let given = Given { picks: vec![0], text: None };
    let fitted = auth.answer(&[(0, given)]).unwrap();
    let answered = Outcome::Answered { answers: fitted, by: alice() };
    let may_not = "Only the people named for this question may";
    let pairs = [
        (
            "This question was answered already. Answered: JWT, by alice (slack). Nothing was changed.",
            answers(&answered),
        ),
        (
            "This question was dismissed already by alice (slack). Nothing was changed.",
            answers(&Outcome::Dismissed { by: alice() }),
        ),
        ("This question was withdrawn. Nothing was changed.", answers(&Outcome::Withdrawn { by: None })),
        ("This question has timed out. The agent was told that nobody answered.", answers(&Outcome::TimedOut)),
        (
            "This question has timed out. The agent was told that nobody answered. Your answer was not used: JWT",
            too_late("JWT"),
        ),
        (
            "This question could not be shown in time, and the agent was told so.",
            answers(&Outcome::Undelivered { cause: Cause { retries: Some(3), reason: None } }),
        ),
        (
            "This question cannot be answered: it was asked too often, and the agent was told to wait. Once somebody allows \
             it again, the agent may ask it anew.",
            answers(&Outcome::Blocked { limit: 5 }),
        ),
        (
            &*format!(
                "{may_not} answer it, and your id, U1, is not among them. An operator can add it to the responders of the route. The question stays open."
            ),
            refusal(&Refusal::NotResponder { id: id.clone() }),
        ),
        (
            &*format!(
                "{may_not} let it be asked again, and your id, U1, is not among them. An operator can add it to the responders of the route. Nothing was changed."
            ),
            refusal(&Refusal::MayNotAllow { id }),
        ),
        (
            "alice has allowed it again already. Nothing was changed.",
            refusal(&Refusal::NotBlocked { by: Some(alice()) }),
        ),
        ("It may be asked already. Nothing was changed.", refusal(&Refusal::NotBlocked { by: None })),
        ("Still missing: an answer to \"A\", \"B\".", refusal(&Refusal::Missing { questions: strings(&["A", "B"]) })),
        (
            "This ask has no question \"x\". Name a question by its id or by its whole text.",
            refusal(&Refusal::NoSuchQuestion { name: "x".to_owned() }),
        ),
        (
            "\"x\" is not an answer that \"Q?\" offers. Choose from: \"JWT\", \"OAuth\".",
            refusal(&Refusal::NotOffered {
                question: question.clone(),
                given: "x".to_owned(),
                labels: strings(&["JWT", "OAuth"]),
            }),
        ),
        ("\"Q?\" takes one answer only.", refusal(&Refusal::OnlyOne { question: question.clone() })),
        (
            "\"Q?\" takes a choice or an answer of your own, not both. Leave one of them out.",
            refusal(&Refusal::ChoiceOrText { question: question.clone() }),
        ),
        (
            "The answer to \"Q?\" has 4000 characters; at most 3000 are possible.",
            refusal(&Refusal::TooLong { question, limit: 3_000, size: 4_000 }),
        ),
    ];
    pairs.map(|(before, now)| (before.to_owned(), now)).into()
}

fn on_slack() -> Vec<(String, String)> {
    let auth = asked("select", AUTH, true);
    let pairs = [
        ("*g* asks · `k7` · answer until X", slack_who("g", "X")),
        ("*g* asked · `k7`", slack_asked("g")),
        ("*g* asked this 6 times without an answer · `k7`", slack_blocked("g", 6)),
        ("This question still waits for an answer.", SLACK_REMINDER.to_owned()),
        ("This question (`k7`) still waits for an answer. It can be answered until X.", slack_reminder("X")),
        ("Other: what I type below", SLACK_OTHER.to_owned()),
        ("Choose one", slack_choose(Kind::Select).to_owned()),
        (
            "This question is not known here any more, so nothing was done. If it still matters, the agent will ask again.",
            UNKNOWN_QUESTION.to_owned(),
        ),
        ("This question is not asked in this channel. Nothing was changed.", NOT_ASKED_HERE.to_owned()),
        (
            "Only people of the workspace that askd belongs to may answer here. Nothing was changed.",
            OTHER_TEAM.to_owned(),
        ),
        (
            "This card has several questions: please answer them with the form, not in the thread.",
            thread_hint(None, "", false),
        ),
        (
            "That is not one of the answers. Write one of these, or its number: \"JWT\", \"Cookies\", \"OAuth\". Anything \
             else goes through the card.",
            thread_hint(auth.first(), "", false),
        ),
    ];
    pairs.map(|(before, now)| (before.to_owned(), now)).into()
}

fn on_whatsapp() -> Vec<(String, String)> {
    let ten: Vec<String> = (1..=10).map(|n| format!("Option {n}")).collect();
    let ten: Vec<&str> = ten.iter().map(String::as_str).collect();
    let (free, yes_no) = (asked("select", AUTH, true), asked("confirm", &[], false));
    let (ten_labels, only_ten) = (ten.join(", "), asked("select", &ten, false));
    let (k7, dismiss) = ("k7".to_owned(), "Reply cancel to dismiss the question.");
    let how = |questions: &Questions| how_to_reply(&questions[0]);
    let said = |unfit: &Unfit, questions: &Questions| super::unfit(unfit, &questions[0]);
    let with = |why: &str, questions: &Questions| format!("{why} {} {dismiss}", how(questions));
    let list = vec![(k7.clone(), "Q?".to_owned())];
    let wait = "The agent was told to wait for your guidance. It cannot ask this again until somebody allows it.";
    let lifted = Some(Lifted { by: None, at: Time::from_millis(0) });
    let unblocked = Block { times: 6, first: 6, any_context: false, lifted };
    vec![
        (with("I can only read text as an answer.", &free), said(&Unfit::NoText, &free)),
        (
            with("There are the numbers 1 to 3. For a number of your own, write a word with it, like \"it is 12\".", &free),
            said(&Unfit::NoSuchNumber, &free),
        ),
        (with("There are the numbers 1 to 2.", &yes_no), said(&Unfit::NoSuchNumber, &yes_no)),
        (with("This question takes one answer.", &free), said(&Unfit::OnlyOne, &free)),
        (
            with(
                "That could be the name of one option or the number of another:\n1. Yes\n2. No\nWrite the number with a dot, like \"2.\"",
                &yes_no,
            ),
            said(&Unfit::TwoMeanings, &yes_no),
        ),
        (with("That is not one of the options: Yes, No.", &yes_no), said(&Unfit::NotOffered, &yes_no)),
        (with("That is not one of the options: Yes, No.", &yes_no), said(&Unfit::Near(1), &yes_no)),
        (
            with(&format!("That is not one of the options: {ten_labels}."), &only_ten),
            said(&Unfit::NotOffered, &only_ten),
        ),
        (with("This question cannot be skipped.", &free), said(&Unfit::NotOptional, &free)),
        (
            with("That question has been answered already; nothing was changed.", &free),
            said(&Unfit::AnsweredAlready, &free),
        ),
        (
            format!("That is not one of the options: Yes, No. {} Quote the question, or begin your reply with k7.", how(&yes_no)),
            unfit_by_code(&Unfit::NotOffered, &yes_no[0], "k7"),
        ),
        (
            "More than one question is open here. Quote this message, or begin your reply with k7, like: k7 2".to_owned(),
            with_code("k7", &free[0]),
        ),
        (
            "You can answer until 22:30 UTC (about 30 minutes from now).".to_owned(),
            time_left(std::time::Duration::from_secs(1_800)),
        ),
        (
            "This question still waits for an answer. You can answer until 22:30 UTC (about 30 minutes from now)."
                .to_owned(),
            whatsapp_reminder(&time_left(std::time::Duration::from_secs(1_800))),
        ),
        (
            "Which question do you mean? Nothing was answered yet.\nk7: Q?\n\nQuote its message, or begin your reply with its code, like: k7 2".to_owned(),
            which_one(&list),
        ),
        ("Which one do you mean? Nothing was changed.\nk7: Q?\n\nReply like: allow k7".to_owned(), which_to_allow(&list)),
        (
            format!("{wait} To allow it again, reply allow k7, or quote this message and reply allow."),
            how_to_allow("k7"),
        ),
        (wait.to_owned(), BLOCKED.to_owned()),
        ("It may be asked again".to_owned(), block_closing(&unblocked).what),
        ("It may be asked again; its attempts are counted anew.".to_owned(), RESET.to_owned()),
        ("Quote the question, or begin your reply with k7.".to_owned(), late_by_message("k7")),
        ("Your answers so far were not used.".to_owned(), NOT_USED.to_owned()),
        ("Got it.\n\nQuestion 2 of 3".to_owned(), format!("{GOT_IT} {}", question_of(2, 3))),
        ("Got it.\nAnswered: JWT by Ada".to_owned(), "Answered: JWT by Ada".to_owned()),
    ]
}

#[test]
fn every_refusal_hint_and_receipt_is_shorter_than_in_the_first_version() {
    let mut longer = Vec::new();
    for (before, now) in [refusals(), on_slack(), on_whatsapp()].concat() {
        let [was, is] = [&before, &now].map(|text| text.chars().count());
        println!("{was} -> {is}: {before:?} -> {now:?}");
        longer.extend((is >= was).then_some(now));
    }
    assert_eq!(longer, Vec::<String>::new());
}
