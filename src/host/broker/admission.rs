//! Whether a group may ask something now, and by which rules.

use super::Broker;
use super::attempts::rules_of;
use crate::host::settings::GroupSettings;
use crate::ipc::wire::Request;
use askd_core::{Delivery, Group, Limited, Rejection, Route, Rules, Time, TimeoutPolicy, Told, Waiter};

impl Broker {
    /// Whether the group may ask this now, and by which rules.
    pub(super) fn admit(&self, group: &Group, request: &Request) -> Result<Admitted, Rejection> {
        let settings = self.settings();
        let unknown = || Rejection::UnknownGroup { group: group.folder().to_owned() };
        let settings = settings.group(group).ok_or_else(unknown)?;
        let now = self.clock().now();
        let waiter = waiter(request, settings, now)?;
        self.0.channels.fit(&settings.routes, group, &request.content)?;
        let (open, asked) = self.index().load(group, now);
        let limited = |kind, limit| Err(Rejection::RateLimited { group: group.folder().to_owned(), kind, limit });
        if open >= settings.max_open {
            return limited(Limited::Open, settings.max_open);
        }
        if asked >= settings.max_per_hour {
            return limited(Limited::Hourly, settings.max_per_hour);
        }
        let rules = Rules {
            timeout: request.timeout.unwrap_or(settings.timeout),
            render_timeout: request.render_timeout.unwrap_or(settings.render_timeout),
            max_retries: request.max_retries.unwrap_or(settings.max_retries),
            remind_after: settings.remind_after,
            escalate_after: settings.escalate_after,
            ..rules_of(settings)
        };
        Ok(Admitted { rules, routes: self.0.channels.fix(&settings.routes), waiter })
    }
}

/// What a group may ask.
pub(super) struct Admitted {
    pub(super) rules: Rules,
    pub(super) routes: Vec<Route>,
    pub(super) waiter: Waiter,
}

pub(super) fn waiter(request: &Request, settings: &GroupSettings, now: Time) -> Result<Waiter, Rejection> {
    if request.timeout_policy == Some(TimeoutPolicy::AbortTask) && settings.session.stop.is_none() {
        return Err(Rejection::Wrong {
            field: "timeoutPolicy".to_owned(),
            why: "abort_task needs a way to stop the session, and this group has none; use return_cancel".to_owned(),
        });
    }
    Ok(Waiter {
        request_id: request.request_id.clone(),
        digest: request.digests[0],
        op_code: request.op_code.clone(),
        on_timeout: request.timeout_policy.unwrap_or(settings.on_timeout),
        process: request.process.clone(),
        other_session: Some(request.session.clone().unwrap_or_default()),
        briefed: None,
        asked_at: request.file.as_ref().map_or(now, |(at, _)| now.min(*at)),
        run: None,
        told: Told::Outcome,
        response: Delivery::default(),
        carrier: request.carrier.clone(),
        replaced: false,
        claim: request.claim(),
    })
}
