//! What differs between two readings of the settings, in words for the log of a reload. Never a value: some are secret.

use super::{PostgresSettings, Settings, SlackSettings, SlackTransport, WebSettings, WhatsappSettings};
use secrecy::{ExposeSecret as _, SecretString};
use std::collections::BTreeSet;

/// What a reload changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// It holds from now on.
    pub now: Vec<String>,
    /// It holds after a restart.
    pub after_restart: Vec<&'static str>,
}

impl Settings {
    /// What `new` changes.
    pub fn changes(&self, new: &Self) -> Changes {
        let names: BTreeSet<&String> = self.groups.keys().chain(new.groups.keys()).collect();
        let group = |name: &String| match (self.groups.get(name), new.groups.get(name)) {
            (None, Some(_)) => Some(format!("group {name} is new")),
            (Some(_), None) => Some(format!("group {name} has no settings of its own any more")),
            (before, after) => (before != after).then(|| format!("group {name} changed")),
        };
        let mut now: Vec<String> = names.into_iter().filter_map(group).collect();
        if self.defaults != new.defaults {
            now.push("the rules of all other groups changed".to_owned());
        }
        let signing = |settings: &Self| settings.slack.as_ref().and_then(SlackSettings::signing_secrets).cloned();
        if let (Some(before), Some(after)) = (signing(self), signing(new))
            && before != after
        {
            now.push("slack.signing_secret changed".to_owned());
        }
        let app = |settings: &Self| settings.whatsapp.as_ref().map(|whatsapp| whatsapp.app_secrets.clone());
        if let (Some(before), Some(after)) = (app(self), app(new))
            && before != after
        {
            now.push("whatsapp.app_secret changed".to_owned());
        }
        if web(&self.web) != web(&new.web) {
            now.push("[web] changed".to_owned());
        }
        let sections = [
            ("data_dir, dir_mode or gid", self.data_dir != new.data_dir || self.access != new.access),
            ("[http]", self.http != new.http),
            ("[agents]", self.agents != new.agents),
            ("[slack]", self.slack.as_ref().map(slack) != new.slack.as_ref().map(slack)),
            ("[whatsapp]", self.whatsapp.as_ref().map(whatsapp) != new.whatsapp.as_ref().map(whatsapp)),
            ("[log]", self.log != new.log),
            ("[postgres]", postgres(&self.postgres) != postgres(&new.postgres)),
            ("[traces]", self.traces != new.traces),
            ("asks.keep_audit", self.keep_audit != new.keep_audit),
        ];
        Changes {
            now,
            after_restart: sections.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect(),
        }
    }
}

fn expose(secret: &SecretString) -> &str {
    secret.expose_secret()
}

/// All that can be compared and needs a restart: `Debug` leaves the secrets out.
fn slack(slack: &SlackSettings) -> (String, &str, Option<&str>) {
    let app_token = match &slack.transport {
        SlackTransport::Socket(token) => Some(expose(token)),
        SlackTransport::Webhooks(_) => None,
    };
    (format!("{slack:?}"), expose(&slack.bot_token), app_token)
}

fn postgres(postgres: &PostgresSettings) -> (&str, [Option<&str>; 2]) {
    (&postgres.node, [&postgres.url, &postgres.listen_url].map(|url| url.as_ref().map(expose)))
}

fn web(web: &WebSettings) -> (String, Vec<&str>) {
    let tokens = web.people.iter().filter_map(|person| person.token.as_ref()).chain(&web.token);
    (format!("{web:?}"), tokens.map(expose).collect())
}

fn whatsapp(whatsapp: &WhatsappSettings) -> (String, [&str; 2]) {
    let secrets = [&whatsapp.access_token, &whatsapp.verify_token];
    (format!("{whatsapp:?}"), secrets.map(expose))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_names_what_changed_and_no_secret() {
        let of = |text: &str| Settings::from_toml(&format!("data_dir = \"/tmp/askd\"\n{text}")).unwrap();
        let slack =
            |token: &str, secret: &str| format!("[slack]\nbot_token = \"xoxb-{token}\"\nsigning_secret = {secret}\n");
        let before = of(&format!("{}[groups.a]\n[groups.b]\n[groups.c]\ntimeout = \"5m\"\n", slack("old", "\"s\"")));
        let after = of(&format!(
            "{}[log]\nformat = \"json\"\n[web]\ntoken = \"new-0123456789abcdef\"\n[groups.a]\n[groups.c]\ntimeout = \"6m\"\n[groups.d]\n",
            slack("new", "[\"t\", \"s\"]")
        ));
        let changes = before.changes(&after);
        assert_eq!(
            changes.now,
            [
                "group b has no settings of its own any more",
                "group c changed",
                "group d is new",
                "slack.signing_secret changed",
                "[web] changed"
            ]
        );
        assert_eq!(changes.after_restart, ["[slack]", "[log]"]);
        let postgres = |listen: &str| of(&format!("[postgres]\nlisten_url = \"postgres://{listen}@h/d\"\n"));
        assert_eq!(postgres("a").changes(&postgres("b")).after_restart, ["[postgres]"]);
        assert_eq!(before.changes(&before), Changes::default());
    }
}
