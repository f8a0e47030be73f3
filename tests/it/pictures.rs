//! The pictures of the README show askd as it is: what they were made from is compared with what is there. They are made anew
//! by `docs/pictures/make`.

use crate::in_slack::{CHANNEL, Mode, in_slack};
use crate::on_whatsapp::{ADA, TO_ADA, on_whatsapp, sim};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const AGAIN: &str = "make the pictures anew: docs/pictures/make";
/// All of them together; the README is read over slow lines, too.
const MOST_BYTES: u64 = 2 * 1024 * 1024;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pictures() -> PathBuf {
    root().join("docs/pictures")
}

/// What the demo asks in this place.
fn asked(place: &str) -> Value {
    let scenes: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(root().join("src/demo/scenes.json")).unwrap()).unwrap();
    scenes.into_iter().find(|scene| scene["place"] == place).unwrap()["request"].clone()
}

/// Every text of a card in its order, without what is another one each time.
fn texts(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            into.extend(object.get("text").and_then(Value::as_str).map(|text| {
                let timeless = text.split_once(" · answer until ").map(|(before, _)| format!("{before} · (time)"));
                timeless.unwrap_or_else(|| text.to_owned())
            }));
            object.values().for_each(|value| texts(value, into));
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, into)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cards_in_the_pictures_say_what_cards_say() {
    let world = in_slack(Mode::Http).start().await;
    world.ask("deploy", asked("slack"));
    let card = world.card(CHANNEL).await;
    let mut said = vec!["In Slack:".to_owned()];
    texts(&serde_json::to_value(&card.blocks).unwrap(), &mut said);
    let world = on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.ask("travel", asked("phone"));
    let message = world.shown(ADA, "Which flight").await.text;
    said.push("\nOn WhatsApp:".to_owned());
    said.extend(message.lines().filter(|line| !line.starts_with("You can answer until")).map(str::to_owned));
    let said = said.join("\n") + "\n";
    let file = pictures().join("cards.txt");
    if std::env::var_os("ASKD_PICTURES").is_some() {
        fs::write(&file, &said).unwrap();
    }
    assert_eq!(fs::read_to_string(file).unwrap_or_default(), said, "{AGAIN}");
}

#[test]
fn the_pictures_are_of_todays_pages() {
    if std::env::var_os("ASKD_PICTURES").is_some() {
        return;
    }
    let kept = fs::read_to_string(pictures().join("made-from")).unwrap();
    let kept: Vec<&str> = kept.lines().filter_map(|line| line.split("  ").nth(1)).collect();
    let sources = Command::new(pictures().join("sources")).output().unwrap();
    assert_eq!(kept, String::from_utf8(sources.stdout).unwrap().lines().collect::<Vec<_>>(), "{AGAIN}");
    let check =
        Command::new("sha256sum").args(["--check", "--quiet", "docs/pictures/made-from"]).current_dir(root()).output();
    let check = check.unwrap();
    assert!(check.status.success(), "{}{AGAIN}", String::from_utf8_lossy(&check.stdout));
}

#[test]
fn the_readme_shows_pictures_that_are_small() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let mut bytes = 0;
    for name in ["ask.gif", "inbox.png", "slack.png", "whatsapp.png"] {
        assert!(readme.contains(&format!("docs/pictures/{name}")), "{name}");
        bytes += fs::metadata(pictures().join(name)).unwrap().len();
    }
    assert!(bytes <= MOST_BYTES, "{bytes} bytes");
}
