//! The Graph API's error envelope and the codes a sender of messages meets.
//!
//! Codes, titles and HTTP statuses follow Meta's error reference (support/error-codes, 2026-05) and
//! `pywa`'s table. Less certain: the HTTP status of the throttling codes (4, 80007, 130429, 131048,
//! 131056: copies of the reference say 400, some providers report 429) and of 132001 (404 in copies of
//! the reference, 400 elsewhere). Meta itself asks to judge by `code`; so should a client of this.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// A refusal in Meta's envelope.
#[derive(Debug, Clone)]
pub(super) struct GraphError {
    pub(super) code: i64,
    status: u16,
    message: String,
    details: Option<String>,
    subcode: Option<i64>,
    kind: &'static str,
}

/// (code, HTTP status, title) of what can be told to a sender, or be forced by a fault.
const KNOWN: &[(i64, u16, &str)] = &[
    (1, 500, "An unknown error occurred"),
    (2, 503, "Service temporarily unavailable"),
    (4, 400, "Application request limit reached"),
    (10, 403, "Application does not have permission for this action"),
    (33, 400, "Parameter value is not valid"),
    (100, 400, "Invalid parameter"),
    (190, 401, "Invalid OAuth access token"),
    (200, 403, "Permissions error"),
    (368, 403, "Temporarily blocked for policies violations"),
    (80007, 400, "Rate limit issues"),
    (130_429, 400, "Rate limit hit"),
    (130_472, 400, "User's number is part of an experiment"),
    (131_000, 500, "Something went wrong"),
    (131_005, 403, "Access denied"),
    (131_008, 400, "Required parameter is missing"),
    (131_009, 400, "Parameter value is not valid"),
    (131_016, 500, "Service unavailable"),
    (131_021, 400, "Recipient cannot be sender"),
    (131_026, 400, "Message undeliverable"),
    (131_030, 400, "Recipient phone number not in allowed list"),
    (131_031, 403, "Business account locked"),
    (131_042, 400, "Business eligibility payment issue"),
    (131_045, 500, "Incorrect certificate"),
    (131_047, 400, "Re-engagement message"),
    (131_048, 400, "Spam rate limit hit"),
    (131_049, 400, "Meta chose not to deliver"),
    (131_051, 400, "Unsupported message type"),
    (131_056, 400, "(Business Account, Consumer Account) pair rate limit hit"),
    (131_057, 503, "Account in maintenance mode"),
    (131_062, 400, "Business-scoped User ID (BSUID) recipients are not supported for this message"),
    (132_000, 400, "Number of parameters does not match the expected number of params"),
    (132_001, 404, "Template name does not exist in the translation"),
    (132_012, 400, "Parameter format does not match format in the created template"),
    (133_010, 400, "Account not registered"),
];

/// The title Meta gives a code.
pub(super) fn title(code: i64) -> &'static str {
    KNOWN.iter().find(|k| k.0 == code).map_or("Something went wrong", |k| k.2)
}

impl GraphError {
    /// A known code with what exactly is wrong.
    pub(super) fn new(code: i64, details: impl Into<String>) -> Self {
        let status = KNOWN.iter().find(|k| k.0 == code).map_or(500, |k| k.1);
        let message = format!("(#{code}) {}", title(code));
        Self { code, status, message, details: Some(details.into()), subcode: None, kind: "OAuthException" }
    }

    pub(super) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// Code 100: the request itself is wrong. Meta says where in the message.
    pub(super) fn parameter(what: impl Into<String>) -> Self {
        let what = what.into();
        Self { message: format!("(#100) {what}"), ..Self::new(100, what) }
    }

    /// Code 190: no token, or another's.
    pub(super) fn token() -> Self {
        let message = "Invalid OAuth access token - Cannot parse access token".to_owned();
        Self { message, details: None, ..Self::new(190, "") }
    }

    /// Code 100/33: no such object, or not this token's.
    pub(super) fn no_object(id: &str, method: &str) -> Self {
        let message = format!(
            "Unsupported {method} request. Object with ID '{id}' does not exist, cannot be loaded due to missing \
             permissions, or does not support this operation"
        );
        Self { message, details: None, subcode: Some(33), kind: "GraphMethodException", ..Self::new(100, "") }
    }

    /// The envelope as JSON.
    pub(super) fn envelope(&self, trace: &str) -> Value {
        let mut error = json!({"message": self.message, "type": self.kind, "code": self.code, "fbtrace_id": trace});
        if let Some(details) = &self.details {
            error["error_data"] = json!({"messaging_product": "whatsapp", "details": details});
        }
        if let Some(subcode) = self.subcode {
            error["error_subcode"] = json!(subcode);
        }
        json!({ "error": error })
    }

    pub(super) fn respond(&self, trace: &str) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.envelope(trace))).into_response()
    }
}

/// The `errors` entry of a `failed` status webhook.
pub(super) fn status_error(code: i64) -> Value {
    let details = match code {
        131_047 => {
            "Message failed to send because more than 24 hours have passed since the customer last replied to this number."
        }
        131_026 => "Message Undeliverable.",
        131_049 => "This message was not delivered to maintain healthy ecosystem engagement.",
        _ => "The message could not be delivered.",
    };
    json!({
        "code": code, "title": title(code), "message": title(code), "error_data": {"details": details},
        "href": "https://developers.facebook.com/documentation/business-messaging/whatsapp/support/error-codes",
    })
}
