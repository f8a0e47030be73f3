//! Reply buttons and lists: the options of a question to tap, where all of them fit. The numbers stay in the text.
//!
//! The id of an option says which ask, question and option it is, under a MAC: nobody can make one. Pure.

use super::text::{one_line, units};
use crate::sabotage::on;
use askd_core::{AskId, Kind, Question, wording};
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use sha2::Sha256;

/// Limits of Meta's API: the text above the options, how many there are, and how long each is.
const MAX_BODY: usize = 1_024;
const BUTTONS: usize = 3;
const MAX_BUTTON: usize = 20;
const MAX_ROW: usize = 24;
const MAX_DESCRIPTION: usize = 72;
/// Bytes of a MAC that an id carries.
const MAC: usize = 16;

/// An option of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tap {
    pub(super) ask: AskId,
    pub(super) question: usize,
    pub(super) option: usize,
}

impl Tap {
    fn id(self, secret: &SecretString) -> Option<String> {
        let said = format!("askd:{}:{}:{}", self.ask, self.question, self.option);
        let mac = keyed(secret, said.as_bytes())?.finalize().into_bytes();
        Some(format!("{said}:{}", hex::encode(mac.get(..MAC)?)))
    }

    /// What an id says, if one of these secrets made it.
    pub(super) fn read<'a>(id: &str, secrets: impl IntoIterator<Item = &'a SecretString>) -> Option<Self> {
        let (said, mac) = id.rsplit_once(':')?;
        let mac = hex::decode(mac).ok().filter(|mac| mac.len() == MAC)?;
        let made = |secret| keyed(secret, said.as_bytes()).is_some_and(|made| made.verify_truncated_left(&mac).is_ok());
        (secrets.into_iter().any(made) || on("anytap")).then_some(())?;
        let mut parts = said.strip_prefix("askd:")?.split(':');
        let ask = parts.next()?.parse().ok()?;
        Some(Self { ask, question: parts.next()?.parse().ok()?, option: parts.next()?.parse().ok()? })
    }
}

/// The code that only the holder of the app secret can make of these bytes.
pub(super) fn keyed(secret: &SecretString, bytes: &[u8]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()).ok()?;
    mac.update(bytes);
    Some(mac)
}

/// The message with buttons or a list under this text; `None` if an option does not fit, or more than one can be chosen.
pub(super) fn interactive(
    ask: AskId,
    index: usize,
    question: &Question,
    text: &str,
    secret: &SecretString,
) -> Option<Value> {
    let single = matches!(question.kind, Kind::Select | Kind::Confirm);
    if !single || units(text) > MAX_BODY {
        return None;
    }
    let titles: Vec<String> = question.choices.iter().map(|choice| one_line(&choice.label)).collect();
    let fit = |most: usize| titles.iter().all(|title| (1..=most).contains(&units(title)));
    let id = |option| Tap { ask, question: index, option }.id(secret);
    let body = json!({"text": text});
    let options = titles.iter().enumerate();
    if titles.len() <= BUTTONS && fit(MAX_BUTTON) {
        let button = |(at, title)| Some(json!({"type": "reply", "reply": {"id": id(at)?, "title": title}}));
        let buttons: Vec<Value> = options.map(button).collect::<Option<_>>()?;
        return Some(json!({"type": "button", "body": body, "action": {"buttons": buttons}}));
    }
    let row = |(at, title): (usize, &String)| {
        let mut row = json!({"id": id(at)?, "title": title});
        let description = question.choices[at].description.as_deref().map(one_line);
        if let Some(text) = description.filter(|text| (1..=MAX_DESCRIPTION).contains(&units(text))) {
            row["description"] = json!(text);
        }
        Some(row)
    };
    let rows: Vec<Value> = options.filter(|_| fit(MAX_ROW)).map(row).collect::<Option<_>>()?;
    let action =
        json!({"button": wording::WHATSAPP_LIST, "sections": [{"title": wording::WHATSAPP_OPTIONS, "rows": rows}]});
    (!rows.is_empty()).then(|| json!({"type": "list", "body": body, "action": action}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::channel::whatsapp::text::{self, How};
    use askd_core::{Choice, Content, Draft, Questions};

    fn question(kind: &str, labels: &[&str], description: Option<&str>) -> Question {
        questions("q", kind, labels, description)[0].clone()
    }

    fn questions(text: &str, kind: &str, labels: &[&str], description: Option<&str>) -> Questions {
        let choice = |label: &&str| Choice {
            label: (*label).to_owned(),
            description: description.map(str::to_owned),
            ..Choice::default()
        };
        let choices = labels.iter().map(choice).collect();
        let draft = Draft { text: text.to_owned(), kind: Some(kind.to_owned()), choices, ..Draft::default() };
        Questions::new("r", vec![draft]).unwrap()
    }

    #[test]
    fn buttons_or_a_list_where_every_label_fits() {
        let secret = SecretString::from("secret");
        let kind = |question: &Question, text: &str| {
            let message = interactive(AskId::from_bits(7), 1, question, text, &secret)?;
            let ids: Vec<&str> = match message["type"].as_str()? {
                "button" => {
                    message["action"]["buttons"].as_array()?.iter().map(|b| &b["reply"]["id"]).collect::<Vec<_>>()
                }
                _ => message["action"]["sections"][0]["rows"].as_array()?.iter().map(|row| &row["id"]).collect(),
            }
            .into_iter()
            .filter_map(Value::as_str)
            .collect();
            for (option, id) in ids.iter().enumerate() {
                assert!(id.len() <= 200);
                assert_eq!(Tap::read(id, [&secret]), Some(Tap { ask: AskId::from_bits(7), question: 1, option }));
            }
            Some((message["type"].as_str()?.to_owned(), ids.len()))
        };
        let (twenty, more) = ("x".repeat(20), "y".repeat(21));
        let ten: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        let ten: Vec<&str> = ten.iter().map(String::as_str).collect();
        let some = |kind: &str, count| Some((kind.to_owned(), count));
        assert_eq!(kind(&question("confirm", &[], None), "t"), some("button", 2));
        assert_eq!(kind(&question("select", &[&twenty, "b", "c"], None), "t"), some("button", 3));
        assert_eq!(kind(&question("select", &[&more, "b"], None), "t"), some("list", 2));
        assert_eq!(kind(&question("select", &ten, Some("why")), "t"), some("list", 10));
        assert_eq!(kind(&question("select", &[&"z".repeat(25), "b"], None), "t"), None, "a label that does not fit");
        assert_eq!(kind(&question("multi-select", &["a", "b"], None), "t"), None);
        assert_eq!(kind(&question("select", &["a", "b"], None), &"t".repeat(1025)), None, "the text is too long");
    }

    /// The messages in `docs/cards`, which Meta's clients judge. `ASKD_CARDS=1` writes them anew.
    #[test]
    fn the_messages_in_the_documents_are_those_that_askd_sends() {
        let secret = SecretString::from("secret");
        let buttons = questions("Book the 12:45?", "confirm", &[], None);
        let flights = ["Direct, 12:45", "Via Porto, 9:10", "Via Madrid, 7:30", "Via Paris, 6:10"];
        let list = questions("Which flight?", "select", &flights, Some("about 180 euros"));
        for (name, questions) in [("buttons", buttons), ("list", list)] {
            let content = Content { title: None, context: None, questions };
            let question = &content.questions[0];
            let how = How { agent: Some("travel-bot"), until: Some("30 minutes left."), ..How::default() };
            let text = text::question(&content, 0, how).concat();
            let message = interactive(AskId::from_bits(7), 0, question, &text, &secret).unwrap();
            crate::host::channel::as_documented(&format!("whatsapp-{name}"), &message);
        }
    }

    #[test]
    fn an_id_is_taken_only_from_its_own_secret_and_whole() {
        let secret = SecretString::from("secret");
        let id = Tap { ask: AskId::from_bits(7), question: 0, option: 1 }.id(&secret).unwrap();
        assert!(Tap::read(&id, [&secret]).is_some() && Tap::read(&id, [&"new".into(), &secret]).is_some());
        assert_eq!(Tap::read(&id, [&"other".into()]), None);
        let (said, mac) = id.rsplit_once(':').unwrap();
        for forged in [
            id.replacen(":0:1:", ":0:0:", 1),
            id[..id.len() - 2].to_owned(),
            said.to_owned(),
            format!("{said}:"),
            format!("{said}:{}", "0".repeat(32)),
            format!("{said}:{mac}00"),
            String::new(),
        ] {
            assert_eq!(Tap::read(&forged, [&secret, &"other".into()]), None, "{forged}");
        }
    }
}
