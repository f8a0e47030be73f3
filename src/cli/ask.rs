//! `askd ask`: a question from a script or a terminal.

use super::json::escaped;
use super::{Exit, FAILED, USAGE};
use crate::agent::{AgentError, OpenCall, Taken, Way};
use crate::clock::Clock;
use crate::ipc::wire::{AnswerValue, Draft, DraftChoice, Request, RequestFile, ResponseFile};
use crate::random;
use anyhow::Context as _;
use askd_core::{Style, TimeoutPolicy, wording};
use clap::Args;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a withdrawn call waits for the daemon's word.
const WITHDRAWAL: Duration = Duration::from_secs(3);
/// How long a daemon usually takes at most until it says that a question is shown.
const SILENT: Duration = Duration::from_secs(3);

/// Ask a question and wait for the answer.
///
/// Only the answer is written to standard output.
///
/// Environment: `ASKD_IPC_DIR` (the folder), or `ASKD_URL` and `ASKD_TOKEN` or `ASKD_TOKEN_FILE` (over HTTP,
/// docs/remote.md), `ASKD_SESSION_ID` (which run of the agent asks), `ASK_USER_TIMEOUT_POLICY` (`return_cancel` or
/// `abort_task`).
///
/// Exit codes: 0 answered, 2 usage, 3 cancelled, 4 timeout, 5 undeliverable, 6 blocked or rejected, 1 anything else.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  askd ask \"Deploy now?\" --option yes --option \"no=not today\" --only-options\n  \
                  askd ask \"Which targets?\" --multi --option staging --option prod --json\n  \
                  answer=$(askd ask \"Really?\" --confirm --timeout 10m) && echo \"$answer\""
)]
#[expect(clippy::struct_excessive_bools, reason = "they are the flags of the command line")]
pub(super) struct AskCommand {
    /// What to ask.
    question: String,
    /// The group's folder, which holds tasks/ and responses/ [default: `ASKD_IPC_DIR`, else /workspace/ipc, else this
    /// host's folder of the group "default"].
    #[arg(long, value_name = "DIR")]
    ipc: Option<PathBuf>,
    /// An option to choose from, with an optional description after "=". Repeatable.
    #[arg(long = "option", value_name = "LABEL[=DESCRIPTION]")]
    options: Vec<String>,
    /// The option whose button stands out, where there are buttons.
    #[arg(long, value_name = "LABEL", requires = "options")]
    primary: Option<String>,
    /// The option whose button warns.
    #[arg(long, value_name = "LABEL", requires = "options")]
    danger: Option<String>,
    /// Allow more than one option.
    #[arg(long, requires = "options")]
    multi: bool,
    /// Ask yes or no; two --option rename them.
    #[arg(long, conflicts_with_all = ["multi", "text"])]
    confirm: bool,
    /// Ask for typed text (the default without --option).
    #[arg(long, conflicts_with_all = ["multi", "options"])]
    text: bool,
    /// Accept only the options, no answer in other words.
    #[arg(long, requires = "options", conflicts_with = "text")]
    only_options: bool,
    /// A heading above the question.
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Background that people need to decide.
    #[arg(long, value_name = "TEXT")]
    context: Option<String>,
    /// How long people have to answer once they see it, for example 45s, 30m or 2h [default: the group's setting].
    #[arg(long, value_name = "DURATION", value_parser = limited(10, 7 * 86_400))]
    timeout: Option<Duration>,
    /// How long the daemon has to take the question, 10s to 60s.
    #[arg(long, value_name = "DURATION", value_parser = limited(10, 60), hide = true)]
    render_timeout: Option<Duration>,
    /// Print the whole result as JSON instead of the answer.
    #[arg(long)]
    json: bool,
    /// Leave the question open on Ctrl-C, SIGTERM or a closed terminal instead of withdrawing it.
    #[arg(long)]
    keep: bool,
}

impl AskCommand {
    pub(super) fn run(self) -> Result<(), Exit> {
        super::log("warn", false)?;
        let request = self.request()?;
        super::small_runtime()?.block_on(async {
            let clock = Clock::system();
            let mut way = Way::new(self.ipc.clone(), super::variable, &clock)?;
            // Before the request is written: a process that is killed early must not leave a question behind.
            let stop = super::stop_on_signals()?;
            let call = way.ask(request, super::variable)?;
            match self.wait(&*call, &clock, &stop).await? {
                Some(taken) => self.tell(&*call, taken).await,
                None if self.keep => {
                    call.leave();
                    let told = if call.stays() { "the question stays open" } else { "askd may not have the question" };
                    Err(Exit::new(FAILED, format!("interrupted; {told} (request {})", call.request_id())))
                }
                None => {
                    call.withdraw()?;
                    // The answer may have come first: wait for what the daemon says.
                    match clock.timeout(WITHDRAWAL, call.wait()).await {
                        Some(Ok(taken)) => self.tell(&*call, taken).await,
                        Some(Err(error @ AgentError::Gone(_))) => Err(error.into()),
                        _ if call.is_over() => {
                            let over = "interrupted; the question was closed before that, and askd has not said how";
                            Err(Exit::new(FAILED, format!("{over} (request {})", call.request_id())))
                        }
                        _ if call.is_withdrawn() => Err(Exit::new(3, "interrupted; the question was withdrawn")),
                        _ => {
                            let open = "interrupted; askd could not be told, so the question may stay open";
                            Err(Exit::new(FAILED, format!("{open} (request {})", call.request_id())))
                        }
                    }
                }
            }
        })
    }

    fn choices(&self) -> Result<Vec<DraftChoice>, Exit> {
        if let Some(label) = self.primary.as_ref().filter(|_| self.primary == self.danger) {
            return Err(Exit::new(
                USAGE,
                format!("--primary and --danger both name {label:?}; a button has one style"),
            ));
        }
        let mut styles = vec![(&self.primary, Style::Primary), (&self.danger, Style::Danger)];
        let mut options = Vec::with_capacity(self.options.len());
        for option in &self.options {
            let (label, description) = match option.split_once('=') {
                Some((label, description)) => (label, Some(description.to_owned())),
                None => (option.as_str(), None),
            };
            let at = styles.iter().position(|(of, _)| of.as_deref() == Some(label));
            let style = at.map(|at| styles.remove(at).1);
            let label = label.to_owned();
            options.push(match (&description, style) {
                (None, None) => DraftChoice::Label(label),
                _ => DraftChoice::Described { label, description, style },
            });
        }
        match styles.iter().find_map(|(of, style)| Some((of.as_ref()?, style.name()))) {
            Some((label, flag)) => {
                Err(Exit::new(USAGE, format!("--{flag} {label:?} is not one of the --option labels")))
            }
            None => Ok(options),
        }
    }

    /// The request, checked here as the daemon would, so that a mistake is told at once.
    fn request(&self) -> Result<RequestFile, Exit> {
        let kind = if self.confirm {
            Some(askd_core::Kind::Confirm)
        } else if self.text {
            Some(askd_core::Kind::Text)
        } else {
            self.multi.then_some(askd_core::Kind::MultiSelect)
        };
        let options = self.choices()?;
        let draft = Draft {
            kind: kind.map(|kind| kind.name().to_owned()),
            options: (!options.is_empty()).then_some(options),
            custom: self.only_options.then_some(false),
            question: self.question.clone(),
            ..Draft::default()
        };
        let policy = std::env::var("ASK_USER_TIMEOUT_POLICY").ok().filter(|policy| !policy.is_empty());
        if let Some(policy) = &policy
            && TimeoutPolicy::from_name(policy).is_none()
        {
            let why = format!("ASK_USER_TIMEOUT_POLICY={policy:?} is neither return_cancel nor abort_task");
            return Err(Exit::new(USAGE, why));
        }
        let session = std::env::var("ASKD_SESSION_ID").ok().filter(|id| !id.trim().is_empty());
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let file = RequestFile {
            questions: vec![draft],
            title: self.title.clone(),
            context: self.context.clone(),
            timeout_ms: self.timeout.map(millis),
            render_timeout: self.render_timeout.map(millis),
            timeout_policy: policy,
            session_id: Some(session.unwrap_or_else(random::unique)),
            ..RequestFile::default()
        };
        Request::new(random::request_id(), file.clone())
            .map_err(|rejection| Exit::new(USAGE, in_flags(&rejection.to_string())))?;
        Ok(file)
    }

    /// Waits for the response or a signal (`None`), saying on a terminal how long is left.
    async fn wait(&self, call: &dyn OpenCall, clock: &Clock, stop: &CancellationToken) -> Result<Option<Taken>, Exit> {
        let terminal = std::io::stderr().is_terminal();
        let progress = count_down(clock, || (call.left(), call.is_claimed()));
        let ended = tokio::select! {
            end = call.wait() => end.map(Some),
            () = stop.cancelled() => Ok(None),
            () = progress, if terminal => Ok(None),
        };
        // Leaves a clean line behind.
        if terminal {
            let _unread = write!(std::io::stderr(), "\r\x1b[K");
        }
        Ok(ended?)
    }

    async fn tell(&self, call: &dyn OpenCall, taken: Taken) -> Result<(), Exit> {
        let code = exit_code(&taken.response);
        if let Err(error) = self.print(&taken.response, code) {
            // The caller has not read it: it stays where the next call finds it.
            let kept = taken.put_back().unwrap_or("it is lost");
            return Err(Exit::new(FAILED, format!("the answer cannot be written: {error:#}; {kept}")));
        }
        let error = taken.response.error.as_ref().map(|error| with_cause(error, &taken.response));
        taken.done().context("cannot delete the response")?;
        match call.finish().await {
            // The answer is good, and printed.
            Err(AgentError::HostSilent) => tracing::warn!(
                request_id = %call.request_id(),
                "askd could not be told that the answer was taken: it may come again as a briefing, or start the agent"
            ),
            told => told?,
        }
        // The exit code and, unless it is in the JSON, what went wrong.
        match code {
            0 => Ok(()),
            code => Err(Exit::new(code, error.filter(|_| !self.json).unwrap_or_default())),
        }
    }

    /// All of it or an error: a reader that has gone has not read it.
    fn print(&self, response: &ResponseFile, code: u8) -> anyhow::Result<()> {
        let mut text = String::new();
        if self.json {
            let mut whole = serde_json::to_value(&response.result)?;
            if let (Some(error), Some(object)) = (&response.error, whole.as_object_mut()) {
                object.insert("error".to_owned(), error.clone().into());
            }
            text = escaped(&serde_json::to_string_pretty(&whole)?) + "\n";
        } else if code == 0 {
            for (_, answer) in &response.result.answers.0 {
                match answer {
                    AnswerValue::One(answer) => text += &as_printed(answer),
                    AnswerValue::Many(answers) => text.extend(answers.iter().map(|answer| as_printed(answer))),
                }
            }
        }
        let mut output = std::io::stdout().lock();
        output.write_all(text.as_bytes())?;
        Ok(output.flush()?)
    }
}

/// Says on a terminal what is waited for, and how long is left.
async fn count_down(clock: &Clock, look: impl Fn() -> (Option<Duration>, bool)) {
    let began = clock.monotonic();
    loop {
        let (left, claimed) = look();
        let what = waits_for(left, claimed, clock.monotonic().since(began));
        let _unread = write!(std::io::stderr(), "\r\x1b[K{what} (Ctrl-C withdraws it)");
        clock.sleep(Duration::from_secs(1)).await;
    }
}

/// To the letter for a script; a terminal is not steered by it.
fn as_printed(answer: &str) -> String {
    if std::io::stdout().is_terminal() {
        return answer.lines().map(|line| askd_core::printable(line) + "\n").collect();
    }
    format!("{answer}\n")
}

/// A duration from `least` to `most` seconds, as people write it.
fn limited(least: u64, most: u64) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| {
        let duration = humantime::parse_duration(text).map_err(|_| format!("{text:?} is not a duration like 30m"))?;
        let name = |seconds| humantime::format_duration(Duration::from_secs(seconds)).to_string();
        let fits = (Duration::from_secs(least)..=Duration::from_secs(most)).contains(&duration);
        fits.then_some(duration).ok_or_else(|| format!("it must be between {} and {}", name(least), name(most)))
    }
}

/// What is wrong with a request, in the words of the command line.
fn in_flags(rejection: &str) -> String {
    rejection.replace("questions[0].question", "the question").replace("questions[0].options", "--option")
}

/// An error and, in a sentence, why the question could not be shown.
fn with_cause(error: &str, response: &ResponseFile) -> String {
    let reason = response.result.cause.as_deref().and_then(|cause| cause.parse().ok());
    reason.map_or(error.to_owned(), |reason| format!("{}. {}", error.trim_end_matches('.'), wording::trouble(reason)))
}

fn exit_code(response: &ResponseFile) -> u8 {
    match response.result.status.as_str() {
        "answered" => 0,
        "cancelled" => 3,
        "timeout" => 4,
        "undeliverable" => 5,
        "blocked" | "rejected" => 6,
        _ => FAILED,
    }
}

/// What a call waits for, in a line that fits 80 columns.
fn waits_for(left: Option<Duration>, claimed: bool, waited: Duration) -> String {
    match left {
        Some(left) => {
            let left = humantime::format_duration(Duration::from_secs(left.as_secs()));
            format!("waiting for an answer, {left} left")
        }
        None if waited < SILENT => "waiting for askd".to_owned(),
        None if claimed => "askd has the question and is posting it".to_owned(),
        None => "no daemon takes the question; is `askd serve` running?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_three_seconds_it_says_what_it_waits_for() {
        let after = |seconds, left, claimed| waits_for(left, claimed, Duration::from_secs(seconds));
        assert_eq!(after(2, None, false), "waiting for askd");
        assert_eq!(after(3, None, false), "no daemon takes the question; is `askd serve` running?");
        assert_eq!(after(3, None, true), "askd has the question and is posting it");
        assert_eq!(after(3, Some(Duration::from_millis(1_799_500)), true), "waiting for an answer, 29m 59s left");
    }
}
