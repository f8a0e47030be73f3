//! A secret that a platform signs with is replaced while people click: for a while the old and the new one are both good,
//! and a reload is enough for each step.

use crate::harness::{SOON, World, choice};
use crate::in_slack::{Mode, in_slack};
use crate::on_whatsapp::{ADA, TO_ADA, binary_on_whatsapp, sim};
use askd_sim::slack::{Raw, SIGNING_SECRET};
use askd_sim::whatsapp::{Config, Whatsapp};
use rustix::process::Signal;
use serde_json::json;
use std::path::Path;

const NEW: &str = "fedcba9876543210fedcba9876543210";

/// Whether the daemon takes what is signed with the old secret, the new one, another one, and with none.
async fn takes(world: &World) -> [bool; 4] {
    let mut taken = [false; 4];
    for (taken, secret) in taken.iter_mut().zip([Some(SIGNING_SECRET), Some(NEW), Some("another"), None]) {
        let url = format!("{}/slack/events", world.url());
        let event = Raw::event(&world.slack, &url, &json!({"type": "url_verification", "challenge": "c"}));
        let answer = world.slack.send_raw(Raw { secret: secret.map(str::to_owned), ..event }).await;
        *taken = answer.status == Some(200);
        assert!(*taken || answer.status == Some(401), "{secret:?}: {answer:?}");
    }
    taken
}

/// Writes the secret anew, reloads, and waits until that holds.
async fn reload(world: &World, key: &str, secret: &str) {
    let file = world.dir.path().join("askd.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let other = |line: &str| if line.starts_with(key) { secret.to_owned() } else { line.to_owned() };
    std::fs::write(&file, text.lines().map(other).collect::<Vec<_>>().join("\n")).unwrap();
    let told = || world.log().matches("reloaded the settings: ").count();
    let before = told();
    world.signal(Signal::HUP);
    world.passes(SOON, "the reload", || (told() > before).then_some(())).await;
}

fn in_file(path: &Path, secrets: &str) -> String {
    std::fs::write(path, secrets).unwrap();
    format!("signing_secret_file = \"{}\"", path.display())
}

/// What the daemon takes at the start, with both secrets, and with the new one alone.
async fn replaced(env: &[(&str, &str)]) -> [[bool; 4]; 3] {
    let mut world = in_slack(Mode::Http).with_binary().prepare().await;
    world.begin_with(env).await;
    let file = world.dir.path().join("signing_secret");
    let before = takes(&world).await;
    reload(&world, "signing_secret", &format!("signing_secret = [\"{NEW}\", \"{SIGNING_SECRET}\"]")).await;
    let both = takes(&world).await;
    reload(&world, "signing_secret", &in_file(&file, &format!("{NEW}\n"))).await;
    let after = takes(&world).await;
    reload(&world, "signing_secret", &in_file(&file, &format!("{SIGNING_SECRET}\n{NEW}\n"))).await;
    assert_eq!(takes(&world).await, both, "two in a file, one a line");
    assert!(!world.log().contains("needs a restart"), "{}", world.log());
    [before, both, after]
}

#[tokio::test]
async fn a_signing_secret_is_replaced_without_a_gap() {
    let taken = [[true, false, false, false], [true, true, false, false], [false, true, false, false]];
    assert_eq!(replaced(&[]).await, taken);
}

/// P7: what is signed with a secret that was taken out gets nowhere.
#[tokio::test]
async fn a_secret_that_stays_good_is_noticed() {
    let [_, _, after] = replaced(&[("ASKD_SABOTAGE", "oldsecret")]).await;
    assert_eq!(after, [true, true, false, false], "nobody noticed");
}

/// Whether the daemon takes a webhook with each of these signatures.
async fn hears(world: &World, signers: [&Whatsapp; 2]) -> [bool; 2] {
    let body = br#"{"object":"whatsapp_business_account","entry":[]}"#;
    let mut heard = [false; 2];
    for (heard, signer) in heard.iter_mut().zip(signers) {
        *heard = world.phone.webhook_raw(body, Some(&signer.sign(body))).await == Some(200);
    }
    heard
}

#[tokio::test]
async fn an_app_secret_is_replaced_without_a_gap_and_buttons_from_before_work() {
    let world = binary_on_whatsapp(sim(), TO_ADA, "").await;
    let new = Whatsapp::start(Config { app_secret: NEW.to_owned(), ..sim() }).await.unwrap();
    let signers = [&*world.phone, &new];
    world.writes(ADA, "hello").await;
    world.ask("r1", choice("Before?", &["yes", "no"]));
    let before = world.shown(ADA, "Before?").await;
    assert_eq!(hears(&world, signers).await, [true, false]);
    reload(&world, "app_secret", &format!("app_secret = [\"{NEW}\", \"sim-app-secret\"]")).await;
    assert!(world.log().contains("whatsapp.app_secret changed"), "{}", world.log());
    assert_eq!(hears(&world, signers).await, [true, true]);
    world.phone.person_taps(&before, "yes").unwrap();
    assert_eq!(world.response("r1").await["result"]["answers"]["Before?"], "yes");
    world.ask("r2", choice("After?", &["yes", "no"]));
    let after = world.shown(ADA, "After?").await;
    world.phone.person_taps(&after, "no").unwrap();
    assert_eq!(world.response("r2").await["result"]["answers"]["After?"], "no");
    reload(&world, "app_secret", &format!("app_secret = \"{NEW}\"")).await;
    assert_eq!(hears(&world, signers).await, [false, true]);
    assert!(!world.log().contains("needs a restart"), "{}", world.log());
}
