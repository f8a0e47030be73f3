//! Pages of asks, filtered. The index says which asks may fit and in which order. Words, people and channels are not in
//! the index, so this module looks for them in the records. The HTTP API calls it.

use super::Broker;
use super::index::{Began, Cursor, Position};
use crate::host::store::StoreError;
use crate::ipc::wire;
use askd_core::{Ask, AskId, Group, Outcome, Person, ShortId, Time};
use serde_json::value::RawValue;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long a page that reads records looks for asks that fit.
const PATIENCE: Duration = Duration::from_secs(2);

/// Which asks to list. A field that is not given fits every ask.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// `false`: open ones only; `true`: settled ones only.
    pub settled: Option<bool>,
    /// Only asks of this group.
    pub group: Option<Group>,
    /// Only asks of these groups: all that the reader may see.
    pub only: Option<Arc<BTreeSet<Group>>>,
    /// Only asks with this `status`.
    pub outcome: Option<&'static str>,
    /// Only asks settled (for open ones: asked) at this time or later.
    pub since: Option<Time>,
    /// Only asks settled (for open ones: asked) before this time.
    pub until: Option<Time>,
    /// Only asks with these words, in lower case.
    pub words: Option<String>,
    /// Only asks shown or answered there: the channel's name.
    pub channel: Option<String>,
    /// Only asks that this person answered or dismissed: id or name, in lower case.
    pub person: Option<String>,
}

/// One page of a list.
#[derive(Debug)]
pub struct Page<A> {
    /// What its reader wants to know of each ask.
    pub asks: A,
    /// Asks of this page that fit, as far as is known without their records, which are damaged or unreadable.
    pub unreadable: Vec<(Arc<Group>, AskId)>,
    /// How many asks fitted when the first page was read, without those that were known to be unreadable.
    pub total: usize,
    /// Where the next page begins, unless this is the last.
    pub next: Option<Cursor>,
}

impl Filter {
    /// Whether only the records can tell which asks fit.
    fn reads_records(&self) -> bool {
        self.words.is_some() || self.channel.is_some() || self.person.is_some()
    }

    /// Whether the ask fits as it is in the record.
    fn fits(&self, ask: &Ask) -> bool {
        self.settled.is_none_or(|settled| settled == ask.outcome().is_some())
            && self.words.as_deref().is_none_or(|words| has_words(ask, words))
            && self.channel.as_deref().is_none_or(|channel| was_on(ask, channel))
            && self.person.as_deref().is_none_or(|person| said_by(ask).any(|by| is(by, person)))
    }
}

/// How an ask ended, in time and late.
fn outcomes(ask: &Ask) -> impl Iterator<Item = Outcome> {
    ask.outcome().cloned().into_iter().chain(ask.late_outcome().map(|(outcome, _)| outcome))
}

/// Who answered or dismissed it.
fn said_by(ask: &Ask) -> impl Iterator<Item = Person> {
    outcomes(ask).filter_map(|outcome| match outcome {
        Outcome::Answered { by, .. } | Outcome::Dismissed { by } => Some(by),
        _ => None,
    })
}

fn is(by: Person, person: &str) -> bool {
    by.id.to_lowercase() == person || by.name.is_some_and(|name| name.to_lowercase() == person)
}

fn was_on(ask: &Ask, channel: &str) -> bool {
    let mut shown = ask.widgets.iter().filter(|widget| widget.was_shown()).map(|widget| widget.route.channel);
    shown.any(|shown| shown.as_str() == channel) || said_by(ask).any(|by| by.via.as_str() == channel)
}

fn has_words(ask: &Ask, words: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(words);
    let content = &ask.content;
    content.title.as_deref().is_some_and(has)
        || content.context.as_deref().is_some_and(has)
        || ask.short_id.as_str() == words
        || content.questions.iter().any(|q| has(&q.text) || q.choices.iter().any(|choice| has(&choice.label)))
        || answers(ask).any(|answer| has(&answer))
}

fn answers(ask: &Ask) -> impl Iterator<Item = String> {
    let details = outcomes(ask).flat_map(|outcome| wire::details(&ask.content.questions, &outcome));
    details.flat_map(|detail| detail.selected.into_iter().chain(detail.text))
}

/// What came of naming an ask by the beginning of its id, or its short code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// This one.
    One(AskId),
    /// None.
    None,
    /// Several.
    Several(Vec<AskId>),
}

/// The asks of a page, until it is full.
struct Sheet<A> {
    asks: A,
    /// Adds one; `false`: that was the last.
    add: fn(&mut A, &Ask) -> bool,
    count: usize,
    limit: usize,
}

impl<A> Sheet<A> {
    const fn is_full(&self) -> bool {
        self.count >= self.limit
    }

    fn add(&mut self, ask: &Ask) {
        self.count += 1;
        if !(self.add)(&mut self.asks, ask) {
            self.limit = self.count;
        }
    }
}

impl Broker {
    /// What the audit log says of an ask, line by line.
    pub async fn trail(&self, ask: Arc<Ask>) -> Vec<Box<RawValue>> {
        let (broker, now) = (self.clone(), self.clock().now());
        tokio::task::spawn_blocking(move || broker.0.audit.trail(&ask, now)).await.unwrap_or_default()
    }

    /// The ask of a group that is `seen` that a short code, or the beginning of an id, means.
    pub fn named(&self, text: &str, seen: impl Fn(&Group) -> bool) -> Named {
        let short = text.parse::<ShortId>().ok();
        let found = self.index().named(text, short.as_ref(), seen);
        match found.as_slice() {
            [] => Named::None,
            [one] => Named::One(*one),
            _ => Named::Several(found),
        }
    }

    /// Whether an ask is of this group, as far as is known.
    pub(in crate::host) fn is_of_group(&self, id: AskId, group: &Group) -> bool {
        self.index().group(id).is_some_and(|of| *of == *group)
    }

    /// The asks that fit, from `after` on: the open ones, then those that need attention, then the rest. Of each only what
    /// `of` makes of it is kept, because a page may have very large ones. Fails if an ask cannot be read now.
    pub async fn page<T: Send + 'static>(
        &self,
        filter: Filter,
        limit: usize,
        after: Option<Cursor>,
        of: fn(&Ask) -> T,
    ) -> Result<Page<Vec<T>>, StoreError> {
        let add = |(asks, of): &mut (Vec<T>, fn(&Ask) -> T), ask: &Ask| {
            asks.push(of(ask));
            true
        };
        let Page { asks: (asks, _), unreadable, total, next } =
            self.page_into(filter, limit, after, (Vec::new(), of), add).await?;
        Ok(Page { asks, unreadable, total, next })
    }

    /// The same; `add` puts each of them into `asks`, and says whether that takes more.
    pub async fn page_into<A: Send + 'static>(
        &self,
        filter: Filter,
        limit: usize,
        after: Option<Cursor>,
        asks: A,
        add: fn(&mut A, &Ask) -> bool,
    ) -> Result<Page<A>, StoreError> {
        let (broker, sheet) = (self.clone(), Sheet { asks, add, count: 0, limit });
        let read = tokio::task::spawn_blocking(move || broker.read_page(&filter, after, sheet)).await;
        let panicked =
            |panic| StoreError::Io { what: "cannot make a list".to_owned(), source: io::Error::other(panic) };
        read.unwrap_or_else(|panic| Err(panicked(panic)))
    }

    fn read_page<A>(&self, filter: &Filter, after: Option<Cursor>, mut sheet: Sheet<A>) -> Result<Page<A>, StoreError> {
        let most = if filter.reads_records() { usize::MAX } else { sheet.limit + 1 };
        let (mut began, ahead) = {
            let index = self.index();
            let began = after.map_or_else(|| index.begin(filter), |cursor| cursor.began);
            (began, index.ahead(filter, began, after.map(|cursor| cursor.last), most))
        };
        if filter.reads_records() {
            return self.search(filter, began, &ahead, after.is_none(), sheet);
        }
        let (mut unreadable, mut page) = (Vec::new(), 0);
        for (group, place) in ahead.iter().take(sheet.limit) {
            if sheet.is_full() {
                break;
            }
            if let Some(ask) = self.read(group, *place, filter, &mut unreadable)? {
                sheet.add(&ask);
            }
            page += 1;
        }
        if after.is_none() {
            let known = self.0.unreadable.lock().keys().copied().collect::<HashSet<_>>();
            if !known.is_empty() {
                began.total = self.index().count_of(filter, |id| !known.contains(&id));
            }
        }
        let next = ahead[..page].last().filter(|_| ahead.len() > page).map(|(_, last)| Cursor { began, last: *last });
        Ok(Page { asks: sheet.asks, unreadable, total: began.total, next })
    }

    /// A page for a query that needs the records. The first page counts all asks that fit; the others repeat its total.
    /// When time is up, the page ends where the search has come to, and counts what it has found.
    fn search<A>(
        &self,
        filter: &Filter,
        mut began: Began,
        ahead: &[(Arc<Group>, Position)],
        counting: bool,
        mut sheet: Sheet<A>,
    ) -> Result<Page<A>, StoreError> {
        let (clock, mut unreadable) = (self.clock(), Vec::new());
        let (mut more, mut last, mut end) = (0, None, None);
        let until = clock.monotonic() + PATIENCE;
        for (group, place) in ahead {
            // Each page comes further, however slow the disk is or however long the machine slept.
            if last.is_some() && clock.monotonic() >= until {
                end = last;
                break;
            }
            if let Some(ask) = self.read(group, *place, filter, &mut unreadable)? {
                if sheet.is_full() {
                    more += 1;
                } else {
                    sheet.add(&ask);
                }
            }
            // Behind a full page it only counts.
            if more == 0 {
                last = Some(*place);
            } else if !counting {
                break;
            }
        }
        if counting {
            began.total = sheet.count + more;
        }
        let next = end.or(last.filter(|_| more > 0)).map(|last| Cursor { began, last });
        Ok(Page { asks: sheet.asks, unreadable, total: began.total, next })
    }

    /// The ask at this position, if it fits. A damaged one must not hide the others; one that cannot be read now must not look
    /// as if it were not there.
    fn read(
        &self,
        group: &Arc<Group>,
        place: Position,
        filter: &Filter,
        unreadable: &mut Vec<(Arc<Group>, AskId)>,
    ) -> Result<Option<Arc<Ask>>, StoreError> {
        let read = self.0.store.read(group, place.id);
        self.note_read(place.id, &read);
        match read {
            Err(StoreError::Damaged { .. }) => {
                unreadable.push((Arc::clone(group), place.id));
                Ok(None)
            }
            read => Ok(read?.filter(|ask| filter.fits(ask))),
        }
    }
}
