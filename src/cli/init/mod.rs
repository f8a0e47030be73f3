//! `askd init`: from nothing to the first answered question.
//!
//! It asks what only a person knows, tries each answer at once, and writes settings, secrets and the Slack manifest. Run
//! again, it adds what is missing and changes nothing that is there.

mod asking;
mod files;
mod form;
mod plan;
mod slack;
mod whatsapp;

use super::group;
use super::mcp::Program;
use super::{Exit, FAILED, USAGE, say, stop_on_signals};
use crate::host::settings::{Settings, data_folder};
use crate::host::store::{StoreError, hold, noted_settings};
use crate::ipc::default_data_dir;
use anyhow::Context as _;
use askd_core::Group;
use asking::{Asked, Question};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use form::{Field, Form};
use plan::Plan;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Set askd up: ask what it needs, try it, write the settings, and end with one answered question.
///
/// On a terminal it asks; a flag answers a question beforehand, and without a terminal flags answer all. Secrets go into
/// files that only you can read. Run it again for the next agent: what is there stays as it is.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd init\n  askd init --group research --in slack\n  \
                        askd init --in inbox --group research --agent docker --no-question")]
pub(super) struct Init {
    /// The settings file [default: askd.toml; as root /etc/askd/askd.toml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where askd keeps its data.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// The group: your agent's name.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Where its questions appear first; the inbox always shows them.
    #[arg(long = "in", value_name = "CHANNEL", value_parser = ["inbox", "slack", "whatsapp"])]
    place: Option<String>,
    /// Where it runs.
    #[arg(long, value_name = "PLACE", value_parser = ["here", "docker"])]
    agent: Option<String>,
    /// The program that it is, to print what it needs.
    #[arg(long, value_name = "PROGRAM")]
    program: Option<Program>,
    /// Where the host has the data folder, if askd itself runs in a container.
    #[arg(long, value_name = "DIR")]
    on_host: Option<PathBuf>,
    #[command(flatten)]
    slack: slack::SlackFlags,
    #[command(flatten)]
    whatsapp: whatsapp::WhatsappFlags,
    /// Do not end with a question.
    #[arg(long)]
    no_question: bool,
}

impl Init {
    pub(super) fn run(self) -> Result<(), Exit> {
        super::log("error", false)?;
        let mut plan = Plan::open(self.config.clone().unwrap_or_else(usual_file))?;
        let before = if plan.is_new() { BTreeSet::new() } else { channels(&plan.settings()?) };
        let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
        let stop = runtime.block_on(async { stop_on_signals() })?;
        let form = Form::new(stop.clone());
        let asked = Asked { runtime: &runtime, stop: &stop };
        let name = Field {
            flag: "--group",
            question: "What is the agent called?",
            usual: Some("default"),
            ..Field::default()
        };
        if !form.terminal && self.group.is_none() && self.place.is_none() {
            let why =
                "there is no terminal to ask on; answer with flags, for example: askd init --group research --in inbox";
            return Err(Exit::new(USAGE, why));
        }
        let group: Group = form.ask(name, self.group.as_deref(), |text| {
            Group::of_folder(text).map_err(|rule| format!("a group's name is {rule}"))
        })?;
        if plan.is_new() {
            plan.add(&self.data_dir(&form)?);
        } else if let Some(dir) = &self.data_dir {
            let there = plan.settings()?.data_dir;
            if std::path::absolute(dir).context("--data-dir")? != there {
                let file = plan.file.display();
                let why = format!("{file} is there already, and keeps the data in {}", there.display());
                return Err(Exit::new(
                    USAGE,
                    format!("{why}: leave --data-dir out, or write at the top: data_dir = {dir:?}"),
                ));
            }
        }
        let settings = plan.settings()?;
        // What a daemon has made; a folder that was made for it may be root's, with rights of a group.
        let made = [settings.state_dir(), settings.ipc_dir()].into_iter().find(|made| made.exists());
        let anothers = || group::anothers(&settings.data_dir).map(|_| settings.data_dir.clone());
        if let Some(folder) = made.or_else(anothers) {
            super::as_owner(&folder, "init")?;
        }
        if plan.names(&group)? {
            self.has_place(&plan, &group)?;
            self.changes_nothing(&plan, &group)?;
            say(&format!("{group} is in {} already; its settings stay as they are.", plan.file.display()))?;
        } else {
            self.add_group(&form, &mut plan, &group, &asked)?;
        }
        let settings = plan.write()?;
        // As the agent's host has it.
        let data = self.on_host.as_ref().unwrap_or(&settings.data_dir);
        let folder = data.join("ipc").join(group.as_str());
        self.connect(&form, &settings, &group, &folder)?;
        let whatsapp = settings.group(&group).is_some_and(whatsapp::comes_first);
        if !self.no_question {
            first_question(&form, &settings, (&group, &folder), &asked, whatsapp)?;
        } else if whatsapp {
            whatsapp::steps(&settings, "listens once it is started").map_or(Ok(()), |steps| say(&steps))?;
        }
        say(&next_step(&settings, &before, &plan)?)?;
        Ok(())
    }

    /// Refuses to leave out the place that was named: nobody would see it missing.
    fn has_place(&self, plan: &Plan, group: &Group) -> Result<(), Exit> {
        let Some(place) = self.place.as_deref().filter(|place| *place != "inbox") else { return Ok(()) };
        let settings = plan.settings()?;
        let routes = settings.group(group).map(|group| group.routes.as_slice()).unwrap_or_default();
        if routes.iter().any(|route| route.channel.as_str() == place) {
            return Ok(());
        }
        let file = plan.file.display();
        let mend = format!("add the route there yourself (docs/{place}.md), or give another --group");
        Err(Exit::new(USAGE, format!("{group} is in {file} already, without a route to {place}: {mend}")))
    }

    /// Refuses a flag that says other than the routes of a group that is there: nobody would see it left out.
    fn changes_nothing(&self, plan: &Plan, group: &Group) -> Result<(), Exit> {
        let settings = plan.settings()?;
        let routes = settings.group(group).map(|group| group.routes.as_slice()).unwrap_or_default();
        let Some(flag) = self.slack.other_than(routes).or_else(|| self.whatsapp.other_than(routes)) else {
            return Ok(());
        };
        let file = plan.file.display();
        let mend = format!("change [groups.{group}] there yourself, or leave {flag} out");
        Err(Exit::new(USAGE, format!("{flag}: {group} is in {file} already, and keeps its routes: {mend}")))
    }

    fn data_dir(&self, form: &Form) -> Result<String, Exit> {
        // What the environment says holds over the file that is written.
        let said = std::env::var("ASKD__DATA_DIR").ok().filter(|dir| !dir.is_empty());
        if let (Some(said), Some(given)) = (&said, &self.data_dir)
            && std::path::absolute(said).ok() != std::path::absolute(given).ok()
        {
            let why = format!(
                "--data-dir: ASKD__DATA_DIR is set to {said:?}, and holds over settings: unset it, or leave the flag out"
            );
            return Err(Exit::new(USAGE, why));
        }
        let usual = || default_data_dir(|name| std::env::var(name).ok()).ok().map(|dir| dir.display().to_string());
        let usual = said.or_else(usual);
        let field = Field {
            flag: "--data-dir",
            question: "Where should askd keep its data?",
            usual: usual.as_deref(),
            ..Field::default()
        };
        form.ask(field, self.data_dir.as_deref(), |text| {
            let dir = data_folder(text)?;
            std::fs::create_dir_all(&dir).map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
            Ok(format!("# Its records and the folders that it shares with agents.\ndata_dir = {}\n", quoted(&dir)))
        })
    }

    fn add_group(&self, form: &Form, plan: &mut Plan, group: &Group, asked: &Asked<'_>) -> Result<(), Exit> {
        let places = [("inbox", "in the browser only"), ("slack", "in Slack"), ("whatsapp", "on WhatsApp")];
        let question = format!("Where should the questions of {group} appear?");
        let place = Field { flag: "--in", question: &question, usual: Some("inbox"), ..Field::default() };
        let route = match &*form.choose(place, self.place.as_deref(), &places)? {
            "slack" => Some(self.slack.route(form, plan, group, asked)?),
            "whatsapp" => Some(self.whatsapp.route(form, plan, asked)?),
            _ => None,
        };
        let first = route.map(|route| format!("    {route},\n")).unwrap_or_default();
        plan.add(&format!(
            "\n[groups.{group}]\n# Where its questions appear: the first route, and the next one if that cannot be reached.\n\
             routes = [\n{first}    {{ channel = \"web\" }},\n]\n"
        ));
        Ok(())
    }

    /// Makes the agent's folders, and prints what connects it.
    fn connect(&self, form: &Form, settings: &Settings, group: &Group, folder: &Path) -> Result<(), Exit> {
        let gid = group::make(settings, group)?;
        let places = [("here", "on this computer"), ("docker", "in a container")];
        let question = format!("Where does {group} run?");
        let place = Field { flag: "--agent", question: &question, usual: Some("here"), ..Field::default() };
        let in_container = form.choose(place, self.agent.as_deref(), &places)? == "docker";
        if in_container {
            say(&group::for_docker(group, folder, gid))?;
        }
        let programs = Program::value_variants();
        let of = |value: PossibleValue| (value.get_name().to_owned(), value.get_help().map(ToString::to_string));
        let known: Vec<_> = programs.iter().filter_map(ValueEnum::to_possible_value).map(of).collect();
        let mut list: Vec<(&str, &str)> =
            known.iter().map(|(name, told)| (&**name, told.as_deref().unwrap_or(name))).collect();
        list.push(("other", "another program, or a script"));
        let which =
            Field { flag: "--program", question: "Which program is it?", usual: Some("other"), ..Field::default() };
        let mut program = self.program;
        if program.is_none() && form.terminal {
            let name = form.choose(which, None, &list)?;
            program = programs.iter().zip(&known).find(|(_, (known, _))| *known == name).map(|(program, _)| *program);
        }
        // In a container its folder is where `askd mcp` looks.
        let ipc = (!in_container).then_some(folder);
        if let Some(program) = program {
            let (place, text) = program.settings(ipc, in_container || self.on_host.is_some());
            say(&format!("\nTo connect {group}, {place}:\n\n{text}\n"))?;
        } else {
            let ipc = ipc.map(|ipc| format!(" --ipc {}", ipc.display())).unwrap_or_default();
            say(&format!("\nA script asks with:  askd ask{ipc} \"Deploy now?\" --confirm\n"))?;
        }
        Ok(())
    }
}

/// Asks one real question through a daemon with the new settings, and waits for its answer.
fn first_question(
    form: &Form,
    settings: &Settings,
    (group, folder): (&Group, &Path),
    asked: &Asked<'_>,
    whatsapp: bool,
) -> Result<(), Exit> {
    let elsewhere = settings.slack.is_some() || settings.whatsapp.is_some();
    let question = Question {
        text: "askd is set up. Can you read this?",
        option: "Yes, I can",
        context: "This is the first question, asked by askd init.",
    };
    let before = |link: &str| {
        let where_else = if elsewhere { " You can also answer it in the inbox:" } else { " Answer it in the inbox:" };
        say(&format!("A question is on its way to you.{where_else}\n  {link}"))?;
        if whatsapp { whatsapp::wait_until_published(form, settings) } else { Ok(()) }
    };
    match asked.ask(settings.clone(), group, &question, before)? {
        Some(by) => say(&format!("Answered by {by}."))?,
        None => say(&format!(
            "A daemon runs on this data folder. After the next step, ask: askd ask --ipc {} \"Can you read this?\" --confirm",
            folder.display()
        ))?,
    }
    Ok(())
}

/// Whether a daemon runs on this data folder.
fn is_served(settings: &Settings) -> Result<bool, Exit> {
    let state = settings.state_dir();
    if !state.is_dir() {
        return Ok(false);
    }
    match hold(&state) {
        Ok(_) => Ok(false),
        Err(StoreError::Held(_)) => Ok(true),
        Err(error) => Err(Exit::new(FAILED, error)),
    }
}

/// The channels that a daemon with these settings connects to.
fn channels(settings: &Settings) -> BTreeSet<&'static str> {
    let slack = settings.slack.as_ref().map(|_| "Slack");
    slack.into_iter().chain(settings.whatsapp.as_ref().map(|_| "WhatsApp")).collect()
}

/// What a person does now. `before`: the channels that the settings had.
fn next_step(settings: &Settings, before: &BTreeSet<&str>, plan: &Plan) -> Result<String, Exit> {
    if !is_served(settings)? {
        return Ok(format!("\nDone. Start the daemon:  askd serve --config {}", plan.file.display()));
    }
    if !reads(&settings.state_dir(), &plan.file) {
        let file = plan.file.display();
        return Ok(format!(
            "\nDone. The running daemon does not read {file}. Stop it, then start it with:  askd serve --config {file}"
        ));
    }
    Ok(match channels(settings).into_iter().find(|channel| !before.contains(channel)) {
        Some(channel) => {
            format!("\nDone. The running daemon does not know {channel} yet. Restart it:  sudo systemctl restart askd")
        }
        None => "\nDone. The running daemon reads the settings at a reload:  sudo systemctl reload askd\n(or, without \
                 systemd, kill -HUP and its process id)"
            .to_owned(),
    })
}

/// Whether the daemon that holds this state folder reads the file. One of an earlier version does not say.
fn reads(state: &Path, file: &Path) -> bool {
    let real = |file: &Path| std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    noted_settings(state).is_none_or(|files| files.iter().any(|known| real(known) == real(file)))
}

fn usual_file() -> PathBuf {
    let root = rustix::process::geteuid().is_root();
    PathBuf::from(if root { crate::host::settings::SYSTEM_FILE } else { "askd.toml" })
}

/// A path as TOML has it.
fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}
