//! What a message of a person is about: joins the message, the asks that the person may answer, and the rules of
//! [`super::resolve`]. Pure.

use super::confirmations::Confirmation;
use super::messages::About;
use super::payload::Message;
use super::posting::LISTEN;
use super::resolve::{self, Candidate, Fit, State, TOLERANCE, Target, Times};
use super::words;
use askd_core::{
    Ask, AskId, ChannelName, Heard, Names, Question, Responders, Sending, Time, Widget, WidgetState, wording,
};
/// An ask that a person may answer on a route.
pub(super) struct Asked {
    pub(super) ask: Ask,
    pub(super) route: usize,
    /// The person's id that the route lists.
    pub(super) person: String,
    /// Since when, by our own clock, the person may have a message with their next question whose id we do not know yet.
    unnamed_since: Option<Time>,
    /// The person may have seen its code. Words that begin with one that was never shown are the answer as they stand.
    pub(super) code_seen: bool,
    /// When the sending that is on its way began, by our own clock.
    under_way: Option<(u8, Time)>,
    /// The chat of its next question is closed, so that what is on its way can only be an invitation to write.
    pub(super) invites: bool,
}

/// A message, with what is known before it is read.
pub(super) struct Reader<'a> {
    pub(super) message: &'a Message,
    /// When the platform received it; `None`: unknown, so it may be older than any question.
    pub(super) at: Option<Time>,
    /// A message of this person that the platform received no earlier has been dealt with already.
    pub(super) overtaken: bool,
    /// Its words. Empty if it has none.
    pub(super) said: &'a str,
    /// The ask that posted the quoted message.
    pub(super) post_of: Option<AskId>,
    /// What the quoted message is about, if it is one of ours and no post.
    pub(super) about: Option<About>,
    /// How far the platform's clock is ahead of ours, in milliseconds.
    pub(super) clock_ahead: i64,
}

impl Asked {
    /// On which route, and by which of these ids, a person was asked. Where several routes ask them, that is the one whose
    /// message they quote, else the one that last sent a question to them.
    pub(super) fn find(ask: Ask, ids: &[String], quotes: Option<&str>) -> Option<Self> {
        let theirs = |to: &str| ids.iter().any(|id| id == to);
        let likely = |widget: &Widget| {
            let sent = widget.sendings.iter().filter(|sent| theirs(widget.recipient(sent)));
            let has_it = quotes.is_some_and(|quoted| widget.question_of(quoted).is_some());
            (has_it, sent.filter_map(Sending::since).max(), theirs(widget.asked()))
        };
        let routes = ask.widgets.iter().enumerate().filter(|(_, widget)| widget.route.channel == ChannelName::WHATSAPP);
        // Of equals the last comes out: the first route.
        let (route, person) = routes
            .rev()
            .filter_map(|(at, widget)| {
                let route = &widget.route;
                let may_answer = |id: &&String| match &route.responders {
                    Responders::Anyone => **id == route.chat,
                    responders @ Responders::Only(_) => responders.includes(id),
                };
                // The id of the chat comes first: it is the one that is written to.
                let ids = || ids.iter().filter(may_answer);
                Some((at, ids().find(|id| **id == route.chat).or_else(|| ids().next())?.clone()))
            })
            .max_by_key(|(at, _)| likely(&ask.widgets[*at]))?;
        let widget = &ask.widgets[route];
        let next = ask.next_question(route, &person).unwrap_or(0);
        // A refused sending is not kept, and one whose reply was lost may be in the chat for good.
        let unnamed = widget.sendings.iter().filter(|sent| {
            let to = widget.recipient(sent);
            sent.question == next && sent.message.is_none() && !sent.failed && theirs(to)
        });
        let under_way = if let WidgetState::Sent { at, .. } | WidgetState::Unknown { at, .. } = widget.state {
            Some((widget.attempt, at))
        } else {
            None
        };
        let unnamed_since = unnamed.map(|sent| began(&ask, under_way, sent)).min();
        Some(Self { route, person, unnamed_since, code_seen: true, under_way, invites: false, ask })
    }

    /// Whether it waits for an answer.
    pub(super) fn is_open(&self) -> bool {
        self.ask.outcome().is_none()
    }

    /// Whether a message that begins with this word names it.
    pub(super) fn is_named_by(&self, word: &str) -> bool {
        self.ask.short_id.as_str() == word && (self.code_seen || !self.is_open())
    }

    /// Its code, if a message about its next question may begin with it.
    pub(super) fn code(&self) -> Option<&str> {
        let may_name = self.code_seen || !self.question().takes_text();
        may_name.then(|| self.ask.short_id.as_str())
    }

    /// The index of this person's next question.
    pub(super) fn next(&self) -> usize {
        self.ask.next_question(self.route, &self.person).unwrap_or(0)
    }

    /// How its next question reached the person, or is about to.
    fn sending(&self) -> Option<&Sending> {
        self.ask.sending(self.route, &self.person, self.next())
    }

    /// Whether a question of it was sent to this person, and not only to the chat of the route.
    pub(super) fn was_sent(&self) -> bool {
        let widget = &self.ask.widgets[self.route];
        widget.sendings.iter().any(|sent| widget.recipient(sent) == self.person)
    }

    /// To whom what is on its way goes of which nothing is known yet.
    pub(super) fn goes_to(&self) -> Option<&str> {
        let sending = self.sending().filter(|sending| sending.message.is_none() && sending.left.is_none())?;
        Some(self.ask.widgets[self.route].recipient(sending))
    }

    pub(super) fn question(&self) -> &Question {
        &self.ask.content.questions[self.next()]
    }

    pub(super) fn how_to_reply(&self) -> String {
        if self.ask.is_late_open() {
            wording::how_to_reply_late(self.question(), self.ask.short_id.as_str())
        } else {
            wording::how_to_reply(self.question())
        }
    }

    /// What a message about this person's next question is about.
    pub(super) fn about(&self) -> About {
        About::Question { ask: self.ask.id, question: self.next() }
    }
}

/// When that sending of an ask began, at the latest. An earlier run of the daemon may not have lived to record it.
fn began(ask: &Ask, under_way: Option<(u8, Time)>, sent: &Sending) -> Time {
    let under_way = under_way.filter(|(attempt, _)| *attempt == sent.attempt).map(|(_, at)| at);
    sent.left.map(|left| left.called).or(under_way).unwrap_or(ask.created_at)
}

impl Reader<'_> {
    /// Whether only the status `sent` can say if the message was received before that question was sent, while the ask may have been
    /// open. The date of the answer to our call is not exact enough for that, and the clock that it comes from may be another one.
    pub(super) fn doubts(&self, asked: &Asked) -> bool {
        let Some(sending) = asked.sending().filter(|_| !asked.invites) else { return false };
        let unsaid = sending.sent.is_none() && sending.delivered.is_none_or(|then| self.at <= Some(then));
        unsaid
            && self.is_about_when(began(&asked.ask, asked.under_way, sending), sending.since())
            && self.state(asked).was_open(&self.as_sent(), TOLERANCE)
    }

    /// The same of a request to confirm.
    pub(super) fn doubts_request(&self, request: &Confirmation) -> bool {
        let time = Time::from_millis;
        !request.told && self.is_about_when(time(request.at), request.since.map(time))
    }

    /// Whether it was received after that call began, and before the message of the call had certainly left, by two clocks that may
    /// differ.
    fn is_about_when(&self, began: Time, left: Option<Time>) -> bool {
        let began = began.moved(self.clock_ahead);
        self.at.is_some_and(|at| at > began - TOLERANCE && at <= left.unwrap_or(began + LISTEN) + TOLERANCE)
    }

    /// Whether a status may still say which of these the message can be about. A quote names a question, or is asked back.
    pub(super) fn may_learn(&self, asked: &[Asked], requests: &[Confirmation]) -> bool {
        let code = words::first_word(self.said);
        let coded = asked.iter().any(|asked| asked.is_open() && asked.is_named_by(&code));
        let may_mean = |asked: &&Asked| !coded || asked.is_named_by(&code);
        self.names_nothing()
            && (asked.iter().filter(may_mean).any(|asked| self.doubts(asked))
                || requests.iter().any(|request| self.doubts_request(request)))
    }

    /// What words mean for the next question of that ask.
    pub(super) fn meaning(&self, asked: &Asked) -> words::Meaning {
        words::read(self.said, asked.code(), asked.question())
    }

    /// Whether the words would answer the next question of that ask, or dismiss it.
    pub(super) fn would_answer(&self, asked: &Asked) -> bool {
        matches!(self.meaning(asked), words::Meaning::Given(_) | words::Meaning::Dismiss)
    }

    /// Whether the words are nothing but the name of an option of that ask's next question.
    pub(super) fn picks(&self, asked: &Asked) -> bool {
        asked.question().choice(self.said.trim()).is_some()
    }

    fn fit(&self, asked: &Asked) -> Fit {
        if self.picks(asked) {
            Fit::Label
        } else if self.would_answer(asked) {
            Fit::Answer
        } else {
            Fit::No
        }
    }

    /// The ask that the quoted message is about.
    pub(super) fn subject(&self) -> Option<AskId> {
        self.post_of.or_else(|| self.about?.ask())
    }

    /// Which question of that ask the message quotes: a post of the question, or a message about it.
    pub(super) fn quoted_question(&self, asked: &Asked) -> Option<usize> {
        let posted = || asked.ask.widgets[asked.route].question_of(self.message.quotes.as_deref()?);
        let about = || self.about.filter(|about| about.ask() == Some(asked.ask.id))?.question();
        posted().or_else(about)
    }

    /// Whether the message quotes one that is about that ask. An invitation to write is about no question. What says how
    /// an ask ended names it only once it has ended.
    fn quotes(&self, asked: &Asked) -> bool {
        let ended = !asked.is_open();
        let about = || self.about.is_some_and(|about| about.ask() == Some(asked.ask.id));
        // A later question is another person's.
        self.quoted_question(asked).is_some_and(|question| ended || question <= asked.next()) || ended && about()
    }

    /// The request to confirm that the message quotes: its ask, its question and its number.
    pub(super) fn quoted_request(&self) -> Option<(AskId, usize, u8)> {
        match self.about.filter(|_| self.post_of.is_none()) {
            Some(About::Request { ask, question, confirms }) => Some((ask, question, confirms)),
            _ => None,
        }
    }

    /// Whether the message quotes nothing that is about an ask, so that time decides what it can mean.
    pub(super) fn names_nothing(&self) -> bool {
        self.subject().is_none() && !self.quotes_unnamed()
    }

    /// Whether the message quotes one that nothing has named yet.
    fn quotes_unnamed(&self) -> bool {
        self.message.quotes.is_some() && self.post_of.is_none() && self.about.is_none()
    }

    /// How the message names that ask, and when the platform received it.
    pub(super) fn heard(&self, asked: &Asked) -> Heard {
        // What nothing has named yet was judged to be this one only if no other could be meant.
        let unnamed = || self.quotes_unnamed() && resolve::came_after(self.at, self.unnamed_since(asked));
        let names = if self.quotes(asked) || unnamed() {
            Names::Message
        } else if asked.is_named_by(&words::first_word(self.said)) {
            Names::Code
        } else {
            Names::Nothing
        };
        Heard { message: self.message.id.clone(), at: self.at, names }
    }

    /// Only a message that the platform received later can quote one of that ask's that nothing has named yet.
    fn unnamed_since(&self, asked: &Asked) -> Option<Time> {
        asked.unnamed_since.map(|since| since.moved(self.clock_ahead) - TOLERANCE)
    }

    /// When that person's next question was sent, by the platform's clock.
    pub(super) fn times(&self, asked: &Asked) -> Times {
        let Some(sending) = asked.sending() else { return Times::default() };
        Times {
            called: sending.left.map(|left| left.called.moved(self.clock_ahead)),
            since: sending.since(),
            sent: sending.sent,
            delivered: sending.delivered,
        }
    }

    /// Which of these asks the message is about. Its first word may be a code.
    pub(super) fn target(&self, asked: &[Asked]) -> Target {
        let first = words::first_word(self.said);
        self.resolve(Some(first.as_str()).filter(|code| !code.is_empty()), asked)
    }

    /// Which of these blocks the message is about, if it has that code. All of them can be ended.
    pub(super) fn target_block(&self, code: Option<&str>, blocked: &[Asked]) -> Target {
        self.resolve(code, blocked)
    }

    fn state(&self, asked: &Asked) -> State {
        let ended = asked.ask.settled_at().filter(|_| !asked.ask.is_blocked());
        match ended.map(|at| at.moved(self.clock_ahead)) {
            None => State::Open,
            Some(at) if asked.ask.is_late_open() => State::Late { at },
            Some(at) => State::Ended { at, theirs: asked.ask.ended_by().is_some_and(|by| by.id == asked.person) },
        }
    }

    /// What is known of the message itself.
    fn as_sent(&self) -> resolve::Message<'_> {
        resolve::Message { at: self.at, overtaken: self.overtaken, ..resolve::Message::default() }
    }

    fn resolve(&self, code: Option<&str>, asked: &[Asked]) -> Target {
        let subject = self.subject();
        let quotes_another = subject.is_some_and(|subject| asked.iter().all(|asked| asked.ask.id != subject));
        // A quote of a message of ours that is about no question proves nothing, so time decides.
        let counts = quotes_another || self.quotes_unnamed() || asked.iter().any(|asked| self.quotes(asked));
        let quotes = self.message.quotes.as_deref().filter(|_| counts);
        let candidates = asked.iter().map(|asked| {
            let ask = &asked.ask;
            Candidate {
                code: ask.short_id.as_str(),
                messages: quotes.filter(|_| self.quotes(asked)).into_iter().collect(),
                unnamed_since: self.unnamed_since(asked),
                begun: asked.sending().is_some(),
                doubtful: self.doubts(asked),
                fit: self.fit(asked),
                code_seen: asked.code_seen,
                times: self.times(asked),
                state: self.state(asked),
            }
        });
        let message = resolve::Message { quotes, quotes_another, code, ..self.as_sent() };
        resolve::resolve(&message, &candidates.collect::<Vec<_>>())
    }
}
