//! The phone of `askd demo`: a stand-in of WhatsApp, and a person who uses it.

use anyhow::Context as _;
use askd_sim::whatsapp::{Config, Person, Whatsapp};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Whose phone it is.
const ADA: &str = "15550001111";
/// How long a question may take to get on the screen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Something that ends some time.
type Later = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// Waits for a question and replies to it.
type Replying = Box<dyn Fn(&str, &str) -> Later + Send + Sync>;

/// A phone with a stand-in of WhatsApp behind it.
pub(super) struct Phone {
    /// The daemon's settings for it: the section `[whatsapp]`.
    pub(super) settings: String,
    /// Whose phone it is.
    pub(super) chat: String,
    /// Where it can be seen and used.
    pub(super) page: String,
    /// Told where the webhook is, once the daemon listens.
    pub(super) connect: Box<dyn Fn(&str) + Send + Sync>,
    /// Waits until a question is on the screen, and replies.
    pub(super) reply: Replying,
}

/// Starts the stand-in.
pub(super) async fn phone() -> anyhow::Result<Phone> {
    let config = Config { people: vec![Person::new(ADA, "Ada")], ..Config::default() };
    let sim = Arc::new(Whatsapp::start(config).await?);
    let with = sim.config();
    let settings = format!(
        "[whatsapp]\naccess_token = {:?}\napp_secret = {:?}\nverify_token = {:?}\nphone_number_id = {:?}\n\
         api_url = {:?}\n",
        with.token,
        with.app_secret,
        with.verify_token,
        with.phone_number_id,
        sim.api_url(),
    );
    let page = sim.url();
    let (connecting, replying) = (Arc::clone(&sim), sim);
    let connect = move |webhook: &str| {
        connecting.set_webhook(Some(webhook));
        // People write first: only then may they be written to.
        connecting.person_says(ADA, "Hello, it is me.");
    };
    let reply = move |question: &str, reply: &str| {
        let (sim, question, reply) = (Arc::clone(&replying), question.to_owned(), reply.to_owned());
        let replying = async move {
            let shown = sim.wait_for_message(|m| m.stage.shown() && m.text.contains(&question), PATIENCE).await;
            let shown = shown.with_context(|| format!("{question:?} did not appear on the phone"))?;
            sim.person_quotes(ADA, &shown.id, &reply);
            anyhow::Ok(())
        };
        Box::pin(replying) as Later
    };
    Ok(Phone { settings, chat: ADA.to_owned(), page, connect: Box::new(connect), reply: Box::new(reply) })
}
