//! How `askd list` and `askd show` look. On a terminal lines are cut or wrapped to its width and coloured; elsewhere
//! they are whole and plain, so that other programs can search them. Called by `asks`.

use askd_core::{Time, printable};
use serde_json::Value;
use std::io::IsTerminal as _;
use std::time::Duration;

/// The width of a terminal that does not tell it.
const USUAL_WIDTH: usize = 80;
/// The longest name of a group that is printed whole on a terminal.
const LONGEST_NAME: usize = 16;
/// Time left that is worth a colour.
const SOON: Duration = Duration::from_secs(5 * 60);

/// Begins each line of the agent's, so that none of them can pose as askd's own.
const AGENTS: &str = "| ";
const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";

pub(super) fn time_from(text: &str) -> Option<Time> {
    text.parse().ok()
}

/// What standard output can show.
pub(super) struct Look {
    /// `None`: no terminal.
    width: Option<usize>,
    colour: bool,
}

impl Look {
    pub(super) fn of_stdout() -> Self {
        let output = std::io::stdout();
        let width = output.is_terminal().then(|| {
            let size = rustix::termios::tcgetwinsize(&output).map_or(0, |size| usize::from(size.ws_col));
            if size == 0 { USUAL_WIDTH } else { size }
        });
        let colour = width.is_some() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { width, colour }
    }

    fn paint(&self, style: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A line that people must not miss.
    pub(super) fn alarm(&self, line: &str) -> String {
        self.paint(RED, line)
    }

    /// A table under its head, each column as wide as it has to be.
    pub(super) fn table<const N: usize>(&self, head: [&str; N], rows: Vec<[String; N]>) -> Vec<String> {
        let all = std::iter::once(head.map(str::to_owned)).chain(rows);
        let all: Vec<[String; N]> = all.map(|row| row.map(|cell| printable(&cell))).collect();
        let widths: [usize; N] = std::array::from_fn(|at| all.iter().map(|row| length(&row[at])).max().unwrap_or(0));
        let line = |row: &[String; N]| {
            let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            let line = cells.join("  ").trim_end().to_owned();
            self.width.map_or(line.clone(), |width| cut(&line, width))
        };
        let mut lines: Vec<String> = all.iter().map(line).collect();
        lines[0] = self.paint(DIM, &lines[0]);
        lines
    }

    /// For a file or another program.
    #[cfg(test)]
    pub(super) fn plain() -> Self {
        Self { width: None, colour: false }
    }

    /// The table of `askd list`.
    pub(super) fn list(&self, asks: &[Value], settled: bool, now: Time) -> String {
        let head = if settled {
            ["CODE", "AGENT", "CLOSED", "WHERE", "OUTCOME · QUESTION"]
        } else {
            ["CODE", "AGENT", "LEFT", "WHERE", "QUESTION"]
        };
        let rows: Vec<[String; 5]> = asks.iter().map(|ask| self.cells(ask, now)).collect();
        let widths: [usize; 4] = std::array::from_fn(|column| {
            rows.iter().map(|row| length(&row[column])).fold(length(head[column]), usize::max)
        });
        let mut lines = vec![self.paint(DIM, &self.row(&head.map(str::to_owned), widths, false))];
        for (ask, row) in asks.iter().zip(&rows) {
            let soon = time_from(text(ask, "answer_by")).is_some_and(|end| end.since(now) < SOON);
            lines.push(self.row(row, widths, soon && ask["outcome"].is_null()));
        }
        if let (Some(_), [first, ..]) = (self.width, asks) {
            let code = text(first, "short_id");
            let answer = if takes_a_number(first) { format!(" · askd answer {code} 1") } else { String::new() };
            let what = if settled { "closed" } else { "open" };
            lines.push(self.paint(DIM, &format!("{} {what}.  askd show {code}{answer}", asks.len())));
        }
        lines.join("\n")
    }

    fn cells(&self, ask: &Value, now: Time) -> [String; 5] {
        let more = ask["questions"].as_array().map_or(0, Vec::len).saturating_sub(1);
        let mut question = printable(text(&ask["questions"][0], "question"));
        if more > 0 {
            question = format!("{question} (and {more} more)");
        }
        let time = match &ask["outcome"] {
            Value::Null => time_from(text(ask, "answer_by")).map_or("posting".to_owned(), |end| short(end.since(now))),
            outcome => ago(outcome, now),
        };
        if let Value::Object(outcome) = &ask["outcome"] {
            let late = time_from(text(ask, "late_until")).map(|end| format!(", {} left", short(end.since(now))));
            let line = printable(outcome["line"].as_str().unwrap_or_default());
            question = format!("{line}{} · {question}", late.unwrap_or_default());
        }
        let group = text(ask, "group");
        let group = if self.width.is_some() { cut(group, LONGEST_NAME) } else { group.to_owned() };
        [text(ask, "short_id").to_owned(), group, time, place(ask), question]
    }

    fn row(&self, cells: &[String; 5], widths: [usize; 4], soon: bool) -> String {
        let mut line = String::new();
        for (column, width) in widths.into_iter().enumerate() {
            let cell = format!("{:<width$}", cells[column]);
            line += &if soon && column == 2 { self.paint(RED, &cell) } else { cell };
            line += "  ";
        }
        let taken: usize = widths.iter().map(|width| width + 2).sum();
        let last = self.width.map(|all| cut(&cells[4], all.saturating_sub(taken).max(10)));
        line + last.as_ref().unwrap_or(&cells[4])
    }

    /// All of one ask, for `askd show`.
    pub(super) fn show(&self, ask: &Value, now: Time) -> String {
        let code = text(ask, "short_id");
        let open = ask["outcome"].is_null();
        let state = match (open, time_from(text(ask, "answer_by"))) {
            (false, _) => "closed".to_owned(),
            (true, Some(end)) => format!("{} left", short(end.since(now))),
            (true, None) => "not shown anywhere yet".to_owned(),
        };
        let head = format!("{code}  {}  {}  {state}", text(ask, "group"), place(ask));
        let mut lines = vec![self.paint(BOLD, &head)];
        lines.extend(self.paragraph(DIM, "", text(ask, "cause_line")));
        lines.extend(ending(ask, now));
        for (style, field) in [(BOLD, "title"), ("", "context")] {
            lines.extend(self.paragraph(style, AGENTS, text(ask, field)));
        }
        let questions = ask["questions"].as_array().map_or(&[][..], Vec::as_slice);
        for question in questions {
            lines.push(String::new());
            lines.extend(self.question(question, questions.len() > 1));
        }
        lines.push(String::new());
        if open && takes_a_number(ask) {
            lines.push(self.paint(DIM, &format!("Answer it:  askd answer {code} 1")));
        }
        if ask["block"].is_object() && ask["block"]["allowed_again"].is_null() {
            lines.push(self.paint(DIM, &format!("Allow it:   askd reset {code}")));
        }
        lines.push(self.paint(DIM, &format!("Id:         {}", text(ask, "id"))));
        lines.join("\n")
    }

    fn question(&self, question: &Value, of_several: bool) -> Vec<String> {
        let mut lines = self.paragraph(BOLD, AGENTS, text(question, "question"));
        let options = question["options"].as_array().map_or(&[][..], Vec::as_slice);
        for (number, option) in options.iter().enumerate() {
            let description = option["description"].as_str().map(|text| format!(" - {text}"));
            let option = format!("{}{}", text(option, "label"), description.unwrap_or_default());
            lines.extend(self.wrapped(&format!("  {}. ", number + 1), &option));
        }
        let mut hints = Vec::new();
        if question["type"] == "multi-select" {
            hints.push("pick one or more");
        }
        if options.is_empty() {
            hints.push("answer in your own words");
        } else if question["custom"] == true {
            hints.push("or in your own words: --text");
        }
        if question["required"] == false {
            hints.push("optional");
        }
        let name = of_several.then(|| format!("-q {}=...", text(question, "id")));
        let hint = name.as_deref().into_iter().chain(hints).collect::<Vec<_>>().join("; ");
        if !hint.is_empty() {
            lines.push(self.paint(DIM, &format!("  ({})", printable(&hint))));
        }
        lines
    }

    /// `mark`: what each line begins with.
    fn paragraph(&self, style: &str, mark: &str, value: &str) -> Vec<String> {
        let lines = value.lines().flat_map(|line| self.wrapped_after(mark, mark, line));
        lines.map(|line| if style.is_empty() { line } else { self.paint(style, &line) }).collect()
    }

    /// A line in as many as it needs; the second and further ones are indented as the first one's text.
    fn wrapped(&self, lead: &str, line: &str) -> Vec<String> {
        self.wrapped_after(lead, &" ".repeat(length(lead)), line)
    }

    /// The same; `next`: what the second and further ones begin with.
    fn wrapped_after(&self, lead: &str, next: &str, line: &str) -> Vec<String> {
        let line = printable(line);
        let Some(width) = self.width else { return vec![format!("{lead}{line}")] };
        let mut lines = vec![lead.to_owned()];
        let mut empty = true;
        for word in line.split(' ') {
            let last = lines.last().map_or(0, |last| length(last));
            if !empty && last + 1 + length(word) > width {
                lines.push(next.to_owned());
                empty = true;
            }
            if let Some(last) = lines.last_mut() {
                *last += if empty { "" } else { " " };
                *last += word;
            }
            empty = false;
        }
        lines
    }
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// How it ended and when, and what became of that since.
fn ending(ask: &Value, now: Time) -> Vec<String> {
    let outcome = &ask["outcome"];
    if outcome.is_null() {
        return Vec::new();
    }
    let line = printable(text(outcome, "line"));
    let mut lines = match ask["late_answer"].as_object() {
        Some(_) => {
            vec![format!("Timed out ({})", ago(outcome, now)), format!("{line} ({})", ago(&ask["late_answer"], now))]
        }
        None => vec![format!("{line} ({})", ago(outcome, now))],
    };
    // The closing line may say the same.
    if let Some(note) = ask["note"].as_str().filter(|note| *note != line) {
        lines.push(printable(note));
    }
    if let Some(until) = time_from(text(ask, "late_until")) {
        lines.push(format!("{} left for a late answer", short(until.since(now))));
    }
    lines
}

/// Where people are asked.
fn place(ask: &Value) -> String {
    match text(ask, "channel") {
        "web" => "inbox".to_owned(),
        "slack" => "Slack".to_owned(),
        "whatsapp" => "WhatsApp".to_owned(),
        other => printable(other),
    }
}

/// Whether `askd answer ID 1` answers it.
fn takes_a_number(ask: &Value) -> bool {
    let questions = ask["questions"].as_array().map_or(&[][..], Vec::as_slice);
    matches!(questions, [only] if only["options"].as_array().is_some_and(|options| !options.is_empty()))
}

fn ago(value: &Value, now: Time) -> String {
    time_from(text(value, "at")).map_or_else(String::new, |at| format!("{} ago", short(now.since(at))))
}

/// At most two units: the seconds of an hour do not matter.
pub(super) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let rounded = match seconds {
        0..300 => seconds,
        300..86_400 => seconds / 60 * 60,
        _ => seconds / 3600 * 3600,
    };
    let text = humantime::format_duration(Duration::from_secs(rounded)).to_string();
    text.replace("days", "d").replace("day", "d")
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// At most so many characters, with a mark where some are missing.
fn cut(text: &str, most: usize) -> String {
    if length(text) <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asks() -> Vec<Value> {
        let ask = |code: &str, group: &str, channel: &str, question: &str, left: &str| {
            json!({"id": "3f2a9c0e", "short_id": code, "group": group, "channel": channel, "outcome": null, "answer_by": left,
                "questions": [{"question": question, "type": "select", "custom": true, "required": true,
                    "options": [{"label": "yes", "description": null}, {"label": "no", "description": "not today"}]}]})
        };
        vec![
            ask(
                "e7",
                "deploy",
                "slack",
                "Which database should the new service use, given the load we expect?",
                "2026-11-20T12:00:00Z",
            ),
            ask("k2", "a-group-with-a-long-name", "web", "Sure?", "2026-11-20T10:04:10Z"),
        ]
    }

    fn now() -> Time {
        time_from("2026-11-20T10:00:30Z").unwrap()
    }

    #[test]
    fn a_list_fits_eighty_columns() {
        let list = Look { width: Some(80), colour: false }.list(&asks(), false, now());
        insta::assert_snapshot!(list, @r"
        CODE  AGENT             LEFT    WHERE  QUESTION
        e7    deploy            1h 59m  Slack  Which database should the new service us…
        k2    a-group-with-a-…  3m 40s  inbox  Sure?
        2 open.  askd show e7 · askd answer e7 1
        ");
        assert!(list.lines().all(|line| length(line) <= 80), "{list}");
    }

    #[test]
    fn what_is_soon_over_is_red_and_the_header_is_dim() {
        let list = Look { width: Some(80), colour: true }.list(&asks(), false, now());
        assert!(list.starts_with("\x1b[2mCODE") && list.contains("\x1b[31m3m 40s"), "{list}");
        assert!(!list.contains("\x1b[31m1h"), "{list}");
    }

    #[test]
    fn a_pipe_gets_all_of_it_and_no_colour() {
        let list = Look { width: None, colour: false }.list(&asks(), false, now());
        assert!(list.contains("given the load we expect?") && list.contains("a-group-with-a-long-name"), "{list}");
        assert!(!list.contains('\x1b') && !list.contains("2 open."), "{list}");
    }

    #[test]
    fn one_question_is_shown_within_the_width() {
        let mut ask = asks().remove(0);
        ask["title"] = "Release 2.4".into();
        ask["context"] = "All 812 tests pass, and the database needs no migration at all this time.".into();
        let show = Look { width: Some(50), colour: false }.show(&ask, now());
        insta::assert_snapshot!(show, @r"
        e7  deploy  Slack  1h 59m left
        | Release 2.4
        | All 812 tests pass, and the database needs no
        | migration at all this time.

        | Which database should the new service use, given
        | the load we expect?
          1. yes
          2. no - not today
          (or in your own words: --text)

        Answer it:  askd answer e7 1
        Id:         3f2a9c0e
        ");
    }
}
