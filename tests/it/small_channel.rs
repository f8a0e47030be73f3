//! A channel of its own, built against the port alone: a notice board. It shows that a new channel needs no change of the
//! core, the broker or the store. `CONTRIBUTING.md` tells how to add one.

use crate::timing::until;
use askd::testing::{Adapter, Broker, CHANNELS, Channel, Clock, Daemon, Progress, RouteSettings, Settings, Updated};
use askd_core::{Ask, AskId, Capabilities, ChannelName, Event, Given, Person, Posted, Reply, Responders, Source, Via};
use async_trait::async_trait;
use std::sync::{Arc, Mutex, OnceLock};
use tokio_util::sync::CancellationToken;

/// The notices on the board, by number.
static BOARD: Mutex<Vec<(AskId, String)>> = Mutex::new(Vec::new());
static BROKER: OnceLock<Broker> = OnceLock::new();

#[derive(Debug)]
struct NoticeBoard;

fn name() -> ChannelName {
    "notice_board".parse().unwrap()
}

#[async_trait]
impl Channel for NoticeBoard {
    fn name(&self) -> ChannelName {
        name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { edits: true, forms: true, ..Capabilities::default() }
    }

    async fn post(&self, ask: &Ask, _route: usize, _attempt: u8, _progress: Progress<'_>) -> Option<Posted> {
        let mut board = BOARD.lock().unwrap();
        board.push((ask.id, ask.content.questions[0].text.clone()));
        Some(Posted::Shown((board.len() - 1).to_string()))
    }

    async fn update(&self, ask: &Ask, route: usize) -> Updated {
        let mut board = BOARD.lock().unwrap();
        for number in ask.widgets[route].messages() {
            board[number.parse::<usize>().unwrap()].1 = ask.closing_line().unwrap();
        }
        Updated::Done
    }
}

impl Adapter for NoticeBoard {
    fn start(&self, broker: &Broker) {
        BROKER.set(broker.clone()).unwrap();
    }
}

fn notice() -> Option<(AskId, String)> {
    BOARD.lock().unwrap().first().cloned()
}

#[tokio::test]
async fn a_channel_of_its_own_asks_takes_an_answer_and_closes_its_card() {
    let dir = tempfile::tempdir().unwrap();
    let settings = format!("data_dir = \"{}\"\n[http]\nlisten = \"127.0.0.1:0\"\n", dir.path().display());
    let mut settings = Settings::from_toml(&settings).unwrap();
    let responders = Some(Responders::Only(vec!["ada".to_owned()]));
    settings
        .add_group("g", vec![RouteSettings { channel: name(), chat: "hall".to_owned(), responders, time_zone: None }]);

    let channels = [CHANNELS, &[(name(), |_, _, _| Ok(Some(Arc::new(NoticeBoard))))]].concat();
    let daemon = Daemon::open_with(&channels, Vec::new(), settings, Clock::system()).await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(daemon.run(stop.clone(), || ()));

    let group = dir.path().join("ipc/g");
    until("the folders", || group.join("responses").is_dir()).await;
    let request =
        r#"{"type":"ask_user:ask","request_id":"r1","questions":[{"question":"Go?","options":["yes","no"]}]}"#;
    std::fs::write(group.join(".tmp"), request).unwrap();
    std::fs::rename(group.join(".tmp"), group.join("tasks/r1.json")).unwrap();
    until("the notice", || notice().is_some()).await;
    let (id, text) = notice().unwrap();
    assert_eq!(text, "Go?");

    let says = |who: &str| Event::Replied {
        source: Source::Route(0),
        person: Person { via: Via::Channel(name()), id: who.to_owned(), name: None },
        reply: Reply::Whole(vec![(0, Given { picks: vec![0], text: None })]),
    };
    let broker = BROKER.get().unwrap();
    broker.apply(id, says("eve")).await.unwrap_err();
    broker.apply(id, says("ada")).await.unwrap();
    until("the response", || group.join("responses/r1.json").is_file()).await;
    until("the closed notice", || notice().unwrap().1 != "Go?").await;
    assert_eq!(notice().unwrap().1, "Answered: yes by ada");
    stop.cancel();
    running.await.unwrap().unwrap();
}
