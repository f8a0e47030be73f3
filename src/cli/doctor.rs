//! `askd doctor`: what is wrong, why, and how to fix it.

use super::asks::pretty;
use super::layout::Look;
use super::{Exit, FAILED, say};
use crate::clock::Clock;
use crate::host::doctor::{Finding, Verdict, examine};
use askd_core::printable;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Check everything that has to be right, and say how to fix what is not.
///
/// Looks at the settings, the data folder, the daemon, each group's folders and session, and at Slack and WhatsApp with the
/// tokens of the settings. It changes nothing without `--send`.
///
/// Exit codes: 0 no fault, 1 something has to be fixed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  askd doctor\n  askd doctor --config askd.toml --json | jq '.findings[] | select(.verdict == \"fault\")'"
)]
pub(super) struct Doctor {
    /// The daemon's settings file; repeatable.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Ask a test question in each group that has a section in the settings, and withdraw it once it is shown.
    #[arg(long)]
    send: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(super) fn run(self) -> Result<(), Exit> {
        let findings = super::small_runtime()?.block_on(examine(&self.config, self.send, &Clock::system()));
        let faults = findings.iter().filter(|finding| finding.verdict == Verdict::Fault).count();
        if self.json {
            say(&pretty(&json!({ "faults": faults, "findings": findings })))?;
        } else {
            let look = Look::of_stdout();
            let mut lines: Vec<String> = findings.iter().flat_map(|finding| shown(&look, finding)).collect();
            lines.push(match faults {
                0 => "No faults.".to_owned(),
                1 => "1 fault.".to_owned(),
                more => format!("{more} faults. The first one may be the cause of others."),
            });
            say(&lines.join("\n"))?;
        }
        if faults == 0 { Ok(()) } else { Err(Exit::new(FAILED, "")) }
    }
}

fn shown(look: &Look, finding: &Finding) -> Vec<String> {
    let (check, what) = (printable(&finding.check), printable(&finding.what));
    match finding.verdict {
        Verdict::Ok => vec![format!("ok     {check}: {what}")],
        Verdict::NotChecked => vec![format!("-      {check}: not checked: {what}")],
        Verdict::Fault => {
            let fix = finding.fix.as_deref().map(printable).unwrap_or_default();
            vec![look.alarm(&format!("FAULT  {check}: {what}")), format!("       Fix: {fix}")]
        }
    }
}
