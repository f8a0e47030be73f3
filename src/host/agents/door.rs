//! Who may ask over HTTP, and how much: the holder of a token, for its group, within limits for each token. A refusal is
//! counted and logged once a minute, never with the secret.

use super::Agents;
use crate::clock::Moment;
use crate::host::channel::web::Problem;
use crate::host::tokens::{Holder, is_an_agents};
use askd_core::RequestId;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The header that names the taker: random for each process.
const PROCESS: HeaderName = HeaderName::from_static("askd-process");
/// How many calls of a token wait at a time.
const WAITS: usize = 64;
/// One new ask for each of these, and so many at once.
const PACE: Duration = Duration::from_millis(200);
const BURST: u32 = 20;

/// Who calls, and for whom an outcome is held.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) holder: Holder,
    pub(super) taker: String,
}

/// What each token has used of its limits, by its id.
#[derive(Debug, Default)]
pub(super) struct Budgets(Mutex<HashMap<String, Budget>>);

#[derive(Debug)]
struct Budget {
    waits: Arc<Semaphore>,
    /// When all asks so far would have come at the even pace.
    paced: Moment,
}

impl Budgets {
    fn of<T>(&self, holder: &Holder, now: Moment, change: impl FnOnce(&mut Budget) -> T) -> T {
        let mut budgets = self.0.lock();
        let new = || Budget { waits: Arc::new(Semaphore::new(WAITS)), paced: now };
        change(budgets.entry(holder.id.clone()).or_insert_with(new))
    }
}

impl Agents {
    /// A place for a call that waits.
    pub(super) fn place(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, Problem> {
        let now = self.ctx.clock().monotonic();
        let place = self.budgets.of(&caller.holder, now, |budget| Arc::clone(&budget.waits).try_acquire_owned());
        place.map_err(|_none| {
            let detail = format!("This token has {WAITS} calls that wait. Wait for one of them to end.");
            self.too_many(caller, detail, Duration::from_secs(1))
        })
    }

    /// Counts one more ask of this token; if that is too many, says how long it has to wait.
    pub(super) fn over_pace(&self, caller: &Caller) -> Option<Duration> {
        let now = self.ctx.clock().monotonic();
        self.budgets.of(&caller.holder, now, |budget| {
            let paced = budget.paced.max(now);
            let over = (paced.since(now) + PACE).checked_sub(PACE * BURST).filter(|over| !over.is_zero());
            if over.is_none() {
                budget.paced = paced + PACE;
            }
            over
        })
    }

    /// The same; one that is too many is refused.
    pub(super) fn pace(&self, caller: &Caller) -> Result<(), Problem> {
        self.over_pace(caller).map_or(Ok(()), |over| Err(self.too_fast(caller, over)))
    }

    pub(super) fn too_fast(&self, caller: &Caller, over: Duration) -> Problem {
        let detail = format!("This token has asked {BURST} questions at once; 5 more are possible each second.");
        self.too_many(caller, detail, over)
    }

    fn too_many(&self, caller: &Caller, detail: String, after: Duration) -> Problem {
        let token = &caller.holder.id;
        let what = format!("a call over HTTP was refused: too many with the token {token}");
        if self.warnings.is_first(Some(&caller.holder.group), &what) {
            tracing::warn!(group = %caller.holder.group, token, detail, "a call over HTTP was refused");
        }
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "Too many", detail).retry_after(after)
    }
}

fn no_token() -> Response {
    let detail = "The token is missing, wrong, revoked or expired. `askd token new GROUP` makes one on askd's host; send it \
                  as: Authorization: Bearer <token>. The inbox token does not open this door.";
    let scheme = [(header::WWW_AUTHENTICATE, "Bearer")];
    (scheme, Problem::new(StatusCode::UNAUTHORIZED, "No access", detail)).into_response()
}

fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Who calls; an error: this daemon cannot find that out now.
async fn holder(agents: &Agents, headers: &HeaderMap) -> io::Result<Option<Holder>> {
    let Some(token) = token(headers) else { return Ok(None) };
    let known = agents.tokens.holder(token);
    // Another daemon may just have made it.
    if known.is_some() || !agents.broker.is_shared() || !is_an_agents(token) {
        Ok(known)
    } else {
        agents.tokens.new_holder(token).await
    }
}

/// No call gets further without a good token. One that reads ends as soon as its token does.
pub(super) async fn holders_only(State(agents): State<Agents>, mut request: Request, next: Next) -> Response {
    if agents.broker.is_blind() || agents.tokens.is_blind() {
        // The token may be revoked at another daemon.
        return Problem::cut_off().into_response();
    }
    let known = match holder(&agents, request.headers()).await {
        Ok(known) => known,
        Err(error) => {
            let what = "cannot read which tokens another daemon has made";
            if agents.warnings.is_first(None, what) {
                tracing::warn!(%error, "{what}");
            }
            let why = "askd cannot find out now whether another daemon has made this token. Try again.";
            return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Not now", why).into_response();
        }
    };
    let Some(holder) = known else {
        if agents.warnings.is_first(None, "a call over HTTP was refused: no good token") {
            tracing::warn!("a call over HTTP was refused: no good token");
        }
        return no_token();
    };
    let process = request.headers().get(PROCESS).map(|value| value.to_str().ok().and_then(|id| id.parse().ok()));
    let process: Option<RequestId> = match process {
        Some(None) => {
            let detail = "Askd-Process has 1 to 64 of A-Z, a-z, 0-9, _ and -.";
            return Problem::new(StatusCode::BAD_REQUEST, "Not understood", detail).into_response();
        }
        process => process.flatten(),
    };
    if agents.tokens.note_use(&holder) {
        let tokens = agents.tokens.clone();
        agents.ctx.finish_blocking(move || tokens.save_used());
    }
    // The process alone: its token may be another one by now.
    let taker = process.as_ref().map_or(&*holder.id, RequestId::as_str).to_owned();
    let caller = Caller { taker, holder: holder.clone() };
    let reads = request.method() == Method::GET;
    request.extensions_mut().insert(caller);
    tokio::select! {
        response = next.run(request) => response,
        () = holder.ends(agents.ctx.clock()), if reads => no_token(),
    }
}
