//! The whole loop with no account and no configuration: a daemon, its inbox, stand-ins of Slack and WhatsApp, and scripted
//! agents that ask through real files, one of them over HTTP. Everything in it is the real thing but the agents and the two platforms.

mod phone;
mod scenes;
mod terminal;
mod tour;

use crate::clock::Clock;
use crate::host::Daemon;
use crate::host::client::Client;
use crate::host::settings::{Settings, SettingsError, reachable};
use crate::random;
use anyhow::Context as _;
use askd_sim::slack::{self, Slack};
use futures_util::future::try_join_all;
use phone::Phone;
use scenes::{CHANNEL, DEPLOY, NIGHT, PERSON, Places, RELEASE, TRAVEL, begun, kill_one, scenes};
use secrecy::ExposeSecret as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use terminal::{Kind, Terminal};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tour::Page;

/// How long anything may take that no person is needed for.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two looks at a list.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Who can reach the demo at the address that it has without `--listen`.
const HERE: &str = "Nothing leaves this computer.";
/// At any other one.
const EVERYWHERE: &str = "Anyone who can reach this computer over the network can use the demo.";
/// In a container, which does not know where its engine publishes the port.
const PUBLISHED: &str = "Anyone who can reach the published port can use the demo.";

/// A folder that is gone when this is dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::error!(folder = %self.0.display(), %error, "the demo's folder is left behind");
        }
    }
}

/// Runs the demo: by hand until `stop`, or by itself. `print` writes a line for people.
pub async fn run(
    auto: bool,
    listen: SocketAddr,
    stop: CancellationToken,
    print: impl Fn(&str) + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let terminal = Arc::new(Terminal::new(print));
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let folder = Temporary(std::env::temp_dir().join(format!("askd-demo-{}", random::unique())));
    let phone = Phone::start().await.context("the mock WhatsApp")?;
    let slack = Slack::start(workspace()).await.context("the mock Slack")?;
    let daemon = Daemon::open(settings(&folder.0, &slack, &phone)?, Clock::system()).await?;
    let url = format!("http://{}", daemon.address());
    let client = Client::new(&url, daemon.token().clone())?;
    let agents = daemon.agents_address().map(|address| format!("http://{address}")).unwrap_or_default();
    let places = [
        Page { name: "inbox", opens: format!("#token={}", daemon.token().expose_secret()), server: url.clone() },
        Page { name: "slack", opens: format!("?user={PERSON}&channel={CHANNEL}"), server: slack.url().to_owned() },
        Page { name: "phone", opens: String::new(), server: phone.page() },
    ];
    let at = listener.local_addr()?;
    // In a container any address is inside; which one of the computer leads there, its engine was told.
    let reach = match at.ip().is_loopback() {
        true => HERE,
        false if is_first() => PUBLISHED,
        false => EVERYWHERE,
    };
    greet(&terminal, &format!("http://{}/", reachable(at)), reach, &places);
    let stopping = stop.clone();
    #[expect(clippy::disallowed_methods, reason = "the daemon itself, which is told to stop and waited for")]
    let running = tokio::spawn(daemon.run(stop.clone(), || ()));
    phone.connect(&format!("{url}/whatsapp/webhook"));
    let script = Box::pin(async {
        let places = Places { inbox: &client, slack: &slack, phone: &phone };
        play(&folder.0, &agents, auto, &places, &terminal).await?;
        if !auto {
            say_what_is_next(&terminal, &folder.0)?;
            stop.cancelled().await;
        }
        anyhow::Ok(())
    });
    let played = tokio::select! {
        // First: what fails because the daemon stops is no failure of the demo.
        biased;
        () = stopping.cancelled() => if auto { Err(anyhow::anyhow!("stopped before everything was tried")) } else { Ok(()) },
        played = script => played,
        served = tour::serve(listener, places, reach, Arc::clone(&terminal)) => served.context("the tour page"),
        () = tell_private_notes(&slack, &terminal) => Ok(()),
    };
    stop.cancel();
    running.await.context("the daemon")??;
    played?;
    drop(folder);
    terminal.print(if auto {
        "Everything worked: asked, shown, answered, delivered; and an agent was started with its answer."
    } else {
        "\nGoodbye. The demo's daemon has stopped and its folder is gone. Next: askd serve"
    });
    Ok(())
}

fn greet(terminal: &Terminal, tour: &str, reach: &str, places: &[Page; 3]) {
    terminal.print(
        "askd demo: three agents are waiting for you; a fourth comes when you have answered them. Ctrl-C ends it.",
    );
    let warning = if reach == EVERYWHERE { "Warning: " } else { "" };
    terminal.print(&format!("{warning}{reach}\n"));
    terminal.print(&format!("  Tour (all three)  {tour}"));
    for (place, title) in places.iter().zip(["Inbox", "Slack", "Phone"]) {
        terminal.print(&format!("  {title:<16}  {}", place.link(tour)));
    }
    terminal.print("");
}

/// First all three at once, then the agent that is killed.
async fn play(data: &Path, agents: &str, auto: bool, places: &Places<'_>, terminal: &Terminal) -> anyhow::Result<()> {
    wait_for(|| places.slack.sockets() > 0).await.context("the daemon has not connected to the mock Slack")?;
    let answers = auto.then_some(places);
    let asked = scenes()?;
    let mut ways = Vec::new();
    for scene in &asked {
        ways.push(scenes::way(scene, data, agents, places.inbox).await?);
    }
    let played = asked.iter().zip(ways).map(|(scene, way)| scenes::play(scene, way, answers, terminal));
    try_join_all(played).await?;
    kill_one(data, answers, places, terminal).await
}

fn say_what_is_next(terminal: &Terminal, data: &Path) -> anyhow::Result<()> {
    // `cargo run` puts it on no path.
    let program = std::env::current_exe().context("cannot find this program")?.display().to_string();
    let program = if is_first() {
        from_outside(&program, &std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    } else {
        program
    };
    terminal.print("\nThat was all. Until Ctrl-C ends the demo, ask your own question from another terminal:");
    for (group, place) in [(RELEASE, "inbox"), (DEPLOY, "Slack"), (TRAVEL, "phone")] {
        let ipc = data.join("ipc").join(group);
        terminal.print(&format!("  {place:<6} {program} ask --ipc {} \"Deploy now?\" --confirm", ipc.display()));
    }
    Ok(())
}

/// Whether this is the first process of a container, where no terminal is.
fn is_first() -> bool {
    std::process::id() == 1
}

/// How a program of this container is called from outside. The engine mounts a file whose path names the container.
fn from_outside(program: &str, mounts: &str) -> String {
    let engine = if mounts.contains(" /run/.containerenv ") { "podman" } else { "docker" };
    let hostname = mounts.lines().filter(|mount| mount.contains(" /etc/hostname "));
    let is_id = |part: &&str| part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = hostname.flat_map(|mount| mount.split('/')).find(is_id).map_or("<container>", |id| &id[..12]);
    format!("{engine} exec -it {id} {program}")
}

/// Tells what the mock Slack shows to one person alone, for example to a stranger who clicked. Never ends.
async fn tell_private_notes(slack: &Slack, terminal: &Terminal) {
    let clock = Clock::system();
    let mut told = 0;
    loop {
        let notes = slack.select(|message| message.only_for.is_some());
        for note in notes.iter().skip(told) {
            let name = slack.config().users.iter().find(|user| note.only_for.as_ref() == Some(&user.id));
            let name = name.map_or("one person", |user| user.name.as_str());
            terminal.tell("Slack", &format!("tells only {name}: {}", note.text), Kind::Note, None);
        }
        told = notes.len();
        clock.sleep(LOOK_EVERY).await;
    }
}

/// A workspace with the one channel that is used.
fn workspace() -> slack::Config {
    let mut config = slack::Config::default();
    config.channels.retain(|channel| channel.id == CHANNEL);
    config
}

/// The daemon's settings: a free port, and a group for each agent.
fn settings(data_dir: &Path, slack: &Slack, phone: &Phone) -> anyhow::Result<Settings> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let [data, program, began] = [data_dir, &program, &begun(data_dir)].map(|path| path.to_string_lossy().into_owned());
    let settings: Result<Settings, SettingsError> = Settings::from_toml(&format!(
        "data_dir = {data:?}\n[http]\nlisten = \"127.0.0.1:0\"\n[agents]\nlisten = \"127.0.0.1:0\"\n[log]\nfilter = \"warn\"\n\
         [asks]\nremind_after = \"\"\nlate_answers = \"0s\"\nmax_per_hour_per_group = 1000\n\
         [groups.{RELEASE}]\n\
         [groups.{DEPLOY}]\nroutes = [{in_slack}, {{ channel = \"web\" }}]\n\
         [groups.{TRAVEL}]\nroutes = [{{ channel = \"whatsapp\", chat = {chat:?} }}]\n\
         [groups.{NIGHT}]\nroutes = [{in_slack}]\n\
         session = {{ start = {{ command = [{program:?}, \"sim\", \"agent\", {began:?}] }} }}\n\
         [slack]\nbot_token = {bot:?}\napp_token = {app:?}\napi_url = {api:?}\n{whatsapp}",
        in_slack = format!("{{ channel = \"slack\", chat = {CHANNEL:?}, responders = \"anyone\" }}"),
        chat = phone::ADA,
        bot = slack::BOT_TOKEN,
        app = slack::APP_TOKEN,
        api = slack.api_url(),
        whatsapp = phone.settings(),
    ));
    Ok(settings?)
}

async fn wait_for(there: impl Fn() -> bool) -> anyhow::Result<()> {
    let clock = Clock::system();
    let looking = async {
        while !there() {
            clock.sleep(LOOK_EVERY).await;
        }
    };
    clock.timeout(PATIENCE, looking).await.context("waited too long")
}

#[cfg(test)]
mod tests {
    use super::from_outside;

    #[test]
    fn a_program_in_a_container_is_called_through_its_engine() {
        let id = "4f5c".repeat(16);
        let overlay =
            format!("21 1 0:40 / / rw - overlay overlay rw,upperdir=/var/lib/docker/overlay2/{}/diff", "ab".repeat(32));
        let docker = format!(
            "{overlay}\n30 21 8:1 /var/lib/docker/containers/{id}/hostname /etc/hostname rw - ext4 /dev/sda1 rw"
        );
        assert_eq!(from_outside("/askd", &docker), "docker exec -it 4f5c4f5c4f5c /askd");
        let podman = format!(
            "{overlay}\n30 21 0:50 /containers/overlay-containers/{id}/userdata/hostname /etc/hostname rw - tmpfs tmpfs rw\n\
             31 21 0:50 /containers/overlay-containers/{id}/userdata/.containerenv /run/.containerenv rw - tmpfs tmpfs rw"
        );
        assert_eq!(from_outside("/askd", &podman), "podman exec -it 4f5c4f5c4f5c /askd");
        assert_eq!(from_outside("/askd", &overlay), "docker exec -it <container> /askd");
    }
}
