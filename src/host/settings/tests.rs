//! Settings that hold, and what is said of those that do not.

use super::group::inbox_alone;
use super::*;
use secrecy::ExposeSecret as _;

fn load(text: &str) -> Result<Settings, String> {
    Settings::from_toml(&format!("data_dir = \"/tmp/askd\"\n{text}")).map_err(|error| error.to_string())
}

fn error(text: &str) -> String {
    load(text).unwrap_err()
}

#[test]
fn without_any_setting_every_folder_is_asked_in_the_inbox() {
    let settings = load("").unwrap();
    let group = settings.group(&"anything".parse().unwrap()).unwrap();
    assert_eq!(group.routes, inbox_alone());
    assert_eq!((group.timeout, group.max_open), (Duration::from_secs(1800), 16));
    assert_eq!(settings.access.dir_mode, 0o770);
    assert_eq!(settings.keep_audit, Duration::from_secs(365 * 86_400));
    assert_eq!(settings.inbox_url(), "http://127.0.0.1:8484");
}

#[test]
fn a_group_has_its_own_and_inherits_the_rest() {
    let settings = load(
        "[asks]\nmax_retries = 1\n[defaults]\nroutes = []\n[groups.Research_1]\ntimeout = \"45s\"\nroutes = [{ channel = \"web\" }]\n",
    )
    .unwrap();
    let group = settings.group(&"Research_1".parse().unwrap()).unwrap();
    assert_eq!((group.timeout, group.max_retries), (Duration::from_secs(45), 1));
    assert_eq!(settings.group(&"other".parse().unwrap()), None, "[defaults] with no routes serve none");
    assert_eq!(settings.group(&"research_1".parse().unwrap()), None, "names are case-sensitive");
}

#[test]
fn unknown_keys_are_errors_that_name_the_key() {
    assert!(error("[http]\nlisen = \"127.0.0.1:1\"").contains("lisen"));
    assert!(error("colour = 1").contains("colour"));
    assert!(error("[groups.a]\ntimeuot = \"1m\"").contains("timeuot"), "{}", error("[groups.a]\ntimeuot = \"1m\""));
    assert!(error("[groups.a]\nroutes = [{ channel = \"web\", chanel = 1 }]").contains("chanel"));
}

#[test]
fn values_that_make_no_sense_are_named_with_what_to_write() {
    for (text, key) in [
        ("[asks]\ntimeout = \"soon\"", "asks.timeout"),
        ("[asks]\ntimeout = \"8d\"", "asks.timeout"),
        ("[asks]\nrender_timeout = \"1s\"", "asks.render_timeout"),
        ("[asks]\nremind_after = \"0s\"", "asks.remind_after"),
        ("[groups.a]\nescalate_after = \"never\"", "groups.a.escalate_after"),
        ("[asks]\nmax_open_per_group = 0", "asks.max_open_per_group"),
        ("[groups.a]\nmax_retries = 9", "groups.a.max_retries"),
        ("[groups.\"a b\"]\n", "groups.a b"),
        ("[http]\nlisten = \"8484\"", "http.listen"),
        ("[http]\nlisten = \"0.0.0.0:8484\"", "http.allowed_hosts"),
        ("[web]\ntoken_file = \"/does/not/exist\"", "web.token_file"),
        ("[groups.a]\nroutes = [{ channel = \"fax\" }]", "groups.a.routes[0].channel"),
        ("[groups.a]\nroutes = [{ channel = \"web\", chat = \"C1\" }]", "groups.a.routes[0]"),
        ("[http]\nwebhook_listen = \"8485\"", "http.webhook_listen"),
        ("[slack]\nbot_token = \"xoxb-a\"", "slack.signing_secret"),
        ("[slack]\napi_url = \"http://slack.example/api\"", "slack.api_url"),
        ("[slack]\napi_url = \"http://127.0.0.1.evil.example/api\"", "slack.api_url"),
        ("[slack]\npace = \"0s\"", "slack.pace"),
        ("[slack]\nbot_token_file = \"/does/not/exist\"", "slack.bot_token_file"),
        ("[slack]\nbot_tokn = \"x\"", "bot_tokn"),
        ("[defaults]\nroutes = [{ channel = \"slack\", chat = \"C1\", responders = \"anyone\" }]", "slack.bot_token"),
        ("[groups.a]\nroutes = [{ channel = \"slack\", chat = \"C1\" }]", "responders = [\"U0123ABCD\"]"),
        (
            "[groups.a]\nroutes = [{ channel = \"slack\", chat = \"C1\", responders = [] }]",
            "groups.a.routes[0].responders",
        ),
        ("[groups.a]\nroutes = [{ channel = \"slack\", chat = \"C1\", responders = \"everybody\" }]", "responders"),
        (
            "[groups.a]\nroutes = [{ channel = \"slack\", chat = \"#agents\", responders = \"anyone\" }]",
            "groups.a.routes[0].chat",
        ),
    ] {
        assert!(error(text).contains(key), "{text}: {}", error(text));
    }
    assert!(load("[http]\nlisten = \"0.0.0.0:8484\"\nallowed_hosts = \"a.example, b.example\"").is_ok());
}

#[test]
fn slack_is_reached_by_webhooks_or_by_a_socket() {
    let route =
        "[groups.a]\nroutes = [{ channel = \"slack\", chat = \"C1\", responders = [\"U1\"] }, { channel = \"web\" }]\n";
    let settings = load(&format!("{route}[slack]\nbot_token = \"xoxb-a\"\nsigning_secret = \"s\"")).unwrap();
    let slack = settings.slack.clone().unwrap();
    assert!(matches!(slack.transport, SlackTransport::Webhooks(_)));
    assert_eq!((slack.api_url.as_str(), slack.pace), ("https://slack.com/api", Duration::from_secs(1)));
    let route_of_a = &settings.group(&"a".parse().unwrap()).unwrap().routes[0];
    assert_eq!(route_of_a.responders, Some(Responders::Only(vec!["U1".to_owned()])));
    let settings = load(
        "[slack]\nbot_token = \"xoxb-a\"\nsigning_secret = \"s\"\napp_token = \"xapp-a\"\n\
         api_url = \"http://127.0.0.1:9/api/\"\npace = \"0s\"",
    )
    .unwrap();
    let slack = settings.slack.clone().unwrap();
    assert!(matches!(slack.transport, SlackTransport::Socket(_)), "a token for sockets comes first");
    assert_eq!(slack.api_url, "http://127.0.0.1:9/api");
    assert!(!format!("{slack:?}").contains("xapp-"), "secrets do not show");
}

#[test]
fn what_could_never_work_in_slack_is_refused_at_the_start() {
    let route = |who: &str| {
        let route = format!("{{ channel = \"slack\", chat = \"C1\", responders = [{who}] }}");
        format!("[slack]\nbot_token = \"xoxb-a\"\nsigning_secret = \"s\"\n[groups.a]\nroutes = [{route}]\n")
    };
    assert!(load(&route("\"U012AB\", \"W9\"")).is_ok());
    for who in ["@alice", "alice", "U012ab", "U", "", "B012", "<@U012>", "15551234567"] {
        let told = error(&route(&format!("\"U1\", {who:?}")));
        assert!(told.contains("groups.a.routes[0].responders") && told.contains("member id"), "{who}: {told}");
    }
    for (tokens, key, words) in [
        ("bot_token = \"xapp-secret\"", "slack.bot_token", "belongs in slack.app_token"),
        ("bot_token = \"xoxb-a\"\napp_token = \"xoxb-secret\"", "slack.app_token", "belongs in slack.bot_token"),
        ("bot_token = \"xoxp-secret\"", "slack.bot_token", "begins with xoxb-"),
        ("bot_token = \"secret\"\napp_token = \"xapp-a\"", "slack.bot_token", "begins with xoxb-"),
    ] {
        let told = error(&format!("[slack]\nsigning_secret = \"s\"\n{tokens}"));
        assert!(told.contains(key) && told.contains(words) && !told.contains("secret\""), "{tokens}: {told}");
    }
    assert!(load("[slack]\nbot_token = \"xoxe.xoxb-1-a\"\napp_token = \"xapp-a\"").is_ok(), "one that is rotated");
}

#[test]
fn an_unknown_key_of_a_group_is_told_what_there_is() {
    let told = error("[groups.research]\nroute = [{ channel = \"web\" }]");
    assert!(told.contains("groups.research: unknown key \"route\"; did you mean \"routes\"?"), "{told}");
    assert!(told.contains("A group has: routes, session, answer_retention,"), "{told}");
    let told = error("[defaults]\ncolour = 1");
    assert!(told.contains("defaults: unknown key \"colour\"; A group has") && !told.contains("mean"), "{told}");
    let told = error("[asks]\ntime_out = \"1m\"");
    assert!(
        told.contains("asks: unknown key \"time_out\"; did you mean \"timeout\"? [asks] has: answer_retention,"),
        "{told}"
    );
}

#[test]
fn urls_are_read_as_browsers_read_them() {
    for (url, host) in [
        ("https://askd.example/", Some("askd.example")),
        ("HTTPS://Askd.Example:8443/x", Some("askd.example:8443")),
        ("http://[::1]/", Some("[::1]")),
        ("http://[::1]:8484", Some("[::1]:8484")),
        ("http://user@askd.example", None),
        ("ftp://askd.example", None),
        ("null", None),
        ("https://", None),
    ] {
        assert_eq!(url_host(url).as_deref(), host, "{url}");
    }
    let whatsapp =
        "[whatsapp]\naccess_token = \"a\"\napp_secret = \"b\"\nverify_token = \"c\"\nphone_number_id = \"106\"\n";
    let slack = "[slack]\nbot_token = \"xoxb-a\"\nsigning_secret = \"s\"\n";
    for url in
        ["http://[::1]/", "http://[::1]:9/v25.0", "http://127.0.0.1", "http://localhost:9", "https://[2001:db8::1]/"]
    {
        for section in [slack, whatsapp] {
            let loaded = load(&format!("{section}api_url = {url:?}"));
            assert!(loaded.is_ok(), "{url}: {:?}", loaded.err());
        }
    }
    for url in ["http://[2001:db8::1]/", "http://127.0.0.1.evil.example/", "http://localhost@evil.example/"] {
        for section in [slack, whatsapp] {
            assert!(error(&format!("{section}api_url = {url:?}")).contains("api_url"), "{url}");
        }
    }
}

#[test]
fn whatsapp_says_what_is_missing_and_what_does_not_fit() {
    let all =
        "[whatsapp]\naccess_token = \"hush\"\napp_secret = \"b\"\nverify_token = \"c\"\nphone_number_id = \"106\"\n";
    for (text, key) in [
        (all.replace("access_token", "#"), "whatsapp.access_token"),
        (all.replace("app_secret", "#"), "whatsapp.app_secret"),
        (all.replace("verify_token", "#"), "whatsapp.verify_token"),
        (all.replace("phone_number_id", "#"), "whatsapp.phone_number_id"),
        (all.replace("106", "+1 555"), "whatsapp.phone_number_id"),
        (format!("{all}api_url = \"http://graph.example.com/v25.0\""), "whatsapp.api_url"),
        (format!("{all}app_secret_file = \"/does/not/exist\""), "whatsapp.app_secret_file"),
        (format!("{all}[groups.a]\nroutes = [{{ channel = \"whatsapp\" }}]"), "groups.a.routes[0].chat"),
        (
            format!("{all}[groups.a]\nroutes = [{{ channel = \"whatsapp\", chat = \"C012\" }}]"),
            "groups.a.routes[0].chat",
        ),
        ("[groups.a]\nroutes = [{ channel = \"whatsapp\", chat = \"15551234567\" }]".to_owned(), "groups.a.routes"),
    ] {
        assert!(error(&text).contains(key), "{text}: {}", error(&text));
    }
    let route = "[groups.a]\nroutes = [{ channel = \"whatsapp\", chat = \"+1 (555) 123-4567\" }]";
    let settings = load(&format!("{all}{route}")).unwrap();
    let route = &settings.group(&"a".parse().unwrap()).unwrap().routes[0];
    assert_eq!(route.chat, "15551234567");
    assert_eq!(route.responders, Some(Responders::Only(vec!["15551234567".to_owned()])), "its own number");
    assert!(!format!("{settings:?}").contains("hush"), "secrets do not show");
}

#[test]
fn secrets_do_not_show() {
    let settings = load("[web]\ntoken = \"hush\"").unwrap();
    assert!(!format!("{settings:?}").contains("hush"));
    assert_eq!(settings.web_token.unwrap().expose_secret(), "hush");
}

const FULL: &str = r#"data_dir = "/tmp/askd"
dir_mode = "0770"
gid = "1500"
[http]
listen = "127.0.0.1:0"
public_url = "https://askd.example.com"
allowed_hosts = ["inbox.example.com"]
[asks]
timeout = "30m"
max_attempts = 5
on_timeout = "return_cancel"
[slack]
bot_token = "xoxb-1"
signing_secret = "s"
pace = "1s"
[whatsapp]
access_token = "a"
app_secret = "b"
verify_token = "c"
phone_number_id = "1"
[groups.research]
timeout = "45s"
routes = [{ channel = "slack", chat = "C0123", responders = ["U1"] }, { channel = "whatsapp", chat = "15551234567" }, { channel = "web" }]
session = { start = { command = ["/bin/true"] } }
"#;

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 1_000, failure_persistence: None, ..Default::default() })]

    /// Settings hold or are refused in words, and no secret is in them.
    #[test]
    fn no_text_breaks_them(bytes in crate::odd::near(FULL)) {
        let text = String::from_utf8_lossy(&bytes);
        if let Err(error) = Settings::from_toml(&text) {
            proptest::prop_assert!(!error.to_string().is_empty());
        }
    }
}
