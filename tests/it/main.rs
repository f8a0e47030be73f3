//! Integration tests: one binary, one file per story.

#[cfg(test)]
mod sim_whatsapp;
#[cfg(test)]
mod whatsapp_faults;
#[cfg(test)]
mod whatsapp_refusals;
#[cfg(test)]
mod whatsapp_trips;
#[cfg(test)]
mod whatsapp_window;
#[cfg(test)]
mod whatsapp_world;
