//! The table: metric, floor, askd, ratio, goal, and `ok` or `short`.

use std::fmt::Write as _;

/// What a figure is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    PerSecond,
    Bytes,
    Count,
    Percent,
}

impl Unit {
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Seconds if value < 0.1 => format!("{:.2} ms", value * 1e3),
            Self::Seconds => format!("{value:.2} s"),
            Self::PerSecond => format!("{value:.0}/s"),
            Self::Bytes if value < 10_000.0 => format!("{value:.0} B"),
            Self::Bytes => format!("{:.1} MB", value / 1e6),
            Self::Count => format!("{value:.1}"),
            Self::Percent => format!("{value:.3} %"),
        }
    }
}

/// What a figure has to be.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// At least this much of the floor.
    Reaches(f64),
    /// At most so many times the floor.
    Within(f64),
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

pub(crate) struct Row {
    pub(crate) number: u8,
    what: String,
    unit: Unit,
    floor: Option<f64>,
    askd: f64,
    goal: Goal,
    /// Only in the quick form: how much of the goal is enough. `None`: told and not judged.
    ease: Option<f64>,
}

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) quick: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) skipped: Vec<String>,
    pub(crate) notes: Vec<String>,
}

impl Report {
    /// A figure beside its floor. In the quick form a throughput may be half of its goal, and rows 4, 16 and 17 may be
    /// 1.3 times theirs; tails are told and not judged there.
    pub(crate) fn row(&mut self, number: u8, what: &str, unit: Unit, floor: Option<f64>, askd: f64, goal: Goal) {
        let ease = match goal {
            _ if !self.quick => Some(1.0),
            _ if what.contains("p99") || what.contains("longest") => None,
            Goal::Reaches(_) | Goal::AtLeast(_) => Some(0.5),
            Goal::Within(_) | Goal::AtMost(_) if [4, 16, 17].contains(&number) => Some(1.3),
            Goal::Within(_) if [1, 2, 10, 15, 19].contains(&number) => Some(1.3),
            Goal::Within(_) | Goal::AtMost(_) => Some(1.0),
        };
        let row = Row { number, what: what.to_owned(), unit, floor, askd, goal, ease };
        println!("{}", row.line());
        self.rows.push(row);
    }

    pub(crate) fn skip(&mut self, what: &str) {
        println!("SKIPPED {what}");
        self.skipped.push(what.to_owned());
    }

    pub(crate) fn note(&mut self, note: String) {
        println!("{note}");
        self.notes.push(note);
    }

    pub(crate) fn short(&self) -> usize {
        self.rows.iter().filter(|row| row.is_ok() == Some(false)).count()
    }

    /// The whole of it, in the order of the rows.
    pub(crate) fn print(&mut self, markdown: bool, conditions: &[String]) {
        self.rows.sort_by_key(|row| row.number);
        let mut text = String::new();
        if markdown {
            let lines = conditions.iter().chain(&self.notes);
            for line in lines {
                let _written = writeln!(text, "- {line}");
            }
            text.push_str("\n| # | metric | floor | askd | ratio | goal | |\n|---|---|---|---|---|---|---|\n");
            for row in &self.rows {
                let _written = writeln!(text, "| {} |", row.cells().join(" | "));
            }
            text.push('\n');
            for what in &self.skipped {
                let _written = writeln!(text, "- not measured: {what}");
            }
            text.push('\n');
        } else {
            for line in conditions {
                let _written = writeln!(text, "{line}");
            }
            let names = ["#", "metric", "floor", "askd", "ratio", "goal", ""].map(str::to_owned);
            writeln!(text, "{}", aligned(&names)).unwrap_or_default();
            for row in &self.rows {
                let _written = writeln!(text, "{}", row.line());
            }
            for what in &self.skipped {
                let _written = writeln!(text, "SKIPPED {what}");
            }
        }
        let ok = self.rows.iter().filter(|row| row.is_ok() == Some(true)).count();
        println!("\n{text}{ok} ok, {} short", self.short());
    }
}

fn aligned([number, what, floor, askd, ratio, goal, verdict]: &[String; 7]) -> String {
    format!("{number:>2}  {what:<76} {floor:>10} {askd:>10} {ratio:>6}  {goal:<16} {verdict}")
}

impl Row {
    fn is_eased(&self) -> bool {
        self.ease.is_some_and(|ease| (ease - 1.0).abs() > f64::EPSILON)
    }

    fn ratio(&self) -> Option<f64> {
        self.floor.map(|floor| self.askd / floor)
    }

    fn is_ok(&self) -> Option<bool> {
        let ease = self.ease?;
        let ratio = self.ratio().unwrap_or(f64::NAN);
        Some(match self.goal {
            Goal::Reaches(share) => ratio >= share * ease,
            Goal::Within(times) => ratio <= times * ease,
            Goal::AtLeast(least) => self.askd >= least * ease,
            Goal::AtMost(most) => self.askd <= most * ease,
        })
    }

    fn cells(&self) -> [String; 7] {
        let eased = match self.ease {
            Some(ease) if self.is_eased() => format!(" (x {ease})"),
            _ => String::new(),
        };
        let goal = match self.goal {
            Goal::Reaches(share) => format!(">= {share} x"),
            Goal::Within(times) => format!("<= {times} x"),
            Goal::AtLeast(least) => format!(">= {}", self.unit.show(least)),
            Goal::AtMost(most) => format!("<= {}", self.unit.show(most)),
        };
        [
            self.number.to_string(),
            self.what.clone(),
            self.floor.map_or_else(|| "-".into(), |floor| self.unit.show(floor)),
            self.unit.show(self.askd),
            self.ratio().map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
            goal + &eased,
            self.is_ok().map_or("told", |ok| if ok { "ok" } else { "short" }).to_owned(),
        ]
    }

    fn line(&self) -> String {
        aligned(&self.cells())
    }
}
