//! `GET /api/v1/export`: what the lists name, as JSON Lines or CSV, in a stream that holds one page at a time. If the records
//! cannot be read on the way, or the caller is not let in any more, the connection ends before the body does: nothing that lacks rows
//! looks whole.

use super::api::unreadable;
use super::listing::Listing;
use super::people::{self, Caller};
use super::view::View;
use super::{Inbox, Peer, Problem};
use crate::host::broker::Page;
use crate::ipc::wire;
use askd_core::{Ask, AskId, Group, Outcome, Stage};
use axum::BoxError;
use axum::body::Body;
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;

/// Asks that are read at a time.
const AT_ONCE: usize = 200;

/// How an ask is written, with the head and the type of such a file.
#[derive(Clone, Copy)]
struct Format {
    head: &'static str,
    kind: &'static str,
    file: &'static str,
    write: fn(&Ask) -> String,
    /// The line of one whose record is damaged or unreadable.
    unreadable: fn(&Group, AskId) -> String,
}

impl Format {
    /// The lines of a page.
    fn lines(&self, page: &Page<Vec<String>>) -> String {
        let unreadable = page.unreadable.iter().map(|(group, id)| (self.unreadable)(group, *id));
        page.asks.iter().cloned().chain(unreadable).collect()
    }
}

/// The status of an ask of which no more is known.
const UNREADABLE: &str = "unreadable";

const JSON_LINES: Format = Format {
    head: "",
    kind: "application/jsonl; charset=utf-8",
    file: "askd.jsonl",
    write: json_line,
    unreadable: |group, id| json!({"id": id, "group": group, "status": UNREADABLE}).to_string() + "\n",
};
const CSV: Format = Format {
    head: "id,group,asked_at,settled_at,status,title,question,answer,channel,by,late_at\r\n",
    kind: "text/csv; charset=utf-8",
    file: "askd.csv",
    write: csv_lines,
    unreadable: |group, id| format!("{id},{},,,{UNREADABLE},,,,,,\r\n", cell(group.as_str())),
};

pub(super) async fn export(
    State(inbox): State<Inbox>,
    Extension(caller): Extension<Caller>,
    from: Option<Extension<Peer>>,
    headers: HeaderMap,
    Query(mut parameters): Query<Vec<(String, String)>>,
) -> Result<Response, Problem> {
    let wrong = |detail| Problem::new(StatusCode::BAD_REQUEST, "Not understood", detail);
    let format = parameters.iter().position(|(name, _)| name == "format").map(|place| parameters.remove(place).1);
    let format = match format.as_deref() {
        Some("jsonl") => JSON_LINES,
        Some("csv") => CSV,
        _ => return Err(wrong("format has to be jsonl or csv.".to_owned())),
    };
    if parameters.iter().any(|(name, _)| name == "format") {
        return Err(wrong("format is given twice.".to_owned()));
    }
    if let Some((name, _)) = parameters.iter().find(|(name, _)| ["limit", "after"].contains(&name.as_str())) {
        return Err(wrong(format!("Leave out {name}: an export contains everything that matches.")));
    }
    let Listing { filter, .. } = Listing::of(&parameters, &caller).map_err(wrong)?;
    if !inbox.broker.is_loaded() {
        return Err(Problem::loading());
    }
    let first = inbox.broker.page(filter.clone(), AT_ONCE, None, format.write).await.map_err(unreadable)?;
    let broker = inbox.broker.clone();
    let let_out = async move { people::let_out(&inbox, &caller, &headers, from.as_deref().copied()).await };
    let rest = stream::try_unfold((first.next, Box::pin(let_out)), move |(after, mut let_out)| {
        let (broker, filter) = (broker.clone(), filter.clone());
        async move {
            let Some(after) = after else { return Ok(None) };
            let page = tokio::select! {
                biased;
                () = &mut let_out => return Err("its caller is not let in any more".into()),
                page = broker.page(filter, AT_ONCE, Some(after), format.write) => page?,
            };
            Ok(Some((format.lines(&page), (page.next, let_out))))
        }
    });
    let rest = rest.inspect_err(|error: &BoxError| tracing::error!(%error, "an export ends before it is whole"));
    let begun = format.head.to_owned() + &format.lines(&first);
    let text = stream::once(std::future::ready(Ok(begun))).chain(rest);
    let named = format!("attachment; filename=\"{}\"", format.file);
    let head = [(header::CONTENT_TYPE, format.kind), (header::CONTENT_DISPOSITION, named.as_str())];
    Ok((head, Body::from_stream(text)).into_response())
}

fn json_line(ask: &Ask) -> String {
    serde_json::to_string(&View::of(ask)).map_or_else(|_| String::new(), |json| json + "\n")
}

/// A line for each question. Its status is what agents were told; what was answered after that has the time of it, too.
fn csv_lines(ask: &Ask) -> String {
    let status = ask.outcome().map_or("open", |outcome| wire::status(outcome).0);
    let (outcome, late_at) = match ask.late_outcome() {
        Some((late, at)) => (Some(late), at.to_string()),
        None => (ask.outcome().cloned(), String::new()),
    };
    let details = outcome.as_ref().map(|outcome| wire::details(&ask.content.questions, outcome)).unwrap_or_default();
    let by = match &outcome {
        Some(Outcome::Answered { by, .. } | Outcome::Dismissed { by }) => Some(by),
        _ => None,
    };
    let settled_at = if let Stage::Settled { at, .. } = ask.stage { at.to_string() } else { String::new() };
    let line = |question: &str| {
        let given = details.iter().find(|detail| detail.question == question);
        let answer: Vec<&str> = given
            .map(|detail| detail.selected.iter().map(String::as_str).chain(detail.text.as_deref()).collect())
            .unwrap_or_default();
        let cells: [&str; 11] = [
            &ask.id.to_string(),
            ask.group.as_str(),
            &ask.created_at.to_string(),
            &settled_at,
            status,
            ask.content.title.as_deref().unwrap_or_default(),
            question,
            &answer.join("; "),
            by.map_or("", |by| by.via.as_str()),
            by.map_or("", |by| by.called()),
            &late_at,
        ];
        cells.map(cell).join(",") + "\r\n"
    };
    ask.content.questions.iter().map(|question| line(&question.text)).collect()
}

/// A cell of CSV. What a spreadsheet would take for a formula begins with an apostrophe, which makes it text. What some programs take
/// for the end of a cell, as others take a comma, is quoted too.
fn cell(text: &str) -> String {
    let mark = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    if mark.is_empty() && !text.contains([',', ';', '\t', '"', '\n', '\r']) {
        return text.to_owned();
    }
    format!("\"{mark}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn formulas_are_text_and_quotes_are_doubled() {
        let told = [
            ("Deploy now?", "Deploy now?"),
            ("=1+1", "\"'=1+1\""),
            ("+49 151", "\"'+49 151\""),
            ("-2", "\"'-2\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("a; b", "\"a; b\""),
            ("a\tb", "\"a\tb\""),
            ("a, \"b\"\nc", "\"a, \"\"b\"\"\nc\""),
        ];
        for (text, expected) in told {
            assert_eq!(cell(text), expected);
        }
    }
}
