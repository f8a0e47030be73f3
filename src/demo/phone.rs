//! The phone of `askd demo`: a stand-in of WhatsApp, and a person who uses it.

use super::PATIENCE;
use anyhow::Context as _;
use askd_sim::whatsapp::{Config, Person, Whatsapp};

/// Whose phone it is.
pub(super) const ADA: &str = "15550001111";

/// A phone with a stand-in of WhatsApp behind it.
pub(super) struct Phone(Whatsapp);

impl Phone {
    /// Starts the stand-in.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let config = Config { people: vec![Person::new(ADA, "Ada")], ..Config::default() };
        Ok(Self(Whatsapp::start(config).await?))
    }

    /// The daemon's settings for it: the section `[whatsapp]`.
    pub(super) fn settings(&self) -> String {
        let with = self.0.config();
        format!(
            "[whatsapp]\naccess_token = {:?}\napp_secret = {:?}\nverify_token = {:?}\nphone_number_id = {:?}\n\
             api_url = {:?}\n",
            with.token,
            with.app_secret,
            with.verify_token,
            with.phone_number_id,
            self.0.api_url(),
        )
    }

    /// Where it can be seen and used.
    pub(super) fn page(&self) -> String {
        self.0.url()
    }

    /// Tells the stand-in where the webhook is, once the daemon listens.
    pub(super) fn connect(&self, webhook: &str) {
        self.0.set_webhook(Some(webhook));
        // People write first: only then may they be written to.
        self.0.person_says(ADA, "Hello, it is me.");
    }

    /// Waits until the question is on the screen, and replies.
    pub(super) async fn reply(&self, question: &str, reply: &str) -> anyhow::Result<()> {
        let shown = self.0.wait_for_message(|m| m.stage.shown() && m.text.contains(question), PATIENCE).await;
        let shown = shown.with_context(|| format!("{question:?} did not appear on the phone"))?;
        self.0.person_quotes(ADA, &shown.id, reply);
        Ok(())
    }
}
