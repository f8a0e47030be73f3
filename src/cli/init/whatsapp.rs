//! The part of `askd init` about WhatsApp: the number, its tokens, the person, and the webhook at Meta.

use super::asking::Asked;
use super::files;
use super::form::{Field, Form};
use super::plan::{Plan, Section};
use super::quoted;
use crate::cli::{Exit, USAGE, say};
use crate::clock::Clock;
use crate::host::doctor::{Unusable, number_of};
use crate::host::settings::{GroupSettings, RouteSettings, Settings, SlackSettings};
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
    /// The flag that says other than these routes.
    pub(super) fn other_than(&self, routes: &[RouteSettings]) -> Option<&'static str> {
        let person: String = self.whatsapp_person.as_ref()?.chars().filter(char::is_ascii_digit).collect();
        let is_there = routes.iter().any(|route| route.channel == ChannelName::WHATSAPP && route.chat == person);
        (!is_there).then_some("--whatsapp-person")
    }

    /// Sets the number up if it is not, and returns the group's route.
    pub(super) fn route(&self, form: &Form, plan: &mut Plan, asked: &Asked<'_>) -> Result<String, Exit> {
        if plan.settings()?.whatsapp.is_none() {
            plan.takes("whatsapp")?;
            let keys = self.number(form, plan, asked)?;
            // An address of its own for webhooks would take those of Slack away from the one that they come to.
            let webhooks = plan.settings()?.slack.as_ref().and_then(SlackSettings::signing_secrets).is_some();
            if !plan.has("http") && !webhooks {
                let comment = "# Only Meta's webhooks are served there: publish this address, and not the inbox.\n";
                let keys = [("webhook_listen", format!("{WEBHOOKS:?}"))];
                plan.set(&Section { name: "http", comment, keys: &keys })?;
            }
            let comment = "# The number that writes, the token that may write, and how webhooks are verified.\n";
            plan.set(&Section { name: "whatsapp", comment, keys: &keys })?;
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

    /// The number and its token, tried as soon as both are there, and the keys that name the files of secrets.
    fn number(&self, form: &Form, plan: &Plan, asked: &Asked<'_>) -> Result<Vec<(&'static str, String)>, Exit> {
        let field = |flag, question, secret| Field { flag, question, secret, ..Field::default() };
        let some = |text: &str| if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.to_owned()) };
        let id_field = field("--whatsapp-number-id", "Phone number ID (WhatsApp > API Setup)", false);
        let of_digits = |text: &str| {
            let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            if fits {
                Ok(text.to_owned())
            } else {
                Err(format!("{text:?} is not an id of digits, and not the number itself"))
            }
        };
        let mut id = form.ask(id_field, self.whatsapp_number_id.as_deref(), of_digits)?;
        let typed = |text: &str| format!("{text:?}");
        let tried = |id: &str, token: &str| {
            let keys = [("phone_number_id", typed(id)), ("access_token", typed(token))];
            let others = ["app_secret", "verify_token"].map(|key| (key, typed("-")));
            let settings = plan.trying("whatsapp", &[keys, others].concat())?;
            let whatsapp = settings.whatsapp.as_ref().ok_or("WhatsApp is not set up")?;
            match asked.runtime.block_on(number_of(whatsapp, Clock::system())) {
                Ok(number) => {
                    say(&format!("Meta knows the number: {number}.")).map(|()| None).map_err(|error| error.to_string())
                }
                Err(Unusable::Away(why) | Unusable::Token(why)) => Err(why),
                Err(Unusable::Number(why)) => Ok(Some(why)),
            }
        };
        let token = field("--whatsapp-access-token", "Access token of a system user (not shown)", true);
        let (token, unknown) =
            form.ask(token, self.whatsapp_access_token.as_deref(), |token| Ok((some(token)?, tried(&id, token)?)))?;
        if let Some(why) = unknown {
            let why = format!("{id} is not the id of a number of this app: {why}");
            if !form.terminal || self.whatsapp_number_id.is_some() {
                return Err(Exit::new(USAGE, format!("--whatsapp-number-id: {why}")));
            }
            say(&why)?;
            id = form.ask(id_field, None, |text| {
                let id = of_digits(text)?;
                tried(&id, &token)?.map_or(Ok(id), Err)
            })?;
        }
        let secret = field("--whatsapp-app-secret", "App secret (App settings > Basic; not shown)", true);
        let secret = form.ask(secret, self.whatsapp_app_secret.as_deref(), some)?;
        let files = [
            ("access_token_file", "whatsapp_access_token", token),
            ("app_secret_file", "whatsapp_app_secret", secret),
            ("verify_token_file", "whatsapp_verify_token", random::unique()),
        ];
        let mut keys = vec![("phone_number_id", format!("{id:?}"))];
        for (key, name, text) in files {
            keys.push((key, quoted(&files::secret(&plan.secrets(), name, &text)?)));
        }
        Ok(keys)
    }
}

/// Whether a group's questions go to WhatsApp first.
pub(super) fn comes_first(group: &GroupSettings) -> bool {
    group.routes.first().is_some_and(|route| route.channel == ChannelName::WHATSAPP)
}

/// What is left to do at Meta.
pub(super) fn steps(settings: &Settings, when: &str) -> Option<String> {
    let whatsapp = settings.whatsapp.as_ref()?;
    let listen = settings.http.webhook_listen.unwrap_or(settings.http.listen);
    Some(format!(
        "\nMeta has to reach askd, which {when}:\n1. Publish http://{listen} with TLS, for a first try with: \
         cloudflared tunnel --url http://{listen}\n2. In the app at developers.facebook.com, WhatsApp > Configuration: callback \
         URL https://<your address>/whatsapp/webhook, verify token {}; then subscribe to the field messages.\n3. Write hello \
         to the number from the phone of the person who is asked.",
        whatsapp.verify_token.expose_secret()
    ))
}

/// Says that while the daemon listens, and waits for it.
pub(super) fn wait_until_published(form: &Form, settings: &Settings) -> Result<(), Exit> {
    let Some(steps) = steps(settings, "is listening now") else { return Ok(()) };
    say(&steps)?;
    if form.terminal {
        let enter = Field { question: "Press Enter when that is done", usual: Some(""), ..Field::default() };
        form.ask(enter, None, |_| Ok(()))?;
    }
    Ok(())
}
