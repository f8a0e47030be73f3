//! Request files. Section 4 of the specification.

use super::draft::{Draft, given};
use super::peek::text;
use super::{Object, digest, objects, plainly};
use askd_core::{
    self, Carrier, Content, Digest, MAX_TOKEN, Questions, Rejection, RequestId, Time, TimeoutPolicy, quoted,
    without_nul,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// `renderTimeout` if the request does not say: how long the daemon has to claim it.
pub const RENDER_TIMEOUT_MS: u64 = 30_000;
/// The longest `timeoutMs`.
pub const MAX_TIMEOUT_MS: u64 = 604_800_000;

/// A request file as it is written. Unknown fields are ignored; a known field given twice is an error. Camel case is read, too.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RequestFile {
    #[serde(default, rename = "type")]
    pub kind: String,
    #[serde(default, alias = "requestId")]
    pub request_id: String,
    #[serde(default, deserialize_with = "objects")]
    pub questions: Vec<Draft>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default, alias = "maxRetries", skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<i64>,
    #[serde(default, alias = "renderTimeout", alias = "render_timeout_ms", skip_serializing_if = "Option::is_none")]
    pub render_timeout: Option<i64>,
    #[serde(default, alias = "timeoutMs", skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    #[serde(default, alias = "timeoutPolicy", skip_serializing_if = "Option::is_none")]
    pub timeout_policy: Option<String>,
    #[serde(default, alias = "sessionId", skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(default, alias = "idempotencyKey", skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    #[serde(default, alias = "opCode", skip_serializing_if = "Option::is_none")]
    pub op_code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

impl RequestFile {
    /// The same without empty fields.
    fn without_empty(self) -> Self {
        Self {
            questions: self.questions.into_iter().map(Draft::without_empty).collect(),
            title: given(self.title),
            context: given(self.context),
            timeout_policy: given(self.timeout_policy),
            session_id: given(self.session_id),
            idempotency_key: given(self.idempotency_key),
            op_code: given(self.op_code),
            ..self
        }
    }
}

/// Names for the kinds of `type` that are ours.
#[derive(Debug)]
pub struct Kinds;

impl Kinds {
    /// What `type` of everything of ours starts with.
    pub const PREFIX: &'static str = "ask_user:";
    /// A question.
    pub const ASK: &'static str = "ask_user:ask";
    /// The withdrawal of one.
    pub const CANCEL: &'static str = "ask_user:cancel";
}

/// What a request file says.
#[derive(Debug, Clone)]
pub enum Message {
    /// Ask this.
    Ask(Box<Request>),
    /// The call with that id no longer waits.
    Cancel(RequestId),
}

/// A request within all limits that do not depend on settings. What is `None` takes the group's setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Names its response file.
    pub request_id: RequestId,
    /// What to ask.
    pub content: Content,
    /// How often an unshown ask is posted again.
    pub max_retries: Option<u8>,
    /// How long to wait for proof that it was shown.
    pub render_timeout: Option<Duration>,
    /// How long a person has.
    pub timeout: Option<Duration>,
    /// What to do then.
    pub timeout_policy: Option<TimeoutPolicy>,
    /// Which run of the agent asks.
    pub session: Option<String>,
    /// What it is joined by.
    pub key: Option<Digest>,
    /// Echoed in the response.
    pub op_code: Option<String>,
    /// The process that holds the call.
    pub process: Option<String>,
    /// Digests without and with the process, which changes when a client restarts. One has to match; earlier versions made the second.
    pub digests: [Digest; 2],
    /// How the call reaches askd.
    pub carrier: Carrier,
    /// When its file arrived, perhaps long ago, and what that is called since askd claimed it; `None`: the request has just been made.
    pub file: Option<(Time, String)>,
}

/// Reads a request of ours, within every limit.
pub fn parse(bytes: &[u8]) -> Result<Message, Rejection> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(rename = "type")]
        kind: String,
        #[serde(alias = "requestId")]
        request_id: String,
    }
    let Kind { kind, request_id } = typed(bytes)?;
    let request_id = request_id.parse().map_err(|rule: askd_core::BadName| wrong("request_id", rule.to_string()))?;
    match kind.as_str() {
        Kinds::ASK => Request::new(request_id, typed(bytes)?).map(|request| Message::Ask(Box::new(request))),
        Kinds::CANCEL => Ok(Message::Cancel(request_id)),
        other => Err(wrong("type", format!("{other:?} is neither {} nor {}", Kinds::ASK, Kinds::CANCEL))),
    }
}

/// Reads a question that comes over HTTP: `type` and `request_id` may be left out, and then the id is `minted`.
pub fn parse_ask(bytes: &[u8], minted: RequestId) -> Result<Request, Rejection> {
    let mut file: RequestFile = typed(bytes)?;
    if !matches!(file.kind.as_str(), "" | Kinds::ASK) {
        return Err(wrong("type", format!("{:?} is not {}", file.kind, Kinds::ASK)));
    }
    let given = given(Some(std::mem::take(&mut file.request_id))).map(|id| id.parse());
    let id: RequestId =
        given.unwrap_or(Ok(minted)).map_err(|rule: askd_core::BadName| wrong("request_id", rule.to_string()))?;
    Request::over_http(id, file)
}

/// Bytes to a shape; what is wrong is said with the field it is wrong in.
fn typed<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Rejection> {
    let mut json = serde_json::Deserializer::from_slice(text(bytes));
    let read = serde_path_to_error::deserialize(&mut json).map(|Object(read)| read).map_err(|error| {
        let path = error.path().to_string();
        let why = plainly(&error.into_inner().to_string());
        Rejection::Malformed { why: if path == "." { why } else { format!("{path}: {why}") } }
    })?;
    json.end().map_err(|why| Rejection::Malformed { why: why.to_string() })?;
    Ok(read)
}

impl Request {
    /// What its file is called since askd claimed it.
    pub fn claim(&self) -> Option<String> {
        self.file.as_ref().map(|(_, claim)| claim.clone())
    }

    /// The same for a call over HTTP, whose outcome is no file.
    pub fn over_http(request_id: RequestId, mut file: RequestFile) -> Result<Self, Rejection> {
        Kinds::ASK.clone_into(&mut file.kind);
        file.request_id = request_id.to_string();
        let request = Self::new(request_id, file)?;
        Ok(Self { process: None, carrier: Carrier::Http { taken_by: None }, ..request })
    }

    /// Checks everything that a request can get wrong by itself.
    pub fn new(request_id: RequestId, file: RequestFile) -> Result<Self, Rejection> {
        // An empty text is none: with it or without, it is the same request.
        let mut file = file.without_empty();
        let with_process = digest([json(&file)?.as_slice()]);
        let process = given(file.process.take());
        let digests = [digest([json(&file)?.as_slice()]), with_process];
        let asked = json(&file.questions)?;
        for (field, token) in
            [("session_id", &file.session_id), ("idempotency_key", &file.idempotency_key), ("opCode", &file.op_code)]
        {
            token_within(field, token.as_deref())?;
        }
        if let Some(process) = &process {
            process.parse::<RequestId>().map_err(|rule| wrong("process", rule.to_string()))?;
        }
        let key = key(&file, &asked);
        let drafts = file.questions.into_iter().map(askd_core::Draft::from).collect();
        let content = Content::new(file.title, file.context, Questions::new(request_id.as_str(), drafts)?)?;
        content.fit_to_show()?;
        let max_retries = within("maxRetries", file.max_retries, 0, 5)?;
        Ok(Self {
            request_id,
            content,
            max_retries: max_retries.map(|retries| u8::try_from(retries).unwrap_or(u8::MAX)),
            render_timeout: within("renderTimeout", file.render_timeout, 10_000, 60_000)?.map(Duration::from_millis),
            timeout: within("timeoutMs", file.timeout_ms, 10_000, MAX_TIMEOUT_MS)?.map(Duration::from_millis),
            timeout_policy: file.timeout_policy.as_deref().map(policy).transpose()?,
            session: file.session_id,
            key,
            op_code: file.op_code,
            process,
            digests,
            carrier: Carrier::File,
            file: None,
        })
    }
}

/// An explicit key joins across sessions; with a session the content itself is the key.
fn key(file: &RequestFile, asked: &[u8]) -> Option<Digest> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default().into_bytes();
    if let Some(key) = &file.idempotency_key {
        return Some(digest([b"key".as_slice(), key.as_bytes()]));
    }
    let session = file.session_id.as_ref()?;
    Some(digest([b"content".as_slice(), session.as_bytes(), &text(&file.title), &text(&file.context), asked]))
}

fn wrong(field: &str, why: String) -> Rejection {
    Rejection::Wrong { field: field.to_owned(), why }
}

pub(super) fn token_within(field: &str, token: Option<&str>) -> Result<(), Rejection> {
    let size = token.map_or(0, |token| token.chars().count());
    if size > MAX_TOKEN {
        return Err(Rejection::TooLong { field: field.to_owned(), limit: MAX_TOKEN, size, unit: "characters" });
    }
    without_nul(field, token)
}

fn within(field: &'static str, value: Option<i64>, min: u64, max: u64) -> Result<Option<u64>, Rejection> {
    let Some(value) = value else { return Ok(None) };
    match u64::try_from(value) {
        Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
        _ => Err(Rejection::OutOfRange { field, min, max, value }),
    }
}

fn policy(name: &str) -> Result<TimeoutPolicy, Rejection> {
    TimeoutPolicy::from_name(name)
        .ok_or_else(|| wrong("timeoutPolicy", format!("{} is neither return_cancel nor abort_task", quoted(name))))
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, Rejection> {
    serde_json::to_vec(value).map_err(|why| Rejection::Malformed { why: why.to_string() })
}

#[cfg(test)]
mod tests {
    use super::super::peek::{Peek, peek};
    use super::*;
    use askd_core::{MAX_CHOICES, MAX_TEXT};

    #[test]
    fn an_empty_text_is_none_and_what_the_agent_wrote_stands_in_no_log() {
        let ask = |more: &str| {
            asked(&format!(
                r#"{{"type": "ask_user:ask", "request_id": "r", "questions": [{{"question": "Go?"{more}}}]}}"#
            ))
        };
        let with = asked(
            r#"{"type": "ask_user:ask", "request_id": "r", "questions": [{"question": "Go?"}], "session_id": ""}"#,
        );
        assert_eq!(with.unwrap(), ask("").unwrap(), "a repeat of it, whatever says so");
        let wrong = ask(&format!(r#", "type": "secret {}""#, "x".repeat(1000))).unwrap_err();
        assert!(wrong.to_string().len() < 150, "{wrong}");
        let logged = askd_core::wording::for_log(&wrong);
        assert_eq!(logged, "questions[0].type: it is none of text, select, multi-select, confirm.");
    }

    fn asked(text: &str) -> Result<Request, Rejection> {
        match parse(text.as_bytes())? {
            Message::Ask(request) => Ok(*request),
            Message::Cancel(cancel) => panic!("{cancel:?}"),
        }
    }

    fn field(text: &str) -> String {
        match asked(text) {
            Err(Rejection::Wrong { field, .. } | Rejection::TooLong { field, .. }) => field,
            Err(Rejection::OutOfRange { field, .. }) => field.to_owned(),
            Err(Rejection::Malformed { why }) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_smallest_request_and_the_fullest() {
        let small = asked(r#"{"type":"ask_user:ask","request_id":"r1","questions":[{"question":"Go?"}]}"#).unwrap();
        assert_eq!(small.content.questions[0].id, "r1_0");
        assert_eq!((small.timeout, small.key), (None, None));
        let full = asked(
            r#"{"type":"ask_user:ask","request_id":"r2","title":"T","context":"C","maxRetries":5,"renderTimeout":10000,
            "timeoutMs":604800000,"timeoutPolicy":"return_cancel","session_id":"s","opCode":"o","process":"p","new":1,
            "questions":[{"id":"q","question":"Which?","header":"H","multiSelect":true,"placeholder":"P","required":false,
            "options":["a",{"label":"b","description":"bb","x":[]}],"custom":false}]}"#,
        )
        .unwrap();
        assert_eq!(full.max_retries, Some(5));
        assert_eq!(full.timeout, Some(Duration::from_secs(7 * 86_400)));
        let question = &full.content.questions[0];
        assert_eq!((question.kind, question.required, question.custom), (askd_core::Kind::MultiSelect, false, false));
        assert_eq!(question.choices[1].description.as_deref(), Some("bb"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let with = |fields: &str| {
            format!(r#"{{"type":"ask_user:ask","request_id":"r1","questions":[{{"question":"Go?"}}]{fields}}}"#)
        };
        assert_eq!(field(&with(r#","maxRetries":6"#)), "maxRetries");
        assert_eq!(field(&with(r#","timeoutMs":-1"#)), "timeoutMs");
        assert_eq!(field(&with(r#","renderTimeout":9999"#)), "renderTimeout");
        assert_eq!(field(&with(r#","timeoutPolicy":"wait""#)), "timeoutPolicy");
        assert_eq!(field(&with(r#","process":"../x""#)), "process");
        assert_eq!(field(&with(&format!(r#","opCode":"{}""#, "x".repeat(129)))), "opCode");
        assert!(field(&with(r#","title":"a","title":"b""#)).contains("duplicate field `title`"));
        assert!(field(&with(r#","max_retries":1,"maxRetries":2"#)).contains("duplicate field"));
        assert_eq!(field(&with(r#","timeoutMs":30.5"#)), "timeoutMs: must be an integer, not 30.5 at line 1 column 90");
        assert!(field(&with(r#","title":7"#)).contains("must be a string, not 7"));
        let options =
            r#"{"type":"ask_user:ask","request_id":"r1","questions":[{"question":"q","options":[{"lable":"a"}]}]}"#;
        assert!(field(options).contains("missing field `label`"), "{}", field(options));
        let listed = r#"{"type":"ask_user:ask","request_id":"r1","questions":[["q"]]}"#;
        assert!(field(listed).contains("questions[0]: must be an object, not a list"), "{}", field(listed));
        assert!(field(r#"["ask_user:ask","r1",[{"question":"q"}]]"#).contains("must be an object, not a list"));
        let path = r#"{"type":"ask_user:ask","request_id":"../../x","questions":[{"question":"q"}]}"#;
        assert_eq!(field(path), "request_id");
    }

    #[test]
    fn what_is_empty_is_not_given() {
        let filled = asked(
            r#"{"type":"ask_user:ask","request_id":"r1","title":"","context":"","timeoutPolicy":"","session_id":"",
            "idempotency_key":"","opCode":"","process":"","maxRetries":null,
            "questions":[{"question":"Go?","id":"","header":"","type":"","placeholder":"",
            "options":[{"label":"yes","description":""}]}]}"#,
        )
        .unwrap();
        let bare = r#"{"type":"ask_user:ask","request_id":"r1","questions":[{"question":"Go?","options":["yes"]}]}"#;
        let bare = asked(bare).unwrap();
        assert_eq!(Request { digests: bare.digests, ..filled }, bare);
    }

    #[test]
    fn a_restarted_client_repeats_its_own_request() {
        let of = |process: &str| {
            let file = serde_json::json!({"type": "ask_user:ask", "request_id": "r1", "questions": [{"question": "Go?"}], "process": process});
            let Ok(Message::Ask(request)) = parse(file.to_string().as_bytes()) else { panic!("{file}") };
            request
        };
        let (first, second) = (of("p1"), of("p2"));
        assert_eq!(first.digests[0], second.digests[0]);
        assert_ne!(first.digests[1], second.digests[1]);
    }

    #[test]
    fn whose_a_torn_file_is_can_be_told_as_far_as_it_goes() {
        let whole = br#"{"type":"ask_user:ask","request_id":"r1","questions":[{"question":"Go?"}]}"#;
        for cut in 0..whole.len() {
            let peek = peek(&whole[..cut]);
            assert!(peek.torn, "{cut}");
            assert_eq!(peek.kind.is_some(), cut >= 22, "{cut}: {peek:?}");
        }
        assert_eq!(peek(&whole[..45]).request_id, Some("r1".parse().unwrap()));
        assert!(!peek(whole).torn);
        let marked = [b"\xef\xbb\xbf".as_slice(), whole].concat();
        assert_eq!(peek(&marked), peek(whole), "a byte-order mark says nothing");
        assert!(parse(&marked).is_ok());
        for (text, early) in [
            (&b""[..], true),
            (b"{\"type\": \"ask", true),
            (b"\xef\xbb", true),
            (b"{\"a\"\0\0", true),
            (b"hello", false),
            (b"{}", false),
        ] {
            assert_eq!(peek(text).ends_early, early, "{text:?}");
        }
        assert_eq!(peek(br#"{"type":7,"request_id":"a/b"}"#), Peek::default());
        assert!(!peek(b"[1]").torn, "whole, but nothing of ours");
        assert!(peek(b"hello").torn);
        assert!(peek(b"\0\0\0\0").torn, "a hole that is still to be written");
    }

    #[test]
    fn content_is_the_key_within_a_session_only() {
        let key = |fields: &str, question: &str| {
            asked(&format!(
                r#"{{"type":"ask_user:ask","request_id":"r1"{fields},"questions":[{{"question":"{question}"}}]}}"#
            ))
            .unwrap()
            .key
        };
        let session = r#","session_id":"s1""#;
        assert_eq!(key("", "a"), None);
        assert_eq!(key(session, "a"), key(session, "a"));
        assert_ne!(key(session, "a"), key(session, "b"));
        assert_ne!(key(session, "a"), key(r#","session_id":"s2""#, "a"));
        assert_ne!(key(session, "a"), key(r#","session_id":"s1","title":"t""#, "a"));
        let explicit = r#","idempotency_key":"k","session_id":"s3""#;
        assert_eq!(key(explicit, "a"), key(r#","idempotency_key":"k""#, "b"));
    }

    const FULL: &str = r#"{"type":"ask_user:ask","requestId":"r1","title":"T","context":"C","maxRetries":1,"renderTimeout":20000,"timeoutMs":30000,"timeoutPolicy":"return_cancel","session_id":"s","idempotency_key":"k","opCode":"o","process":"p","questions":[{"question":"Go?","id":"q","header":"H","type":"multi-select","options":["a",{"label":"b","description":"d"}],"required":false,"placeholder":"p","custom":true}]}"#;

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { cases: 10_000, failure_persistence: None, ..Default::default() })]

        /// What is accepted is within the limits; what is not is refused in words.
        #[test]
        fn no_bytes_break_it(bytes in crate::odd::near(FULL)) {
            crate::odd::in_time(|| peek(&bytes));
            match crate::odd::in_time(|| parse(&bytes)) {
                Ok(Message::Ask(request)) => {
                    let questions = &request.content.questions;
                    proptest::prop_assert!((1..=10).contains(&questions.iter().count()));
                    for question in questions.iter() {
                        let length = question.text.chars().count();
                        proptest::prop_assert!((1..=MAX_TEXT).contains(&length) && !question.text.contains('\0'));
                        proptest::prop_assert!(question.choices.len() <= MAX_CHOICES);
                    }
                }
                Ok(Message::Cancel(_)) => {}
                Err(rejection) => proptest::prop_assert!(!rejection.to_string().is_empty()),
            }
        }
    }
}
