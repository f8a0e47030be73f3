//! One waiting call: its request in `tasks/`, its response in `responses/`, and how long it waits. The caller decides when
//! to call [`Waiter::look`].

use super::deadline::Deadline;
use super::process::Process;
use super::way::{OpenCall, Taken, Work};
use super::{AgentError, Folder, trouble};
use crate::clock::{Clock, Moment};
use crate::ipc::files::{ReadError, Stamp};
use crate::ipc::wire::{Kinds, MAX_TIMEOUT_MS, RENDER_TIMEOUT_MS, RequestFile, ResponseFile};
use crate::ipc::{RESPONSES, TASKS, response_name, status_name, taken_name};
use crate::random;
use askd_core::RequestId;
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// `timeoutMs` if neither the request nor the group's settings say. A waiting call only gives up by it.
pub(super) const TIMEOUT_MS: u64 = 1_800_000;
/// How long after its own deadline the daemon may stay silent.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The same without a known deadline, beside twice the timeout.
pub(super) const BLIND_PATIENCE: Duration = Duration::from_secs(600);
/// After so long without a look the process was stopped or its host asleep: nobody was patient meanwhile.
pub(super) const STOOD_STILL: Duration = Duration::from_secs(15);
/// How long something else may stand in the place of the response.
const ODD_FOR: Duration = Duration::from_secs(5);
/// What to do about it.
const ODD: &str = "Only the daemon may write there; remove it and ask again";
/// The largest response that is read.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;

/// What a look has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Nothing yet; at this moment it is time to give up.
    Waiting(Moment),
    /// A whole response is there, and stays until it is taken.
    Ready,
}

/// One waiting call.
pub struct Waiter {
    folder: Mutex<Arc<Folder>>,
    process: Arc<Process>,
    request_id: RequestId,
    request: RequestFile,
    clock: Clock,
    render_timeout: Duration,
    timeout: Duration,
    asked: Moment,
    seen: Mutex<Seen>,
}

/// What the folder has shown so far. Durations are measured by the monotonic clock.
#[derive(Debug, Default)]
struct Seen {
    claimed: Option<Moment>,
    /// The last look, and until when there are more of them because the process stood still before one.
    looked: Option<Moment>,
    at_least: Option<Moment>,
    deadline: Deadline,
    /// The response that was read last, and how its file was left.
    response: Option<(Stamp, ResponseFile)>,
    /// Since when something else than a response to this call lies in its place.
    odd: Option<Moment>,
}

pub(super) fn millis(given: Option<i64>, default: u64) -> Duration {
    Duration::from_millis(given.and_then(|millis| u64::try_from(millis).ok()).unwrap_or(default))
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.process.end(&self.folder(), &self.request_id);
    }
}

impl Waiter {
    /// Writes the request. The watch and the sign of life start before, so that no answer is missed.
    /// Its id, kind and process are filled in here.
    pub fn ask(
        folder: Arc<Folder>,
        mut request: RequestFile,
        clock: Clock,
        process: &Arc<Process>,
    ) -> Result<Self, AgentError> {
        let request_id = random::request_id();
        Kinds::ASK.clone_into(&mut request.kind);
        request.request_id = request_id.to_string();
        request.process = Some(process.id().to_owned());
        process.begin(&folder, &request_id);
        let asked = clock.monotonic();
        let waiter = Self {
            folder: Mutex::new(folder),
            process: Arc::clone(process),
            request_id,
            clock,
            render_timeout: millis(request.render_timeout, RENDER_TIMEOUT_MS),
            timeout: millis(request.timeout_ms, TIMEOUT_MS),
            request,
            asked,
            seen: Mutex::default(),
        };
        waiter.folder().put(&waiter.request_name(), &waiter.request)?;
        Ok(waiter)
    }

    fn folder(&self) -> Arc<Folder> {
        Arc::clone(&self.folder.lock())
    }

    /// Follows a folder that was removed and made again, unless the request still lies in the old one. If nothing has shown
    /// that the daemon claimed it, it is made again: a daemon that has it asks nothing twice.
    fn follow(&self) -> Result<(), AgentError> {
        let (folder, is_claimed) = (self.folder(), self.is_claimed());
        if folder.is_current() || is_claimed && folder.lacks_a_part() {
            return Ok(());
        }
        let now = Folder::open(&folder.path)?;
        if !is_claimed {
            if self.is_waiting_to_be_claimed().unwrap_or(false) {
                let gone =
                    io::Error::new(io::ErrorKind::NotFound, "the folder was replaced, and the question went with it");
                return Err(self.error(TASKS, gone));
            }
            now.put(&self.request_name(), &self.request)?;
        }
        self.process.moves(&now);
        *self.folder.lock() = Arc::new(now);
        Ok(())
    }

    fn claimed(&self) {
        self.seen.lock().claimed.get_or_insert_with(|| self.clock.monotonic());
    }

    /// When patience ends.
    fn give_up(&self, claimed: Moment) -> Moment {
        match self.passes() {
            Some(passes) => passes + PATIENCE,
            None => claimed + self.longest() * 2 + BLIND_PATIENCE,
        }
    }

    /// How long a person has at most. A daemon that has told of the question, and not yet of a deadline, goes by the group's
    /// settings, which nobody here knows.
    fn longest(&self) -> Duration {
        let told = self.request.timeout_ms.is_none() && self.seen.lock().deadline.was_told();
        if told { Duration::from_millis(MAX_TIMEOUT_MS) } else { self.timeout }
    }

    /// A look begins. Until when it is too early to give up: while this process stood still, the daemon may have taken it for dead, and
    /// gives an outcome back once it shows life again.
    fn patient_until(&self) -> Moment {
        let now = self.clock.monotonic();
        let mut seen = self.seen.lock();
        if seen.looked.replace(now).is_some_and(|last| now.since(last) > STOOD_STILL) {
            seen.at_least = Some(now + PATIENCE);
        }
        seen.at_least.unwrap_or(now)
    }

    /// When the daemon's deadline passes.
    fn passes(&self) -> Option<Moment> {
        let folder = self.folder();
        self.seen.lock().deadline.passes(&folder, &self.request_id, self.timeout, &self.clock)
    }

    fn request_name(&self) -> String {
        format!("{}.json", self.request_id)
    }

    fn error(&self, folder: &str, error: io::Error) -> AgentError {
        trouble(&self.folder().path.join(folder), "The folder must exist and be readable and writable", error)
    }

    fn is_waiting_to_be_claimed(&self) -> Result<bool, AgentError> {
        let there = self.folder().tasks.stat(&self.request_name());
        there.map(|stamp| stamp.is_some()).map_err(|error| self.error(TASKS, error))
    }

    fn take_back(&self) -> Result<bool, AgentError> {
        self.folder().tasks.remove(&self.request_name()).map_err(|error| self.error(TASKS, error))
    }

    /// The response, if it is there and whole. A host that writes in place may not be done yet, or gives the file a second
    /// name for a moment: such a file is read again, never deleted.
    fn read(&self) -> Result<Option<ResponseFile>, AgentError> {
        let name = response_name(&self.request_id);
        let read = self.folder().responses.read_trusted(&name, MAX_RESPONSE_BYTES);
        let mut seen = self.seen.lock();
        let odd = seen.odd.take();
        let (error, may_pass) = match read {
            Ok((bytes, stamp)) => match self.response_in(&bytes) {
                Ok(response) => {
                    seen.response = response.clone().map(|response| (stamp, response));
                    return Ok(response);
                }
                Err(error) => (error, true),
            },
            Err(ReadError::Gone) => return Ok(None),
            Err(error) => {
                let may_pass = matches!(error, ReadError::NotPlain(_));
                (io::Error::other(error), may_pass)
            }
        };
        let now = self.clock.monotonic();
        let since = odd.unwrap_or(now);
        if may_pass && now.since(since) < ODD_FOR {
            seen.odd = Some(since);
            return Ok(None);
        }
        drop(seen);
        Err(trouble(&self.folder().path.join(RESPONSES).join(name), ODD, error))
    }

    /// The response to this call; `None`: it is not whole yet. An error if it is whole and something else.
    fn response_in(&self, bytes: &[u8]) -> io::Result<Option<ResponseFile>> {
        match serde_json::from_slice::<ResponseFile>(bytes) {
            Ok(response) if response.result.request_id == self.request_id.as_str() => {
                Ok(Some(response.with_bare_error()))
            }
            Err(_) if serde_json::from_slice::<IgnoredAny>(bytes).is_err() => Ok(None),
            _ => Err(io::Error::other(format!("it is not a response to the request {}", self.request_id))),
        }
    }

    /// The response, not opened a second time if its file is as it was left when it was read.
    fn read_again(&self) -> Result<Option<ResponseFile>, AgentError> {
        let known = self.seen.lock().response.take();
        if let Some((stamp, response)) = known
            && self.folder().responses.stat(&response_name(&self.request_id)).ok().flatten() == Some(stamp)
        {
            return Ok(Some(response));
        }
        self.read()
    }
}

impl OpenCall for Waiter {
    fn request_id(&self) -> &RequestId {
        &self.request_id
    }

    fn is_claimed(&self) -> bool {
        self.seen.lock().claimed.is_some()
    }

    fn left(&self) -> Option<Duration> {
        self.passes().map(|passes| passes.since(self.clock.monotonic()))
    }

    fn show_life(&self) {
        self.process.show_life(&self.folder());
    }

    /// Looks into the folder. It takes nothing but a request that was not claimed in time. An error ends the wait.
    fn look(&self) -> Result<Look, AgentError> {
        let at_least = self.patient_until();
        self.follow()?;
        if self.read()?.is_some() {
            self.claimed();
            return Ok(Look::Ready);
        }
        let now = self.clock.monotonic();
        if self.is_waiting_to_be_claimed()? {
            // A daemon that could not store the request has put it back.
            self.seen.lock().claimed = None;
        } else {
            self.claimed();
        }
        let Some(claimed) = self.seen.lock().claimed else {
            let give_up = self.asked + self.render_timeout;
            if now < give_up {
                return Ok(Look::Waiting(give_up));
            }
            if self.take_back()? {
                return Err(AgentError::NotClaimed { place: self.folder().path.display().to_string() });
            }
            // It was claimed in this very moment: go on waiting.
            self.claimed();
            return Ok(Look::Waiting(now + self.timeout));
        };
        let give_up = self.give_up(claimed).max(at_least);
        if now >= give_up { Err(AgentError::HostSilent) } else { Ok(Look::Waiting(give_up)) }
    }

    /// Takes the response, if it is there. Renaming it first shows the daemon that it was taken.
    fn take(&self) -> Result<Option<Taken>, AgentError> {
        let Some(response) = self.read_again()? else { return Ok(None) };
        match self.folder().responses.rename(&response_name(&self.request_id), &taken_name(&self.request_id)) {
            Ok(()) => Ok(Some(Taken::file(response, self.folder(), self.request_id.clone()))),
            // The daemon withdrew it in this very moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error(RESPONSES, error)),
        }
    }

    fn woken(&self, give_up: Moment) -> Work<'_, ()> {
        Box::pin(async move {
            tokio::select! {
                () = self.process.woken() => {}
                () = self.clock.sleep_to(give_up.min(self.clock.monotonic() + self.process.look_every())) => {}
            }
        })
    }

    /// Whether the question has an outcome that did not come here: its status is gone, and no response came.
    fn is_over(&self) -> bool {
        let there = self.folder().responses.stat(&status_name(&self.request_id));
        self.seen.lock().deadline.was_told() && there.is_ok_and(|there| there.is_none())
    }

    fn withdraw(&self) -> Result<bool, AgentError> {
        // What keeps it from that is told when the folder is written to.
        let _followed = self.follow();
        if self.take_back()? {
            return Ok(true);
        }
        let cancel = RequestFile {
            kind: Kinds::CANCEL.to_owned(),
            request_id: self.request_id.to_string(),
            ..RequestFile::default()
        };
        self.folder().put(&format!("cancel-{}.json", self.request_id), &cancel)?;
        Ok(false)
    }

    fn leave(&self) {
        self.process.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Hand;
    use askd_core::Time;
    use std::path::PathBuf;

    const START: Time = Time::from_millis(1_790_000_000_000);
    const MINUTE: Duration = Duration::from_secs(60);
    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    /// A call that a host has claimed, and both clocks.
    struct Scene {
        _temp: tempfile::TempDir,
        responses: PathBuf,
        waiter: Waiter,
        hand: Hand,
    }

    impl Scene {
        /// Of a call that gives a person a minute.
        fn claimed() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let (tasks, responses) = (temp.path().join(TASKS), temp.path().join(RESPONSES));
            std::fs::create_dir(&tasks).unwrap();
            std::fs::create_dir(&responses).unwrap();
            let (clock, hand) = Clock::by_hand(START);
            let folder = Arc::new(Folder::open(temp.path()).unwrap());
            let minute = Some(60_000);
            let asking = RequestFile { render_timeout: minute, timeout_ms: minute, ..RequestFile::default() };
            let waiter = Waiter::ask(folder, asking, clock.clone(), &Process::new(&clock)).unwrap();
            std::fs::remove_file(tasks.join(waiter.request_name())).unwrap();
            Self { _temp: temp, responses, waiter, hand }
        }

        /// The host says by its own clock since when it is shown, and until when it can be answered.
        fn says(&self, shown_at: Time, answer_by: Time) {
            self.tells(&serde_json::json!({"state": "open", "shown_at": shown_at, "answer_by": answer_by}));
        }

        #[expect(clippy::disallowed_methods, reason = "a host of the tests")]
        fn tells(&self, status: &serde_json::Value) {
            let temporary = self.responses.join(".tmp");
            std::fs::write(&temporary, status.to_string()).unwrap();
            std::fs::rename(temporary, self.responses.join(status_name(self.waiter.request_id()))).unwrap();
        }

        /// Time passes in which the call looks again and again, and nothing else happens.
        fn pass(&self, time: Duration) {
            for _ in 0..time.as_secs() / 10 {
                self.hand.advance(SECOND * 10);
                assert!(self.waits(), "given up early");
            }
            self.hand.advance(Duration::from_secs(time.as_secs() % 10));
        }

        fn waits(&self) -> bool {
            matches!(self.waiter.look().unwrap(), Look::Waiting(_))
        }

        /// Waits until so long after now, and then no longer.
        fn waits_for(&self, time: Duration) {
            assert!(self.waits());
            self.pass(time.saturating_sub(SECOND));
            assert!(self.waits(), "given up early");
            self.pass(SECOND * 2);
            assert!(matches!(self.waiter.look(), Err(AgentError::HostSilent)));
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a host of the tests")]
    fn put(place: &std::path::Path, text: &str) {
        std::fs::write(place, text).unwrap();
    }

    #[tokio::test]
    async fn a_host_that_falls_silent_is_given_up_30_s_after_its_deadline() {
        let scene = Scene::claimed();
        scene.says(START, START + MINUTE);
        scene.waits_for(MINUTE + PATIENCE);
        // The waiting call ends the same way, and nothing is deleted.
        assert!(matches!((&scene.waiter as &dyn OpenCall).wait().await, Err(AgentError::HostSilent)));
    }

    #[test]
    fn without_a_deadline_it_is_twice_the_time_and_ten_minutes() {
        Scene::claimed().waits_for(MINUTE * 2 + BLIND_PATIENCE);
    }

    /// The group's settings may give a person days.
    #[test]
    fn without_a_timeout_of_its_own_a_call_that_the_daemon_told_of_waits_as_long_as_any() {
        let mut scene = Scene::claimed();
        (scene.waiter.request.timeout_ms, scene.waiter.timeout) = (None, Duration::from_millis(TIMEOUT_MS));
        scene.tells(&serde_json::json!({"state": "posting"}));
        let longest = Duration::from_millis(MAX_TIMEOUT_MS);
        let give_up = scene.waiter.clock.monotonic() + longest * 2 + BLIND_PATIENCE;
        scene.waiter.look().unwrap();
        assert_eq!(scene.waiter.look().unwrap(), Look::Waiting(give_up));
    }

    /// The daemon took it for dead meanwhile, and told nobody here of the outcome.
    #[test]
    fn a_process_that_stood_still_is_patient_anew() {
        for told in [true, false] {
            let scene = Scene::claimed();
            if told {
                scene.says(START, START + MINUTE);
            }
            assert!(scene.waits());
            scene.hand.advance(HOUR);
            scene.waits_for(PATIENCE);
        }
    }

    #[test]
    fn a_later_deadline_counts_from_then_on() {
        let scene = Scene::claimed();
        scene.says(START, START + MINUTE);
        assert!(scene.waits());
        scene.pass(MINUTE);
        scene.says(START + MINUTE, START + MINUTE * 2);
        scene.waits_for(MINUTE + PATIENCE);
    }

    #[test]
    fn a_clock_that_is_set_makes_nobody_give_up_early_or_wait_longer() {
        for set in [START + HOUR, START - HOUR] {
            let scene = Scene::claimed();
            scene.says(START, START + MINUTE);
            assert!(scene.waits());
            scene.hand.set(set);
            scene.waits_for(MINUTE + PATIENCE);
            // The daemon says so half-way.
            let scene = Scene::claimed();
            scene.says(START, START + MINUTE);
            assert!(scene.waits());
            scene.hand.set(set);
            scene.pass(SECOND * 30);
            scene.says(set, set + MINUTE);
            assert_eq!(scene.waiter.left(), Some(SECOND * 30));
            scene.waits_for(SECOND * 30 + PATIENCE);
        }
    }

    #[test]
    fn a_host_whose_clock_is_another_one_is_waited_for_as_long() {
        // Its clock is behind ours: what it says has passed already.
        let scene = Scene::claimed();
        scene.says(START - HOUR, START - HOUR + MINUTE);
        scene.waits_for(MINUTE + PATIENCE);
        // The daemon's clock is ahead, so its deadline is far away.
        let scene = Scene::claimed();
        scene.says(START + HOUR, START + HOUR + MINUTE);
        scene.waits_for(MINUTE + PATIENCE);
    }

    /// Another folder may take the place of the first one before this side has looked: the question may have been claimed or not.
    #[test]
    fn in_a_folder_that_was_replaced_the_request_is_made_again_unless_it_still_lies_in_the_old_one() {
        let scene = Scene::claimed();
        let (tasks, name) = (scene.responses.with_file_name(TASKS), scene.waiter.request_name());
        for folder in [&tasks, &scene.responses] {
            std::fs::rename(folder, folder.with_extension("old")).unwrap();
            std::fs::create_dir(folder).unwrap();
        }
        assert!(scene.waits());
        assert!(tasks.join(&name).exists(), "a host that has it asks nothing twice");
        // The same once more, with a request that nobody has claimed.
        for folder in [&tasks, &scene.responses] {
            std::fs::rename(folder, folder.with_extension("older")).unwrap();
            std::fs::create_dir(folder).unwrap();
        }
        let error = scene.waiter.look().unwrap_err().to_string();
        assert!(error.contains("the question went with it"), "{error}");
    }

    /// The daemon makes `tasks/` again, and a living process is not taken for dead.
    #[test]
    fn a_claimed_call_follows_tasks_that_are_made_again_alone() {
        let scene = Scene::claimed();
        assert!(scene.waits() && scene.waiter.is_claimed());
        let tasks = scene.responses.with_file_name(TASKS);
        std::fs::rename(&tasks, tasks.with_extension("old")).unwrap();
        assert!(scene.waits(), "it comes back");
        std::fs::create_dir(&tasks).unwrap();
        assert!(scene.waits());
        scene.waiter.show_life();
        assert!(!tasks.join(scene.waiter.request_name()).exists(), "the daemon has it");
        assert_eq!(std::fs::read_dir(tasks.join(crate::ipc::ALIVE)).unwrap().count(), 1);
        assert!(!scene.waiter.withdraw().unwrap());
        assert!(tasks.join(format!("cancel-{}.json", scene.waiter.request_id())).exists());
    }

    #[test]
    fn a_response_to_another_call_is_no_answer_and_is_told_after_a_moment() {
        let scene = Scene::claimed();
        let place = scene.responses.join(response_name(scene.waiter.request_id()));
        let result = serde_json::json!({
            "answers": {"Go?": "yes"}, "status": "answered", "reason": "user", "answered": true, "cancelled": false, "timedOut": false,
            "shouldRetry": false, "retryReason": null, "renderConfirmed": true, "details": [], "answered_by": null,
            "request_id": "other", "opCode": null, "answered_at": null,
        });
        let mut response = serde_json::json!({ "result": result });
        for unfit in [response.to_string(), r#"{"error": "boom"}"#.to_owned()] {
            put(&place, &unfit);
            assert!(scene.waits());
            scene.pass(ODD_FOR);
            let error = scene.waiter.look().unwrap_err().to_string();
            assert!(error.contains("not a response to the request") && error.contains("remove it"), "{error}");
            assert!(place.exists(), "nothing is deleted");
            std::fs::remove_file(&place).unwrap();
            assert!(scene.waits());
        }
        put(&place, "{\"result\": {\"answers\"");
        assert!(scene.waits(), "it is being written");
        scene.pass(ODD_FOR);
        assert!(scene.waits());
        response["result"]["request_id"] = scene.waiter.request_id().as_str().into();
        put(&place, &response.to_string());
        assert!(matches!(scene.waiter.look(), Ok(Look::Ready)));
    }

    #[test]
    fn what_is_no_file_in_place_of_the_response_is_told_after_a_moment() {
        let scene = Scene::claimed();
        let squatted = scene.responses.join(response_name(scene.waiter.request_id()));
        std::fs::create_dir(&squatted).unwrap();
        assert!(scene.waits());
        scene.pass(ODD_FOR.saturating_sub(SECOND));
        assert!(scene.waits());
        std::fs::remove_dir(&squatted).unwrap();
        assert!(scene.waits());
        scene.pass(ODD_FOR);
        std::fs::create_dir(&squatted).unwrap();
        assert!(scene.waits(), "another moment for another one");
        scene.pass(ODD_FOR + SECOND);
        let error = scene.waiter.look().unwrap_err().to_string();
        assert!(error.contains(squatted.to_str().unwrap()) && error.contains("a folder"), "{error}");
        assert!(error.contains("remove it and ask again"), "{error}");
        assert!(squatted.is_dir(), "nothing is deleted");
    }
}
