//! The part of `askd init` about WhatsApp: the number, its tokens, the person, and the webhook at Meta.

use super::files;
use super::form::{Field, Form};
use super::plan::Plan;
use super::quoted;
use crate::cli::{Exit, say};
use crate::host::settings::{GroupSettings, Settings};
use crate::random;
use askd_core::ChannelName;
use clap::Args;
use secrecy::ExposeSecret as _;

/// Where the webhooks are, so that they can be published without the inbox.
const WEBHOOKS: &str = "127.0.0.1:8485";

/// What is asked about WhatsApp.
#[derive(Debug, Args)]
pub(super) struct WhatsappFlags {
    /// The id of the business's phone number.
    #[arg(long, value_name = "ID")]
    whatsapp_number_id: Option<String>,
    /// The token of a system user; prefer the variable: other users can see command lines.
    #[arg(long, value_name = "TOKEN", env = "ASKD_WHATSAPP_ACCESS_TOKEN", hide_env_values = true)]
    whatsapp_access_token: Option<String>,
    /// The secret of the app at Meta.
    #[arg(long, value_name = "SECRET", env = "ASKD_WHATSAPP_APP_SECRET", hide_env_values = true)]
    whatsapp_app_secret: Option<String>,
    /// The number of the person who is asked, with country code.
    #[arg(long, value_name = "NUMBER")]
    whatsapp_person: Option<String>,
}

impl WhatsappFlags {
    /// Sets the number up if it is not, and returns the group's route.
    pub(super) fn route(&self, form: &Form, plan: &mut Plan) -> Result<String, Exit> {
        if plan.settings()?.whatsapp.is_none() {
            let section = self.number(form, plan)?;
            plan.add(&section);
        }
        let field = Field {
            flag: "--whatsapp-person",
            question: "Number of the person who is asked, with country code",
            ..Field::default()
        };
        form.ask(field, self.whatsapp_person.as_deref(), |number| {
            let route = format!("{{ channel = \"whatsapp\", chat = {number:?} }}");
            plan.with(&format!("\n[groups.askd-init]\nroutes = [{route}]\n")).map(|_| route)
        })
    }

    fn number(&self, form: &Form, plan: &Plan) -> Result<String, Exit> {
        let field = |flag, question, secret| Field { flag, question, secret, ..Field::default() };
        let some = |text: &str| if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.to_owned()) };
        let id = field("--whatsapp-number-id", "Phone number ID (WhatsApp > API Setup)", false);
        let id = form.ask(id, self.whatsapp_number_id.as_deref(), |text| {
            let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            if fits {
                Ok(text.to_owned())
            } else {
                Err(format!("{text:?} is not an id of digits, and not the number itself"))
            }
        })?;
        let token = field("--whatsapp-access-token", "Access token of a system user (not shown)", true);
        let token = form.ask(token, self.whatsapp_access_token.as_deref(), some)?;
        let secret = field("--whatsapp-app-secret", "App secret (App settings > Basic; not shown)", true);
        let secret = form.ask(secret, self.whatsapp_app_secret.as_deref(), some)?;
        let files = [
            ("whatsapp_access_token", token),
            ("whatsapp_app_secret", secret),
            ("whatsapp_verify_token", random::unique()),
        ];
        let mut paths = Vec::new();
        for (name, text) in files {
            paths.push(quoted(&files::secret(&plan.secrets(), name, &text)?));
        }
        let http = if plan.is_new() {
            format!(
                "\n[http]\n# Only Meta's webhooks are served there: publish this address, and not the inbox.\nwebhook_listen = \"{WEBHOOKS}\"\n"
            )
        } else {
            String::new()
        };
        let [access, app, verify] = &paths[..] else { return Ok(String::new()) };
        Ok(format!(
            "{http}\n[whatsapp]\n# The number that writes, the token that may write, and how webhooks are verified.\n\
             phone_number_id = \"{id}\"\naccess_token_file = {access}\napp_secret_file = {app}\nverify_token_file = {verify}\n"
        ))
    }
}

/// Whether a group's questions go to WhatsApp first.
pub(super) fn comes_first(group: &GroupSettings) -> bool {
    group.routes.first().is_some_and(|route| route.channel == ChannelName::WHATSAPP)
}

/// Says what is left to do at Meta while the daemon listens, and waits for it.
pub(super) fn wait_until_published(form: &Form, settings: &Settings) -> Result<(), Exit> {
    let Some(whatsapp) = &settings.whatsapp else { return Ok(()) };
    let listen = settings.http.webhook_listen.unwrap_or(settings.http.listen);
    say(&format!(
        "\nMeta has to reach askd, which is listening now:\n1. Publish http://{listen} with TLS, for a first try with: \
         cloudflared tunnel --url http://{listen}\n2. In the app at developers.facebook.com, WhatsApp > Configuration: callback \
         URL https://<your address>/whatsapp/webhook, verify token {}; then subscribe to the field messages.\n3. Write hello \
         to the number from the phone of the person who is asked.",
        whatsapp.verify_token.expose_secret()
    ))?;
    if form.is_terminal() {
        let enter = Field { question: "Press Enter when that is done", usual: Some(""), ..Field::default() };
        form.ask(enter, None, |_| Ok(()))?;
    }
    Ok(())
}
