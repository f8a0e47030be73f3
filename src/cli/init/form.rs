//! The questions of `askd init`: a flag answers one, else a person at the terminal does, until the answer fits.

use crate::cli::{Exit, FAILED, USAGE, complain};
use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::io::{IsTerminal as _, Write as _};
use tokio_util::sync::CancellationToken;

/// How often a question looks whether the person has pressed Ctrl-C.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Who answers.
#[derive(Debug)]
pub(super) struct Form {
    /// Whether a person is there.
    pub(super) terminal: bool,
    stop: CancellationToken,
}

/// One question.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Field<'a> {
    /// The flag that answers it.
    pub(super) flag: &'a str,
    pub(super) question: &'a str,
    /// What nothing typed means.
    pub(super) usual: Option<&'a str>,
    /// Nobody sees what is typed.
    pub(super) secret: bool,
}

impl Form {
    /// Its questions end when it is told to `stop`.
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { terminal: std::io::stdin().is_terminal(), stop }
    }

    /// What the flag says, else what a person types, read until it fits.
    pub(super) fn ask<T>(
        &self,
        field: Field<'_>,
        given: Option<&str>,
        mut read: impl FnMut(&str) -> Result<T, String>,
    ) -> Result<T, Exit> {
        let Field { flag, question, usual, .. } = field;
        match given.or(usual.filter(|_| !self.terminal)) {
            Some(given) => read(given).map_err(|why| Exit::new(USAGE, format!("{flag}: {why}"))),
            None if !self.terminal => Err(Exit::new(USAGE, format!("{flag} is missing: {question}"))),
            None => loop {
                match read(&typed(field, &self.stop)?) {
                    Ok(value) => return Ok(value),
                    Err(why) => complain(&why),
                }
            },
        }
    }

    /// One of these, by its number or name.
    pub(super) fn choose(&self, field: Field<'_>, given: Option<&str>, from: &[(&str, &str)]) -> Result<String, Exit> {
        let list = (1..)
            .zip(from)
            .map(|(number, (name, told))| format!("\n  {number}. {name}: {told}"))
            .collect::<Vec<_>>()
            .concat();
        let question = format!("{}{list}\nNumber or name", field.question);
        self.ask(Field { question: &question, ..field }, given, |text| {
            let by_number = text.parse::<usize>().ok().and_then(|number| from.get(number.checked_sub(1)?));
            let found = by_number.or_else(|| from.iter().find(|(name, _)| *name == text));
            let names = || from.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            found.map(|(name, _)| (*name).to_owned()).ok_or_else(|| format!("{text:?} is none of {}", names()))
        })
    }
}

/// A line that a person types.
fn typed(field: Field<'_>, stop: &CancellationToken) -> Result<String, Exit> {
    let usual = field.usual.map(|usual| format!(" [{usual}]")).unwrap_or_default();
    let mut out = std::io::stdout();
    write!(out, "{}{usual}: ", field.question).and_then(|()| out.flush()).context("cannot ask")?;
    let read = if field.secret { unseen(stop) } else { line(stop) };
    let Some(line) = read.context("cannot read what was typed")? else {
        return Err(Exit::new(FAILED, "interrupted; what was set up so far is kept"));
    };
    if line.is_empty() {
        return Err(Exit::new(FAILED, "no more input; what was set up so far is kept"));
    }
    Ok(Some(line.trim()).filter(|line| !line.is_empty()).or(field.usual).unwrap_or_default().to_owned())
}

/// A line, with its end; nothing but an empty text at the end of input, and `None` if it is told to stop. A terminal gives one line
/// at a time, so none waits in a buffer, where this would not see it.
fn line(stop: &CancellationToken) -> std::io::Result<Option<String>> {
    let stdin = std::io::stdin();
    loop {
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&LOOK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) if stop.is_cancelled() => return Ok(None),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let mut line = String::new();
    stdin.read_line(&mut line).map(|_bytes| Some(line))
}

/// A line that the terminal does not show.
fn unseen(stop: &CancellationToken) -> std::io::Result<Option<String>> {
    let stdin = std::io::stdin();
    let shown = tcgetattr(&stdin)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Now, &hidden)?;
    let read = line(stop);
    tcsetattr(&stdin, OptionalActions::Now, &shown)?;
    writeln!(std::io::stdout())?;
    read
}
