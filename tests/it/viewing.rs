//! A channel that cannot be reached: what the agent and the page are told, and what a page in view changes.

use crate::harness::{NOBODY, SOON, World, askd, within};
use serde_json::{Value, json};

/// A world whose group `g` asks on a Slack that cannot be reached, and tries once.
fn slack_is_away(rules: &str) -> World {
    World::empty().config(&format!(
        "[slack]\nbot_token = \"xoxb-1-secret\"\nsigning_secret = \"0123456789abcdef0123456789abcdef\"\n\
         api_url = \"http://{NOBODY}/api\"\npace = \"0s\"\n\
         [groups.g]\n{rules}\nroutes = [{{ channel = \"slack\", chat = \"C0PRIVATE\", responders = [\"U0ALICE\"] }}]\n"
    ))
}

#[test]
fn the_agent_is_told_which_channel_failed_and_why() {
    let world = slack_is_away("max_retries = 1").started();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let open = within(SOON, "the trouble to be known", || {
        let (_, list) = world.call("GET", "/asks?limit=1", None);
        list["asks"][0]["cause"].is_string().then(|| list["asks"][0].clone())
    });
    assert_eq!(
        (&open["cause"], &open["cause_line"]),
        (&json!("slack: no connection"), &json!("Slack cannot be reached."))
    );
    let response = agent.wait("r1");
    let result = &response["result"];
    assert_eq!(
        (&response["error"], &result["retryReason"]),
        (&json!("Max retries exceeded"), &json!("Max retries (1) exceeded"))
    );
    assert_eq!((&result["status"], &result["cause"]), (&json!("undeliverable"), &json!("slack: no connection")));
    let id = open["id"].as_str().unwrap();
    assert_eq!(world.details(id)["cause_line"], "Slack cannot be reached.");
    agent.ask_framework("r2");
    let mut command = askd();
    command.args(["ask", "Deploy now?", "--option", "yes"]).env("ASKD_IPC_DIR", &agent.path);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("Max retries exceeded. Slack cannot be reached."), "{said}");
    let told = format!("{response}{said}{}", agent.wait("r2"));
    for secret in ["xoxb", "C0PRIVATE", "U0ALICE"] {
        assert!(!told.contains(secret), "{secret}: {told}");
    }
}

#[test]
fn a_page_in_view_keeps_an_ask_open_that_its_channel_cannot_show() {
    let mut world = slack_is_away("max_retries = 1").with_binary().started();
    let agent = world.group("g");
    agent.ask_framework("seen");
    let ask = within(SOON, "the ask", || world.open().into_iter().find(|ask| ask["request_id"] == "seen"));
    let id = ask["id"].as_str().unwrap();
    assert_eq!((&ask["stage"], &ask["viewed"]), (&json!("posting"), &json!(false)));
    assert_eq!(world.call("POST", &format!("/asks/{id}/shown"), None).0, 204);
    let seen = world.details(id);
    assert_eq!(
        (&seen["stage"], &seen["viewed"], &seen["render_confirmed"]),
        (&json!("open"), &json!(true), &json!(false))
    );
    assert!(seen["answer_by"].is_string(), "its clock runs: {seen}");
    let tried = |ask: &Value| ask["attempt"].as_u64() == Some(3);
    within(SOON, "the retries to be used up", || Some(world.details(id)).filter(tried));
    // A restart forgets nothing of it.
    world.kill();
    world.start();
    let kept = world.details(id);
    assert_eq!((&kept["state"], &kept["answer_by"]), (&json!("open"), &seen["answer_by"]), "{kept}");
    assert_eq!(kept["cause_line"], "Slack cannot be reached.");
    assert_eq!(world.answer(&kept, &json!({"seen_0": "Vue"})).0, 200);
    assert_eq!(agent.wait("seen")["result"]["status"], "answered");
}
