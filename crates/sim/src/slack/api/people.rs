//! The other methods: `api.test`, `auth.test`, `users.*`, `views.open`, `reactions.add`.
//!
//! Called by the dispatcher.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Answer, Args, Failure};
use crate::slack::blocks;
use crate::slack::chance::Chance;
use crate::slack::config::User;
use crate::slack::message::complete;
use crate::slack::shared::Shared;

/// How long a `trigger_id` is good (documentation).
const TRIGGER_LIFE: Duration = Duration::from_secs(3);

impl Shared {
    /// Echoes its arguments; with `error` it fails with that.
    #[expect(clippy::unused_self, reason = "all methods are called alike")]
    pub(super) fn api_test(&self, args: &Args) -> Answer {
        match args.text("error") {
            Some(error) => Err(Failure::new(&error).with("args", args.all())),
            None => Ok(json!({"args": args.all()})),
        }
    }

    pub(super) fn auth_test(&self) -> Value {
        let config = &self.config;
        let mut answer = json!({
            "url": "https://askd-sim.slack.com/", "team": "askd-sim", "user": config.app_name, "team_id": config.team_id,
            "user_id": config.bot_user, "bot_id": config.bot_id, "is_enterprise_install": config.enterprise_install.is_some(),
        });
        if let Some(enterprise) = &config.enterprise_install {
            answer["enterprise_id"] = json!(enterprise);
        }
        answer
    }

    fn person(&self, user: &User) -> Value {
        let bot = user.id == self.config.bot_user;
        json!({
            "id": user.id, "team_id": user.team, "name": user.name, "deleted": false, "real_name": user.name, "tz": "Etc/UTC",
            "tz_label": "UTC", "tz_offset": 0, "is_admin": false, "is_owner": false, "is_primary_owner": false, "is_restricted": false,
            "is_ultra_restricted": false, "is_bot": bot, "is_app_user": false, "updated": 1_732_000_000,
            "is_stranger": user.team != self.config.team_id,
            "profile": {"real_name": user.name, "display_name": user.name, "team": user.team},
        })
    }

    pub(super) fn user_info(&self, args: &Args) -> Answer {
        let id = args.required("user")?;
        let user = self.user(&id).ok_or_else(|| Failure::new("user_not_found"))?;
        Ok(json!({"user": self.person(&user)}))
    }

    pub(super) fn user_list(&self) -> Value {
        let bot = self.user(&self.config.bot_user);
        let members: Vec<Value> = self.config.users.iter().chain(&bot).map(|user| self.person(user)).collect();
        json!({"members": members, "cache_ts": self.clock.now().as_secs(), "response_metadata": {"next_cursor": ""}})
    }

    pub(super) fn view_open(&self, args: &Args) -> Answer {
        let trigger_id = args.required("trigger_id")?;
        let Some(Ok(view)) = args.json("view") else {
            return Err(Failure::new("invalid_arguments").messages(["[ERROR] missing required field: view".into()]));
        };
        let problems = blocks::check_view(&view);
        if !problems.is_empty() {
            let messages = problems.iter().map(|problem| format!("[ERROR] {problem}"));
            return Err(Failure::new("invalid_arguments").messages(messages));
        }
        let now = self.clock.now();
        let mut state = self.state();
        let trigger = state.triggers.get_mut(&trigger_id).ok_or_else(|| Failure::new("invalid_trigger_id"))?;
        if trigger.used {
            return Err(Failure::new("exchanged_trigger_id"));
        }
        if now.saturating_sub(trigger.issued) > TRIGGER_LIFE {
            return Err(Failure::new("expired_trigger_id"));
        }
        trigger.used = true;
        let user = trigger.user.clone();
        let view = self.stored_view(view, &user, &self.chance);
        state.views.push(view.clone());
        Ok(json!({"view": view}))
    }

    fn stored_view(&self, mut view: Value, user: &str, chance: &Chance) -> Value {
        let id = format!("V{}", chance.word(10));
        if let Some(blocks) = view["blocks"].as_array_mut() {
            complete(blocks, chance);
        }
        if let Some(map) = view.as_object_mut() {
            for (key, value) in [
                ("id", json!(id)),
                ("root_view_id", json!(id)),
                ("previous_view_id", Value::Null),
                ("team_id", json!(self.config.team_id)),
                ("app_id", json!(self.config.app_id)),
                ("bot_id", json!(self.config.bot_id)),
                ("state", json!({"values": {}})),
                ("hash", json!(format!("{}.{}", self.clock.now().as_secs(), chance.word(8)))),
                ("opened_for", json!(user)),
            ] {
                map.insert(key.into(), value);
            }
            for (key, value) in
                [("private_metadata", json!("")), ("callback_id", json!("")), ("external_id", json!(""))]
            {
                map.entry(key).or_insert(value);
            }
        }
        view
    }

    pub(super) fn reaction_add(&self, args: &Args) -> Answer {
        let channel = args.required("channel")?;
        let ts = args.text("timestamp").ok_or_else(|| Failure::new("no_item_specified"))?;
        let name = args.text("name").ok_or_else(|| Failure::new("invalid_name"))?;
        let mut state = self.state();
        super::chat::writable(&state, &channel)?;
        let message = state.message(&channel, &ts).ok_or_else(|| Failure::new("message_not_found"))?;
        let users = message.reactions.entry(name).or_default();
        if users.contains(&self.config.bot_user) {
            return Err(Failure::new("already_reacted"));
        }
        users.push(self.config.bot_user.clone());
        Ok(json!({}))
    }
}
