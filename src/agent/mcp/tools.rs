//! What the tools say about themselves: names, descriptions with the rules a model has to know, and
//! schemas. The limits are those that `ask` checks, so that they cannot say something else.

use super::arguments::{MAX_WAIT_MS, RENDER_TIMEOUT_MS, RETRIES};
use super::settings::Settings;
use askd_core::{
    MAX_CHOICES, MAX_CONTEXT, MAX_DESCRIPTION, MAX_HEADER, MAX_LABEL, MAX_PLACEHOLDER, MAX_QUESTION_ID, MAX_QUESTIONS,
    MAX_TEXT, MAX_TITLE,
};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use std::sync::Arc;

/// Asks.
pub(super) const ASK: &str = "ask_user";
/// Waits on.
pub(super) const WAIT: &str = "ask_user_wait";
/// Withdraws.
pub(super) const CANCEL: &str = "ask_user_cancel";

/// What the server says about itself.
pub(super) const INSTRUCTIONS: &str = "\
Asks a person a question and waits for the answer (in chat or a web inbox; the person does not see your screen or \
your messages). Use ask_user instead of any built-in question tool: nobody is at a terminal here.";

const ASK_SAYS: &str = "\
Ask a person and wait for the answer. The person gets the question in chat or a web inbox and sees nothing of your \
work, so put what they need to decide into `context`, and say in the options what each leads to.

Ask only when you cannot find out yourself and a wrong guess would be costly: a decision that is the person's to make, \
a missing fact, an approval. Put 1-4 related questions into one call instead of several calls.

What comes back (`status`):
- answered: the answers, by question text. Go on with them.
- pending (`stillPending: true`): nobody has answered yet and the question stays open. It is not an answer and not a \
failure: repeat this exact call, or call ask_user_wait with `question_id`. Do not reword it, do not guess.
- timeout: nobody answered in time. That is never a yes. Do not ask again by yourself; do what is safe without an \
answer, or stop, and decide whether to ask again when the user sends a new message.
- cancelled: the person does not want to answer, or the question was withdrawn. Do not ask it again; do not do what \
you asked about.
- undeliverable: it could not be shown to anybody. With `shouldRetry: true` repeat this exact call now, in this \
session, with the same parameters; with `shouldRetry: false` (\"Max retries exceeded\") do not, and say so.
- blocked: asked too often without an answer. Wait for the user's guidance.
- rejected: the error names the field and the limit. Correct the call and make it again.";

const WAIT_SAYS: &str = "\
Wait on for the answer to a question that ask_user returned as pending. Asks nothing anew; returns at once if the \
person has answered meanwhile. The results are those of ask_user.";

const CANCEL_SAYS: &str = "\
Withdraw a question that is still open because its answer is no longer needed; people see that it is closed. If the \
answer came first, it is returned instead. A call that merely stops waiting withdraws nothing.";

/// All tools.
pub(super) fn all(settings: &Settings) -> Vec<Tool> {
    let output = Arc::new(object(output()));
    let tool = |name, says, input: Value| {
        Tool::new(name, says, Arc::new(object(input))).with_raw_output_schema(Arc::clone(&output))
    };
    let hints = ToolAnnotations::new().read_only(false).destructive(false).open_world(true);
    let question_id = json!({
        "type": "string", "minLength": 1, "maxLength": 64,
        "description": "The question_id of a pending result.",
    });
    vec![
        tool(ASK, ASK_SAYS, asking(settings)).annotate(hints.clone().idempotent(false)).with_title("Ask a person"),
        tool(
            WAIT,
            WAIT_SAYS,
            json!({
                "type": "object",
                "properties": {"question_id": question_id, "waitMs": wait_ms()},
                "required": ["question_id"],
            }),
        )
        .annotate(hints.clone().idempotent(true))
        .with_title("Wait on for an answer"),
        tool(
            CANCEL,
            CANCEL_SAYS,
            json!({
                "type": "object",
                "properties": {"question_id": question_id},
                "required": ["question_id"],
            }),
        )
        .annotate(hints.destructive(true).idempotent(true))
        .with_title("Withdraw a question"),
    ]
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

fn wait_ms() -> Value {
    json!({
        "type": "integer", "minimum": 0, "maximum": MAX_WAIT_MS,
        "description": "Milliseconds this call waits before it returns as pending; the question stays open. \
                        Default: chosen for your client; leave it out.",
    })
}

fn asking(settings: &Settings) -> Value {
    let least = settings.min_timeout.as_millis();
    json!({
        "type": "object",
        "properties": {
            "questions": {
                "type": "array", "minItems": 1, "maxItems": MAX_QUESTIONS,
                "description": "1-4 questions at best, at most 10, with different texts. They are shown and answered \
                                together.",
                "items": question(),
            },
            "title": {
                "type": "string", "maxLength": MAX_TITLE,
                "description": format!("A heading: what this is about. At most {MAX_TITLE} characters."),
            },
            "context": {
                "type": "string", "maxLength": MAX_CONTEXT,
                "description": format!(
                    "Background a person needs to decide who has not followed your work. At most {MAX_CONTEXT} characters."
                ),
            },
            "maxRetries": {
                "type": "integer", "minimum": 0, "maximum": 5, "default": RETRIES,
                "description": "How often a question that could not be shown is tried again.",
            },
            "renderTimeout": {
                "type": "integer", "minimum": 10_000, "maximum": 60_000, "default": RENDER_TIMEOUT_MS,
                "description": "Milliseconds until a question that nobody could see yet is tried elsewhere or again.",
            },
            "timeoutMs": {
                "type": "integer", "minimum": 10_000, "maximum": 604_800_000,
                "description": format!(
                    "Milliseconds a person has to answer, from the moment it is shown. Default: the operator's, 1800000 \
                     (30 minutes) unless set otherwise. Less than {least} is raised to it. People may be away: give hours \
                     rather than minutes."
                ),
            },
            "timeoutPolicy": {
                "type": "string", "enum": ["return_cancel", "abort_task"],
                "description": "At a timeout: return_cancel (default) tells you; abort_task also has your session \
                                stopped, where the operator has allowed that.",
            },
            "waitMs": wait_ms(),
        },
        "required": ["questions"],
    })
}

fn question() -> Value {
    json!({
        "type": "object",
        "properties": {
            "question": {
                "type": "string", "minLength": 1, "maxLength": MAX_TEXT,
                "description": "The question, whole and understandable by itself.",
            },
            "options": {
                "type": "array", "maxItems": MAX_CHOICES,
                "description": "What can be chosen; leave it out for a typed answer. Labels differ in more than upper \
                                and lower case.",
                "items": {"anyOf": [
                    {"type": "string", "minLength": 1, "maxLength": MAX_LABEL},
                    {
                        "type": "object",
                        "properties": {
                            "label": {"type": "string", "minLength": 1, "maxLength": MAX_LABEL},
                            "description": {
                                "type": "string", "maxLength": MAX_DESCRIPTION,
                                "description": "What choosing it leads to.",
                            },
                        },
                        "required": ["label"],
                    },
                ]},
            },
            "type": {
                "type": "string", "enum": ["text", "select", "multi-select", "confirm"],
                "description": "Default: select with options, text without. confirm is Yes or No, or exactly two \
                                options that rename them.",
            },
            "multiSelect": {"type": "boolean", "default": false, "description": "The same as type multi-select."},
            "custom": {
                "type": "boolean",
                "description": "Whether an answer in the person's own words is possible beside the options. Default \
                                true; never for confirm.",
            },
            "required": {
                "type": "boolean", "default": true,
                "description": "false: the person may skip it; it is then left out of the answers.",
            },
            "header": {
                "type": "string", "maxLength": MAX_HEADER,
                "description": "A few words above the question.",
            },
            "placeholder": {
                "type": "string", "maxLength": MAX_PLACEHOLDER,
                "description": "What an empty input shows.",
            },
            "id": {
                "type": "string", "minLength": 1, "maxLength": MAX_QUESTION_ID,
                "description": "Your own id for it, which comes back in details.",
            },
        },
        "required": ["question"],
    })
}

/// Kept wide where a newer daemon may say more.
fn output() -> Value {
    let text = |says: &str| json!({"type": "string", "description": says});
    // Two branches and no list of types: some clients know one type for each schema only.
    let or_null = |schema: Value| json!({"anyOf": [schema, {"type": "null"}]});
    let maybe = |says: &str| json!({"anyOf": [{"type": "string"}, {"type": "null"}], "description": says});
    let flag = |says: &str| json!({"type": "boolean", "description": says});
    json!({
        "type": "object",
        "properties": {
            "status": text("answered, pending, timeout, cancelled, undeliverable, blocked or rejected"),
            "reason": text("user, system, timeout or pending: who or what brought it about"),
            "answers": {
                "type": "object",
                "description": "By question text: one label or text, or a list for multi-select. Empty unless answered.",
                "additionalProperties": {"anyOf": [
                    {"type": "string"}, {"type": "array", "items": {"type": "string"}},
                ]},
            },
            "answered": flag("a person has answered"),
            "cancelled": flag("dismissed or withdrawn"),
            "timedOut": flag("nobody answered in time; never a yes"),
            "stillPending": flag("open; repeat the call, or use ask_user_wait"),
            "shouldRetry": flag("repeat this exact call now"),
            "retryReason": maybe("why it could not be shown"),
            "cause": text("which channel could not show it and why, like slack: no connection; else left out"),
            "renderConfirmed": flag("it is known that it was shown"),
            "details": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string"},
                        "question": {"type": "string"},
                        "selected": {"type": "array", "items": {"type": "string"}},
                        "text": or_null(json!({"type": "string"})),
                    },
                    "required": ["id", "question", "selected", "text"],
                },
            },
            "answered_by": or_null(json!({
                "type": "object",
                "properties": {
                    "channel": {"type": "string"}, "id": {"type": "string"}, "name": or_null(json!({"type": "string"})),
                },
            })),
            "answered_at": maybe("when, RFC 3339"),
            "request_id": text("the id of this call's request; empty if nothing was asked"),
            "question_id": maybe("what ask_user_wait and ask_user_cancel take"),
            "opCode": or_null(json!({"type": "string"})),
            "error": maybe("whatever is not an answer, in one sentence"),
            "note": text("what was done otherwise than asked for"),
        },
        "required": [
            "status", "reason", "answers", "answered", "cancelled", "timedOut", "stillPending", "shouldRetry",
            "retryReason", "renderConfirmed", "details", "answered_by", "answered_at", "request_id", "question_id",
            "opCode", "error",
        ],
    })
}
