//! The promises of the core, held against random lives: events in any order, at any time, of any
//! route, sensible or not.

use super::*;
use crate::{
    Capabilities, ChannelName, Choice, Draft, Given, Heard, Kind, Names, Questions, Reason, Reply, RequestId,
    Responders, Route, TimeoutPolicy, Trouble, Via,
};
use proptest::prelude::*;
use std::time::Duration;

pub(super) const START: Time = Time::from_millis(1_760_000_000_000);

pub(super) fn request_id(number: u8) -> RequestId {
    format!("r{number}").parse().unwrap()
}

pub(super) fn waiter(number: u8) -> Waiter {
    Waiter {
        request_id: request_id(number),
        digest: Digest::from_bytes([number; 32]),
        op_code: None,
        on_timeout: TimeoutPolicy::ReturnCancel,
        process: None,
        other_session: (number % 3 == 2).then(|| "another".to_owned()),
        briefed: None,
        asked_at: START,
        run: None,
        told: Told::Outcome,
        carrier: if number % 2 == 1 { Carrier::Http { taken_by: None } } else { Carrier::File },
        replaced: false,
        claim: None,
        response: Delivery::default(),
    }
}

fn questions(count: usize) -> Questions {
    let drafts = (0..count).map(|n| Draft {
        text: format!("q{n}"),
        required: Some(n % 2 == 0),
        choices: (0..3).map(|c| Choice { label: format!("c{c}"), description: None, style: None }).collect(),
        kind: Some(if n == 2 { Kind::MultiSelect } else { Kind::Select }.name().to_owned()),
        ..Draft::default()
    });
    Questions::new("r0", drafts.collect()).unwrap()
}

pub(super) fn begin(channels: &[ChannelName], question_count: usize, max_retries: u8) -> Step {
    begin_in(channels, question_count, max_retries, SessionRules::default(), TimeoutPolicy::ReturnCancel)
}

fn begin_in(
    channels: &[ChannelName],
    question_count: usize,
    max_retries: u8,
    session: SessionRules,
    on_timeout: TimeoutPolicy,
) -> Step {
    Ask::accept(accepted_in(channels, question_count, max_retries, session, on_timeout), START)
}

pub(super) fn accepted(channels: &[ChannelName], question_count: usize, max_retries: u8) -> Accepted {
    accepted_in(channels, question_count, max_retries, SessionRules::default(), TimeoutPolicy::ReturnCancel)
}

fn accepted_in(
    channels: &[ChannelName],
    question_count: usize,
    max_retries: u8,
    session: SessionRules,
    on_timeout: TimeoutPolicy,
) -> Accepted {
    let routes = channels.iter().map(|channel| Route {
        channel: *channel,
        chat: "C1".to_owned(),
        responders: Responders::Only(vec!["alice".to_owned(), "bob".to_owned()]),
        capabilities: Capabilities::before_they_were_stored(*channel),
    });
    Accepted {
        id: AskId::from_bits(1),
        short_id: "k7".parse().unwrap(),
        group: "g".parse().unwrap(),
        content: Content { title: None, context: None, questions: questions(question_count) },
        rules: Rules {
            timeout: Duration::from_secs(600),
            render_timeout: Duration::from_secs(30),
            max_retries,
            remind_after: Some(Duration::from_secs(60)),
            escalate_after: (question_count > 1).then_some(Duration::from_secs(45)),
            keep: Duration::from_secs(86_400),
            session,
        },
        routes: routes.collect(),
        key: None,
        session: None,
        waiter: Waiter { on_timeout, ..waiter(0) },
    }
}

pub(super) fn channel() -> impl Strategy<Value = ChannelName> {
    prop_oneof![Just(ChannelName::SLACK), Just(ChannelName::WHATSAPP), Just(ChannelName::WEB)]
}

fn given() -> impl Strategy<Value = Given> {
    (proptest::collection::vec(0..4_usize, 0..3), proptest::option::of("[a-z ]{0,4}"))
        .prop_map(|(picks, text)| Given { picks, text })
}

/// A message that quotes half of the time; otherwise it was received at any second of the first hour, or at an unknown
/// time.
fn heard() -> impl Strategy<Value = Heard> {
    let names = prop_oneof![2 => Just(Names::Message), 1 => Just(Names::Code), 1 => Just(Names::Nothing)];
    let at = proptest::option::weighted(0.8, (0..3_600_u64).prop_map(|at| START + Duration::from_secs(at)));
    ("[a-f]", at, names).prop_map(|(message, at, names)| Heard { message, at, names })
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        3 => proptest::collection::vec((0..4_usize, given()), 0..4).prop_map(Reply::Whole),
        6 => (0..4_usize, given(), heard()).prop_map(|(index, given, heard)| Reply::Told { index, given, heard }),
        1 => Just(Reply::Dismiss),
        1 => heard().prop_map(Reply::ToldDismiss),
    ]
}

pub(super) fn person() -> impl Strategy<Value = Person> {
    let via = prop_oneof![
        Just(Via::Channel(ChannelName::SLACK)),
        Just(Via::Channel(ChannelName::WHATSAPP)),
        Just(Via::Web),
        Just(Via::Cli),
        Just(Via::Api)
    ];
    (via, prop_oneof![Just("alice"), Just("bob"), Just("mallory"), Just("operator")]).prop_map(|(via, id)| Person {
        via,
        id: id.to_owned(),
        name: None,
    })
}

fn left() -> impl Strategy<Value = Option<Left>> {
    let at = |seconds| START + Duration::from_secs(seconds);
    proptest::option::of((0..900_u64).prop_map(move |seconds| Left { called: at(seconds), by: at(seconds + 1) }))
}

fn posted() -> impl Strategy<Value = Posted> {
    prop_oneof![
        3 => Just(Posted::Shown("m1".to_owned())),
        2 => left().prop_map(|left| Posted::Accepted(vec!["m2".to_owned(), "m3".to_owned()], left)),
        1 => Just(Posted::Held("m4".to_owned())),
        2 => proptest::option::of(0..20_000_u64).prop_map(not_posted),
        2 => left().prop_map(Posted::Unknown),
        1 => Just(never()),
    ]
}

fn never() -> Posted {
    Posted::Never { trouble: Trouble::ChatNotFound, why: "channel_not_found".to_owned() }
}

fn not_posted(retry_after_millis: Option<u64>) -> Posted {
    Posted::NotPosted { retry_after_millis, trouble: Trouble::NoConnection }
}

fn found() -> impl Strategy<Value = Found> {
    prop_oneof![Just(Found::Widget("m3".to_owned())), Just(Found::Absent), Just(Found::CannotKnow)]
}

fn undelivered() -> impl Strategy<Value = Undelivered> {
    prop_oneof![
        Just(Undelivered::WindowClosed),
        Just(Undelivered::ForNow(None)),
        Just(Undelivered::ForNow(Some(Duration::from_secs(4)))),
        Just(Undelivered::ForGood),
    ]
}

fn fate() -> impl Strategy<Value = MessageStatus> {
    prop_oneof![
        Just(MessageStatus::Known),
        Just(MessageStatus::Taken),
        Just(MessageStatus::Displayed),
        undelivered().prop_map(|why| MessageStatus::Failed { why, trouble: Trouble::WindowClosed }),
    ]
}

fn face() -> impl Strategy<Value = Face> {
    let remark = prop_oneof![Just(Remark::Plain), Just(Remark::Late), Just(Remark::Overdue), Just(Remark::Started)];
    prop_oneof![
        1 => Just(Face::Open),
        2 => (0..9_u32).prop_map(|times| Face::Blocked { times }),
        2 => remark.prop_map(Face::Closed),
    ]
}

fn tried() -> impl Strategy<Value = Tried> {
    prop_oneof![
        1 => any::<bool>().prop_map(|accepted| Tried::Started { accepted }),
        1 => Just(Tried::StartedBefore),
        2 => Just(Tried::Running),
        1 => Just(Tried::Nothing),
        1 => Just(Tried::Read),
        2 => Just(Tried::Failed("away".to_owned())),
    ]
}

/// What belongs to the session, and to what comes after the decision.
fn after_event() -> impl Strategy<Value = Event> {
    let whose = || (0..4_u8).prop_map(request_id);
    prop_oneof![
        1 => whose().prop_map(|request_id| WaiterEvent::Identified { run: "c@1".to_owned() }.of(request_id)),
        1 => (proptest::option::of(whose()), 0..3_000_u64).prop_map(|(whose, seconds)| {
            let since = START + Duration::from_secs(seconds);
            DeliveryEvent::Taken { since }.to(whose.map_or(Taker::Briefing, Taker::Waiter))
        }),
        1 => (proptest::option::of(whose()), 0..3_000_u64).prop_map(|(whose, seconds)| {
            let since = START + Duration::from_secs(seconds);
            DeliveryEvent::Lost { since }.to(whose.map_or(Taker::Briefing, Taker::Waiter))
        }),
        3 => whose().prop_map(|request_id| WaiterEvent::Died.of(request_id)),
        2 => whose().prop_map(|request_id| WaiterEvent::Resumed.of(request_id)),
        1 => whose().prop_map(|request_id| WaiterEvent::Collected { by: "t".to_owned() }.of(request_id)),
        3 => (whose(), any::<bool>()).prop_map(|(request_id, gone)| DeliveryEvent::TakenBack { taken: gone }.of(request_id)),
        3 => (1..3_u32).prop_map(|nth| Event::FollowUp(FollowUpEvent::Briefed { nth })),
        1 => any::<bool>().prop_map(|gone| DeliveryEvent::TakenBack { taken: gone }.to(Taker::Briefing)),
        3 => ((1..3_u32), tried()).prop_map(|(nth, what)| Event::FollowUp(FollowUpEvent::Tried { nth, what })),
        1 => proptest::collection::vec(whose(), 0..3).prop_map(|whose| Event::Requested(Relation::Reclaims(whose))),
        1 => (0..6_u8).prop_map(|n| Event::Requested(Relation::JoinsSettled(Box::new(waiter(n))))),
        1 => (0..6_u8).prop_map(|n| Event::Requested(Relation::Shares(Box::new(waiter(n))))),
        1 => whose().prop_map(|request_id| Event::Requested(Relation::Replays(request_id, None))),
        1 => Just(Event::Requested(Relation::Supersedes)),
        1 => any::<bool>().prop_map(|done| Event::FollowUp(FollowUpEvent::Stopped(done))),
        1 => any::<bool>().prop_map(|away| Event::FollowUp(FollowUpEvent::HostAway(away))),
    ]
}

fn session() -> impl Strategy<Value = (SessionRules, TimeoutPolicy)> {
    let late = prop_oneof![Just(Duration::ZERO), Just(Duration::from_secs(3_600))];
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), late).prop_map(
        |(probe, start, stop, abort, late_answers)| {
            let policy = if abort && stop { TimeoutPolicy::AbortTask } else { TimeoutPolicy::ReturnCancel };
            (SessionRules { late_answers, probe, start, stop, ..SessionRules::default() }, policy)
        },
    )
}

/// An event, and how many seconds pass before it; `None`: the tick that is due.
pub(super) fn event() -> impl Strategy<Value = (Option<Event>, u64)> {
    let route = 0..3_usize;
    let event = prop_oneof![
        3 => Just(None),
        2 => Just(Some(Event::Tick)),
        1 => (0..4_u8).prop_map(|n| Some(Event::Requested(Relation::Joins(Box::new(waiter(n)))))),
        1 => (0..4_u8).prop_map(|n| Some(WaiterEvent::Withdrawn.of(request_id(n)))),
        1 => person().prop_map(|person| Some(Event::Cancel(person))),
        3 => route.clone().prop_map(|route| Some(WidgetEvent::SlotGranted.on(route))),
        4 => (route.clone(), 1..4_u8, posted())
            .prop_map(|(route, attempt, posted)| Some(WidgetEvent::Posted { attempt, posted }.on(route))),
        2 => (route.clone(), found()).prop_map(|(route, found)| Some(WidgetEvent::Looked(found).on(route))),
        1 => route.clone().prop_map(|route| Some(WidgetEvent::Proof.on(route))),
        1 => Just(Some(Event::Viewed)),
        1 => Just(Some(Event::Typing)),
        1 => Just(Some(Event::PowerLost)),
        1 => (route.clone(), 1..4_u8).prop_map(|(route, attempt)| Some(WidgetEvent::Progress { attempt }.on(route))),
        3 => (route.clone(), 1..6_u8, 0..4_usize, "[m-p]", fate(), 0..900_u64).prop_map(
            |(route, attempt, part, message, fate, at)| {
                let at = (at % 5 > 0).then(|| START + Duration::from_secs(at));
                Some(WidgetEvent::Status { attempt, question: part, message, status: fate, at }.on(route))
            },
        ),
        1 => route.clone().prop_map(|route| Some(WidgetEvent::Opened.on(route))),
        1 => (route.clone(), "m[1-5]").prop_map(|(route, message)| Some(WidgetEvent::Spotted(message).on(route))),
        1 => (route.clone(), "m[1-5]").prop_map(|(route, message)| Some(WidgetEvent::Gone(message).on(route))),
        1 => (route.clone(), any::<bool>()).prop_map(|(route, sent)| Some(WidgetEvent::Reminded { sent }.on(route))),
        4 => (proptest::option::of(route.clone()), person(), reply()).prop_map(|(route, person, reply)| {
            Some(Event::Replied { source: route.map_or(Source::Token, Source::Route), person, reply })
        }),
        2 => (0..4_u8).prop_map(|n| Some(DeliveryEvent::Written.of(request_id(n)))),
        2 => (0..4_u8).prop_map(|n| Some(DeliveryEvent::Published.of(request_id(n)))),
        2 => (0..8_u8).prop_map(|n| Some(Event::Requested(Relation::JoinsBlocked(Box::new(waiter(n)))))),
        1 => (proptest::option::of(route.clone()), person()).prop_map(|(route, person)| {
            Some(Event::Allow { source: route.map_or(Source::Token, Source::Route), person, heard: None })
        }),
        1 => proptest::option::of(person()).prop_map(|by| Some(Event::FollowUp(FollowUpEvent::Lifted { by }))),
        3 => (route, face()).prop_map(|(route, face)| Some(WidgetEvent::Updated(face).on(route))),
        6 => after_event().prop_map(Some),
    ];
    (event, prop_oneof![4 => 0..5_u64, 2 => 5..60_u64, 1 => 60..2_000_u64])
}

/// What a life is judged by.
#[derive(Default)]
struct Seen {
    outcome: Option<Outcome>,
    responds: Vec<RequestId>,
    sends: Vec<(usize, u8)>,
    /// Each beginning of a question on a route: the first, the ones after it, and what begins anew
    /// because the person had to write first.
    rounds: std::collections::HashSet<(usize, u8)>,
}

/// A briefing is for a session that waits and knows nothing yet.
fn judge_briefing(ask: &Ask) {
    let knows = |waiter: &Waiter| waiter.response.is_taken() && ask.is_told_all(waiter);
    assert!(ask.waiters.iter().any(|it| ask.briefs(it)), "briefed for nobody: {ask:?}");
    assert!(!ask.waiters.iter().any(|it| ask.briefs(it) && knows(it)), "told twice: {ask:?}");
}

fn judge(seen: &mut Seen, before: Option<&Ask>, event: Option<&Event>, step: &Step, now: Time) {
    let ask = &step.ask;
    if let Some(decided) = &seen.outcome {
        assert_eq!(ask.outcome(), Some(decided), "an outcome never changes");
    }
    if seen.outcome.is_none() && ask.outcome().is_some() {
        seen.outcome = ask.outcome().cloned();
        if let Some(Outcome::Answered { by, .. } | Outcome::Dismissed { by }) = ask.outcome() {
            let Some(Event::Replied { source, person, .. }) = event else { panic!("answered without a reply") };
            assert!(!before.is_some_and(|ask| ask.is_overdue(now)), "answered after its deadline");
            assert_eq!(by, person);
            match source {
                Source::Token => assert!(person.via.is_operator()),
                Source::Route(_) => assert!(matches!(person.id.as_str(), "alice" | "bob")),
            }
        }
        if ask.outcome() == Some(&Outcome::TimedOut) {
            let Some(Stage::Open { answer_by, .. }) = before.map(|ask| &ask.stage) else {
                panic!("timed out before it was shown")
            };
            assert!(*answer_by <= now, "timed out early");
        }
    }
    if let Some(before) = before
        && let Some(late) = before.late_outcome()
    {
        assert_eq!(ask.late_outcome(), Some(late), "one late answer is taken");
    }
    if let AfterTimeout::Answered { by, .. } = &ask.follow_up().after_timeout {
        assert_eq!(ask.outcome(), Some(&Outcome::TimedOut), "late is only what comes after a timeout");
        assert!(by.via.is_operator() || matches!(by.id.as_str(), "alice" | "bob"));
    }
    if let (Some(before), Some(Event::Replied { source: Source::Route(route), person, reply })) = (before, event)
        && let Some(heard) = reply.heard()
    {
        let asked =
            (0..ask.content.questions.len()).filter_map(|question| before.sending(*route, &person.id, question));
        let earlier = |sending: &Sending| sending.since().is_some_and(|since| heard.at.is_some_and(|at| at > since));
        assert!(heard.names == Names::Message || asked.into_iter().any(earlier), "from before it was sent: {event:?}");
        assert!(!before.was_told(&heard.message), "a message counts once: {event:?}");
    }
    let lost = matches!(event, Some(Event::PowerLost));
    if lost {
        // What was cut off does not count as a try.
        seen.sends.retain(|(route, attempt)| ask.widgets[*route].attempt != *attempt);
    }
    for effect in &step.effects {
        match effect {
            Effect::Widget { route, effect: WidgetEffect::Remind } => {
                assert!(ask.outcome().is_none(), "brought to mind after it was decided");
                assert!(matches!(ask.widgets[*route].state, WidgetState::Up { .. }));
            }
            // What may have been lost is told once more.
            Effect::Delivery { to: Taker::Waiter(_), effect: DeliveryEffect::Write } if lost => {}
            // The same request made once more is told once more.
            Effect::Delivery { to: Taker::Waiter(id), effect: DeliveryEffect::Write } if matches!(event, Some(Event::Requested(Relation::Replays(again, _))) if again == id) =>
                {}
            Effect::Delivery { to: Taker::Waiter(id), effect: DeliveryEffect::Write } => seen.responds.push(id.clone()),
            Effect::Delivery { to: Taker::Briefing, effect: DeliveryEffect::Write } if !lost => judge_briefing(ask),
            Effect::FollowUp(FollowUpEffect::Start) => {
                assert!(ask.is_worth_a_start(), "started without a person having said anything");
            }
            Effect::FollowUp(FollowUpEffect::Stop) => {
                assert_eq!(ask.outcome(), Some(&Outcome::TimedOut));
                assert!(lost || ask.has_responded(), "the response comes first");
            }
            Effect::Widget { route, effect: WidgetEffect::Send { attempt } } => {
                assert!(ask.outcome().is_none(), "posted after it was decided");
                if !ask.counts(*route) {
                    assert!(ask.viewed, "only a viewed ask is tried on");
                    continue;
                }
                assert!(!seen.sends.contains(&(*route, *attempt)), "one try is sent once");
                seen.sends.push((*route, *attempt));
                seen.rounds.insert((*route, ask.widgets[*route].one_by_one.first_attempt));
            }
            Effect::Retire | Effect::Forget => assert!(ask.outcome().is_some()),
            Effect::Widget {
                effect:
                    WidgetEffect::Queue { .. } | WidgetEffect::Look | WidgetEffect::Await { .. } | WidgetEffect::Update,
                ..
            }
            | Effect::Delivery { .. }
            | Effect::FollowUp(FollowUpEffect::Tidy)
            | Effect::Status
            | Effect::Identify(_)
            | Effect::Note(_) => {}
        }
    }
    judge_cards(before, event, step);
    let put_away = step.effects.iter().any(|effect| matches!(effect, Effect::Retire | Effect::Forget));
    assert!(put_away || !ask.owes_nothing(), "what owes nothing is put away: {step:?}");
    for widget in &ask.widgets {
        let mut messages: Vec<&str> = widget.messages().collect();
        messages.sort_unstable();
        messages.dedup();
        assert_eq!(messages.len(), widget.posts.len(), "a message is known once");
    }
    if let Stage::Open { shown_at, answer_by, reminders, .. } = ask.stage {
        assert!(reminders <= 3);
        let more = if ask.extended { clock::TO_FINISH } else { Duration::ZERO };
        assert_eq!(answer_by, shown_at + ask.rules.timeout + more);
        assert!(shown_at <= now && shown_at >= START);
    }
}

/// Every card shows what it has to, or is being changed, one change at a time.
pub(super) fn judge_cards(before: Option<&Ask>, event: Option<&Event>, step: &Step) {
    let ask = &step.ask;
    let changing = |ask: &Ask, route: usize| match ask.widgets.get(route)?.state.card()? {
        Card::Changing { again } => Some(again),
        Card::Shows(_) => None,
    };
    for (route, widget) in ask.widgets.iter().enumerate() {
        let posts = widget.route.posts();
        let begins = step.effects.contains(&WidgetEffect::Update.on(route));
        let was = before.and_then(|before| changing(before, route));
        // After a loss of power no change is under way.
        let lost = matches!(event, Some(Event::PowerLost));
        let ended =
            lost || matches!(event, Some(Event::Widget { route: of, event: WidgetEvent::Updated(_) }) if *of == route);
        let recorded = |again: bool| lost || !again;
        assert!(!begins || (posts && changing(ask, route).is_some_and(recorded)), "changed without a record: {step:?}");
        assert!(!begins || was.is_none() || ended, "two changes at a time: {event:?} {step:?}");
        match widget.state.card() {
            Some(Card::Shows(face)) => assert!(!posts || face == ask.face(), "it shows something old: {step:?}"),
            Some(Card::Changing { .. }) => assert!(ask.resume().contains(&WidgetEffect::Update.on(route))),
            None => {}
        }
        let closed = matches!(widget.state, WidgetState::Closed { .. });
        assert!(!closed || ask.is_over(), "closed while people can use it: {step:?}");
        let again = was == Some(false) && changing(ask, route) == Some(true);
        let spotted = matches!(event, Some(Event::Widget { event: WidgetEvent::Spotted(_), .. }));
        let edits = widget.route.capabilities.edits;
        assert!(!again || edits || spotted, "told twice how it ended: {event:?} {step:?}");
    }
    if let Some(Event::Widget { route, event: WidgetEvent::Spotted(message) }) = event {
        let widget = &ask.widgets[*route];
        assert!(widget.knows(message), "what was spotted is known, so that it is closed");
        let again = before.and_then(|before| changing(before, *route)).is_some();
        let updates = changing(ask, *route) == Some(again);
        assert!(!ask.is_over() || updates || !widget.route.posts(), "spotted too late: closed too");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever an ask becomes, its record says all of it.
    #[test]
    fn every_state_survives_its_record(
        channels in proptest::collection::vec(channel(), 1..4),
        question_count in 1..4_usize,
        (session, on_timeout) in session(),
        blocked in any::<bool>(),
        events in proptest::collection::vec(event(), 0..30),
    ) {
        let new = accepted_in(&channels, question_count, 2, session, on_timeout);
        let mut ask = if blocked { Ask::blocked(new, 5, 6, START).ask } else { Ask::accept(new, START).ask };
        let mut now = START;
        for (event, seconds) in events {
            now = now + Duration::from_secs(seconds);
            if let Ok(Some(step)) = ask.clone().step(event.unwrap_or(Event::Tick), now) {
                ask = step.ask;
            }
            let record = serde_json::to_string(&ask).unwrap();
            prop_assert_eq!(serde_json::from_str::<Ask>(&record).unwrap(), ask.clone(), "{}", record);
        }
    }
}

/// The longest a life can take: a handful of ticks for each try of each route, and the end.
pub(super) const TICKS_TO_THE_END: usize = 100;

/// Far more than one round of work can make for the host: work that grows from round to round has no end.
pub(super) const EVENTS_OF_A_ROUND: usize = 500;

/// What a start of the daemon finds to do; `lost`: after a loss of power.
pub(super) fn restarted(ask: &mut Ask, lost: bool, now: Time) -> Vec<Effect> {
    let step = lost.then(|| ask.clone().step(Event::PowerLost, now).unwrap()).flatten();
    assert_eq!(step.is_some(), lost && ask.is_changed_by_loss());
    if let Some(step) = step {
        assert_eq!(step.ask.outcome(), ask.outcome(), "a loss decides nothing");
        let assumed =
            |waiter: &Waiter| matches!(waiter.response.state(), DeliveryState::Ready | DeliveryState::Published { .. });
        assert!(!step.ask.waiters.iter().any(assumed) && !step.ask.has_briefing(), "nothing is assumed");
        let sent = |widget: &Widget| matches!(widget.state, WidgetState::Sent { .. });
        assert!(!step.ask.widgets.iter().any(sent), "nothing is on its way");
        *ask = step.ask;
        return step.effects;
    }
    let mut owed = ask.resume();
    if let Ok(Some(step)) = ask.clone().step(Event::Interrupted, now) {
        *ask = step.ask;
        owed.extend(step.effects);
    }
    owed
}

/// What comes back from a host to which nothing bad happens.
pub(super) fn carried_out(ask: &Ask, effect: Effect, now: &mut Time) -> Option<Event> {
    match effect {
        Effect::Widget { route, effect } => {
            let event = match effect {
                WidgetEffect::Queue { not_before } => {
                    *now = (*now).max(not_before);
                    WidgetEvent::SlotGranted
                }
                WidgetEffect::Send { attempt } => {
                    WidgetEvent::Posted { attempt, posted: Posted::Shown(format!("m{route}")) }
                }
                WidgetEffect::Look => WidgetEvent::Looked(Found::Absent),
                WidgetEffect::Await { .. } => WidgetEvent::Opened,
                WidgetEffect::Update => WidgetEvent::Updated(ask.face()),
                WidgetEffect::Remind => return None,
            };
            Some(event.on(route))
        }
        Effect::Delivery { to, effect } => {
            let event = match (&to, effect) {
                (Taker::Waiter(_), DeliveryEffect::Write) => DeliveryEvent::Written,
                (Taker::Waiter(_), DeliveryEffect::Publish) => DeliveryEvent::Published,
                (Taker::Briefing, DeliveryEffect::Write | DeliveryEffect::Publish) => {
                    let nth = ask.follow_up().briefings;
                    return Some(Event::FollowUp(FollowUpEvent::Briefed { nth }));
                }
                (_, DeliveryEffect::TakeBack { .. }) => DeliveryEvent::TakenBack { taken: false },
            };
            Some(event.to(to))
        }
        Effect::FollowUp(effect) => match effect {
            FollowUpEffect::Start => {
                let nth = ask.follow_up().briefings;
                Some(FollowUpEvent::Tried { nth, what: Tried::Started { accepted: true } })
            }
            FollowUpEffect::Stop => Some(FollowUpEvent::Stopped(true)),
            FollowUpEffect::Tidy => None,
        }
        .map(Event::FollowUp),
        Effect::Status | Effect::Identify(_) | Effect::Note(_) | Effect::Retire | Effect::Forget => None,
    }
}

fn live(first: Step, events: Vec<(Option<Event>, u64)>) {
    let retries = first.ask.rules.max_retries;
    let mut seen = Seen::default();
    let mut now = START;
    judge(&mut seen, None, None, &first, now);
    let mut ask = first.ask;
    let mut apply = |ask: Ask, event: Event, now: Time| match ask.clone().step(event.clone(), now) {
        Ok(Some(step)) => {
            judge(&mut seen, Some(&ask), Some(&event), &step, now);
            step.ask
        }
        Ok(None) | Err(_) => ask,
    };
    for (event, seconds) in events {
        now = now + Duration::from_secs(seconds);
        let due = ask.deadline();
        let event = match event {
            Some(event) => event,
            None if due == Time::MAX => Event::Tick,
            None => {
                now = now.max(due);
                Event::Tick
            }
        };
        ask = apply(ask, event, now);
    }
    // From here on nothing but time happens: it must end, and every tick must move something.
    for _ in 0..TICKS_TO_THE_END {
        if ask.outcome().is_some() {
            break;
        }
        let due = ask.deadline();
        assert_ne!(due, Time::MAX, "an open ask always has a deadline: {ask:?}");
        now = now.max(due);
        let before = ask.clone();
        ask = apply(ask, Event::Tick, now);
        assert!(ask != before, "a tick at the deadline moves it: {ask:?}");
    }
    assert!(ask.outcome().is_some(), "ticks alone end every ask: {ask:?}");
    // Whoever waits is told, once.
    let mut told = seen.responds.clone();
    told.sort();
    let mut waiting: Vec<RequestId> = ask.waiters.iter().map(|waiter| waiter.request_id.clone()).collect();
    waiting.sort();
    assert_eq!(told, waiting, "exactly one response for each waiter");
    for (route, widget) in ask.widgets.iter().enumerate() {
        let rounds = seen.rounds.iter().filter(|(r, _)| *r == route).count();
        let sends = seen.sends.iter().filter(|(r, _)| *r == route).count();
        let allowed = if widget.route.channel == ChannelName::WEB { 0 } else { (usize::from(retries) + 1) * rounds };
        assert!(sends <= allowed, "posted {sends} times, {allowed} allowed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_life_keeps_the_promises(
        channels in proptest::collection::vec(channel(), 1..4),
        question_count in 1..4_usize,
        max_retries in 0..4_u8,
        (session, on_timeout) in session(),
        events in proptest::collection::vec(event(), 0..30),
    ) {
        live(begin_in(&channels, question_count, max_retries, session, on_timeout), events);
    }

    /// After a restart the effects that are still owed carry the ask to its end.
    #[test]
    fn what_is_owed_after_a_restart_finishes_it(
        channels in proptest::collection::vec(channel(), 1..4),
        (session, on_timeout) in session(),
        events in proptest::collection::vec(event(), 0..20),
        lost in any::<bool>(),
    ) {
        let mut ask = begin_in(&channels, 2, 2, session, on_timeout).ask;
        let mut now = START;
        for (event, seconds) in events {
            now = now + Duration::from_secs(seconds);
            let event = event.unwrap_or(Event::Tick);
            if let Ok(Some(step)) = ask.clone().step(event, now) {
                ask = step.ask;
            }
        }
        let mut owed = restarted(&mut ask, lost, now);
        for _ in 0..2 * TICKS_TO_THE_END {
            let mut next = Vec::new();
            let mut events = Vec::new();
            for effect in owed.drain(..) {
                events.extend(carried_out(&ask, effect, &mut now));
            }
            prop_assert!(events.len() < EVENTS_OF_A_ROUND, "the work grows: {ask:?}");
            if events.is_empty() {
                if matches!(ask.stage, Stage::Settled { .. }) && ask.owes_nothing() && !ask.is_pending() {
                    break;
                }
                events.push(Event::Tick);
                now = now.max(ask.deadline());
            }
            for event in events {
                if let Ok(Some(step)) = ask.clone().step(event, now) {
                    ask = step.ask;
                    next.extend(step.effects);
                }
            }
            owed = next;
        }
        prop_assert!(ask.outcome().is_some() && ask.owes_nothing() && !ask.is_pending(), "{ask:?}");
        // Briefings follow one another: whoever reads one makes room for the next.
        while let Some(since) = ask.follow_up().briefing.published_at() {
            for event in [
                DeliveryEvent::Taken { since }.to(Taker::Briefing),
                Event::FollowUp(FollowUpEvent::Briefed { nth: ask.follow_up().briefings + 1 }),
            ] {
                ask = ask.clone().step(event, now).unwrap().map_or(ask, |step| step.ask);
            }
        }
        // What a person said reached each session that waited: by a response that was taken, or by a briefing.
        let reached = |waiter: &Waiter| !waiter.waits() || ask.is_served(waiter);
        prop_assert!(!ask.is_worth_a_start() || ask.waiters.iter().all(reached), "{ask:?}");
    }
}

#[test]
fn listing_starts_the_clock_and_a_beacon_is_the_proof() {
    let ask = begin(&[ChannelName::WEB], 1, 3).ask;
    let answer_by = START + Duration::from_secs(600);
    assert_eq!(ask.stage, Stage::Open { shown_at: START, answer_by, reminders: 0, escalations: 0 });
    assert!(!ask.confirmed);
    let seen = ask.step(WidgetEvent::Proof.on(0), START + Duration::from_secs(5)).unwrap().unwrap().ask;
    assert!(seen.confirmed);
    assert_eq!(seen.shown_at(), Some(START), "a proof never restarts a clock");
    assert_eq!(seen.clone().step(WidgetEvent::Proof.on(0), START).unwrap(), None, "a second one changes nothing");
}

#[test]
fn a_card_of_several_messages_is_given_up_only_when_none_was_taken_for_so_long() {
    let (sent, attempt) = (START + Duration::from_secs(1), 1);
    let step = |ask: Ask, event, now| ask.step(event, now).unwrap().map(|step| step.ask);
    let ask = step(begin(&[ChannelName::SLACK], 1, 3).ask, WidgetEvent::SlotGranted.on(0), sent).unwrap();
    let patience = ask.rules.render_timeout;
    let taken = sent + patience - Duration::from_secs(1);
    assert_eq!(step(ask.clone(), WidgetEvent::Progress { attempt: 2 }.on(0), taken), None, "of another try");
    let ask = step(ask, WidgetEvent::Progress { attempt }.on(0), taken).unwrap();
    assert_eq!(ask.deadline(), taken + patience);
    assert_eq!(step(ask.clone(), Event::Tick, sent + patience), None, "it would have been looked for by now");
    assert!(step(ask, Event::Tick, taken + patience).is_some());
}

#[test]
fn a_definite_failure_is_tried_again_after_1_4_16_seconds_and_then_reported() {
    let mut ask = begin(&[ChannelName::SLACK], 1, 3).ask;
    let mut now = START;
    let mut waits = Vec::new();
    for attempt in 1..=4 {
        ask = ask.step(WidgetEvent::SlotGranted.on(0), now).unwrap().unwrap().ask;
        let posted = not_posted(None);
        let step = ask.step(WidgetEvent::Posted { attempt, posted }.on(0), now).unwrap().unwrap();
        ask = step.ask;
        if let WidgetState::Queued { not_before, .. } = ask.widgets[0].state {
            waits.push(not_before.since(now).as_secs());
            now = not_before;
        }
    }
    assert_eq!(waits, [1, 4, 16]);
    let reason = Some(Reason { channel: ChannelName::SLACK, trouble: Trouble::NoConnection });
    assert_eq!(ask.outcome(), Some(&Outcome::Undelivered { cause: Cause { retries: Some(3), reason } }));
}

#[test]
fn a_lost_reply_is_looked_for_twice_before_anything_is_posted_again() {
    let after = |seconds| START + Duration::from_secs(seconds);
    let ask = begin(&[ChannelName::SLACK], 1, 3).ask.step(WidgetEvent::SlotGranted.on(0), START).unwrap().unwrap().ask;
    let unknown = WidgetEvent::Posted { attempt: 1, posted: Posted::Unknown(None) }.on(0);
    let step = ask.step(unknown, after(10)).unwrap().unwrap();
    assert!(step.effects.contains(&WidgetEffect::Look.on(0)));
    let absent = || WidgetEvent::Looked(Found::Absent).on(0);
    let once = step.ask.clone().step(absent(), after(11)).unwrap().unwrap().ask;
    assert_eq!(once.clone().step(absent(), after(12)).unwrap(), None, "the second look is not due yet");
    let again = once.step(Event::Tick, after(21)).unwrap().unwrap();
    assert!(again.effects.contains(&WidgetEffect::Look.on(0)));
    let posted = again.ask.clone().step(absent(), after(22)).unwrap().unwrap().ask;
    assert!(matches!(posted.widgets[0], Widget { attempt: 2, state: WidgetState::Queued { .. }, .. }));
    // Slack may allow one look in a minute: so long does a history that cannot be read not lead to a second card, and longer.
    assert_eq!(step.ask.deadline(), after(130));
    // Nor later, if it can be read before the second card is posted.
    let queued = step.ask.clone().step(Event::Tick, after(130)).unwrap().unwrap().ask;
    assert!(matches!(queued.widgets[0].state, WidgetState::Queued { .. }));
    let found =
        queued.step(WidgetEvent::Looked(Found::Widget("m1".to_owned())).on(0), after(131)).unwrap().unwrap().ask;
    assert!(matches!(found.widgets[0].state, WidgetState::Up { proven: true, .. }), "{:?}", found.widgets[0]);
    let found = again.ask.step(WidgetEvent::Looked(Found::Widget("m1".to_owned())).on(0), after(23));
    let found = found.unwrap().unwrap();
    // Its clock begins now, and the card was made before.
    assert!(found.effects.contains(&WidgetEffect::Update.on(0)));
    let found = found.ask;
    assert_eq!((found.widgets[0].messages().collect::<Vec<_>>(), found.shown_at()), (vec!["m1"], Some(after(23))));
}

#[test]
fn a_look_that_the_end_of_the_daemon_cut_off_has_its_whole_time_at_the_next_start() {
    let after = |seconds| START + Duration::from_secs(seconds);
    let sent = begin(&[ChannelName::SLACK], 1, 3).ask.step(WidgetEvent::SlotGranted.on(0), START).unwrap().unwrap().ask;
    let unknown = WidgetEvent::Posted { attempt: 1, posted: Posted::Unknown(None) }.on(0);
    let first = sent.step(unknown, START).unwrap().unwrap().ask;
    let absent = first.clone().step(WidgetEvent::Looked(Found::Absent).on(0), START).unwrap().unwrap().ask;
    let second = absent.step(Event::Tick, after(10)).unwrap().unwrap().ask;
    for cut_off in [first, second] {
        // Each life is too short for a look, and their time together is longer than a look may take.
        let mut ask = cut_off;
        for start in [100, 200, 500] {
            assert!(ask.was_interrupted());
            assert!(ask.resume().contains(&WidgetEffect::Look.on(0)));
            ask = ask.step(Event::Interrupted, after(start)).unwrap().unwrap().ask;
            assert_eq!(ask.clone().step(Event::Tick, after(start + 119)).unwrap(), None, "nothing is posted again");
        }
        let found = WidgetEvent::Looked(Found::Widget("m1".to_owned())).on(0);
        let up = ask.step(found, after(501)).unwrap().unwrap().ask;
        assert_eq!(up.widgets[0].messages().collect::<Vec<_>>(), ["m1"]);
    }
}

/// A post that a stop or a crash cuts off does not count as a try: with no retry left it is posted again. It may come up
/// after all, so that whoever closes the card looks for it.
#[test]
fn a_post_that_the_end_of_the_daemon_cut_off_was_no_try() {
    for (channel, found) in [
        (ChannelName::SLACK, Found::Absent),
        (ChannelName::SLACK, Found::CannotKnow),
        (ChannelName::WHATSAPP, Found::Absent),
        (ChannelName::WHATSAPP, Found::CannotKnow),
    ] {
        let mut ask = begin(&[channel], 1, 0).ask;
        let mut now = START;
        // However often it happens, and however long after its time the daemon starts again.
        for _ in 0..3 {
            ask = ask.step(WidgetEvent::SlotGranted.on(0), now).unwrap().unwrap().ask;
            assert!(ask.was_interrupted());
            now = now + Duration::from_secs(40);
            let step = ask.step(Event::Interrupted, now).unwrap().unwrap();
            assert_eq!(step.effects, [WidgetEffect::Look.on(0)]);
            let looked = WidgetEvent::Looked(found.clone()).on(0);
            let mut step = step.ask.step(looked.clone(), now).unwrap().unwrap();
            if matches!(step.ask.widgets[0].state, WidgetState::Unknown { .. }) {
                now = now + Duration::from_secs(10);
                let second = step.ask.step(Event::Tick, now).unwrap().unwrap();
                assert!(second.effects.contains(&WidgetEffect::Look.on(0)));
                step = second.ask.step(looked, now).unwrap().unwrap();
            }
            assert_eq!(step.effects, [WidgetEffect::Queue { not_before: now }.on(0)], "{channel:?} {found:?}");
            let widget = &step.ask.widgets[0];
            assert_eq!(widget.tries(), 1);
            assert_eq!(widget.may_be_up_twice(), channel == ChannelName::SLACK || found == Found::CannotKnow);
            ask = step.ask;
        }
        // It had left after all: a status says so before it is sent again.
        if channel == ChannelName::WHATSAPP && found == Found::CannotKnow {
            let (message, fate) = ("q".to_owned(), MessageStatus::Taken);
            let fate = WidgetEvent::Status { attempt: 1, question: 0, message, status: fate, at: None }.on(0);
            let up = ask.step(fate, now).unwrap().unwrap().ask;
            assert!(matches!(up.widgets[0].state, WidgetState::Up { .. }));
        }
    }
}

#[test]
fn a_card_that_turns_up_late_is_closed_too() {
    let spotted = |message: &str| WidgetEvent::Spotted(message.to_owned()).on(0);
    let ask = begin(&[ChannelName::SLACK], 1, 3).ask.step(WidgetEvent::SlotGranted.on(0), START).unwrap().unwrap().ask;
    let lost = WidgetEvent::Posted { attempt: 1, posted: not_posted(None) }.on(0);
    let queued = ask.step(lost, START).unwrap().unwrap().ask;
    let up = queued.step(spotted("m1"), START).unwrap().unwrap().ask;
    assert!(up.confirmed && up.shown_at() == Some(START));
    assert_eq!(up.clone().step(WidgetEvent::SlotGranted.on(0), START).unwrap(), None, "no second card");
    assert_eq!(up.clone().step(spotted("m1"), START).unwrap(), None);
    let settled = up.step(Event::Cancel(Person::operator(Via::Api)), START).unwrap().unwrap().ask;
    let closed = settled.step(WidgetEvent::Updated(Face::Closed(Remark::Plain)).on(0), START).unwrap().unwrap().ask;
    let step = closed.step(spotted("m2"), START).unwrap().unwrap();
    assert!(step.effects.contains(&WidgetEffect::Update.on(0)));
    assert!(step.ask.resume().contains(&WidgetEffect::Update.on(0)), "also after a restart");
}

#[test]
fn a_card_that_is_gone_is_posted_again_as_often_as_retries_allow_and_then_the_next_route_is_used() {
    let after = |seconds| START + Duration::from_secs(seconds);
    let step = |ask: Ask, event: WidgetEvent, at: u64| ask.step(event.on(0), after(at)).unwrap().unwrap();
    let gone = |message: &str| WidgetEvent::Gone(message.to_owned());
    let shown = |ask: Ask, attempt: u8, message: &str, at: u64| {
        let posted = Posted::Shown(message.to_owned());
        step(step(ask, WidgetEvent::SlotGranted, at).ask, WidgetEvent::Posted { attempt, posted }, at).ask
    };
    let missed = |ask: Ask, message: &str, at: u64| {
        let looks = step(ask, gone(message), at);
        assert!(looks.effects.contains(&WidgetEffect::Look.on(0)));
        let once = step(looks.ask, WidgetEvent::Looked(Found::Absent), at).ask;
        let again = once.step(Event::Tick, after(at + 10)).unwrap().unwrap().ask;
        step(again, WidgetEvent::Looked(Found::Absent), at + 10).ask
    };
    let up = shown(begin(&[ChannelName::SLACK, ChannelName::WEB], 1, 1).ask, 1, "m1", 0);
    assert_eq!(up.clone().step(gone("m0").on(0), after(1)).unwrap(), None, "another message");
    let copied = step(up.clone(), WidgetEvent::Spotted("m0".to_owned()), 1).ask;
    let copy = step(step(copied, gone("m1"), 2).ask, WidgetEvent::Looked(Found::Widget("m0".to_owned())), 2).ask;
    assert_eq!(copy.widgets[0].messages().next_back(), Some("m0"), "the copy that is left is the card");
    let settled = up.clone().step(Event::Cancel(Person::operator(Via::Api)), after(1)).unwrap().unwrap().ask;
    assert_eq!(settled.step(gone("m1").on(0), after(2)).unwrap(), None, "nobody needs a closed card");
    let queued = missed(up.clone(), "m1", 100);
    assert!(matches!(queued.widgets[0], Widget { attempt: 2, state: WidgetState::Queued { .. }, .. }));
    assert_eq!(queued.shown_at(), up.shown_at(), "the clock runs on");
    let next = missed(shown(queued, 2, "m2", 120), "m2", 200);
    assert!(matches!(next.widgets[0].state, WidgetState::Failed { .. }));
    assert_eq!((next.widgets.len(), next.outcome()), (2, None));
}

#[test]
fn what_was_read_or_is_there_anew_is_not_said_to_be_uncollected() {
    let rules = SessionRules { start: true, ..SessionRules::default() };
    let mut ask = begin_in(&[ChannelName::WHATSAPP], 1, 3, rules, TimeoutPolicy::ReturnCancel).ask;
    ask.0.waiters[0].process = Some("p".to_owned());
    let step = |ask: Ask, event: Event, now: Time| ask.step(event, now).unwrap().unwrap().ask;
    let published = |ask: Ask, now: Time| {
        let ready = step(ask, DeliveryEvent::Written.of(request_id(0)), now);
        step(ready, DeliveryEvent::Published.of(request_id(0)), now)
    };
    let later = START + Duration::from_secs(700);
    let overdue = step(published(step(up(ask, 1, "q1"), told("alice", 0, "m1"), START), START), Event::Tick, later);
    assert_eq!(overdue.remark(), Remark::Overdue);
    let anew = step(overdue.clone(), Event::Requested(Relation::Replays(request_id(0), None)), later);
    assert_eq!(anew.remark(), Remark::Plain, "it is written again");
    let dead = step(overdue, WaiterEvent::Died.of(request_id(0)), later);
    let back = step(dead, DeliveryEvent::TakenBack { taken: false }.of(request_id(0)), later);
    let read = step(
        step(back, Event::FollowUp(FollowUpEvent::Briefed { nth: 1 }), later),
        Event::FollowUp(FollowUpEvent::Tried { nth: 1, what: Tried::Read }),
        later,
    );
    assert_eq!((read.follow_up().briefing.is_taken(), read.remark()), (true, Remark::Plain));
}

#[test]
fn an_open_ask_is_brought_to_mind_three_times_and_shown_on_the_next_route() {
    let ask = begin(&[ChannelName::SLACK, ChannelName::WEB], 2, 3)
        .ask
        .step(WidgetEvent::SlotGranted.on(0), START)
        .unwrap()
        .unwrap()
        .ask;
    let posted = WidgetEvent::Posted { attempt: 1, posted: Posted::Shown("m1".to_owned()) }.on(0);
    let mut ask = ask.step(posted, START).unwrap().unwrap().ask;
    let (mut reminded, mut shown) = (Vec::new(), Vec::new());
    while ask.outcome().is_none() {
        let now = ask.deadline();
        let step = ask.step(Event::Tick, now).unwrap().unwrap();
        if step.effects.contains(&WidgetEffect::Remind.on(0)) {
            reminded.push(now.since(START).as_secs());
        }
        if step.effects.contains(&Effect::Note(Fact::Escalated { route: 1 })) {
            shown.push(now.since(START).as_secs());
        }
        ask = step.ask;
    }
    assert_eq!((reminded, shown), (vec![60, 180, 420], vec![45]));
    assert_eq!(ask.outcome(), Some(&Outcome::TimedOut), "after 600 s from the first proof, whatever was shown later");
}

#[test]
fn what_no_retry_mends_is_reported_at_once_or_goes_to_the_next_route() {
    let never = |ask: Ask, route| {
        let ask = ask.step(WidgetEvent::SlotGranted.on(route), START).unwrap().unwrap().ask;
        let posted = never();
        ask.step(WidgetEvent::Posted { attempt: 1, posted }.on(route), START).unwrap().unwrap().ask
    };
    let alone = never(begin(&[ChannelName::SLACK], 1, 3).ask, 0);
    let reason = Some(Reason { channel: ChannelName::SLACK, trouble: Trouble::ChatNotFound });
    let cause = Cause { retries: None, reason };
    assert_eq!(alone.outcome(), Some(&Outcome::Undelivered { cause }));
    let with_inbox = never(begin(&[ChannelName::SLACK, ChannelName::WEB], 1, 3).ask, 0);
    assert!(matches!(with_inbox.stage, Stage::Open { .. }), "the inbox shows it instead");
}

#[test]
fn accepted_without_proof_shows_the_next_route_and_then_counts_from_acceptance() {
    let ask = begin(&[ChannelName::WHATSAPP], 1, 3).ask;
    let ask = ask.step(WidgetEvent::SlotGranted.on(0), START).unwrap().unwrap().ask;
    let posted = Posted::Accepted(vec!["wamid.1".to_owned()], None);
    let later = START + Duration::from_secs(2);
    let ask = ask.step(WidgetEvent::Posted { attempt: 1, posted }.on(0), later).unwrap().unwrap().ask;
    assert_eq!(ask.stage, Stage::Posting);
    let ask = ask.step(Event::Tick, START + Duration::from_secs(30)).unwrap().unwrap().ask;
    assert_eq!(ask.shown_at(), Some(START));
    assert!(!ask.confirmed);
}

#[test]
fn two_people_answering_in_parts_do_not_mix() {
    let mut ask = begin(&[ChannelName::WHATSAPP], 2, 0).ask;
    for event in [told("alice", 0, "m1"), told("bob", 1, "m2")] {
        ask = ask.step(event, START).unwrap().unwrap().ask;
        assert_eq!(ask.outcome(), None);
    }
    let done = ask.step(told("bob", 0, "m3"), START).unwrap().unwrap().ask;
    let Some(Outcome::Answered { by, .. }) = done.outcome() else { panic!("{done:?}") };
    assert_eq!(by.id, "bob");
    assert_eq!(done.step(told("alice", 1, "m4"), START).unwrap_err().code(), "settled");
}

#[test]
fn a_withdrawn_call_leaves_the_others_waiting() {
    let ask = begin(&[ChannelName::WEB], 1, 0).ask;
    let ask = ask.step(Event::Requested(Relation::Joins(Box::new(waiter(1)))), START).unwrap().unwrap().ask;
    let step = ask.step(WaiterEvent::Withdrawn.of(request_id(0)), START).unwrap().unwrap();
    assert!(step.effects.contains(&DeliveryEffect::Write.of(request_id(0))));
    assert_eq!(step.ask.outcome(), None);
    let step = step.ask.step(WaiterEvent::Withdrawn.of(request_id(1)), START).unwrap().unwrap();
    assert_eq!(step.ask.outcome(), Some(&Outcome::Withdrawn { by: None }));
}

#[test]
fn only_so_many_calls_wait_for_one_question_and_a_record_with_more_goes_on() {
    let join = |n| {
        Event::Requested(Relation::Joins(Box::new(Waiter {
            request_id: format!("r{n}").parse().unwrap(),
            ..waiter(0)
        })))
    };
    let mut ask = begin(&[ChannelName::WEB], 1, 0).ask;
    let mut joined = 0;
    while let Some(step) = ask.clone().step(join(100 + joined), START).unwrap() {
        (ask, joined) = (step.ask, joined + 1);
        assert!(joined <= MAX_WAITERS, "no bound");
    }
    assert_eq!((ask.waiters.len(), ask.is_full()), (MAX_WAITERS, true));
    // As an earlier version has stored it.
    let mut more = ask.clone();
    more.0.waiters.push(Waiter { request_id: "early".parse().unwrap(), ..waiter(0) });
    let more: Ask = serde_json::from_value(serde_json::to_value(&more).unwrap()).unwrap();
    let done = more.step(WaiterEvent::Withdrawn.of("early".parse().unwrap()), START).unwrap().unwrap();
    assert!(done.effects.contains(&DeliveryEffect::Write.of("early".parse().unwrap())));
}

pub(super) fn quoting(message: &str) -> Heard {
    Heard { message: message.to_owned(), at: None, names: Names::Message }
}

fn told(who: &str, index: usize, message: &str) -> Event {
    Event::Replied {
        source: Source::Route(0),
        person: Person { via: Via::Channel(ChannelName::WHATSAPP), id: who.to_owned(), name: None },
        reply: Reply::Told { index, given: Given { picks: vec![0], text: None }, heard: quoting(message) },
    }
}

fn up(ask: Ask, attempt: u8, message: &str) -> Ask {
    let ask = ask.step(WidgetEvent::SlotGranted.on(0), START).unwrap().unwrap().ask;
    let posted = Posted::Accepted(vec![message.to_owned()], None);
    ask.step(WidgetEvent::Posted { attempt, posted }.on(0), START).unwrap().unwrap().ask
}

#[test]
fn what_is_decided_while_it_is_on_its_way_is_closed_once() {
    let ask = begin(&[ChannelName::WHATSAPP], 1, 1).ask;
    let ask = ask.step(WidgetEvent::SlotGranted.on(0), START).unwrap().unwrap().ask;
    let ask = ask.step(told("alice", 0, "m1"), START).unwrap().unwrap().ask;
    assert!(ask.outcome().is_some());
    let close = WidgetEffect::Update.on(0);
    let fate = WidgetEvent::Status {
        attempt: 1,
        question: 0,
        message: "q1".to_owned(),
        status: MessageStatus::Taken,
        at: None,
    }
    .on(0);
    let step = ask.step(fate, START).unwrap().unwrap();
    assert!(step.effects.contains(&close));
    let posted = Posted::Accepted(vec!["p1".to_owned(), "q1".to_owned()], None);
    let step = step.ask.step(WidgetEvent::Posted { attempt: 1, posted }.on(0), START).unwrap().unwrap();
    assert!(!step.effects.contains(&close), "its status came before the answer to its call: {step:?}");
}

#[test]
fn who_answers_while_anothers_question_is_on_its_way_is_asked_next() {
    let queue = WidgetEffect::Queue { not_before: START }.on(0);
    let asked = |ask: &Ask| (ask.widgets[0].one_by_one.to.clone(), ask.widgets[0].one_by_one.index);
    let ask = up(begin(&[ChannelName::WHATSAPP], 3, 1).ask, 1, "q1");
    let ask = ask.step(told("alice", 0, "m1"), START).unwrap().unwrap().ask;
    let step = ask.step(told("bob", 0, "m2"), START).unwrap().unwrap();
    assert!(!step.effects.contains(&queue));
    assert_eq!(asked(&step.ask), (Some("alice".to_owned()), 1));
    let ask = step.ask.step(WidgetEvent::SlotGranted.on(0), START).unwrap().unwrap().ask;
    let posted = Posted::Accepted(vec!["q2".to_owned()], None);
    let step = ask.step(WidgetEvent::Posted { attempt: 2, posted }.on(0), START).unwrap().unwrap();
    assert!(step.effects.contains(&queue));
    assert_eq!(asked(&step.ask), (Some("bob".to_owned()), 1));
    assert!(step.ask.widgets[0].one_by_one.waiting.is_empty());
}

#[test]
fn questions_follow_one_another_and_a_repeated_message_answers_nothing() {
    let ask = up(begin(&[ChannelName::WHATSAPP], 3, 1).ask, 1, "q1");
    let step = ask.step(told("alice", 0, "m1"), START).unwrap().unwrap();
    assert!(step.effects.contains(&WidgetEffect::Queue { not_before: START }.on(0)));
    assert_eq!(step.ask.next_question(0, "alice"), Some(1));
    assert_eq!(step.ask.resume()[0], WidgetEffect::Queue { not_before: START }.on(0), "a restart asks it too");
    let again = step.ask.clone().step(told("alice", 1, "m1"), START).unwrap();
    assert_eq!(again, None, "the same message does not answer the next question");
    assert_eq!(step.ask.clone().step(told("alice", 0, "m2"), START).unwrap(), None, "an answer is not edited");
    let ask = up(step.ask, 2, "q2");
    assert_eq!((ask.widgets[0].question_of("q1"), ask.widgets[0].question_of("q2")), (Some(0), Some(1)));
    let ask = ask.step(told("alice", 1, "m2"), START).unwrap().unwrap().ask;
    let step = up(ask, 3, "q3").step(told("alice", 2, "m3"), START).unwrap().unwrap();
    assert!(matches!(step.ask.outcome(), Some(Outcome::Answered { .. })));
    assert!(step.effects.contains(&WidgetEffect::Update.on(0)));
    assert_eq!(step.ask.step(told("alice", 0, "m1"), START).unwrap(), None, "nor after it was decided");
}

#[test]
fn a_part_that_cannot_be_shown_sends_the_whole_ask_to_the_next_route() {
    let ask = up(begin(&[ChannelName::WHATSAPP, ChannelName::WEB], 2, 0).ask, 1, "q1");
    let ask = ask.step(told("alice", 0, "m1"), START).unwrap().unwrap().ask;
    let ask = ask.step(WidgetEvent::SlotGranted.on(0), START).unwrap().unwrap().ask;
    let posted = never();
    let ask = ask.step(WidgetEvent::Posted { attempt: 2, posted }.on(0), START).unwrap().unwrap().ask;
    assert_eq!(ask.widgets.len(), 2, "the inbox shows it");
    let done = ask.step(Event::Cancel(Person::operator(Via::Api)), START).unwrap().unwrap();
    assert!(done.effects.contains(&WidgetEffect::Update.on(0)), "whoever saw the first question is told");
}

#[test]
fn a_closed_window_is_met_once_and_what_is_held_ends() {
    let lapse = |ask: Ask, attempt| {
        let fate = MessageStatus::Failed { why: Undelivered::WindowClosed, trouble: Trouble::WindowClosed };
        let message = "q".to_owned();
        ask.step(WidgetEvent::Status { attempt, question: 0, message, status: fate, at: None }.on(0), START)
            .unwrap()
            .unwrap()
            .ask
    };
    let ask = lapse(up(begin(&[ChannelName::WHATSAPP], 1, 0).ask, 1, "q"), 1);
    let ask = ask.step(WidgetEvent::SlotGranted.on(0), START).unwrap().unwrap().ask;
    let posted = Posted::Held("template".to_owned());
    let step = ask.step(WidgetEvent::Posted { attempt: 2, posted }.on(0), START).unwrap().unwrap();
    let until = START + Duration::from_secs(600);
    assert!(step.effects.contains(&WidgetEffect::Await { until }.on(0)));
    let open = step.ask.clone().step(WidgetEvent::Opened.on(0), START).unwrap().unwrap().ask;
    let twice = lapse(up(open, 3, "q"), 3);
    let reason = Some(Reason { channel: ChannelName::WHATSAPP, trouble: Trouble::WindowClosed });
    assert_eq!(twice.outcome(), Some(&Outcome::Undelivered { cause: Cause { retries: None, reason } }));
    let early = step.ask.clone().step(Event::Tick, START + Duration::from_secs(30)).unwrap().unwrap().ask;
    assert_eq!(early.outcome(), None, "held, though there is no other route");
    let late = early.step(Event::Tick, until).unwrap().unwrap().ask;
    assert!(matches!(late.outcome(), Some(Outcome::Undelivered { .. })), "it was never shown");
    assert!(!late.has_closed(), "who was asked to write is told how it ended");
}

#[test]
fn an_unanswered_ask_escalates_to_the_next_route() {
    let ask = begin(&[ChannelName::WEB, ChannelName::WHATSAPP, ChannelName::SLACK], 2, 1).ask;
    let ask = ask.step(WidgetEvent::Proof.on(0), START).unwrap().unwrap().ask;
    assert_eq!(ask.deadline(), START + Duration::from_secs(45));
    let ask = ask.step(Event::Tick, START + Duration::from_secs(45)).unwrap().unwrap().ask;
    assert_eq!(ask.widgets.len(), 2);
    let ask = ask.step(Event::Tick, START + Duration::from_secs(90)).unwrap().unwrap().ask;
    assert_eq!(ask.widgets.len(), 3);
}

#[test]
fn an_unknown_post_is_settled_by_a_status_or_repeated_once() {
    let lose = |ask: Ask, attempt, now| {
        let ask = ask.step(WidgetEvent::SlotGranted.on(0), now).unwrap().unwrap().ask;
        ask.step(WidgetEvent::Posted { attempt, posted: Posted::Unknown(None) }.on(0), now).unwrap().unwrap().ask
    };
    let ask = lose(begin(&[ChannelName::WHATSAPP], 1, 3).ask, 1, START);
    let fate = WidgetEvent::Status {
        attempt: 1,
        question: 0,
        message: "q".to_owned(),
        status: MessageStatus::Taken,
        at: None,
    }
    .on(0);
    let told = ask.clone().step(fate, START).unwrap().unwrap().ask;
    assert!(matches!(told.widgets[0].state, WidgetState::Up { proven: false, .. }));
    let ask = ask.step(WidgetEvent::Looked(Found::CannotKnow).on(0), START).unwrap().unwrap().ask;
    assert!(ask.widgets[0].one_by_one.repeated);
    let later = START + Duration::from_secs(1);
    let ask = lose(ask, 2, later);
    let ask = ask.step(WidgetEvent::Looked(Found::CannotKnow).on(0), later).unwrap().unwrap().ask;
    let reason = Some(Reason { channel: ChannelName::WHATSAPP, trouble: Trouble::Unknown });
    assert_eq!(ask.outcome(), Some(&Outcome::Undelivered { cause: Cause { retries: Some(3), reason } }));
    let fate = |fate| {
        WidgetEvent::Status { attempt: 2, question: 0, message: "late".to_owned(), status: fate, at: None }.on(0)
    };
    let step = ask.step(fate(MessageStatus::Displayed), later).unwrap().unwrap();
    assert!(step.effects.contains(&WidgetEffect::Update.on(0)), "it came up after all, and is closed");
    let ask = step.ask.step(DeliveryEvent::Written.of(request_id(0)), later).unwrap().unwrap().ask;
    let ask = ask.step(DeliveryEvent::Published.of(request_id(0)), later).unwrap().unwrap().ask;
    let ask = ask.step(WidgetEvent::Updated(Face::Closed(Remark::Plain)).on(0), later).unwrap().unwrap().ask;
    let more = WidgetEvent::Status {
        attempt: 1,
        question: 0,
        message: "later".to_owned(),
        status: MessageStatus::Known,
        at: None,
    }
    .on(0);
    let step = ask.step(more, later).unwrap().unwrap();
    assert_eq!(step.effects, [Effect::Retire], "what comes later still is kept with the outcome");
}
