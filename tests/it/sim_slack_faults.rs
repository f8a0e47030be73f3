//! The stand-in of Slack: faults are what they say, pace is enforced, and what is proved about calls is true.

use std::time::{Duration, Instant};

use askd_sim::slack::{EVENTS, FaultKind, INTERACTIONS, Outcome, Slack, too_early};
use serde_json::{Value, json};

use crate::sim_slack_app::{App, call, post_form, send, slack};

fn post() -> Value {
    json!({"channel": "C0AGENTS", "text": "x"})
}

fn posted(slack: &Slack) -> usize {
    slack.messages("C0AGENTS").len()
}

#[tokio::test]
async fn resets_before_and_after_differ_only_in_what_is_stored() {
    let slack = slack(|_| {}).await;
    for (kind, stored) in [(FaultKind::ResetBefore, 0), (FaultKind::ResetAfter, 1), (FaultKind::Truncate, 2)] {
        slack.faults().next("chat.postMessage", kind.clone(), 1);
        let body = async { send(&slack, "chat.postMessage", &post()).await?.bytes().await };
        assert!(body.await.is_err(), "{kind:?}");
        assert_eq!(posted(&slack), stored, "{kind:?}");
    }
    let outcomes: Vec<Outcome> = slack.calls().into_iter().map(|call| call.outcome).collect();
    let broken = |done| Outcome::Broken { done };
    assert_eq!(outcomes, [broken(false), broken(true), broken(true)]);
    assert_eq!(call(&slack, "chat.postMessage", &post()).await["ok"], true, "the next one is well");
}

#[tokio::test]
async fn statuses_redirects_and_errors_do_nothing() {
    let slack = slack(|_| {}).await;
    let faults = [
        (FaultKind::Status(503), 503),
        (FaultKind::Redirect("http://127.0.0.1:9/canary".into()), 302),
        (FaultKind::RateLimited(30), 429),
        (FaultKind::Error("fatal_error".into()), 200),
    ];
    for (kind, status) in faults {
        slack.faults().next("*", kind, 1);
        let response = send(&slack, "chat.postMessage", &post()).await.expect("an answer");
        assert_eq!(response.status(), status);
        if status == 429 {
            assert_eq!(response.headers()["retry-after"], "30");
        }
    }
    assert_eq!(posted(&slack), 0);
}

#[tokio::test]
async fn a_stall_holds_the_answer_back_but_not_the_effect() {
    let slack = slack(|_| {}).await;
    slack.faults().next("chat.postMessage", FaultKind::Stall(Duration::from_millis(300)), 1);
    let started = Instant::now();
    let args = post();
    let answer = async { (call(&slack, "chat.postMessage", &args).await, Instant::now()) };
    let seen = slack.wait_for(Duration::from_secs(30), || (posted(&slack) == 1).then(Instant::now));
    let ((answer, answered), seen) = tokio::join!(answer, seen);
    assert_eq!(answer["ok"], true);
    assert!(seen.expect("stored") < answered, "stored before it was answered");
    assert!(answered - started >= Duration::from_millis(300));
}

#[tokio::test]
async fn pace_is_per_channel_and_breaking_it_is_noticed() {
    let slack = slack(|config| config.pace = Duration::from_secs(1)).await;
    assert_eq!(call(&slack, "chat.postMessage", &post()).await["ok"], true);
    let response = send(&slack, "chat.postMessage", &post()).await.expect("an answer");
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "1");
    assert!(too_early(&slack.calls()).is_empty());
    let elsewhere = json!({"channel": "C0RESEARCH", "text": "x"});
    assert_eq!(call(&slack, "chat.postMessage", &elsewhere).await["ok"], true);
    call(&slack, "chat.postMessage", &post()).await;
    assert_eq!(too_early(&slack.calls()).len(), 1);
}

#[tokio::test]
async fn interactions_and_events_are_doubled_and_lost() {
    let (app, url) = App::start().await;
    let slack = slack(|config| config.interactivity_url = Some(url.clone())).await;
    let ts = post_form(&slack).await;
    slack.faults().next(INTERACTIONS, FaultKind::Duplicate, 1);
    slack.click("C0AGENTS", &ts, "submit", "U0ALICE").await.expect("sent");
    let got = app.got();
    assert_eq!((got.len(), got[0].body == got[1].body), (2, true));
    slack.faults().next(INTERACTIONS, FaultKind::Lost, 1);
    let lost = slack.click("C0AGENTS", &ts, "submit", "U0ALICE").await.expect("tried");
    assert_eq!((lost.acknowledged, app.got().len()), (false, 2));
    slack.set_events_url(&url).await.expect("verified");
    slack.faults().next(EVENTS, FaultKind::Duplicate, 1);
    slack.reply_in_thread("C0AGENTS", &ts, "U0ALICE", "x").expect("said");
    let both = || (app.got().len() == 4).then_some(());
    slack.wait_for(Duration::from_secs(30), both).await.expect("twice");
    let got = app.got();
    assert_eq!(got[2].payload()["event_id"], got[3].payload()["event_id"]);
}

#[tokio::test]
async fn stamps_are_unique_and_rise() {
    let slack = std::sync::Arc::new(slack(|_| {}).await);
    let mut set = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let slack = std::sync::Arc::clone(&slack);
        set.spawn(async move { call(&slack, "chat.postMessage", &post()).await });
    }
    set.join_all().await;
    let stamps: Vec<String> = slack.messages("C0AGENTS").into_iter().map(|message| message.ts).collect();
    assert_eq!(stamps.len(), 20);
    assert!(stamps.windows(2).all(|pair| pair[0] < pair[1] && pair[1].len() == 17), "{stamps:?}");
}

/// Whether an error is what is expected.
type Judge = fn(&slack_morphism::errors::SlackClientError) -> bool;

/// What the client of the daemon makes of each fault: the table by which it must decide whether to post again.
#[tokio::test]
async fn what_slack_morphism_makes_of_faults() {
    use slack_morphism::errors::SlackClientError;
    use slack_morphism::prelude::*;
    let slack = slack(|_| {}).await;
    let client = crate::sim_slack::morphism(&slack);
    let token = SlackApiToken::new("xoxb-askd-sim".into());
    let session = client.open_session(&token);
    let faults: [(FaultKind, Judge); 7] = [
        (
            FaultKind::Status(503),
            |error| matches!(error, SlackClientError::HttpError(error) if error.status_code == 503),
        ),
        (
            FaultKind::Redirect("http://127.0.0.1:9/".into()),
            |error| matches!(error, SlackClientError::HttpError(error) if error.status_code == 302),
        ),
        (
            FaultKind::RateLimited(3),
            |error| matches!(error, SlackClientError::RateLimitError(error) if error.retry_after == Some(Duration::from_secs(3))),
        ),
        (
            FaultKind::Error("fatal_error".into()),
            |error| matches!(error, SlackClientError::ApiError(error) if error.code == "fatal_error"),
        ),
        // These three are the unknown ones: it may or may not have been posted.
        (FaultKind::ResetBefore, |error| matches!(error, SlackClientError::HttpProtocolError(_))),
        (FaultKind::ResetAfter, |error| matches!(error, SlackClientError::HttpProtocolError(_))),
        (FaultKind::Truncate, |error| matches!(error, SlackClientError::SystemError(_))),
    ];
    for (kind, expected) in faults {
        slack.faults().next("chat.postMessage", kind.clone(), 1);
        // Blocks as plain JSON, and an answer read as plain JSON.
        let sent: Result<Value, _> = session.http_session_api.http_post("chat.postMessage", &post(), None).await;
        let error = sent.expect_err("a fault");
        assert!(expected(&error), "{kind:?}: {error:?}");
    }
    assert_eq!(slack.calls().len(), 7, "it never tries again by itself");
    let sent: Value = session.http_session_api.http_post("chat.postMessage", &post(), None).await.expect("posted");
    assert!(sent["ts"].is_string());
    let wrong = json!({"channel": "C0AGENTS", "text": "x", "blocks": [{"type": "bogus"}]});
    let sent: Result<Value, _> = session.http_session_api.http_post("chat.postMessage", &wrong, None).await;
    let Err(SlackClientError::ApiError(refused)) = sent else { panic!("not refused: {sent:?}") };
    let problem = "unsupported type: bogus [json-pointer:/blocks/0/type]".to_owned();
    assert_eq!((refused.code.as_str(), refused.errors), ("invalid_blocks", Some(vec![problem])));
}
