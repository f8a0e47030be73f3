//! Stories about the whole of askd: real files, real HTTP, and the daemon in this process or as the real binary
//! (`daemon.rs`). One file a subject. The world they play in is in `harness.rs`; what people do in Slack and on WhatsApp
//! is in `in_slack.rs` and `on_whatsapp.rs`, and an MCP client in `mcp_client.rs`.
#![cfg(feature = "host")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::too_many_lines,
    reason = "a story stops at the first thing that is not as it should be, and is read from top to bottom"
)]

mod accepting;
mod after_loss;
mod answering;
mod attempts;
mod attempts_in_chats;
mod bad_input;
mod both_channels;
mod briefing;
mod broken_on_purpose;
mod clocks;
mod command_line;
mod copying;
mod crashes;
mod cut_off;
mod daemon;
mod deploying;
mod doctor;
mod documents;
mod drop_in;
mod finding;
mod floods;
mod folders_of_hosts;
mod forgetting;
mod goldens;
mod groups_held;
mod harness;
mod history;
mod house;
mod http;
mod hung;
mod idle;
mod in_slack;
mod in_tables;
mod inbox_token;
mod journal;
mod listing;
mod liveness;
mod mcp;
mod mcp_anywhere;
mod mcp_client;
mod mcp_lines;
mod mcp_troubles;
mod mcp_url;
mod meta_schema;
mod metrics;
mod on_postgres;
mod on_whatsapp;
mod other_versions;
mod outages;
mod over_tls;
mod people;
mod pictures;
mod ports;
mod push;
mod remote;
mod remote_agents;
mod renewed;
mod said;
mod saves;
mod secrets;
mod sessions;
mod sessions_chat;
mod sessions_docker;
mod sessions_moments;
mod sessions_webhook;
mod setting_up;
mod several_daemons;
mod sim_slack;
mod sim_slack_app;
mod sim_slack_faults;
mod sim_slack_sockets;
mod sim_whatsapp;
mod slack_corpus;
mod slack_faults;
mod slack_forms;
mod slack_refusals;
mod slack_round;
mod slack_threads;
mod small_channel;
mod sql;
mod starting;
mod status;
mod stopping;
mod stored;
mod strangers;
mod sweep;
mod systemd;
mod taking_over;
mod timing;
mod traces;
mod troubles;
mod typing;
mod viewing;
mod whatsapp_anywhere;
mod whatsapp_closing;
mod whatsapp_confirming;
mod whatsapp_faults;
mod whatsapp_late;
mod whatsapp_meant;
mod whatsapp_nudges;
mod whatsapp_refusals;
mod whatsapp_restarts;
mod whatsapp_taps;
mod whatsapp_time;
mod whatsapp_together;
mod whatsapp_trips;
mod whatsapp_waiting;
mod whatsapp_window;
