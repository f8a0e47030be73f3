//! The agents' terminal: each line is printed, and kept for the tour page.

use crate::clock::{Clock, Moment};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// What a line tells the tour page.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// An agent asks.
    Asks,
    /// An agent has got its answer.
    Got,
    /// An agent was killed.
    Lost,
    /// Anything else.
    Note,
}

/// Where people are asked.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Place {
    Inbox,
    Slack,
    Phone,
}

/// A line of the terminal.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Line {
    /// Minutes and seconds since the demo began.
    after: String,
    who: String,
    what: String,
    kind: Kind,
    place: Option<Place>,
}

/// Where the agents' side can be read.
pub(super) struct Terminal {
    print: Box<dyn Fn(&str) + Send + Sync>,
    lines: Mutex<Vec<Line>>,
    clock: Clock,
    began: Moment,
}

impl Terminal {
    pub(super) fn new(print: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let clock = Clock::system();
        Self { print: Box::new(print), lines: Mutex::default(), began: clock.monotonic(), clock }
    }

    /// A line for this terminal alone.
    pub(super) fn print(&self, line: &str) {
        (self.print)(line);
    }

    /// Somebody did something, in one of the places or in none.
    pub(super) fn tell(&self, who: &str, what: &str, kind: Kind, place: Option<Place>) {
        let seconds = self.clock.monotonic().since(self.began).as_secs();
        let after = format!("{:02}:{:02}", seconds / 60, seconds % 60);
        for (number, part) in what.lines().enumerate() {
            let (after, who) = if number == 0 { (after.as_str(), who) } else { ("", "") };
            self.print(&format!("{after:<5}  {who:<11}  {part}"));
        }
        self.lines.lock().push(Line { after, who: who.to_owned(), what: what.to_owned(), kind, place });
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        self.lines.lock().clone()
    }
}
