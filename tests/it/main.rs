//! Stories: the parts of `askd` together, against its stand-ins.

mod sim_slack;
mod sim_slack_app;
mod sim_slack_faults;
mod sim_slack_sockets;
