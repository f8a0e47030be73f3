//! What askd costs beside the bare floor, a reference host and a peer, all in one run and one clock: agents, people and
//! a stand-in of Slack are in this process, the daemon is a child of it. Rows and goals: docs/performance.md.
//!
//!     cargo bench --bench promises                       the full table
//!     cargo bench --bench promises -- --quick            in a minute and a half; exit status 1 if a row is short
//!     ... -- --only 4,5     ... -- --markdown     ... -- --stall     ... -- --plots docs/performance
//!
//! It builds the daemon with profile `dist`, whose flags the bench has too. `ASKD_BENCH_BIN` names another binary, and
//! `ASKD_BENCH_DIR` a folder on another file system (what is written there stays).
//! Other rounds than usual: `--rounds 9`.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what goes wrong in a measurement ends it")]
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "it measures on the real clock, and says so")]

mod bolt;
mod chat;
mod floor;
mod load;
mod plots;
mod reference;
mod report;
mod rows;
mod stall;
mod system;
mod world;

use chat::Chat;
use report::Report;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use world::Template;

/// The reference is in this process, so both have the allocator of the daemon.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What all rows share.
struct Bench {
    base: PathBuf,
    chat: Arc<Chat>,
    report: Report,
    quick: bool,
    rounds: usize,
    only: BTreeSet<u8>,
    template: Option<Arc<Template>>,
    /// The number of the next ask.
    next: u64,
    /// The share of the processors that others took, in each round.
    others: Vec<f64>,
}

impl Bench {
    /// Whether one of these rows is wanted.
    fn wants(&self, rows: &[u8]) -> bool {
        self.only.is_empty() || rows.iter().any(|row| self.only.contains(row))
    }

    /// New numbers for asks.
    fn numbers(&mut self, count: u64) -> std::ops::Range<u64> {
        let first = self.next;
        self.next += count;
        first..self.next
    }

    fn template(&mut self) -> Arc<Template> {
        if let Some(template) = &self.template {
            return Arc::clone(template);
        }
        let request = world::request(1, None);
        let template = Arc::new(Template::make(world::fresh(&self.base, "template"), &self.chat, &request));
        self.template = Some(Arc::clone(&template));
        template
    }

    /// How often a round is played at most.
    fn tries(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }

    /// Plays a round. If others took more than 15 % of the processors, it is played again.
    fn round<T>(&mut self, pids: &[u32], mut play: impl FnMut(&mut Self) -> T) -> T {
        let mut tries = self.tries();
        loop {
            let before = system::machine(pids);
            let played = play(self);
            let others = system::others(before, system::machine(pids));
            tries -= 1;
            if others <= 0.15 || tries == 0 {
                self.others.push(others);
                return played;
            }
            println!("others took {:.0} % of the processors: this round is played again", others * 100.0);
        }
    }
}

fn main() -> ExitCode {
    // Cargo adds --bench.
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench").peekable();
    if arguments.peek().is_some_and(|first| first == "--reference") {
        reference::run(arguments.skip(1));
        return ExitCode::SUCCESS;
    }
    let (mut quick, mut markdown, mut only, mut rounds) = (false, false, BTreeSet::new(), None);
    let (mut stall, mut minutes, mut plots) = (false, 10.0, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => quick = true,
            "--markdown" => markdown = true,
            "--only" => only.extend(arguments.next().unwrap().split(',').map(|row| row.parse::<u8>().unwrap())),
            "--rounds" => rounds = arguments.next().map(|rounds| rounds.parse().unwrap()),
            "--stall" => stall = true,
            "--minutes" => minutes = arguments.next().unwrap().parse().unwrap(),
            "--plots" => plots = arguments.next().map(PathBuf::from),
            other => {
                panic!("{other}: --quick, --markdown, --only 4,5, --rounds 5, --stall [--minutes 10], --plots FOLDER")
            }
        }
    }
    // Built before anything is measured.
    world::askd_binary();
    let own = std::env::var_os("ASKD_BENCH_DIR").map(PathBuf::from);
    let parent = own.clone().unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    std::fs::create_dir_all(&parent).unwrap();
    let base = world::fresh(&parent, "promises");
    let conditions = system::conditions(&base);
    let report = Report { quick, ..Report::default() };
    let (chat, rounds) = (Chat::start(), rounds.unwrap_or(5));
    let mut bench = Bench { base, chat, report, quick, rounds, only, template: None, next: 1, others: Vec::new() };
    match plots {
        Some(folder) => plots::draw(&mut bench, &folder, &conditions),
        None if stall => stall::measure(&mut bench, minutes),
        None => rows::play(&mut bench),
    }
    bench.others.sort_by(f64::total_cmp);
    if let Some(most) = bench.others.last() {
        let median = bench.others[bench.others.len() / 2];
        let note =
            format!("processors taken by others: {:.0} % (median), {:.0} % at most", median * 100.0, most * 100.0);
        bench.report.notes.push(note);
    }
    bench.report.notes.iter().for_each(|note| println!("{note}"));
    bench.report.print(markdown, &conditions);
    if own.is_none() {
        std::fs::remove_dir_all(&bench.base).unwrap();
    }
    if bench.report.short() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
