//! The promises of a blocked ask, held against random lives: its callers are told at once, its card says the
//! right number, only those who may can end it, and then nothing of it is left.

use super::properties::{
    EVENTS_OF_A_ROUND, START, TICKS_TO_THE_END, accepted, carried_out, channel, event, judge_cards, request_id,
    restarted, waiter,
};
use super::*;
use crate::{ChannelName, RequestId, Via};
use proptest::prelude::*;
use std::time::Duration;

const LIMIT: u8 = 5;

fn begin(channels: &[ChannelName]) -> Step {
    Ask::blocked(accepted(channels, 2, 2), LIMIT, 6, START)
}

/// What a life is judged by.
#[derive(Default)]
struct Seen {
    told: Vec<RequestId>,
    sends: Vec<(usize, u8)>,
    allowed: bool,
}

impl Seen {
    fn judge(&mut self, before: Option<&Ask>, event: Option<&Event>, step: &Step) {
        let ask = &step.ask;
        assert_eq!(ask.outcome(), Some(&Outcome::Blocked { limit: LIMIT }), "an outcome never changes");
        judge_cards(before, event, step);
        let ended = before.is_some_and(|ask| ask.is_blocked()) && !ask.is_blocked();
        match event {
            Some(Event::Allow { source, person, .. }) => {
                self.allowed = true;
                match source {
                    Source::Token => assert!(person.via.is_operator()),
                    Source::Route(_) => assert!(matches!(person.id.as_str(), "alice" | "bob"), "a stranger ended it"),
                }
                assert!(step.effects.contains(&Effect::Note(Fact::AllowedAgain { by: person.clone() })));
            }
            Some(Event::FollowUp(FollowUpEvent::Lifted { .. })) => {}
            None
            | Some(
                Event::Tick
                | Event::Interrupted
                | Event::PowerLost
                | Event::Crowded
                | Event::Requested(_)
                | Event::Viewed
                | Event::Typing
                | Event::Replied { .. }
                | Event::Cancel(_)
                | Event::Widget { .. }
                | Event::Delivery { .. }
                | Event::Waiter { .. }
                | Event::FollowUp(
                    FollowUpEvent::Briefed { .. }
                    | FollowUpEvent::Tried { .. }
                    | FollowUpEvent::Stopped(_)
                    | FollowUpEvent::HostAway(_),
                ),
            ) => assert!(!ended, "ended by {event:?}"),
        }
        if matches!(event, Some(Event::PowerLost)) {
            // What was cut off does not count as a try.
            self.sends.retain(|(route, attempt)| ask.widgets[*route].attempt != *attempt);
        }
        for effect in &step.effects {
            match effect {
                // The same request made again is told the same again, and so is what may have been lost.
                Effect::Delivery { effect: DeliveryEffect::Write, .. }
                    if matches!(event, Some(Event::Requested(Relation::Replays(..)) | Event::PowerLost)) => {}
                Effect::Delivery { to: Taker::Waiter(id), effect: DeliveryEffect::Write } => self.told.push(id.clone()),
                Effect::Widget { route, effect: WidgetEffect::Send { attempt } } => {
                    assert!(ask.is_blocked(), "posted after it had ended");
                    assert!(!self.sends.contains(&(*route, *attempt)), "one try is sent once");
                    self.sends.push((*route, *attempt));
                }
                Effect::Retire | Effect::Forget => assert!(!ask.is_blocked(), "it is not done with"),
                Effect::Status | Effect::Widget { effect: WidgetEffect::Remind, .. } => {
                    panic!("nobody waits for an answer: {effect:?}")
                }
                Effect::Widget {
                    effect:
                        WidgetEffect::Queue { .. } | WidgetEffect::Look | WidgetEffect::Await { .. } | WidgetEffect::Update,
                    ..
                }
                | Effect::Delivery { .. }
                | Effect::FollowUp(_)
                | Effect::Identify(_)
                | Effect::Note(_) => {}
            }
        }
    }
}

fn live(mut ask: Ask, events: Vec<(Option<Event>, u64)>, seen: &mut Seen) -> (Ask, Time) {
    let mut now = START;
    for (event, seconds) in events {
        now = now + Duration::from_secs(seconds);
        let event = event.unwrap_or(Event::Tick);
        if let Ok(Some(step)) = ask.clone().step(event.clone(), now) {
            seen.judge(Some(&ask), Some(&event), &step);
            ask = step.ask;
        }
    }
    (ask, now)
}

/// Does what the effects ask for, as a host to which nothing bad happens, until nothing is left to do.
fn carry(mut ask: Ask, mut owed: Vec<Effect>, mut now: Time) -> Ask {
    for _ in 0..TICKS_TO_THE_END {
        let mut events = Vec::new();
        for effect in owed.drain(..) {
            let follows = matches!(effect, Effect::FollowUp(FollowUpEffect::Start | FollowUpEffect::Stop));
            let briefs = matches!(effect, Effect::Delivery { to: Taker::Briefing, .. });
            assert!(!follows && !briefs, "{effect:?}");
            events.extend(carried_out(&ask, effect, &mut now));
        }
        assert!(events.len() < EVENTS_OF_A_ROUND, "the work grows: {ask:?}");
        if events.is_empty() {
            let due = ask.deadline();
            if due == Time::MAX || ask.owes_nothing() {
                break;
            }
            now = now.max(due);
            events.push(Event::Tick);
        }
        for event in events {
            if let Ok(Some(step)) = ask.clone().step(event, now) {
                ask = step.ask;
                owed.extend(step.effects);
            }
        }
    }
    ask
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_block_keeps_its_promises_whatever_happens(
        channels in proptest::collection::vec(channel(), 1..4),
        events in proptest::collection::vec(event(), 0..30),
        lost in any::<bool>(),
    ) {
        let first = begin(&channels);
        let mut seen = Seen::default();
        seen.judge(None, None, &first);
        let (ask, now) = live(first.ask, events, &mut seen);
        let mut told = seen.told.clone();
        told.sort();
        let mut waiting: Vec<RequestId> = ask.waiters.iter().map(|waiter| waiter.request_id.clone()).collect();
        waiting.sort();
        prop_assert_eq!(told, waiting, "exactly one response for each caller, at once");

        // A restart: what is owed goes on, and in the end the cards that are up say the number.
        let mut ask = ask;
        let owed = restarted(&mut ask, lost, now);
        let ask = carry(ask, owed, now);
        if ask.is_blocked() {
            prop_assert!(!ask.owes_nothing(), "it is kept as long as it stands");
            let changing = |widget: &Widget| matches!(widget.state.card(), Some(Card::Changing { .. }));
            prop_assert!(!ask.widgets.iter().any(changing), "{:?}", ask);
        }
        // Its end, in this process or seen at the next start.
        let lifted = ask.clone().step(Event::FollowUp(FollowUpEvent::Lifted { by: None }), now).unwrap();
        let (ask, owed) = lifted.map_or_else(|| (ask.clone(), ask.resume()), |step| (step.ask, step.effects));
        let ask = carry(ask, owed, now);
        prop_assert!(ask.owes_nothing(), "{:?}", ask);
        let kept_until = now + Duration::from_secs(10 * 86_400);
        // What nobody took is taken back first; nobody is briefed or started for it.
        let mut ask = ask;
        let forgotten = (0..3).any(|_| {
            let step = ask.clone().step(Event::Tick, kept_until).unwrap().unwrap();
            let forgotten = step.effects.contains(&Effect::Forget);
            ask = carry(step.ask, step.effects, kept_until);
            forgotten
        });
        prop_assert!(forgotten, "{:?}", ask);
    }
}

fn alice() -> Person {
    Person { via: Via::Channel(ChannelName::SLACK), id: "alice".to_owned(), name: None }
}

fn up() -> Ask {
    let step = begin(&[ChannelName::SLACK]);
    carry(step.ask, step.effects, START)
}

#[test]
fn the_card_is_rewritten_once_for_all_that_came_meanwhile() {
    let ask = up();
    let asked =
        |ask: Ask, n| ask.step(Event::Requested(Relation::JoinsBlocked(Box::new(waiter(n)))), START).unwrap().unwrap();
    let update = WidgetEffect::Update.on(0);
    let shows =
        |ask: Ask, times| ask.step(WidgetEvent::Updated(Face::Blocked { times }).on(0), START).unwrap().unwrap();
    let first = asked(ask, 1);
    assert!(first.effects.contains(&update) && first.effects.contains(&DeliveryEffect::Write.of(request_id(1))));
    let third = asked(asked(first.ask, 2).ask, 3);
    assert!(!third.effects.contains(&update), "one at a time");
    let step = shows(third.ask, 7);
    assert!(step.effects.contains(&update), "it says 7 by now, and it was 9 times");
    let step = shows(step.ask, 9);
    assert_eq!(step.effects, []);
    assert_eq!(
        step.ask.step(Event::Requested(Relation::JoinsBlocked(Box::new(waiter(3)))), START).unwrap(),
        None,
        "the same call"
    );
}

#[test]
fn a_card_that_comes_up_after_the_same_was_asked_again_is_counted_up() {
    let join = |n| Event::Requested(Relation::JoinsBlocked(Box::new(waiter(n))));
    let posted = |ask: Ask| {
        let ask = ask.step(WidgetEvent::SlotGranted.on(0), START).unwrap().unwrap().ask;
        let posted = WidgetEvent::Posted { attempt: 1, posted: Posted::Shown("m".to_owned()) }.on(0);
        ask.step(posted, START).unwrap().unwrap().effects.contains(&WidgetEffect::Update.on(0))
    };
    let ask = begin(&[ChannelName::SLACK]).ask;
    assert!(!posted(ask.clone()));
    assert!(posted(ask.step(join(1), START).unwrap().unwrap().ask), "its post may have been made before");
}

#[test]
fn allowed_while_the_card_is_rewritten_it_is_closed_after_that() {
    let update = WidgetEffect::Update.on(0);
    let rewriting =
        up().step(Event::Requested(Relation::JoinsBlocked(Box::new(waiter(1)))), START).unwrap().unwrap().ask;
    let allow = Event::Allow { source: Source::Route(0), person: alice(), heard: None };
    let step = rewriting.step(allow, START).unwrap().unwrap();
    assert!(!step.effects.contains(&update));
    assert!(step.ask.resume().contains(&update), "after a crash nothing else is under way");
    let drawn = |ask: Ask, face| ask.step(WidgetEvent::Updated(face).on(0), START).unwrap().unwrap();
    let step = drawn(step.ask, Face::Blocked { times: 7 });
    assert_eq!(step.effects, [update]);
    let closed = drawn(step.ask, Face::Closed(Remark::Plain)).ask;
    assert!(matches!(closed.widgets[0].state, WidgetState::Closed { .. }));
}

#[test]
fn a_second_click_is_told_who_was_first_and_a_stranger_is_told_nothing_was_changed() {
    let allow = |who: &str| {
        let person = Person { via: Via::Channel(ChannelName::SLACK), id: who.to_owned(), name: None };
        Event::Allow { source: Source::Route(0), person, heard: None }
    };
    let refused = up().step(allow("mallory"), START).unwrap_err();
    assert_eq!((refused.code(), &refused), ("not_responder", &Refusal::MayNotAllow { id: "mallory".to_owned() }));
    let allowed = up().step(allow("alice"), START).unwrap().unwrap().ask;
    assert_eq!(allowed.closing_line().as_deref(), Some("Allowed again by alice"));
    assert_eq!(allowed.step(allow("bob"), START).unwrap_err(), Refusal::NotBlocked { by: Some(alice()) });
}

#[test]
fn with_the_token_any_ask_can_be_reset_and_stays_what_it_is() {
    let open = Ask::accept(accepted(&[ChannelName::WEB], 1, 0), START).ask;
    let reset = || Event::Allow { source: Source::Token, person: Person::operator(Via::Cli), heard: None };
    let step = open.clone().step(reset(), START).unwrap().unwrap();
    assert_eq!(step.ask, open);
    assert_eq!(step.effects, [Effect::Note(Fact::AllowedAgain { by: Person::operator(Via::Cli) })]);
    let on_a_card = Event::Allow { source: Source::Route(0), person: alice(), heard: None };
    assert!(open.step(on_a_card, START).is_err(), "only a block has a button");
}

#[test]
fn an_agent_that_asks_in_a_loop_does_not_fill_the_record() {
    let mut ask = begin(&[ChannelName::WEB]).ask;
    for n in 1..=255 {
        let step = ask.step(Event::Requested(Relation::JoinsBlocked(Box::new(waiter(n)))), START).unwrap().unwrap();
        ask = carry(step.ask, step.effects, START);
    }
    assert!(ask.waiters.len() <= 50 && ask.waiter(&request_id(0)).is_some() && ask.waiter(&request_id(255)).is_some());
    assert_eq!(ask.block().map(|block| block.times), Some(6 + 255));
}
