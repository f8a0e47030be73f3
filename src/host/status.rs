//! How the daemon is, for `/readyz`, `GET /api/v1/status` and `askd status`: whether it can take asks and answers, and what
//! an operator has to do. It only reads what the parts say of themselves. The shape of the report is `docs/api.md`.

use super::broker::{Broker, Overview, Stuck, StuckCard, Tally, Unreadable};
use super::ctx::Ctx;
use super::folders::Folders;
use super::port::Channels;
use super::standing::{Problem, Standing};
use super::store::{BOOT_ID_FIX, Loading, REPORTED, Silent, no_boot_id};
use askd_core::{Ask, ChannelName, Group, Time};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How far the daemon's time of day may be off the database's.
const OFF: Duration = Duration::from_secs(2);
/// What an operator can do about a host that serves folders and is not heard of any more.
pub const SILENT_HOST: &str =
    "start askd there, or give its groups to another host: askd group move GROUP --to HOST (docs/cluster.md)";
/// The same if a clock is off.
pub const CLOCK_FIX: &str = "sudo timedatectl set-ntp true";
/// How long ago the last round of looks may be.
const LOOKED: Duration = Duration::from_secs(30);

/// How far the daemon is, and what of it can be in trouble. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Status {
    pub(super) ctx: Ctx,
    pub(super) loading: Arc<Loading>,
    pub(super) broker: Broker,
    pub(super) folders: Folders,
    pub(super) channels: Channels,
    /// Whether agents can ask over HTTP.
    pub(super) agents: Arc<Standing>,
    pub(super) started: Time,
    /// The store could not be written when it was tried last.
    pub(super) unwritable: Arc<AtomicBool>,
}

/// All that an operator may have to know.
#[derive(Debug, Serialize)]
pub struct Report {
    version: &'static str,
    started_at: Time,
    state: &'static str,
    reasons: Vec<String>,
    problems: Vec<ProblemView>,
    channels: Vec<ChannelView>,
    groups: Vec<GroupView>,
    uncollected: Vec<Uncollected>,
    stuck_cards: Vec<CardView>,
}

/// One thing that an operator can do something about.
#[derive(Debug, Serialize)]
struct ProblemView {
    kind: &'static str,
    /// The channel's or group's name, if it is about one.
    about: Option<String>,
    line: String,
    fix: String,
    since: Option<Time>,
}

#[derive(Debug, Serialize)]
struct ChannelView {
    name: ChannelName,
    title: String,
    connected: bool,
    since: Option<Time>,
    why: Option<String>,
    fix: Option<String>,
}

#[derive(Debug, Serialize)]
struct GroupView {
    name: Group,
    served: bool,
    open: usize,
    uncollected: usize,
    last_asked: Option<Time>,
    last_heartbeat: Option<Time>,
    problem: Option<Problem>,
}

#[derive(Debug, Serialize)]
struct Uncollected {
    id: String,
    short_id: String,
    group: Group,
    since: Time,
    line: String,
}

#[derive(Debug, Serialize)]
struct CardView {
    id: String,
    short_id: String,
    group: Group,
    channel: ChannelName,
    chat: String,
    since: Time,
    why: Option<String>,
}

impl Status {
    /// What is wrong although the daemon can go on, or else why it cannot go on. Names no group, chat or person.
    pub(super) async fn judge(&self) -> Result<Vec<String>, String> {
        if self.ctx.is_leaving() {
            return Err("stopping".to_owned());
        }
        let Self { ctx, loading, broker, folders, channels, .. } = self;
        if !loading.is_over() {
            let (done, of) = loading.so_far();
            return Err(if of == 0 { "starting".to_owned() } else { format!("loading {done} of {of}") });
        }
        if broker.is_blind() {
            return Err(format!("{} cannot be reached", broker.place()));
        }
        if broker.last_save_failed() {
            return Err("the last save failed".to_owned());
        }
        if let Err(error) = broker.probe().await {
            // Each call of a load balancer asks.
            if !self.unwritable.swap(true, Ordering::Relaxed) {
                tracing::error!(%error, "not ready");
            }
            return Err(format!("{} cannot be written", broker.place()));
        }
        self.unwritable.store(false, Ordering::Relaxed);
        let (at, hung) = folders.last_look();
        let looked = ctx.clock().monotonic().since(at);
        if looked > LOOKED {
            return Err(format!("the groups' folders were not looked at for {} s", looked.as_secs()));
        }
        let away = channels.standing().filter(|(_, problem)| problem.is_some());
        let mut reasons: Vec<String> = away.map(|(name, _)| format!("{} is away", name.title())).collect();
        reasons.extend(self.not_running().into_iter().map(|name| format!("{} does not run", name.title())));
        reasons.extend(self.agents.problem().map(|_| "agents cannot ask over HTTP".to_owned()));
        reasons.extend(self.clock_off().map(|off| format!("its {off}")));
        match hung {
            0 => {}
            1 => reasons.push("the folder of a group does not answer".to_owned()),
            hung => reasons.push(format!("the folders of {hung} groups do not answer")),
        }
        match broker.unwritten().len() {
            0 => {}
            1 => reasons.push("the responses of a group cannot be written".to_owned()),
            late => reasons.push(format!("the responses of {late} groups cannot be written")),
        }
        match broker.unread_records().await.len() {
            0 => {}
            1 => reasons.push("a stored question cannot be read".to_owned()),
            many => reasons.push(format!("{many} stored questions cannot be read")),
        }
        Ok(reasons)
    }

    /// All that an operator may have to know.
    pub async fn report(&self) -> Report {
        // Judged last: a reload in between must not be told in one part of the report alone.
        let (overview, judged) = (self.broker.overview().await, self.judge().await);
        let channels: Vec<ChannelView> = self.channels.standing().map(ChannelView::of).collect();
        let groups = self.groups(&overview);
        let mut problems: Vec<ProblemView> =
            judged.as_ref().err().map(|why| ProblemView::of_daemon(why, self.broker.is_shared())).into_iter().collect();
        problems.extend(self.clock_off().as_deref().map(ProblemView::of_clock));
        problems.extend(self.agents.problem().map(ProblemView::of_agents));
        problems.extend(channels.iter().filter_map(ProblemView::of_channel));
        problems.extend(self.not_running().into_iter().map(ProblemView::of_missing));
        problems.extend(groups.iter().filter_map(ProblemView::of_group));
        problems.extend(self.broker.unwritten().into_iter().map(ProblemView::of_unwritten));
        problems.extend(ProblemView::of_records(self.broker.unread_records().await, self.broker.is_shared()));
        problems.extend(self.broker.silent_hosts(REPORTED).into_iter().map(ProblemView::of_host));
        problems.extend(no_boot_id().as_deref().map(ProblemView::of_boot));
        problems.extend(overview.stuck.iter().map(ProblemView::of_card));
        let state = match &judged {
            Err(_) => "not_ready",
            Ok(_) if problems.is_empty() => "ready",
            Ok(_) => "degraded",
        };
        Report {
            version: env!("CARGO_PKG_VERSION"),
            started_at: self.started,
            state,
            reasons: judged.unwrap_or_else(|why| vec![why]),
            problems,
            channels,
            groups,
            uncollected: overview.uncollected.iter().map(|(ask, at)| Uncollected::of(ask, *at)).collect(),
            stuck_cards: overview.stuck.into_iter().map(CardView::of).collect(),
        }
    }

    /// What Prometheus is told.
    pub fn metrics(&self) -> Result<String, fmt::Error> {
        let tallies = self.broker.tallies();
        let of_groups = |count: fn(&Tally) -> usize| {
            let count = |tally| i64::try_from(count(tally)).unwrap_or(i64::MAX);
            tallies.iter().map(|(group, tally)| (group.to_string(), count(tally))).collect()
        };
        let up = self.channels.standing().map(|(name, problem)| (name.to_string(), i64::from(problem.is_none())));
        let up = up.chain(self.not_running().into_iter().map(|name| (name.to_string(), 0)));
        let (metrics, settings) = (self.broker.metrics(), self.broker.settings());
        for group in tallies.keys() {
            let routes = settings.group(group).into_iter().flat_map(|settings| &settings.routes);
            routes.for_each(|route| metrics.expect(group, route.channel));
        }
        let (open, uncollected) = (of_groups(|tally| tally.open), of_groups(|tally| tally.uncollected));
        metrics.text(open, uncollected, up.collect(), self.broker.cluster())
    }

    /// How far the daemon's time of day is off the database's, if that is too far.
    fn clock_off(&self) -> Option<String> {
        let behind = self.ctx.clock().behind();
        let (seconds, how) = (behind.unsigned_abs() / 1000, if behind > 0 { "behind" } else { "ahead of" });
        let off = || format!("clock is {seconds} s {how} the database's");
        (Duration::from_millis(behind.unsigned_abs()) > OFF).then(off)
    }

    /// The channels of routes that a reload brought, and that the daemon was started without.
    fn not_running(&self) -> BTreeSet<ChannelName> {
        let settings = self.broker.settings();
        let groups = settings.configured().filter_map(|group| settings.group(&group).cloned());
        let routes = groups.chain(settings.unconfigured().cloned()).flat_map(|group| group.routes);
        let named: BTreeSet<ChannelName> = routes.map(|route| route.channel).collect();
        let runs: BTreeSet<ChannelName> = self.channels.standing().map(|(name, _)| name).collect();
        named.difference(&runs).copied().collect()
    }

    fn groups(&self, overview: &Overview) -> Vec<GroupView> {
        let (settings, problems) = (self.broker.settings(), self.folders.problems());
        let heartbeats = self.broker.heartbeats().last();
        let found = self.folders.names().unwrap_or_default();
        let names: BTreeSet<Group> = found
            .iter()
            .filter_map(|name| Group::of_folder(name).ok())
            .map(|folder| self.broker.group_of(&folder))
            .chain(settings.configured())
            .chain(overview.groups.keys().map(|group| (**group).clone()))
            .collect();
        let view = |name: Group| {
            let tally = overview.groups.get(&name).copied().unwrap_or_default();
            GroupView {
                served: settings.group(&name).is_some(),
                open: tally.open,
                uncollected: tally.uncollected,
                last_asked: tally.asked,
                last_heartbeat: heartbeats.get(&name).copied(),
                problem: problems.get(&name).cloned(),
                name,
            }
        };
        names.into_iter().map(view).collect()
    }
}

impl ProblemView {
    fn of_daemon(why: &str, in_database: bool) -> Self {
        let line = format!("askd cannot take questions and answers: {why}");
        let fix = match why {
            "stopping" | "starting" => "wait a moment",
            _ if why.starts_with("loading") => "wait until the stored questions are read",
            _ if in_database => "look at the PostgreSQL server; askd goes on as soon as it answers",
            _ => "look at the disk of the data folder (df -h, df -i, dmesg); the log says more",
        };
        Self { kind: "daemon", about: None, line, fix: fix.to_owned(), since: None }
    }

    fn of_clock(off: &str) -> Self {
        Self {
            kind: "daemon",
            about: None,
            line: format!("askd's {off}"),
            fix: format!("on this host and the database's: {CLOCK_FIX}; if both are right, restart askd"),
            since: None,
        }
    }

    fn of_agents(Problem { since, why, fix }: Problem) -> Self {
        let line = format!("Agents cannot ask over HTTP: {why}");
        Self { kind: "daemon", about: None, line, fix, since: Some(since) }
    }

    fn of_channel(channel: &ChannelView) -> Option<Self> {
        let ChannelView { name, title, since, why, fix, .. } = channel;
        let line = format!("{title} is not connected: {}", why.as_ref()?);
        Some(Self { kind: "channel", about: Some(name.to_string()), line, fix: fix.clone()?, since: *since })
    }

    fn of_missing(name: ChannelName) -> Self {
        let line =
            format!("{} does not run, and routes of groups lead to it: questions there cannot be shown", name.title());
        let fix = "restart askd: a reload starts no channel (sudo systemctl restart askd)".to_owned();
        Self { kind: "channel", about: Some(name.to_string()), line, fix, since: None }
    }

    fn of_group(group: &GroupView) -> Option<Self> {
        let Problem { since, why, fix } = group.problem.clone()?;
        let line = format!("The agent {} may be unable to ask: {why}", group.name);
        Some(Self { kind: "folder", about: Some(group.name.to_string()), line, fix, since: Some(since) })
    }

    fn of_unwritten((group, Problem { since, why, fix }): (Group, Problem)) -> Self {
        let line = format!("The agent {group} does not get its answers: {why}");
        Self { kind: "folder", about: Some(group.to_string()), line, fix, since: Some(since) }
    }

    /// One for each group, whose first record it names.
    fn of_records(unreadable: Vec<Unreadable>, in_database: bool) -> impl Iterator<Item = Self> {
        let mut groups: BTreeMap<Arc<Group>, Vec<Unreadable>> = BTreeMap::new();
        for record in unreadable {
            groups.entry(Arc::clone(&record.group)).or_default().push(record);
        }
        groups.into_iter().filter_map(move |(group, records)| {
            let Unreadable { since, place, why, .. } = records.first()?;
            let (questions, others) = match records.len() {
                1 => ("A stored question".to_owned(), String::new()),
                many => (format!("{many} stored questions"), format!(" (the log names the {} others, too)", many - 1)),
            };
            let line = format!("{questions} of the agent {group} cannot be read: {place}: {why}{others}");
            let fix = if in_database {
                "restore the row from a backup of the database".to_owned()
            } else {
                format!(
                    "restore the file from a backup, or make it readable again (ls -l '{place}', dmesg); a restart of askd \
                     moves a damaged one aside and goes on without it"
                )
            };
            Some(Self { kind: "record", about: Some(group.to_string()), line, fix, since: Some(*since) })
        })
    }

    fn of_boot(why: &str) -> Self {
        let line = format!("After a kill or a crash, agents may be told again what they took: {why}");
        Self { kind: "daemon", about: None, line, fix: BOOT_ID_FIX.to_owned(), since: None }
    }

    fn of_host(silent: Silent) -> Self {
        let Silent { host, heard, groups } = silent;
        let groups: Vec<String> = groups.iter().map(Group::to_string).collect();
        let line = format!("The host {host} is silent; the folders of these groups wait for it: {}", groups.join(", "));
        Self { kind: "host", about: Some(host), line, fix: SILENT_HOST.to_owned(), since: Some(heard) }
    }

    fn of_card(card: &StuckCard) -> Self {
        let (title, code) = (card.channel.title(), &card.ask.short_id);
        let why = card.why().map_or_else(String::new, |why| format!(": {why}"));
        let line = if card.ask.is_over() {
            format!("A card in {title} still shows the closed question {code}{why}")
        } else {
            format!("Answers on the card in {title} of the open question {code} do not reach askd{why}")
        };
        let fix = match &card.stuck {
            Stuck::Trying => "askd keeps trying; if the channel is connected, the log says why it fails",
            Stuck::NotSetUp => "put the channel back into the settings and restart askd, or delete the message there",
            Stuck::Never(_) => "delete the message there",
        };
        Self { kind: "card", about: Some(card.channel.to_string()), line, fix: fix.to_owned(), since: Some(card.since) }
    }
}

impl ChannelView {
    fn of((name, problem): (ChannelName, Option<Problem>)) -> Self {
        let connected = problem.is_none();
        let (since, why, fix) = problem.map_or((None, None, None), |it| (Some(it.since), Some(it.why), Some(it.fix)));
        Self { name, title: name.title().to_owned(), connected, since, why, fix }
    }
}

impl Uncollected {
    fn of(ask: &Ask, since: Time) -> Self {
        Self {
            id: ask.id.to_string(),
            short_id: ask.short_id.to_string(),
            group: ask.group.clone(),
            since,
            line: ask.closing_line().unwrap_or_default(),
        }
    }
}

impl CardView {
    fn of(card: StuckCard) -> Self {
        let why = card.why();
        let StuckCard { ask, channel, chat, since, .. } = card;
        let (id, short_id, group) = (ask.id.to_string(), ask.short_id.to_string(), ask.group.clone());
        Self { id, short_id, group, channel, chat, since, why }
    }
}
