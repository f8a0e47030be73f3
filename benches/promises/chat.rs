//! A stand-in of Slack that is cheap enough to measure beside: it notes when a call was there as a whole, and says yes.
//! It checks nothing (`crates/sim` does). Each card and each request carry the number of their ask.

use crate::load::{Received, receive};
use std::collections::HashMap;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// The number of an ask, in texts and in names of files.
pub(crate) fn marker(number: u64) -> String {
    format!("Q{number:09}Q")
}

/// The first marker in these bytes.
pub(crate) fn number_in(bytes: &[u8]) -> Option<u64> {
    let digits =
        |window: &&[u8]| window[0] == b'Q' && window[10] == b'Q' && window[1..10].iter().all(u8::is_ascii_digit);
    let found = bytes.windows(11).find(digits)?;
    std::str::from_utf8(&found[1..10]).ok()?.parse().ok()
}

/// Slack's id of the card of that ask.
pub(crate) fn ts(number: u64) -> String {
    format!("1700{:06}.{:06}", number / 1_000_000, number % 1_000_000)
}

/// The ask whose card has this id.
pub(crate) fn number_of_ts(ts: &str) -> Option<u64> {
    let (seconds, micros) = ts.split_once('.')?;
    let millions: u64 = seconds.strip_prefix("1700")?.parse().ok()?;
    Some(millions * 1_000_000 + micros.parse::<u64>().ok()?)
}

#[derive(Default)]
struct Seen {
    posts: Vec<(u64, Instant)>,
    updates: HashMap<u64, Instant>,
    /// The last card, as it was posted.
    last_post: Vec<u8>,
}

/// The stand-in. It ends with the process.
pub(crate) struct Chat {
    pub(crate) url: String,
    seen: Mutex<Seen>,
    changed: Condvar,
    /// How long each call takes, in milliseconds.
    pub(crate) delay: AtomicU64,
}

impl Chat {
    pub(crate) fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/api", listener.local_addr().unwrap());
        let chat = Arc::new(Self { url, seen: Mutex::default(), changed: Condvar::new(), delay: AtomicU64::new(0) });
        let server = Arc::clone(&chat);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (chat, stream) = (Arc::clone(&server), stream.unwrap());
                std::thread::spawn(move || chat.serve(stream));
            }
        });
        chat
    }

    fn serve(&self, mut stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let mut left = Vec::new();
        while let Ok(Received { head, body }) = receive(&mut stream, &mut left) {
            let at = Instant::now();
            let method = head.split([' ', '?']).nth(1).and_then(|path| path.rsplit('/').next()).unwrap_or_default();
            let delay = self.delay.load(Ordering::Relaxed);
            if delay > 0 {
                std::thread::sleep(Duration::from_millis(delay));
            }
            let answer = self.answer(method, body, at);
            let reply = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
                answer.len()
            );
            if stream.write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn answer(&self, method: &str, body: Vec<u8>, at: Instant) -> String {
        match method {
            "chat.postMessage" => {
                let number = number_in(&body).unwrap_or_default();
                let mut seen = self.seen.lock().unwrap();
                seen.posts.push((number, at));
                seen.last_post = body;
                drop(seen);
                self.changed.notify_all();
                format!(r#"{{"ok":true,"channel":"C000000","ts":"{}","message":{{}}}}"#, ts(number))
            }
            "chat.update" => {
                let text = String::from_utf8_lossy(&body);
                // A form (Bolt) or JSON.
                let id = text.split_once("ts\":\"").or_else(|| text.split_once("ts=")).map(|(_, rest)| &rest[..17]);
                if let Some(number) = id.and_then(number_of_ts) {
                    self.seen.lock().unwrap().updates.insert(number, at);
                    self.changed.notify_all();
                }
                format!(r#"{{"ok":true,"channel":"C000000","ts":"{}","text":""}}"#, id.unwrap_or_default())
            }
            "auth.test" => {
                r#"{"ok":true,"team_id":"T0BENCH","team":"bench","user":"askd","user_id":"U0BOT","bot_id":"B0BOT"}"#
                    .into()
            }
            "conversations.history" | "conversations.replies" => r#"{"ok":true,"messages":[],"has_more":false}"#.into(),
            _ => r#"{"ok":true}"#.into(),
        }
    }

    /// How many posts there were so far.
    pub(crate) fn posts(&self) -> usize {
        self.seen.lock().unwrap().posts.len()
    }

    /// The posts from this one on.
    pub(crate) fn posts_from(&self, first: usize) -> Vec<(u64, Instant)> {
        self.seen.lock().unwrap().posts[first..].to_vec()
    }

    pub(crate) fn last_post(&self) -> Vec<u8> {
        self.seen.lock().unwrap().last_post.clone()
    }

    /// Waits until there are so many posts; `false` if that takes too long.
    pub(crate) fn wait_for_posts(&self, count: usize, at_most: Duration) -> bool {
        let seen = self.seen.lock().unwrap();
        !self.changed.wait_timeout_while(seen, at_most, |seen| seen.posts.len() < count).unwrap().1.timed_out()
    }

    /// Waits until all these cards were updated; how many were not.
    pub(crate) fn wait_for_updates(&self, numbers: &[u64], at_most: Duration) -> usize {
        let until = Instant::now() + at_most;
        loop {
            let seen = self.seen.lock().unwrap();
            let missing = numbers.iter().filter(|number| !seen.updates.contains_key(number)).count();
            drop(seen);
            if missing == 0 || Instant::now() > until {
                return missing;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
