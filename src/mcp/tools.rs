//! What the tools say about themselves: names, descriptions with the rules a model has to know, and schemas. The schemas
//! come from the structs that read the arguments and write the results, so they cannot say something else.

use super::answer::Structured;
use super::arguments::{AskFields, WaitFields};
use super::settings::Settings;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::generate::{Contract, SchemaSettings};
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, json_schema};
use serde_json::Value;
use std::sync::Arc;

/// Asks.
pub(super) const ASK: &str = "ask_user";
/// Keeps waiting.
pub(super) const WAIT: &str = "ask_user_wait";
/// Withdraws.
pub(crate) const CANCEL: &str = "ask_user_cancel";

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
failure: call ask_user_wait with `question_id`, or do as the result says. Do not reword it, do not guess.
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
pub(crate) fn all(settings: &Settings) -> Vec<Tool> {
    let least = settings.min_timeout.as_millis().to_string();
    let asking = schema::<AskFields>(Contract::Deserialize, &least);
    let waiting = schema::<WaitFields>(Contract::Deserialize, &least);
    let mut cancelling = waiting.clone();
    if let Some(properties) = cancelling.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove("waitMs");
    }
    let output = Arc::new(schema::<Structured<'_>>(Contract::Serialize, &least));
    let tool = |name, says, input: JsonObject| {
        Tool::new(name, says, Arc::new(input)).with_raw_output_schema(Arc::clone(&output))
    };
    let hints = ToolAnnotations::new().read_only(false).destructive(false).open_world(true);
    vec![
        tool(ASK, ASK_SAYS, asking).annotate(hints.clone().idempotent(false)).with_title("Ask a person"),
        tool(WAIT, WAIT_SAYS, waiting).annotate(hints.clone().idempotent(true)).with_title("Wait on for an answer"),
        tool(CANCEL, CANCEL_SAYS, cancelling)
            .annotate(hints.destructive(true).idempotent(true))
            .with_title("Withdraw a question"),
    ]
}

/// The schema of `T` in the plain form that every client understands.
fn schema<T: JsonSchema>(contract: Contract, least: &str) -> JsonObject {
    let reads = contract == Contract::Deserialize;
    let mut settings = SchemaSettings::draft2020_12();
    (settings.inline_subschemas, settings.meta_schema, settings.contract) = (true, None, contract);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    Plain { reads, least }.transform(&mut schema);
    schema.as_object().cloned().unwrap_or_default()
}

/// Some clients know one type for each schema only. An argument that may be left out has the type that it has when it is
/// given; a result that may be null has two branches.
struct Plain<'a> {
    reads: bool,
    /// The least time a person is given, in milliseconds.
    least: &'a str,
}

impl Transform for Plain<'_> {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        schema.remove("format");
        if let Some(Value::String(description)) = schema.get_mut("description") {
            *description = description.replace('\n', " ").replace("{least}", self.least);
        }
        let Some(Value::Array(types)) = schema.get_mut("type") else { return };
        let first = types.swap_remove(0);
        schema.insert("type".to_owned(), first);
        if !self.reads {
            let description = schema.remove("description");
            *schema = json_schema!({"anyOf": [schema.clone(), {"type": "null"}]});
            if let Some(text) = description {
                schema.insert("description".to_owned(), text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_see_the_schemas_that_they_have_always_seen() {
        let tools = serde_json::to_value(all(&Settings::default())).unwrap();
        let known: Value = serde_json::from_str(include_str!("../../tests/contract/mcp_tools.json")).unwrap();
        for (tool, known) in tools.as_array().unwrap().iter().zip(known.as_array().unwrap()) {
            for schema in ["inputSchema", "outputSchema"] {
                assert_eq!(tool[schema]["required"], known[schema]["required"]);
                for (field, expected) in known[schema]["properties"].as_object().unwrap() {
                    assert_eq!(&tool[schema]["properties"][field], expected, "{field}");
                }
            }
        }
        assert!(tools == known, "{tools:#}");
    }
}
