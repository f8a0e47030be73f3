//! The questions of `askd init`: a flag answers one, else a person at the terminal does, until the answer fits.

use crate::cli::{Exit, FAILED, USAGE, complain};
use anyhow::Context as _;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::io::{IsTerminal as _, Write as _};

/// Who answers.
#[derive(Debug)]
pub(super) struct Form {
    terminal: bool,
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
    pub(super) fn new() -> Self {
        Self { terminal: std::io::stdin().is_terminal() }
    }

    /// Whether a person is there.
    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
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
                match read(&typed(field)?) {
                    Ok(value) => return Ok(value),
                    Err(why) => complain(&why),
                }
            },
        }
    }

    /// One of these, by its number or name.
    pub(super) fn choose(&self, field: Field<'_>, given: Option<&str>, from: &[(&str, &str)]) -> Result<String, Exit> {
        let list =
            (1..).zip(from).map(|(number, (_, told))| format!("\n  {number}. {told}")).collect::<Vec<_>>().concat();
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
fn typed(field: Field<'_>) -> Result<String, Exit> {
    let usual = field.usual.map(|usual| format!(" [{usual}]")).unwrap_or_default();
    let mut out = std::io::stdout();
    write!(out, "{}{usual}: ", field.question).and_then(|()| out.flush()).context("cannot ask")?;
    let mut line = String::new();
    let read = if field.secret { unseen(&mut line) } else { std::io::stdin().read_line(&mut line) };
    if read.context("cannot read what was typed")? == 0 {
        return Err(Exit::new(FAILED, "no more input; what was set up so far is kept"));
    }
    Ok(Some(line.trim()).filter(|line| !line.is_empty()).or(field.usual).unwrap_or_default().to_owned())
}

/// Reads a line that the terminal does not show.
fn unseen(line: &mut String) -> std::io::Result<usize> {
    let stdin = std::io::stdin();
    let shown = tcgetattr(&stdin)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Now, &hidden)?;
    let read = stdin.read_line(line);
    tcsetattr(&stdin, OptionalActions::Now, &shown)?;
    writeln!(std::io::stdout())?;
    read
}
