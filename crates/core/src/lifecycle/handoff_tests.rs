//! Stories of outcomes that nobody took, each with the moment in which one could be lost, or given twice.

use super::properties::{START, accepted, request_id, waiter};
use super::*;
use crate::{ChannelName, Given, Reply, RequestId, Via};
use std::time::Duration;

fn at(seconds: u64) -> Time {
    START + Duration::from_secs(seconds)
}

fn next(ask: Ask, event: Event, now: Time) -> Step {
    ask.step(event, now).unwrap().expect("it changes something")
}

fn then(ask: Ask, event: Event, now: Time) -> Ask {
    next(ask, event, now).ask
}

/// What changes nothing leaves it as it is.
fn perhaps(ask: Ask, event: Event, now: Time) -> Ask {
    ask.clone().step(event, now).unwrap().map_or(ask, |step| step.ask)
}

fn asked() -> Ask {
    let mut new = accepted(&[ChannelName::WEB], 1, 0);
    new.rules.session =
        SessionRules { start: true, late_answers: Duration::from_secs(7_200), ..SessionRules::default() };
    Ask::accept(new, START).ask
}

fn answer() -> Event {
    let person = Person { via: Via::Api, id: "operator".to_owned(), name: None };
    Event::Replied {
        source: Source::Token,
        person,
        reply: Reply::Whole(vec![(0, Given { picks: vec![0], text: None })]),
    }
}

fn published(ask: Ask, number: u8, now: Time) -> Ask {
    let ask = then(ask, DeliveryEvent::Written.of(request_id(number)), now);
    then(ask, DeliveryEvent::Published.of(request_id(number)), now)
}

fn collected(ask: Ask, number: u8, since: Time, now: Time) -> Ask {
    then(ask, DeliveryEvent::Taken { since }.of(request_id(number)), now)
}

fn back(number: u8, gone: bool) -> Event {
    DeliveryEvent::TakenBack { taken: gone }.of(request_id(number))
}

/// Its newest briefing is there.
fn briefed(ask: Ask, now: Time) -> Ask {
    let nth = ask.follow_up().briefings;
    then(ask, Event::FollowUp(FollowUpEvent::Briefed { nth }), now)
}

/// Timed out, which its waiter knows, and answered after that; the briefing lies there.
fn answered_late() -> Ask {
    let ask = collected(published(then(asked(), Event::Tick, at(600)), 0, at(600)), 0, at(600), at(610));
    let ask = briefed(then(ask, answer(), at(700)), at(700));
    assert!(matches!(ask.follow_up().start, AgentStart::Starting { .. }));
    ask
}

/// The same, given to a call that asks the same.
fn late_for_another() -> Ask {
    let ask = then(answered_late(), Event::Requested(Relation::Reclaims(Vec::new())), at(710));
    let ask = then(ask, DeliveryEvent::TakenBack { taken: false }.to(Taker::Briefing), at(710));
    published(then(ask, Event::Requested(Relation::JoinsSettled(Box::new(waiter(1)))), at(711)), 1, at(711))
}

/// Nobody took the timeout, so it is being briefed, and the answer comes while that is written.
#[test]
fn a_late_answer_is_briefed_although_an_older_briefing_is_being_written() {
    let (mut ask, day) = (asked(), 24 * 3600);
    ask.0.rules.session.late_answers = Duration::from_secs(7 * day);
    let ask = published(then(ask, Event::Tick, at(600)), 0, at(600));
    let ask = then(then(ask, Event::Tick, at(600 + day)), back(0, false), at(600 + day));
    let ask = then(ask, answer(), at(601 + day));
    let ask = perhaps(ask, Event::FollowUp(FollowUpEvent::Briefed { nth: 1 }), at(602 + day));
    assert_eq!(ask.follow_up().briefing.state(), DeliveryState::Owed, "the answer is not in that one");
    assert!(matches!(briefed(ask, at(603 + day)).follow_up().start, AgentStart::Starting { .. }));
}

#[test]
fn nothing_more_can_be_said_after_the_late_answer_or_the_end_of_the_time_for_it() {
    let timed_out = published(then(asked(), Event::Tick, at(600)), 0, at(600));
    assert_eq!(timed_out.last_word_at(), None);
    let closed = then(timed_out, Event::Tick, at(600 + 7_200));
    assert!(!closed.is_late_open());
    assert_eq!((closed.settled_at(), closed.last_word_at()), (Some(at(600)), Some(at(600 + 7_200))));
    assert_eq!(answered_late().last_word_at(), Some(at(700)));
    assert_eq!(then(asked(), answer(), at(5)).last_word_at(), Some(at(5)));
}

#[test]
fn a_late_answer_whose_new_waiter_dies_is_briefed_again() {
    let ask = then(late_for_another(), WaiterEvent::Died.of(request_id(1)), at(730));
    let step = next(ask, back(1, false), at(730));
    assert!(
        step.effects.contains(&DeliveryEffect::Write.to(Taker::Briefing)),
        "who took the timeout has not taken the answer: {step:?}"
    );
}

#[test]
fn a_late_answer_that_was_taken_is_not_given_once_more() {
    let ask = late_for_another();
    assert!(ask.is_untaken());
    assert!(!collected(ask, 1, at(711), at(720)).is_untaken());
}

#[test]
fn the_same_request_after_a_late_answer_is_told_that_answer() {
    let ask = then(answered_late(), Event::Requested(Relation::Replays(request_id(0), None)), at(720));
    assert!(
        ask.has_briefing() || ask.waiters[0].told == Told::LateAnswer,
        "its briefing is gone, and nobody is told: {ask:?}"
    );
}

#[test]
fn what_was_taken_while_it_was_to_be_taken_back_starts_nobody() {
    let ask = published(then(asked(), answer(), at(5)), 0, at(5));
    let ask = then(ask, Event::Requested(Relation::Reclaims(vec![request_id(0)])), at(6));
    let ask = then(ask, back(0, true), at(6));
    let ask = perhaps(ask, Event::Tick, at(60));
    assert_eq!((ask.has_no_briefing(), ask.is_pending()), (true, false));
}

#[test]
fn the_same_request_takes_over_what_was_about_to_be_briefed() {
    let ask = published(then(asked(), answer(), at(5)), 0, at(5));
    let reclaimed = then(
        then(ask.clone(), Event::Requested(Relation::Reclaims(vec![request_id(0)])), at(6)),
        back(0, false),
        at(6),
    );
    let briefing = then(then(ask, WaiterEvent::Died.of(request_id(0)), at(6)), back(0, false), at(6));
    assert_eq!(briefing.follow_up().briefing.state(), DeliveryState::Owed);
    for ask in [reclaimed, briefing] {
        let ask = published(then(ask, Event::Requested(Relation::Replays(request_id(0), None)), at(7)), 0, at(7));
        let ask = perhaps(perhaps(ask, Event::FollowUp(FollowUpEvent::Briefed { nth: 1 }), at(8)), Event::Tick, at(60));
        assert!(ask.has_no_briefing(), "told by its response, and by a start: {ask:?}");
    }
}

#[test]
fn a_briefing_that_was_never_written_was_not_read() {
    let ask = published(then(asked(), answer(), at(5)), 0, at(5));
    let ask = then(then(ask, WaiterEvent::Died.of(request_id(0)), at(6)), back(0, false), at(6));
    assert_eq!(ask.follow_up().briefing.state(), DeliveryState::Owed, "and the disk is full");
    let ask = perhaps(ask, Event::Requested(Relation::Reclaims(Vec::new())), at(7));
    let ask = perhaps(ask, DeliveryEvent::TakenBack { taken: true }.to(Taker::Briefing), at(7));
    assert!(ask.is_untaken(), "the call that asks the same would be a new question: {ask:?}");
}

#[test]
fn what_a_living_process_has_not_collected_yet_is_not_taken_from_it() {
    let ask = then(asked(), Event::Requested(Relation::Joins(Box::new(waiter(1)))), at(1));
    let ask = published(published(then(ask, answer(), at(5)), 0, at(5)), 1, at(5));
    let ask = then(ask, Event::Requested(Relation::Reclaims(vec![request_id(0)])), at(6));
    let ask = then(ask, back(0, false), at(6));
    assert_eq!(ask.waiters[1].response.published_at(), Some(at(5)));
    assert!(ask.has_no_briefing(), "somebody waits for it: {ask:?}");
}

#[test]
fn what_was_read_is_not_called_uncollected() {
    let alive = |mut ask: Ask| {
        ask.0.waiters[0].process = Some("p".to_owned());
        ask
    };
    let ask = alive(published(then(asked(), answer(), at(5)), 0, at(5)));
    let ask = then(ask, Event::Tick, at(606));
    assert_eq!(ask.remark(), Remark::Overdue);
    let ask = then(then(ask, WaiterEvent::Died.of(request_id(0)), at(620)), back(0, false), at(620));
    let ask = briefed(ask, at(620));
    let read = then(ask.clone(), tried(Tried::Read), at(621));
    assert_eq!(read.remark(), Remark::Plain);
    let ask = then(ask, Event::Requested(Relation::Reclaims(Vec::new())), at(621));
    assert_eq!(
        then(ask, DeliveryEvent::TakenBack { taken: true }.to(Taker::Briefing), at(621)).remark(),
        Remark::Plain
    );
}

#[test]
fn an_answer_that_is_briefed_late_is_not_forgotten_at_once() {
    let mut ask = asked();
    ask.0.rules.keep = Duration::from_secs(60);
    let ask = published(then(ask, answer(), at(5)), 0, at(5));
    let ask = then(then(ask, Event::Tick, at(65)), back(0, false), at(65));
    let ask = then(briefed(ask, at(66)), tried(Tried::Started { accepted: false }), at(67));
    assert!(ask.deadline() > at(68), "the agent that was just started has not read it: {ask:?}");
    let ask = then(ask, DeliveryEvent::Taken { since: at(66) }.to(Taker::Briefing), at(80));
    assert!(next(ask, Event::Tick, at(80)).effects.contains(&Effect::Forget));
}

#[test]
fn who_withdrew_takes_nobodys_answer_along() {
    let ask = then(asked(), Event::Requested(Relation::Joins(Box::new(waiter(1)))), at(1));
    let ask = published(then(ask, WaiterEvent::Withdrawn.of(request_id(1)), at(2)), 1, at(2));
    let ask = published(then(ask, answer(), at(5)), 0, at(5));
    let ask = then(then(ask, WaiterEvent::Died.of(request_id(0)), at(6)), back(0, false), at(6));
    let ask = briefed(ask, at(6));
    let taken = collected(ask.clone(), 1, at(2), at(7));
    assert!(taken.has_briefing() && taken.is_untaken(), "{taken:?}");
    let again = then(ask, Event::Requested(Relation::Replays(request_id(1), None)), at(7));
    assert!(again.has_briefing() && again.is_untaken(), "{again:?}");
}

fn died(number: u8) -> Event {
    WaiterEvent::Died.of(request_id(number))
}

fn join(number: u8) -> Event {
    Event::Requested(Relation::Joins(Box::new(waiter(number))))
}

/// Whose process looked dead and was not is told all the same.
#[test]
fn a_dead_call_is_replaced_by_a_later_one_and_by_no_earlier_one() {
    let ask = then(then(asked(), join(1), at(1)), join(2), at(2));
    assert_eq!(perhaps(ask.clone(), died(2), at(3)), ask, "no later call waits");
    let ask = then(ask, WaiterEvent::Withdrawn.of(request_id(2)), at(3));
    assert_eq!(perhaps(ask.clone(), died(1), at(4)), ask, "the later one was withdrawn");
    let ask = then(ask, died(0), at(4));
    assert_eq!(ask.waiters.iter().map(|waiter| waiter.replaced).collect::<Vec<_>>(), [true, false, false]);
    let step = next(ask.clone(), answer(), at(5));
    assert!(step.effects.contains(&DeliveryEffect::Write.of(request_id(0))));
    let withdraw = || WaiterEvent::Withdrawn.of(request_id(1));
    let withdrawn = then(ask.clone(), withdraw(), at(5));
    assert_eq!(withdrawn.outcome(), Some(&Outcome::Withdrawn { by: None }), "nobody is left");
    let back = then(then(ask, Event::Requested(Relation::Replays(request_id(0), None)), at(5)), withdraw(), at(6));
    assert_eq!(back.outcome(), None, "it waits again");
}

#[test]
fn calls_that_nobody_waits_for_any_more_make_room() {
    let numbered = |n: usize| Waiter { request_id: format!("n{n}").parse().unwrap(), ..waiter(0) };
    let join = |n| Event::Requested(Relation::Joins(Box::new(numbered(n))));
    let mut ask = asked();
    for n in 1..MAX_WAITERS {
        ask = then(ask, join(n), at(1));
    }
    assert!(ask.is_full());
    ask = then(ask, died(0), at(2));
    assert!(ask.is_full(), "the first one names the record");
    let replaced: RequestId = "n7".parse().unwrap();
    ask = then(ask, WaiterEvent::Died.of(replaced.clone()), at(2));
    ask = then(ask, join(MAX_WAITERS), at(3));
    assert!(ask.is_full() && ask.waiter(&replaced).is_none() && ask.waiters.len() == MAX_WAITERS);
    // After the outcome, too.
    ask = then(ask, answer(), at(5));
    for request_id in ask.waiters.iter().map(|waiter| waiter.request_id.clone()).collect::<Vec<_>>() {
        ask = then(ask, DeliveryEvent::Written.of(request_id.clone()), at(5));
        ask = then(ask, DeliveryEvent::Published.of(request_id), at(5));
    }
    let again = Event::Requested(Relation::JoinsSettled(Box::new(numbered(200))));
    assert_eq!(perhaps(ask.clone(), again.clone(), at(6)), ask, "no bound");
    let gone: RequestId = "n9".parse().unwrap();
    ask = then(ask, WaiterEvent::Died.of(gone.clone()), at(6));
    let step = next(ask, DeliveryEvent::TakenBack { taken: false }.of(gone.clone()), at(6));
    assert!(step.effects.contains(&Effect::FollowUp(FollowUpEffect::Tidy)), "its file would stay: {:?}", step.effects);
    let step = next(step.ask, again, at(7));
    assert!(step.ask.waiter(&gone).is_none() && step.ask.waiters.len() == MAX_WAITERS);
    assert!(
        step.effects.contains(&DeliveryEffect::TakeBack { since: None }.of(gone)),
        "the record knows its file no more"
    );
}

/// A call of this session waits for an answer that another call has taken, and its process has died.
fn untaken_by(session: Option<&str>) -> Ask {
    let joins = Waiter { other_session: session.map(str::to_owned), ..waiter(2) };
    let ask = then(asked(), Event::Requested(Relation::Joins(Box::new(joins))), at(1));
    let ask = published(published(then(ask, answer(), at(5)), 0, at(5)), 2, at(5));
    let ask = collected(ask, 0, at(5), at(6));
    then(then(ask, died(2), at(7)), back(2, false), at(7))
}

#[test]
fn each_session_is_told_by_itself() {
    let ask = untaken_by(None);
    assert!(ask.has_no_briefing() && !ask.is_untaken(), "its session knows it: {ask:?}");
    let ask = untaken_by(Some("another"));
    assert_eq!(ask.briefed_waiter().map(|waiter| &waiter.request_id), Some(&request_id(2)));
    assert_eq!(
        [None, Some("another"), Some("a third")].map(|session| ask.keeps_outcome(at(8), session)),
        [false, true, false]
    );
    // It asks the same again, and dies again.
    let ask = then(briefed(ask, at(8)), Event::Requested(Relation::Reclaims(Vec::new())), at(9));
    let ask = then(ask, DeliveryEvent::TakenBack { taken: false }.to(Taker::Briefing), at(9));
    let again = Waiter { other_session: Some("another".to_owned()), ..waiter(4) };
    let ask = published(then(ask, Event::Requested(Relation::JoinsSettled(Box::new(again))), at(10)), 4, at(10));
    assert!(!collected(ask.clone(), 4, at(10), at(11)).is_untaken());
    let ask = then(then(ask, died(4), at(11)), back(4, false), at(11));
    assert_eq!(ask.follow_up().briefing.state(), DeliveryState::Owed);
}

#[test]
fn a_session_that_was_not_told_asks_again_and_gets_the_outcome() {
    let of = |session: &str, number| Waiter { other_session: Some(session.to_owned()), ..waiter(number) };
    let again = |number| Event::Requested(Relation::JoinsSettled(Box::new(of("another", number))));
    let ask = then(asked(), Event::Requested(Relation::Joins(Box::new(of("another", 2)))), at(1));
    let answered = published(published(then(ask, answer(), at(5)), 0, at(5)), 2, at(5));
    // The first session has taken its response.
    let ask = collected(answered.clone(), 0, at(5), at(6));
    let ask = then(ask, Event::Requested(Relation::Reclaims(vec![request_id(2)])), at(7));
    let ask = then(ask, back(2, false), at(7));
    assert_eq!([None, Some("another")].map(|session| ask.keeps_outcome(at(8), session)), [false, true]);
    let joined = published(then(ask.clone(), again(4), at(8)), 4, at(8));
    assert!(joined.has_no_briefing() && joined.is_untaken());
    assert!(!collected(joined, 4, at(8), at(9)).is_untaken());
    let briefed_after_all = then(ask, Event::Tick, at(40));
    assert_eq!(briefed_after_all.follow_up().briefing.state(), DeliveryState::Owed, "that call never came");
    // The first session has read its briefing.
    let ask = briefed(then(then(answered, died(0), at(6)), back(0, false), at(6)), at(6));
    let ask = then(ask, DeliveryEvent::Taken { since: at(6) }.to(Taker::Briefing), at(7));
    assert_eq!([None, Some("another")].map(|session| ask.keeps_outcome(at(8), session)), [false, true]);
    let ask = published(then(ask, again(4), at(8)), 4, at(8));
    let ask = collected(collected(ask, 2, at(5), at(9)), 4, at(8), at(9));
    assert!(ask.follow_up().briefing.is_taken() && !ask.is_untaken(), "the first session is not told twice: {ask:?}");
}

#[test]
fn the_answer_of_a_call_over_which_another_session_went_on_is_not_briefed() {
    let ask = published(then(asked(), answer(), at(5)), 0, at(5));
    let ask = then(ask, Event::Requested(Relation::Reclaims(vec![request_id(0)])), at(6));
    let ask = then(ask, back(0, false), at(6));
    let successor = Waiter { other_session: Some("another".to_owned()), ..waiter(2) };
    let ask = published(then(ask, Event::Requested(Relation::JoinsSettled(Box::new(successor))), at(7)), 2, at(7));
    let ask = collected(ask, 2, at(7), at(8));
    assert!(ask.has_no_briefing() && !ask.is_untaken(), "{ask:?}");
}

/// The agent reads its briefing while askd still starts it, and the next session is briefed already.
#[test]
fn what_came_of_a_start_is_not_said_of_the_next_briefing() {
    let mut ask = untaken_by(Some("another"));
    let third = Waiter { other_session: Some("a third".to_owned()), ..ask.waiters[1].clone() };
    ask.0.waiters.push(Waiter { request_id: request_id(4), briefed: None, ..third });
    let read = then(briefed(ask, at(8)), DeliveryEvent::Taken { since: at(8) }.to(Taker::Briefing), at(9));
    assert_eq!(perhaps(read.clone(), tried(Tried::Started { accepted: true }), at(10)), read);
    let next = briefed(read, at(10));
    assert_eq!(perhaps(next.clone(), tried(Tried::Read), at(11)), next);
    assert_eq!(next.briefed_waiter().map(|waiter| &waiter.request_id), Some(&request_id(4)));
}

fn tried(what: Tried) -> Event {
    Event::FollowUp(FollowUpEvent::Tried { nth: 1, what })
}

/// Nobody took the answer, and the agent is being started with it.
fn starting() -> Ask {
    let ask = published(then(asked(), answer(), at(5)), 0, at(5));
    briefed(then(then(ask, died(0), at(6)), back(0, false), at(6)), at(6))
}

#[test]
fn an_agent_that_runs_for_a_day_and_never_asks_is_reported() {
    let ask = then(starting(), tried(Tried::Running), at(8));
    assert_eq!(ask.remark(), Remark::Running);
    let step = next(ask, tried(Tried::Running), at(7 + 24 * 3600));
    assert_eq!(step.ask.remark(), Remark::NotStarted);
    let last = |effect: &Effect| matches!(effect, Effect::Note(Fact::StartFailed { last: true, .. }));
    assert!(step.effects.iter().any(last), "{:?}", step.effects);
}

#[test]
fn an_agent_that_reads_before_its_start_is_noted_was_started_all_the_same() {
    let read = then(starting(), DeliveryEvent::Taken { since: at(6) }.to(Taker::Briefing), at(7));
    let step = next(read, tried(Tried::Started { accepted: false }), at(8));
    assert!(step.ask.remark() == Remark::Started && step.effects.contains(&Effect::Note(Fact::Started)));
    assert_eq!(perhaps(step.ask.clone(), tried(Tried::Started { accepted: false }), at(9)), step.ask, "once");
}
