//! What outlives a daemon that takes the lead: it is opened anew in the same process, on the same sockets, as if it had just started.

use super::broker::{Broker, Known};
use super::channel::Open;
use super::settings::Settings;
use super::tls::Tls;
use crate::clock::Clock;
use askd_core::ChannelName;
use parking_lot::Mutex;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use tokio::net::TcpListener;

/// What a daemon that takes the lead is opened with.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) channels: Vec<(ChannelName, Open)>,
    pub(super) sockets: Vec<std::net::TcpListener>,
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    /// What it knew of the stored asks when it did not lead.
    pub(super) known: Option<Known>,
}

/// What a reload of the settings reaches. A daemon that takes the lead is opened anew.
#[derive(Debug, Clone)]
pub struct Current(pub(super) Arc<Mutex<(Broker, Option<Tls>)>>);

impl Current {
    /// What does things with asks now.
    pub fn broker(&self) -> Broker {
        self.0.lock().0.clone()
    }

    /// The certificate of the agents' listener.
    pub fn tls(&self) -> Option<Tls> {
        self.0.lock().1.clone()
    }
}

impl Next {
    /// The sockets stay open: nobody who calls meanwhile is turned away.
    pub(super) fn of(
        channels: &[(ChannelName, Open)],
        (inbox, webhooks, agents): (&TcpListener, Option<&TcpListener>, Option<&TcpListener>),
        settings: &Settings,
        clock: Clock,
    ) -> io::Result<Self> {
        let mut settings = settings.clone();
        // The system may have chosen the port.
        settings.http.listen = inbox.local_addr()?;
        settings.http.webhook_listen = webhooks.map(TcpListener::local_addr).transpose()?;
        settings.agents.listen = agents.map(TcpListener::local_addr).transpose()?.or(settings.agents.listen);
        let bound = [Some(inbox), webhooks, agents].into_iter().flatten();
        let same = bound.map(|socket| Ok(std::net::TcpListener::from(socket.as_fd().try_clone_to_owned()?)));
        let sockets = same.collect::<io::Result<Vec<_>>>()?;
        Ok(Self { channels: channels.to_vec(), sockets, settings, clock, known: None })
    }
}
