//! The arguments of the tools. The protocol does not enforce the schemas, so this module checks everything. An error names
//! the field, the limit and the size of the value, so that the model can correct its call.

use super::settings::Settings;
use crate::ipc::wire::{Draft, Object, RENDER_TIMEOUT_MS, Request, RequestFile, plainly};
use crate::random;
use askd_core::{Digest, MAX_CONTEXT, MAX_QUESTIONS, MAX_TITLE, Rejection, wording};
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// `maxRetries` if the call does not say.
pub(super) const RETRIES: u8 = 3;
/// The longest `waitMs`: as long as a person can be given.
pub(super) const MAX_WAIT_MS: u64 = 604_800_000;

/// `ask_user`, within all limits.
#[derive(Debug)]
pub(crate) struct AskArguments {
    /// The request.
    pub(crate) request: RequestFile,
    /// The same for the same call again in its session; `None`: it has no session.
    pub(crate) key: Option<Digest>,
    /// How often the agent may try again while no daemon claims the request.
    pub(crate) retries: u8,
    /// How long this call waits.
    pub(crate) wait: Option<Duration>,
    /// What askd did differently from what the call asked for.
    pub(crate) note: Option<String>,
}

/// `ask_user_wait`, and `ask_user_cancel` without its second field.
#[derive(Debug)]
pub(crate) struct WaitArguments {
    /// Which question.
    pub(crate) question_id: String,
    /// How long this call waits.
    pub(crate) wait: Option<Duration>,
}

/// The arguments of `ask_user`. What a model reads about each is its comment here.
#[derive(Deserialize, JsonSchema)]
#[schemars(description = "")]
pub(super) struct AskFields {
    /// 1-4 questions at best, at most 10, with different texts. They are shown and answered together.
    #[schemars(with = "Vec<Draft>", length(min = 1, max = MAX_QUESTIONS))]
    questions: Option<Vec<Object<Draft>>>,
    /// A heading: what this is about. At most 100 characters.
    #[schemars(length(max = MAX_TITLE))]
    title: Option<String>,
    /// Background a person needs to decide who has not followed your work. At most 3000 characters.
    #[schemars(length(max = MAX_CONTEXT))]
    context: Option<String>,
    /// How often a question that could not be shown is tried again.
    #[serde(rename = "maxRetries", alias = "max_retries")]
    #[schemars(range(min = 0, max = 5), extend("default" = RETRIES))]
    max_retries: Option<i64>,
    /// Milliseconds until a question that nobody could see yet is tried elsewhere or again.
    #[serde(rename = "renderTimeout", alias = "render_timeout")]
    #[schemars(range(min = 10_000, max = 60_000), extend("default" = RENDER_TIMEOUT_MS))]
    render_timeout: Option<i64>,
    /// Milliseconds a person has to answer, from the moment it is shown. Default: the operator's, 1800000 (30 minutes)
    /// unless set otherwise. Less than {least} is raised to it. People may be away: give hours rather than minutes.
    #[serde(rename = "timeoutMs", alias = "timeout_ms")]
    #[schemars(range(min = 10_000, max = 604_800_000))]
    timeout_ms: Option<i64>,
    #[serde(rename = "timeoutPolicy", alias = "timeout_policy")]
    #[schemars(
        description = "At a timeout: return_cancel (default) tells you; abort_task also has your session stopped, where \
                       the operator has allowed that.",
        extend("enum" = ["return_cancel", "abort_task"])
    )]
    timeout_policy: Option<String>,
    /// Milliseconds this call waits before it returns as pending; the question stays open. Default: chosen for your
    /// client; leave it out.
    #[serde(rename = "waitMs", alias = "wait_ms")]
    #[schemars(range(min = 0, max = MAX_WAIT_MS))]
    wait_ms: Option<i64>,
}

/// The arguments of `ask_user_wait`; `ask_user_cancel` takes the first.
#[derive(Deserialize, JsonSchema)]
#[schemars(description = "")]
pub(super) struct WaitFields {
    #[schemars(required, length(min = 1, max = 64), description = "The question_id of a pending result.")]
    question_id: Option<String>,
    /// Milliseconds this call waits before it returns as pending; the question stays open. Default: chosen for your
    /// client; leave it out.
    #[serde(rename = "waitMs", alias = "wait_ms")]
    #[schemars(range(min = 0, max = MAX_WAIT_MS))]
    wait_ms: Option<i64>,
}

/// The fields, or which of them is of the wrong type.
fn fields<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, Rejection> {
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "arguments".to_owned() } else { path };
        Rejection::Wrong { field, why: plainly(&error.into_inner().to_string()) }
    })
}

fn wait(millis: Option<i64>) -> Result<Option<Duration>, Rejection> {
    let Some(value) = millis else { return Ok(None) };
    match u64::try_from(value) {
        Ok(millis) if millis <= MAX_WAIT_MS => Ok(Some(Duration::from_millis(millis))),
        _ => Err(Rejection::OutOfRange { field: "waitMs", min: 0, max: MAX_WAIT_MS, value }),
    }
}

impl AskArguments {
    /// Checks everything that can be checked without the daemon.
    pub(super) fn read(arguments: JsonObject, settings: &Settings, session: Option<&str>) -> Result<Self, Rejection> {
        let fields: AskFields = fields(arguments)?;
        let wait = wait(fields.wait_ms)?;
        let mut request = RequestFile {
            questions: fields.questions.into_iter().flatten().map(|Object(draft)| draft).collect(),
            title: fields.title,
            context: fields.context,
            max_retries: fields.max_retries,
            render_timeout: fields.render_timeout,
            timeout_ms: fields.timeout_ms,
            timeout_policy: fields
                .timeout_policy
                .filter(|policy| !policy.is_empty())
                .or_else(|| settings.policy.clone()),
            session_id: session.map(str::to_owned),
            ..RequestFile::default()
        };
        let checked = check(&request)?;
        let least = settings.min_timeout;
        let note = checked.timeout.filter(|asked| *asked < least).map(|asked| {
            request.timeout_ms = i64::try_from(least.as_millis()).ok();
            wording::timeout_raised(millis(asked), millis(least))
        });
        if note.is_some() {
            // The operator's minimum may itself be out of range.
            check(&request)?;
        }
        Ok(Self { request, key: checked.key, retries: checked.max_retries.unwrap_or(RETRIES), wait, note })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Checks the request as the daemon will, so that the model hears of a mistake at once.
fn check(file: &RequestFile) -> Result<Request, Rejection> {
    Request::new(random::request_id(), file.clone())
}

impl WaitArguments {
    /// Checks the fields.
    pub(super) fn read(arguments: JsonObject) -> Result<Self, Rejection> {
        let WaitFields { question_id, wait_ms } = fields(arguments)?;
        let given = question_id.filter(|id| !id.trim().is_empty());
        let question_id = given.ok_or(Rejection::Empty { field: "question_id".to_owned() })?;
        Ok(Self { question_id, wait: wait(wait_ms)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(arguments: &Value) -> Result<AskArguments, String> {
        let arguments = arguments.as_object().unwrap().clone();
        AskArguments::read(arguments, &Settings::default(), Some("s")).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_wrong_is_named_with_its_field() {
        let asked = |fields: Value| {
            let mut whole = json!({"questions": [{"question": "Go?"}]});
            whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            read(&whole).unwrap_err()
        };
        assert_eq!(read(&json!({})).unwrap_err(), "No questions provided");
        assert_eq!(read(&json!({"questions": []})).unwrap_err(), "No questions provided");
        assert_eq!(asked(json!({"questions": "Go?"})), "questions: must be a list, not the string \"Go?\".");
        assert_eq!(
            asked(json!({"questions": [{"question": "Go?", "options": [7]}]})),
            "questions[0].options[0]: must be an option: a label, or {\"label\", \"description\"}, not 7."
        );
        assert_eq!(asked(json!({"questions": [{"header": "x"}]})), "questions[0]: missing field `question`.");
        assert_eq!(asked(json!({"timeoutMs": "1h"})), "timeoutMs: must be an integer, not the string \"1h\".");
        assert_eq!(asked(json!({"waitMs": -1})), "waitMs is -1; it must be between 0 and 604800000.");
        assert_eq!(asked(json!({"maxRetries": 6})), "maxRetries is 6; it must be between 0 and 5.");
    }

    #[test]
    fn a_person_gets_time_enough() {
        let asked = |timeout: u64| read(&json!({"questions": [{"question": "Go?"}], "timeoutMs": timeout}));
        let raised = asked(10_000).unwrap();
        assert_eq!(raised.request.timeout_ms, Some(300_000));
        assert!(raised.note.unwrap().starts_with("timeoutMs 10000 was raised to 300000"));
        let enough = asked(300_000).unwrap();
        assert_eq!((enough.request.timeout_ms, enough.note), (Some(300_000), None));
        assert_eq!(asked(9_999).unwrap_err(), "timeoutMs is 9999; it must be between 10000 and 604800000.");
        assert_eq!(read(&json!({"questions": [{"question": "Go?"}]})).unwrap().request.timeout_ms, None);
    }

    #[test]
    fn the_same_questions_are_the_same_call_in_its_session_alone() {
        let key = |session, arguments: Value| {
            let arguments = arguments.as_object().unwrap().clone();
            AskArguments::read(arguments, &Settings::default(), session).unwrap().key
        };
        let go = |more: Value| {
            let mut whole = json!({"questions": [{"question": "Go?"}]});
            whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            whole
        };
        let first = key(Some("s"), go(json!({"waitMs": 5})));
        assert!(first.is_some() && first == key(Some("s"), go(json!({"waitMs": 7, "timeoutMs": 400_000}))));
        assert_ne!(first, key(Some("s"), go(json!({"title": "t"}))));
        assert_ne!(first, key(Some("other"), go(json!({}))));
        assert_eq!(key(None, go(json!({}))), None);
    }
}
