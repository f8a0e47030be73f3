//! Why a request cannot become an ask. It is told to the agent, in the response file, so every
//! variant carries what a model needs to mend the call; the sentences are in [`super::wording`].

use super::wording;
use std::fmt;

/// A request that cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// `questions` is missing or empty.
    NoQuestions,
    /// A text or list is longer than it may be.
    TooLong {
        /// Where, such as `questions[0].options[2].label`.
        field: String,
        /// How much is allowed.
        limit: usize,
        /// How much there is.
        size: usize,
        /// What is counted: `characters` or `entries`.
        unit: &'static str,
    },
    /// A text that must say something is missing or blank.
    Empty {
        /// Where.
        field: String,
    },
    /// A number outside its range.
    OutOfRange {
        /// Where.
        field: &'static str,
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
        /// What it was.
        value: i64,
    },
    /// Two entries that have to differ do not.
    Duplicate {
        /// Where the second one is.
        field: String,
        /// Where the first one is.
        first: String,
    },
    /// A value that does not go with the rest; `why` says what would.
    Wrong {
        /// Where.
        field: String,
        /// What is wrong with it and what to write instead.
        why: String,
    },
    /// The file is not the JSON it should be; `why` is the parser's word with line and column.
    Malformed {
        /// What the parser said.
        why: String,
    },
    /// Nothing serves this group.
    UnknownGroup {
        /// The group's folder name.
        group: String,
    },
    /// Another host serves the group's folder.
    ServedElsewhere {
        /// The group.
        group: String,
        /// That host.
        host: String,
    },
    /// Too many are open, or were asked within the hour.
    RateLimited {
        /// The group's folder name.
        group: String,
        /// What is counted.
        kind: Limited,
        /// How many there may be.
        limit: u32,
    },
    /// Too many calls wait for the same question.
    TooManyWait {
        /// How many may.
        limit: usize,
    },
    /// askd had accepted the question and then failed at it.
    SetAside,
}

/// What is limited for each group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// The questions that are open.
    Open,
    /// Those that were asked within the last hour.
    Hourly,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&wording::rejection(self))
    }
}

impl std::error::Error for Rejection {}
