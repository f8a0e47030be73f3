//! `askd link` and `askd completions`: small helps for a terminal.

use super::asks::Where;
use super::layout::text;
use super::{Cli, Exit, say};
use crate::host::client::ClientError;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use reqwest::Method;

/// Print the link that opens the inbox.
///
/// It contains the operator's token. Anyone who has it can answer everything. `--new` replaces it, for example after it leaked.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  askd link\n  askd link --new\n  docker exec askd /askd link\n  xdg-open \"$(askd link)\""
)]
pub(super) struct Link {
    /// Replace the inbox token first. The old one then opens nothing any more, at any daemon that shares the records.
    #[arg(long)]
    new: bool,
    #[command(flatten)]
    at: Where,
}

impl Link {
    pub(super) fn run(self) -> Result<(), Exit> {
        let (mut client, inbox, runtime) = (self.at.client()?, self.at.inbox_url()?, super::small_runtime()?);
        if self.new {
            // Nobody is told it a second time, and the one before is over: it is printed, whatever comes after.
            let made = self.at.call(Method::POST, "/inbox-token", None)?;
            client = client.with_token(text(&made, "token").to_owned().into());
        } else {
            let opened = runtime.block_on(client.call(Method::GET, "/asks?limit=1", None));
            // No link with a token that does not open the inbox.
            if matches!(opened, Err(ClientError::Problem { status: 401, .. })) {
                opened?;
            }
        }
        say(&client.link(&inbox))?;
        // The link is of no use while there is no daemon.
        Ok(runtime.block_on(self.at.healthy())?)
    }
}

/// Print the completion script of a shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd completions bash > ~/.local/share/bash-completion/completions/askd\n  \
                        askd completions zsh > ~/.zfunc/_askd\n  \
                        askd completions fish > ~/.config/fish/completions/askd.fish")]
pub(super) struct Completions {
    /// Which shell.
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self) -> Result<(), Exit> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "askd", &mut script);
        Ok(say(String::from_utf8_lossy(&script).trim_end())?)
    }
}
