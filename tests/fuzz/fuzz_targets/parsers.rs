//! One target for all parsers: the first byte says which, the rest is what it reads.
#![no_main]

use askd_core::{Draft, Questions};
use libfuzzer_sys::fuzz_target;

mod ipc;
mod slack;
mod whatsapp;

fn questions() -> Questions {
    let draft = |text: &str, kind: &str, labels: &[&str]| {
        let choice = |label: &&str| askd_core::Choice { label: (*label).to_owned(), description: None, style: None };
        let choices: Vec<_> = labels.iter().map(choice).collect();
        let kind = Some(kind.to_owned());
        Draft { text: text.to_owned(), kind, choices, ..Draft::default() }
    };
    let drafts = vec![
        draft("Which?", "select", &["1", "b", "k7 Pro"]),
        draft("Many?", "multi-select", &["a", "2", "c, d"]),
        draft("Sure?", "confirm", &[]),
        draft("Why?", "text", &[]),
    ];
    Questions::new("r1", drafts).expect("they are valid")
}

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 6 {
        0 => {
            drop(ipc::wire::peek(bytes));
            if let Ok(ipc::wire::Message::Ask(request)) = ipc::wire::parse(bytes) {
                assert!((1..=10).contains(&request.content.questions.iter().count()));
            }
        }
        1 => slack::read(bytes),
        2 => whatsapp::read(bytes),
        3 => whatsapp::understand(&String::from_utf8_lossy(bytes), &questions()),
        4 => {
            let read = |text: &str| text.parse::<askd_core::Time>().ok();
            if let Some(time) = std::str::from_utf8(bytes).ok().and_then(read) {
                // What lies beyond the calendar is its last moment.
                let written = time.to_string();
                assert_eq!(read(&written).map(|time| time.to_string()), Some(written));
            }
        }
        _ => {
            if let Ok(ask) = serde_json::from_slice::<askd_core::Ask>(bytes) {
                let written = serde_json::to_vec(&ask).expect("it is written");
                let again: askd_core::Ask = serde_json::from_slice(&written).expect("it is read again");
                assert_eq!(serde_json::to_vec(&again).expect("it is written"), written);
            }
        }
    }
});
