//! What a pretended workspace consists of: people, channels, tokens, and how strict it is about time.
//!
//! Plain values; nothing is decided here. Made by tests, the demo and the command that runs the stand-in, read by everything beside it.

use std::collections::BTreeMap;
use std::time::Duration;

/// A person of the workspace.
#[derive(Debug, Clone)]
pub struct User {
    /// `U...`
    pub id: String,
    /// Short name, as in `@alice`.
    pub name: String,
    /// The team the person belongs to, `T...`. Another one than the app's for guests of shared channels.
    pub team: String,
}

/// A conversation.
#[derive(Debug, Clone)]
pub struct Channel {
    /// `C...`, also of a private one; `G...` of an old private one.
    pub id: String,
    /// Name without `#`.
    pub name: String,
    /// Ids of the people in it.
    pub members: Vec<String>,
    /// Whether the app's bot was invited.
    pub bot_invited: bool,
    /// Private channels are invisible to a bot that is not in them.
    pub private: bool,
    /// Archived channels refuse messages.
    pub archived: bool,
}

impl Token {
    /// A bot's token that may do all that the stand-in knows.
    #[must_use]
    pub fn with_all_scopes(secret: &str) -> Self {
        Self { secret: secret.into(), scopes: ALL_SCOPES.iter().map(ToString::to_string).collect() }
    }
}

impl Channel {
    /// What Slack calls its kind: in scopes, and in events.
    pub(super) fn kind(&self) -> (&'static str, &'static str) {
        match (self.id.starts_with('D'), self.private) {
            (true, _) => ("im", "im"),
            (false, true) => ("groups", "group"),
            (false, false) => ("channels", "channel"),
        }
    }
}

/// A token of the app.
#[derive(Debug, Clone)]
pub struct Token {
    /// `xoxb-...` for the bot, `xapp-...` for Socket Mode.
    pub secret: String,
    /// What it may do, such as `chat:write`.
    pub scopes: Vec<String>,
}

/// Everything a stand-in is started with. [`Config::default`] is a workspace in which all works that the shipped app can do.
#[derive(Debug, Clone)]
pub struct Config {
    /// 0 takes any free port. Always on 127.0.0.1.
    pub port: u16,
    /// `T...`
    pub team_id: String,
    /// `E...`: the app was installed for a whole organisation, so interactions say `"team": null` and `"is_enterprise_install": true`.
    pub enterprise_install: Option<String>,
    /// `A...`
    pub app_id: String,
    /// Name the app posts under.
    pub app_name: String,
    /// `U...` of the bot.
    pub bot_user: String,
    /// `B...` of the bot.
    pub bot_id: String,
    /// Tokens that act as the bot.
    pub bot_tokens: Vec<Token>,
    /// Token for Socket Mode; `None`: the app has none.
    pub app_token: Option<Token>,
    /// Key of the signatures.
    pub signing_secret: String,
    /// People.
    pub users: Vec<User>,
    /// Conversations.
    pub channels: Vec<Channel>,
    /// Where the app reaches this through a proxy of its own, like `https://127.0.0.1:PORT`; `None`: directly.
    pub public_url: Option<String>,
    /// Where interactions are posted, without Socket Mode.
    pub interactivity_url: Option<String>,
    /// Where events are posted, without Socket Mode.
    pub events_url: Option<String>,
    /// Whether the app is subscribed to `message` events.
    pub message_events: bool,
    /// For everything random here: the same seed gives the same faults and ids.
    pub seed: u64,
    /// Least time between two `chat.postMessage` to one channel; zero switches the limit off.
    pub pace: Duration,
    /// How many posts may come at once before [`Self::pace`] holds.
    pub burst: u32,
    /// Calls per minute and method, for methods that shall have such a limit (`chat.update`: 50 in Slack's tier 3).
    pub per_minute: BTreeMap<String, u32>,
    /// How long an interaction or event may take to be acknowledged: 3 s in Slack.
    pub ack_within: Duration,
    /// When an unacknowledged event is sent again: at once, after 1 and after 5 minutes in Slack.
    pub event_retries: Vec<Duration>,
}

/// The scopes of the app that is shipped: what the bot has in most workspaces.
fn shipped_scopes() -> Vec<String> {
    let manifest = include_str!("../../../../deploy/slack-manifest.yaml");
    let lines =
        manifest.lines().map(str::trim).skip_while(|line| *line != "bot:").take_while(|line| *line != "settings:");
    lines.filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect()
}

/// Scopes that let a bot do all that the stand-in knows. The bot of [`Config::default`] has fewer.
pub const ALL_SCOPES: &[&str] = &[
    "chat:write",
    "channels:history",
    "channels:join",
    "channels:read",
    "groups:history",
    "groups:read",
    "im:history",
    "reactions:write",
    "users:read",
];

/// Bot token of [`Config::default`].
pub const BOT_TOKEN: &str = "xoxb-askd-sim";
/// App token of [`Config::default`].
pub const APP_TOKEN: &str = "xapp-askd-sim";
/// Signing secret of [`Config::default`].
pub const SIGNING_SECRET: &str = "askd-sim-signing-secret";

impl Default for Config {
    fn default() -> Self {
        let user = |id: &str, name: &str, team: &str| User { id: id.into(), name: name.into(), team: team.into() };
        let channel = |id: &str, name: &str, bot_invited: bool| Channel {
            id: id.into(),
            name: name.into(),
            members: vec!["U0ALICE".into(), "U0BOB".into(), "U0STRANGER".into()],
            bot_invited,
            private: false,
            archived: false,
        };
        Self {
            port: 0,
            team_id: "T0ASKD".into(),
            enterprise_install: None,
            app_id: "A0ASKD".into(),
            app_name: "askd".into(),
            bot_user: "U0ASKDBOT".into(),
            bot_id: "B0ASKD".into(),
            bot_tokens: vec![Token { secret: BOT_TOKEN.into(), scopes: shipped_scopes() }],
            app_token: Some(Token { secret: APP_TOKEN.into(), scopes: vec!["connections:write".into()] }),
            signing_secret: SIGNING_SECRET.into(),
            users: vec![
                user("U0ALICE", "alice", "T0ASKD"),
                user("U0BOB", "bob", "T0ASKD"),
                user("U0STRANGER", "stranger", "T0OTHER"),
            ],
            channels: vec![
                channel("C0AGENTS", "agents", true),
                channel("C0RESEARCH", "research", true),
                channel("C0UNINVITED", "uninvited", false),
                Channel { archived: true, ..channel("C0ARCHIVED", "archived", true) },
                Channel { private: true, ..channel("C0PRIVATE", "private", true) },
                Channel { private: true, ..channel("G0SECRET", "secret", false) },
            ],
            public_url: None,
            interactivity_url: None,
            events_url: None,
            message_events: true,
            seed: 1,
            pace: Duration::from_secs(1),
            burst: 1,
            per_minute: BTreeMap::new(),
            ack_within: Duration::from_secs(3),
            event_retries: vec![Duration::ZERO, Duration::from_secs(60), Duration::from_secs(300)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bot_has_the_scopes_that_the_manifest_asks_for() {
        let scopes = &Config::default().bot_tokens[0].scopes;
        assert_eq!(scopes, &["chat:write", "channels:history", "groups:history", "im:history"]);
    }
}
