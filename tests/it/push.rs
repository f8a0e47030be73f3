//! Web Push: browsers are told of a question and of its end, by a push service on loopback. What it gets is read as a browser
//! reads it, by an implementation that askd did not write.

use crate::harness::{SOON, World, choice, sections, within};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use web_push_native::p256::ecdsa::signature::Verifier as _;
use web_push_native::p256::ecdsa::{Signature, VerifyingKey};
use web_push_native::p256::{SecretKey, elliptic_curve::sec1::ToEncodedPoint as _};

const ANN: &str = "ann-0123456789abcdef";

/// What the service was sent.
#[derive(Debug, Clone)]
struct Push {
    browser: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// A push service that takes what it gets. `/gone/...` is a browser that is not there any more, and `/busy/...` one that fails
/// at first.
struct Service {
    host: String,
    sent: Arc<Mutex<Vec<Push>>>,
    /// It takes nothing.
    away: Arc<AtomicBool>,
    /// It does not reply yet.
    holds: Arc<AtomicBool>,
}

impl Service {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let (away, holds) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (takes, is_away, is_holding) = (Arc::clone(&sent), Arc::clone(&away), Arc::clone(&holds));
        // It ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let (takes, is_away, is_holding) = (takes.clone(), is_away.clone(), is_holding.clone());
                thread::spawn(move || {
                    while let Some(taken) = take(&mut stream, &takes) {
                        while is_holding.load(Ordering::Relaxed) {
                            thread::sleep(Duration::from_millis(5));
                        }
                        let status = if is_away.load(Ordering::Relaxed) { 503 } else { taken };
                        write!(stream.get_mut(), "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").unwrap();
                    }
                });
            }
        });
        Self { host, sent, away, holds }
    }

    /// What was sent to this browser, once there is so much.
    fn sent_to(&self, world: &World, browser: &Browser, count: usize) -> Vec<Push> {
        world.passing(SOON, "a push", || {
            let sent = self.sent.lock().unwrap();
            let own: Vec<Push> = sent.iter().filter(|push| push.browser == browser.path).cloned().collect();
            (own.len() >= count).then_some(own)
        })
    }
}

/// Reads a request. The status of the reply; `None` at the end of the connection.
fn take(stream: &mut BufReader<std::net::TcpStream>, takes: &Mutex<Vec<Push>>) -> Option<u16> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let browser = lines[0].split(' ').nth(1)?.to_owned();
    let headers: BTreeMap<String, String> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(n, v)| (n.to_lowercase(), v.to_owned()))
        .collect();
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    let mut takes = takes.lock().unwrap();
    let is_first = takes.iter().all(|push: &Push| push.browser != browser);
    let status = match browser.split('/').nth(1) {
        Some("gone") => 410,
        Some("busy") if is_first => 503,
        _ => 201,
    };
    takes.push(Push { browser, headers, body });
    Some(status)
}

/// A browser that has signed up.
struct Browser {
    secret: SecretKey,
    auth: [u8; 16],
    path: String,
}

impl Browser {
    fn new(path: &str) -> Self {
        let seed = path.bytes().fold(1_u8, u8::wrapping_add).max(1);
        Self { secret: SecretKey::from_slice(&[seed; 32]).unwrap(), auth: [seed; 16], path: path.to_owned() }
    }

    fn subscription(&self, service: &Service) -> Value {
        let public = self.secret.public_key().to_encoded_point(false);
        let keys = json!({"p256dh": BASE64.encode(public.as_bytes()), "auth": BASE64.encode(self.auth)});
        json!({"endpoint": format!("http://{}{}", service.host, self.path), "expirationTime": null, "keys": keys})
    }

    /// What the worker of the page gets.
    fn reads(&self, push: &Push) -> Value {
        let text = web_push_native::decrypt(push.body.clone(), &self.secret, &self.auth.into()).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

/// The settings in which Ann sees one group.
fn people(service: &Service, sees: &str, more: &str) -> String {
    let host = &service.host;
    let ann = format!("{{ name = \"ann\", token = \"{ANN}\", groups = [\"{sees}\"] }}");
    format!("[web]\npush_hosts = [\"{host}\"]\npeople = [{ann}]\n{more}{}", sections(&["writer", "board", "g"]))
}

fn with_people(service: &Service, more: &str) -> World {
    World::empty().config(&people(service, "writer", more)).started()
}

fn call(world: &World, token: &str, method: &str, body: &Value) -> (u16, String) {
    let headers = format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
    world.raw(method, "/api/v1/push", &headers, &body.to_string())
}

fn signs_up(world: &World, token: &str, browser: &Browser, service: &Service) {
    let (status, told) = call(world, token, "POST", &browser.subscription(service));
    assert_eq!(status, 204, "{told}");
}

fn kept(world: &World) -> Value {
    serde_json::from_slice(&std::fs::read(world.state().join("push.json")).unwrap()).unwrap()
}

#[test]
fn a_browser_is_told_of_a_question_and_of_its_end_and_of_no_other_group() {
    let service = Service::start();
    let mut world = with_people(&service, "");
    let (own, anns) = (Browser::new("/own"), Browser::new("/ann"));
    world.group("writer").ask("before", &choice("Before?", &["a"]));
    world.open_of("before");
    signs_up(&world, &world.token(), &own, &service);
    signs_up(&world, ANN, &anns, &service);
    signs_up(&world, ANN, &anns, &service);
    world.group("board").ask("hidden", &choice("Sell the company?", &["Yes", "No"]));
    let hidden = world.open_of("hidden");
    world.group("writer").ask("seen", &choice("Which title?", &["One", "Two"]));
    let seen = world.open_of("seen");

    let (first, second) = (service.sent_to(&world, &own, 2), service.sent_to(&world, &anns, 1));
    assert_eq!(second.len(), 1, "once for each browser");
    assert_eq!(anns.reads(&second[0]), json!({"ask": seen["id"], "group": "writer", "over": false}));
    let told: Vec<Value> = first.iter().map(|push| own.reads(push)).collect();
    assert!(told.iter().any(|told| *told == json!({"ask": hidden["id"], "group": "board", "over": false})), "{told:?}");

    // The service can see who pushes, how long it matters, and nothing else.
    let headers = &second[0].headers;
    assert_eq!((&*headers["ttl"], &*headers["urgency"], &*headers["content-encoding"]), ("1800", "high", "aes128gcm"));
    let (_, me) = world.call("GET", "/me", None);
    let key = me["push_key"].as_str().unwrap();
    let (token, named) = headers["authorization"].strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
    assert_eq!(named, key);
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let verifying = VerifyingKey::from_sec1_bytes(&BASE64.decode(key).unwrap()).unwrap();
    let signature = Signature::from_slice(&BASE64.decode(signature).unwrap()).unwrap();
    verifying.verify(signed.as_bytes(), &signature).unwrap();
    let claims: Value = serde_json::from_slice(&BASE64.decode(signed.split_once('.').unwrap().1).unwrap()).unwrap();
    assert_eq!(claims["aud"], format!("http://{}", service.host));

    // Another daemon on the same folder knows the browsers, and of which questions they were told.
    assert_eq!(world.terminate().code(), Some(0));
    world.start();
    within(SOON, "the asks to be read", || (world.raw("GET", "/readyz", "", "").1 == "ready\n").then_some(()));
    assert_eq!(world.call("GET", "/me", None).1["push_key"], key);
    assert_eq!(world.answer(&seen, &json!({"seen_0": "Two"})).0, 200);
    let (first, second) = (service.sent_to(&world, &own, 3), service.sent_to(&world, &anns, 2));
    for (browser, end) in [(&own, &first[2]), (&anns, &second[1])] {
        assert_eq!(browser.reads(end), json!({"ask": seen["id"], "group": "writer", "over": true}));
        assert_eq!(end.headers["topic"], seen["id"].as_str().unwrap(), "it takes the place of one that waits");
    }
    // Who signs off hears nothing more; of Ann's group there is nothing after her last push.
    let gone = json!({"endpoint": own.subscription(&service)["endpoint"]});
    assert_eq!(call(&world, ANN, "DELETE", &gone).0, 204, "it is not hers");
    assert_eq!(kept(&world)["devices"].as_array().unwrap().len(), 2);
    assert_eq!(call(&world, &world.token(), "DELETE", &gone).0, 204);
    world.group("writer").ask("last", &choice("Last?", &["a"]));
    world.open_of("last");
    // A push that were still on its way to the other browser would arrive before the next one to hers.
    world.group("writer").ask("afterwards", &choice("Afterwards?", &["a"]));
    assert_eq!(service.sent_to(&world, &anns, 4).len(), 4);
    assert_eq!(service.sent_to(&world, &own, 0).len(), 3);
    let all: Vec<Value> = service.sent_to(&world, &anns, 4).iter().map(|push| anns.reads(push)).collect();
    assert!(all.iter().all(|told| told["group"] == "writer" && told["ask"] != hidden["id"]), "{all:?}");
}

#[test]
fn what_came_and_what_ended_while_nobody_could_tell_is_told_at_the_next_start() {
    let service = Service::start();
    let mut world = with_people(&service, "");
    let own = Browser::new("/own");
    signs_up(&world, &world.token(), &own, &service);
    let ids: Vec<Value> = [("ends", "Which title?"), ("told", "Which cover?"), ("missed", "Which font?")]
        .into_iter()
        .map(|(request, question)| {
            world.group("g").ask(request, &choice(question, &["One", "Two"]));
            world.open_of(request)["id"].clone()
        })
        .collect();
    service.sent_to(&world, &own, 3);
    assert_eq!(world.answer(&world.open_of("ends"), &json!({"ends_0": "One"})).0, 200);
    service.sent_to(&world, &own, 4);
    assert_eq!(world.terminate().code(), Some(0));
    // As if a crash had come before browsers were told of the last one, and of the end of the first.
    let mut before = kept(&world);
    before["told"] = json!([ids[0], ids[1]]);
    std::fs::write(world.state().join("push.json"), before.to_string()).unwrap();
    world.start();
    let sent = service.sent_to(&world, &own, 6);
    let mut since: Vec<Value> = sent[4..].iter().map(|push| own.reads(push)).collect();
    since.sort_by_key(|told| told["over"] == true);
    let told = |ask: &Value, over: bool| json!({"ask": ask, "group": "g", "over": over});
    assert_eq!(since, [told(&ids[2], false), told(&ids[0], true)]);
    // It is stored, so that the start after that has nothing to tell.
    assert_eq!(world.terminate().code(), Some(0));
    world.start();
    within(SOON, "the asks to be read", || (world.raw("GET", "/readyz", "", "").1 == "ready\n").then_some(()));
    assert_eq!(world.answer(&world.open_of("told"), &json!({"told_0": "One"})).0, 200);
    let last = own.reads(&service.sent_to(&world, &own, 7)[6]);
    assert_eq!(last, told(&ids[1], true));
}

#[test]
fn a_browser_that_is_gone_is_forgotten_and_a_busy_service_is_tried_again() {
    let service = Service::start();
    let world = with_people(&service, "push = \"text\"\n");
    let (gone, busy) = (Browser::new("/gone/1"), Browser::new("/busy/1"));
    signs_up(&world, &world.token(), &gone, &service);
    signs_up(&world, &world.token(), &busy, &service);
    assert_eq!(std::fs::metadata(world.state().join("push.json")).unwrap().permissions().mode() & 0o777, 0o600);
    world.group("g").ask("r1", &choice("Which title?", &["One", "Two"]));
    let ask = world.open_of("r1");
    let tried = service.sent_to(&world, &busy, 2);
    assert_eq!(busy.reads(&tried[1])["text"], "Which title?", "as the settings say");
    world.passing(SOON, "the one that is gone to be forgotten", || {
        let kept = kept(&world)["devices"].as_array().unwrap().clone();
        (kept.len() == 1 && kept[0]["subscription"]["endpoint"].as_str().unwrap().ends_with("/busy/1")).then_some(())
    });
    assert_eq!(world.answer(&ask, &json!({"r1_0": "One"})).0, 200);
    assert_eq!(service.sent_to(&world, &busy, 3).len(), 3);
    world.group("g").ask("r2", &choice("Which cover?", &["One", "Two"]));
    assert_eq!(service.sent_to(&world, &busy, 4).len(), 4);
    assert_eq!(service.sent_to(&world, &gone, 0).len(), 1, "nothing more is pushed to it");
}

/// While the service was away, he has signed off, and a reload has taken the group from her.
#[test]
fn a_notice_that_is_tried_again_goes_only_to_who_still_hears_of_it() {
    let service = Service::start();
    let text = "push = \"text\"\n";
    let world = World::empty().config(&people(&service, "writer", text)).with_binary().started();
    let [own, other, anns] = ["/own", "/other", "/ann"].map(Browser::new);
    let asks = |request: &str| {
        world.group("writer").ask(request, &choice(&format!("Which title, {request}?"), &["One", "Two"]));
        world.open_of(request)
    };
    let is_over = |ask: &Value| {
        let id = ask["questions"][0]["id"].as_str().unwrap();
        assert_eq!(world.answer(ask, &json!({id: "One"})).0, 200);
    };
    // What this browser was told of an ask, in time or in vain, once it was so often.
    let told = |browser: &Browser, ask: &Value, count: usize| {
        within(SOON, "a notice", || {
            let sent = service.sent.lock().unwrap();
            let own = sent.iter().filter(|push| push.browser == browser.path).map(|push| browser.reads(push));
            let of_it: Vec<Value> = own.filter(|told| told["ask"] == ask["id"]).collect();
            (of_it.len() >= count).then_some(of_it)
        })
    };
    for (token, browser) in [(&*world.token(), &own), (&world.token(), &other), (ANN, &anns)] {
        signs_up(&world, token, browser, &service);
    }
    let shown = asks("r1");
    assert_eq!(told(&anns, &shown, 1)[0]["text"], "Which title, r1?");
    for browser in [&own, &other] {
        told(browser, &shown, 1);
    }

    service.away.store(true, Ordering::Relaxed);
    let missed = asks("r2");
    for browser in [&own, &other, &anns] {
        told(browser, &missed, 1);
    }
    let gone = json!({"endpoint": own.subscription(&service)["endpoint"]});
    assert_eq!(call(&world, &world.token(), "DELETE", &gone).0, 204);
    std::fs::write(world.dir.path().join("askd.toml"), people(&service, "board", text)).unwrap();
    world.signal(rustix::process::Signal::HUP);
    let is_read = || world.log().contains("reloaded the settings").then_some(());
    within(SOON, "the settings to be read", is_read);
    // The tries of all three are due at the same times, and what begins later comes after them.
    let tried = (told(&own, &missed, 0).len(), told(&anns, &missed, 0).len());
    let later = asks("r3");
    told(&other, &missed, 2);
    service.away.store(false, Ordering::Relaxed);
    told(&other, &missed, 3);
    told(&other, &later, 1);
    is_over(&missed);
    assert_eq!(told(&other, &missed, 4)[3]["over"], true);
    assert_eq!((told(&own, &missed, 0).len(), told(&anns, &missed, 0).len()), tried, "nobody else hears of it again");

    // What Ann's browser shows goes, and says no more. Of what began since then it hears nothing.
    is_over(&shown);
    let end = json!({"ask": shown["id"], "group": "", "over": true});
    assert_eq!(told(&anns, &shown, 2)[1], end);
    assert_eq!(told(&other, &shown, 2)[1]["group"], "writer");
    assert_eq!((told(&own, &shown, 0).len(), told(&anns, &later, 0).len()), (1, 0));
}

/// Whoever waits for a place to leave is looked at once it has one.
#[test]
fn a_notice_that_waits_behind_others_goes_only_to_who_still_hears_of_it() {
    /// How many notices are on their way at a time.
    const AT_ONCE: usize = 16;
    let service = Service::start();
    let world = World::empty().config(&people(&service, "writer", "")).with_binary().started();
    let own = Browser::new("/own");
    signs_up(&world, &world.token(), &own, &service);
    for letter in 'a'..='t' {
        signs_up(&world, ANN, &Browser::new(&format!("/n/{letter}")), &service);
    }
    let anns = || service.sent.lock().unwrap().iter().filter(|push| push.browser.starts_with("/n/")).count();
    service.holds.store(true, Ordering::Relaxed);
    world.group("writer").ask("r1", &choice("Which title?", &["One", "Two"]));
    within(SOON, "the first notices", || (service.sent.lock().unwrap().len() == AT_ONCE).then_some(()));
    std::fs::write(world.dir.path().join("askd.toml"), people(&service, "board", "")).unwrap();
    world.signal(rustix::process::Signal::HUP);
    within(SOON, "the settings to be read", || world.log().contains("reloaded the settings").then_some(()));
    let under_way = anns();
    service.holds.store(false, Ordering::Relaxed);
    // What was asked later is told later.
    service.sent_to(&world, &own, 1);
    world.group("writer").ask("r2", &choice("Which other title?", &["One", "Two"]));
    service.sent_to(&world, &own, 2);
    assert_eq!(anns(), under_way, "Ann does not see the group any more");
}

#[test]
fn a_browser_hears_no_more_when_its_token_was_replaced_or_its_proxy_has_not_named_it_for_weeks() {
    let service = Service::start();
    let config = |operator: &str, ann: &str| {
        format!(
            "[web]\npush_hosts = [\"{}\"]\ntoken = \"{operator}\"\nproxy_header = \"X-Remote-User\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
             people = [{{ name = \"ann\", token = \"{ann}\" }}, {{ name = \"bob\" }}]\n",
            service.host
        )
    };
    let (old, new) = ("leaked-0123456789abcdef", "another-0123456789abcdef");
    let mut world = World::empty().config(&config(old, ANN)).started();
    let [stranger, anns, bobs, own] = ["/stranger", "/ann", "/bob", "/own"].map(Browser::new);
    let by_proxy = |world: &World| {
        let headers = "x-remote-user: bob\r\ncontent-type: application/json\r\n";
        world.raw("POST", "/api/v1/push", headers, &bobs.subscription(&service).to_string()).0
    };
    // How many questions this browser was told of, once there are so many.
    let asked = |world: &World, browser: &Browser, count: usize| {
        world.passing(SOON, "a question", || {
            let sent = service.sent.lock().unwrap();
            let own = sent.iter().filter(|push| push.browser == browser.path);
            let asked = own.filter(|push| browser.reads(push)["over"] == false).count();
            (asked >= count).then_some(asked)
        })
    };
    let known = |world: &World| kept(world)["devices"].as_array().unwrap().len();
    signs_up(&world, old, &stranger, &service);
    signs_up(&world, ANN, &anns, &service);
    assert_eq!(by_proxy(&world), 204);
    world.group("g").ask("r1", &choice("First?", &["a"]));
    for browser in [&stranger, &anns, &bobs] {
        assert_eq!(asked(&world, browser, 1), 1);
    }

    assert_eq!(world.terminate().code(), Some(0));
    let mut world = world.config(&config(new, "ann-another-0123456789"));
    world.start();
    within(SOON, "the asks to be read", || (world.raw("GET", "/readyz", "", "").1 == "ready\n").then_some(()));
    signs_up(&world, new, &own, &service);
    for (request, count) in [("r2", 1), ("r3", 2)] {
        world.group("g").ask(request, &choice("And now?", &["a"]));
        assert_eq!((asked(&world, &own, count), asked(&world, &bobs, count + 1)), (count, count + 1));
    }
    assert_eq!((asked(&world, &stranger, 0), asked(&world, &anns, 0)), (1, 1), "their tokens were replaced");
    world.passing(SOON, "them to be forgotten", || (known(&world) == 2).then_some(()));

    // Each page that is opened renews it.
    let weeks = |weeks: u64| world.hand().advance(Duration::from_secs(weeks * 7 * 24 * 3600));
    weeks(3);
    assert_eq!(by_proxy(&world), 204);
    weeks(3);
    world.group("g").ask("r4", &choice("Still?", &["a"]));
    assert_eq!((asked(&world, &own, 3), asked(&world, &bobs, 4)), (3, 4));
    weeks(2);
    for (request, count) in [("r5", 4), ("r6", 5)] {
        world.group("g").ask(request, &choice("And weeks later?", &["a"]));
        assert_eq!(asked(&world, &own, count), count);
    }
    assert_eq!(asked(&world, &bobs, 0), 4, "no page of his was open for four weeks");
    world.passing(SOON, "it to be forgotten", || (known(&world) == 1).then_some(()));
}

#[test]
fn a_clock_that_is_set_back_holds_up_no_notice() {
    let service = Service::start();
    let world = with_people(&service, "");
    let own = Browser::new("/own");
    signs_up(&world, &world.token(), &own, &service);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let back = now.checked_sub(Duration::from_secs(3600)).unwrap();
    world.hand().set(askd_core::Time::from_millis(i64::try_from(back.as_millis()).unwrap()));
    world.group("g").ask("r1", &choice("Which title?", &["One", "Two"]));
    let ask = world.open_of("r1");
    assert_eq!(own.reads(&service.sent_to(&world, &own, 1)[0]), json!({"ask": ask["id"], "group": "g", "over": false}));
    assert_eq!(world.answer(&ask, &json!({"r1_0": "One"})).0, 200);
    assert_eq!(own.reads(&service.sent_to(&world, &own, 2)[1])["over"], true);
}

#[test]
fn no_browser_makes_askd_call_into_its_own_network() {
    let service = Service::start();
    let world = with_people(&service, "");
    let good = Browser::new("/own").subscription(&service);
    for endpoint in [
        "http://127.0.0.1:8484/api/v1/asks",
        "https://127.0.0.1/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest",
        "https://[::1]/",
        "http://push.example/",
        "https://2130706433/",
        "file:///etc/passwd",
        "",
        "https://a:b@push.example/",
    ] {
        let mut subscription = good.clone();
        subscription["endpoint"] = json!(endpoint);
        assert_eq!(call(&world, &world.token(), "POST", &subscription).0, 422, "{endpoint}");
    }
    for keys in [json!({"p256dh": "AAAA", "auth": "AAAA"}), json!({"p256dh": "", "auth": ""})] {
        let mut subscription = good.clone();
        subscription["keys"] = keys;
        assert_eq!(call(&world, &world.token(), "POST", &subscription).0, 422);
    }
    assert_eq!(call(&world, "nobody-0123456789", "POST", &good).0, 401);
    assert_eq!(call(&world, &world.token(), "POST", &json!({"endpoint": 1})).0, 422);

    // A name that leads there is found out when it is looked up.
    let named = format!("https://localhost:{}/own", service.host.rsplit_once(':').unwrap().1);
    let mut subscription = good;
    subscription["endpoint"] = json!(named);
    assert_eq!(call(&world, &world.token(), "POST", &subscription).0, 204);
    world.group("g").ask("r1", &choice("Which?", &["a"]));
    world.passing(SOON * 4, "it to be given up", || world.log().contains("cannot be told").then_some(()));
    assert!(world.log().contains("leads to a private address"), "{}", world.log());
    assert!(service.sent.lock().unwrap().is_empty());

    let off = with_people(&service, "push = \"off\"\n");
    assert_eq!(off.call("GET", "/me", None).1["push_key"], Value::Null);
    assert_eq!(call(&off, &off.token(), "POST", &Browser::new("/own").subscription(&service)).0, 422);
}
