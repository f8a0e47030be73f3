//! What Meta posts, and what people write.
#![allow(dead_code)]

#[path = "../../../src/host/channel/whatsapp/payload.rs"]
mod payload;
#[path = "../../../src/host/channel/whatsapp/words.rs"]
mod words;

pub fn read(bytes: &[u8]) {
    drop(payload::read(bytes, "106"));
}

pub fn understand(text: &str, questions: &askd_core::Questions) {
    for question in questions.iter() {
        if let words::Meaning::Given(given) = words::read(text, "k7", question) {
            assert!(given.picks.iter().all(|pick| *pick < question.choices.len()), "a choice that was not offered");
            assert!(given.text.is_none() || question.takes_text(), "words where none are taken");
        }
    }
}
