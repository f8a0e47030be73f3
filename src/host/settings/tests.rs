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
        ("[http]\nwebhook_listen = \"127.0.0.1:8484\"", "askd listens there already (http.listen)"),
        ("[agents]\nlisten = \"127.0.0.1:8484\"", "askd listens there already (http.listen)"),
        ("[postgres]\nurl = \"mysql://x\"", "postgres.url"),
        #[cfg(feature = "postgres")]
        (
            "[postgres]\nurl = \"postgres://askd@db/askd\"\nlisten_url = \"postgres://db/askd?sslmode=bogus\"",
            "postgres.listen_url: it cannot be used: ",
        ),
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
    let home = Settings::from_toml("data_dir = \"~/askd\"").unwrap_err().to_string();
    assert!(home.contains("only a shell expands ~"), "{home}");
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

/// Each mistake is one clear sentence with its line, which says what to do.
#[test]
fn every_mistake_is_one_sentence_that_says_what_to_do() {
    let whatsapp =
        "[whatsapp]\naccess_token = \"a\"\napp_secret = \"b\"\nverify_token = \"c\"\nphone_number_id = \"1\"\n";
    let slack = "[slack]\nbot_token = \"xoxb-a\"\napp_token = \"xapp-a\"\n[groups.a]\n";
    let group_keys = "routes, session, timeout, render_timeout, max_retries, max_attempts, on_timeout, pickup_timeout, \
                      answer_retention, late_answers, remind_after, escalate_after, max_open_per_group, \
                      max_per_hour_per_group, keep_settled, keep_audit";
    let people = "say who can answer: responders = [\"U0123ABCD\"] (member ids, from people's profiles), or responders \
                  = \"anyone\" for every member of your workspace in the channel";
    let cases: Vec<(String, String)> = vec![
        // Keys.
        ("[groups.research]\nroute = []".into(), "groups.research: unknown key \"route\". Did you mean \"routes\"? (settings, line 2)".into()),
        ("[groups.a]\ncolour = 1".into(), format!("groups.a: unknown key \"colour\". Known keys: {group_keys} (settings, line 2)")),
        ("[asks]\ntime_out = \"1m\"".into(), "asks: unknown key \"time_out\". Did you mean \"timeout\"? (settings, line 2)".into()),
        ("[web]\npush = \"tex\"".into(), "web.push: \"tex\" is none of off, notice and text (settings, line 2)".into()),
        ("[defaults]\ntimeuot = \"1m\"".into(), "defaults: unknown key \"timeuot\". Did you mean \"timeout\"? (settings, line 2)".into()),
        ("[http]\nlisen = \"127.0.0.1:1\"".into(), "http: unknown key \"lisen\". Did you mean \"listen\"? (settings, line 2)".into()),
        ("[slak]\n".into(), "unknown key \"slak\". Did you mean \"slack\"? (settings, line 1)".into()),
        ("[group.a]\n".into(), "unknown key \"group\". Did you mean \"groups\"? (settings, line 1)".into()),
        ("listen = \"127.0.0.1:1\"".into(), "unknown key \"listen\". It belongs in [agents] or [http] (settings, line 1)".into()),
        ("bot_token = \"xoxb-a\"".into(), "unknown key \"bot_token\". It belongs in [slack] (settings, line 1)".into()),
        ("[http]\ngid = \"1\"".into(), "http: unknown key \"gid\". It belongs at the top of the file, above the first [section] (settings, line 2)".into()),
        ("[slack]\nbot_tokn = \"x\"".into(), "slack: unknown key \"bot_tokn\". Did you mean \"bot_token\"? (settings, line 2)".into()),
        ("[slack]\nbot_tokn_file = \"x\"".into(), "slack: unknown key \"bot_tokn_file\". Did you mean \"bot_token_file\"? (settings, line 2)".into()),
        ("[groups.a]\nroutes = [{ channel = \"web\", chanel = 1 }]".into(), "groups.a.routes[0]: unknown key \"chanel\". Did you mean \"channel\"? (settings, line 2)".into()),
        ("[groups.a]\nsession = { strat = { docker = \"a\" } }".into(), "groups.a.session: unknown key \"strat\". Did you mean \"start\"? (settings, line 2)".into()),
        ("[asks]\nroutes = []".into(), "asks.routes: belongs in [groups.<name>], or in [defaults] for all groups without a section (settings, line 2)".into()),
        // Types.
        ("http = 1".into(), "http: must be a table of keys, not integer 1 (settings, line 1)".into()),
        ("[asks]\nmax_retries = \"many\"".into(), "asks.max_retries: must be an integer, not a string (settings, line 2)".into()),
        ("[groups.a]\nroutes = \"web\"".into(), "groups.a.routes: must be a list, not a string (settings, line 2)".into()),
        ("[groups.a]\nroutes = [\"web\"]".into(), "groups.a.routes[0]: must be a table of keys, not a string (settings, line 2)".into()),
        ("[web]\npeople = [{ groups = [\"a\"] }]".into(), "web.people[0].name: missing: write name = ... (settings, line 2)".into()),
        ("[web]\npeople = [{ name = \"ann\", token = \"0123456789abcdef0123456789abcdef\", groups = [\"a b\"] }]".into(), "web.people[0].groups[0]: 1-64 of A-Z a-z 0-9 _ -, the first a letter or digit (settings, line 2)".into()),
        ("[groups.a]\nsession = { start = { command = [[\"x\"]] } }".into(), "groups.a.session.start.command[0]: must be a string, not a list (settings, line 2)".into()),
        ("asks = [\"5m\"]".into(), "asks: must be a table of keys, not a list (settings, line 1)".into()),
        ("[groups]\nroutes = [{ channel = \"web\" }]".into(), "groups.routes: belongs in [groups.<name>], the section of one group (settings, line 2)".into()),
        ("slack = \"xoxb-secret\"".into(), "slack: must be a table of keys, not a string (settings, line 1)".into()),
        ("[web]\npeople = [\"ann\", { name = \"bob\" }]".into(), "web.people[0]: must be a table of keys, not a string (settings, line 2)".into()),
        ("[http]\nallowed_hosts = 5".into(), "http.allowed_hosts: must be a list of texts, like [\"a\", \"b\"] (settings, line 2)".into()),
        // Values.
        ("[asks]\ntimeout = \"soon\"".into(), "asks.timeout: \"soon\" is not a duration like \"45s\", \"30m\" or \"24h\" (settings, line 2)".into()),
        ("[asks]\ntimeout = 30".into(), "asks.timeout: \"30\" is not a duration like \"45s\", \"30m\" or \"24h\" (settings, line 2)".into()),
        ("[asks]\ntimeout = \"8d\"".into(), "asks.timeout: \"8d\" is too long; at most 7days (settings, line 2)".into()),
        ("[groups.a]\nmax_retries = 9".into(), "groups.a.max_retries: 9 does not fit; it must be at least 0 and at most 5 (settings, line 2)".into()),
        ("[asks]\non_timeout = \"cancel\"".into(), "asks.on_timeout: \"cancel\" is neither return_cancel nor abort_task (settings, line 2)".into()),
        ("dir_mode = \"rwx\"".into(), "dir_mode: \"rwx\" is not an octal mode like \"0770\" that the owner can use (settings, line 1)".into()),
        ("gid = \"agents\"".into(), "gid: \"agents\" is not a numeric group id like \"1500\" (the third field of: getent group agents) (settings, line 1)".into()),
        ("[http]\nlisten = \"8484\"".into(), "http.listen: \"8484\" is not an address like 127.0.0.1:8484 (settings, line 2)".into()),
        ("[http]\nlisten = \"localhost:8484\"".into(), "http.listen: \"localhost:8484\" is not an address like 127.0.0.1:8484 (settings, line 2)".into()),
        (
            "[http]\nlisten = \"0.0.0.0:8484\"".into(),
            "http.listen: 0.0.0.0:8484 can be reached from other machines; say under which names: set http.public_url \
             (https://askd.example.com) or http.allowed_hosts ([\"askd.example.com\"]) (settings, line 2)".into(),
        ),
        ("[http]\npublic_url = \"askd.example.com\"".into(), "http.public_url: \"askd.example.com\" is not a URL like https://askd.example.com (settings, line 2)".into()),
        ("[log]\nfilter = \"verbose\"".into(), "log.filter: \"verbose\" is neither a level (error, warn, info, debug) nor a filter like \"askd=debug,info\" (settings, line 2)".into()),
        ("[log]\nfilter = \"askd=loud\"".into(), "log.filter: \"askd=loud\" is neither a level (error, warn, info, debug) nor a filter like \"askd=debug,info\" (settings, line 2)".into()),
        ("[log]\nformat = \"xml\"".into(), "log.format: \"xml\" is neither text nor json (settings, line 2)".into()),
        ("[slack]\napi_url = \"http://slack.example/api\"".into(), "slack.api_url: \"http://slack.example/api\" is neither https://... nor http://127.0.0.1:<port>/... (plain http is for tests) (settings, line 2)".into()),
        // Groups and routes.
        ("[groups.\"a b\"]\n".into(), "groups.a b: a group's name is 1-64 of A-Z a-z 0-9 _ -, the first a letter or digit (settings, line 1)".into()),
        ("[groups.a]\nroutes = [{ channel = \"slak\" }]".into(), "groups.a.routes[0].channel: \"slak\" is none of slack, whatsapp, web. Did you mean \"slack\"? (settings, line 2)".into()),
        ("[groups.a]\nroutes = [{ chat = \"C1\" }]".into(), "groups.a.routes[0].channel: missing: write channel = ... (settings, line 2)".into()),
        ("[groups.a]\nroutes = [{ channel = \"web\", chat = \"C1\" }]".into(), "groups.a.routes[0]: the inbox has no chat and no responders (the holder of its token is the operator); write { channel = \"web\" } (settings, line 2)".into()),
        ("[groups.a]\nroutes = [{ channel = \"slack\", chat = \"C1\", responders = \"anyone\" }]".into(), "slack.bot_token: missing: groups.a.routes[0] asks in Slack; set the bot token (xoxb-..., see docs/slack.md), or bot_token_file".into()),
        (format!("{slack}routes = [{{ channel = \"slack\", chat = \"C1\" }}]"), format!("groups.a.routes[0].responders: {people} (settings, line 5)")),
        (format!("{slack}routes = [{{ channel = \"slack\", chat = \"C1\", responders = [] }}]"), "groups.a.routes[0].responders: the list is empty, so no one could answer; name at least one person (settings, line 5)".into()),
        (format!("{slack}routes = [{{ channel = \"slack\", chat = \"#agents\", responders = \"anyone\" }}]"), "groups.a.routes[0].chat: \"#agents\" is not the id of a Slack channel like \"C0123ABCD\" (last line of the channel's details) (settings, line 5)".into()),
        (format!("{slack}routes = [{{ channel = \"slack\", chat = \"C1\", responders = [\"@alice\"] }}]"), format!("groups.a.routes[0].responders: \"@alice\" is not a member id of Slack, so that this person could never answer; {people} (settings, line 5)")),
        (format!("{slack}routes = [{{ channel = \"slack\", chat = \"C1\", responders = [\"U1\"] }}, {{ channel = \"slack\", chat = \"C1\", responders = [\"U2\"] }}]"), "groups.a.routes[1]: is the same place as routes[0]: name all responders in one route (settings, line 5)".into()),
        ("[groups.a]\nroutes = [{ channel = \"web\" }, { channel = \"web\" }]".into(), "groups.a.routes[1]: is the same place as routes[0] (settings, line 2)".into()),
        (format!("{slack}on_timeout = \"abort_task\""), "groups.a.on_timeout: abort_task needs a way to stop the session; add it to the group: session = { stop = { docker = \"<container>\" } } (settings, line 5)".into()),
        ("[groups.a]\nsession = { start = { docker = \"a\", command = [\"/a\"] } }".into(), "groups.a.session.start: takes one of docker = \"<container>\", command = [\"/path\", ...], or webhook = \"https://...\" with secret_file = \"/path\" (settings, line 2)".into()),
        ("[groups.a]\nsession = { start = { webhook = \"https://a.example\" } }".into(), "groups.a.session.start: takes one of docker = \"<container>\", command = [\"/path\", ...], or webhook = \"https://...\" with secret_file = \"/path\" (settings, line 2)".into()),
        ("[groups.a]\nsession = { start = { webhook = \"a.example\", secret_file = \"/x\" } }".into(), "groups.a.session.start: \"a.example\" is not a URL like https://example.com/continue (settings, line 2)".into()),
        ("[groups.a]\nsession = { start = { webhook = \"https://u:p@a.example\", secret_file = \"/x\" } }".into(), "groups.a.session.start: a webhook's URL must not contain a user name or password: remove them; the signature takes their place (settings, line 2)".into()),
        ("[groups.a]\nsession = { start = { webhook = \"http://93.184.216.34/x\", secret_file = \"/x\" } }".into(), "groups.a.session.start: http://93.184.216.34/x is not encrypted: write https:// (settings, line 2)".into()),
        ("[groups.a]\nsession = { start = { webhook = \"http://a.example/x\", secret_file = \"/x\" } }".into(), "groups.a.session.start: http://a.example/x is not encrypted: write https://, or, if the host is in your own network, private = true (settings, line 2)".into()),
        ("[groups.a]\nsession = { start = { webhook = \"https://a.example\", secret_file = \"/no/such\" } }".into(), "groups.a.session.start: cannot read /no/such: No such file or directory (os error 2) (settings, line 2)".into()),
        ("[groups.a]\nsession = { start = { webhook = \"https://a.example\", secret_file = \"/dev/null\" } }".into(), "groups.a.session.start: /dev/null holds no key of Standard Webhooks. Make one: printf 'whsec_%s\\n' \"$(openssl rand -base64 32)\" > /dev/null (settings, line 2)".into()),
        ("[groups.a]\nsession = { probe = { webhook = \"http://127.0.0.1/\", secret_file = \"/dev/null\" } }".into(), "groups.a.session.probe: /dev/null holds no key of Standard Webhooks. Make one: printf 'whsec_%s\\n' \"$(openssl rand -base64 32)\" > /dev/null (settings, line 2)".into()),
        ("[groups.a]\nsession = { start = { command = [\"start-agent\"] } }".into(), "groups.a.session.start.command: must be a list that begins with the absolute path of a program, like [\"/usr/local/bin/start-agent\", \"research\"]; no shell reads it (settings, line 2)".into()),
        // Secrets.
        ("[slack]\nbot_token = \"xoxb-a\"\nsigning_secret = [\"a\", \"b\", \"c\"]".into(), "slack.signing_secret: has more than two secrets: write the new one, then the one that it replaces (settings, line 3)".into()),
        ("[slack]\nbot_token = \"xoxb-a\"".into(), "slack.signing_secret: missing: without it (Basic Information of the app) no click can be verified; or set slack.app_token for Socket Mode (settings, line 1)".into()),
        ("[slack]\nbot_token = \"xapp-a\"\nsigning_secret = \"s\"".into(), "slack.bot_token: not a Bot User OAuth Token, which begins with xoxb-; this one belongs in slack.app_token (see docs/slack.md) (settings, line 2)".into()),
        ("[slack]\nbot_token_file = \"/does/not/exist\"".into(), "slack.bot_token_file: cannot read /does/not/exist: No such file or directory (os error 2) (settings, line 2)".into()),
        ("[web]\ntoken = \"short\"".into(), "web.token: is too short; make one with `openssl rand -hex 32` (settings, line 2)".into()),
        ("[asks]\nremind_after = \"0s\"".into(), "asks.remind_after: \"0s\" is too short; at least 1s, or \"\" to turn it off (settings, line 2)".into()),
        ("[web]\ntoken_file = \"/dev/null\"".into(), "web.token_file: /dev/null is empty (settings, line 2)".into()),
        (whatsapp.replace("\"1\"", "\"+1 555\""), "whatsapp.phone_number_id: \"+1 555\" is not an id of digits like \"106540352242922\" (not the number itself) (settings, line 5)".into()),
        (format!("{whatsapp}[groups.a]\nroutes = [{{ channel = \"whatsapp\", chat = \"15551234567\", responders = [\"+1 555 765 4321\"] }}]"), "groups.a.routes[0].responders: 15551234567 is asked, but may not answer: add \"15551234567\", or make one of these the chat (settings, line 7)".into()),
        (format!("{whatsapp}[groups.a]\nroutes = [{{ channel = \"whatsapp\", chat = \"Ada\" }}]"), "groups.a.routes[0].chat: \"Ada\" is neither a number like \"15551234567\" nor a business-scoped id like \"US.13491208655302741918\" (settings, line 7)".into()),
        (format!("{whatsapp}[groups.a]\nroutes = [{{ channel = \"whatsapp\", chat = \"0151 2345678\" }}]"), "groups.a.routes[0].chat: \"0151 2345678\" has a 0 that is dialled and is no part of the number: write + and the country code before it, and no 0 between, for example \"+15551234567\" (settings, line 7)".into()),
        (format!("{whatsapp}[groups.a]\nroutes = [{{ channel = \"whatsapp\", chat = \"+49 (0151) 2345678\" }}]"), "groups.a.routes[0].chat: \"+49 (0151) 2345678\" has a 0 that is dialled and is no part of the number: write + and the country code before it, and no 0 between, for example \"+15551234567\" (settings, line 7)".into()),
        // TOML.
        ("[asks]\ntimeout = 30m".into(), "this is not TOML: string values must be quoted, expected literal string (settings, line 2)".into()),
        ("[asks]\ntimeout = \"30m".into(), "this is not TOML: invalid basic string, expected `\"` (settings, line 2)".into()),
        ("gid\n".into(), "this is not TOML: key with no value, expected `=` (settings, line 1)".into()),
        ("[asks]\n[asks]\n".into(), "this is not TOML: duplicate key (settings, line 2)".into()),
    ];
    for (text, told) in cases {
        let found = Settings::from_toml(&text).map_err(|error| error.to_string()).unwrap_err();
        assert_eq!(found, told, "{text}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_in_the_order_of_the_file() {
    let told = error(
        "gid = \"agents\"\n[http]\nlisten = \"8484\"\n[groups.research]\nroute = []\ntimeout = \"soon\"\n[groups.b]\n\
         session = { start = { command = [\"x\"] } }\nroutes = [{ channel = \"fax\" }, { channel = \"web\", colour = 1 }]\n",
    );
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "7 mistakes in the settings:", "{told}");
    for (line, (key, place)) in lines[1..].iter().zip([
        ("  gid: ", "line 2"),
        ("  http.listen: ", "line 4"),
        ("  groups.research: unknown key \"route\". Did you mean \"routes\"?", "line 6"),
        ("  groups.research.timeout: ", "line 7"),
        ("  groups.b.session.start.command: ", "line 9"),
        ("  groups.b.routes[0].channel: ", "line 10"),
        ("  groups.b.routes[1]: unknown key \"colour\"", "line 10"),
    ]) {
        assert!(line.starts_with(key) && line.ends_with(&format!("(settings, {place})")), "{line}");
    }
    let told = error("[asks]\ntimeout = \"x\"\n[groups.a]\n[groups.b]\n");
    assert!(told.starts_with("asks.timeout: ") && told.ends_with("line 3)") && told.lines().count() == 1, "{told}");
    let route = "routes = [{ channel = \"whatsapp\", chat = \"15551234567\" }]";
    let told = error(&format!("[whatsapp]\naccess_token_file = \"/does/not/exist\"\n[groups.a]\n{route}\n"));
    assert!(told.starts_with("whatsapp.access_token_file: ") && told.lines().count() == 1, "{told}");
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
    let settings = load("[web]\ntoken = \"hush-hush-hush-hush\"").unwrap();
    assert!(!format!("{settings:?}").contains("hush"));
    assert_eq!(settings.web.token.unwrap().expose_secret(), "hush-hush-hush-hush");
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
