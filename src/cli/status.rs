//! `askd status`: how the daemon is, what is wrong and what to do about it.

use super::asks::{Where, pretty};
use super::layout::{Look, short, text, time_from};
use super::{Exit, FAILED, say};
use crate::clock::Clock;
use askd_core::{Time, printable};
use clap::Args;
use reqwest::Method;
use serde_json::Value;

/// Show how the daemon is: channels, groups, answers nobody collected, and what to fix.
///
/// Exit codes: 0 everything works, 1 something needs attention or no daemon answers.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd status\n  askd status --json | jq -r '.problems[].line'")]
pub(super) struct StatusCommand {
    #[command(flatten)]
    at: Where,
    /// Print the API's JSON.
    #[arg(long)]
    json: bool,
}

impl StatusCommand {
    pub(super) fn run(self) -> Result<(), Exit> {
        let status = self.at.call(Method::GET, "/status", None)?;
        let told = if self.json { pretty(&status) } else { shown(&Look::of_stdout(), &status, Clock::system().now()) };
        say(&told)?;
        if status["state"] == "ready" { Ok(()) } else { Err(Exit::new(FAILED, "")) }
    }
}

fn list<'a>(status: &'a Value, field: &str) -> &'a [Value] {
    status[field].as_array().map_or(&[], Vec::as_slice)
}

fn ago(value: &Value, field: &str, now: Time) -> Option<String> {
    time_from(text(value, field)).map(|at| short(now.since(at)))
}

fn shown(look: &Look, status: &Value, now: Time) -> String {
    let running = ago(status, "started_at", now).unwrap_or_default();
    let state = text(status, "state").replace('_', " ");
    let mut lines = vec![format!("askd {}: {state}, running for {running}", text(status, "version"))];
    for problem in list(status, "problems") {
        let since = ago(problem, "since", now).map(|ago| format!(" (for {ago})")).unwrap_or_default();
        lines.push(look.alarm(&format!("! {}{since}", printable(text(problem, "line")))));
        lines.push(format!("  Fix: {}", printable(text(problem, "fix"))));
    }
    let channel = |channel: &Value| {
        let away = if channel["connected"] == true { "" } else { " (not connected)" };
        format!("{}{away}", text(channel, "title").replace("The inbox", "the inbox"))
    };
    lines.push(format!("Channels: {}", list(status, "channels").iter().map(channel).collect::<Vec<_>>().join(", ")));
    let rows = list(status, "groups").iter().map(|group| {
        let seen = ago(group, "last_heartbeat", now).or_else(|| ago(group, "last_asked", now));
        let seen = seen.map_or("-".to_owned(), |ago| format!("{ago} ago"));
        let name = text(group, "name").to_owned();
        let name = if group["served"] == false { format!("{name} (not served)") } else { name };
        [name, group["open"].to_string(), group["uncollected"].to_string(), seen]
    });
    lines.push(String::new());
    lines.extend(look.table(["AGENT", "OPEN", "NOT COLLECTED", "LAST SEEN"], rows.collect()));
    let rows = list(status, "uncollected").iter().map(|ask| {
        let since = ago(ask, "since", now).unwrap_or_default();
        [
            text(ask, "short_id").to_owned(),
            text(ask, "group").to_owned(),
            format!("{since} ago"),
            text(ask, "line").to_owned(),
        ]
    });
    let rows: Vec<[String; 4]> = rows.collect();
    if !rows.is_empty() {
        lines.push(String::new());
        lines.extend(look.table(["CODE", "AGENT", "CLOSED", "NOBODY HAS COLLECTED"], rows));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_wrong_comes_first_with_its_fix() {
        let status = json!({
            "version": "0.1.0", "started_at": "2026-11-20T08:00:00Z", "state": "degraded", "reasons": ["Slack is away"],
            "problems": [{"kind": "channel", "about": "slack", "since": "2026-11-20T09:41:00Z",
                "line": "Slack is not connected: invalid_auth", "fix": "slack.bot_token is wrong: copy it again"}],
            "channels": [{"title": "Slack", "connected": false}, {"title": "the inbox", "connected": true}],
            "groups": [
                {"name": "deploy", "served": true, "open": 2, "uncollected": 1, "last_heartbeat": "2026-11-20T09:59:56Z"},
                {"name": "old", "served": false, "open": 0, "uncollected": 0, "last_asked": null, "last_heartbeat": null}],
            "uncollected": [{"short_id": "e7", "group": "deploy", "since": "2026-11-20T09:00:00Z", "line": "Answered: yes"}]
        });
        let now = time_from("2026-11-20T10:00:00Z").unwrap();
        insta::assert_snapshot!(shown(&Look::plain(), &status, now), @r"
        askd 0.1.0: degraded, running for 2h
        ! Slack is not connected: invalid_auth (for 19m)
          Fix: slack.bot_token is wrong: copy it again
        Channels: Slack (not connected), the inbox

        AGENT             OPEN  NOT COLLECTED  LAST SEEN
        deploy            2     1              4s ago
        old (not served)  0     0              -

        CODE  AGENT   CLOSED  NOBODY HAS COLLECTED
        e7    deploy  1h ago  Answered: yes
        ");
    }
}
