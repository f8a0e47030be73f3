//! People who click: signed webhooks over kept connections, in a closed loop (each connection sends its next click when
//! the last one was answered) or an open one (clicks at a fixed rate, whatever the answers do; a stall counts in full).

use crate::chat::{marker, ts};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

pub(crate) const SIGNING_SECRET: &str = "bench-signing-secret";
const PATIENCE: Duration = Duration::from_secs(30);

/// A message of HTTP/1.1.
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// Reads one message. What came after it stays in `left`.
pub(crate) fn receive(stream: &mut TcpStream, left: &mut Vec<u8>) -> io::Result<Received> {
    let mut more = |left: &mut Vec<u8>| {
        let mut chunk = [0; 16 * 1024];
        match stream.read(&mut chunk)? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            read => {
                left.extend_from_slice(&chunk[..read]);
                Ok(())
            }
        }
    };
    let end = loop {
        if let Some(end) = left.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        more(left)?;
    };
    let head = String::from_utf8_lossy(&left[..end]).into_owned();
    left.drain(..end);
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    };
    if let Some(length) = field("content-length") {
        let length: usize = length.parse().map_err(io::Error::other)?;
        while left.len() < length {
            more(left)?;
        }
        return Ok(Received { head, body: left.drain(..length).collect() });
    }
    let mut body = Vec::new();
    if field("transfer-encoding").is_some() {
        loop {
            let end = loop {
                if let Some(end) = left.windows(2).position(|window| window == b"\r\n") {
                    break end;
                }
                more(left)?;
            };
            let size = usize::from_str_radix(&String::from_utf8_lossy(&left[..end]), 16).map_err(io::Error::other)?;
            while left.len() < end + 4 + size {
                more(left)?;
            }
            body.extend_from_slice(&left[end + 2..end + 2 + size]);
            left.drain(..end + 4 + size);
            if size == 0 {
                break;
            }
        }
    }
    Ok(Received { head, body })
}

/// A kept connection.
pub(crate) struct Connection {
    port: u16,
    stream: Option<TcpStream>,
    left: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(port: u16) -> Self {
        Self { port, stream: None, left: Vec::new() }
    }

    pub(crate) fn open(&mut self) -> io::Result<()> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            self.stream = Some(stream);
            self.left.clear();
        }
        Ok(())
    }

    /// Sends a request; the status and the body of the response. A server may close a connection that was idle: then it
    /// is sent once more over a new one.
    pub(crate) fn call(&mut self, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        let fresh = self.stream.is_none();
        let tried = self.try_call(request);
        if tried.is_err() {
            self.stream = None;
            if !fresh {
                return self.try_call(request);
            }
        }
        tried
    }

    fn try_call(&mut self, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        self.open()?;
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        stream.write_all(request)?;
        let Received { head, body } = receive(stream, &mut self.left)?;
        if head.to_ascii_lowercase().contains("connection: close") {
            self.stream = None;
        }
        Ok((head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), body))
    }
}

/// What a button of askd sends, as it stands in the card of ask 0 in group 0.
#[derive(Clone)]
pub(crate) struct Button {
    pub(crate) block_id: String,
    pub(crate) action_id: String,
    pub(crate) value: String,
}

/// A click, ready to send.
pub(crate) struct Click {
    pub(crate) number: u64,
    pub(crate) request: Vec<u8>,
}

fn percent(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(*byte),
            _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
}

pub(crate) fn signature(timestamp: u64, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SIGNING_SECRET.as_bytes()).unwrap();
    mac.update(format!("v0:{timestamp}:").as_bytes());
    mac.update(body);
    format!("v0={}", hex::encode(mac.finalize().into_bytes()))
}

/// A click on the first button of a card, as Slack sends it: some 5 KB.
pub(crate) fn click(number: u64, group: usize, button: &Button, port: u16, genuine: bool) -> Click {
    let (chat, ts) = (format!("C{group:06}"), ts(number));
    let section = |text: &str| json!({"type": "section", "block_id": "x1Yz", "text": {"type": "mrkdwn", "text": text}});
    let payload = json!({
        "type": "block_actions",
        "user": {"id": "U0ALICE", "username": "alice", "name": "alice", "team_id": "T0BENCH"},
        "api_app_id": "A0BENCH", "token": "bench",
        "container": {"type": "message", "message_ts": ts, "channel_id": chat, "is_ephemeral": false},
        "trigger_id": format!("{number}.1.bench"),
        "team": {"id": "T0BENCH", "domain": "bench"}, "enterprise": null, "is_enterprise_install": false,
        "channel": {"id": chat, "name": "agents"},
        "message": {
            "user": "U0BOT", "type": "message", "ts": ts, "bot_id": "B0BOT", "app_id": "A0BENCH", "team": "T0BENCH",
            "text": format!("asks: Deploy {} now?", marker(number)),
            "blocks": [section("*asks* until tomorrow"), section("Release"), section(&"All tests pass. ".repeat(60)),
                section(&format!("Deploy {} now?\n1. yes - roll it out\n2. no", marker(number)))],
        },
        "state": {"values": {format!("{}t", button.block_id): {"text:0": {"type": "plain_text_input", "value": null}}}},
        "response_url": "https://hooks.slack.com/actions/T0BENCH/1/abcdefghijklmnopqrstuvwx",
        "actions": [{"action_id": button.action_id, "block_id": button.block_id, "value": button.value,
            "text": {"type": "plain_text", "text": "1. yes", "emoji": true}, "type": "button", "action_ts": ts}],
    });
    let mut body = b"payload=".to_vec();
    percent(payload.to_string().as_bytes(), &mut body);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let mut signature = signature(now, &body);
    if !genuine {
        let last = signature.pop();
        signature.push(if last == Some('0') { '1' } else { '0' });
    }
    let head = format!(
        "POST /slack/interactions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: */*\r\nUser-Agent: Slackbot 1.0\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nX-Slack-Request-Timestamp: {now}\r\n\
         X-Slack-Signature: {signature}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    Click { number, request: [head.into_bytes(), body].concat() }
}

/// Sorted times, and what is read off them.
#[derive(Clone, Default)]
pub(crate) struct Times(Vec<f64>);

impl Times {
    /// Of seconds.
    pub(crate) fn new(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        Self(seconds)
    }

    pub(crate) fn at(&self, share: f64) -> f64 {
        if self.0.is_empty() {
            return f64::NAN;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index"
        )]
        let index = (self.0.len() as f64 * share) as usize;
        self.0[index.min(self.0.len() - 1)]
    }

    pub(crate) fn p50(&self) -> f64 {
        self.at(0.5)
    }

    pub(crate) fn p99(&self) -> f64 {
        self.at(0.99)
    }

    pub(crate) fn max(&self) -> f64 {
        self.at(1.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// What came of many clicks.
pub(crate) struct Burst {
    pub(crate) took: Duration,
    /// From the sending (in an open loop: from when it should have been sent) to the 200, of each.
    pub(crate) times: Times,
    /// Statuses that were not 200, and broken connections as 0.
    pub(crate) errors: HashMap<u16, usize>,
}

impl Burst {
    #[expect(clippy::cast_precision_loss, reason = "a count of clicks")]
    pub(crate) fn rate(&self) -> f64 {
        self.times.len() as f64 / self.took.as_secs_f64()
    }

    pub(crate) fn failed(&self) -> usize {
        self.errors.values().sum()
    }
}

/// Sends all clicks over so many connections, in a closed loop.
pub(crate) fn burst(port: u16, connections: usize, clicks: &[Click]) -> Burst {
    send(port, connections, clicks.len(), None, 200, &|index| Cow::Borrowed(&clicks[index].request))
}

/// Sends requests that are made when they are due. With a rate the loop is open.
pub(crate) fn send<'a>(
    port: u16,
    connections: usize,
    count: usize,
    rate: Option<f64>,
    right: u16,
    make: &(dyn Fn(usize) -> Cow<'a, [u8]> + Sync),
) -> Burst {
    let mut open: Vec<Connection> = (0..connections).map(|_| Connection::new(port)).collect();
    for connection in &mut open {
        connection.open().unwrap();
    }
    let next = AtomicUsize::new(0);
    let (times, errors) = (Mutex::new(Vec::with_capacity(count)), Mutex::new(HashMap::new()));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for mut connection in open {
            let (next, times, errors) = (&next, &times, &errors);
            let work = move || {
                let mut own = Vec::new();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let request = make(index);
                    let mut from = Instant::now();
                    if let Some(rate) = rate {
                        #[expect(clippy::cast_precision_loss, reason = "a count of clicks")]
                        let due = begun + Duration::from_secs_f64(index as f64 / rate);
                        std::thread::sleep(due.saturating_duration_since(from));
                        from = due;
                    }
                    let status = connection.call(&request).map_or(0, |(status, _)| status);
                    if status == right {
                        own.push(from.elapsed().as_secs_f64());
                    } else {
                        *errors.lock().unwrap().entry(status).or_default() += 1;
                    }
                }
                times.lock().unwrap().extend(own);
            };
            std::thread::Builder::new().stack_size(256 * 1024).spawn_scoped(scope, work).unwrap();
        }
    });
    let took = begun.elapsed();
    Burst { took, times: Times::new(times.into_inner().unwrap()), errors: errors.into_inner().unwrap() }
}

/// A plain GET, with the token of the inbox.
pub(crate) fn get(port: u16, path: &str, token: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n").into_bytes()
}
