//! `/metrics`: the names of the contract, and what a real Prometheus makes of them, of the alert rules and of the dashboard.

use crate::harness::{SHORTEST, SOON, World, choice, within};
use crate::in_slack::{ALICE, CHANNEL, Mode, STRANGER, in_slack};
use crate::ports::free_port;
use askd_sim::slack::FaultKind;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn scrape(world: &World) -> String {
    let (status, text) = world.raw("GET", "/metrics", "", "");
    assert_eq!(status, 200, "{text}");
    text
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

#[tokio::test]
async fn what_happens_is_counted_under_the_names_of_the_contract() {
    let world = in_slack(Mode::Http).start().await;
    world.slack.faults().next("chat.postMessage", FaultKind::Error("internal_thing".into()), 1);
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    let open = scrape(&world);
    assert!(open.contains("askd_asks_open{group=\"research\"} 1\n"), "{open}");
    for action in ["pick:0:0", "other:0"] {
        world.slack.click(CHANNEL, &card.ts, action, STRANGER).await.expect("sent");
    }
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    world.response("r1").await;
    let counted = world.passes(SOON, "the response to be counted", || {
        Some(scrape(&world)).filter(|text| text.contains("askd_answer_to_response_seconds_count 1\n"))
    });
    let text = counted.await;
    for line in [
        "askd_asks_total{group=\"research\",channel=\"slack\",outcome=\"answered\"} 1\n",
        "askd_asks_open{group=\"research\"} 0\n",
        "askd_asks_uncollected{group=\"research\"} 1\n",
        "askd_channel_up{channel=\"slack\"} 1\n",
        "askd_request_to_post_seconds_count 1\n",
        // Prometheus sees an increase only from a value that was there.
        "askd_session_starts_total{kind=\"docker\",result=\"given_up\"} 0\n",
        "askd_answer_to_response_seconds_bucket{le=\"+Inf\"} 1\n",
        "askd_post_errors_total{channel=\"slack\",kind=\"refused\"} 1\n",
        "askd_refusals_total{channel=\"slack\",reason=\"not_responder\"} 2\n",
        "# EOF\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert!(!text.contains("Which") && !text.contains(ALICE) && !text.contains(CHANNEL), "{text}");
    // The same request, made again, says nothing of how fast the answer came.
    world.group("research").take("r1");
    world.time_passes(Duration::from_secs(60)).await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.response("r1").await;
    world.time_passes(Duration::from_secs(1)).await;
    assert!(scrape(&world).contains("askd_answer_to_response_seconds_count 1\n"), "{}", scrape(&world));
}

/// Prometheus sees an increase only from a value that was there: what an alert counts is there before it happens.
#[tokio::test]
async fn what_alerts_count_is_there_with_0_once_a_question_is_open() {
    let mut world = in_slack(Mode::Http).start().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    world.stored(&card.ts).await;
    for _ in 0..2 {
        let text = scrape(&world);
        for line in [
            "askd_asks_total{group=\"research\",channel=\"slack\",outcome=\"timeout\"} 0\n",
            "askd_asks_total{group=\"research\",channel=\"slack\",outcome=\"undeliverable\"} 0\n",
            "askd_post_errors_total{channel=\"slack\",kind=\"chat_not_found\"} 0\n",
            "askd_post_errors_total{channel=\"slack\",kind=\"no_proof\"} 0\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        // The same for what is open at a start.
        world.stop().await;
        world.begin().await;
    }
}

#[test]
fn only_an_answer_that_waits_for_its_agent_counts_as_uncollected() {
    let world = World::of(&["research"]);
    let agent = world.group("research");
    let mut short = choice("Which?", &["a", "b"]);
    short["timeoutMs"] = json!(10_000);
    agent.ask("timed-out", &short);
    world.open_of("timed-out");
    agent.ask("dismissed", &choice("Which now?", &["a", "b"]));
    let dismiss = format!("/asks/{}/dismiss", world.open_of("dismissed")["id"].as_str().unwrap());
    assert_eq!(world.call("POST", &dismiss, Some(&json!({}))).0, 200);
    world.later(SHORTEST);
    assert_eq!(agent.wait("timed-out")["result"]["status"], "timeout");
    agent.wait("dismissed");
    let counts =
        |many: usize| scrape(&world).contains(&format!("askd_asks_uncollected{{group=\"research\"}} {many}\n"));
    world.passing(SOON, "what was dismissed to count", || counts(1).then_some(()));
    let told = world.call("GET", "/status", None).1["uncollected"].clone();
    assert_eq!((told.as_array().unwrap().len(), &told[0]["line"]), (1, &json!("Cancelled")));
    agent.take("dismissed");
    world.passing(SOON, "nothing to count", || counts(0).then_some(()));
}

/// Daemons that share a database all say the same of its questions: nothing adds that up.
#[test]
fn what_every_daemon_says_of_the_same_questions_is_counted_once() {
    let rules = std::fs::read_to_string(shipped("prometheus/alerts.yml")).unwrap();
    let rules = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).map(str::to_owned);
    for query in queries().into_iter().chain(rules) {
        for gauge in ["askd_asks_open", "askd_asks_uncollected"] {
            let once = query.matches(&format!("max by (group) ({gauge})")).count();
            assert_eq!(query.matches(gauge).count(), once, "{query}");
        }
    }
}

/// It names groups: it is not published with the webhooks, and no other site's page reads it under its own name.
#[test]
fn metrics_are_served_beside_the_inbox_alone() {
    let port = free_port();
    let world = World::empty().config(&format!("[http]\nwebhook_listen = \"127.0.0.1:{port}\"\n")).started();
    assert_eq!(world.raw("GET", "/metrics", "host: evil.example\r\n", "").0, 403);
    scrape(&world);
    let request = format!("GET /metrics HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n");
    let apart = crate::harness::exchange(([127, 0, 0, 1], port).into(), request.as_bytes());
    assert_eq!(apart.0, 404);
}

/// Every query of the dashboard.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_slice(&std::fs::read(shipped("grafana.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_real_prometheus_takes_the_metrics_the_rules_and_the_queries_of_the_dashboard() {
    let promtool = |arguments: &[&str], file: &Path| Command::new("promtool").args(arguments).arg(file).output();
    let Ok(checked) = promtool(&["check", "rules"], &shipped("prometheus/alerts.yml")) else {
        println!(
            "SKIPPED a_real_prometheus_takes_the_metrics_the_rules_and_the_queries_of_the_dashboard: needs prometheus"
        );
        return;
    };
    assert!(checked.status.success(), "{checked:?}");
    let tested = promtool(&["test", "rules"], &shipped("prometheus/alerts.test.yml")).unwrap();
    assert!(tested.status.success(), "{tested:?}");
    let world = World::new();
    let agent = world.group("research");
    agent.ask_framework("r1");
    world.answer(&world.one_open(), &json!({"r1_0": "Vue"}));
    agent.take("r1");
    let (port, config) = (free_port(), world.dir.path().join("prometheus.yml"));
    let text = format!(
        "global: {{scrape_interval: 200ms}}\nrule_files: [{}]\nscrape_configs:\n- job_name: askd\n  static_configs: \
         [{{targets: ['{}']}}]\n",
        shipped("prometheus/alerts.yml").display(),
        world.address()
    );
    std::fs::write(&config, text).unwrap();
    let mut prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", world.dir.path().join("tsdb").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ask = |query: &str| -> Option<Value> {
        let query: String = url::form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let request =
            format!("GET /api/v1/query?query={query} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        let (_, body) = crate::harness::exchange(([127, 0, 0, 1], port).into(), request.as_bytes());
        let start = body.find('{')?;
        serde_json::from_str(&body[start..=body.rfind('}')?]).ok()
    };
    let answered = "askd_asks_total{group=\"research\",channel=\"api\",outcome=\"answered\"}";
    within(SOON, "a scrape", || (ask(answered)?["data"]["result"][0]["value"][1] == "1").then_some(()));
    assert_eq!(ask("up{job=\"askd\"}").unwrap()["data"]["result"][0]["value"][1], "1");
    let queries = queries();
    assert!(queries.len() >= 12, "{queries:?}");
    for query in queries {
        assert_eq!(ask(&query).unwrap()["status"], "success", "{query}");
    }
    prometheus.kill().unwrap();
    prometheus.wait().unwrap();
}
